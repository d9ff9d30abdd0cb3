"""Loads at pointers that are not raised: they are left as they were, with a note of the reason."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.printer import print_module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt.compile import kernel_of, run_stages
from tilewright.simt.dialect.attributes import NOTES, notes_of
from tilewright.testing.toy_targets import BulkTarget


@device_function
def squares(a, c, m, n, step, table, CASE: tl.constexpr):
    """Sums of squares of blocks; how they are addressed, and what becomes of the sums, is the
    case."""
    rows, inner = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, 16)
    lower = tl.program_id(0) * 16 - 16
    total = tl.zeros((16, 16), dtype=tl.float32)
    base = tl.load(table) if CASE == "address from memory" else a
    for k in range(0, n, 16):
        columns = k + inner
        if CASE == "sound":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :],
                mask=(rows[:, None] < m) & (columns[None, :] < n),
                other=0.0,
            )
        elif CASE == "address from memory":
            x = tl.load(base + rows[:, None] * step + columns[None, :])
        elif CASE == "no rows":
            x = tl.load(a + (rows[:, None] % 4) * step * (rows[:, None] % 4) + columns[None, :])
        elif CASE == "broadcast":
            x = tl.load(a + tl.zeros((16, 1), dtype=tl.int32) + columns[None, :])
        elif CASE == "strided":
            x = tl.load(a + rows[:, None] * step + 2 * columns[None, :])
        elif CASE == "other":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :], mask=columns[None, :] < n, other=1.0
            )
        elif CASE == "ragged":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :],
                mask=rows[:, None] + columns[None, :] < n,
                other=0.0,
            )
        elif CASE == "switched":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :],
                mask=(columns[None, :] < n) & (tl.program_id(0) < m),
                other=0.0,
            )
        elif CASE == "end by program":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :],
                mask=(columns[None, :] < n) & (columns[None, :] < tl.program_id(0) + 3),
                other=0.0,
            )
        elif CASE == "before":
            x = tl.load(
                a + (lower + inner)[:, None] * step + columns[None, :],
                mask=columns[None, :] < n,
                other=0.0,
            )
        elif CASE == "argument before":
            x = tl.load(
                a + (rows + m)[:, None] * step + columns[None, :],
                mask=columns[None, :] < n,
                other=0.0,
            )
        elif CASE == "from three on":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :],
                mask=(columns[None, :] >= 3) & (columns[None, :] >= k) & (columns[None, :] < n),
            )
        elif CASE == "backwards":
            x = tl.load(
                a + (1600 - 16 * rows)[:, None] + columns[None, :],
                mask=columns[None, :] < n,
                other=0.0,
            )
        elif CASE == "stride by program":
            x = tl.load(
                a + rows[:, None] * (16 * tl.program_id(1)) + columns[None, :],
                mask=columns[None, :] < n,
                other=0.0,
            )
        elif CASE == "odd place":
            x = tl.load(
                a + rows[:, None] * step + (columns + tl.program_id(1))[None, :],
                mask=rows[:, None] < m,
                other=0.0,
            )
        elif CASE == "odd places":
            x = tl.load(
                a
                + rows[:, None] * step
                + (columns + tl.program_id(1) + 4 * tl.program_id(2))[None, :],
                mask=rows[:, None] < m,
                other=0.0,
            )
        elif CASE == "constant stride":
            x = tl.load(
                a + rows[:, None] * 100 + columns[None, :], mask=rows[:, None] < m, other=0.0
            )
        elif CASE == "product of strides":
            x = tl.load(
                a + rows[:, None] * (4 * n) + columns[None, :], mask=rows[:, None] < m, other=0.0
            )
        elif CASE == "written":
            x = tl.load(
                c + rows[:, None] * step + columns[None, :], mask=columns[None, :] < n, other=0.0
            )
        elif CASE == "taken where more holds":
            place = tl.where((rows < m) & (rows >= 3), rows, 0)
            x = tl.load(
                a + place[:, None] * step + columns[None, :], mask=columns[None, :] < n, other=0.0
            )
        elif CASE == "shifted before":
            above = (lower + inner)[:, None]
            x = tl.load(
                a + (above + 2) * step + columns[None, :],
                mask=(above >= 0) & (above < m) & (columns[None, :] < n),
                other=0.0,
            )
        elif CASE == "from nowhere":
            x = tl.load(
                a + rows[:, None] * step + columns[None, :] - 48 * tl.program_id(1),
                mask=(rows[:, None] < m) & (columns[None, :] < n),
                other=0.0,
            )
        else:
            x = tl.load(
                a + (rows % m)[:, None] * step + columns[None, :],
                mask=columns[None, :] < n,
                other=0.0,
            )
        ones = tl.full((16, 16), 1, dtype=tl.float16)
        total = tl.dot(ones, x, total) if CASE == "rows are summed" else tl.dot(x, ones, total)
        if CASE == "stored in the loop":
            tl.store(c + inner, inner.to(tl.float16))
    at = c + rows[:, None] * 16 + inner[None, :]
    if CASE == "rows are stored":
        tl.store(at, total.to(tl.float16))
    elif CASE == "stored to another end":
        tl.store(at, total.to(tl.float16), mask=rows[:, None] < m + 1)
    elif CASE == "rows are reduced":
        tl.store(c + inner, tl.sum(total, axis=0).to(tl.float16))
    elif CASE == "flag":
        tl.store(
            at, total.to(tl.float16), mask=(rows[:, None] < m) & (tl.atomic_add(c + 300, 1.0) > 3.0)
        )
    elif CASE == "rows are printed":
        tl.device_print("total", total)
    else:
        tl.store(at, total.to(tl.float16), mask=rows[:, None] < m)


REASONS = {
    "address from memory": "its addresses do not begin at an argument of the kernel",
    "no rows": "its addresses are not known to be sums of multiples of its coordinates",
    "broadcast": "along axis 0 all addresses are the same",
    "strided": (
        "along no axis its addresses are known to be consecutive: the strides are `step` and 2"
    ),
    "other": "it is volatile, or yields something else than zero where its mask is false",
    "ragged": "its mask is not made of bounds on its coordinates alone",
    "switched": "its mask is not made of bounds on its coordinates alone",
    "end by program": "where it ends along axis 1 is not known at launch",
    "before": "it may begin before the tensor along axis 0",
    "argument before": "it may begin before the tensor along axis 0",
    "from three on": "its mask bounds coordinates from below at several places",
    "shifted before": "it may begin before the tensor along axis 1",
    "backwards": "along axis 0 it reads backwards",
    "stride by program": "the stride of axis 0 is not known at launch",
    "odd place": (
        "the place along axis 1 where blocks begin is not known to be a multiple of 16 bytes: "
        "tl.program_id(1) is no multiple of 8"
    ),
    "odd places": (
        "16 bytes: the factor 4 is no multiple of 8 and tl.program_id(1) is no multiple of 8"
    ),
    "constant stride": (
        "the stride of axis 0 is not known to be a multiple of 16 bytes: the constant 100 is no "
        "multiple of 8"
    ),
    "product of strides": (
        "the stride of axis 0 is not known to be a multiple of 16 bytes: `n` is not known to be "
        "a multiple of 2 (launches state it"
    ),
    "written": "the kernel, or one that it waits for, may write to the tensor",
    "flag": "the kernel, or one that it waits for, may write to the tensor",
    "taken where more holds": (
        "its addresses are not known to be sums of multiples of its coordinates"
    ),
    "from nowhere": (
        "its addresses begin at a distance from the argument that is along none of its axes"
    ),
    "rows are summed": "its coordinates wrap around along axis 0, which dot at",
    "rows are stored": "its coordinates wrap around along axis 0, which store at",
    "stored to another end": "its coordinates wrap around along axis 0, which store at",
    "rows are reduced": "its coordinates wrap around along axis 0, which reduce at",
    "rows are printed": "its coordinates wrap around along axis 0, which print at",
}


def built(case: str, divisibility: int = 16, fn: Any = squares) -> Module:
    signature = {
        "a": "*fp16",
        "c": "*fp16",
        "m": "i32",
        "n": "i32",
        "step": "i32",
        "table": "**fp16",
        "CASE": "constexpr",
    }
    module = compile_function(
        fn,
        signature,
        {"CASE": case},
        {name: {"divisibility": divisibility} for name in ("a", "c", "step")},
    )
    run_passes(module)
    return module


def raised(module: Module, raises: int = 16) -> tuple[str, list[str]]:
    """The text of a module after the stage, without notes, and the notes."""
    run_stages(
        module,
        BulkTarget(8, raises=raises),
        {"num_warps": 2, "num_stages": 2},
        ["prepare", "raise"],
    )
    notes = [told for _, told in notes_of(kernel_of(module))]
    for operation in module.walk():
        operation.attributes.pop(NOTES, None)
    return print_module(module, locations=False), notes


@pytest.mark.parametrize("case", ["sound", "wrapped", "stored in the loop"])
def test_the_cases_that_are_raised(case: str) -> None:
    text, notes = raised(built(case))
    assert text.count("descriptor_load") == 1 and not notes


@pytest.mark.parametrize("case", REASONS)
def test_a_load_that_is_not_raised(case: str) -> None:
    text, notes = raised(built(case))
    assert (
        len(notes) == 1
        and notes[0].startswith("loads are not raised to TMA copies, for that at ")
        and REASONS[case] in notes[0]
    )
    assert text == raised(built(case), 0)[0]
