"""Calls of a kernel from JAX on a GPU, without JAX.

Device memory, and a stream other than the default.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gpu_support import gpu_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.jax.call import KernelCall
from tilewright.jax.derivative_launch import PositionalDerivative
from tilewright.jax.work import start as start_in
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright_nvidia.host.driver import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here"),
]


@tw.jit
def scaled(x: Any, factor: Any, out: Any, n: Any, block: tl.constexpr) -> None:
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < n
    tl.store(
        out + offsets,
        tl.load(x + offsets, mask=inside) * tl.load(factor) + tl.load(out + offsets, mask=inside),
        mask=inside,
    )


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


@pytest.mark.parametrize(
    ("x", "start", "shape", "axis"),
    [((), (), (), 1), ((5,), (1,), (5,), 1), ((2, 3), (2, 1), (2, 3), 1), ((5,), (5,), (5,), None)],
)
@pytest.mark.parametrize("apart", [False, True], ids=["default stream", "own stream"])
def test_batches(
    x: tuple[int, ...],
    start: tuple[int, ...],
    shape: tuple[int, ...],
    axis: int | None,
    apart: bool,
) -> None:
    rng, memory, cuda = np.random.default_rng(0), DeviceMemory(0, driver()), driver()
    host = [
        np.asarray(rng.standard_normal(extents), np.float32)
        for extents in ((*x, 3001), (*[1] * len(shape),), (*start, 3001), (*shape, 3001))
    ]
    expected = np.broadcast_to(host[0] * host[1][..., None] + host[2], host[3].shape)
    buffers, views = [], []
    for array in host:
        buffers.append(memory.allocate(array.nbytes, 256))
        memory.copy_to_device(buffers[-1], bytes_of(array))
        views.append(
            ArrayView(
                buffers[-1],
                buffers[-1].data_ptr(),
                "fp32",
                array.shape,
                contiguous_strides(array.shape),
                ("cuda", 0),
            )
        )
    call = KernelCall(
        "k",
        scaled,
        {"x": 1, "factor": 0, "out": 1},
        {"out": 1},
        {"n": 3001, "block": 128},
        {},
        (math.ceil(3001 / 128), 1, 1),
        axis,
    )
    with cuda.use(0):
        status, stream = cuda.bindings.cuStreamCreate(1) if apart else (0, 0)
        assert not int(status)
        memory.synchronize()
        call.run(views[:3], views[3:], int(stream))
        memory.synchronize()
        memory.copy_to_host(buffers[3], bytes_of(host[3]))
        if apart:
            cuda.bindings.cuStreamDestroy(stream)
    np.testing.assert_allclose(host[3], expected, rtol=1e-5, atol=1e-6)


@tw.jit
def scaled_rows(x: Any, w: Any, out: Any, n: Any, block: tl.constexpr) -> None:
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < n
    a = tl.load(x + row * n + columns, mask=inside)
    b = tl.load(w + columns, mask=inside)
    tl.store(out + row * n + columns, a * a * b, mask=inside)


@pytest.mark.parametrize("programs", [3000, 2900])
def test_derivatives(programs: int) -> None:
    """Gradients in a stream, of which some elements are cleared, on memory that is given."""
    rng, memory, cuda = np.random.default_rng(1), DeviceMemory(0, driver()), driver()
    rows, n = 3000, 200
    draw = [(rows, n), (n,), (rows, n), (rows, n), (rows, n), (n,)]
    host = [np.asarray(rng.standard_normal(extents), np.float32) for extents in draw]
    read = np.arange(rows)[:, None] < programs
    kept = []

    def device(array: np.ndarray[Any, Any], dtype: str = "fp32") -> ArrayView:
        buffer = memory.allocate(array.nbytes, 256)
        kept.append(buffer)
        memory.copy_to_device(buffer, bytes_of(array))
        strides = contiguous_strides(array.shape)
        return ArrayView(buffer, buffer.data_ptr(), dtype, array.shape, strides, ("cuda", 0))

    x, w, out, d_out, d_x, d_w = map(device, host)
    adjoint = tw.vjp(scaled_rows, outputs="out", wrt=("x", "w"))
    given = [x, w, out, n, 256, d_out, d_x, d_w]
    grid = (programs, 1, 1)
    derivative, sizes = PositionalDerivative(adjoint).with_memory(given, grid, {})
    scratch = [device(np.full(size, 0xFF, np.uint8), "u8") for size in sizes.values()]
    with cuda.use(0):
        status, stream = cuda.bindings.cuStreamCreate(1)
        assert not int(status)
        memory.synchronize()
        start_in(derivative, grid, [*given, *scratch], {}, int(stream))
        memory.synchronize()
        for buffer, array in zip(kept[4:6], host[4:], strict=True):
            memory.copy_to_host(buffer, bytes_of(array))
        cuda.bindings.cuStreamDestroy(stream)
    expected = read * 2 * host[0] * host[1] * host[3]
    np.testing.assert_allclose(host[4], expected, rtol=1e-5, atol=1e-6)
    expected = (read * host[0].astype(np.float64) ** 2 * host[3]).sum(0)
    np.testing.assert_allclose(host[5], expected, rtol=1e-3, atol=1e-3 * rows**0.5)
