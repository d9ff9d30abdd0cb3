"""RMS norm whose result is quantized to eight bits, with a scale of each row."""

from __future__ import annotations

from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, DType, Launcher, Operation
from tilewright_kernels.rows.rms_norm import rms_norm_reference, scaled_by_weight
from tilewright_kernels.rows.shapes import (
    check_weights,
    contiguous,
    count_rows,
    row_blocks,
    with_rows,
)
from tilewright_kernels.rows.tiles import column_indices, row_indices, row_max, row_sum, within

#: Element type -> its largest number.
_LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}


@tw.jit
def quantized(y, scale, ROUND: tl.constexpr):
    """Divide by the scale, and round to integers where the type is of integers."""
    y /= scale
    if ROUND:
        y = tl.floor(y + 0.5)
    return y


@tw.jit
def rms_norm_quantized_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    scale_ptr,
    x_stride,
    n_rows,
    n_columns,
    eps,
    OFFSET: tl.constexpr,
    LARGEST: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
):
    row = row_indices(ROWS)
    columns = column_indices(ROWS, BLOCK)
    x_ptr += row * x_stride
    y_ptr += row * n_columns
    if WIDE:
        squares = tl.zeros([BLOCK], tl.float32)
        largest = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            squares += x * x
            y = scaled_by_weight(x, weight_ptr, start + columns, inside, OFFSET)
            largest = tl.maximum(largest, tl.abs(y))
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_columns + eps)
        scale = tl.maximum(tl.max(largest, axis=0) * rstd, 1e-12) / LARGEST
        for start in range(0, n_columns, BLOCK):
            inside = start + columns < n_columns
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            y = scaled_by_weight(x * rstd, weight_ptr, start + columns, inside, OFFSET)
            tl.store(y_ptr + start + columns, quantized(y, scale, ROUND), mask=inside)
    else:
        inside = within(row, columns, n_rows, n_columns, ROWS)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(row_sum(x * x, ROWS) / n_columns + eps)
        y = scaled_by_weight(x * rstd, weight_ptr, columns, columns < n_columns, OFFSET)
        scale = tl.maximum(row_max(tl.abs(y), ROWS), 1e-12) / LARGEST
        tl.store(y_ptr + columns, quantized(y, scale, ROUND), mask=inside)
    tl.store(scale_ptr + row, scale, mask=row < n_rows)


def rms_norm_quantized_reference(
    x: Any,
    weight: Any = None,
    dtype: str = "float8_e4m3fn",
    eps: float = 1e-6,
    offset: float = 0.0,
) -> tuple[Any, Any]:
    """Return the RMS norm by its scale, not rounded yet, and the scale of each row."""
    xp = array_api_compat.array_namespace(x)
    y = rms_norm_reference(x, weight, eps, offset)
    largest = xp.max(xp.abs(y), axis=-1)
    scale = xp.where(largest > 1e-12, largest, 0 * largest + 1e-12) / _LARGEST[dtype]
    return y / scale[..., None], scale


def _by_formula(x: Any, weight: Any, dtype: str, eps: float, offset: float) -> tuple[Any, Any]:
    y, scale = rms_norm_quantized_reference(x, weight, dtype, eps, offset)
    if dtype == "int8":
        y = array_api_compat.array_namespace(y).floor(y + 0.5)
    return y, scale


def _shapes(
    make: Any, x: Any, weight: Any, dtype: str, eps: float, offset: float
) -> tuple[Any, ...]:
    check_weights(x, weight)
    if dtype not in _LARGEST:
        raise ValueError(f"dtype is {dtype}: give one of {', '.join(_LARGEST)}")
    return make(x.shape, dtype), make(x.shape[:-1], "float32")


def _launch(
    run: Launcher,
    y: Any,
    scale: Any,
    x: Array,
    weight: Array | None = None,
    dtype: DType = "float8_e4m3fn",
    eps: float = 1e-6,
    offset: float = 0.0,
) -> None:
    n_rows, n_columns = count_rows(x.shape), x.shape[-1]
    x, x_stride = with_rows(x)
    blocks = row_blocks("rms_norm_quantized", n_columns, x)
    run(
        rms_norm_quantized_kernel,
        blocks.grid(n_rows),
        x,
        contiguous(weight),
        y,
        scale,
        x_stride,
        n_rows,
        n_columns,
        eps,
        OFFSET=offset,
        LARGEST=_LARGEST[str(dtype)],
        ROUND=str(dtype) == "int8",
        **blocks.constants,
    )


RMS_NORM_QUANTIZED = Operation(
    "rms_norm_quantized", ("y", "scale"), _shapes, _launch, reference=_by_formula
)


def rms_norm_quantized(
    x: Any,
    weight: Any = None,
    *,
    dtype: Any = "float8_e4m3fn",
    eps: float = 1e-6,
    offset: float = 0.0,
    out: Any = None,
) -> tuple[Any, Any]:
    """Normalize rows as :func:`rms_norm` does, and quantize the result with one scale for each row.

    Args:
        x: of shape (..., columns), of float16, bfloat16 or float32, of any strides.
        weight: of shape (columns,), or None.
        dtype: ``"float8_e4m3fn"`` or ``"int8"``.
        eps: a number that is added to the mean of squares.
        offset: a number that is added to the weight; Gemma uses 1.
        out: a pair of arrays for the results.

    Returns:
        A pair: the quantized elements, and the scale of each row in float32. Each quantized element
        represents the product of the element and its row's scale. Each scale is chosen so that the
        largest magnitude of its row is quantized to the largest number of the 8-bit type. There is
        no gradient.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``dtype`` is none of the listed
            types.
    """
    found: tuple[Any, Any] = RMS_NORM_QUANTIZED(x, weight, dtype, eps, offset, out=out)
    return found
