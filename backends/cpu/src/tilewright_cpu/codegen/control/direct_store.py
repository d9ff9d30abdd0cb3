"""Direct stores: a loop of dots writes its sums from registers to the kernel's data.

A loop that adds up dots, ``c = dot(a, b, c)`` from zero on, has its accumulator in memory between
the iterations. Its last matmul writes to the kernel's data what a store after the loop would copy
there, if

- the store's value is the loop's result as it is, and nothing between the two has an effect,
- the result's rows are contiguous in memory,
- the store's mask holds for the whole tile, which is known when the kernel runs, and
- no operand that a matmul reads in place overlaps the memory, which is known then, too.

Otherwise the store copies the accumulator as it does after any other loop.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.order import ANY
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.analysis.mask_bounds import bound_of, emit_limit, placed_conjuncts
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_lazy, is_tile
from tilewright_cpu.codegen.context import ZERO, Context, Coordinate, Index, with_coordinate
from tilewright_cpu.codegen.gemm.batched_k import can_be_batched
from tilewright_cpu.codegen.gemm.gemv import MAX_COLUMNS
from tilewright_cpu.codegen.gemm.loop_accumulator import Destination, LoopAccumulator, reach
from tilewright_cpu.codegen.gemm.plan import choose_scheme
from tilewright_cpu.codegen.sanitizer.bounds import is_checked


def accumulates_from_zero(context: Context, loop: For, number: int) -> bool:
    """Return whether a loop-carried tile is zero at first, and then only added to by a dot."""
    argument = loop.body.arguments[number + 1]
    users = list(argument.uses)
    if len(users) != 1 or not isinstance(users[0], Dot) or users[0].c is not argument:
        return False
    dot, hardware = users[0], context.state.hardware
    type_, a = dot.result.type, dot.a.type
    assert isinstance(type_, TileType) and isinstance(a, TileType)
    if type_.rank != 2 or type_.shape[1] <= MAX_COLUMNS or dot.order != ANY:
        return False
    if constant_of(context.resolve(loop.inits[number])) != 0:
        return False
    elements = element_type(dot.a.type), element_type(dot.b.type)
    m, n = type_.shape
    scheme = choose_scheme(*elements, hardware, (m, n, a.shape[1]), dot.precision)
    return not scheme.tiled and can_be_batched(context.analysis, dot)


def open_accumulator(context: Context, loop: For, number: int) -> LoopAccumulator:
    """Write what comes before the loop, and return the state of an accumulator without sums."""
    w = context.writer
    started = w.alloca("i8")
    w.store("i8", "0", started)
    store = _direct_store(context, loop, number)
    destination = None if store is None else _destination(context, store)
    if store is not None and destination is not None:
        context.stored_in_loops[store] = destination.stored
    return LoopAccumulator(started, destination)


def _direct_store(context: Context, loop: For, number: int) -> Store | None:
    """The store of a loop's result as it is, where its addresses are known before the loop."""
    result = loop.results[number]
    users = list(result.uses)
    if len(users) != 1 or not isinstance(users[0], Store):
        return None
    store, analysis = users[0], context.analysis
    if (
        store.value is not result
        or store.parent is not loop.parent
        or not is_tile(store.pointer)
        or is_checked(context, store)
        or not all(_is_known(context, operand) for operand in (store.pointer, store.mask))
    ):
        return None
    begin, end = analysis.end[loop], analysis.start[store]
    between = [each for each, position in analysis.start.items() if begin < position < end]
    if any(operation.spec.effects & ~Effect.NONE for operation in between):
        return None
    if any(analysis.last_use.get(value, -1) > begin for value in context.pending):
        return None
    return store


def _is_known(context: Context, value: Value | None) -> bool:
    """Return whether a value can be evaluated now, with no access to memory."""
    stack = [] if value is None else [value]
    while stack:
        here = context.resolve(stack.pop())
        if not is_tile(here):
            if here not in context.scalars:
                return False
            continue
        operation = here.definition
        if here in context.buffers or operation is None or isinstance(operation, Load):
            return False
        if not is_lazy(operation) or context.analysis.written_by_first_nest(here) is not None:
            return False
        stack.extend(operation.operands)
    return True


def _destination(context: Context, store: Store) -> Destination | None:
    pointer, mask, value = store.pointer, store.mask, store.value
    assert isinstance(value.type, TileType)
    (rows, columns), w = value.type.shape, context.writer
    size = storage_size(element_type(value.type))
    steps = [stride_along(context, pointer, axis) for axis in (0, 1)]
    if steps[0] is None or steps[1] != size:
        return None
    leaves = placed_conjuncts(context, mask, (0, 1)) if mask is not None else []
    bounds = []
    for leaf, axes in leaves:
        moving = [axis for axis in axes if axis is not None and _moves(context, leaf, axes, axis)]
        bound = bound_of(context, leaf, axes, moving[0]) if len(moving) == 1 else None
        if bound is None:
            return None
        bounds.append((bound, moving[0]))
    zeros: Index = (ZERO, ZERO)
    with context.nest():
        base = context.evaluate(pointer, zeros)
        second = context.evaluate(pointer, with_coordinate(zeros, 0, Coordinate("1")))
        start, next_row = (w.emit(f"ptrtoint ptr {text} to i64") for text in (base, second))
        step = w.emit(f"sub i64 {next_row}, {start}")
        whole = "true"
        for bound, axis in bounds:
            extent = (rows, columns)[axis]
            holds = w.emit(f"icmp uge i64 {emit_limit(context, bound, zeros, extent)}, {extent}")
            whole = holds if whole == "true" else w.emit(f"and i1 {whole}, {holds}")
    low, high = reach(w, rows, step)
    flags = w.alloca("i8"), w.alloca("i8")
    for flag in flags:
        w.store("i8", "0", flag)
    return Destination(
        base,
        w.emit(f"sdiv exact i64 {step}, {size}"),
        whole,
        w.emit(f"add i64 {start}, {low}"),
        w.emit(f"add i64 {w.emit(f'add i64 {start}, {high}')}, {columns * size}"),
        *flags,
    )


def _moves(context: Context, leaf: Value, axes: tuple[int | None, ...], axis: int) -> bool:
    return stride_along(context, leaf, axes.index(axis)) != 0
