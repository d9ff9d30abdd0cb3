"""Kernels that meet those of other devices through signal pads, by inline PTX in a branch that only
some threads take."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.language.definitions.callable import device_function
from tilewright_nvidia.codegen.uniform_ptx import is_uniform


@device_function
def flat_thread():
    x, y, z = tl.inline_asm_elementwise(
        "mov.u32 $0, %tid.x; mov.u32 $1, %tid.y; mov.u32 $2, %tid.z;",
        "=r,=r,=r",
        [],
        dtype=(tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    nx, ny, _ = tl.inline_asm_elementwise(
        "mov.u32 $0, %ntid.x; mov.u32 $1, %ntid.y; mov.u32 $2, %ntid.z;",
        "=r,=r,=r",
        [],
        dtype=(tl.uint32, tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    return (z * ny + y) * nx + x


@device_function
def swap_until(places, found: tl.constexpr, left: tl.constexpr, order: tl.constexpr):
    """Wait until ``found`` is at a place, and leave ``left`` there."""
    tl.inline_asm_elementwise(
        "{ .reg .u32 %old; .reg .pred %ok; again: atom.global." + order
        + ".sys.cas.b32 %old, [$1], " + found + ", " + left + "; "
        "setp.eq.u32 %ok, %old, " + found + "; @!%ok bra again; mov.u32 $0, %old; }",
        "=r,l", [places], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@device_function
def meet(pads, block, rank, WORLD: tl.constexpr, ORDER: tl.constexpr):
    ranks = tl.arange(0, WORLD)
    sends = tl.load(pads + ranks).to(tl.pointer_type(tl.uint32)) + block * WORLD + rank
    waits = tl.load(pads + rank).to(tl.pointer_type(tl.uint32)) + block * WORLD + ranks
    if flat_thread() < WORLD:
        swap_until(sends, "0", "1", ORDER)
        swap_until(waits, "1", "0", "acquire")


@device_function
def all_reduce(buffers, pads, out, rank, n, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    meet(pads, block, rank, WORLD, "relaxed")
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(WORLD):
        total += tl.load(tl.load(buffers + i).to(tl.pointer_type(tl.float32)) + at, mask=at < n)
    tl.store(out + at, total, mask=at < n)
    tl.debug_barrier()
    meet(pads, block, rank, WORLD, "release")


SIGNATURE = {"buffers": "*i64", "pads": "*i64", "out": "*fp32", "rank": "i32", "n": "i32"}


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("world", [2, 8])
def test_an_all_reduce_has_no_barrier_where_some_threads_signal(
    ptx: Callable[..., str], arch: str, world: int
) -> None:
    text = ptx(all_reduce, SIGNATURE, arch, constants={"WORLD": world, "BLOCK": 1024})
    branches = re.findall(r"@%p\d+ bra\s+(\$L__BB\w+);(.*?)\n\1:", text, re.S)
    branches = [inside for _, inside in branches if "atom.global" in inside]
    assert len(branches) == 2 and all(inside.count("atom.global") == 2 for inside in branches)
    assert not any("bar" in re.sub(r"\$L\w+", "", inside) for inside in branches)
    # all threads have loaded addresses before a signal is sent, and load what other devices wrote
    # after one has come
    order = "".join(name[0] for name in re.findall(r"(ld|st|atom|bar)\.(?:global|sync)", text))
    assert re.fullmatch(r"l+b+aab+l[lbs]*sb+l+b+aa", order)


@device_function
def own_sum(x, out, n):
    if flat_thread() < n:
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 1024)), 0))


@device_function
def sum_of_a_multiprocessor(x, out, n):
    if (
        tl.inline_asm_elementwise(
            "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1
        )
        < n
    ):
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 1024)), 0))


def test_threads_that_differ_do_not_sum_up_together(ptx: Callable[..., str]) -> None:
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32"}
    with pytest.raises(
        LoweringError,
        match=r"reduce at .*test_signal_pads\.py.* inside of the if at .*test_signal_pads\.py",
    ):
        ptx(own_sum, signature)
    assert "bar.sync" in ptx(sum_of_a_multiprocessor, signature)


ARITHMETIC = [
    "mov.u32 $0, %smid;", "add.s32 $0, $1, 1;", "mov.u32 $0, %ctaid.x; // not %tid.x",
    "fma.rn.f32 $0, $1, $2, $3;", "",
    ("{ .reg .pred %p<2>; .reg .b32 %tmp; setp.eq.u32 %p0, $1, 0; @!%p0 bra end; mov.b32 "
     "%tmp, 1; end: selp.b32 $0, 1, 2, %p1; }"),
]  # fmt: skip
OWN = [
    "mov.u32 $0, %tid.x;", "mov.u32 $0, %laneid;", "mov.u64 $0, %globaltimer;",
    "mov.u32 $0, %clock;", "ld.global.b32 $0, [$1];",
    "add.s32 $0, $1, 1; atom.add.u32 $0, [$1], 1;", "shfl.sync.idx.b32 $0, $1, 0, 31, -1;",
    "activemask.b32 $0;", "{ .reg .b32 %t; mov.b32 %t, %tid.x; }",
    "x: ld.b32 $0, [$1];", "@%p ld.b32 $0, [$1];",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "uniform"), [*((text, True) for text in ARITHMETIC), *((text, False) for text in OWN)]
)
def test_assembly_that_gives_all_threads_the_same(text: str, uniform: bool) -> None:
    assert is_uniform(text) is uniform
