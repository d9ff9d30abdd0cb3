"""The types in which reductions and scans are taken, worked out while compiling."""

from __future__ import annotations

from typing import Any

from tilewright.language import core
from tilewright.language.definitions.callable import constexpr_function


@constexpr_function
def sum_dtype(given: Any, dtype: Any) -> Any:
    """The type in which a sum is taken: the one asked for, else at least 32 bits for integers."""
    if dtype is not None:
        return dtype
    if given.is_int_signed():
        return core.int32 if given.int_bitwidth < 32 else given
    if given.is_int_unsigned():
        return core.uint32 if given.int_bitwidth < 32 else given
    return given


@constexpr_function
def accumulator_dtype(dtype: Any) -> Any:
    """Return the accumulator type of a sum of ``dtype``: fp32 for narrower floats.

    Rounding does not add up so.
    """
    return core.float32 if dtype.is_floating() and dtype.primitive_bitwidth < 32 else dtype


@constexpr_function
def prefix_dtype(given: Any, dtype: Any) -> Any:
    """The type in which a running sum is taken: as for a sum, and fp32 for bf16."""
    if dtype is not None:
        return dtype
    return core.float32 if given.is_bf16() else sum_dtype(given, None)


@constexpr_function
def cumprod_dtype(given: Any, dtype: Any) -> Any:
    """Return the type of a cumulative multiplication: the operand's, and fp32 for bf16."""
    if dtype is not None:
        return dtype
    return core.float32 if given.is_bf16() else given


@constexpr_function
def extremum_dtype(given: Any, indices: Any) -> Any:
    """Return the type of a maximum or minimum: fp32 for bf16; without indices at least 32 bits."""
    if given.is_bf16():
        return core.float32
    if indices or given.primitive_bitwidth >= 32:
        return given
    return core.float32 if given.is_floating() else core.int32
