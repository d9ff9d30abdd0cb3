"""Arguments that are views of one array: a program loads a tile whole before it stores it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

START, SIZE = 320, 1400
SHIFTS = [-64, -8, -3, -1, 0, 1, 3, 8, 64]
DTYPES = ["int8", "int16", "float16", "int32", "float32", "float64"]


def numbers(dtype: str) -> Any:
    return np.random.default_rng(0).integers(-50, 50, SIZE).astype(dtype)


def agrees(kernel: Any, dtype: str, *shifts: int, **meta: Any) -> Any:
    """Run a kernel on views of one array, each at a shift, here and on the reference."""
    found = []
    for backend in ("reference", "cpu"):
        data = numbers(dtype)
        with tw.backend(backend):
            kernel[(1,)](*(data[START + shift :] for shift in shifts), **meta)
        found.append(data)
    np.testing.assert_array_equal(found[1], found[0])
    assert not np.array_equal(found[0], numbers(dtype))
    return found[1]


@tw.jit
def double(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", SHIFTS)
def test_a_tile_is_loaded_whole_before_it_is_stored(shift: int, dtype: str) -> None:
    found = agrees(double, dtype, 0, shift, BLOCK=128)
    start = START + shift
    wanted = numbers(dtype)[START : START + 128] * np.array(2, dtype)
    np.testing.assert_array_equal(found[start : start + 128], wanted)


@tw.jit
def masked(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside, other=5)
    b = tl.load(y + at, mask=at > 2, other=7)
    tl.store(z + at, a + b, mask=at < n + 3)


@pytest.mark.parametrize("shifts", [(0, 1, 2), (3, 0, 0), (0, 8, -3), (8, -64, 1), (400, 500, 0)])
def test_loads_of_several_arguments_with_masks(shifts: tuple[int, ...]) -> None:
    agrees(masked, "float32", *shifts, n=101, BLOCK=128)


@tw.jit
def masked_twice(x, y, z, n, WHOLE_FIRST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * 40 + tl.arange(0, COLUMNS)[None, :]
    whole, some = tl.load(x + at), tl.load(x + at, mask=at < n, other=1000)
    both = whole * 3 + some if WHOLE_FIRST else some + whole * 3
    tl.store(z + at, both + tl.load(y + at))


@pytest.mark.parametrize("whole_first", [False, True])
@pytest.mark.parametrize("shifts", [(0, 400, 1), (0, 0, 3), (3, -8, 43)])
def test_loads_through_the_same_pointers_with_masks_of_their_own(
    shifts: tuple[int, ...], whole_first: bool
) -> None:
    """Each load has its own copy, because masked-off lanes have different values in the two."""
    agrees(masked_twice, "float32", *shifts, n=95, WHOLE_FIRST=whole_first, ROWS=8, COLUMNS=32)


@tw.jit
def matrix(x, y, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * row + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.load(x + at) + 1)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [*SHIFTS, 40, -40, 43])
def test_tiles_of_two_axes(shift: int, dtype: str) -> None:
    agrees(matrix, dtype, 0, shift, row=40, ROWS=8, COLUMNS=32)


@tw.jit
def transposed(x, y, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(y + i + j * row, tl.load(x + i + j * row) + tl.load(x + i * row + j))


@pytest.mark.parametrize("shift", SHIFTS)
def test_tiles_whose_first_axis_is_contiguous(shift: int) -> None:
    agrees(transposed, "int32", 0, shift, row=19, ROWS=16, COLUMNS=16)


@tw.jit
def reversed_through(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y - at, tl.load(x - at) + tl.load(x + 2 * at))


@pytest.mark.parametrize("shift", SHIFTS)
def test_strides_that_go_downwards_or_skip(shift: int) -> None:
    agrees(reversed_through, "int32", 0, shift, BLOCK=128)


@tw.jit
def gathered(x, y, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + (at * scale) % BLOCK))


@tw.jit
def gathered_rows(x, y, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)[None, :]
    rows = ((i * scale) % ROWS)[:, None]
    tl.store(y + i[:, None] * COLUMNS + j, tl.load(x + rows * COLUMNS + j))


@pytest.mark.parametrize("shift", SHIFTS)
def test_addresses_that_are_no_sum_of_strides(shift: int) -> None:
    agrees(gathered, "int32", 0, shift, scale=5, BLOCK=128)
    agrees(gathered_rows, "int32", 0, shift, scale=3, ROWS=4, COLUMNS=64)


@tw.jit
def in_turns(x, y, count, BLOCK: tl.constexpr):
    for turn in range(count):
        at = turn * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) + turn)


@pytest.mark.parametrize("shift", SHIFTS)
def test_in_a_loop_each_turn_sees_what_the_last_one_stored(shift: int) -> None:
    agrees(in_turns, "int32", 0, shift, count=4, BLOCK=128)


@tw.jit
def widened(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at).to(tl.int32) + 1)


@pytest.mark.parametrize("shift", [-64, -4, 0, 4, 64])
def test_elements_of_different_size(shift: int) -> None:
    found = []
    for backend in ("reference", "cpu"):
        data = numbers("int8")
        with tw.backend(backend):
            widened[(1,)](data[START:], data[START + shift :][:768].view(np.int32), BLOCK=128)
        found.append(data)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("shift", [-3, 0, 3])
def test_under_debug_mode(shift: int) -> None:
    expected = numbers("int32")
    at = START + shift
    expected[at : at + 128] = expected[START : START + 128] * 2
    data = numbers("int32")
    with tw.backend("cpu"):
        double[(1,)](data[START:], data[at:], BLOCK=128, debug=True)
    np.testing.assert_array_equal(data, expected)


@tw.jit
def matmul_in_turns(a, b, c, count, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), dtype=tl.float32)
    for _ in range(count):
        total += tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j))
        tl.store(c + i * N + j, tl.load(b + i * N + j) + 1)
    tl.store(c + i * N + j, tl.load(c + i * N + j) + total)


@pytest.mark.parametrize("shift", [-16, -1, 0, 1, 16])
def test_operands_of_matmuls_that_are_stored_to_in_the_loop(shift: int) -> None:
    agrees(matmul_in_turns, "float32", 300, 0, shift, count=3, N=16)


@tw.jit
def counted(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.atomic_add(y + at, value)
    tl.store(y + 256, tl.sum(value))


@pytest.mark.parametrize("shift", SHIFTS)
def test_atomics_and_reductions_of_what_they_overwrite(shift: int) -> None:
    agrees(counted, "int32", 0, shift, BLOCK=128)
