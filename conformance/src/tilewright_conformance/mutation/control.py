"""Bugs of control flow, reductions, scans, program ids, prints and asserts."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import I1, I32, IntType, TileType, shape_of
from tilewright.passes.clone import clone_operation
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    again,
    as_bits,
    element,
    is_unsigned,
    like,
    mask_lost,
    other_sign,
    picked,
)


def _one_too_few(operation: Operation, b: Builder) -> Any:
    lower, upper, step = operation.operands[:3]
    some = b.cmp(lower, upper, predicate="lt")
    room = b.cmp(b.sub(upper, lower), step, predicate="gt")
    operation.set_operand(1, b.select(some, b.select(room, b.sub(upper, step), lower), upper))
    return CHANGED


def _signed_bounds(operation: Operation, b: Builder) -> Any:
    lower, upper = operation.operands[:2]
    if not is_unsigned(lower):
        return None
    some = b.cmp(
        *(as_bits(b, value, other_sign(value)) for value in (lower, upper)), predicate="lt"
    )
    operation.set_operand(1, b.select(some, upper, lower))
    return CHANGED


def _results_exchanged(operation: Operation, b: Builder) -> Any:
    """The first two results of one type in each other's place."""
    for position, first in enumerate(operation.results):
        for second in operation.results[position + 1 :]:
            if first.type is second.type:
                made = again(operation, b)
                swapped = list(made.results)
                i, j = first.index, second.index
                swapped[i], swapped[j] = swapped[j], swapped[i]
                return swapped
    return None


def _runs_once_more(operation: Operation, b: Builder) -> Any:
    """The body before the condition is asked for the first time."""
    values: list[Value] = list(operation.operands)
    for region in operation.regions:
        mapping = dict(zip(region.arguments, values, strict=True))
        for inner in region:
            if inner.spec.terminator:
                values = [mapping.get(value, value) for value in inner.group("values")]
            else:
                b.insert(clone_operation(inner, mapping))
    operation.replace_operands(values, (len(values),))
    return CHANGED


def _always_then(operation: Operation, b: Builder) -> Any:
    if not operation.results:
        return None
    operation.set_operand(0, b.constant(value=True, result=I1))
    return CHANGED


# ---- reductions and scans


def _without_last(operation: Operation, b: Builder) -> Any:
    axis = operation.attribute("axis")
    extent = shape_of(operation.operands[0].type)[axis]
    if extent == 1:
        return None
    for position, operand in enumerate(operation.operands):
        operation.set_operand(position, picked(b, operand, axis, lambda at: at, extent - 1))
    return CHANGED


def _zero_among_them(operation: Operation, b: Builder) -> Any:
    """Include a zero in a min, max, mul or and reduction, as if the tile were padded with zeros."""
    combine = operation.regions[0].first
    if (
        combine is None
        or combine.name not in ("min", "max", "mul", "and")
        or len(operation.results) != 1
        or combine.next is not operation.regions[0].last
    ):
        return None
    value = again(operation, b).result
    name = "and_" if combine.name == "and" else combine.name
    return getattr(b, name)(value, like(b, value, 0), **combine.attributes)


def _last_of_equals(operation: Operation, b: Builder) -> Any:
    """Compare positions the other way round.

    This mutates combinations of values with positions, and reductions of the positions at which the
    best value stands.
    """
    combine = operation.regions[0]
    if len(operation.operands) < 2:
        equal = operation.operands[0].definition
        if (
            equal is None
            or equal.name != "select"
            or not isinstance(element(equal.results[0]), IntType)
        ):
            return None
        condition, positions, none = equal.operands
        last = shape_of(positions.type)[operation.attribute("axis")] - 1
        operation.set_operand(
            0, b.select(condition, b.sub(like(b, positions, last), positions), none)
        )
        (found,) = again(operation, b).results
        return [b.sub(like(b, found, last), found)]
    for inner in combine.walk():
        between = [
            value
            for value in inner.operands
            if value.owner is combine and isinstance(element(value), IntType)
        ]
        if (
            inner.name == "cmp"
            and len(between) == 2
            and inner.attribute("predicate") in ("lt", "gt")
        ):
            inner.attributes["predicate"] = "gt" if inner.attribute("predicate") == "lt" else "lt"
    return CHANGED


def _one_behind(operation: Operation, b: Builder) -> Any:
    axis, reverse = operation.attribute("axis"), operation.attribute("reverse")
    made = again(operation, b)
    last = shape_of(operation.operands[0].type)[axis] - 1

    def earlier(at: Value) -> Value:
        found: Value = (
            b.min(b.add(at, like(b, at, 1)), like(b, at, last))
            if reverse
            else b.max(b.sub(at, like(b, at, 1)), like(b, at, 0))
        )
        return found

    return [picked(b, value, axis, earlier) for value in made.results]


