"""Ready-made epilogues: scales of rows, RMS norm and rotation of groups of columns."""

from __future__ import annotations

import functools

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.epilogue import Epilogue


@tw.jit
def row_scale(x, rows, columns, M, N, scale_ptr):
    """Multiply each row of the result by its scale.

    Pass the scales, of shape (M,), to the matmul as ``arrays=(scales,)``.
    """
    scale = tl.load(scale_ptr + rows, mask=rows < M, other=0.0)
    return x * scale.to(x.dtype)[:, None]


@functools.cache
def rms_norm_epilogue(columns: int, eps: float = 1e-6) -> Epilogue:
    """Return the epilogue that normalizes each group of columns of a row, such as a head.

    The matmul's argument ``arrays`` must contain one array, the weight of the norm, of shape
    (columns,). The epilogue divides each group by its root mean square and multiplies it by the
    weight. The epilogue computes in the type of the matmul's accumulator.

    Args:
        columns: the number of columns of a group: a power of two up to 256 that divides N.
        eps: a number that is added to the mean of squares.

    Raises:
        ValueError: a group has more columns than a tile can have.
    """
    group, small = tl.constexpr(columns), tl.constexpr(eps)

    @tw.jit
    def rms_norm(x, rows, columns, M, N, weight_ptr):
        groups = x.reshape(x.shape[0], x.shape[1] // group, group)
        rstd = tl.rsqrt(tl.sum(groups * groups, axis=2) / group + small)
        weight = tl.load(weight_ptr + tl.arange(0, group)).to(x.dtype)
        return (groups * rstd[:, :, None] * weight[None, None, :]).reshape(x.shape[0], x.shape[1])

    return Epilogue(rms_norm, columns)


@functools.cache
def rotary_epilogue(width: int, columns: int, *, interleaved: bool = False) -> Epilogue:
    """Return the epilogue that applies rotary embedding to the first ``columns`` columns.

    The arrays of the epilogue are cosines and sines of shape (positions, width / 2). If the
    position of a row is not its index, pass the positions of all rows as a third array, of int32
    and shape (M,). The columns after the first ``columns`` do not change. For example, if the
    matmul is a projection to queries, keys and values, rotate the queries and keys, but not the
    values.

    Args:
        width: the number of columns of a head: a power of two up to 256.
        columns: the number of columns that are rotated: a multiple of ``width``.
        interleaved: whether a pair consists of two neighbours (GPT-J), not of one element from each
            half of a head (GPT-NeoX, Llama).

    Raises:
        ValueError: a head has more columns than a tile can have.
    """
    half, end = tl.constexpr(width // 2), tl.constexpr(columns)
    head, is_interleaved = tl.constexpr(width), tl.constexpr(interleaved)

    @tw.jit
    def rotary(x, rows, columns, M, N, cos_ptr, sin_ptr, positions_ptr=None):
        inside = rows < M
        positions = rows
        if positions_ptr is not None:
            positions = tl.load(positions_ptr + rows, mask=inside, other=0)
        places = positions[:, None] * half + tl.arange(0, half)[None, :]
        cos = tl.load(cos_ptr + places, mask=inside[:, None], other=1.0).to(x.dtype)[:, None, :]
        sin = tl.load(sin_ptr + places, mask=inside[:, None], other=0.0).to(x.dtype)[:, None, :]
        heads: tl.constexpr = x.shape[1] // head
        if is_interleaved:
            first, second = x.reshape(x.shape[0], heads, half, 2).split()
        else:
            first, second = x.reshape(x.shape[0], heads, 2, half).permute(0, 1, 3, 2).split()
        pairs = tl.join(first * cos - second * sin, second * cos + first * sin)
        if not is_interleaved:
            pairs = pairs.permute(0, 1, 3, 2)
        return tl.where((columns < end)[None, :], pairs.reshape(x.shape[0], x.shape[1]), x)

    return Epilogue(rotary, width)
