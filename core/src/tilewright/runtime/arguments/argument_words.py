"""Packing of kernel arguments into the 8-byte words that machine code takes.

They are little-endian; a scalar or pointer has one word and a descriptor 1 + 2 * rank.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    Type,
)
from tilewright.plugins.manifest import Launcher, Parameter
from tilewright.runtime.arguments.array_protocols import ArgumentError, address_of
from tilewright.runtime.arguments.writability import write_guard

#: Converts a runtime value to the numbers of its slots.
Encoder = Callable[[Any], tuple[Any, ...]]

#: Exceptions that ``struct.pack`` and encoders raise for values that do not fit.
MISFITS = (struct.error, TypeError, ValueError, OverflowError, AttributeError, LaunchError)


def slot_codec(type_: Type, address: Callable[[Any], int]) -> tuple[str, Encoder]:
    """Return the ``struct`` codes of an argument's slots, and the encoder of its values.

    Args:
        type_: the IR type of the parameter.
        address: the address of an array, or of a number that is one, as the backend's device has
            it; it may refuse.

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
        if type_ is F64:
            return "d", lambda value: (float(value),)
        if type_ is F32 or type_ is F16:
            letter = "f" if type_ is F32 else "e"
            return f"{letter}{8 - type_.bits // 8}x", _narrow_float(letter)
        return ("H6x" if type_ is BF16 else "B7x"), _raw_float(type_)
    if isinstance(type_, DescriptorType):
        return f"Q{2 * type_.rank}q", lambda value: (
            address(value.base),
            *map(int, value.shape),
            *map(int, value.strides),
        )
    raise LaunchError(f"a kernel cannot take an argument of type {type_}")


def misfit(
    kernel: str,
    parameters: Sequence[Parameter],
    values: Sequence[Any],
    address: Callable[[Any], int],
) -> LaunchError | None:
    """Return the error for values that cannot be packed, naming the argument; None if all can.

    Args:
        address: as for :func:`slot_codec`.
    """
    if len(values) != len(parameters):
        listed = ", ".join(parameter.name for parameter in parameters)
        return LaunchError(
            f"{kernel} takes {len(parameters)} runtime arguments ({listed}), not {len(values)}"
        )
    for parameter, value in zip(parameters, values, strict=True):
        code, encode = slot_codec(parse_type(parameter.type), address)
        try:
            struct.pack("<" + code, *encode(value))
        except LaunchError as reason:
            kind = ArgumentError if isinstance(reason, ArgumentError) else LaunchError
            return kind(f"{kernel}: argument {parameter.name!r}: {reason}")
        except MISFITS as reason:
            shown = (
                repr(value)
                if isinstance(value, int | float | bool)
                else f"a {type(value).__name__}"
            )
            return LaunchError(
                f"{kernel}: argument {parameter.name!r} must fit {parameter.type}, and {shown} "
                f"does not: {reason}"
            )
    return None


def _narrow_float(letter: str) -> Encoder:
    """Make the encoder of floats that ``struct`` rounds to its format ``letter``.

    Numbers beyond its range, which ``struct`` refuses, become infinite, as in every conversion.
    """
    fits = struct.Struct("<" + letter).pack  # the native format would not refuse

    def encode(value: Any) -> tuple[float]:
        number = float(value)
        try:
            fits(number)
        except OverflowError:
            return (math.copysign(math.inf, number),)
        return (number,)

    return encode


def _raw_float(format_: FloatType) -> Encoder:
    """Make the encoder of float formats that ``struct`` lacks, as raw bits."""
    from tilewright.reference.numerics import encode

    return lambda value: (int(encode(float(value), format_)),)


def given_address(value: Any) -> int:
    """Return the address of an array; a number is an address already."""
    return value if type(value) is int else address_of(value)


class ArgumentWords:
    """Packer of a kernel's runtime arguments.

    Args:
        address: as for :func:`slot_codec`.

    Raises:
        LaunchError: no argument has the type of a parameter.
    """

    def __init__(
        self,
        kernel: str,
        parameters: Sequence[Parameter],
        address: Callable[[Any], int] = given_address,
    ) -> None:
        self._kernel, self._parameters, self._address = kernel, tuple(parameters), address
        codecs = [slot_codec(parse_type(parameter.type), address) for parameter in parameters]
        self.encoders = [encode for _, encode in codecs]
        self._struct = struct.Struct("<" + "".join(code for code, _ in codecs))
        #: size in bytes of all words
        self.size = self._struct.size

    def pack(self, values: Sequence[Any]) -> bytes:
        """Pack the values of a launch into words.

        Raises:
            LaunchError: names the argument that does not fit.
        """
        try:
            return self._struct.pack(
                *(
                    number
                    for encode, value in zip(self.encoders, values, strict=True)
                    for number in encode(value)
                )
            )
        except MISFITS as error:
            name = self._kernel
            raise misfit(name, self._parameters, values, self._address) or LaunchError(
                f"{name}: the arguments do not fit: {error}"
            ) from error


#: Starts a kernel: ``start(grid, words, stream)``, with a grid that is not empty.
Start = Callable[[tuple[int, int, int], bytes, Any], None]


def word_launcher(
    kernel: str,
    parameters: Sequence[Parameter],
    start: Start,
    *,
    address: Callable[[Any], int] = given_address,
) -> Launcher:
    """Make a launcher, for the hook ``tilewright_launcher``, that passes arguments as words.

    It refuses values that do not fit and read-only arrays that the kernel may store to, and starts
    nothing for an empty grid.

    Args:
        address: as for :func:`slot_codec`.
    """
    words, guard = ArgumentWords(kernel, parameters, address), write_guard(kernel, parameters)

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        packed = words.pack(values)
        guard(values)
        if 0 not in grid:
            start(grid, packed, stream)

    return launch
