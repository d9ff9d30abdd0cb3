"""Notes on narrow accesses name the argument, or the line of the load, that keeps them narrow, and
no other."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt.compile import compile_kernel, kernel_of
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.emulator import EmulatedTarget

BLOCK = 512
#: Arguments, all of which are multiples of 16
ALL = ("x", "out", "near", "far", "n")


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
def looked_up(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    code = tl.load(out.to(tl.pointer_type(tl.int32)) + i)
    tl.store(out + i, tl.load(x + ((code >> 4) & 15)))


@tw.jit
def paired(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.program_id(0) * 2 * near + i))


@tw.jit
def columns(x, out, near, far, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK // 16), tl.arange(0, 16)
    value = tl.load(x + i[:, None] * near + j[None, :] * far)
    tl.store(out + i[:, None] * 16 + j[None, :], value)


@tw.jit
def displaced(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + 1 + i))


@tw.jit
def overlapped(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.program_id(0) * 501 + i))


@tw.jit
def by_program(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.program_id(1) + i))


@tw.jit
def every_second(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + 2 * i))


@tw.jit
def reversed_rows(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + (near - i)))


@tw.jit
def chosen_lanes(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i % 3 != 0, other=0.0))


@tw.jit
def odd_bound(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < 501, other=0.0))


@tw.jit
def bounded_tile(x, out, near, far, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK // 16), tl.arange(0, 16)
    value = tl.load(
        x + i[:, None] * 16 + j[None, :], mask=(i[:, None] < near) & (j[None, :] < far), other=0.0
    )
    tl.store(out + i[:, None] * 16 + j[None, :], value)


@tw.jit
def shared_addresses(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i // near))


@tw.jit
def loaded_pointer(x, out, near, far, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    address = tl.load(x.to(tl.pointer_type(tl.int64)))  # tl.int32's wider kind
    tl.store(out + i, tl.load(address.to(tl.pointer_type(tl.float32)) + i))


def line_of(kernel: Any, text: str) -> int:
    """The line of a kernel's source that has a text."""
    lines, first = kernel.fn.__code__.co_filename, kernel.fn.__code__.co_firstlineno
    with open(lines) as file:
        numbered = list(enumerate(file, 1))
    return next(number for number, line in numbered[first - 1 :] if text in line)


def noted(kernel: Any, aligned: tuple[str, ...]) -> list[str]:
    """The notes on accesses of a kernel of which the arguments ``aligned`` are multiples of 16."""
    signature = {
        "x": "*fp32",
        "out": "*fp32",
        "near": "i32",
        "far": "i32",
        "n": "i32",
        "BLOCK": "constexpr",
    }
    module = compile_function(
        kernel, signature, {"BLOCK": BLOCK}, {name: {"divisibility": 16} for name in aligned}
    )
    run_passes(module)
    compile_kernel(
        module, EmulatedTarget(32, copy_widths=(4, 8, 16)), {"num_warps": 4, "num_stages": 3}
    )
    return [note for _, note in notes_of(kernel_of(module)) if " moves " in note]


