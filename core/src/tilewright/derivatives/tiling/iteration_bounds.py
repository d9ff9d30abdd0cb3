"""Bounds of a loop as conditions on programs: who runs iteration k.

The loop of program p ends at the minimum of some bounds. One that does not depend on p holds for
all programs. One that is ``c p + d`` with c > 0 holds from ``p = (k - d) / c`` on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.arithmetic import Extremum, ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.table import Effect
from tilewright.ir.types import I32
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.clone import clone_operation


@dataclass(frozen=True, slots=True)
class IterationBounds:
    """The upper bounds of a loop.

    Attributes:
        common: those that do not depend on the program's place along the axis.
        rising: those that rise with it by a constant -> that constant.
        is_complete: whether these are all; else each program asks for itself.
        is_uniform: whether bounds do not depend on places along other axes, nor on memory.
    """

    common: tuple[Value, ...]
    rising: dict[Value, int]
    is_complete: bool
    is_uniform: bool


def iteration_bounds(
    function: Function, loop: For, place: Value, dependent: set[Value]
) -> IterationBounds:
    """Analyze the bounds of a loop.

    Args:
        place: the program's place along the axis.
        dependent: the values that depend on it.
    """
    affine = Affine(function)
    common, rising, is_complete = [], dict[Value, int](), True
    for part in _minima(loop.upper, dependent):
        if part not in dependent:
            common.append(part)
            continue
        slope = _slope(affine, part, place, dependent)
        if slope is None:
            is_complete = False
        else:
            rising[part] = slope
    is_uniform = all(_is_uniform(value, place) for value in (loop.lower, loop.upper, loop.step))
    return IterationBounds(tuple(common), rising, is_complete, is_uniform)


def _minima(upper: Value, dependent: set[Value]) -> list[Value]:
    operation = upper.definition
    if upper in dependent and isinstance(operation, Extremum) and operation.name == "min":
        return [part for operand in operation.operands for part in _minima(operand, dependent)]
    return [upper]


def _slope(affine: Affine, value: Value, place: Value, dependent: set[Value]) -> int | None:
    """Return the positive constant by which a value rises with the place; None if it has none."""
    if value.type is not I32 or not _is_computed(value):
        return None
    (unknown,) = affine.number(place).unknowns()
    slope = 0
    for monomial, factor in affine.number(value).terms:
        if monomial == (unknown,):
            slope = factor
        elif any(_may_depend(affine, number, unknown, dependent) for number in monomial):
            return None
    return slope if slope > 0 else None


def _may_depend(affine: Affine, number: int, place: int, dependent: set[Value]) -> bool:
    if number == place:
        return True
    atom = affine.atom(number)
    if atom.kind == "value":
        return atom.of[0] in dependent
    return any(
        _may_depend(affine, inner, place, dependent)
        for part in atom.of
        if isinstance(part, Polynomial)
        for inner in part.unknowns()
    )


def _is_computed(value: Value) -> bool:
    """Return whether a value is computed by operations on scalars that can be repeated."""
    operation = value.definition
    return operation is None or (
        operation.spec.effects is Effect.NONE
        and not operation.regions
        and all(map(_is_computed, operation.operands))
    )


def _is_uniform(value: Value, place: Value) -> bool:
    """Return whether a value is the same in all programs that have the same place."""
    operation = value.definition
    if value is place or operation is None:
        return True
    if isinstance(operation, ProgramId) or not _is_computed(value):
        return False
    return all(_is_uniform(operand, place) for operand in operation.operands)


def first_program(
    b: Builder, bounds: IterationBounds, index: Value, place: Value, mapping: dict[Value, Value]
) -> Value:
    """Append the first place whose program runs an iteration.

    Args:
        index: the loop's variable in that iteration.
        mapping: values of the kernel -> those at the builder's place.
    """
    zero = b.constant_like(I32, 0)
    first = zero
    for part, slope in bounds.rising.items():
        start = _repeated(b, part, {**mapping, place: zero})
        factor = b.constant_like(I32, slope)
        distance = b.max(b.add(b.sub(index, start), factor), zero)
        first = b.max(first, b.div(distance, factor))
    return first


def _repeated(b: Builder, value: Value, mapping: dict[Value, Value]) -> Value:
    """Append what a value is computed from, as far as it depends on what the mapping has anew."""
    order = dict.fromkeys(_operations_of(value, mapping))
    for operation in order:
        b.insert(clone_operation(operation, mapping))
    return mapping[value]


def _operations_of(value: Value, mapping: dict[Value, Value]) -> Iterable:  # type: ignore[type-arg]
    operation = value.definition
    if value in mapping or operation is None:
        return
    for operand in operation.operands:
        yield from _operations_of(operand, mapping)
    yield operation


__all__ = ["IterationBounds", "first_program", "iteration_bounds"]
