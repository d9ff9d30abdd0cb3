"""Extents and strides of descriptors from the host or another function, read by kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor


@tw.jit
def numbers(desc, out):
    tl.static_assert(desc.dtype == tl.float32 and desc.block_shape[-1] == 8)
    tl.static_assert(desc.shape[0].dtype == tl.int32 and desc.strides[0].dtype == tl.int64)
    for axis in tl.static_range(len(desc.shape)):
        tl.store(out + axis, desc.shape[axis])
        tl.store(out + 5 + axis, desc.strides[axis])


@tw.jit(noinline=True)
def row_sums(desc, out):
    rows, columns = desc.shape
    row = tl.program_id(0) * desc.block_shape[0]
    total = tl.zeros((desc.block_shape[0],), tl.float32)
    for column in range(0, columns, desc.block_shape[1]):
        total += tl.sum(desc.load([row, column]), axis=1)
    i = row + tl.arange(0, desc.block_shape[0])
    tl.store(out + i, total, mask=i < rows)


@tw.jit
def sums_by_the_host(desc, out):
    row_sums(desc, out)


@tw.jit
def sums_by_the_kernel(x, out, M, N, pitch):
    row_sums(tl.make_tensor_descriptor(x, [M, N], [pitch, 1], [4, 8]), out)


@tw.jit
def through_pointers(source, x, out):
    """Blocks copied by pointers, with the numbers of the descriptor: ``out`` is dense."""
    rows, columns = source.shape
    i = tl.program_id(0) * source.block_shape[0] + tl.arange(0, source.block_shape[0])
    for start in range(0, columns, source.block_shape[1]):
        j = start + tl.arange(0, source.block_shape[1])
        inside = (i < rows)[:, None] & (j < columns)[None, :]
        loaded = tl.load(
            x + i[:, None] * source.strides[0] + j[None, :] * source.strides[1], mask=inside
        )
        tl.store(out + i[:, None] * columns + j[None, :], loaded, mask=inside)


@tw.jit
def in_a_tuple(pair, out):
    source, target = pair
    for row in range(0, source.shape[0], 4):
        for column in range(0, source.shape[1], 8):
            target.store([row, column], source.load([row, column]) * 3)
    tl.store(out, target.strides[0] - source.strides[0])


BACKENDS = ("reference", "cpu")
SHAPES = [(7, 13, 16), (1, 1, 4), (37, 61, 64), (64, 40, 40)]


def array(
    shape: tuple[int, ...], library: str, poison: bool = False
) -> tuple[np.ndarray[Any, Any], Any]:
    """Memory, aligned, as NumPy's array and as the library's."""
    size = int(np.prod(shape))
    raw = np.full(size + 4, np.nan, np.float32)
    start = -raw.ctypes.data // 4 % 4
    values = raw[start : start + size].reshape(shape)
    if not poison:
        values[...] = np.random.default_rng(size).random(shape, np.float32)
    if library == "numpy":
        return values, values
    torch = pytest.importorskip("torch")
    return values, torch.from_numpy(values)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("shape", [(9,), (7, 12), (3, 5, 12), (2, 3, 1, 16), (2, 1, 3, 2, 20)])
def test_numbers(shape: tuple[int, ...], library: str, backend: str) -> None:
    _, base = array(shape, library)
    block = [1] * len(shape)
    block[-1] = 8
    desc = TensorDescriptor.from_tensor(base, block)
    out = np.full(10, -9, np.int64)
    numbers[(1,)](desc, out, backend=backend)
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    fill = [-9] * (5 - len(shape))
    assert out.tolist() == [*shape, *fill, *strides, *fill]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("m", "n", "pitch"), SHAPES)
def test_a_function_that_is_not_inlined(
    m: int, n: int, pitch: int, library: str, backend: str
) -> None:
    values, base = array((m, pitch), library)
    expected = values[:, :n].sum(axis=1, dtype=np.float64)
    for kernel, arguments in (
        (sums_by_the_host, (TensorDescriptor(base, (m, n), (pitch, 1), [4, 8]),)),
        (sums_by_the_kernel, (base,)),
    ):
        kept, out = array((m + 5,), library, poison=True)
        more = () if kernel is sums_by_the_host else (m, n, pitch)
        kernel[(tw.cdiv(m, 4),)](*arguments, out, *more, backend=backend)
        np.testing.assert_allclose(kept[:m], expected, rtol=1e-5)
        assert np.isnan(kept[m:]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("m", "n", "pitch"), SHAPES)
def test_pointer_arithmetic_with_strides(
    m: int, n: int, pitch: int, library: str, backend: str
) -> None:
    values, base = array((m, pitch), library)
    kept, out = array((m * n + 3,), library, poison=True)
    compiled = through_pointers[(tw.cdiv(m, 4),)](
        TensorDescriptor(base, (m, n), (pitch, 1), [4, 8]), base, out, backend=backend
    )
    assert np.array_equal(kept[: m * n].reshape(m, n), values[:, :n])
    assert np.isnan(kept[m * n :]).all()
    assert [parameter.stored for parameter in compiled.parameters] == [False, False, True]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("m", "n", "pitch"), SHAPES)
def test_descriptors_in_a_tuple(m: int, n: int, pitch: int, backend: str) -> None:
    values, base = array((m, pitch), "numpy")
    kept, target = array((m, pitch + 8), "numpy", poison=True)
    out = np.zeros(1, np.int64)
    pair = (
        TensorDescriptor(base, (m, n), (pitch, 1), [4, 8]),
        TensorDescriptor(target, (m, n), (pitch + 8, 1), [4, 8]),
    )
    in_a_tuple[(1,)](pair, out, backend=backend)
    assert np.array_equal(kept[:, :n], values[:, :n] * 3)
    assert np.isnan(kept[:, n:]).all()
    assert out[0] == 8


def test_extents_fit_what_kernels_read_them_as() -> None:
    base = array((4,), "numpy")[1]
    assert TensorDescriptor(base, (2**31 - 1,), (1,), [4]).shape == [2**31 - 1]
    with pytest.raises(
        ValueError,
        match=(
            r"extents must be below 2\*\*31, not \[2147483648\]; describe the tensor with more "
            r"dimensions"
        ),
    ):
        TensorDescriptor(base, (2**31,), (1,), [4])
