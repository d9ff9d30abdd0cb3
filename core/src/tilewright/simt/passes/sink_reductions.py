"""Sink reductions out of matmul loops: reduce loop-carried sums across threads after the loop.

    for ...:  total = total * factor + sum(x, axis)            (or without a factor)

In every iteration, all threads that hold a row reduce their elements across threads. The factor is
the same for a whole row, so each thread can keep a partial sum:

    for ...:  partial = partial * factor + (sum of the own elements of x);  total = total * factor
    total = total + sum(partial, axis)

The partial sums are a tile as well: of the bits of the coordinate along the axis, the pass reduces
over the bits that registers represent. This changes the order of additions, which the compiler may
choose for a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Binary
from tilewright.ir.ops.control import For, Reduce
from tilewright.ir.order import ANY
from tilewright.ir.types import FloatType, TileType
from tilewright.passes.clone import clone_region
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import result_layout
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, log2
from tilewright.simt.passes.ssa_repair import carry_in_for, yield_more


def sink_reductions(function: Function) -> None:
    """Sink the reductions of sums that matmul loops carry."""
    for loop in operations_of_program(function.body):
        if isinstance(loop, For) and any(
            isinstance(operation, Multiplication) for operation in loop.body
        ):
            for index in range(len(loop.results)):
                found = _carried_sum(loop, index)
                if found is not None:
                    _defer(loop, index, found)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Reduction that a loop adds to a loop-carried value.

    Attributes:
        addition: the ``add`` whose result the loop yields.
        kept: the other operand: the loop-carried value, times ``factor`` if there is one.
        reduction: the reduction whose result is added.
        runs: runs of bits of the coordinate along the reduced axis, highest first: (number
            of bits, whether they are register bits).
    """

    addition: Operation
    kept: Value
    factor: Value | None
    reduction: Reduce
    runs: tuple[tuple[int, bool], ...]


def _carried_sum(loop: For, index: int) -> _Sum | None:
    body = loop.body
    last = body.terminator
    assert last is not None
    argument, result = body.arguments[1 + index], last.operands[index]
    addition = result.definition
    if not isinstance(result.type, TileType) or not isinstance(result.type.element, FloatType):
        return None
    if (
        addition is None
        or addition.name != "add"
        or addition.parent is not body
        or dict(result.uses) != {last: 1}
        or sum(argument.uses.values()) != 1
    ):
        return None
    for kept, added in (addition.operands, reversed(addition.operands)):
        factor = _factor(kept, argument)
        if kept is not argument and factor is None:
            continue
        reduction = added.definition
        if (
            not isinstance(reduction, Reduce)
            or reduction.parent is not body
            or not _is_sum(reduction)
            or dict(added.uses) != {addition: 1}
        ):
            continue
        runs = _runs(layout_of(reduction.inputs[0]), reduction.axis)
        if runs is not None:
            return _Sum(addition, kept, factor, reduction, runs)
    return None


def _factor(kept: Value, argument: Value) -> Value | None:
    """Return the factor that the loop-carried value is multiplied by in ``kept``.

    None unless ``kept`` is such a product with one use.
    """
    product = kept.definition
    if (
        not isinstance(product, Binary)
        or product.name != "mul"
        or argument not in product.operands
        or sum(kept.uses.values()) != 1
    ):
        return None
    return product.b if product.a is argument else product.a


def _is_sum(operation: Reduce) -> bool:
    if len(operation.results) != 1 or operation.order != ANY:
        return False
    region = operation.combine
    add, *rest = region
    return (
        add.name == "add"
        and set(add.operands) == set(region.arguments)
        and len(rest) == 1
        and add.result in rest[0].operands
    )


