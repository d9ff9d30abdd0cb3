"""Order of stores through descriptors: which ones must wait for earlier stores, from their offsets.

The emulator checks the results.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.ir.parser import parse_module
from tilewright.language.definitions.callable import device_function
from tilewright.simt.analysis.store_order import draining_stores
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.testing.toy_targets import BulkTarget

HEAD = """tilewright.ir 1.0

kernel @k(%d: desc<4x8xf32>, %p: ptr<f32>, %sm: i64, %sn: i64, %tm: i64, %tn: i64, %e: desc<4x8xf32>, %x: tile<4x8xf32>, %i: i32, %n: i32, %more: i1) {
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  %3 = constant 3 : i32
  %4 = constant 4 : i32
  %8 = constant 8 : i32
  %pid = program_id {axis = 0} : i32
  %all = num_programs {axis = 0} : i32
"""


def store(descriptor: str, row: str, column: str) -> str:
    return f"  descriptor_store %{descriptor}, offsets=[%{row}, %{column}], %x\n"


def update(kind: str) -> str:
    return f'  descriptor_reduce %d, offsets=[%i, %0], %x {{kind = "{kind}"}}\n'


def loop(counter: str, body: str, start: str = "0", step: str = "1") -> str:
    return f"  for %{start}, %n, %{step} body(%{counter}: i32) {{\n{body}  yield\n  }}\n"


ROWS = "  %row = mul %j, %4 : i32\n"
FOUR_ON = "  %row = mul %j, %8 : i32\n  %next = add %row, %4 : i32\n"
GRID = "  %row = mul %j, %4 : i32\n  %column = mul %k, %8 : i32\n"
WIDE = "  %column = add %j, %i : i32\n  %beside = add %column, %8 : i32\n"

#: A kernel's stores -> the numbers of those that drain.
CASES: dict[str, tuple[str, list[int]]] = {
    "one": (store("d", "0", "0"), []),
    "two at one place": (store("d", "0", "0") * 2, [1]),
    "two tensors": (store("d", "0", "0") + store("e", "0", "0"), []),
    "beside each other": (store("d", "0", "i") + store("d", "4", "i"), []),
    "of which rows are the same": (store("d", "0", "i") + store("d", "3", "i"), [1]),
    "at places that are not known": (store("d", "0", "i") + store("d", "0", "n"), [1]),
    "the same place again": (loop("j", store("d", "i", "0")), [0]),
    "rows of blocks": (loop("j", ROWS + store("d", "row", "i")), []),
    "rows less than blocks": (loop("j", store("d", "j", "0")), [0]),
    "a counter in steps of a block": (loop("j", store("d", "j", "0"), step="4"), []),
    "a counter in steps that are too small": (loop("j", store("d", "j", "0"), step="3"), [0]),
    "as many programs on": (loop("j", ROWS + store("d", "row", "0"), "pid", "all"), []),
    "any number on": (loop("j", ROWS + store("d", "row", "0"), "pid", "i"), [0]),
    "a loop for each axis": (loop("j", loop("k", GRID + store("d", "row", "column"))), []),
    "a loop that no axis knows": (loop("j", loop("k", ROWS + store("d", "row", "0"))), [0]),
    "between each other": (
        loop("j", FOUR_ON + store("d", "row", "0") + store("d", "next", "0")),
        [],
    ),
    "where the next one was": (
        loop(
            "j",
            ROWS
            + "  %next = add %row, %4 : i32\n"
            + store("d", "row", "0")
            + store("d", "next", "0"),
        ),
        [0],
    ),
    "two halves of what is anywhere": (
        loop("j", WIDE + store("d", "i", "column") + store("d", "i", "beside")),
        [0],
    ),
    "after a loop": (loop("j", ROWS + store("d", "row", "0")) + store("d", "i", "0"), [1]),
    "after a loop, elsewhere": (
        loop("j", ROWS + store("d", "row", "0")) + store("d", "i", "8"),
        [],
    ),
    "before a loop": (store("d", "0", "0") + loop("j", store("d", "4", "0")), [1]),
    "updates": (update("add") * 2, []),
    "updates of two kinds": (update("add") + update("max"), [1]),
    "an update of what was stored": (store("d", "i", "0") + update("add"), [1]),
    "after a branch": (
        store("d", "i", "0")
        + f"  if %more then {{\n{store('d', 'i', '0')}  yield\n  }} else {{\n  yield\n  }}\n"
        + store("d", "i", "8"),
        [1],
    ),
    "beside the last, over a branch": (
        loop(
            "j",
            store("d", "i", "0")
            + f"  if %more then {{\n{store('d', 'i', 'j')}  yield\n  }} else {{\n  yield\n  }}\n"
            + store("d", "i", "8"),
        ),
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_drains(case: str) -> None:
    body, expected = CASES[case]
    module = parse_module(f"{HEAD}{body}  return\n}}\n", SIMT_TABLE)
    (function,) = module.functions.values()
    stores = [
        operation
        for operation in function.walk()
        if operation.name in ("descriptor_store", "descriptor_reduce")
    ]
    drained = draining_stores(stores, function)
    assert [stores.index(one) for one in drained] == expected


@device_function
def anywhere(
    d,
    n,
    row_step: tl.constexpr,
    row: tl.constexpr,
    other_row: tl.constexpr,
    column_step: tl.constexpr,
    column: tl.constexpr,
    other_column: tl.constexpr,
):
    x = tl.full((4, 8), 1.0, tl.float32)
    for i in range(n):
        for j in range(2):
            d.store([i * row_step + row, j * column_step + column], x + i * 100 + j * 10)
            d.store(
                [i * row_step + other_row, j * column_step + other_column], x + i * 100 + j * 10 + 1
            )
    d.store([other_row, column], x)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize(("row_step", "column_step"), list(product((0, 2, 4, 8), (0, 8, 16))))
def test_the_last_store_to_a_place_stays(row_step: int, column_step: int, completion: str) -> None:
    rng = np.random.default_rng(row_step * 100 + column_step)
    constants = {
        name: int(rng.integers(0, 12)) for name in ("row", "other_row", "column", "other_column")
    }
    constants |= {"row_step": row_step, "column_step": column_step}
    for target in (
        BulkTarget(8, completion=completion, seed=seed)
        for seed in range(3 if completion == "random" else 1)
    ):
        differ(
            anywhere,
            {"d": (4, 8)},
            [np.zeros((40, 48), np.float32)],
            [3],
            target,
            constants=constants,
            num_warps=1,
        )
