"""Floats beside the integers that sorting compares in their place.

``tl.sort`` and ``tl.topk`` sort the bits of floats as integers of the same order (their *keys*),
and turn the keys back in the end. This pass moves the floats along with their keys, by the same
exchanges, and reads them in the end: what is computed is the same, and it has a derivative.

A NaN may become another NaN.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Binary, Bitcast, Cast, Cmp, Select
from tilewright.ir.ops.control import For, Reduce
from tilewright.ir.ops.shape import Gather
from tilewright.ir.table import Trait
from tilewright.ir.types import FloatType, IntType, bit_width, element_type, with_element
from tilewright.passes.rewriter import constant_of


def move_floats_with_keys(function: Function) -> bool:
    """Move floats along with the keys that they are sorted by, in place; return whether any are."""
    if not any(_is_float_bitcast(operation) for operation in function.walk()):
        return False
    keys = _Keys()
    keys.visit(function.body)
    return keys.changed


def _is_float_bitcast(operation: Operation) -> bool:
    return isinstance(operation, Bitcast) and isinstance(
        element_type(operation.result.type), FloatType
    )


class _Keys:
    """Keys of a function and the floats that they are of."""

    def __init__(self) -> None:
        self._floats: dict[Value, Value] = {}
        self.changed = False

    def visit(self, region: Region) -> None:
        for operation in region:
            match operation:
                case For():
                    self._loop(operation)
                case Reduce():
                    self._extremum(operation)
                case _ if operation.regions or len(operation.results) != 1:
                    for inner in operation.regions:
                        self.visit(inner)
                case _:
                    self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        encoded = _encoded(operation)
        if encoded is not None:
            self._floats[operation.results[0]] = encoded
            return
        decoded = _decoded(operation)
        found = None if decoded is None else self._floats.get(decoded)
        if found is not None and found.type is operation.results[0].type:
            operation.results[0].replace_all_uses(found)
            self.changed = True
            return
        following = operation.next
        assert following is not None
        b = Builder.at(following)
        if isinstance(operation, Select):
            if operation.a in self._floats and operation.b in self._floats:
                chosen = b.select(
                    operation.condition, self._floats[operation.a], self._floats[operation.b]
                )
                self._floats[operation.result] = chosen
        elif isinstance(operation, Gather):
            if operation.x in self._floats:
                moved = b.gather(self._floats[operation.x], operation.index, axis=operation.axis)
                self._floats[operation.result] = moved
        elif isinstance(operation, Cast):
            known = self._floats.get(operation.x)
            if known is not None and _holds(operation, bit_width(known.type)):
                self._floats[operation.result] = known
        elif _moves(operation) and operation.operands[0] in self._floats:
            self._moved(operation, b)

    def _moved(self, operation: Operation, b: Builder) -> None:
        known = self._floats[operation.operands[0]]
        twin = Operation(
            operation.spec,
            [known],
            operation.segments,
            operation.attributes,
            [with_element(operation.results[0].type, element_type(known.type))],
            (),
            operation.location,
        )
        self._floats[operation.results[0]] = b.insert(twin).results[0]

    def _loop(self, loop: For) -> None:
        """Carry floats beside the keys that a loop carries from iteration to iteration."""
        count = len(loop.inits)
        arguments, last = loop.body.arguments, loop.body.last
        assert last is not None
        known = set(self._floats)
        positions = _carried_keys(loop, known)
        for i in positions:
            float_ = self._floats[loop.inits[i]]
            self._floats[arguments[1 + i]] = loop.body.add_argument(float_.type)
        inits = [*loop.inits, *(self._floats[loop.inits[i]] for i in positions)]
        loop.replace_operands([loop.lower, loop.upper, loop.step, *inits], (1, 1, 1, len(inits)))
        self.visit(loop.body)
        yields = [*last.operands, *(self._floats[last.operands[i]] for i in positions)]
        last.replace_operands(yields, (len(yields),))
        for place, i in enumerate(positions):
            result = Value(arguments[1 + count + place].type, loop)
            loop.results.append(result)
            self._floats[loop.results[i]] = result

    def _extremum(self, operation: Reduce) -> None:
        """Reduce floats together with their keys."""
        known = self._floats.get(operation.inputs[0])
        first = operation.combine.first
        if known is None or first is None or not _is_extremum(operation):
            return
        assert operation.next is not None
        b = Builder.at(operation.next)
        key, number = element_type(operation.inputs[0].type), element_type(known.type)
        region = Region([key, number, key, number])
        with b.at_region(region):
            left, x, right, y = region.arguments
            wins = b.cmp(left, right, predicate=_WINS[first.name])
            b.yield_([b.select(wins, left, right), b.select(wins, x, y)])
        inputs = [operation.inputs[0], known]
        twin = b.region_op("reduce", inputs, regions=[region], **operation.attributes)
        self._floats[operation.results[0]] = twin.results[1]


def _carried_keys(loop: For, known: set[Value]) -> list[int]:
    """Return the positions at which a loop carries keys on, if the values ``known`` are keys."""
    last = loop.body.last
    assert last is not None
    positions = [i for i, init in enumerate(loop.inits) if init in known]
    while True:
        inside = known | {loop.body.arguments[1 + i] for i in positions}
        _add_keys(loop.body, inside)
        kept = [i for i in positions if last.operands[i] in inside]
        if kept == positions:
            return kept
        positions = kept


def _add_keys(region: Region, keys: set[Value]) -> None:
    """Add the values of a region that are keys as others are."""
    for operation in region:
        match operation:
            case For():
                keys.update(operation.results[i] for i in _carried_keys(operation, keys))
            case Reduce():
                if operation.inputs[0] in keys and _is_extremum(operation):
                    keys.add(operation.results[0])
            case Select():
                if _encoded(operation) is not None or {operation.a, operation.b} <= keys:
                    keys.add(operation.result)
            case Gather():
                if operation.x in keys:
                    keys.add(operation.result)
            case Cast():
                if operation.x in keys and _holds(operation, bit_width(operation.x.type)):
                    keys.add(operation.result)
            case _ if _moves(operation) and operation.operands[0] in keys:
                keys.add(operation.results[0])


def _holds(operation: Cast, bits: int) -> bool:
    """Return whether a cast keeps integers of so many bits."""
    element = element_type(operation.result.type)
    return isinstance(element, IntType) and element.signed and element.bits >= bits


def _moves(operation: Operation) -> bool:
    """Return whether an operation moves the elements of its one operand to its one result."""
    return (
        Trait.SHAPE in operation.spec.traits
        and len(operation.operands) == len(operation.results) == 1
    )


def _is_extremum(operation: Reduce) -> bool:
    """Return whether a reduction is the maximum or minimum of one tile."""
    first, last = operation.combine.first, operation.combine.last
    return (
        len(operation.inputs) == 1
        and first is not None
        and last is not None
        and first.name in _WINS
        and first.next is last
        and last.operands == first.results
    )


#: Extremum -> the comparison that the left operand satisfies where it is the result.
_WINS = {"max": "gt", "min": "lt"}


def _toggled(value: Value) -> Value | None:
    """Return k where a value is ``k ^ most where k < 0, else k``: a float's bits, or its key."""
    choice = value.definition
    if not isinstance(choice, Select):
        return None
    condition, flipped, plain = choice.condition.definition, choice.a.definition, choice.b
    if (
        isinstance(condition, Cmp)
        and condition.predicate == "lt"
        and _narrow(condition.a) is plain
        and constant_of(condition.b) == 0
        and isinstance(flipped, Binary)
        and flipped.name == "xor"
        and flipped.a is plain
        and constant_of(flipped.b) == _most(plain)
    ):
        return plain
    return None


