"""Base classes of the values of a kernel and of their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types


class base_type:  # noqa: N801
    """Base of the types of values in a kernel.

    A value of any type is a list of IR values: ``flatten`` returns their types, ``unflatten``
    rebuilds the value from them.
    """

    __slots__ = ()

    def flatten(self) -> list[ir_types.Type]:
        """The types of the IR values that carry a value of this type."""
        raise NotImplementedError

    def unflatten(self, values: Iterator[ir.Value]) -> base_value:
        """Take as many IR values as ``flatten`` names, and make the value they carry."""
        raise NotImplementedError

    def mangle(self) -> str:
        """A short text without spaces that tells types apart, for symbol names."""
        raise NotImplementedError


class base_value:  # noqa: N801
    """Base of the values that a kernel computes with."""

    __slots__ = ()

    type: Any

    def flatten(self) -> list[ir.Value]:
        """The IR values that carry this value, one for each type that ``type.flatten()`` names."""
        raise NotImplementedError
