"""Layer normalization forward: rows of any length, in blocks.

The statistics are kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def layer_norm_kernel(
    x_ptr, out_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride

    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n

    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        centred = tl.where(columns < n, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        weight = tl.load(weight_ptr + columns, mask=inside)
        bias = tl.load(bias_ptr + columns, mask=inside)
        x = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + columns, (x - mean) * rstd * weight + bias, mask=inside)


def layer_norm(
    x: Any,
    weight: Any,
    bias: Any,
    out: Any,
    mean: Any,
    rstd: Any,
    eps: float = 1e-5,
    block: int = 1024,
) -> Any:
    """Normalize the rows of the C-contiguous matrix ``x`` into ``out``.

    ``mean`` and ``rstd`` receive one f32 per row.
    """
    rows, columns = x.shape
    layer_norm_kernel[(rows,)](x, out, weight, bias, mean, rstd, columns, columns, eps, BLOCK=block)
    return out