def _narrow(value: Value) -> Value:
    """Return the operand of a cast that keeps a signed integer; another value as it is."""
    cast = value.definition
    is_wider = isinstance(cast, Cast) and _holds(cast, bit_width(cast.x.type))
    return cast.x if isinstance(cast, Cast) and is_wider and _is_signed(cast.x) else value


def _is_signed(value: Value) -> bool:
    element = element_type(value.type)
    return isinstance(element, IntType) and element.signed


def _most(value: Value) -> int:
    return (1 << (bit_width(value.type) - 1)) - 1


def _encoded(operation: Operation) -> Value | None:
    """Return the floats whose keys an operation computes, the largest key where one is NaN."""
    if not isinstance(operation, Select) or constant_of(operation.b) != _most(operation.b):
        return None
    bits = _toggled(operation.a)
    source = None if bits is None else bits.definition
    is_number = operation.condition.definition
    if (
        isinstance(source, Bitcast)
        and isinstance(element_type(source.x.type), FloatType)
        and isinstance(is_number, Cmp)
        and is_number.predicate == "eq"
        and is_number.a is source.x
        and is_number.b is source.x
    ):
        return source.x
    return None


def _decoded(operation: Operation) -> Value | None:
    """Return the keys that an operation turns back into floats."""
    return _toggled(operation.x) if isinstance(operation, Bitcast) else None
