"""Materialization of tiles: whole ones, and those that the first loop nest to evaluate them keeps.

A kept tile is written by a loop nest that is run for something else; where that loop nest stops
early, the remaining lanes are written when a reader needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tilewright.ir.core import Value
from tilewright.ir.ops.control import For, Reduce, Scan
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.memory import DescriptorStore, Load
from tilewright.ir.ops.shape import ExpandDims, Gather, Histogram, Reshape
from tilewright.ir.types import TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright_cpu.codegen.analysis.mask_bounds import PrefixBound
from tilewright_cpu.codegen.analysis.tiles import is_lazy, is_tile
from tilewright_cpu.codegen.context import Buffer, Context, Index, lane_axis
from tilewright_cpu.codegen.loops.evaluate import as_vector, evaluate, store_strip
from tilewright_cpu.codegen.loops.inner_loop import InnerLoop, version_row
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity

#: All of a tile is written.
NO_ENDS: Final[Mapping[int, str]] = {}

# ---- kept tiles


def begin_fill(plan: NestPlan) -> dict[Value, Buffer]:
    """Buffers for the kept tiles that this loop nest is the first to evaluate."""
    context = plan.context
    for value in plan.fresh:
        assert isinstance(value.type, TileType)
        buffer = context.new_buffer(value.type.shape, value.type.element)
        context.caching[value] = buffer
    return dict(context.caching)


def end_fill(context: Context, filled: dict[Value, Buffer]) -> None:
    for value, buffer in filled.items():
        context.bind_buffer(value, buffer)
        context.pending.pop(value, None)


def complete_partial(plan: NestPlan, leaves: frozenset[Value]) -> None:
    """Write the remaining lanes of kept tiles, unless this nest stops at one of ``leaves`` too."""
    context = plan.context
    if not context.partial:
        return
    wanted = [
        value
        for value in _reached(plan)
        if value in context.partial and context.partial[value].leaf not in leaves
    ]
    for value in wanted:
        partial = context.partial.pop(value)
        buffer = context.buffers[value]
        assert len(buffer.shape) == 1
        writer = context.writer
        loop = writer.begin_loop(partial.start, str(buffer.shape[0]), 1)
        context.store_element(
            buffer, [loop.index], context.constant(buffer.element, partial.number)
        )
        writer.end_loop(loop)


def _reached(plan: NestPlan) -> set[Value]:
    context = plan.context
    stack, seen = [context.resolve(value) for value, _ in plan.roots], set()
    while stack:
        value = stack.pop()
        if value in seen or not is_tile(value):
            continue
        seen.add(value)
        operation = value.definition
        if value not in context.buffers and operation is not None and is_lazy(operation):
            stack.extend(context.resolve(operand) for operand in operation.operands)
    return seen


# ---- writing tiles to memory


def write_rows(
    plan: NestPlan,
    store: Callable[[Index], None],
    *,
    stores_only: bool = False,
    bounded_by: Sequence[PrefixBound] = (),
    ends: Mapping[int, str] = NO_ENDS,
) -> None:
    """Run ``store`` on every strip of a loop nest.

    ``bounded_by`` are the bounds of a store's own mask: beyond the minimum of them nothing is
    written. From ``ends`` on along an axis (i64s) nothing need be written.
    """
    context = plan.context
    filled = begin_fill(plan)
    plan.ends = NO_ENDS if filled else ends

    def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
        store(index)
        # a kept tile that the stored value needs not be in this strip is evaluated all the same
        for value in filled:
            evaluate(context, value, index)
        return ()

    for index in plan.rows():

        def write(index: Index = index) -> list[tuple[str, str]]:
            lanes = InnerLoop(plan, index, body)
            stop = plan.ends.get(plan.lane)
            limit = lanes.limit() if plan.lane >= 0 else None
            if not filled:
                for bound in bounded_by:
                    own = context.limits[(bound.leaf, bound.axis)]
                    stop = (
                        own
                        if stop is None
                        else context.writer.intrinsic(
                            "llvm.umin", "i64", [("i64", stop), ("i64", own)]
                        )
                    )
            lanes.run(stop, limit)
            return []

        version_row(plan, index, write, stores_only and not filled)
    context.caching = {}
    end_fill(context, filled)


def materialize(context: Context, value: Value) -> Buffer:
    """See :meth:`~tilewright_cpu.codegen.context.Context.materialize`."""
    value = context.resolve(value)
    buffer = context.buffers.get(value)
    if buffer is not None:
        if value in context.partial:
            complete_partial(
                NestPlan(context, buffer.shape, [(value, identity(len(buffer.shape)))]), frozenset()
            )
        return buffer
    type_ = value.type
    assert isinstance(type_, TileType), value
    operation = value.definition
    if isinstance(operation, Reshape | ExpandDims | Hint):
        source = materialize(context, operation.x)
        buffer = Buffer(source.pointer, type_.shape, type_.element)
        context.bind_buffer(value, buffer)
        return buffer
    assert not context.scopes, "a tile is put into memory in the middle of a nest"
    buffer = reusable_buffer(context, value, type_)
    if buffer is None:
        buffer = context.new_buffer(type_.shape, type_.element)
    context.analysis.drop_kept(value)
    materialize_into(context, value, buffer)
    context.bind_buffer(value, buffer)
    context.pending.pop(value, None)
    return buffer


def materialize_into(
    context: Context,
    value: Value,
    buffer: Buffer,
    ends: Mapping[int, str] = NO_ENDS,
    *,
    brief: bool = False,
) -> None:
    """Evaluate a tile into a buffer, along an axis up to its ``ends`` (an i64).

    The tile may read the buffer itself, at the same coordinates only. ``brief``: in as little code
    as may be, where the target's instructions take masks.
    """
    value = context.resolve(value)
    source = context.buffers.get(value)
    if source is not None:
        if source.pointer != buffer.pointer:
            copy_buffer(context, materialize(context, value), buffer)
        return
    axes = identity(len(buffer.shape))
    plan = NestPlan(context, buffer.shape, [(value, axes)], target=buffer)
    if brief and context.state.hardware.can("mask"):
        plan.without_versions()
    complete_partial(plan, frozenset())
    with context.nest():
        write_rows(plan, lambda index: store_to_buffer(context, buffer, value, index), ends=ends)


def store_to_buffer(context: Context, buffer: Buffer, value: Value, index: Index) -> None:
    lane = lane_axis(index)
    text = as_vector(context, value, index, index[lane].width if lane >= 0 else 0)
    store_strip(context, buffer.pointer, buffer.strides, buffer.element, index, text)


def copy_buffer(context: Context, source: Buffer, target: Buffer) -> None:
    """Copy a tile of the same shape and element."""
    size = source.numel * storage_size(source.element)
    writer = context.writer
    strip = context.state.hardware.vector_bytes
    if size < strip or size % strip:
        writer.call(
            "llvm.memcpy.p0.p0.i64",
            "void",
            [("ptr", target.pointer), ("ptr", source.pointer), ("i64", str(size)), ("i1", "false")],
        )
        return
    with writer.loop("0", str(size), strip, nonempty=True) as loop:
        raw = writer.load(
            f"<{strip} x i8>",
            writer.gep("i8", source.pointer, loop.index),
            64 if strip == 64 else 16,
        )
        writer.store(
            f"<{strip} x i8>",
            raw,
            writer.gep("i8", target.pointer, loop.index),
            64 if strip == 64 else 16,
        )


def clear_buffer(context: Context, buffer: Buffer) -> None:
    """Fill a tile with zeros."""
    size, writer = buffer.numel * storage_size(buffer.element), context.writer
    strip = context.state.hardware.vector_bytes
    while size % strip:
        strip //= 2
    with writer.loop("0", str(size), strip, nonempty=True) as loop:
        writer.store(
            f"<{strip} x i8>", "zeroinitializer", writer.gep("i8", buffer.pointer, loop.index), 1
        )


def buffers_read(context: Context, value: Value) -> Iterator[tuple[Value, Buffer, bool]]:
    """Tiles in memory that evaluating a tile reads, with their buffers.

    A flag says whether the buffer is read at the evaluated coordinates only.
    """
    stack: list[tuple[Value, bool]] = [(value, True)]
    seen: set[tuple[Value, bool]] = set()
    while stack:
        here, same = stack.pop()
        here = context.resolve(here)
        if (here, same) in seen or not isinstance(here.type, TileType):
            continue
        seen.add((here, same))
        buffer = context.buffers.get(here)
        if buffer is not None:
            yield here, buffer, same
            continue
        operation = here.definition
        if operation is None or not is_lazy(operation):
            continue
        keeps = operation.spec.elementwise or isinstance(operation, Load | Hint)
        stack.extend((operand, same and keeps) for operand in operation.operands)


def reusable_buffer(context: Context, value: Value, type_: TileType) -> Buffer | None:
    """A buffer that ``value`` reads last, at its own coordinates only, to be written over."""
    analysis, position = context.analysis, context.position
    size = storage_size(type_.element)
    candidates: dict[Value, Buffer] = {}
    refused: set[str] = set()
    for here, buffer, same in buffers_read(context, value):
        assert isinstance(here.type, TileType)
        if same and here.type.shape == type_.shape and storage_size(here.type.element) == size:
            candidates[here] = buffer
        else:
            refused.add(buffer.pointer)
    for here, buffer in candidates.items():
        if (
            buffer.pointer in refused
            or analysis.last_use.get(here, -1) > position
            or context.is_borrowed(buffer)
        ):
            continue
        if any(
            other is not here and analysis.last_use.get(other, -1) >= position
            for other in context.holders(buffer)
        ):
            continue
        reader = context.operation
        if reader is not None:
            others = [context.resolve(operand) for operand in reader.operands]
            if others.count(value) > 1 or any(
                other is not value and analysis.reaches(other, here) for other in others
            ):
                continue
            if not (reader.spec.elementwise or isinstance(reader, _SINGLE_NEST)):
                continue
        return Buffer(buffer.pointer, type_.shape, type_.element)
    return None


#: Operations that evaluate each operand once, in one loop nest, as elementwise ones do: an operand
#: may be written over what it reads.
_SINGLE_NEST: Final = (Dot, DotScaled, Reduce, Scan, For, Histogram, Gather, DescriptorStore)


def settle(context: Context, value: Value) -> None:
    """Materialize every kept tile that ``value`` is computed from.

    This comes before code that evaluates the value on one path only.
    """
    stack, seen = [context.resolve(value)], set()
    while stack:
        here = context.resolve(stack.pop())
        if here in seen or here in context.buffers or not is_tile(here):
            continue
        seen.add(here)
        if context.analysis.written_by_first_nest(here) is not None:
            materialize(context, here)
            continue
        operation = here.definition
        if operation is not None and is_lazy(operation):
            stack.extend(operation.operands)
