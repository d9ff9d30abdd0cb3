"""How far addresses move from one iteration of a loop to the next: whether iterations access different memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import IntType, TileType, element_type
from tilewright.passes.rewriter import constant_of

#: Operations whose result has the elements of the operand.
_SAME_ELEMENTS = frozenset({"splat", "broadcast", "expand_dims", "reshape", "permute", "hint", "simt.convert", "unsplat"})


@dataclass(frozen=True, slots=True)
class _Form:
    """Each element is u + step * iteration + d for one number u, the same for all elements and iterations, and a d from ``low`` to ``high``."""

    step: int = 0
    low: int = 0
    high: int = 0

    def plus(self, other: _Form, sign: int = 1) -> _Form:
        low, high = (other.low, other.high) if sign > 0 else (-other.high, -other.low)
        return _Form(self.step + sign * other.step, self.low + low, self.high + high)

    def times(self, factor: int) -> _Form:
        ends = self.low * factor, self.high * factor
        return _Form(self.step * factor, min(ends), max(ends))


def advances(pointer: Value, loop: Operation) -> bool:
    """Whether no two iterations of a ``for`` have an address in common among those of ``pointer``, a tile made in its body.

    Index arithmetic is taken not to overflow.
    """
    if loop.name != "for":
        return False
    form = _Search(loop).form(pointer)
    return form is not None and abs(form.step) > form.high - form.low


class _Search:
    def __init__(self, loop: Operation) -> None:
        self.loop = loop
        self._known: dict[Value, _Form | None] = {}

    def form(self, value: Value) -> _Form | None:
        if value not in self._known:
            self._known[value] = None  # of a value that depends on itself nothing is known
            self._known[value] = self._find(value)
        return self._known[value]

    def _find(self, value: Value) -> _Form | None:
        operation = value.definition
        if not isinstance(value.type, TileType) and not self._inside(value):
            return _Form()
        if operation is None:
            return self._argument(value)
        name = operation.name
        if name == "constant":
            return _Form()
        if name == "arange":
            return _Form(0, operation.attribute("start"), operation.attribute("end") - 1)
        if name in _SAME_ELEMENTS:
            return self.form(operation.operands[0])
        if name == "cast":
            source, result = element_type(operation.operands[0].type), element_type(value.type)
            wider = isinstance(source, IntType) and isinstance(result, IntType) and result.bits >= source.bits > 1
            return self.form(operation.operands[0]) if wider else None
        if name in ("add", "addptr", "sub"):
            a, b = (self.form(operand) for operand in operation.operands)
            return a.plus(b, -1 if name == "sub" else 1) if a is not None and b is not None else None
        if name == "mul":
            for one, other in (operation.operands, reversed(operation.operands)):
                factor = constant_of(other)
                if isinstance(factor, int):
                    found = self.form(one)
                    return found.times(factor) if found is not None else None
        return None

    def _inside(self, value: Value) -> bool:
        operation = value.owner if isinstance(value.owner, Operation) else None
        if operation is None:
            owner = getattr(value.owner, "owner", None)
            if owner is self.loop:
                return True
            operation = owner if isinstance(owner, Operation) else None
        return operation is not None and self.loop in operation.ancestors()

    def _argument(self, value: Value) -> _Form | None:
        """The loop's counter, or what it carries and adds a constant to."""
        (body,) = self.loop.regions
        if value.owner is not body:
            return None
        if value is body.arguments[0]:
            step = constant_of(self.loop.operands[2])
            return _Form(step) if isinstance(step, int) else None
        position = value.index - 1
        last = body.terminator
        assert last is not None
        following = last.operands[position].definition
        if following is None or following.name not in ("add", "addptr") or value not in following.operands:
            return None
        first = following.operands[0] is value
        if following.name == "addptr" and not first:
            return None
        added = constant_of(following.operands[1 if first else 0])
        start = self.form(self.loop.operands[3 + position])
        return _Form(added, start.low, start.high) if isinstance(added, int) and start is not None else None
