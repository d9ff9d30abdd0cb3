"""Shifts past the width and casts out of range cost nothing: the machine's own instructions have
their meaning."""

from __future__ import annotations

import re

import pytest
from nvidia_support import compile_kernel

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.testlib.out_of_range import converted


@tw.jit
def shifted(x_ptr, y_ptr, left, right, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(left + at, x << y)
    tl.store(right + at, x >> y)


def test_shifts_of_32_bits_are_single_instructions() -> None:
    signature = dict.fromkeys(("x_ptr", "y_ptr", "left", "right"), "*u32")
    ptx = compile_kernel(shifted, signature, constants={"BLOCK": 128}, num_warps=4).stages["ptx"]
    assert re.search(r"shl\.b32", ptx) and re.search(r"shr\.u32", ptx)
    assert "selp" not in ptx and "min.u32" not in ptx


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("fp32", "i32", "cvt.rzi.s32.f32"),
        ("fp32", "u32", "cvt.rzi.u32.f32"),
        ("fp32", "i8", "cvt.rzi.s16.f32"),
        ("fp16", "u16", "cvt.rzi.u16.f16"),
        ("fp64", "i64", "cvt.rzi.s64.f64"),
    ],
)
def test_casts_are_single_instructions(source: str, target: str, text: str) -> None:
    code = compile_kernel(
        converted,
        {"x_ptr": f"*{source}", "out": f"*{target}"},
        constants={"BLOCK": 128},
        num_warps=4,
    ).stages["ptx"]
    assert text in code and "selp" not in code and "setp" not in code
