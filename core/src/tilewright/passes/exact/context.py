"""The options of exact mode, and what a row asks of the module that is being rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.expressions import Number
from tilewright.ir.types import Type
from tilewright.passes.exact.address_groups import AddressGroups


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


class ExactContext(Protocol):
    """A module being rewritten, as rows see it.

    Attributes:
        options: of the pass.
        groups: the module's addresses.
        values: each value that was rewritten -> the new one.
        builder: appends to the new module.
    """

    options: ExactOptions
    groups: AddressGroups
    values: dict[Value, Value]
    builder: Builder

    def type_of(self, value: Value) -> Type:
        """The type of a value in the new module."""
        ...

    def append(self, operation: Operation) -> None:
        """Append the new form of an operation."""
        ...

    def payload_type(self, type_: Type) -> Type:
        """A float type as that of its payloads; others as they are, tiles element by element."""
        ...

    def payloads(self, operands: Sequence[Value]) -> list[Value]:
        """The payloads of old values; integers as they are."""
        ...

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
        ...

    def applied(
        self,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        operands: Sequence[Value],
        result: Type,
    ) -> list[Value]:
        """As :meth:`formula`, for old values, and an old type of the result."""
        ...
