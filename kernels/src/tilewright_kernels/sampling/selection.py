"""The first elements of rows on a CPU, in order of positions, by a bisection for the last one."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.sampling.packed_keys import NOTHING, packed

#: Columns of the rows that programs select from: fewer are sorted in less time, and keys of more do
#: not stay in the second-level cache for the passes of a bisection.
_NARROWEST, _WIDEST = 1024, 65536


@tw.jit
def store_first(key, packed_ptr, KEPT: tl.constexpr):
    """Store the first ``KEPT`` of packed elements, in order of positions.

    The last of them has the highest key that fewer than ``KEPT`` elements are before, found bit by
    bit. Of the elements with this key those with the lowest positions are stored.
    """
    upper = (key >> 32).to(tl.int32)
    last = tl.cast(-(1 << 31), tl.int64)
    for step in range(32):
        raised = last + (tl.cast(1, tl.int64) << (31 - step))
        n_before = tl.sum((upper < raised.to(tl.int32)).to(tl.int32), axis=0)
        last = tl.where(n_before < KEPT, raised, last)
    is_before = upper < last.to(tl.int32)
    is_last = upper == last.to(tl.int32)
    n_last = KEPT - tl.sum(is_before.to(tl.int32), axis=0)
    rank = tl.cumsum(is_last.to(tl.int32), axis=0)
    is_kept = is_before | (is_last & (rank <= n_last))
    place = tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
    tl.store(packed_ptr + place, key, mask=is_kept)


@tw.jit
def select_kernel(
    x_ptr,
    source_ptr,
    packed_ptr,
    n_columns,
    stride,
    DESCENDING: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the first ``KEPT`` elements of a row, of elements or of packed ones."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_inside = column < n_columns
    if source_ptr is not None:
        key = tl.load(source_ptr + row * stride + column, mask=is_inside, other=NOTHING)
    else:
        x = tl.load(x_ptr + row * stride + column, mask=is_inside, other=0)
        key = tl.where(is_inside, packed(x, column, DESCENDING, False), NOTHING)
    store_first(key, packed_ptr + row * KEPT, KEPT)


def takes_selection(n_columns: int, kept: int) -> bool:
    """Return whether to select ``kept`` elements of a row before they are sorted."""
    return _NARROWEST <= n_columns <= _WIDEST and n_columns >= 2 * kept


def selected(
    run: Launcher, x: Any, source: Any, n_rows: int, n_columns: int, kept: int, descending: bool
) -> tuple[Any, int]:
    """Return the packed first elements of each row of ``x``, or of ``source``, and their number."""
    found = run.empty((n_rows, kept), "int64")
    run(
        select_kernel,
        (n_rows,),
        x,
        source,
        found,
        n_columns,
        strides(x)[0] if source is None else n_columns,
        DESCENDING=descending,
        KEPT=kept,
        BLOCK=tw.next_power_of_2(n_columns),
    )
    return found, kept
