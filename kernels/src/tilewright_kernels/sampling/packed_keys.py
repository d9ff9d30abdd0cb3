"""Elements and their positions in one integer, whose order is that of a stable sort.

Elements of at most 16 bits in rows of at most 65,536 take 32 bits, others 64.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.reductions.numeric_types import is_floating, name_of

#: What elements that are not there are packed as: not before any other.
NOTHING = tl.constexpr((1 << 63) - 1)
NOTHING_NARROW = tl.constexpr((1 << 31) - 1)
_TYPES = "float16, bfloat16, float32, and integers of at most 32 bits"
_NARROW_ROW = 1 << 16


@tw.jit
def packed(x, position, DESCENDING: tl.constexpr, IS_NARROW: tl.constexpr = False):
    """Return bits in the order of x, above as many bits of the position.

    NaN is above every number, and zeros of either sign are equal. In descending order the upper
    bits are inverted, so that the lower of two equal elements' positions comes first in both.
    """
    FLOAT: tl.constexpr = x.dtype if IS_NARROW else tl.float32
    INTEGER: tl.constexpr = tl.int16 if IS_NARROW else tl.int32
    PACKED: tl.constexpr = tl.int32 if IS_NARROW else tl.int64
    HIGHEST: tl.constexpr = 0x7FFF if IS_NARROW else 0x7FFFFFFF
    if x.dtype.is_floating():
        x = x.to(FLOAT)
        bits = tl.where(x == 0, 0.0, x).to(FLOAT).to(INTEGER, bitcast=True).to(tl.int32)
        key = tl.where(bits < 0, bits ^ HIGHEST, bits)
        key = tl.where(x == x, key, HIGHEST).to(PACKED)
    else:
        key = x.to(PACKED)
        if x.dtype == tl.uint32 or (IS_NARROW and x.dtype == tl.uint16):
            key -= HIGHEST + 1
    if DESCENDING:
        key = ~key
    return (key << (16 if IS_NARROW else 32)) | position.to(PACKED)


@tw.jit
def nothing(IS_NARROW: tl.constexpr):
    """Return what elements that are not there are packed as."""
    return tl.cast(NOTHING_NARROW, tl.int32) if IS_NARROW else tl.cast(NOTHING, tl.int64)


@tw.jit
def position_of(key):
    """Return the position in a packed element."""
    if key.dtype == tl.int32:
        return key & 0xFFFF
    return (key & 0xFFFFFFFF).to(tl.int32)


@tw.jit
def elements_of(key, x_ptr, is_inside, DESCENDING: tl.constexpr):
    """Return the elements of a row that packed elements are of.

    Keys tell all but zeros, which have one key, and NaN, which have one, too: those are loaded.
    """
    IS_NARROW: tl.constexpr = key.dtype == tl.int32
    FLOAT: tl.constexpr = x_ptr.dtype.element_ty if IS_NARROW else tl.float32
    INTEGER: tl.constexpr = tl.int16 if IS_NARROW else tl.int32
    HIGHEST: tl.constexpr = 0x7FFF if IS_NARROW else 0x7FFFFFFF
    element = x_ptr.dtype.element_ty
    upper = key >> (16 if IS_NARROW else 32)
    if DESCENDING:
        upper = ~upper
    if element.is_floating():
        bits = upper.to(tl.int32)
        number = tl.where(bits < 0, bits ^ HIGHEST, bits).to(INTEGER).to(FLOAT, bitcast=True)
        is_shared = (bits == 0) | (bits == HIGHEST)
        loaded = tl.load(x_ptr + position_of(key), mask=is_inside & is_shared, other=0.0)
        return tl.where(is_shared, loaded, number.to(element))
    if element == tl.uint32 or (IS_NARROW and element == tl.uint16):
        upper += HIGHEST + 1
    return upper.to(element)


def is_narrow(x: Any) -> bool:
    """Return whether elements of an array and their positions in rows fit into 32 bits."""
    name = name_of(x.dtype)
    return x.shape[-1] <= _NARROW_ROW and (name == "bool" or name.endswith(("16", "int8")))


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
