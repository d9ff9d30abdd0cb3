"""Candidates for the first elements of rows on a CPU, by a bound from the firsts of strips."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.sampling.packed_keys import NOTHING, packed

#: Candidates of a row and its strips, by the elements that are kept.
_CANDIDATES, _STRIPS = 4, 2
#: Columns of the rows that programs take whole.
_NARROWEST, _WIDEST = 512, 131072


@tw.jit
def strip_candidates_kernel(
    x_ptr,
    packed_ptr,
    n_columns,
    x_stride,
    DESCENDING: tl.constexpr,
    KEPT: tl.constexpr,
    STRIPS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store packed elements among which are the first ``KEPT`` of a row, in order of positions.

    ``KEPT`` strips have an element that is not above the ``KEPT``th of the strips' firsts, so
    that the row's first ``KEPT`` elements are not above it either. Where many are equal or lie in
    few strips, more elements than ``CANDIDATES`` may pass: a bisection over the bits of keys then
    finds the last that is kept.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    is_inside = column < n_columns
    x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
    key = tl.where(is_inside, packed(x, column, DESCENDING, False), NOTHING)
    upper = (key >> 32).to(tl.int32)
    firsts = tl.min(tl.reshape(upper, [BLOCK // STRIPS, STRIPS]), axis=0)
    bound = tl.max(tl.topk(firsts, KEPT, descending=False), axis=0)
    is_kept = upper <= bound
    count = tl.sum(is_kept.to(tl.int32), axis=0)
    packed_ptr += row * CANDIDATES
    if count <= CANDIDATES:
        place = tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
        tl.store(packed_ptr + place, key, mask=is_kept)
    else:
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
        count = KEPT
    rest = tl.arange(0, CANDIDATES)
    tl.store(packed_ptr + rest, tl.cast(NOTHING, tl.int64), mask=rest >= count)


def takes_strips(n_columns: int, kept: int) -> bool:
    """Return whether strips of a row bound its first ``kept`` elements well."""
    return _NARROWEST <= n_columns <= _WIDEST and n_columns >= 4 * _CANDIDATES * kept


def strip_candidates(
    run: Launcher, x: Any, n_rows: int, n_columns: int, kept: int, descending: bool
) -> tuple[Any, int]:
    """Return packed candidates that have the first elements of each row, and how many they are."""
    candidates = _CANDIDATES * kept
    found = run.empty((n_rows, candidates), "int64")
    run(
        strip_candidates_kernel,
        (n_rows,),
        x,
        found,
        n_columns,
        strides(x)[0],
        DESCENDING=descending,
        KEPT=kept,
        STRIPS=_STRIPS * kept,
        CANDIDATES=candidates,
        BLOCK=tw.next_power_of_2(n_columns),
    )
    return found, candidates
