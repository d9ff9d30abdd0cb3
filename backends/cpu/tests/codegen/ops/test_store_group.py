"""Stores that one loop nest writes, of arguments that are views of one array or not."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.parser import parse_module
from tilewright_cpu.codegen.analysis.store_groups import store_groups
from tilewright_cpu.codegen.analysis.tiles import is_lazy

START, SIZE = 640, 2400
SHIFTS = (-130, -16, -1, 0, 1, 16, 130)


def agrees(kernel: Any, *views: tuple[int, str], **meta: Any) -> None:
    """Run a kernel on views of one array, from an element on and of a type, here and on the
    reference."""
    drawn = np.random.default_rng(0).integers(-50, 50, SIZE).astype(np.int32)
    found = []
    for backend in ("reference", "cpu"):
        data = drawn.copy()
        with tw.backend(backend):
            kernel[(1,)](*(data[START + shift :].view(dtype) for shift, dtype in views), **meta)
        found.append(data)
    np.testing.assert_array_equal(found[1], found[0])
    assert not np.array_equal(found[0], drawn)


@tw.jit
def two_stores(x, y, z, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n if MASKED else None
    a, b = tl.load(x + at, mask=inside), tl.load(y + at, mask=inside)
    tl.store(y + at, a * 2 + b, mask=inside)
    tl.store(z + at, (a - b).to(z.dtype.element_ty), mask=inside)


@pytest.mark.each_value
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("y", "z"), list(product(SHIFTS, SHIFTS)))
def test_all_loads_come_before_all_stores(y: int, z: int, masked: bool) -> None:
    views = (0, "int32"), (y, "int32"), (z, "int32")
    agrees(two_stores, *views, n=101, BLOCK=128, MASKED=masked)


@pytest.mark.parametrize(("y", "z"), list(product(SHIFTS, SHIFTS)))
def test_a_later_store_of_narrower_elements_wins(y: int, z: int) -> None:
    views = (0, "int32"), (y, "int32"), (z, "int8")
    agrees(two_stores, *views, n=101, BLOCK=128, MASKED=False)


@tw.jit
def three_stores_of_rows(x, y, z, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * 40 + tl.arange(0, COLUMNS)[None, :]
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    tl.store(z + at, a + b)
    tl.store(y + at, b * 3 - c)
    tl.store(x + at, a + c)


@pytest.mark.parametrize("y", [0, 1, 33, 40, -40, 700])
@pytest.mark.parametrize("z", [0, -1, 80, 700, 1000])
def test_stores_of_rows(y: int, z: int) -> None:
    agrees(three_stores_of_rows, (0, "int32"), (y, "int32"), (z, "int32"), ROWS=16, COLUMNS=32)


@tw.jit
def by_table(x, table, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    number = tl.load(table + 3 + (a & 31))
    other = tl.load(table + ((a >> 29) + 4))
    tl.store(y + at, number + a)
    tl.store(z + at, number - other)


@pytest.mark.parametrize("table", [-40, 0, 90, 400])
@pytest.mark.parametrize(("y", "z"), [(0, 128), (128, 0), (200, 300), (-90, 127), (300, -128)])
def test_tables_are_read_before_they_are_stored_over(table: int, y: int, z: int) -> None:
    agrees(by_table, (0, "int32"), (table, "int32"), (y, "int32"), (z, "int32"), BLOCK=128)


@tw.jit
def used_later(x, y, z, w, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(y + at, a + b)
    tl.store(z + at, a * b)
    tl.store(w + at, tl.flip(a) + tl.sum(b, 0))


@pytest.mark.parametrize("w", [0, 64, 300])
@pytest.mark.parametrize(("y", "z"), [(0, 128), (64, 1), (300, 428), (428, 300)])
def test_loads_that_are_read_after_the_stores(y: int, z: int, w: int) -> None:
    agrees(used_later, (0, "int32"), (y, "int32"), (z, "int32"), (w, "int32"), BLOCK=128)


@tw.jit
def load_between(x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(y + at, a * 2)
    tl.store(z + at, a + tl.load(y + at) + tl.load(y + 5))


@pytest.mark.parametrize(("y", "z"), list(product((0, 1, 300), (0, 2, 300))))
def test_a_load_between_stores_reads_what_the_first_stored(y: int, z: int) -> None:
    agrees(load_between, (0, "int32"), (y, "int32"), (z, "int32"), BLOCK=128)


@tw.jit
def groups_of_each_kind(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(y + at, a + 1)
    tl.store(z + at, a * 2)
    tl.debug_barrier()
    tl.store(y + at, a + 2)
    tl.store(z + at, a, mask=at < n)
    tl.debug_barrier()
    tl.store(y + at, a + 3)
    tl.store(x + 5, n)
    tl.store(z + at, a)
    tl.store(y + at, at)


def test_which_stores_are_grouped() -> None:
    arrays = [np.zeros(64, np.int32) for _ in range(3)]
    with tw.backend("cpu"):
        kernel = groups_of_each_kind.warmup(*arrays, 5, BLOCK=64, grid=(1,))
    function = parse_module(str(kernel.asm["tileir"])).kernel
    groups = list(store_groups(function, is_lazy))
    assert [len(group) for group in groups] == [2]
    assert [store.value.definition.name for store in groups[0]] == ["add", "mul"]
