"""Registers of inline assembly: each operand has one of the width that its constraint names,
whatever the widths of the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def two_results(x, a, b, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    i = tl.arange(0, 512)
    first, second = tl.inline_asm_elementwise(
        TEXT,
        CONSTRAINTS,
        [tl.load(x + i)],
        dtype=(a.dtype.element_ty, b.dtype.element_ty),
        is_pure=True,
        pack=PACK,
    )
    tl.store(a + i, first)
    tl.store(b + i, second)


SPLIT = "mov.b32 {$0, $1}, $2;"
CASES = [
    # the two halves of a word, as weights of 4 bits are converted; and in registers of 32 bits
    (SPLIT, "=h,=h,r", "i32", "fp16", "fp16", 1, "mov.b32 {%rs, %rs}, %r;"),
    (SPLIT, "=h,=h,r", "i32", "bf16", "u16", 1, "mov.b32 {%rs, %rs}, %r;"),
    (
        "mov.b32 $0, $2; mov.b32 $1, $2;",
        "=r,=r,r",
        "i32",
        "fp16",
        "i8",
        1,
        "mov.b32 %r, %r; mov.b32 %r, %r;",
    ),
    # widths that differ
    (
        "cvt.u16.u32 $0, $2; cvt.u64.u32 $1, $2;",
        "=h,=l,r",
        "i32",
        "i16",
        "i64",
        1,
        "cvt.u16.u32 %rs, %r; cvt.u64.u32 %rd, %r;",
    ),
    (
        "cvt.u64.u16 $0, $2; cvt.u32.u16 $1, $2;",
        "=l,=r,h",
        "i16",
        "i64",
        "i32",
        1,
        "cvt.u64.u16 %rd, %rs; cvt.u32.u16 %r, %rs;",
    ),
    (
        "cvt.u16.u64 $0, $2; cvt.u32.u64 $1, $2;",
        "=h,=r,l",
        "i64",
        "i8",
        "fp16",
        1,
        "cvt.u16.u64 %rs, %rd; cvt.u32.u64 %r, %rd;",
    ),
    (
        "mov.b16 $0, $2; cvt.f32.f16 $1, $2;",
        "=h,=f,h",
        "fp16",
        "fp16",
        "fp32",
        1,
        "mov.b16 %rs, %rs; cvt.f32.f16 %r, %rs;",
    ),
    # groups: two bytes are 16 bits, two halves a word, four halves two words or one register of 64
    # bits
    ("mov.b32 {$0, $1}, $2;", "=h,=h,r", "fp16", "i8", "fp8e4nv", 2, "mov.b32 {%rs, %rs}, %r;"),
    (
        "mov.b32 $0, $2; mov.b16 $1, 0;",
        "=r,=h,r",
        "fp16",
        "fp16",
        "i8",
        2,
        "mov.b32 %r, %r; mov.b16 %rs, 0;",
    ),
    (
        "cvt.u32.u16 $0, $2; mov.b16 $1, $2;",
        "=r,=h,h",
        "i8",
        "bf16",
        "i8",
        2,
        "cvt.u32.u16 %r, %rs; mov.b16 %rs, %rs;",
    ),
    (
        "mov.b64 $0, {$2, $2}; mov.b64 $1, $0;",
        "=l,=l,r",
        "i8",
        "fp16",
        "bf16",
        4,
        "mov.b64 %rd, {%r, %r}; mov.b64 %rd, %rd;",
    ),
    (
        "mov.b32 $0, $3; mov.b32 $1, $4; mov.b32 $2, $3;",
        "=r,=r,=r,r,r",
        "bf16",
        "bf16",
        "i8",
        4,
        "mov.b32 %r, %r; mov.b32 %r, %r; mov.b32 %r, %r;",
    ),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case[1]}-{case[2]}-{case[3]}-{case[4]}-{case[5]}"
)
def test_registers_are_as_wide_as_their_constraints(
    ptx: Callable[..., str], case: tuple[Any, ...]
) -> None:
    assembly, constraints, x, a, b, pack, expected = case
    text = ptx(
        two_results,
        {"x": f"*{x}", "a": f"*{a}", "b": f"*{b}"},
        constants={"TEXT": assembly, "CONSTRAINTS": constraints, "PACK": pack},
    )
    found = re.findall(r"// begin inline asm\s*(.*?)\s*// end inline asm", text, re.DOTALL)
    of_the_kernel = [
        re.sub(r"(%[a-z]+)\d+", r"\1", each)
        for each in found
        if not re.search(r"\b(ld|st)\.global", each)
    ]
    assert of_the_kernel == [expected] * (512 // 128 // pack)
