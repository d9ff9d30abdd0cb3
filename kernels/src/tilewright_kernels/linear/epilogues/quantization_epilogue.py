"""Matmul whose result is quantized to 8 bits in its epilogue."""

from __future__ import annotations

import functools
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.epilogue import Epilogue
from tilewright_kernels.linear.matmul import check_shapes, launch_matmul, matmul_reference
from tilewright_kernels.linear.quantize import MAXIMA
from tilewright_kernels.operations import Array, DType, Function, Launcher, Operation


@tw.jit
def rounded(q, maximum, IS_INTEGER: tl.constexpr):
    """Return numbers within the range of a type of 8 bits: integers to the nearest, ties away."""
    q = tl.clamp(q, -maximum, maximum)
    if IS_INTEGER:
        q = tl.where(q < 0.0, tl.ceil(q - 0.5), tl.floor(q + 0.5))
    return q


@functools.cache
def _by_blocks(block: int, dtype: str) -> Epilogue:
    """Return the epilogue that stores the scale of each ``block`` columns of a row."""
    maximum, is_integer = tl.constexpr(MAXIMA[dtype]), tl.constexpr(dtype == "int8")
    size = tl.constexpr(block)

    @tw.jit
    def quantized(x, rows, columns, M, N, scales_ptr):
        count: tl.constexpr = x.shape[1] // size
        x = tl.where((columns < N)[None, :], x.to(tl.float32), 0.0)
        blocks = x.reshape(x.shape[0], count, size)
        largest = tl.max(tl.abs(blocks), axis=2)
        scales = tl.where(largest > 0.0, largest / maximum, 1.0)
        first = tl.min(columns.reshape(count, size), axis=1)
        tl.store(
            scales_ptr + rows[:, None] * tl.cdiv(N, size) + (first // size)[None, :],
            scales,
            mask=(rows < M)[:, None] & (first < N)[None, :],
        )
        q = rounded(blocks / scales[:, :, None], maximum, is_integer)
        return q.reshape(x.shape[0], x.shape[1])

    return Epilogue(quantized, block)


@functools.cache
def _by_scale(dtype: str) -> Epilogue:
    """Return the epilogue that divides by a given scale."""
    maximum, is_integer = tl.constexpr(MAXIMA[dtype]), tl.constexpr(dtype == "int8")

    @tw.jit
    def quantized_by_scale(x, rows, columns, M, N, scale_ptr):
        return rounded(x.to(tl.float32) / tl.load(scale_ptr), maximum, is_integer)

    return Epilogue(quantized_by_scale)


def matmul_quantized_reference(
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    *,
    activation: Any = None,
    block: int = 128,
    dtype: str = "float8_e4m3fn",
) -> tuple[Any, Any]:
    """Return ``activation(a @ b + bias)`` by its scales, not rounded yet, and the scales."""
    xp = array_api_compat.array_namespace(a)
    y = matmul_reference(a, b, bias, activation=activation)
    if scale is not None:
        return y / scale, scale
    tops = [
        xp.max(xp.abs(y[..., start : start + block]), axis=-1)
        for start in range(0, y.shape[-1], block)
    ]
    scales = xp.stack(tops, axis=-1) / MAXIMA[dtype]
    scales = xp.where(scales > 0, scales, xp.ones_like(scales))
    return y / xp.repeat(scales, block, axis=-1)[..., : y.shape[-1]], scales


def _by_formula(
    a: Any, b: Any, bias: Any, scale: Any, activation: Any, block: int, dtype: str
) -> tuple[Any, Any]:
    """Return what the operation stores, of a float type."""
    xp = array_api_compat.array_namespace(a)
    settings = {"activation": activation, "block": block, "dtype": dtype}
    q, scales = matmul_quantized_reference(a, b, bias, scale, **settings)
    q = xp.clip(q, -MAXIMA[dtype], MAXIMA[dtype])
    return xp.round(q) if dtype == "int8" else q, scales


def _shapes(
    make: Any,
    a: Any,
    b: Any,
    bias: Any,
    scale: Any,
    activation: Any,
    block: int,
    dtype: str,
    precision: str,
    invariant: bool | None,
) -> tuple[Any, ...]:
    rows, columns = tuple(a.shape[:-1]), b.shape[1]
    scales = None if scale is not None else make((*rows, tw.cdiv(columns, block)), "float32")
    return make((*rows, columns), dtype), scales


def _launch(
    run: Launcher,
    q: Any,
    scales: Any,
    a: Array,
    b: Array,
    bias: Array | None = None,
    scale: Array | None = None,
    activation: Function | None = None,
    block: int = 128,
    dtype: DType = "float8_e4m3fn",
    precision: str = "ieee",
    invariant: bool | None = None,
) -> None:
    epilogue = _by_blocks(block, dtype) if scale is None else _by_scale(dtype)
    launch_matmul(
        run,
        q.reshape(-1, q.shape[-1]),
        None,
        a if a.ndim == 2 else a.reshape(-1, a.shape[-1]),
        b,
        bias,
        array_0=scales if scale is None else scale,
        activation=activation,
        epilogue=epilogue.function,
        epilogue_columns=epilogue.columns,
        precision=precision,
        invariant=invariant,
    )


MATMUL_QUANTIZED = Operation(
    "matmul_quantized",
    ("q", "scales"),
    _shapes,
    _launch,
    optional=("scales",),
    reference=_by_formula,
)


def matmul_quantized(
    a: Any,
    b: Any,
    bias: Any = None,
    scale: Any = None,
    *,
    activation: Any = None,
    block: int = 128,
    dtype: Any = "float8_e4m3fn",
    precision: str = "ieee",
    invariant: bool | None = None,
    out: Any = None,
) -> tuple[Any, Any]:
    """Compute ``activation(a @ b + bias)``, and quantize the result before storing it.

    Args:
        a: of shape (..., K), of at least two axes; see :func:`.matmul`.
        b: of shape (K, N).
        bias: of shape (N,), or None.
        scale: an array with one float32 number, the scale of the whole result. If None, each block
            of the result gets a scale of its own.
        activation: a function of ``tilewright.jit`` that is called with a tile of sums, in float32
            or, for int8 operands, in int32; or None.
        block: how many consecutive columns of a row share a scale: a power of two up to 256.
        dtype: ``"float8_e4m3fn"``, ``"float8_e5m2"`` or ``"int8"``.
        precision: see :func:`.matmul`.
        invariant: see :func:`.matmul`.
        out: a pair of arrays for the elements and the scales; with ``scale``, only an array for the
            elements.

    Returns:
        A pair: the quantized elements, of shape (..., N), and their scales in float32, of shape
        (..., N / block) with N / block rounded up. If you pass ``scale``, the second array of the
        pair is ``scale`` itself. Each quantized element represents the product of the element and
        its scale. Each scale is chosen so that the largest magnitude of its block is quantized to
        the largest number of the 8-bit type. With ``scale``, elements beyond the range of the type
        saturate: they become the smallest or the largest number of the type. There is no gradient.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``dtype`` or ``block`` is not
            supported.
    """
    check_shapes(a, b, bias, None)
    if b.ndim != 2:
        raise ValueError(f"b must be a matrix, and has the shape {tuple(b.shape)}")
    Epilogue(None, block)  # refuses blocks that are none
    if str(dtype).rsplit(".", 1)[-1] not in MAXIMA:
        raise ValueError(f"dtype must be one of {', '.join(MAXIMA)}, not {dtype!r}")
    q, scales = MATMUL_QUANTIZED(
        a, b, bias, scale, activation, block, dtype, precision, invariant, out=out
    )
    return q, scales if scale is None else scale
