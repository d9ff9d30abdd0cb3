"""Launches of derivatives in a stream of XLA's, on memory that XLA allocated."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright as tw
import tilewright.language as tl
from tilewright.jax.derivative_launch import PositionalDerivative
from tilewright.jax.work import start
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.derivatives import compiled_plan
from tilewright.runtime.launch.compiled_kernel import CompiledKernel

DTYPES = {"float32": "fp32", "uint8": "u8"}


@tw.jit
def scaled_rows(x, w, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x + row * n + columns, mask=mask)
    b = tl.load(w + columns, mask=mask)
    tl.store(out + row * n + columns, a * a * b, mask=mask)


@tw.jit
def first_half(x, w, out, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < n // 2
    a = tl.load(x + columns, mask=mask) * tl.load(w + columns, mask=mask)
    tl.store(out + columns, a, mask=mask)


def view(array):
    strides = contiguous_strides(array.shape)
    dtype = DTYPES[array.dtype.name]
    return ArrayView(array, array.ctypes.data, dtype, array.shape, strides, ("cpu", 0))


@pytest.fixture
def streams(monkeypatch):
    """The streams of the launches of a test, which allocates nothing."""
    found = []
    launcher = CompiledKernel.run.fget

    def recorded(self):
        run = launcher(self)

        def call(grid, stream, values):
            found.append((self.name, stream))
            run(grid, stream, values)

        return call

    def allocated(*args, **keywords):
        raise AssertionError("memory was allocated")

    monkeypatch.setattr(CompiledKernel, "run", property(recorded))
    monkeypatch.setattr(compiled_plan, "bytes_like", allocated)
    return found


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def launched(kernel, rows, n, streams):
    x, w, d_out = random(0, rows, n), random(1, n), random(2, rows, n)
    d_x, d_w = np.full_like(x, np.nan), np.full_like(w, np.nan)
    derivative = PositionalDerivative(tw.vjp(kernel, outputs="out", wrt=("x", "w")))
    arrays = [x, w, np.empty_like(x)]
    given = [*map(view, arrays), n, 16, *map(view, (d_out, d_x, d_w))]
    derivative, sizes = derivative.with_memory(given, (rows, 1, 1), {})
    assert derivative.arg_names[-len(sizes) :] == list(sizes) or not sizes
    memory = [np.empty(size, np.uint8) for size in sizes.values()]
    start(derivative, (rows, 1, 1), [*given, *map(view, memory)], {}, 77)
    assert {stream for _, stream in streams} == {77}
    return x, w, d_out, d_x, d_w, sizes


def test_adjoints_work_in_the_stream_on_memory_that_is_given(streams):
    x, w, d_out, d_x, d_w, sizes = launched(scaled_rows, 300, 9, streams)
    assert sizes and len(streams) > 1
    np.testing.assert_allclose(d_x, 2 * x * w * d_out, rtol=1e-5)
    np.testing.assert_allclose(d_w, (x * x * d_out).sum(0), rtol=1e-4, atol=1e-4)


def test_what_an_adjoint_does_not_store_is_cleared_in_the_stream(streams):
    x, w, d_out, d_x, d_w, _ = launched(first_half, 1, 10, streams)
    kept = np.arange(10) < 5
    np.testing.assert_allclose(d_x, np.where(kept, w * d_out, 0), rtol=1e-6)
    np.testing.assert_allclose(d_w, np.where(kept, x * d_out, 0)[0], rtol=1e-6)
    assert [name for name, _ in streams].count("cleared") == 2


def test_tangents_work_in_the_stream(streams):
    x, w, t_x, t_out = random(0, 4, 9), random(1, 9), random(2, 4, 9), random(3, 4, 9)
    derivative = PositionalDerivative(tw.jvp(scaled_rows, inputs="x", outputs="out"))
    given = [view(x), view(w), view(np.empty_like(x)), 9, 16, view(t_x), view(t_out)]
    derivative, sizes = derivative.with_memory(given, (4, 1, 1), {})
    start(derivative, (4, 1, 1), given, {}, 5)
    assert not sizes and {stream for _, stream in streams} == {5}
    np.testing.assert_allclose(t_out, 2 * x * w * t_x, rtol=1e-5)
