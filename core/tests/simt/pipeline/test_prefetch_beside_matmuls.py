"""Small loads beside asynchronous matmuls are prefetched by each thread for itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from block_scale_kernels import module_of, run_scaled, scaled, stepping
from matmul_kernels import BK, BM, BN, MODES, build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("kernel, before", [(scaled, True), (scaled, False), (stepping, False)])
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("size", [(16, 8, 8), (19, 11, 21), (32, 16, 72), (5, 3, 0)], ids=str)
def test_scales_are_prefetched(
    size: tuple[int, int, int], parts: bool, kernel: Any, before: bool, completion: str
) -> None:
    module = run_scaled(
        kernel,
        size,
        BulkTarget(8, groups=True),
        {"PARTS": parts, "BEFORE": before},
        num_stages=3,
        completion=completion,
    )
    matmuls = operations(module, "simt.dot_start")
    for region in {matmul.parent for matmul in matmuls}:
        assert region is not None
        names = [operation.name for operation in region]
        count = 2 * names.count("simt.dot_start")
        assert names.count("simt.own_copy_start") == names.count("simt.own_load") == count
        assert "load" not in names and "barrier" not in names
        start = names.index("simt.dot_start")
        assert names.index("simt.own_copy_start") > start, "the matmul starts first"


@pytest.mark.parametrize("completion", MODES)
def test_lanes_with_the_same_elements_share_words(completion: str) -> None:
    """A warp has a word for the scalar, and as many for scales of rows as it has rows."""
    module = run_scaled(
        scaled,
        (19, 11, 5 * BK),
        BulkTarget(8, groups=True),
        {"PARTS": True, "BEFORE": False},
        num_stages=3,
        completion=completion,
    )
    loads = operations(module, "simt.own_load")
    words = {math.prod(load.operands[0].type.shape): load.results[0].layout for load in loads}
    of_rows = next(layout for layout in words.values() if layout is not None)
    lanes = 8 >> of_rows.redundant_threads()[0].bit_count()
    assert lanes < 8 and set(words) == {2, of_rows.register_count * lanes * 2}


@device_function
def looked_up(
    a, b, places, unused, out, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STORES: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK):
        if STORES:
            one = tl.dot(a.load([row, k]), b.load([k, column]))
            total += one * tl.load(places + k // BK)
            tl.store(places + k // BK + 1, k * 1.0)
        else:
            at = tl.load(places + k // BK).to(tl.int32)
            total += tl.dot(a.load([row, at]), b.load([at, column]))
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@pytest.mark.parametrize("stores", [False, True])
def test_loads_that_cannot_move_stay(stores: bool) -> None:
    """A load whose memory the loop writes stays, and one that other addresses depend on."""
    k = 4 * BK
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((BM, k), (k, BN)))
    places = np.array([1, 3, 0, 2, 0], np.float32) * BK
    expected = np.zeros((BM, BN), np.float32)
    factors = places.copy()
    for block in range(4):
        at = block * BK if stores else int(places[block])
        factor = factors[block] if stores else 1.0
        factors[block + 1] = block * BK if stores else 0
        expected += (a[:, at : at + BK] @ b[at : at + BK]) * factor
    out = np.full((BM, BN), np.nan, np.float32)
    module = build(
        looked_up,
        {
            "a": f"tensordesc<fp32[{BM},{BK}]>",
            "b": f"tensordesc<fp32[{BK},{BN}]>",
            **dict.fromkeys(("places", "unused", "out"), "*fp32"),
            **dict.fromkeys("MNK", "i32"),
        },
        BM=BM,
        BN=BN,
        BK=BK,
        STORES=stores,
    )
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (a, b)), places, places, out, BM, BN, k],
        (1, 1, 1),
        num_warps=2,
        target=BulkTarget(8, groups=True),
        num_stages=3,
    )
    np.testing.assert_array_equal(out, expected)
    assert not operations(module, "simt.own_copy_start")


def test_nothing_is_prefetched_without_room() -> None:
    """Shared memory that the operands leave does not suffice for the words of all threads."""
    room = BulkTarget(8, groups=True).resources.shared_memory
    k = 4 * BK
    ones = [np.ones(shape, np.float32) for shape in ((BM, k), (k, BN), (BM, 4), (4,))]
    out = np.full((BM, BN), np.nan, np.float32)

    def run(bytes_: int) -> Module:
        module = module_of(scaled, PARTS=False, BEFORE=False)
        target = BulkTarget(8, groups=True)
        target.resources = replace(target.resources, shared_memory=bytes_)
        out.fill(np.nan)
        emulator.run(
            module,
            [*map(EmulatedDescriptor, ones[:2]), *ones[2:], out, BM, BN, k],
            (1, 1, 1),
            num_warps=2,
            target=target,
            num_stages=2,
        )
        np.testing.assert_array_equal(out, np.full((BM, BN), k, np.float32))
        return module

    assert operations(run(room), "simt.own_load")
    assert not operations(run(2 * 4 * BK * (BM + BN) + 64), "simt.own_load")
