"""Loads and stores, and the order between them.

A load of a tile is evaluated where it is read. Before something writes memory, every earlier load
that is still to be read afterwards is put into a buffer. Within the loop nest of one store, a load
is read strip by strip just before the strip is stored: that is as good as reading it all first
where both go through the same pointers, or where their addresses do not meet, which is checked when
the kernel runs (:mod:`.alias_check`). Otherwise the load is put into a buffer first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Barrier, Load, Store
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilewright.ir.types import I1, TileType, element_type
from tilewright.llvm.emission.registers import constant, storage_size, storage_type, vector_type
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright_cpu.codegen.analysis.contiguity import assuming, consecutive_sources
from tilewright_cpu.codegen.analysis.mask_bounds import (
    PrefixBound,
    bound_of,
    emit_limit,
    placed_conjuncts,
)
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_lazy, is_tile
from tilewright_cpu.codegen.context import (
    ZERO,
    Context,
    Coordinate,
    Index,
    Strided,
    lane_axis,
    with_coordinate,
)
from tilewright_cpu.codegen.loops.evaluate import (
    all_true,
    as_vector,
    evaluate,
    masked_store,
    scatter,
    strip_address,
)
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.loops.materialize import (
    complete_partial,
    materialize,
    settle,
    store_to_buffer,
    write_rows,
)
from tilewright_cpu.codegen.ops.alias_check import copy_overlapping, is_comparable, plan_copies
from tilewright_cpu.codegen.sanitizer.bounds import checked_address, checked_strip, is_checked

# ---- order


def before_write(context: Context, operation: Operation, later: Sequence[Store] = ()) -> None:
    """Put loads into memory that ``operation`` could write over before they are read.

    ``later`` are the stores that follow at once.
    """
    context.compared = []
    if not context.pending:
        return
    position, end = context.position, context.analysis.end[operation]
    for value in list(context.pending):
        last = context.analysis.last_use.get(value, -1)
        if value in context.buffers or last < position:
            del context.pending[value]
        elif (
            last > end
            or any(
                context.analysis.reaches(operand, value)
                for store in later
                for operand in store.operands
            )
            or not isinstance(operation, Store)
            or not reads_by_strips(context, operation, value)
        ):
            materialize(context, value)
        elif not is_in_place(context, operation, value):
            if _is_comparable(context, operation, value):
                context.compared.append(value)
            else:
                materialize(context, value)


def reads_by_strips(context: Context, store: Store, load: Value) -> bool:
    """Return whether the store's loop nest reads each element of ``load`` only for its own."""
    stack: list[tuple[Value, bool]] = [(operand, True) for operand in store.operands]
    seen: set[tuple[Value, bool]] = set()
    while stack:
        value, same = stack.pop()
        value = context.resolve(value)
        if (value, same) in seen or not is_tile(value):
            continue
        seen.add((value, same))
        if value is load and not same:
            return False
        operation = value.definition
        if value in context.buffers or operation is None or not is_lazy(operation):
            continue
        keeps = same and (operation.spec.elementwise or isinstance(operation, Load))
        stack.extend((operand, keeps) for operand in operation.operands)
    return True


def is_in_place(context: Context, store: Store, load: Value) -> bool:
    """Return whether a load and a store go through the same pointers, each to another element."""
    definition, other = load.definition, store.pointer
    assert isinstance(definition, Load)
    if context.resolve(definition.pointer) is not context.resolve(other):
        return False
    return all(
        stride_along(context, other, axis) not in (0, None)
        for axis in range(other.type.rank)  # type: ignore[attr-defined]
        if other.type.shape[axis] > 1  # type: ignore[attr-defined]
    )


def _is_comparable(context: Context, store: Store, load: Value) -> bool:
    """Return whether the addresses of a load and a store can be compared when the kernel runs."""
    definition, pointer = load.definition, store.pointer
    assert isinstance(definition, Load)
    if (
        not isinstance(pointer.type, TileType)
        or definition.pointer.type.shape != pointer.type.shape  # type: ignore[attr-defined]
    ):
        return False
    return is_comparable(context, definition.pointer) and is_comparable(context, pointer)


def lower_barrier(context: Context, operation: Barrier) -> None:
    """``barrier``: one thread runs a program, in order, and loads are read before later stores."""


# ---- stores


def lower_store(context: Context, operation: Store) -> None:
    """``store``, unless the loop of the value has stored it."""
    stored = context.stored_in_loops.get(operation)
    if stored is None:
        _store(context, operation)
        return
    writer = context.writer
    with (
        writer.when(writer.emit(f"icmp eq i8 {writer.load('i8', stored)}, 0")),
        context.on_one_way(),
    ):
        _store(context, operation)


