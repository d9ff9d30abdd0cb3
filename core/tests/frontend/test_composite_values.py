"""Descriptors, block pointers, aggregates and tuples through branches, loops and calls: what
carries several values at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

KERNELS = """
from tilewright.language import aggregate

@aggregate
class Window:
    desc: tl.tensor_descriptor
    column: tl.tensor
    width: tl.constexpr

    @jit
    def load(self):
        return self.desc.load([0, self.column])

    @jit
    def following(self):
        return Window(self.desc, self.column + self.width, self.width)

    def shifted(self, columns, _semantic=None):
        return tl.aggregate_replace(self, column=_semantic.add(self.column, columns), _semantic=_semantic)

    @staticmethod
    def first(desc, width, _semantic=None):
        return Window(desc, 0, width, _semantic=_semantic)

@device_function(noinline=True)
def described(pointer, rows, columns, WIDTH: tl.constexpr):
    return tl.make_tensor_descriptor(pointer, [rows, columns], [columns, 1], [8, WIDTH]), columns

@device_function(noinline=True)
def window_sum(desc, WIDTH: tl.constexpr):
    return tl.sum(desc.load([0, 0]))

@jit
def chosen(a, b, flag):
    if flag:
        found = a
    else:
        found = b
    return found

@jit
def windows(x, y, out, total, rows, columns, flag, WIDTH: tl.constexpr):
    mine = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [8, WIDTH])
    theirs, end = described(y, rows, columns, WIDTH)
    window = Window.first(mine, WIDTH)
    acc = tl.zeros((8, WIDTH), tl.float32)
    for _ in range(0, end, WIDTH):
        acc += window.load()
        window = window.following()
    desc = chosen(mine, theirs, flag)
    column = 0
    while column < columns:
        acc += Window(desc, column, WIDTH).shifted(0).load()
        if column > 20:
            desc = theirs
        column += WIDTH
    tl.make_tensor_descriptor(out, [rows, WIDTH], [WIDTH, 1], [8, WIDTH]).store([0, 0], acc)
    tl.store(total, window_sum(desc, WIDTH))

@jit
def block_pointers(x, out, rows, columns, shift, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    p = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (ROWS, COLUMNS), (0, 1))
    if shift > 0:
        p = tl.advance(p, (0, shift))
    else:
        p = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 1), (ROWS, COLUMNS), (0, 1))
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    i = 0
    while i < 3:
        acc += tl.load(p, boundary_check=(0, 1), padding_option="zero")
        p = p.advance([0, COLUMNS])
        i += 1
    tl.store(target(out, ROWS, COLUMNS), acc)

@device_function(noinline=True)
def target(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return tl.make_block_ptr(out, (ROWS, COLUMNS), (COLUMNS, 1), (0, 0), (ROWS, COLUMNS), (1, 0))

Pair = namedtuple("Pair", ("first", "second"))

@jit
def swapped(pair):
    return Pair(second=pair.first, first=pair.second)

@jit
def pairs(out, a, b, n):
    pair = Pair(a, (b, 7))
    for i in range(n):
        pair = Pair(pair.first + pair.second[0], (pair.second[0] + i, pair.second[1]))
    if n > 3:
        pair = Pair(pair.first, (pair.first, pair.second[1]))
    other = swapped(pair)
    (x, y), z = other.first, other.second
    tl.store(out, x)
    tl.store(out + 1, y)
    tl.store(out + 2, z)
"""


@pytest.fixture
def kernels(source: Any) -> Any:
    return source(
        "from tilewright.language.definitions.callable import device_function\n" + KERNELS
    )


@pytest.mark.parametrize("flag", [0, 3])
@pytest.mark.parametrize(("rows", "columns"), [(7, 60), (8, 37), (1, 4)])
def test_descriptors_and_aggregates(kernels: Any, flag: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows * columns)
    x, y = (rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    out, total = np.zeros((rows, 16), np.float32), np.zeros(1, np.float32)
    types = {
        "x": "*fp32",
        "y": "*fp32",
        "out": "*fp32",
        "total": "*fp32",
        "rows": "i32",
        "columns": "i32",
        "flag": "i32",
    }
    kernels.run([x, y, out, total, rows, columns, flag], "windows", **types, WIDTH=16)

    count = -(-columns // 16)
    tiles = [
        np.pad(array, ((0, 0), (0, 16 * count - columns))).reshape(rows, count, 16)
        for array in (x, y)
    ]
    expected = tiles[0].sum(1)
    desc = tiles[0] if flag else tiles[1]
    for i in range(count):
        expected = expected + desc[:, i]
        if 16 * i > 20:
            desc = tiles[1]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total[0], desc[:, 0].sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:block pointers are deprecated")
@pytest.mark.parametrize("shift", [0, 5])
def test_block_pointers(kernels: Any, shift: int) -> None:
    x = np.random.default_rng(shift).standard_normal((6, 40)).astype(np.float32)
    out = np.zeros((8, 16), np.float32)
    types = {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32", "shift": "i32"}
    kernels.run([x, out, 6, 40, shift], "block_pointers", **types, ROWS=8, COLUMNS=16)
    padded, start = np.pad(x, ((0, 2), (0, 60))), shift or 1
    np.testing.assert_allclose(
        out, sum(padded[:, start + 16 * i : start + 16 * (i + 1)] for i in range(3)), rtol=1e-6
    )


@pytest.mark.parametrize("n", [0, 2, 5])
def test_tuples_keep_their_fields(kernels: Any, n: int) -> None:
    out = np.zeros(3, np.int32)
    kernels.run([out, 11, 3, n], "pairs", out="*i32", a="i32", b="i32", n="i32")
    first, second = 11, 3
    for i in range(n):
        first, second = first + second, second + i
    assert out.tolist() == [first if n > 3 else second, 7, first]
