"""Epilogue of a matmul: bias, activation and residual, and its adjoint."""

from __future__ import annotations

import functools
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Function, Launcher, Operation


@tw.jit
def store_results(
    accumulator, c_ptr, z_ptr, bias_ptr, residual_ptr, rows, columns, M, N,
    stride_cm, stride_cn, stride_rm, stride_rn, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Store ``activation(accumulator + bias) + residual``, and the accumulator to ``z``."""
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    if z_ptr is not None:
        places = rows[:, None] * N + columns[None, :]
        tl.store(z_ptr + places, accumulator.to(z_ptr.dtype.element_ty), mask=inside)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        accumulator += bias.to(accumulator.dtype)[None, :]
    if ACTIVATION is not None:
        accumulator = ACTIVATION(accumulator)
    if residual_ptr is not None:
        residual = tl.load(
            residual_ptr + rows[:, None] * stride_rm + columns[None, :] * stride_rn,
            mask=inside,
            other=0.0,
        )
        accumulator += residual.to(accumulator.dtype)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=inside,
    )


@tw.jit
def epilogue_kernel(
    z_ptr, bias_ptr, y_ptr, n_rows, n_columns,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute ``y = activation(z + bias)``; without z, it is the bias in each row."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < n_rows) & (columns[None, :] < n_columns)
    places = rows[:, None] * n_columns + columns[None, :]
    y = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if z_ptr is not None:
        y += tl.load(z_ptr + places, mask=inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < n_columns, other=0.0)
        y += bias.to(tl.float32)[None, :]
    if ACTIVATION is not None:
        y = ACTIVATION(y)
    tl.store(y_ptr + places, y.to(y_ptr.dtype.element_ty), mask=inside)


@functools.cache
def _adjoint(wrt: tuple[str, ...]) -> Any:
    """Return the derived backward pass for ``z_ptr``, ``bias_ptr`` or both."""
    return tw.vjp(epilogue_kernel, outputs="y_ptr", wrt=wrt, deterministic=True)


def _shapes(make: Any, dy: Any, z: Any, bias: Any, activation: Any) -> tuple[Any, ...]:
    return (
        make((0,) if z is None else dy.shape, dy.dtype),
        make((0,), dy.dtype) if bias is None else make(bias.shape, bias.dtype),
    )


def _launch(
    run: Launcher,
    dz: Any,
    dbias: Any,
    dy: Array,
    z: Array | None,
    bias: Array | None,
    activation: Function | None,
) -> None:
    columns = dy.shape[-1]
    rows = 1
    for extent in dy.shape[:-1]:
        rows *= extent
    gradients = {}
    if z is not None:
        gradients["d_z_ptr"] = dz
    if bias is not None:
        gradients["d_bias_ptr"] = dbias
    block = min(256, tw.next_power_of_2(columns))
    cotangent = packed(dy)
    bias = None if bias is None else packed(bias)
    run(
        _adjoint(tuple(name[2:] for name in gradients)),
        (tw.cdiv(rows, 16), tw.cdiv(columns, block)),
        z,
        bias,
        cotangent,
        rows,
        columns,
        ACTIVATION=activation,
        BLOCK_M=16,
        BLOCK_N=block,
        d_y_ptr=cotangent,
        **gradients,
    )


EPILOGUE_BACKWARD = Operation("matmul_epilogue_backward", ("dz", "dbias"), _shapes, _launch)


def packed(array: Any) -> Any:
    """Return an array of C order: a copy where it is of another."""
    if hasattr(array, "contiguous"):
        return array.contiguous()
    if hasattr(array, "flags"):
        import numpy as np

        return np.ascontiguousarray(array)
    return array
