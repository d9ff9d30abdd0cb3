"""Where a program of a reduction finds its elements, in the kernel language."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def kept_elements(kept_1, BLOCK_K: tl.constexpr):
    """Return the program's place along the outer kept axis, and its first along the inner one."""
    n_blocks = tl.cdiv(kept_1, BLOCK_K)
    program = tl.program_id(0)
    return (program // n_blocks).to(tl.int64), (program % n_blocks) * BLOCK_K


@tw.jit
def lanes(BLOCK: tl.constexpr, IS_WIDE: tl.constexpr):
    """Return positions within a block, of 64 bits where strides need them."""
    positions = tl.arange(0, BLOCK)
    if IS_WIDE:
        positions = positions.to(tl.int64)
    return positions


@tw.jit
def split_bounds(reduced_0, reduced_1, chunk, SPLITS_OUTER: tl.constexpr):
    """Return the bounds of the program's share of both reduced axes."""
    begin = tl.program_id(1) * chunk
    begin_0, end_0, begin_1, end_1 = 0, 1, 0, reduced_1
    if SPLITS_OUTER:
        begin_0 = begin
        end_0 = tl.minimum(begin + chunk, reduced_0)
    else:
        begin_1 = begin
        end_1 = tl.minimum(begin + chunk, reduced_1)
    return begin_0, end_0, begin_1, end_1
