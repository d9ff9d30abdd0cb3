"""The options of exact mode, and the module that is being rewritten as rows see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Value
from tilewright.ir.expressions import Number
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
    with_element,
)
from tilewright.passes.exact.address_groups import AddressGroups, Storage, is_address
from tilewright.passes.exact.formulas import Formulas


@dataclass(frozen=True, slots=True)
class ExactOptions:
    """Options of the computation in the ring.

    Attributes:
        carry: ``"float"``: values keep their float types between operations, which are then only
            moved, so that signatures, layouts and memory accesses stay as they are; ``"int"``: no
            float is left, for targets that change the bits of floats that they move.
        dot: ``"native"``: digits of dots in the operands' own floats, in i8 where sums could become
            inexact; ``"i8"``: always in i8.
    """

    carry: Literal["float", "int"] = "float"
    dot: Literal["native", "i8"] = "native"

    def __post_init__(self) -> None:
        if self.carry not in ("float", "int"):
            raise ValueError(f"carry must be 'float' or 'int', not {self.carry!r}")
        if self.dot not in ("native", "i8"):
            raise ValueError(f"dot must be 'native' or 'i8', not {self.dot!r}")

    @property
    def name(self) -> str:
        """A text that identifies the rewritten code, for cache keys."""
        return f"exact 2 carry={self.carry} dot={self.dot}"


#: Scalar functions that were written, by row and types; they are in no module.
_FORMULAS = Formulas()


class ExactContext:
    """A module being rewritten, as rows see it.

    Attributes:
        options: of the pass.
        groups: the module's addresses.
        values: each value that was rewritten -> the new one.
        builder: appends to the new module.
        changed: whether anything but types was.
    """

    def __init__(self, module: Module, options: ExactOptions) -> None:
        self.options, self.groups = options, AddressGroups(module)
        self.values: dict[Value, Value] = {}
        self.changed = False
        self.builder = Builder()
        #: payloads of values that operations with a row made
        self._payloads: dict[Value, Value] = {}

    # ---- types

    def payload_type(self, type_: Type) -> Type:
        """A float type as that of its payloads; others as they are, tiles element by element."""
        element = element_type(type_)
        if isinstance(element, FloatType):
            return with_element(type_, IntType(element.bits, signed=False))
        return type_

    def type_of(self, value: Value) -> Type:
        """The type of a value in the new module."""
        if is_address(value.type):
            storage = self.groups.storage(value)
            if storage is not Storage.PAYLOADS:
                return _pointing_to(value.type, storage.element)
        return self.carried_type(value.type)

    def carried_type(self, type_: Type) -> Type:
        """The type that carries the values of a type in the new module."""
        if self.options.carry == "float":
            return type_
        if isinstance(type_, TileType):
            return TileType(type_.shape, self.carried_type(type_.element))
        if isinstance(type_, PointerType):
            return PointerType(self.carried_type(type_.pointee), type_.space)
        if isinstance(type_, DescriptorType):
            return DescriptorType(type_.block_shape, self.carried_type(type_.element))
        return self.payload_type(type_)

    # ---- payloads

    def carried(self, old: Value, new: Value) -> Value:
        """Return payloads as values of the type that carries the old value."""
        wanted = self.type_of(old)
        if new.type is wanted:
            return new
        self.changed = True
        made: Value = self.builder.bitcast(new, result=wanted)
        self._payloads[made] = new
        return made

    def bits(self, value: Value) -> Value:
        """The payloads of a new value; an integer as it is."""
        known = self._payloads.get(value)
        if known is not None:
            return known
        wanted = self.payload_type(value.type)
        if value.type is wanted:
            return value
        bits: Value = self.builder.bitcast(value, result=wanted)
        return bits

    def payloads(self, operands: Sequence[Value]) -> list[Value]:
        """The payloads of old values; integers as they are."""
        return [self.bits(self.values[value]) for value in operands]

    def formula(
        self,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        payloads: list[Value],
        result: Type,
    ) -> Value:
        """Append a scalar function for each element of new values.

        Args:
            key: identifies ``write``, beside the types of ``payloads``.
            result: the element type of what it returns.
        """
        self.changed = True
        return _FORMULAS.applied(self.builder, key, write, payloads, payloads[0].type, result)

    def applied(
        self,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        operands: Sequence[Value],
        result: Type,
    ) -> list[Value]:
        """As :meth:`formula`, for old values, and an old type of the result."""
        element = element_type(self.payload_type(result))
        return [self.formula(key, write, self.payloads(operands), element)]


def _pointing_to(type_: Type, element: Type) -> Type:
    inner = element_type(type_)
    if isinstance(inner, DescriptorType):
        return DescriptorType(inner.block_shape, element)
    assert isinstance(inner, PointerType)
    return with_element(type_, PointerType(element, inner.space))
