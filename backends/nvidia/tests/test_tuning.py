"""Tuning hooks.

The model's order of measured configurations, pruning, proposals, and the untuned choice.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from pointer_kernels import plain

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.work import Work
from tilewright.passes.analysis.work import work_of
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module
from tilewright_conformance.op_samples import samples
from tilewright_nvidia import performance_model
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.performance_model import Estimate, estimate
from tilewright_nvidia.tuning import cost, prune, tuning_space

PROCESSORS = 132


@pytest.fixture(autouse=True)
def usual_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU that the figures are of, whichever is here."""
    monkeypatch.setattr(performance_model, "_processors", lambda arch: 0)


@tw.jit
def persistent(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, flatten=True, warp_specialize=True
    ):
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(
                a.load([tile // across * BM, step * BK]),
                b.load([tile % across * BN, step * BK]).T,
                total,
            )
        c.store([tile // across * BM, tile % across * BN], total.to(tl.float16))


def hopper(arch: str = "sm_90a") -> Target:
    return registry().get("nvidia").completed(target_of(ARCHITECTURES[arch]))


def work(
    kernel: Any,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    arch: str = "sm_90a",
    **options: Any,
) -> Work:
    """Return the work of an f16 matmul; options are those of a launch, with Hopper's."""
    backend, (m, n, k), (bm, bn, bk) = registry().get("nvidia"), shape, tile
    tiles = -(-m // bm) * -(-n // bn)
    constants = {"BM": bm, "BN": bn, "BK": bk}
    grid = (-(-m // bm), -(-n // bn), 1)
    if kernel is persistent:
        constants["PROGRAMS"] = min(PROCESSORS, tiles)
        grid = (constants["PROGRAMS"], 1, 1)
    signature = {
        name: "constexpr" if name in constants else "i32" if name in "MNK" else "*fp16"
        for name in kernel.arg_names
    }
    given = {**backend.manifest.options, "asynchronous": arch == "sm_90a", **options}
    module = build_module(
        Specialization(kernel, signature, constants, {}, given), backend, hopper(arch)
    )
    return work_of(module, {"M": m, "N": n, "K": k}, given, lambda: grid)


def cycles(*of: Any, **options: Any) -> float:
    return estimate(work(*of, **options), hopper()).cycles


# ---- the order of what was measured on an H100 SXM, random f16, by persistent kernels with copies
# by warps of their own, in one process with cuBLAS. The figures are times in those of cuBLAS, so
# that the greater is the faster.

MEASURED: Mapping[str, tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]]] = {
    # shape, (columns, stages) of the faster, of the slower
    "2.42 waves of 256 columns, 4.85 of 128: 0.94 and 0.90": (
        (8192, 1280, 8192),
        (128, 4),
        (256, 4),
    ),
    "32 tiles of 256 columns for 132 processors: 0.92 and 0.46": (
        (1024, 1024, 4096),
        (64, 8),
        (256, 4),
    ),
    "64 tiles of 128 columns are too few, too": ((1024, 1024, 4096), (64, 8), (128, 4)),
    "128 tiles of 128 columns, 64 of 256: 1.03": ((512, 4096, 4096), (128, 4), (256, 4)),
    "10.4 waves: 1.052": ((4096, 11008, 4096), (256, 4), (128, 4)),
    "4096 cubed: 705 and 615 TFLOP/s": ((4096, 4096, 4096), (256, 4), (128, 4)),
    "8192 cubed: 650 and 610 TFLOP/s": ((8192, 8192, 8192), (256, 4), (128, 4)),
}


@pytest.mark.parametrize("case", MEASURED)
def test_estimates_order_tiles_as_they_were_measured(case: str) -> None:
    shape, *tiles = MEASURED[case]
    faster, slower = (
        cycles(persistent, shape, (128, columns, 64), num_warps=8, num_stages=stages)
        for columns, stages in tiles
    )
    assert faster < slower


def test_estimates_are_near_the_counters() -> None:
    """284,576 cycles for 4096 cubed; tiles of 64 and 256 columns at 1024 x 1024 x 4096 are twice
    apart."""
    assert cycles(
        persistent, (4096,) * 3, (128, 256, 64), num_warps=8, num_stages=4
    ) == pytest.approx(284_576, rel=0.1)
    narrow, wide = (
        cycles(persistent, (1024, 1024, 4096), (128, n, 64), num_warps=8, num_stages=s)
        for n, s in ((64, 8), (256, 4))
    )
    assert wide / narrow == pytest.approx(0.92 / 0.46, rel=0.2)


def test_products_of_warpgroups_beat_those_of_warps() -> None:
    """703 against 452 TFLOP/s with 128x256 tiles and 421 with 128x128, at 4096 cubed."""
    shape = (4096,) * 3
    grouped = cycles(persistent, shape, (128, 256, 64), num_warps=8, num_stages=4)
    wide, square = (
        cycles(plain, shape, (128, n, 64), num_warps=w, num_stages=3, asynchronous=False)
        for n, w in ((256, 8), (128, 4))
    )
    assert grouped < wide <= square
    assert wide / grouped == pytest.approx(703 / 452, rel=0.2)


@pytest.mark.parametrize("stages", [2, 3])
def test_deeper_pipelines_bring_more(stages: int) -> None:
    tile = (128, 64, 64)
    deeper, shallow = (
        cycles(persistent, (1024, 1024, 4096), tile, num_warps=4, num_stages=s)
        for s in (stages + 1, stages)
    )
    assert deeper < shallow


@pytest.mark.parametrize("asynchronous", [False, True])
def test_few_warps_spill_and_are_slow(asynchronous: bool) -> None:
    few, enough = (
        estimate(
            work(plain, (4096,) * 3, (128, 256, 64), num_warps=warps, asynchronous=asynchronous),
            hopper(),
        )
        for warps in (4, 8)
    )
    assert few.spilled > 0 == enough.spilled and few.cycles > 2 * enough.cycles
    assert enough.by_warpgroups is asynchronous and not few.by_warpgroups


def test_programs_that_share_a_multiprocessor_hide_waits() -> None:
    alone, shared = (
        estimate(
            work(plain, (4096, 4096, 512), (128, 128, 64), num_warps=4, num_stages=s), hopper()
        )
        for s in (5, 3)
    )
    assert (alone.resident, shared.resident) == (1, 2) and shared.cycles < alone.cycles


# ---- the machine


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_has_rates(arch: str) -> None:
    found = estimate(work(plain, (1024,) * 3, (64, 64, 32), arch, num_warps=4), hopper(arch))
    assert (0 < found.cycles < 1e9 and not found.by_warpgroups) or arch == "sm_90a"


def test_the_shared_memory_of_the_target_bounds_the_ring() -> None:
    small = dataclasses.replace(hopper(), limits={**hopper().limits, "shared_memory": 100 << 10})
    deep = work(persistent, (4096,) * 3, (128, 256, 64), num_warps=8, num_stages=8)
    assert (estimate(deep, hopper()).slots, estimate(deep, small).slots) == (4, 2)


def test_where_the_grid_is_not_known_rates_are_compared() -> None:
    known = [work(plain, (8192,) * 3, (128, n, 64), num_warps=8) for n in (64, 256)]
    unknown = [dataclasses.replace(one, programs=None) for one in known]
    narrow, wide = (estimate(one, hopper()).cycles for one in unknown)
    assert wide < narrow


# ---- the hooks


def space() -> list[tuple[dict[str, Any], Work]]:
    """The configurations of the persistent tutorial, with their work at 4096 cubed."""
    found = []
    for n, k, stages, warps in itertools.product((128, 256), (64, 128), (2, 3, 4), (4, 8)):
        configuration = {"BM": 128, "BN": n, "BK": k, "num_warps": warps, "num_stages": stages}
        found.append(
            (
                configuration,
                work(persistent, (4096,) * 3, (128, n, k), num_warps=warps, num_stages=stages),
            )
        )
    return found


def test_pruning_leaves_what_may_be_the_best() -> None:
    configurations, works = zip(*space(), strict=True)
    kept = prune(configurations, hopper(), works)
    assert 4 <= len(kept) <= 16
    assert {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8, "num_stages": 4} in kept
    assert not any(
        one["BN"] == 256 and one["num_warps"] == 4 for one in kept
    )  # 256 accumulators a thread
    deepest = [one["num_stages"] for one in kept if one["BN"] == 256 and one["BK"] == 128]
    assert deepest == [2]  # no more fit, so that three and four stages are the same code


def test_pruning_leaves_one_at_least() -> None:
    spilling = {"num_warps": 1}
    assert prune([spilling], hopper(), [work(plain, (512,) * 3, (256, 256, 64), num_warps=1)]) == [
        spilling
    ]
    assert prune([{"num_warps": 64}], hopper(), [None]) == [{"num_warps": 64}]
    assert prune([{"num_warps": 64}, {"num_warps": 4}], hopper(), [None, None]) == [
        {"num_warps": 4}
    ]


def test_the_least_estimate_is_of_the_tile_that_was_the_fastest() -> None:
    """705 TFLOP/s of 128x256x64 with 8 warps and 4 stages, where others had 610 to 690."""
    best, _ = min(space(), key=lambda pair: cost(pair[0], hopper(), pair[1]))
    assert best == {"BM": 128, "BN": 256, "BK": 64, "num_warps": 8, "num_stages": 4}


def test_kernels_without_products_go_by_elements_of_a_thread() -> None:
    few, right, many = (Work(None, ((),), {"num_warps": warps}, 2048) for warps in (1, 4, 32))
    assert cost({}, hopper(), right) < min(cost({}, hopper(), few), cost({}, hopper(), many))
    assert cost({}, hopper(), None) == 0.0


def test_kernels_without_configurations_get_some() -> None:
    rows = tuning_space(next(samples("add")).module, hopper())
    assert rows and all(set(row) == {"num_warps"} for row in rows)
    products = tuning_space(next(samples("dot")).module, hopper("sm_80"))
    assert products and all(set(row) == {"num_warps", "num_stages"} for row in products)


@pytest.mark.parametrize(
    ("tile", "depths"), [((128, 256, 64), {3, 4, 5}), ((128, 64, 64), {3, 4, 5, 6, 8})]
)
def test_hopper_tries_its_ways_and_deep_pipelines_of_narrow_tiles(
    tile: tuple[int, int, int], depths: set[int]
) -> None:
    backend = registry().get("nvidia")
    constants = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    signature = {
        name: "constexpr" if name in constants else "i32" if name in "MNK" else "*fp16"
        for name in plain.arg_names
    }
    module = build_module(
        Specialization(plain, signature, constants, {}, dict(backend.manifest.options)),
        backend,
        hopper(),
    )
    found = tuning_space(module, hopper())
    assert {row["num_stages"] for row in found if row["asynchronous"]} == depths
    assert {(row["asynchronous"], row.get("warp_specialize", False)) for row in found} == {
        (False, False),
        (True, False),
        (True, True),
    }
    assert {row["num_warps"] for row in found} == {4, 8}
    assert all(set(row) <= set(backend.manifest.options) for row in found)


def test_estimates_are_plain_data() -> None:
    found = estimate(work(plain, (1024,) * 3, (128, 128, 64), num_warps=8), hopper())
    assert isinstance(found, Estimate) and found.shared == found.slots * 2 * (128 + 128) * 64
