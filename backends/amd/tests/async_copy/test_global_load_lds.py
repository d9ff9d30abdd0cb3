"""Direct-to-LDS copies.

Correct matmuls, copies in flight across waits, and mutants that are detected.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import SCHEDULES, example, listed, listing_of, loop_of, waits_that_are_too_short

from tilewright.plugins.manifest import CodeObject
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.codegen import waitcnt
from tilewright_amd.codegen.thread_hierarchy import GcnThreads
from tilewright_amd.mma import transposed_loads
from tilewright_amd_emulator import WaveError

BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1, "ACTIVATION": ""}
#: copies that a thread starts for each iteration: 16 bytes of two tiles of 8 KiB, by 256 threads
EACH = 4


def matmul(
    stages: int, kind: str = "fp16", *, across: bool = True, arch: str = "gfx950", warps: int = 4
) -> CodeObject:
    """``across``: whether neighbours of the second operand in memory are not summed over."""
    sizes = ", ".join(
        f"{name}=i32:16"
        for name in (
            "M",
            "N",
            "K",
            "stride_am",
            "stride_bk" if across else "stride_bn",
            "stride_cm",
        )
    )
    constants = {
        "stride_ak": 1,
        "stride_bn" if across else "stride_bk": 1,
        "stride_cn": 1,
        **BLOCKS,
    }
    types = f"a_ptr=*{kind}:16, b_ptr=*{kind}:16, c_ptr=*{'fp32' if kind == 'fp32' else 'fp16'}:16"
    return listed(
        example("matmul").matmul_kernel,
        f"{types}, {sizes}",
        arch,
        constants,
        num_stages=stages,
        num_warps=warps,
    )


def is_right(
    code: CodeObject,
    size: tuple[int, int, int],
    schedule: str,
    seed: int = 0,
    *,
    across: bool = True,
    type_: Any = np.float16,
) -> bool:
    m, n, k = size
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-3, 4, (m, k)).astype(type_), rng.integers(-3, 4, (k, n)).astype(type_)
    given = b if across else np.ascontiguousarray(b.T)
    c = np.full((m, n), np.nan, type_)
    try:
        launched(
            code,
            [a, given, c, m, n, k, k, n if across else k, n],
            (-(-m // 64) * -(-n // 64),),
            schedule=schedule,
            seed=seed,
        )
    except WaveError:
        return False
    return bool(np.array_equal(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(type_)))


@pytest.mark.each_value
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("across", [True, False], ids=["across", "along"])
@pytest.mark.parametrize("kind", ["fp16", "fp32"])
def test_products_of_what_is_copied(kind: str, across: bool, stages: int, schedule: str) -> None:
    type_ = np.float32 if kind == "fp32" else np.float16
    code = matmul(stages, kind, across=across)
    assert "global_load_lds_dwordx4" in loop_of(code)
    assert not waits_that_are_too_short(listing_of(code))
    # whole blocks, parts of blocks, fewer iterations than stages
    for size in ((64, 64, 256), (80, 48, 208), (16, 16, 16)):
        assert is_right(code, size, schedule, across=across, type_=type_), size


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_copies_of_later_iterations_stay_under_way(stages: int) -> None:
    """The waits leave the copies of stages - 2 iterations in flight, despite other accesses."""
    loop = loop_of(matmul(stages))
    assert len(re.findall("global_load_lds_dwordx4", loop)) == EACH
    assert re.findall(r"vmcnt\((\d+)\)", loop) == [str(EACH * (stages - 2))]
    assert "ds_write" not in loop and not re.search(r"global_load_dword", loop)


def test_operands_that_lie_across_are_turned_as_they_are_read() -> None:
    assert "ds_read_b64_tr_b16" in loop_of(matmul(2)) and "ds_read_u16" not in loop_of(matmul(2))
    assert "ds_read_b64_tr_b16" not in loop_of(matmul(2, across=False))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_where_a_lane_copies_one_word_at_most_loads_go_through_registers(arch: str) -> None:
    loop = loop_of(matmul(2, arch=arch))
    assert "lds_dword" not in loop and "ds_write" in loop


def test_bytes_that_lie_across_go_through_registers() -> None:
    """No instruction transposes these operands, so both go through registers."""
    code = matmul(2, "fp8e5")
    assert "global_load_lds" not in listing_of(code)
    assert "global_load_lds_dwordx4" in loop_of(matmul(2, "fp8e5", across=False))


# ---- what is missing is found


def _one_more_under_way(w: Any, pending: int) -> None:
    _WAIT(w, pending + 1)


def _no_barrier(self: GcnThreads, w: Any, threads: Any) -> None:
    global_load_lds.lds_done(w)


def _of_the_next_lane(
    layout: Any, axis: int, step: int, across: Any, element: Any
) -> Callable[..., list[str] | None]:
    load = _LOADER(layout, axis, step, across, element)

    def wrong(*given: Any) -> list[str] | None:
        found = load(*given)
        return None if found is None else found[1:] + found[:1]

    return wrong


_WAIT, _LOADER = global_load_lds.wait, transposed_loads.loader

#: name -> (module or class, attribute, what stands in its place, kind of the factors)
MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "a wait for one copy too few": (global_load_lds, "wait", _one_more_under_way, "fp16"),
    "no barriers": (GcnThreads, "barrier", _no_barrier, "fp16"),
    "copies begin while LDS is read": (waitcnt, "MFMA_SHARED", 0xCF7F, "fp32"),
    "turned operands in another order": (transposed_loads, "loader", _of_the_next_lane, "fp16"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value, kind = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, value)
    type_ = np.float32 if kind == "fp32" else np.float16
    right = functools.partial(is_right, matmul(3, kind), (64, 64, 256), type_=type_)
    assert not all(right(schedule, seed) for schedule in SCHEDULES for seed in (0, 1)), (
        f"{name}: nothing was seen"
    )
