"""Runtime values of a kernel, for many programs at once.

An array has the shape of its type where it is the same for all programs at hand, or one leading
axis more, over those programs. Descriptors hold such arrays. In the checked mode a value of which
some lanes are undefined is a :class:`Tracked` one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import Type, shape_of
from tilewright.reference.numerics import Array

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in memory.

    It has its first element's address, extents and strides in elements, whether a load of floats
    yields NaN outside of it (else zero), and the position of the kernel argument it came from,
    where it came from one.
    """

    base: Array
    shape: tuple[Array, ...]
    strides: tuple[Array, ...]
    pads_nan: Array
    argument: int | None = None

    def fields(self) -> tuple[Array, ...]:
        return (self.base, *self.shape, *self.strides, self.pads_nan)

    def with_fields(self, fields: Sequence[Array]) -> Descriptor:
        rank = len(self.shape)
        return Descriptor(
            fields[0],
            tuple(fields[1 : 1 + rank]),
            tuple(fields[1 + rank : -1]),
            fields[-1],
            self.argument,
        )

    def of_one_argument(self, origins: Sequence[Descriptor]) -> Descriptor:
        """Return the descriptor with the origins' common argument, else without one.

        Accesses are checked against that argument.
        """
        return (
            self
            if all(origin.argument == self.argument for origin in origins)
            else replace(self, argument=None)
        )


@dataclass(frozen=True, slots=True)
class Tracked:
    """A value with undefined lanes.

    ``origins``, of the array's shape, holds 0 where a lane is as the program says, else the origin
    of its undefined or masked-off state (:mod:`.checks.undefined_lanes`).
    """

    array: Array
    origins: Array


RuntimeValue = Any  # Array | Descriptor | Tracked


def is_varying(value: RuntimeValue, type_: Type) -> bool:
    """Return whether a value differs among programs, that is, has an axis over them."""
    if isinstance(value, Descriptor):
        return any(field.ndim > 0 for field in value.fields())
    if isinstance(value, Tracked):
        value = value.array
    return bool(value.ndim > len(shape_of(type_)))


def take(value: RuntimeValue, type_: Type, programs: Indices | NDArray[np.bool_]) -> RuntimeValue:
    """A value for some of its programs."""
    if isinstance(value, Descriptor):
        return value.with_fields(
            [field[programs] if field.ndim else field for field in value.fields()]
        )
    if not is_varying(value, type_):
        return value
    if isinstance(value, Tracked):
        origins = value.origins[programs]
        return Tracked(value.array[programs], origins) if origins.any() else value.array[programs]
    return value[programs]


def expanded(array: Array, shape: tuple[int, ...], programs: int) -> Array:
    """An array with its axis over programs, whether it varies or not."""
    return array if array.ndim > len(shape) else np.broadcast_to(array, (programs, *shape))


def merge(
    parts: Sequence[tuple[Indices | None, RuntimeValue]], type_: Type, programs: int
) -> RuntimeValue:
    """Merge a value from its parts, each for the programs at some indices.

    ``None`` stands for all programs; then there is one part.
    """
    if len(parts) == 1 and parts[0][0] is None:
        return parts[0][1]
    first = parts[0][1]
    if isinstance(first, Descriptor):
        columns = [
            [
                (indices, field)
                for indices, field in zip([i] * len(d.fields()), d.fields(), strict=True)
            ]
            for i, d in parts
        ]
        merged_fields = [
            _merge_arrays(list(column), (), programs) for column in zip(*columns, strict=True)
        ]
        whole = first.with_fields(merged_fields)
        return whole.of_one_argument([part for _, part in parts])
    shape = shape_of(type_)
    arrays = [
        (indices, part.array if isinstance(part, Tracked) else part) for indices, part in parts
    ]
    merged = _merge_arrays(arrays, shape, programs)
    if any(isinstance(part, Tracked) for _, part in parts):
        zero = np.int32(0)
        origins = [
            (indices, part.origins if isinstance(part, Tracked) else np.broadcast_to(zero, shape))
            for indices, part in parts
        ]
        return Tracked(merged, _merge_arrays(origins, shape, programs))
    return merged


def _merge_arrays(
    parts: Sequence[tuple[Indices | None, Array]], shape: tuple[int, ...], programs: int
) -> Array:
    result = np.empty((programs, *shape), dtype=parts[0][1].dtype)
    for indices, part in parts:
        result[indices] = part
    return result
