"""Softmax over the rows of a matrix, in one pass over memory: a program holds a whole row."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n_columns
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=-float("inf"))
    shifted = x - tl.max(x, axis=0)
    numerator = tl.exp(shifted)
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_stride + columns, result, mask=inside)


def softmax(x: Any, out: Any) -> Any:
    """``out[i] = softmax(x[i])`` for C-contiguous matrices of one shape."""
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, out, columns, columns, columns, BLOCK=tw.next_power_of_2(columns))
    return out
