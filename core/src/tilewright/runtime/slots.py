"""A kernel's arguments as 8-byte words: what launchers hand to machine code, little-endian, a scalar or pointer a word and a descriptor 1 + 2 * rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.types import BF16, DescriptorType, FloatType, IntType, PointerType, Type

#: A runtime value to the numbers that go into its slots.
Encoder = Callable[[Any], tuple[Any, ...]]


def slot_codec(type_: Type, address: Callable[[Any], int]) -> tuple[str, Encoder]:
    """The ``struct`` codes of an argument's slots, and what makes its numbers.

    Args:
        type_: the IR type of the parameter.
        address: the address of an array, or of a number that is one, as the backend's device has it; it may refuse.

    Raises:
        LaunchError: no argument has this type.
    """
    if isinstance(type_, PointerType):
        return "Q", lambda value: (address(value),)
    if isinstance(type_, IntType):
        if type_.bits == 1:
            return "q", lambda value: (bool(value),)
        return ("Q" if type_.bits == 64 and not type_.signed else "q"), lambda value: (int(value),)
    if isinstance(type_, FloatType):
        code = {"f64": "d", "f32": "f4x", "f16": "e6x"}.get(str(type_))
        if code is not None:
            return code, lambda value: (float(value),)
        return ("H6x" if type_ is BF16 else "B7x"), _raw_float(type_)
    if isinstance(type_, DescriptorType):
        return f"Q{2 * type_.rank}q", lambda value: (address(value.base), *map(int, value.shape), *map(int, value.strides))
    raise LaunchError(f"a kernel cannot take an argument of type {type_}")


def _raw_float(format_: FloatType) -> Encoder:
    """Numbers of formats that ``struct`` does not know: raw bits."""
    from tilewright.reference.numerics import encode

    return lambda value: (int(encode(float(value), format_)),)
