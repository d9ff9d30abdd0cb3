"""Quantization of matrices to 8 bits with a scale for each block."""

from __future__ import annotations

from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.scaled_kernels import quantize_kernel
from tilewright_kernels.operations import Array, Launcher, Operation, strides

#: Type -> its largest magnitude.
MAXIMA = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
#: Elements of the tile of a program that has several blocks, and of those a warp's.
_TILE, _OF_WARP = 4096, 1024


def quantize_reference(x: Any, block: tuple[int, int], dtype: str = "int8") -> tuple[Any, Any]:
    """Return ``x / scales`` before it is rounded, and the scales of blocks of a matrix."""
    xp = array_api_compat.array_namespace(x)
    rows, columns = block
    scales = xp.stack(
        [
            xp.stack(
                [
                    xp.max(xp.abs(x[i : i + rows, j : j + columns])) / MAXIMA[dtype]
                    for j in range(0, x.shape[1], columns)
                ]
            )
            for i in range(0, x.shape[0], rows)
        ]
    )
    scales = xp.where(scales > 0, scales, xp.ones_like(scales))
    spread = xp.repeat(xp.repeat(scales, rows, axis=0), columns, axis=1)
    return x / spread[: x.shape[0], : x.shape[1]], scales


def _by_formula(x: Any, rows: int, columns: int, dtype: str) -> tuple[Any, Any]:
    q, scales = quantize_reference(x, (rows, columns), dtype)
    if dtype == "int8":
        xp = array_api_compat.array_namespace(q)
        q = xp.sign(q) * xp.floor(xp.abs(q) + 0.5)
    return q, scales.T


def _shapes(make: Any, x: Any, rows: int, columns: int, dtype: str) -> tuple[Any, ...]:
    m, n = x.shape
    return make((m, n), dtype), make((tw.cdiv(n, columns), tw.cdiv(m, rows)), "float32")


def _launch(
    run: Launcher, q: Any, scale: Any, x: Array, rows: int, columns: int, dtype: str
) -> None:
    m, n = x.shape
    if m == 0 or n == 0:
        return
    block_m, block_n = tw.next_power_of_2(rows), tw.next_power_of_2(columns)
    groups = min(max(_TILE // (block_m * block_n), 1), tw.next_power_of_2(tw.cdiv(m, rows)))
    run(
        quantize_kernel,
        (tw.cdiv(tw.cdiv(m, rows), groups), tw.cdiv(n, columns)),
        x,
        q,
        scale,
        m,
        n,
        *strides(x),
        *strides(q),
        *strides(scale)[::-1],
        MAXIMA[dtype],
        ROWS=rows,
        COLUMNS=columns,
        GROUPS=groups,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        IS_INTEGER=dtype == "int8",
        num_warps=min(max(groups * block_m * block_n // _OF_WARP, 1), 8),
    )


QUANTIZE = Operation("quantize", ("q", "scale"), _shapes, _launch, reference=_by_formula)


def quantize(
    x: Any, block: tuple[int, int] | None = None, *, dtype: str = "float8_e4m3fn", out: Any = None
) -> tuple[Any, Any]:
    """Quantize a matrix to 8 bits, with a scale for each block.

    Args:
        x: of shape (M, N), of float16, bfloat16 or float32, of any strides.
        block: the numbers of rows and columns of a block, such as (1, 128) or (128, 128). None: a
            block is a row.
        dtype: ``"float8_e4m3fn"``, ``"float8_e5m2"`` or ``"int8"``.
        out: the arrays for the results.

    Returns:
        A pair: the quantized matrix, and the scales in float32, of shape (ceil(M / r), ceil(N / c))
        for blocks of r rows and c columns. Each quantized element represents the product of the
        element and the scale of its block. Each scale is chosen so that the largest magnitude of
        its block is quantized to the largest number of the 8-bit type. The scales are stored column
        by column: the stride of their first axis is 1.

    Raises:
        ValueError: ``x`` is not a matrix, or ``dtype`` is none of the listed types.
    """
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix, and has the shape {tuple(x.shape)}")
    if dtype not in MAXIMA:
        raise ValueError(f"dtype must be one of {', '.join(MAXIMA)}, not {dtype!r}")
    rows, columns = block or (1, max(x.shape[1], 1))
    if out is not None:
        QUANTIZE(x, rows, columns, dtype, out=(out[0], out[1].T))
        return out[0], out[1]
    # matmuls read the scales of consecutive rows at once
    q, scale = QUANTIZE(x, rows, columns, dtype)
    return q, scale.T
