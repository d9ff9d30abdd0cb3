"""Products of an activation of one array and another array: SwiGLU and GeGLU."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher
from tilewright_kernels.rows.shapes import count_rows, is_on_gpu, with_rows

_SQRT_2_BY_PI = tl.constexpr(0.7978845608028654)
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_DENSITY = tl.constexpr(0.3989422804014327)


@tw.jit
def silu(x):
    """Return the sigmoid linear unit and its derivative."""
    s = tl.sigmoid(x)
    return x * s, s * (1 + x * (1 - s))


@tw.jit
def gelu(x):
    """Return the Gaussian error linear unit and its derivative."""
    normal = 0.5 * (1 + tl.erf(x * _SQRT_HALF))
    return x * normal, normal + x * _DENSITY * tl.exp(-0.5 * x * x)


@tw.jit
def gelu_tanh(x):
    """Return the approximation of the Gaussian error linear unit by a tangent, and its slope."""
    s = tl.sigmoid(2 * _SQRT_2_BY_PI * (x + 0.044715 * x * x * x))  # (1 + tanh) / 2
    slope = 2 * _SQRT_2_BY_PI * (1 + 3 * 0.044715 * x * x)
    return x * s, s * (1 + x * (1 - s) * slope)


@tw.jit
def gated_kernel(
    gate_ptr,
    up_ptr,
    y_ptr,
    gate_stride,
    up_stride,
    y_stride,
    n_columns,
    activation: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(n_columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    gate = tl.load(gate_ptr + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    value, _ = activation(gate)
    tl.store(y_ptr + row * y_stride + columns, value * up, mask=inside)


@tw.jit
def gated_backward_kernel(
    dy_ptr,
    gate_ptr,
    up_ptr,
    d_gate_ptr,
    d_up_ptr,
    dy_stride,
    gate_stride,
    up_stride,
    d_stride,
    n_columns,
    activation: tl.constexpr,
    BLOCK: tl.constexpr,
):
    blocks = tl.cdiv(n_columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    dy = tl.load(dy_ptr + row * dy_stride + columns, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    value, slope = activation(gate)
    tl.store(d_gate_ptr + row * d_stride + columns, dy * up * slope, mask=inside)
    tl.store(d_up_ptr + row * d_stride + columns, dy * value, mask=inside)


def gated_shapes(make: Any, gate: Any, up: Any) -> tuple[Any, ...]:
    """Return the result's shape.

    Raises:
        ValueError: ``gate`` and ``up`` have different shapes.
    """
    if tuple(gate.shape) != tuple(up.shape):
        raise ValueError(
            f"gate has the shape {tuple(gate.shape)}, and up {tuple(up.shape)}: give arrays of "
            "one shape"
        )
    return (make(gate.shape, gate.dtype),)


def gated_backward_shapes(make: Any, dy: Any, gate: Any, up: Any) -> tuple[Any, ...]:
    """Return the shapes of the gradients."""
    return make(gate.shape, gate.dtype), make(up.shape, up.dtype)


def launch_gated(run: Launcher, activation: Any, y: Any, gate: Any, up: Any) -> None:
    """Launch the forward pass."""
    rows, columns, arrays, steps = _as_rows(gate.shape, gate, up)
    block = _block(columns, gate)
    run(
        gated_kernel,
        (tw.cdiv(columns, block) * rows,),
        *arrays,
        y,
        *steps,
        columns,
        columns,
        activation=activation,
        BLOCK=block,
        num_warps=4,
    )


def launch_gated_backward(
    run: Launcher, activation: Any, d_gate: Any, d_up: Any, dy: Any, gate: Any, up: Any
) -> None:
    """Launch the backward pass."""
    rows, columns, arrays, steps = _as_rows(gate.shape, dy, gate, up)
    block = _block(columns, gate)
    run(
        gated_backward_kernel,
        (tw.cdiv(columns, block) * rows,),
        *arrays,
        d_gate,
        d_up,
        *steps,
        columns,
        columns,
        activation=activation,
        BLOCK=block,
        num_warps=4,
    )


def _block(columns: int, array: Any) -> int:
    return min(1024 if is_on_gpu(array) else 4096, tw.next_power_of_2(max(columns, 1)))


def _as_rows(shape: Any, *arrays: Any) -> tuple[int, int, tuple[Any, ...], tuple[int, ...]]:
    """Return rows, columns, arrays and their strides; one row where all are contiguous."""
    rows, columns = count_rows(shape), shape[-1]
    found = [with_rows(each) for each in arrays]
    given = tuple(each for each, _ in found)
    steps = tuple(step for _, step in found)
    if all(step == columns for step in steps):
        return min(rows, 1), rows * columns, given, (rows * columns,) * len(given)
    return rows, columns, given, steps
