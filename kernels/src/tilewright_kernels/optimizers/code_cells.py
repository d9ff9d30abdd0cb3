"""Codes of 8 bits on a CPU: a table of cells, which are the upper 16 bits of a float32.

A cell has at most one bound between the intervals of two codes. Its entry has the code of its
smallest number and the lower bits of the bound, so that one look-up finds the code of any number.
On GPUs, where the look-ups of a warp are in several cache lines, the codes are computed
(:func:`.adamw_8bit.code_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl

#: Lower bits of the bound of a cell that has none: above those of every number.
_NO_BOUND = 1 << 16


def ascending_bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of float32 numbers as integers in the order of the numbers; -0 is below 0."""
    bits = x.view(np.int32)
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def cell_table(bounds: np.ndarray[Any, Any], signed: bool) -> np.ndarray[Any, Any]:
    """Return the entries of all cells, those of negative numbers before those of others.

    Args:
        bounds: the bounds of the intervals, ascending, of float32. The code of a number is the
            number of bounds that are not above it.
        signed: whether numbers may be negative.
    """
    places = ascending_bits(bounds)
    # -32768 is the cell of -0 among the upper bits, and -1 among those in the order of numbers
    upper = np.arange(-0x8000 if signed else 0, 0x8000)
    smallest = np.where(upper < 0, upper ^ 0x7FFF, upper) << 16
    code = np.searchsorted(places, smallest, side="right")
    following = np.append(places, np.iinfo(np.int32).max)[code]
    lower = np.where(following >> 16 == smallest >> 16, following & 0xFFFF, _NO_BOUND)
    return (code | lower << 8).astype(np.int32)


@tw.jit
def code_by_cells(x, cells_ptr, SIGNED: tl.constexpr):
    """Return the code of the number that is nearest to x, between -1 and 1."""
    bits = x.to(tl.int32, bitcast=True)
    cell = bits >> 16
    if SIGNED:
        cell += 0x8000
        bits ^= bits >> 31
    else:  # a NaN may have a sign
        cell &= 0x7FFF
    entry = tl.load(cells_ptr + cell)
    return (entry & 0xFF) + ((bits & 0xFFFF) >= (entry >> 8)).to(tl.int32)