@pytest.mark.parametrize(
    ("kernel", "aligned", "cause"),
    [
        (rows, ("x", "out", "near"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (rows, ("x", "out", "far"), "16 bytes: `near` is not known to be a multiple of 4 ("),
        (
            rows,
            ("near", "far", "out"),
            (
                "16 bytes: the address `x` is not known to be a multiple of 16 bytes (launches "
                "state it of multiples of 16 "
            ),
        ),
        (
            rows,
            ("x", "out"),
            (
                "16 bytes: `near` is not known to be a multiple of 4 and `far` is not known to "
                "be a multiple of 4 ("
            ),
        ),
        (
            paired,
            ("x", "out"),
            "16 bytes: `near` is not known to be a multiple of 2 (",
        ),  # times 2, which the other factor is
        (shifted, ("x", "out"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (walk, ("x", "out"), "16 bytes: `far` is not known to be a multiple of 4 ("),
        (
            bounded,
            ("x", "out", "near"),
            (
                "the mask is not known to be the same for 4 elements in a row: `far` is not "
                "known to be a multiple of 4 ("
            ),
        ),
        (
            strided,
            ("x", "out", "near"),
            "no two addresses are known to be consecutive: `far` may be any stride (",
        ),
        (
            strided,
            ("x", "out", "far"),
            "no two addresses are known to be consecutive: the stride `far` is a multiple of 16$",
        ),
        (
            strided,
            ("x", "out"),
            "no two addresses are known to be consecutive: `far` may be any stride (",
        ),
        (
            offset_by_memory,
            ("x", "out", "near"),
            "16 bytes: what is loaded at line {} is not known to be a multiple of 4 (",
        ),
        (
            gathered,
            ("x", "out"),
            "no two addresses are known to be consecutive: they follow what is loaded at line {}",
        ),
        (
            looked_up,
            ALL,
            "no two addresses are known to be consecutive: they follow what is loaded at line {}$",
        ),
        (
            columns,
            ALL,
            "no two addresses are known to be consecutive: the stride `far` is a multiple of 16$",
        ),
        (
            columns,
            ("x", "out", "near"),
            (
                "no two addresses are known to be consecutive: `far` may be any stride (a stride "
                "that is 1 "
            ),
        ),
        (displaced, ALL, "16 bytes: the constant 1 is no multiple of 4$"),
        (overlapped, ALL, "16 bytes: the factor 501 is no multiple of 4$"),
        (by_program, ALL, "16 bytes: tl.program_id(1) is no multiple of 4$"),
        (
            every_second,
            ALL,
            "no two addresses are known to be consecutive: the stride is the constant 2$",
        ),
        (
            reversed_rows,
            ALL,
            "no two addresses are known to be consecutive: the stride is the constant -1$",
        ),
        (
            chosen_lanes,
            ALL,
            (
                "the mask is not known to be the same for 4 elements in a row, which is computed "
                "for each by itself$"
            ),
        ),
        (
            odd_bound,
            ALL,
            (
                "the mask is not known to be the same for 4 elements in a row: the constant 501 "
                "is no multiple of 4$"
            ),
        ),
        (
            bounded_tile,
            ("x", "out"),
            (
                "the mask is not known to be the same for 4 elements in a row: `far` is not "
                "known to be a multiple of 4 ("
            ),
        ),
        (shared_addresses, ALL, "4 elements in a row are at one address$"),
        (
            loaded_pointer,
            ALL,
            (
                "16 bytes: what is loaded at line {} is not known to be a multiple of 16 "
                "(tl.multiple_of states it)$"
            ),
        ),
    ],
)
def test_a_narrow_access_names_what_keeps_it_narrow(
    kernel: Any, aligned: tuple[str, ...], cause: str
) -> None:
    if "{}" in cause:
        cause = cause.format(line_of(kernel, "tl.int32"))
    found = noted(kernel, aligned)
    pattern = re.escape(cause.removesuffix("$")) + ("$" if cause.endswith("$") else "")
    assert any(re.search(pattern, note) for note in found), found


@pytest.mark.parametrize("kernel", [rows, shifted, walk, bounded])
def test_no_note_where_all_arguments_are_multiples_of_16(kernel: Any) -> None:
    assert noted(kernel, ALL) == []


@pytest.mark.parametrize(
    "kernel",
    [
        strided,
        columns,
        displaced,
        overlapped,
        every_second,
        reversed_rows,
        chosen_lanes,
        odd_bound,
        shared_addresses,
    ],
)
def test_who_passes_multiples_of_16_is_not_told_to(kernel: Any) -> None:
    found = noted(kernel, ALL)
    assert found and not any(
        "multiple_of" in note or "launches state" in note or "not known to be a multiple" in note
        for note in found
    )