def _store(context: Context, operation: Store) -> None:
    if not is_tile(operation.pointer):
        _store_scalar(context, operation, operation.pointer, operation.value, operation.mask)
        return
    copies = plan_copies(context) if context.compared else []
    plan, stopping = plan_stores(context, [operation])
    if copies:
        copy_overlapping(context, operation, plan.lane, copies)
    write_stores(context, [operation], plan, stopping)
    context.copies = {}


def plan_stores(
    context: Context, stores: Sequence[Store]
) -> tuple[NestPlan, Sequence[PrefixBound]]:
    """Plan the loop nest of stores of tiles of one shape with one mask, and find what ends it."""
    first = stores[0].pointer.type
    assert isinstance(first, TileType)
    axes = identity(first.rank)
    roots = [(operand, axes) for store in stores for operand in store.operands]
    plan = NestPlan(context, first.shape, roots, stores[0].mask)
    plan.accesses.extend(stores)
    stopping = [bound for bound in plan.bounds if bound.leaf in plan.store_conditions]
    complete_partial(
        plan, frozenset() if plan.fresh else frozenset(bound.leaf for bound in stopping)
    )
    return plan, stopping


def write_stores(
    context: Context, stores: Sequence[Store], plan: NestPlan, stopping: Sequence[PrefixBound]
) -> None:
    """Write the loop nest that :func:`plan_stores` planned."""
    writer = context.writer

    def store_all(index: Index) -> None:
        # a strip is read for all stores before the first writes it
        for store in stores[1:]:
            evaluate(context, store.value, index)
        for store in stores:
            if context.lines is not None:
                writer.mark = context.lines.mark(store.location)
            _store_at(context, store, index)

    with context.nest():
        write_rows(plan, store_all, stores_only=True, bounded_by=stopping)


def _store_at(context: Context, operation: Store, index: Index) -> None:
    """Store a strip."""
    writer = context.writer
    pointer, value, mask = operation.pointer, operation.value, operation.mask
    element = element_type(value.type)
    size, stored = storage_size(element), storage_type(element)
    lane = lane_axis(index)
    width = index[lane].width if lane >= 0 else 0
    guard = None if mask is None else as_vector(context, mask, index, width)
    if guard is not None and all_true(guard):
        guard = None
    text = as_vector(context, value, index, width)
    if element is I1:
        text = writer.emit(
            f"zext {vector_type(I1, width)} {text} to {f'<{width} x i8>' if width else 'i8'}"
        )
    address, consecutive = strip_address(context, pointer, index, lane, size)
    address, guard = checked_strip(context, operation, index, size, address, consecutive, guard)
    if not width:
        if guard is not None:
            address = writer.emit(f"select i1 {guard}, ptr {address}, ptr {context.dummy_store}")
        writer.store(stored, text, address, size)
    elif not consecutive:
        scatter(context, text, address, stored, width, size, guard or constant(I1, True, width))
    elif guard is None:
        writer.store(f"<{width} x {stored}>", text, address, size)
    else:
        masked_store(context, address, text, stored, width, size, guard)


def _store_scalar(
    context: Context, operation: Store, pointer: Value, value: Value, mask: Value | None
) -> None:
    writer, element = context.writer, value.type
    text, address = context.scalar(value), context.scalar(pointer)
    if element is I1:
        text = writer.emit(f"zext i1 {text} to i8")
    size = storage_size(element)
    with writer.when(context.scalar(mask)) if mask is not None else nullcontext():
        writer.store(
            storage_type(element), text, checked_address(context, operation, address, size), size
        )


# ---- loads


def lower_load(context: Context, operation: Load) -> None:
    """``load`` of a scalar; of a tile if it is volatile (other tiles are lazy)."""
    (result,) = operation.results
    if is_tile(result):
        _load_now(context, operation, result)
        return
    writer, element = context.writer, result.type
    mask, other = operation.mask, operation.other
    address = context.scalar(operation.pointer)
    guard = None if mask is None else context.scalar(mask)
    address = checked_address(context, operation, address, storage_size(element), guard)
    if guard is not None:
        address = writer.emit(f"select i1 {guard}, ptr {address}, ptr {context.dummy}")
    volatile = "volatile " if operation.volatile else ""
    text = writer.emit(
        f"load {volatile}{storage_type(element)}, ptr {address}, align {storage_size(element)}"
    )
    if element is I1:
        text = writer.emit(f"icmp ne i8 {text}, 0")
    if guard is not None and other is not None:
        type_ = context.llvm_type(element)
        text = writer.emit(f"select i1 {guard}, {type_} {text}, {type_} {context.scalar(other)}")
    context.bind_scalar(result, text)


def _load_now(context: Context, operation: Load, result: Value) -> None:
    """A volatile load of a tile: read once, here."""
    assert isinstance(result.type, TileType)
    buffer = context.new_buffer(result.type.shape, result.type.element)
    plan = NestPlan(
        context, result.type.shape, [(result, identity(result.type.rank))], volatile=True
    )
    complete_partial(plan, frozenset())
    with context.nest():
        write_rows(plan, lambda index: store_to_buffer(context, buffer, result, index))
    context.bind_buffer(result, buffer)