def _forwards(operation: Operation, b: Builder) -> Any:
    if not operation.attribute("reverse"):
        return None
    operation.attributes["reverse"] = False
    return CHANGED


def _later_first(operation: Operation, b: Builder) -> Any:
    """The combination's operands in each other's place."""
    combine = operation.regions[0]
    half = len(combine.arguments) // 2
    combine.arguments[:] = [*combine.arguments[half:], *combine.arguments[:half]]
    return CHANGED


def _pack_reversed(operation: Operation, b: Builder) -> Any:
    """The elements of a pack in reverse."""
    pack, body = operation.attribute("pack"), operation.regions[0]
    if pack == 1:
        return None
    arguments = body.arguments
    body.arguments[:] = [
        value
        for start in range(0, len(arguments), pack)
        for value in reversed(arguments[start : start + pack])
    ]
    return CHANGED


# ---- programs of a grid


def _axes_swapped(operation: Operation, b: Builder) -> Any:
    axis = operation.attribute("axis")
    if axis == 2:
        return None
    operation.attributes["axis"] = 1 - axis
    return CHANGED


def _first_extent(operation: Operation, b: Builder) -> Any:
    if operation.attribute("axis") == 0:
        return None
    operation.attributes["axis"] = 0
    return CHANGED


def _16_bits(operation: Operation, b: Builder) -> Any:
    value = again(operation, b).result
    return b.and_(value, b.constant(value=0xFFFF, result=I32))


def _dropped(operation: Operation, b: Builder) -> Any:
    return ()


def _without_tile(operation: Operation, b: Builder) -> Any:
    tile = next(
        (
            value
            for value in operation.operands
            if isinstance(value.type, TileType) and value.type.numel > 1
        ),
        None,
    )
    if tile is None:
        return None
    operation.replace_operands(
        [value for value in operation.operands if value is not tile], (len(operation.operands) - 1,)
    )
    return CHANGED


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "for-one-too-few",
        "loop bounds",
        "for",
        _one_too_few,
        "a counted loop stops one iteration early",
    ),
    rewriting(
        "for-bounds-signed",
        "integer signedness",
        "for",
        _signed_bounds,
        "unsigned bounds of a loop compared as signed at its start",
    ),
    rewriting(
        "for-results-exchanged",
        "wrong results",
        "for",
        _results_exchanged,
        "two carried values of one type leave the loop in each other's place",
    ),
    rewriting(
        "while-runs-once",
        "loop bounds",
        "while",
        _runs_once_more,
        "a while loop runs its body before it asks its condition",
    ),
    rewriting(
        "if-always-then",
        "wrong branch",
        "if",
        _always_then,
        "an if with results takes the first branch where the condition is false",
    ),
    rewriting(
        "if-results-exchanged",
        "wrong results",
        "if",
        _results_exchanged,
        "two results of one type leave the branch in each other's place",
    ),
    rewriting(
        "reduce-last-lost",
        "off by one",
        "reduce",
        _without_last,
        "a reduction skips the last element along the axis",
    ),
    rewriting(
        "reduce-zero-identity",
        "wrong identity",
        "reduce",
        _zero_among_them,
        "min, max, mul and and reductions start from zero",
    ),
    rewriting(
        "argmax-last",
        "wrong tie",
        "reduce scan",
        _last_of_equals,
        "of equal values the last position counts in place of the first",
    ),
    rewriting(
        "scan-one-behind", "off by one", "scan", _one_behind, "scans are shifted by one element"
    ),
    rewriting(
        "scan-reverse-ignored", "wrong direction", "scan", _forwards, "reverse scans run forwards"
    ),
    rewriting(
        "scan-operands-swapped",
        "swapped operands",
        "scan",
        _later_first,
        "a scan combines the later value with the earlier one",
    ),
    rewriting(
        "map-pack-reversed",
        "bad layout",
        "map",
        _pack_reversed,
        "the elements of a pack are given to the body in reverse",
    ),
    rewriting(
        "program-id-axes-swapped",
        "program ids",
        "program_id",
        _axes_swapped,
        "program_id(0) and program_id(1) in each other's place",
    ),
    rewriting(
        "program-id-16-bits",
        "program ids",
        "program_id",
        _16_bits,
        "program ids wrap around at 65536",
    ),
    rewriting(
        "num-programs-first-axis",
        "program ids",
        "num_programs",
        _first_extent,
        "num_programs returns the first extent on every axis",
    ),
    rewriting("print-lost", "lost output", "print", _dropped, "prints are dropped"),
    rewriting(
        "print-tiles-lost",
        "lost output",
        "print",
        _without_tile,
        "prints leave out a tile among their values",
    ),
    rewriting("assert-lost", "error swallowed", "assert", _dropped, "assertions are not checked"),
    rewriting(
        "assert-mask-ignored",
        "masked lanes",
        "assert",
        mask_lost,
        "assertions hold masked-off lanes to account too",
    ),
)
