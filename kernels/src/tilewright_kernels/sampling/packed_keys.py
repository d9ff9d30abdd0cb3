"""Elements and their positions in one integer, whose order is that of a stable sort."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.reductions.numeric_types import is_floating, name_of

#: What elements that are not there are packed as: after all others.
NOTHING = tl.constexpr((1 << 63) - 1)
_TYPES = "float16, bfloat16, float32, and integers of at most 32 bits"


@tw.jit
def packed(x, position, DESCENDING: tl.constexpr):
    """Return 32 bits in the order of x, above 32 bits of the position.

    NaN is above every number, and zeros of either sign are equal. In descending order the upper
    bits are inverted, so that the lower of two equal elements' positions comes first in both.
    """
    if x.dtype.is_floating():
        x = x.to(tl.float32)
        bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
        key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
        key = tl.where(x == x, key, 0x7FFFFFFF).to(tl.int64)
    else:
        key = x.to(tl.int64)
        if x.dtype == tl.uint32:
            key -= 1 << 31
    if DESCENDING:
        key = ~key
    return (key << 32) | position.to(tl.int64)


@tw.jit
def position_of(key):
    """Return the position in a packed element."""
    return (key & 0xFFFFFFFF).to(tl.int32)


@tw.jit
def elements_of(key, x_ptr, is_inside, DESCENDING: tl.constexpr):
    """Return the elements of a row that packed elements are of.

    Keys tell all but zeros, which have one key, and NaN, which have one, too: those are loaded.
    """
    element = x_ptr.dtype.element_ty
    upper = key >> 32
    if DESCENDING:
        upper = ~upper
    if element.is_floating():
        bits = upper.to(tl.int32)
        number = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)
        is_shared = (bits == 0) | (bits == 0x7FFFFFFF)
        loaded = tl.load(x_ptr + position_of(key), mask=is_inside & is_shared, other=0.0)
        return tl.where(is_shared, loaded, number.to(element))
    if element == tl.uint32:
        upper += 1 << 31
    return upper.to(element)


def check_keys(name: str, x: Any) -> None:
    """Check the type of what is sorted.

    Raises:
        TypeError: its elements have more than 32 bits.
        ValueError: there are more elements in a row than 31 bits count.
    """
    dtype = name_of(x.dtype)
    if (
        dtype == "float64"
        or dtype in ("int64", "uint64")
        or not (is_floating(x.dtype) or dtype.startswith(("int", "uint", "bool")))
    ):
        raise TypeError(f"{name}: takes {_TYPES}, not {dtype}; convert the array first")
    if len(x.shape) == 0:
        raise ValueError(f"{name}: takes an array of at least one axis, not a scalar")
    if x.shape[-1] >= 1 << 31:
        raise ValueError(f"{name}: takes rows of less than 2**31 elements, not {x.shape[-1]}")
