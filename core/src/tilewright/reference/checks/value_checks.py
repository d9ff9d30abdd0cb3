"""Checks of values: overflow, undefined arithmetic, assumptions that do not hold.

A check is ``(operation, *operands)`` and returns the lanes that are bad, or None where there can be
none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.ops.arithmetic import Binary, Cast
from tilewright.ir.ops.debug import Assume, Hint
from tilewright.ir.ops.shape import Gather
from tilewright.ir.types import FloatType, IntType, PointerType, TileType, byte_size, element_type
from tilewright.reference.numerics import Array, decode, numpy_dtype
from tilewright.reference.operations.arithmetic import upper_half

Check = Callable[..., Any]


def _element(operation: Binary) -> IntType | None:
    element = element_type(operation.a.type)
    return element if isinstance(element, IntType) else None


def _overflow(
    exact: Callable[[Array, Array], Array], in_64_bits: Callable[[Array, Array], Array]
) -> Check:
    """Make the check of signed overflow: by the exact result in 64 bits where it fits.

    For 64-bit numbers it is a formula on the wrapped ones.
    """

    def check(operation: Binary, a: Array, b: Array) -> Array | None:
        element = _element(operation)
        if element is None or not element.signed:
            return None
        if element.bits == 64:
            return in_64_bits(a, b)
        wide = exact(a.astype(np.int64), b.astype(np.int64))
        return (wide < element.minimum) | (wide > element.maximum)

    return check


def _add_overflows(a: Array, b: Array) -> Array:
    total = a + b
    return ((a ^ total) & (b ^ total)) < 0


def _subtract_overflows(a: Array, b: Array) -> Array:
    return ((a ^ b) & (a ^ (a - b))) < 0


def _multiply_overflows(a: Array, b: Array) -> Array:
    return upper_half(a, b, IntType(64)) != (a * b) >> np.int64(63)


def _division_by_zero(operation: Binary, a: Array, b: Array) -> Array | None:
    return (
        None
        if _element(operation) is None
        else np.broadcast_to(b == 0, np.broadcast_shapes(a.shape, b.shape))
    )


def _division_overflows(operation: Binary, a: Array, b: Array) -> Array | None:
    element = _element(operation)
    return None if element is None or not element.signed else (a == element.minimum) & (b == -1)


def _shift_out_of_range(operation: Binary, a: Array, b: Array) -> Array | None:
    element = _element(operation)
    assert element is not None
    bad = b if element.bits == 1 else (b >= element.bits) | (b < 0 if element.signed else np.False_)
    return np.broadcast_to(bad, np.broadcast_shapes(a.shape, b.shape))


def _cast_out_of_range(operation: Cast, x: Array) -> Array | None:
    source, result = element_type(operation.x.type), element_type(operation.result.type)
    if not isinstance(source, FloatType) or not isinstance(result, IntType) or result.bits == 1:
        return None
    whole = np.trunc(np.asarray(decode(x, source)).astype(np.float64))
    # The maximum integer of 64 bits is no float64; one more than it is.
    return ~((whole >= float(result.minimum)) & (whole < float(result.maximum + 1)))


def index_out_of_range(operation: Gather, x: Array, index: Array) -> Array:
    """The lanes of a ``gather`` whose index is outside its source."""
    source = operation.x.type
    assert isinstance(source, TileType)
    return (index >= source.shape[operation.axis]) | (index < 0)


def _assume_fails(operation: Assume, condition: Array) -> Array:
    return ~condition


def _hint_fails(operation: Hint, x: Array) -> Array | None:
    """Check a hint: along each axis, runs of the hinted lengths start at multiples.

    The first value of each run of consecutive ones is a multiple of the hinted number.

    Pointers run by elements and are multiples in bytes.
    """
    type_ = operation.x.type
    element = element_type(type_)
    if isinstance(element, FloatType):
        return None
    step = byte_size(element.pointee) if isinstance(element, PointerType) else 1
    numbers = x.view(np.uint64) if isinstance(element, PointerType) else x
    rank = type_.rank if isinstance(type_, TileType) else 0
    bad = np.zeros(x.shape, dtype=np.bool_)
    if not rank:
        for value in operation.divisibility:
            bad = bad | (numbers % numpy_unsigned(numbers, value) != 0)
        return bad
    for axis in range(rank):
        along, along_bad = (
            np.moveaxis(numbers, axis - rank, -1),
            np.zeros_like(np.moveaxis(bad, axis - rank, -1)),
        )
        differences = along[..., 1:] - along[..., :-1]
        consecutive, equal = differences == numpy_unsigned(numbers, step), differences == 0
        for lengths, follows in ((operation.contiguity, consecutive), (operation.constancy, equal)):
            for length in lengths[axis : axis + 1]:
                inside_run = np.arange(1, along.shape[-1]) % length != 0
                along_bad[..., 1:] |= inside_run & ~follows
        for divisor in operation.divisibility[axis : axis + 1]:
            indivisible = along % numpy_unsigned(numbers, divisor) != 0
            along_bad[..., 0] |= indivisible[..., 0]
            along_bad[..., 1:] |= ~consecutive & indivisible[..., 1:]
        bad = bad | np.moveaxis(along_bad, -1, axis - rank)
    return bad


def numpy_unsigned(like: Array, value: int) -> Any:
    """``value`` in the dtype of an array, or in 64 bits where that is too narrow for it."""
    return (
        like.dtype.type(value)
        if like.dtype.kind != "b" and value <= np.iinfo(like.dtype).max
        else np.int64(value)
    )


#: operation -> (option that turns the check on, kind of finding, what is wrong, the check)
CHECKS: dict[str, tuple[tuple[str, str, str, Check], ...]] = {
    "add": (
        (
            "overflow",
            "integer-overflow",
            "signed addition wraps around",
            _overflow(np.add, _add_overflows),
        ),
    ),
    "sub": (
        (
            "overflow",
            "integer-overflow",
            "signed subtraction wraps around",
            _overflow(np.subtract, _subtract_overflows),
        ),
    ),
    "mul": (
        (
            "overflow",
            "integer-overflow",
            "signed multiplication wraps around",
            _overflow(np.multiply, _multiply_overflows),
        ),
    ),
    "div": (
        ("arithmetic", "division-by-zero", "integer division by zero", _division_by_zero),
        (
            "overflow",
            "integer-overflow",
            "the most negative integer divided by -1 wraps around",
            _division_overflows,
        ),
    ),
    "rem": (
        (
            "arithmetic",
            "division-by-zero",
            "remainder of an integer division by zero",
            _division_by_zero,
        ),
    ),
    "shl": (
        (
            "arithmetic",
            "shift-out-of-range",
            "shift by a negative amount or by at least the operand's width",
            _shift_out_of_range,
        ),
    ),
    "shr": (
        (
            "arithmetic",
            "shift-out-of-range",
            "shift by a negative amount or by at least the operand's width",
            _shift_out_of_range,
        ),
    ),
    "cast": (
        (
            "arithmetic",
            "cast-out-of-range",
            "the float is out of the integer's range",
            _cast_out_of_range,
        ),
    ),
    "gather": (
        (
            "arithmetic",
            "index-out-of-range",
            "the index of a gather is out of range",
            index_out_of_range,
        ),
    ),
    "assume": (("promises", "broken-promise", "assumed to hold, but false", _assume_fails),),
    "hint": (
        ("promises", "broken-promise", "the value is not what the hint promises", _hint_fails),
    ),
}

__all__ = ["CHECKS", "index_out_of_range", "numpy_dtype"]
