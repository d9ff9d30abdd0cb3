"""Notes on narrow accesses name the argument, or the line of the load, that keeps them narrow, and no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt.compile import compile_kernel, kernel_of
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.facts import notes_of

BLOCK = 512


@tw.jit
def rows(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = x + tl.program_id(0) * near + (tl.program_id(1) + 3) * far
    tl.store(out + i, tl.load(at + i))


@tw.jit
def shifted(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.where(near > 0, far, 16) + i))


@tw.jit
def walk(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at, total = x + i, tl.zeros((BLOCK,), tl.float32)
    for _ in range(n):
        total += tl.load(at)
        at += far
    tl.store(out + i, total)


@tw.jit
def bounded(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=(i < near) & (i < far), other=0.0)
    tl.store(out + i, value)


@tw.jit
def strided(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + near + i * far))


@tw.jit
def offset_by_memory(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    begin = tl.load(out.to(tl.pointer_type(tl.int32)))
    tl.store(out + i, tl.load(x + begin + near + i))


@tw.jit
def gathered(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    index = tl.load(out.to(tl.pointer_type(tl.int32)) + i)
    tl.store(out + i, tl.load(x + near + index))


@tw.jit
def paired(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.program_id(0) * 2 * near + i))


def line_of(kernel: Any, text: str) -> int:
    """The line of a kernel's source that has a text."""
    lines, first = kernel.fn.__code__.co_filename, kernel.fn.__code__.co_firstlineno
    with open(lines) as file:
        numbered = list(enumerate(file, 1))
    return next(number for number, line in numbered[first - 1 :] if text in line)


def noted(kernel: Any, aligned: tuple[str, ...]) -> list[str]:
    """The notes on accesses of a kernel of which the arguments ``aligned`` are multiples of 16."""
    signature = {"x": "*fp32", "out": "*fp32", "near": "i32", "far": "i32", "n": "i32", "BLOCK": "constexpr"}
    module = compile_function(kernel, signature, {"BLOCK": BLOCK}, {name: {"divisibility": 16} for name in aligned})
    run_passes(module)
    compile_kernel(module, EmulatedTarget(32, copy_widths=(4, 8, 16)), {"num_warps": 4, "num_stages": 3})
    return [note for _, note in notes_of(kernel_of(module)) if " moves " in note]


@pytest.mark.parametrize(
    ("kernel", "aligned", "cause"),
    [
        (rows, ("x", "out", "near"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (rows, ("x", "out", "far"), "16 bytes: `near` is not known to be a multiple of 4 ("),
        (rows, ("near", "far", "out"), "16 bytes: `x` is not known to be a multiple of 16 ("),
        (rows, ("x", "out"), "16 bytes: `near` is not known to be a multiple of 4 and `far` is not known to be a multiple of 4 ("),
        (paired, ("x", "out"), "16 bytes: `near` is not known to be a multiple of 2 ("),  # times 2, which the other factor is
        (shifted, ("x", "out"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (walk, ("x", "out"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (bounded, ("x", "out", "near"), "the mask is not known to be the same for 4 elements in a row: `far` is not known to be a multiple of 4 ("),
        (strided, ("x", "out", "near"), "no two addresses are known to be consecutive: `far` may be any stride ("),
        (strided, ("x", "out"), "no two addresses are known to be consecutive: `far` may be any stride ("),
        (offset_by_memory, ("x", "out", "near"), "16 bytes: what is loaded at line {} is not known to be a multiple of 4 ("),
        (gathered, ("x", "out"), "no two addresses are known to be consecutive: they follow what is loaded at line {}"),
    ],
)
def test_a_narrow_access_names_what_keeps_it_narrow(kernel: Any, aligned: tuple[str, ...], cause: str) -> None:
    if "{}" in cause:
        cause = cause.format(line_of(kernel, "tl.int32"))
    found = noted(kernel, aligned)
    assert any(re.search(re.escape(cause), note) for note in found), found


@pytest.mark.parametrize("kernel", [rows, shifted, walk, bounded])
def test_no_note_where_all_arguments_are_multiples_of_16(kernel: Any) -> None:
    assert noted(kernel, ("x", "out", "near", "far", "n")) == []
