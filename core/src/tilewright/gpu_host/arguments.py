"""Kernel arguments in memory: 8-byte words, opaque structures, and their addresses.

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

#: Alignment in bytes of opaque structures.
OPAQUE_ALIGNMENT = 128
#: Number of encoded structures cached for each opaque argument.
_KEPT = 256


def device_address(driver: Driver, device: int, value: Any) -> int:
    """Return the address of an array in memory that a device can access.

    A number is an address already.

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
                f"Pointer argument cannot be accessed ({place[0]} tensor?): it is a "
                f"{type(value).__name__} in memory of device kind {place[0]!r}, and the kernel "
                f"runs on {kind}:{device}; move it there first"
            )
        why = driver.why_no_access(device, place[1])
        if why:
            what = (
                f"it is a {type(value).__name__} on {kind}:{place[1]}, and the kernel was "
                f"loaded on {kind}:{device}"
            )
            raise LaunchError(
                f"{what}, which cannot access that memory ({why}); move it there first"
            )
    return address_of(value)


def places_of(opaque: Sequence[OpaqueArgument]) -> list[int]:
    """Return the offset of each structure in their common buffer, then the buffer's size."""
    places = [0]
    for each in opaque:
        places.append(places[-1] + -(-each.size // OPAQUE_ALIGNMENT) * OPAQUE_ALIGNMENT)
    return places


class ArgumentBlock:
    """The layout of a kernel's arguments in memory."""

    def __init__(
        self,
        kernel: str,
        parameters: Sequence[Parameter],
        address: Callable[[Any], int],
        opaque: Sequence[OpaqueArgument] = (),
    ) -> None:
        """Compute the layout of the parameters.

        Args:
            address: returns the address of an array, or of a number that is one; it may raise.
            opaque: the opaque arguments that follow the parameters.

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
        """Pack the arguments into words.

        Raises:
            LaunchError: names the argument that does not fit.
        """
        return self._words.pack(values)

    def place(self, values: tuple[Any, ...]) -> tuple[int, object]:
        """Write the arguments to memory; return the address of their pointer array, and its owner.

        The owner must live as long as the array is used. Every call allocates memory of its own.

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
        """Encode the opaque structures of a launch; return their buffer and their addresses."""
        structures = ctypes.create_string_buffer(self._places[-1] + OPAQUE_ALIGNMENT - 1)
        first = -(-ctypes.addressof(structures) // OPAQUE_ALIGNMENT) * OPAQUE_ALIGNMENT
        words = [encode(value) for encode, value in zip(self._words.encoders, values, strict=True)]
        for (each, encode), place in zip(self._opaque, self._places, strict=False):
            made = self._made(each, encode, words)
            if len(made) != each.size:
                raise LaunchError(
                    f"{self._kernel}: a structure of {each.size} bytes is passed by value, and the "
                    f"backend encoded {len(made)}"
                )
            ctypes.memmove(first + place, made, each.size)
        return structures, [first + place for place in self._places[:-1]]

    def _made(
        self,
        wanted: OpaqueArgument,
        encode: Callable[[tuple[int, ...]], bytes],
        words: Sequence[Sequence[int]],
    ) -> bytes:
        try:
            for condition in wanted.conditions:
                value = evaluate(condition.value, words)
                if not condition.holds(value):
                    raise RefusedError(
                        f"{self._kernel}: {wanted.subject}: {condition.rule}, not {value}"
                    )
            return encode(tuple([evaluate(expression, words) for expression in wanted.inputs]))
        except DeviceFaultError:
            raise
        except (ExpressionError, DriverError) as error:
            raise RefusedError(f"{self._kernel}: {wanted.subject}: {error}") from error
