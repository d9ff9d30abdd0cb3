"""Arguments of a kernel in memory: words, opaque structures, and their addresses.

The words are those of :mod:`tilewright.runtime.arguments.argument_words`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import LaunchError, RefusedError
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.errors import DeviceFaultError, DriverError
from tilewright.gpu_host.expressions import ExpressionError, evaluate
from tilewright.gpu_host.table import OpaqueArgument
from tilewright.plugins.manifest import Parameter
from tilewright.runtime.arguments.argument_words import ArgumentWords
from tilewright.runtime.arguments.array_protocols import address_of, array_kind

#: Addresses of opaque structures are multiples of this.
OPAQUE_ALIGNMENT = 128
#: Structures that are kept of each opaque argument.
_KEPT = 256


def device_address(driver: Driver, device: int, value: Any) -> int:
    """The address of an array in a device's memory, or in that of one that it can access; a number is an address already.

    Raises:
        LaunchError: the device cannot access the memory.
        ArgumentError: it is no array.
    """
    if type(value) is int:
        return value
    place, kind = array_kind(value).device, driver.table.kind
    if place is not None and place != (kind, device):
        if place[0] != kind:
            raise LaunchError(
                f"Pointer argument cannot be accessed ({place[0]} tensor?): it is a {type(value).__name__} in memory of device kind {place[0]!r}, and the "
                f"kernel runs on {kind}:{device}; move it there first"
            )
        why = driver.why_no_access(device, place[1])
        if why:
            what = f"it is a {type(value).__name__} on {kind}:{place[1]}, and the kernel was loaded on {kind}:{device}"
            raise LaunchError(f"{what}, which cannot access that memory ({why}); move it there first")
    return address_of(value)


def places_of(opaque: Sequence[OpaqueArgument]) -> list[int]:
    """Where each structure begins in the memory of all, and behind them the bytes of that memory."""
    places = [0]
    for each in opaque:
        places.append(places[-1] + -(-each.size // OPAQUE_ALIGNMENT) * OPAQUE_ALIGNMENT)
    return places


class ArgumentBlock:
    """How a kernel's arguments are laid out."""

    def __init__(self, kernel: str, parameters: Sequence[Parameter], address: Callable[[Any], int], opaque: Sequence[OpaqueArgument] = ()) -> None:
        """Lay the parameters out.

        Args:
            address: the address of an array, or of a number that is one; it may refuse.
            opaque: what is behind the parameters.

        Raises:
            LaunchError: no argument has the type of a parameter.
        """
        self._kernel, self._words = kernel, ArgumentWords(kernel, parameters, address)
        self._slots, count = ctypes.c_char * self._words.size, self._words.size // 8
        self._steps = range(0, 8 * count, 8)
        self._addresses = ctypes.c_void_p * max(1, count + len(opaque))
        self._opaque = [(each, functools.lru_cache(_KEPT)(each.encode)) for each in opaque]
        self._places = places_of(opaque)

    def pack(self, values: tuple[Any, ...]) -> bytes:
        """The words of the arguments.

        Raises:
            LaunchError: names the argument that does not fit.
        """
        return self._words.pack(values)

    def place(self, values: tuple[Any, ...]) -> tuple[int, object]:
        """The address of an array of the addresses of all arguments, and what to keep as long as it is used. Every call has memory of its own.

        Raises:
            LaunchError: names the argument that does not fit.
            RefusedError: a structure cannot be made of the arguments.
        """
        slots = self._slots.from_buffer_copy(self.pack(values))
        base = ctypes.addressof(slots)
        listed: list[int] = [base + step for step in self._steps]
        structures = None
        if self._opaque:
            structures, placed = self._encoded(values)
            listed += placed
        addresses = self._addresses(*listed)
        return ctypes.addressof(addresses), (addresses, slots, structures)

    def _encoded(self, values: tuple[Any, ...]) -> tuple[object, list[int]]:
        """The memory that the opaque structures of a launch are in, and their addresses."""
        structures = ctypes.create_string_buffer(self._places[-1] + OPAQUE_ALIGNMENT - 1)
        first = -(-ctypes.addressof(structures) // OPAQUE_ALIGNMENT) * OPAQUE_ALIGNMENT
        words = [encode(value) for encode, value in zip(self._words.encoders, values, strict=True)]
        for (each, encode), place in zip(self._opaque, self._places, strict=False):
            made = self._made(each, encode, words)
            if len(made) != each.size:
                raise LaunchError(f"{self._kernel}: a structure of {each.size} bytes is passed by value, and the backend encoded {len(made)}")
            ctypes.memmove(first + place, made, each.size)
        return structures, [first + place for place in self._places[:-1]]

    def _made(self, wanted: OpaqueArgument, encode: Callable[[tuple[int, ...]], bytes], words: Sequence[Sequence[int]]) -> bytes:
        try:
            for condition in wanted.conditions:
                value = evaluate(condition.value, words)
                if not condition.holds(value):
                    raise RefusedError(f"{self._kernel}: {wanted.subject}: {condition.rule}, not {value}")
            return encode(tuple([evaluate(expression, words) for expression in wanted.inputs]))
        except DeviceFaultError:
            raise
        except (ExpressionError, DriverError) as error:
            raise RefusedError(f"{self._kernel}: {wanted.subject}: {error}") from error
