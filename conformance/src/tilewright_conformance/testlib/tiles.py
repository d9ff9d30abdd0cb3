"""Tiles of any shape in dense arrays, for kernels of the language."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def positions(SHAPE: tl.constexpr):
    """Row-major positions of a tile's elements, of one to four axes."""
    if len(SHAPE) == 1:
        found = tl.arange(0, SHAPE[0])
    elif len(SHAPE) == 2:
        found = tl.arange(0, SHAPE[0])[:, None] * SHAPE[1] + tl.arange(0, SHAPE[1])[None, :]
    elif len(SHAPE) == 3:
        rows = (
            tl.arange(0, SHAPE[0])[:, None, None] * SHAPE[1] + tl.arange(0, SHAPE[1])[None, :, None]
        )
        found = rows * SHAPE[2] + tl.arange(0, SHAPE[2])[None, None, :]
    else:
        tl.static_assert(len(SHAPE) == 4)
        planes = (
            tl.arange(0, SHAPE[0])[:, None, None, None] * SHAPE[1]
            + tl.arange(0, SHAPE[1])[None, :, None, None]
        )
        rows = planes * SHAPE[2] + tl.arange(0, SHAPE[2])[None, None, :, None]
        found = rows * SHAPE[3] + tl.arange(0, SHAPE[3])[None, None, None, :]
    return found