def _runs(layout: LinearLayout, axis: int) -> tuple[tuple[int, bool], ...] | None:
    """Runs of register bits and of thread bits along an axis.

    None if there are no thread bits, or if a bit does not stand for exactly one register, lane or
    warp bit.
    """
    shift, count = axis_shifts(layout.shape)[axis], log2(layout.shape[axis])
    mask = ((1 << count) - 1) << shift
    kinds: dict[int, bool] = {}
    for images, in_registers in (
        (layout.registers, True),
        (layout.lanes, False),
        (layout.warps, False),
    ):
        for image in images:
            if image & mask:
                bit = image.bit_length() - 1 - shift
                if image != 1 << (bit + shift) or bit in kinds:
                    return None
                kinds[bit] = in_registers
    if len(kinds) < count or all(kinds.values()):
        return None
    runs: list[tuple[int, bool]] = []
    for bit in reversed(range(count)):
        if runs and runs[-1][1] is kinds[bit]:
            runs[-1] = runs[-1][0] + 1, kinds[bit]
        else:
            runs.append((1, kinds[bit]))
    return tuple(runs)


def _defer(loop: For, index: int, found: _Sum) -> None:
    body = loop.body
    last = body.terminator
    assert last is not None
    axis, total = found.reduction.axis, found.addition.results[0]
    partial = _partial(Builder.at(found.reduction), found, axis)
    assert isinstance(partial.type, TileType)

    before = Builder.at(loop)
    zero = before.splat(
        before.constant(value=0.0, result=partial.type.element), result=partial.type
    )
    zero.layout = partial.layout
    carried = carry_in_for(loop, zero)
    builder = Builder.at(found.addition)
    scaled = carried
    if found.factor is not None:
        column = builder.expand_dims(found.factor, axis=axis)
        column.layout = result_layout(column.definition, layout_of(found.factor))
        spread = builder.broadcast(column, result=partial.type)
        spread.layout = partial.layout
        scaled = builder.mul(carried, spread)
        scaled.layout = partial.layout
    summed = builder.add(scaled, partial)
    summed.layout = partial.layout
    yield_more(body, [summed])
    last.set_operand(index, found.kept)
    layout = total.layout
    found.addition.erase()

    after = Builder(loop.parent, loop.next, loop.location)
    kept, parts = loop.results[index], loop.results[-1]
    readers = list(kept.uses)
    reduced = _reduced(after, parts, axis, found.reduction.combine)
    reduced.layout = layout
    whole = after.add(kept, reduced)
    whole.layout = layout
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is kept:
                reader.set_operand(position, whole)
    found.reduction.erase()


def _partial(builder: Builder, found: _Sum, axis: int) -> Value:
    """Reduce a tile over its register bits.

    The result has as many elements along the axis as threads hold a row.
    """
    x = found.reduction.inputs[0]
    assert isinstance(x.type, TileType)
    before, after = x.type.shape[:axis], x.type.shape[axis + 1 :]
    extents = [1 << count for count, _ in found.runs]
    seen = _reshaped(builder, x, (*before, *extents, *after))
    for position in reversed(range(len(extents))):
        if found.runs[position][1]:
            seen = _reduced(builder, seen, axis + position, found.reduction.combine)
            del extents[position]
    threads = 1
    for extent in extents:
        threads *= extent
    return _reshaped(builder, seen, (*before, threads, *after))


def _reshaped(builder: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    assert isinstance(x.type, TileType)
    if x.type.shape == shape:
        return x
    made: Value = builder.reshape(x, result=TileType(shape, x.type.element))
    assert made.definition is not None
    made.layout = result_layout(made.definition, layout_of(x))
    return made


def _reduced(builder: Builder, x: Value, axis: int, region: Region) -> Value:
    assert isinstance(x.type, TileType)
    type_ = TileType((*x.type.shape[:axis], *x.type.shape[axis + 1 :]), x.type.element)
    made = builder.insert(
        Operation(
            TABLE["reduce"],
            [x],
            (1,),
            {"axis": axis},
            [type_],
            [clone_region(region, {})],
            builder.location,
        )
    )
    (result,) = made.results
    result.layout = layout_of(x).without_axis(axis)
    return result
