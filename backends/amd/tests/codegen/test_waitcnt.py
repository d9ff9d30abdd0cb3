"""Waits before barriers in loops.

Accesses in flight at the end of an iteration complete before the barrier.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from amd_support import ARCHS, listed

import tilewright as tw
import tilewright.language as tl
from tilewright.llvm.codegen.compile import assembly
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright_amd.architectures import ARCHITECTURES
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.codegen import waitcnt
from tilewright_amd.target import TRIPLE


@tw.jit
def products(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_row,
    a_column,
    b_row,
    b_column,
    c_row,
    BM: tl.constexpr,
    BK: tl.constexpr,
):  # type: ignore[no-untyped-def]
    rows, columns, k = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BM + tl.arange(0, BM),
        tl.arange(0, BK),
    )
    a_at, b_at = (
        a_ptr + rows[:, None] * a_row + k[None, :] * a_column,
        b_ptr + k[:, None] * b_row + columns[None, :] * b_column,
    )
    c_at, inside = (
        c_ptr + rows[:, None] * c_row + columns[None, :],
        (rows[:, None] < M) & (columns[None, :] < N),
    )
    total = tl.load(c_at, mask=inside, other=0)
    for start in tl.range(0, K, BK, num_stages=3):
        a = tl.load(a_at, mask=(rows[:, None] < M) & (k[None, :] < K - start), other=0)
        b = tl.load(b_at, mask=(k[:, None] < K - start) & (columns[None, :] < N), other=0)
        total = tl.dot(a, b, total)
        a_at += BK * a_column
        b_at += BK * b_row
    tl.store(c_at, total, mask=inside)


@pytest.mark.parametrize("arch", ARCHS)
def test_shared_memory_is_written_before_a_barrier(arch: str) -> None:
    signature = "*fp32:16, *fp32:16, *fp32:16, i32, i32, i32, i32, i32, i32, i32, i32"
    code = listed(products, signature, arch, {"BM": 64, "BK": 32}, num_warps=4)
    lines = [line.strip() for line in str(code.stages["amdgcn"]).splitlines()]
    barriers = [
        number
        for number, line in enumerate(lines)
        if line.split(" ")[0] in ("s_barrier", "s_barrier_signal")
    ]
    assert barriers
    for number in barriers:
        before = lines[number - 1 :: -1]
        waited = next(
            place
            for place, line in enumerate(before)
            if "lgkmcnt(0)" in line or (line.startswith("s_wait") and "dscnt 0x0" in line)
        )
        begun = next(
            place
            for place, line in enumerate(before)
            if line.startswith("ds_") or line.endswith(":")
        )
        assert waited < begun, before[: waited + 1]


def waits_of(arch: str, write: Callable[[FunctionWriter], None]) -> list[str]:
    """The waits that the assembler reads in what ``write`` writes."""
    module = ModuleWriter()
    w = module.function("k", [], linkage="amdgpu_kernel")
    write(w)
    w.ret()
    lines = [
        line.split("//")[0].strip()
        for line in assembly(module.text(), triple=TRIPLE, cpu=arch).splitlines()
    ]
    return [" ".join(line.split()) for line in lines if line.startswith("s_wait")]


@pytest.mark.parametrize("pending", [0, 1, 7, 15, 16, 17, 31, 32, 47, 48, 62, 63, 64, 200])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_wait_leaves_as_many_copies_under_way_as_it_says(arch: str, pending: int) -> None:
    """No LDS accesses may be in flight; other copies may, up to the maximum of the counter."""
    (wait,) = waits_of(arch, lambda w: global_load_lds.wait(w, pending))
    most = "" if pending >= 63 else f"vmcnt({pending}) "
    assert wait == f"s_waitcnt {most}lgkmcnt(0)"


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("gfx942", "s_waitcnt lgkmcnt(0)"),
        ("gfx1100", "s_waitcnt lgkmcnt(0)"),
        ("gfx1201", "s_wait_dscnt 0x0"),
    ],
)
def test_a_wait_for_shared_memory_is_for_nothing_else(arch: str, expected: str) -> None:
    assert waits_of(arch, lambda w: waitcnt.wait_for_shared(w, ARCHITECTURES[arch])) == [expected]


def test_a_wait_for_memory_is_for_nothing_else() -> None:
    assert waits_of("gfx942", waitcnt.wait_for_memory) == ["s_waitcnt vmcnt(0)"]
