"""The argument that each pointer or descriptor of a kernel is made of."""

from __future__ import annotations

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Addptr, Bitcast, Constant, Select
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.memory import MakeDescriptor
from tilewright.ir.table import Trait
from tilewright.ir.types import DescriptorType, PointerType, element_type


def is_argument(value: Value) -> bool:
    """Return whether a value is an argument of a kernel."""
    return isinstance(value.owner, Region) and isinstance(value.owner.owner, Function)


def is_address(value: Value) -> bool:
    """Return whether a value is a pointer, a tile of pointers or a descriptor."""
    return isinstance(element_type(value.type), PointerType | DescriptorType)


class Addresses:
    """Arguments that the addresses of a function are made of, found on demand.

    The function may get more operations in between, but none may change.
    """

    def __init__(self) -> None:
        self._known: dict[Value, tuple[frozenset[Value | None], bool]] = {}

    def root(self, address: Value) -> Value | None:
        """Return the argument that an address is made of.

        None where it is made of several, is computed from integers, or is read from memory.
        """
        arguments, _ = self._find(address)
        return next(iter(arguments)) if len(arguments) == 1 else None

    def arguments(self, address: Value) -> frozenset[Value | None]:
        """Return all arguments that an address may be made of; None stands for anything else."""
        return self._find(address)[0]

    def is_reinterpreted(self, address: Value) -> bool:
        """Return whether an address points to another type than its argument does."""
        return self._find(address)[1]

    def _find(self, address: Value) -> tuple[frozenset[Value | None], bool]:
        known = self._known.get(address)
        if known is None:
            found: set[Value | None] = set()
            reinterpreted = False
            pending, seen = [address], {address}
            while pending:
                value = pending.pop()
                sources = _sources(value)
                if sources is None:
                    is_argument = (
                        isinstance(value.owner.owner, Function)
                        if (not isinstance(value.owner, Operation))
                        else False
                    )
                    found.add(value if is_argument else None)
                    continue
                reinterpreted |= isinstance(value.owner, Bitcast)
                for source in sources:
                    if source not in seen:
                        seen.add(source)
                        pending.append(source)
            known = self._known[address] = frozenset(found), reinterpreted
        return known


def _sources(address: Value) -> list[Value] | None:
    """Return the addresses that one is made of; None where it is not made of any."""
    owner = address.owner
    if not isinstance(owner, Operation):
        return _carried(address)
    match owner:
        case Addptr():
            return [owner.pointer]
        case Select():
            return [owner.a, owner.b]
        case MakeDescriptor():
            return [owner.base]
        case Bitcast():
            return [owner.x] if is_address(owner.x) else None
        case Constant():
            return []  # the null pointer
        case For():
            assert owner.body.last is not None
            return [owner.inits[address.index], owner.body.last.operands[address.index]]
        case While():
            assert isinstance(owner.before.last, Condition)
            return [owner.before.last.values[address.index]]
        case If():
            return [
                region.last.operands[address.index]
                for region in owner.regions
                if region.last is not None
            ]
    if Trait.SHAPE in owner.spec.traits or owner.spec.forwards:
        return list(owner.operands)
    return None


def _carried(argument: Value) -> list[Value] | None:
    """Return the addresses that a region's argument is; None for a function's."""
    region = argument.owner
    assert not isinstance(region, Operation)
    loop = region.owner
    if isinstance(loop, For):
        position = argument.index - 1
        assert region.last is not None
        return [loop.inits[position], region.last.operands[position]]
    if isinstance(loop, While):
        if region is loop.after:
            assert isinstance(loop.before.last, Condition)
            return [loop.before.last.values[argument.index]]
        assert loop.after.last is not None
        return [loop.inits[argument.index], loop.after.last.operands[argument.index]]
    return None
