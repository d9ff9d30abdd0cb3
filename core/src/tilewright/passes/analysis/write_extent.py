"""Guaranteed writes: offsets from each argument's address that a kernel is sure to store to.

Program (0, 0, 0) runs whatever the grid is, and what it stores without a mask, outside branches and
loops, it stores for certain. Where the offsets of such a store are sums of multiples of the tile's
coordinates and of constants, their least and greatest are known exactly. A launcher that knows how
long an argument's memory is can refuse, instead of writing over something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Location, Module, Operation, Value
from tilewright.ir.ops.arithmetic import Arange, Cast, Constant
from tilewright.ir.ops.memory import Store
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilewright.ir.types import IntType, PointerType, byte_size, element_type, shape_of

#: Offsets beyond this may have wrapped around in the kernel's integers: nothing is said of them.
_LIMIT: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class WriteExtent:
    """Bytes that a kernel certainly writes through an argument.

    Attributes:
        argument: the position of the kernel's argument.
        first, end: offsets in bytes from its address: of the first byte, and after the last.
        location: of the store, if it has one.
    """

    argument: int
    first: int
    end: int
    location: Location | None

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column of the store; empty and zeros if unknown."""
        where = self.location
        return (where.file, where.line, where.column) if where is not None else ("", 0, 0)


@dataclass(frozen=True, slots=True)
class _Affine:
    """``start + sum(steps[i] * coordinate[i])``; bytes from the address of argument ``base`` for
    pointers, else a number."""

    start: int
    steps: tuple[int, ...] = ()
    base: int | None = None

    def scaled(self, factor: int) -> _Affine:
        return _Affine(self.start * factor, tuple(step * factor for step in self.steps))


def certain_writes(module: Module) -> list[WriteExtent]:
    """Return, for each argument, the stores that reach its lowest and its highest byte.

    Arguments without such stores have no entry.
    """
    kernel = module.kernel
    found = _Offsets(
        {
            argument: _Affine(0, base=position)
            for position, argument in enumerate(kernel.arguments)
            if isinstance(argument.type, PointerType)
        }
    )
    least: dict[int, WriteExtent] = {}
    greatest: dict[int, WriteExtent] = {}
    for operation in kernel.body:
        if not isinstance(operation, Store) or operation.mask is not None:
            continue
        pointer = operation.pointer
        offsets = found.of(pointer)
        if offsets is None or offsets.base is None:
            continue
        spans = [
            step * (extent - 1)
            for step, extent in zip(offsets.steps, shape_of(pointer.type), strict=True)
        ]
        first = offsets.start + sum(min(0, span) for span in spans)
        last = offsets.start + sum(max(0, span) for span in spans)
        if max(-first, last) >= _LIMIT:
            continue
        element = element_type(pointer.type)
        assert isinstance(element, PointerType)
        reach = WriteExtent(
            offsets.base,
            first,
            last + byte_size(element.pointee),
            operation.location,
        )
        if reach.argument not in least or reach.first < least[reach.argument].first:
            least[reach.argument] = reach
        if reach.argument not in greatest or reach.end > greatest[reach.argument].end:
            greatest[reach.argument] = reach
    return list(dict.fromkeys((*least.values(), *greatest.values())))


class _Offsets:
    """The affine values among those that a store's pointer is computed from."""

    def __init__(self, known: dict[Value, _Affine]) -> None:
        self.known: dict[Value, _Affine | None] = dict(known)

    def of(self, value: Value) -> _Affine | None:
        if value not in self.known:
            operation = value.definition
            rule = _RULES.get(operation.name) if operation is not None else None
            operands = (
                [self.of(operand) for operand in operation.operands]
                if operation is not None and rule is not None
                else []
            )
            whole = [operand for operand in operands if operand is not None]
            self.known[value] = (
                rule(operation, whole)
                if operation is not None and rule is not None and len(whole) == len(operands)
                else None
            )
        return self.known[value]


def _is_integer(value: Value) -> bool:
    return isinstance(element_type(value.type), IntType)


def _constant(operation: Constant, operands: list[_Affine]) -> _Affine | None:
    value = operation.value
    return (
        _Affine(value, (0,) * len(shape_of(operation.result.type))) if type(value) is int else None
    )


def _program_id(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    return _Affine(0)


def _arange(operation: Arange, operands: list[_Affine]) -> _Affine | None:
    return _Affine(operation.start, (1,))


def _sum(a: _Affine, b: _Affine) -> _Affine:
    return _Affine(
        a.start + b.start, tuple(x + y for x, y in zip(a.steps, b.steps, strict=True)), a.base
    )


def _add(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    return _sum(*operands) if _is_integer(operation.result) else None


def _sub(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    return _sum(operands[0], operands[1].scaled(-1)) if _is_integer(operation.result) else None


def _mul(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    for factor, other in (operands, reversed(operands)):
        if not any(factor.steps):
            return other.scaled(factor.start)
    return None


def _addptr(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    element = element_type(operation.result.type)
    assert isinstance(element, PointerType)
    return _sum(operands[0], operands[1].scaled(byte_size(element.pointee)))


def _cast(operation: Cast, operands: list[_Affine]) -> _Affine | None:
    """Widening keeps numbers; whether they are signed makes no difference to those in the limit."""
    source, target = element_type(operation.x.type), element_type(operation.result.type)
    return (
        operands[0]
        if isinstance(source, IntType)
        and isinstance(target, IntType)
        and target.bits >= source.bits > 1
        else None
    )


def _splat(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    return _Affine(operands[0].start, (0,) * len(shape_of(operation.result.type)), operands[0].base)


def _broadcast(operation: Broadcast, operands: list[_Affine]) -> _Affine | None:
    (x,) = operands
    kept = tuple(
        step if extent > 1 else 0
        for step, extent in zip(x.steps, shape_of(operation.x.type), strict=True)
    )
    return _Affine(x.start, kept, x.base)


def _expand_dims(operation: ExpandDims, operands: list[_Affine]) -> _Affine | None:
    (x,) = operands
    axis = operation.axis
    return _Affine(x.start, (*x.steps[:axis], 0, *x.steps[axis:]), x.base)


def _permute(operation: Permute, operands: list[_Affine]) -> _Affine | None:
    (x,) = operands
    return _Affine(x.start, tuple(x.steps[axis] for axis in operation.order), x.base)


def _same(operation: Operation, operands: list[_Affine]) -> _Affine | None:
    return operands[0]


_RULES: dict[str, Callable[[Any, list[_Affine]], _Affine | None]] = {
    "constant": _constant,
    "program_id": _program_id,
    "arange": _arange,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "addptr": _addptr,
    "cast": _cast,
    "splat": _splat,
    "broadcast": _broadcast,
    "expand_dims": _expand_dims,
    "permute": _permute,
    "hint": _same,
}

__all__ = ["WriteExtent", "certain_writes"]
