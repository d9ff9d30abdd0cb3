"""Candidates for the first elements of rows on a CPU, by a bound from the firsts of strips."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.sampling.packed_keys import NOTHING, packed
from tilewright_kernels.sampling.selection import store_first

#: Candidates of a row and its strips, by the elements that are kept.
_CANDIDATES, _STRIPS = 4, 2
#: Columns of the rows that have strips, and of the part of a row that a program takes.
_NARROWEST, _WIDEST = 512, 65536


@tw.jit
def strip_candidates_kernel(
    x_ptr,
    packed_ptr,
    n_columns,
    n_parts,
    width,
    x_stride,
    DESCENDING: tl.constexpr,
    KEPT: tl.constexpr,
    STRIPS: tl.constexpr,
    CANDIDATES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store packed elements among which are the first ``KEPT`` of a part of a row.

    ``KEPT`` strips have an element that is not above the ``KEPT``th of the strips' firsts, so
    that the row's first ``KEPT`` elements are not above it either. Where many are equal or lie in
    few strips, more elements than ``CANDIDATES`` may pass: then the first ``KEPT`` are stored.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // n_parts
    first = (tl.program_id(0) % n_parts) * width
    offsets = tl.arange(0, BLOCK)
    column = first + offsets
    is_inside = offsets < tl.minimum(width, n_columns - first)
    x = tl.load(x_ptr + row * x_stride + column, mask=is_inside, other=0)
    key = tl.where(is_inside, packed(x, column, DESCENDING, False), NOTHING)
    upper = (key >> 32).to(tl.int32)
    firsts = tl.min(tl.reshape(upper, [BLOCK // STRIPS, STRIPS]), axis=0)
    bound = tl.max(tl.topk(firsts, KEPT, descending=False), axis=0)
    is_kept = upper <= bound
    count = tl.sum(is_kept.to(tl.int32), axis=0)
    packed_ptr += program * CANDIDATES
    if count <= CANDIDATES:
        place = tl.cumsum(is_kept.to(tl.int32), axis=0) - 1
        tl.store(packed_ptr + place, key, mask=is_kept)
    else:
        store_first(key, packed_ptr, KEPT)
        count = KEPT
    rest = tl.arange(0, CANDIDATES)
    tl.store(packed_ptr + rest, tl.cast(NOTHING, tl.int64), mask=rest >= count)


def takes_strips(n_columns: int, kept: int) -> bool:
    """Return whether strips of a row bound its first ``kept`` elements well."""
    return n_columns >= _NARROWEST and min(n_columns, _WIDEST) >= 4 * _CANDIDATES * kept


def strip_candidates(
    run: Launcher, x: Any, n_rows: int, n_columns: int, kept: int, descending: bool
) -> tuple[Any, int]:
    """Return packed candidates that have the first elements of each row, and how many they are."""
    n_parts = tw.cdiv(n_columns, _WIDEST)
    width = tw.cdiv(n_columns, n_parts)
    candidates = _CANDIDATES * kept
    found = run.empty((n_rows, n_parts * candidates), "int64")
    run(
        strip_candidates_kernel,
        (n_rows * n_parts,),
        x,
        found,
        n_columns,
        n_parts,
        width,
        strides(x)[0],
        DESCENDING=descending,
        KEPT=kept,
        STRIPS=_STRIPS * kept,
        CANDIDATES=candidates,
        BLOCK=tw.next_power_of_2(width),
    )
    return found, n_parts * candidates
