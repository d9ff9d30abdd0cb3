"""Laws of structured control flow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Binary
from tilewright.ir.ops.control import For, If, While
from tilewright.passes.rewriter import Rewrite, Rewriter, constant_of, defined_by


def _yielded(region: Region) -> list[Value]:
    assert region.last is not None
    return region.last.operands  # a condition's stands before the values


def _same_constant(a: Value, b: Value) -> bool:
    first, second = constant_of(a), constant_of(b)
    if first is None or second is None or a.type is not b.type:
        return False
    if isinstance(first, float) and isinstance(second, float):
        return struct.pack("<d", first) == struct.pack("<d", second)
    return bool(first == second)


def _defined_outside(value: Value, operation: Operation) -> bool:
    owner = value.owner
    region: Region | None = owner.parent if isinstance(owner, Operation) else owner
    while region is not None and isinstance(region.owner, Operation):
        if region.owner is operation:
            return False
        region = region.owner.parent
    return True


def _available(value: Value, operation: Operation, rewriter: Rewriter) -> Value | None:
    """``value``, defined in a region of ``operation`` or outside, as a value before ``operation``;
    None where it is not to be had there."""
    if _defined_outside(value, operation):
        return value
    constant = constant_of(value)
    return None if constant is None else rewriter.constant_like(value.type, constant)


#: Values, each with the one that stands in its place from then on.
_Replacements = Iterator[tuple[Value, Value]]


def _replacing(find: Callable[[Any, Rewriter], _Replacements]) -> Callable[[Any, Rewriter], Any]:
    """A rewrite that leaves the operation, and replaces results or arguments of its regions one by
    one."""

    def apply(operation: Operation, rewriter: Rewriter) -> Any:
        changed = False
        for value, found in find(operation, rewriter):
            rewriter.replace_value(value, found)
            changed = True
        return rewriter.update(operation) if changed else None

    return apply


# if


def _known_condition(operation: If, rewriter: Rewriter) -> Any:
    known = constant_of(operation.condition)
    if known is None:
        return None
    return rewriter.splice(operation.then if known else operation.else_, (), operation)


def _negated_condition(operation: If, rewriter: Rewriter) -> Any:
    negated = defined_by(operation.condition, Binary, "xor")
    if negated is None or constant_of(negated.b) is not True:
        return None
    operation.set_operand(0, negated.a)
    operation.regions.reverse()
    rewriter.revisit(negated)
    return rewriter.update(operation)


def _ways(operation: If) -> Iterator[tuple[Value, Value, Value]]:
    """Each result that is read, with what either region yields for it."""
    for index, result in enumerate(operation.results):
        if result.uses:
            yield result, _yielded(operation.then)[index], _yielded(operation.else_)[index]


@_replacing
def _same_either_way(operation: If, rewriter: Rewriter) -> _Replacements:
    for result, a, b in _ways(operation):
        found = _available(a, operation, rewriter) if a is b or _same_constant(a, b) else None
        if found is not None:
            yield result, found


@_replacing
def _choose(operation: If, rewriter: Rewriter) -> _Replacements:
    for result, a, b in _ways(operation):
        if result.type.is_scalar and all(
            _defined_outside(value, operation) or constant_of(value) is not None for value in (a, b)
        ):
            choices = _available(a, operation, rewriter), _available(b, operation, rewriter)
            yield result, rewriter.select(operation.condition, *choices)


# for


def _no_trip(operation: For, rewriter: Rewriter) -> Any:
    lower, upper = constant_of(operation.lower), constant_of(operation.upper)
    if operation.lower is not operation.upper and (lower is None or upper is None or lower < upper):
        return None
    return operation.inits


def _one_trip(operation: For, rewriter: Rewriter) -> Any:
    bounds = [constant_of(value) for value in (operation.lower, operation.upper, operation.step)]
    if None in bounds:
        return None
    lower, upper, step = bounds
    if step <= 0 or not lower < upper <= lower + step:
        return None
    return rewriter.splice(operation.body, [operation.lower, *operation.inits], operation)


@_replacing
def _unchanged_by_body(operation: For, rewriter: Rewriter) -> _Replacements:
    body, inits = operation.body, operation.inits
    for index, result in enumerate(operation.results):
        init, argument = inits[index], body.arguments[1 + index]
        if not (result.uses or argument.uses):
            continue
        value = _yielded(body)[index]
        if value is argument or value is init or _same_constant(value, init):
            yield argument, init
            yield result, init


# while


def _never(operation: While, rewriter: Rewriter) -> Any:
    before = operation.before
    if constant_of(_yielded(before)[0]) is not False:
        return None
    return rewriter.splice(before, operation.inits, operation)[1:]


@_replacing
def _forwarded_from_outside(operation: While, rewriter: Rewriter) -> _Replacements:
    for index, result in enumerate(operation.results):
        argument = operation.after.arguments[index]
        if not (result.uses or argument.uses):
            continue
        found = _available(_yielded(operation.before)[1 + index], operation, rewriter)
        if found is not None:
            yield argument, found
            yield result, found


@_replacing
def _unchanged_by_loop(operation: While, rewriter: Rewriter) -> _Replacements:
    before, after = operation.before, operation.after
    positions = {argument: index for index, argument in enumerate(after.arguments)}
    for index, argument in enumerate(before.arguments):
        if not argument.uses:
            continue
        init, value = operation.inits[index], _yielded(after)[index]
        forwarded = positions.get(value)
        returns = forwarded is not None and _yielded(before)[1 + forwarded] is argument
        if returns or value is init or _same_constant(value, init):
            yield argument, init


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(("if",), "if true then x else y = x", _known_condition),
    Rewrite(("if",), "if not c then x else y = if c then y else x", _negated_condition),
    Rewrite(("if",), "if c then x else x = x", _same_either_way),
    Rewrite(("if",), "if c then a else b = c ? a : b for scalars that are there already", _choose),
    Rewrite(("for",), "from lower to no more than lower, nothing runs", _no_trip),
    Rewrite(("for",), "from lower to no more than lower + step, the body runs once", _one_trip),
    Rewrite(
        ("for",), "what every iteration hands on unchanged is what it began as", _unchanged_by_body
    ),
    Rewrite(("while",), "where the condition never holds, only region before runs, once", _never),
    Rewrite(
        ("while",), "what is forwarded from outside is the same each time", _forwarded_from_outside
    ),
    Rewrite(
        ("while",),
        "what every iteration hands back unchanged is what it began as",
        _unchanged_by_loop,
    ),
)
