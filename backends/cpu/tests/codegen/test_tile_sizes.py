"""Sizes: tiles too large for the stack, grids of many programs, many threads, remainders."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.testing.threads import side_by_side

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


@device_function
def sort_row(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.sort(tl.load(x + row * n + at, mask=at < n, other=1000.0))
    total = tl.cumsum(v, 0)
    tl.store(o + row * n + at, tl.where(at % 2 == 0, v, total), mask=at < n)


@pytest.mark.parametrize("block", [1 << 13, 1 << 17])
def test_tiles_beyond_the_stack(
    block: int, kernel_agrees: Check, compiled: Any, module_of: Any
) -> None:
    n = block - 3
    arguments = [numbers(2 * n), np.zeros(2 * n, np.float32), n]
    kernel_agrees(sort_row, arguments, (2, 1, 1), BLOCK=block)
    kernel = compiled(module_of(sort_row, arguments, BLOCK=block))
    text = kernel.code.stages["llir"]
    assert (
        (kernel.code.metadata["arena_bytes"] > 0)
        == (block > 1 << 16)
        == ("ptr %memory, i64 0" in text)
    )
    assert (
        sum(int(count) for count in re.findall(r"alloca \[(\d+) x i8\]", text))
        <= (256 << 10) + 1024
    )


@device_function
def mark(o, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(count, 1)
    tl.store(o + at, tl.load(o + at) + at)


def test_a_grid_of_many_programs_on_many_threads(compiled: Any, module_of: Any) -> None:
    """Pieces of the grid run at the same time, in no order, and each program once."""
    programs, block = (1 << 17) + 5, 2
    out, count = np.ones(programs * block, np.int32), np.zeros(1, np.int32)
    kernel = compiled(module_of(mark, [out, count], BLOCK=block))
    slots = kernel.pack([out, count], (programs, 1, 1))
    edges = np.linspace(0, programs, 38).astype(np.int64).tolist()
    side_by_side(37, lambda i: kernel.function(slots.ctypes.data, edges[i], edges[i + 1]))
    np.testing.assert_array_equal(out, np.arange(programs * block) + 1)
    assert count[0] == programs


@device_function
def coordinates(o, nx, ny):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(o + (z * ny + y) * nx + x, x * 1000003 + y * 1009 + z)


@pytest.mark.parametrize("grid", [(70000, 1, 1), (1, 70000, 2), (3, 257, 129), (1, 1, 66000)])
def test_coordinates_beyond_16_bits(
    grid: tuple[int, int, int], compiled: Any, module_of: Any
) -> None:
    out = np.zeros(int(np.prod(grid)), np.int32)
    compiled(module_of(coordinates, [out, *grid[:2]]))([out, *grid[:2]], grid)
    z, y, x = np.meshgrid(*(np.arange(extent) for extent in grid[::-1]), indexing="ij")
    np.testing.assert_array_equal(out, (x * 1000003 + y * 1009 + z).astype(np.int32).ravel())


@device_function
def everything(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n, other=1.0), tl.load(y + at)
    tl.store(o + at, tl.where(a > b, a / (b + 1000.0), tl.sqrt(tl.abs(a))), mask=at < n)
    tl.store(o + BLOCK + at, tl.cumsum(a, 0) + tl.max(b, 0))
    tl.store(o + 2 * BLOCK, tl.sum(a * b, 0))
    tl.store(o + 2 * BLOCK + 1, tl.argmax(a, 0) * 100.0 + tl.argmin(b, 0))


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 7, 12, 15, 17, 31, 33, 47, 63, 65, 100, 129, 1000])
def test_every_extent(extent: int, kernel_agrees: Check) -> None:
    arguments = [
        numbers(extent),
        numbers(extent, seed=1),
        np.zeros(2 * extent + 2, np.float32),
        max(1, extent - 2),
    ]
    if extent & (extent - 1) == 0:
        kernel_agrees(everything, arguments, BLOCK=extent, relative=1e-6)
    else:
        extents = {4096: extent, 8192: 2 * extent, 8193: 2 * extent + 1}
        kernel_agrees(everything, arguments, BLOCK=4096, extents=extents, relative=1e-6)


@device_function
def one_element(x, o, n):
    at = tl.arange(0, 1)
    v = tl.load(x + at, mask=at < n, other=3.0)
    w = tl.reshape(v, (1, 1, 1)) * tl.exp(v - v)[None, :, None]
    tl.store(o + at, tl.reshape(w, (1,)) + tl.sum(v, 0) + tl.max(tl.cumsum(v, 0), 0))
    tl.store(
        o + 1 + at[:, None] + at[None, :],
        tl.trans(tl.broadcast_to(v[:, None], (1, 1))),
        mask=(at[:, None] < n) & (at[None, :] < 1),
    )


@pytest.mark.parametrize("n", [0, 1])
def test_tiles_of_one_element(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(one_element, [numbers(1), np.zeros(2, np.float32), np.int32(n)])
