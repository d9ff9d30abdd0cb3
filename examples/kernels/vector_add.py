"""Vector add: the first kernel anyone writes."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


def add(x: Any, y: Any, out: Any, block: int = 1024) -> Any:
    """``out = x + y`` for contiguous one-dimensional arrays of one length."""
    n = x.shape[0]
    add_kernel[(tw.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
