"""Verdicts on kernels that take host descriptors, over arrays of NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.testing import same_algebra

ROWS, COLUMNS, STRIDE = 6, 24, 32
OPTIONS = {"grid": (2,), "backend": "reference"}


@tw.jit
def by_blocks(x, out, factor):
    row = tl.program_id(0) * x.block_shape[0]
    for column in range(0, 24, x.block_shape[1]):
        block = x.load([row, column])
        out.store([row, column], out.load([row, column]) + factor * block)


@tw.jit
def by_pointers(x_ptr, out_ptr, factor, stride, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, 32)[None, :]
    places, mask = row * stride + column, (row < 6) & (column < 24)
    x = tl.load(x_ptr + places, mask=mask)
    tl.store(out_ptr + places, tl.load(out_ptr + places, mask=mask) + x * factor, mask=mask)


@pytest.fixture(params=["numpy", "torch"])
def full(request):
    """A function that makes an array of one number."""
    if request.param == "numpy":
        return lambda shape, value: np.full(shape, value, np.float32)
    torch = pytest.importorskip("torch")
    return lambda shape, value: torch.full(shape, float(value))


def descriptors(x, out, *block):
    return [tw.TensorDescriptor.from_tensor(array, block) for array in (x, out)]


@pytest.mark.parametrize("columns", [COLUMNS, STRIDE])
def test_equal_kernels_are_equal(full, columns) -> None:
    x, out = (full((ROWS, columns), value)[:, :COLUMNS] for value in (1, 0))
    first, second = descriptors(x, out, 4, 16), descriptors(x, out, 4, 8)
    found = same_algebra(by_blocks, by_blocks, (*first, 2.0), (*second, 2.0), **OPTIONS)
    assert found, found
    # and with a kernel of the arrays themselves
    found = same_algebra(
        by_blocks, by_pointers, {"x": first[0], "out": first[1], "factor": 2.0},
        (x, out, 2.0, columns), constants_b={"ROWS": 4}, **OPTIONS,
    )  # fmt: skip
    assert found, found
    assert (x == 1).all() and (out == 0).all()


@pytest.mark.parametrize("columns", [COLUMNS, STRIDE])
def test_different_kernels_are_different(full, columns) -> None:
    x, out = (full((ROWS, columns), value)[:, :COLUMNS] for value in (1, 1))
    both = descriptors(x, out, 4, 8)
    found = same_algebra(by_blocks, by_blocks, (*both, 2.0), (*both, 3.0), **OPTIONS)
    (one,) = found.differences
    assert found.status == "different"
    assert (one.argument, one.index, one.outside) == ("1", (0, 0), 0)
    assert one.count == one.size == ROWS * COLUMNS


def test_descriptors_of_one_array_have_one_copy(full) -> None:
    x = full((ROWS, COLUMNS), 1)
    both = descriptors(x, x, 4, 8)
    found = same_algebra(by_blocks, by_blocks, (*both, 1.0), (*both, 1.0), **OPTIONS)
    assert found, found
    (one,) = same_algebra(by_blocks, by_blocks, (*both, 1.0), (*both, 2.0), **OPTIONS).differences
    assert one.argument == "0" and one.count == ROWS * COLUMNS


def test_a_shape_and_strides_of_its_own_are_kept(full) -> None:
    flat, out = full((ROWS * COLUMNS,), 1), full((ROWS, COLUMNS), 1)
    x = tw.TensorDescriptor(flat, [ROWS, COLUMNS], [COLUMNS, 1], [4, 8])
    y = tw.TensorDescriptor.from_tensor(out, [4, 8])
    found = same_algebra(
        by_blocks, by_pointers, (x, y, 2.0), (flat, out, 2.0, COLUMNS),
        constants_b={"ROWS": 4}, **OPTIONS,
    )  # fmt: skip
    assert found, found


def test_memory_outside_of_the_array_is_an_error(full) -> None:
    whole = full((ROWS, COLUMNS), 1)
    x = tw.TensorDescriptor(whole[:2], [ROWS, COLUMNS], [COLUMNS, 1], [4, 8])
    y = tw.TensorDescriptor.from_tensor(whole, [4, 8])
    with pytest.raises(
        LaunchError, match=r"descriptor 0, but a tensor of shape .* within this arr"
    ):
        same_algebra(by_blocks, by_blocks, (x, y, 2.0), **OPTIONS)


def test_repeated_elements_are_an_error() -> None:
    row = np.broadcast_to(np.ones(COLUMNS, np.float32), (ROWS, COLUMNS))
    both = descriptors(row, np.ones((ROWS, COLUMNS), np.float32), 4, 8)
    with pytest.raises(LaunchError, match="a whole array that repeats no elements"):
        same_algebra(by_blocks, by_blocks, (*both, 2.0), **OPTIONS)
