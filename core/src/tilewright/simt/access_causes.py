"""Which values keep the compiler from wider accesses: arguments of the kernel, and numbers that it has loaded.

Axis analysis says that an address is not known to be a multiple of 16 bytes; who reads that wants to know whose doing it is. The functions here go back from
an access through the arithmetic that leads to it, along the operands that lack what the access needs, to where these come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.arithmetic import Addptr, Binary, Cast, Cmp, Constant, Select
from tilewright.ir.ops.control import For, Yield
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import I1, PointerType, byte_size, element_type
from tilewright.passes.axis import AxisInfo

#: Operations of two operands that have a divisor if both of them have it.
_SUMS = frozenset({"add", "sub", "min", "max", "or", "xor", "rem"})


@dataclass
class Sources:
    """Where values come from that lack something.

    Attributes:
        arguments: name of a kernel's argument -> what it would have to be a multiple of.
        loaded: line of a load, 0 where it is not known -> what the loaded number would have to be a multiple of.
    """

    arguments: dict[str, int] = field(default_factory=dict)
    loaded: dict[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arguments or self.loaded)

    def __str__(self) -> str:
        lacking = [f"`{name}` is not known to be a multiple of {need}" for name, need in self.arguments.items()]
        for line, need in self.loaded.items():
            place = f" at line {line}" if line else ""
            lacking.append(f"what is loaded{place} is not known to be a multiple of {need}")
        return " and ".join(lacking)


class AccessCauses:
    """The causes of a function's narrow accesses, by what axis analysis knows of its values."""

    def __init__(self, function: Function, axes: Mapping[Value, AxisInfo]) -> None:
        self._axes = axes
        self._names = {argument: argument.name for argument in function.arguments}

    def of_address(self, pointer: Value, width: int) -> Sources:
        """Why groups of ``width`` elements do not begin at multiples of their size: the arguments and loaded numbers that do not divide by enough."""
        found = Sources()
        self._follow(pointer, width, width * byte_size_of(pointer), found, set())
        return found

    def of_mask(self, mask: Value, width: int) -> Sources:
        """Why groups of ``width`` elements are not known to be under one mask: what bounds them and does not divide by the width."""
        found = Sources()
        work, seen = [mask], set[Value]()
        while work:
            value = work.pop()
            if value in seen or max(self._axes[value].constancy) >= width:
                continue
            seen.add(value)
            operation = value.definition
            if isinstance(operation, Cmp):
                for operand in operation.operands:
                    self._follow(operand, width, width, found, set())
            elif operation is not None and not isinstance(operation, Load):
                work += [operand for operand in operation.operands if element_type(operand.type) is I1]
        return found

    def of_stride(self, pointer: Value, width: int) -> Sources:
        """Why ``width`` addresses in a row are not known to be consecutive: the arguments that coordinates are multiplied by, and loaded offsets."""
        found = Sources()
        work, seen = [pointer], set[Value]()
        while work:
            value = work.pop()
            info = self._axes[value]
            if value in seen or max(*info.constancy, *info.contiguity) >= width:
                continue
            seen.add(value)
            operation = value.definition
            if isinstance(operation, Load):
                found.loaded[_line(operation)] = 1
            elif isinstance(operation, Binary) and operation.name == "mul":
                for operand in operation.operands:
                    name = self._argument(operand)
                    if name:
                        found.arguments[name] = 1
            elif operation is not None and not operation.regions:
                work += operation.operands
        return found

    def _argument(self, value: Value) -> str:
        """The name of the argument that a value is, moved to tiles or of another type; the empty string for others."""
        while isinstance(value.definition, Moved | Cast | Hint):
            value = value.definition.x
        return self._names.get(value, "")

    def _follow(self, value: Value, width: int, need: int, found: Sources, seen: set[Value]) -> None:
        """Add where a value comes from that is a multiple of ``need`` at the beginning of no group of ``width`` elements."""
        pointer = isinstance(element_type(value.type), PointerType)
        unit = byte_size_of(value) if pointer else 1
        info = self._axes[value]
        if need <= 1 or value in seen or any(info.divisibility_at(axis, width, unit) % need == 0 for axis in range(info.rank)):
            return
        seen.add(value)
        operation = value.definition
        if operation is None:
            self._follow_argument(value, width, need, found, seen)
        elif isinstance(operation, Load):
            line = _line(operation)
            found.loaded[line] = max(need, found.loaded.get(line, 1))
        elif isinstance(operation, Addptr):
            self._follow(operation.pointer, width, need, found, seen)
            self._follow(operation.offset, width, need // byte_size_of(operation.pointer), found, seen)
        elif isinstance(operation, Binary) and operation.name == "mul":
            self._follow_product(operation, width, need, found, seen)
        elif isinstance(operation, Select):
            for operand in (operation.a, operation.b):
                self._follow(operand, width, need, found, seen)
        elif isinstance(operation, Moved | Cast | Hint) or operation.name in _SUMS or operation.spec.forwards:
            for operand in operation.operands:
                self._follow(operand, width, need, found, seen)

    def _follow_product(self, product: Binary, width: int, need: int, found: Sources, seen: set[Value]) -> None:
        """Either factor could have what is lacking: an argument is asked for it first, a stride, before what only this product is of."""
        for operand, other in ((product.a, product.b), (product.b, product.a)):
            name = self._argument(operand)
            if name:
                had = max(self._axes[other].divisibility_at(axis, 1) for axis in range(self._axes[other].rank))
                found.arguments[name] = max(need // min(need, had), found.arguments.get(name, 1))
                return
        for operand in product.operands:
            if not isinstance(operand.definition, Constant):
                self._follow(operand, width, need, found, seen)

    def _follow_argument(self, value: Value, width: int, need: int, found: Sources, seen: set[Value]) -> None:
        name = self._names.get(value)
        if name is not None:
            found.arguments[name] = max(need, found.arguments.get(name, 1))
            return
        loop = value.owner.owner if not isinstance(value.owner, Operation) else None
        if not isinstance(loop, For):
            return
        index, last = value.index, loop.body.last
        if index == 0:
            begins, goes_on = loop.lower, loop.step
        else:
            assert isinstance(last, Yield)
            begins, goes_on = loop.inits[index - 1], last.values[index - 1]
        for operand in (begins, goes_on):
            self._follow(operand, width, need, found, seen)


def byte_size_of(pointer: Value) -> int:
    """Bytes of what a pointer, or each of a tile, points to."""
    element = element_type(pointer.type)
    assert isinstance(element, PointerType)
    return byte_size(element.pointee)


def _line(operation: Operation) -> int:
    return operation.location.line if operation.location is not None else 0


__all__ = ["AccessCauses", "Sources"]