# ---- reading in place


def in_place(context: Context, value: Value) -> Strided | None:
    """See :meth:`~tilewright_cpu.codegen.context.Context.in_place`."""
    value = context.resolve(value)
    type_ = value.type
    assert isinstance(type_, TileType)
    buffer = context.buffers.get(value)
    if buffer is not None:
        if value in context.partial:
            materialize(context, value)
        return Strided(
            buffer.pointer,
            tuple(
                "0" if extent == 1 else str(stride)
                for extent, stride in zip(buffer.shape, buffer.strides, strict=True)
            ),
            buffer.element,
        )
    operation = value.definition
    if operation is None or context.analysis.written_by_first_nest(value) is not None:
        return None
    match operation:
        case Permute():
            inner = in_place(context, operation.x)
            return (
                None
                if inner is None
                else Strided(
                    inner.pointer,
                    tuple(inner.strides[axis] for axis in operation.order),
                    inner.element,
                    inner.valid,
                )
            )
        case ExpandDims():
            inner, axis = in_place(context, operation.x), operation.axis
            return (
                None
                if inner is None
                else Strided(
                    inner.pointer,
                    (*inner.strides[:axis], "0", *inner.strides[axis:]),
                    inner.element,
                    inner.valid,
                )
            )
        case Broadcast() | Hint():
            return in_place(context, operation.x)
        case Reshape():
            source = operation.x.type
            assert isinstance(source, TileType)
            mapped = unit_reshape(source.shape, type_.shape)
            inner = in_place(context, operation.x) if mapped is not None else None
            if inner is None or mapped is None:
                return None
            strides = ["0"] * type_.rank
            for axis, target in mapped.items():
                strides[target] = inner.strides[axis]
            return Strided(inner.pointer, tuple(strides), inner.element, inner.valid)
        case Load() if not operation.volatile and type_.element is not I1:
            return _load_in_place(context, operation, type_)
    return None


def _load_in_place(context: Context, operation: Load, type_: TileType) -> Strided | None:
    if is_checked(context, operation):
        return None
    pointer = operation.pointer
    size = storage_size(type_.element)
    wrapping = consecutive_sources(context, pointer)
    with assuming(context, wrapping):
        axis_strides = [stride_along(context, pointer, axis) for axis in range(type_.rank)]
    if any(step is None or (isinstance(step, int) and step % size) for step in axis_strides):
        return None
    mask = operation.mask
    leaves = placed_conjuncts(context, mask, identity(type_.rank)) if mask is not None else []
    bounds: list[tuple[PrefixBound, int]] = []
    flags: list[Value] = []
    for leaf, axes in leaves:
        moving = [
            axis
            for axis in axes
            if axis is not None and stride_along(context, leaf, axes.index(axis)) != 0
        ]
        if leaf in context.buffers:
            return None
        if not moving:
            flags.append(leaf)
            continue
        bound = bound_of(context, leaf, axes, moving[0]) if len(moving) == 1 else None
        if bound is None:
            return None
        bounds.append((bound, moving[0]))
    # a reader may evaluate the tile on one way only, where it is not valid in place
    settle(context, operation.results[0])
    writer = context.writer
    zeros: Index = (ZERO,) * type_.rank
    with context.nest():
        base = evaluate(context, pointer, zeros)
        strides = []
        for axis, step in enumerate(axis_strides):
            if isinstance(step, int):
                strides.append(str(step // size))
                continue
            second = evaluate(context, pointer, with_coordinate(zeros, axis, Coordinate("1")))
            a, b = (writer.emit(f"ptrtoint ptr {text} to i64") for text in (second, base))
            distance = writer.emit(f"sub i64 {a}, {b}")
            strides.append(
                writer.emit(f"sdiv exact i64 {distance}, {size}") if size > 1 else distance
            )
        valid = "true"
        for value in wrapping:
            text = context.consecutive[value]
            valid = text if valid == "true" else writer.emit(f"and i1 {valid}, {text}")
        for flag in flags:
            text = evaluate(context, flag, (ZERO,) * flag.type.rank)  # type: ignore[attr-defined]
            valid = text if valid == "true" else writer.emit(f"and i1 {valid}, {text}")
        for bound, axis in bounds:
            limit = emit_limit(context, bound, zeros, type_.shape[axis])
            text = writer.emit(f"icmp uge i64 {limit}, {type_.shape[axis]}")
            valid = text if valid == "true" else writer.emit(f"and i1 {valid}, {text}")
    return Strided(base, tuple(strides), type_.element, valid)


LOWERINGS = {"store": lower_store, "load": lower_load, "barrier": lower_barrier}
