"""Writing IR as Python's expressions: ``x < 0.0``, ``bits >> 23``, ``1.0 - x`` each append an operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self


class Expression(ABC):
    """A value with Python's operators; a Python number beside one is a constant of its type. Comparisons give booleans of the IR; ``==`` is
    :meth:`equals`."""

    __slots__ = ()

    @abstractmethod
    def like(self, other: Self | float) -> Self:
        """``other`` as a value of this one's type."""

    @abstractmethod
    def apply(self, op: str, *others: Self | float, **attributes: Any) -> Self:
        """An operation on values of one type, by its builder's name."""

    def compare(self, predicate: str, other: Self | float) -> Self:
        return self.apply("cmp", other, predicate=predicate)

    def __add__(self, other: Self | float) -> Self:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Self:
        return self.like(other) + self

    def __sub__(self, other: Self | float) -> Self:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Self:
        return self.like(other) - self

    def __mul__(self, other: Self | float) -> Self:
        return self.apply("mul", other)

    def __rmul__(self, other: float) -> Self:
        return self.like(other) * self

    def __truediv__(self, other: Self | float) -> Self:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Self:
        return self.like(other) / self

    def __and__(self, other: Self | int) -> Self:
        return self.apply("and_", other)

    def __or__(self, other: Self | int) -> Self:
        return self.apply("or_", other)

    def __xor__(self, other: Self | int) -> Self:
        return self.apply("xor", other)

    def __lshift__(self, other: Self | int) -> Self:
        return self.apply("shl", other)

    def __rshift__(self, other: Self | int) -> Self:
        return self.apply("shr", other)

    def __neg__(self) -> Self:
        return self.apply("neg")

    def __abs__(self) -> Self:
        return self.apply("abs")

    def __lt__(self, other: Self | float) -> Self:
        return self.compare("lt", other)

    def __le__(self, other: Self | float) -> Self:
        return self.compare("le", other)

    def __gt__(self, other: Self | float) -> Self:
        return self.compare("gt", other)

    def __ge__(self, other: Self | float) -> Self:
        return self.compare("ge", other)

    def equals(self, other: Self | float) -> Self:
        return self.compare("eq", other)

    def differs(self, other: Self | float) -> Self:
        return self.compare("ne", other)
