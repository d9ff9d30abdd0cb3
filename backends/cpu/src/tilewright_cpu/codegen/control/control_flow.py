"""Control flow: loops and branches. Scalars are carried as phis, tiles in buffers.

A carried tile's buffer holds the value of the iteration at hand; the yielded tile is evaluated into
it, in place where it reads the old value at its own coordinates only. What reads a buffer that
another carried tile is about to overwrite goes first, or through a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Constant, NumPrograms, ProgramId, Select
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.types import F64, I64, DescriptorType, IntType, TileType, element_type
from tilewright.llvm.emission.elementwise import emit_operation
from tilewright.llvm.emission.registers import constant, register_type, storage_size, vector_type
from tilewright.llvm.emission.writer import BasicBlock
from tilewright_cpu.codegen.analysis.tiles import PARTIAL_SUM_GROUPS, Induction, PartialSum, is_tile
from tilewright_cpu.codegen.context import ZERO, Buffer, Context, Index
from tilewright_cpu.codegen.control.cancellation import CancellationCheck
from tilewright_cpu.codegen.control.direct_store import accumulates_from_zero, open_accumulator
from tilewright_cpu.codegen.control.region import lower_region
from tilewright_cpu.codegen.control.scalar_operands import (
    bind_parts,
    part_types,
    parts,
    rename,
    typed_parts,
)
from tilewright_cpu.codegen.gemm.remainder import accumulator_ends
from tilewright_cpu.codegen.loops.evaluate import as_vector, evaluate
from tilewright_cpu.codegen.loops.inner_loop import InnerLoop
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.loops.materialize import (
    NO_ENDS,
    begin_fill,
    buffers_read,
    clear_buffer,
    complete_partial,
    copy_buffer,
    end_fill,
    materialize_into,
    reusable_buffer,
)
from tilewright_cpu.codegen.ops.reduce import Known, skippable
from tilewright_cpu.codegen.state.partial_sums import PartialSumState

# ---- carried tiles


def first_buffer(context: Context, operation: Operation, init: Value, argument: Value) -> Buffer:
    """A buffer with a carried tile's first value, owned by the loop ``operation``."""
    init = context.resolve(init)
    type_ = argument.type
    assert isinstance(type_, TileType)
    buffer = context.take_buffer(init)
    if buffer is None:
        if init not in context.buffers:
            buffer = reusable_buffer(context, init, type_)
        if buffer is None:
            buffer = context.new_buffer(type_.shape, type_.element)
        materialize_into(
            context,
            init,
            buffer,
            accumulator_ends(context, operation, argument)
            if isinstance(operation, For)
            else NO_ENDS,
        )
    context.reserve(buffer, context.analysis.end[operation])
    context.bind_buffer(argument, buffer)
    return buffer


def _reads(context: Context, value: Value) -> dict[str, bool]:
    """The memory that evaluating a tile reads: buffer -> only at its own coordinates."""
    found: dict[str, bool] = {}
    for _, buffer, same in buffers_read(context, value):
        size_fits = isinstance(value.type, TileType) and storage_size(
            value.type.element
        ) == storage_size(buffer.element)
        found[buffer.pointer] = found.get(buffer.pointer, True) and same and size_fits
    return found


def assign(context: Context, pairs: Sequence[tuple[Value, Buffer]]) -> None:
    """Evaluate each value into its buffer, all as if at once."""
    waiting: list[_Assignment] = []
    for value, buffer in pairs:
        value = context.resolve(value)
        own = context.buffers.get(value)
        if own is not None and own.pointer == buffer.pointer:
            continue
        waiting.append((value, buffer, _reads(context, value)))
    while waiting:
        ready = next((item for item in waiting if _can_overwrite(item, waiting)), None)
        if ready is not None:
            waiting.remove(ready)
            _put(context, ready[0], ready[1])
            continue
        # something must be moved aside: not what is there already, which others may still hold up
        position = next(
            position for position, item in enumerate(waiting) if not isinstance(item[0], Buffer)
        )
        blocked, buffer, _ = waiting[position]
        aside = context.new_buffer(buffer.shape, buffer.element)
        _put(context, blocked, aside)
        waiting[position] = (aside, buffer, {aside.pointer: True})


_Assignment = tuple[Value | Buffer, Buffer, dict[str, bool]]


def _can_overwrite(item: _Assignment, waiting: Sequence[_Assignment]) -> bool:
    """Return whether an assignment may overwrite its buffer now.

    It may where no other assignment still reads the buffer, nor the assignment itself at other
    coordinates.
    """
    target = item[1].pointer
    return item[2].get(target, True) and not any(
        target in other[2] for other in waiting if other is not item
    )


def _put(context: Context, value: Value | Buffer, buffer: Buffer) -> None:
    if isinstance(value, Buffer):
        copy_buffer(context, value, buffer)
    else:
        materialize_into(context, value, buffer)


# ---- for


def _add_to_partial_sums(
    context: Context, partial_sum: PartialSum, groups: list[str], width: int
) -> list[str]:
    """Add a tile to partial sums in vector registers."""
    type_ = partial_sum.term.type
    assert isinstance(type_, TileType)
    plan = NestPlan(context, type_.shape, [(partial_sum.term, identity(1))], lane=0)
    plan.width = width
    combination = Known(context, partial_sum.addition, type_.element)
    skip = (
        None
        if plan.fresh or plan.row_conditions
        else skippable(plan, partial_sum.term, combination)
    )
    if skip is not None and skip[1].conditions:
        skip = None
    plan.row_conditions = []
    complete_partial(plan, frozenset() if skip is None else frozenset((skip[0].leaf,)))
    vector = vector_type(type_.element, width)
    with context.nest():
        filled = begin_fill(plan)

        def body(index: Index, values: list[str], copy: int) -> Sequence[str]:
            text = as_vector(context, partial_sum.term, index, width)
            for value in filled:
                evaluate(context, value, index)
            return combination.combine(values, [text], width)

        lanes = InnerLoop(plan, (ZERO,), body, [(vector, "")])
        limit = lanes.limit()
        stop = context.limits[(skip[0].leaf, skip[0].axis)] if skip is not None else None
        lanes.initial = [[group] for group in groups]
        after = lanes.run(stop, limit)
        end_fill(context, filled)
    return [group[0] for group in after]


def lower_for(context: Context, operation: For) -> None:
    """``for``."""
    writer, analysis = context.writer, context.analysis
    body = operation.body
    counter = operation.lower.type
    assert isinstance(counter, IntType)
    inits = operation.inits
    arguments = body.arguments[1:]
    lower, upper, step = (
        _widened(context, value) for value in (operation.lower, operation.upper, operation.step)
    )
    inductions = analysis.inductions.get(operation, {})
    partial_sums = analysis.partial_sums.get(operation, {})
    carried: list[tuple[str, str]] = []
    buffers: dict[int, Buffer] = {}
    groups: dict[int, int] = {}
    for number, (init, argument) in enumerate(zip(inits, arguments, strict=True)):
        if number in inductions:
            carried.append((register_type(inductions[number].inside.type), "0"))
        elif argument in analysis.replaced:
            continue
        elif not is_tile(argument):
            carried.extend(typed_parts(context, init))
        elif number in partial_sums:
            width = _partial_sum_width(context, argument)
            element = element_type(argument.type)
            groups[number] = len(carried)
            carried.extend(
                [(vector_type(element, width), constant(element, 0.0, width))] * PARTIAL_SUM_GROUPS
            )
        elif accumulates_from_zero(context, operation, number):
            runs = writer.emit(f"icmp {'slt' if counter.signed else 'ult'} i64 {lower}, {upper}")
            buffers[number] = _accumulator_buffer(context, operation, number, runs)
        else:
            buffers[number] = first_buffer(context, operation, init, argument)
    if counter.bits == 64 and step != "1":
        # the step after the last one could pass the end of 64 bits: count the iterations
        loop = writer.begin_loop(
            "0", _trip_count(context, lower, upper, step, counter.signed), 1, carried, signed=False
        )
        index = writer.emit(f"add i64 {lower}, {writer.emit(f'mul i64 {loop.index}, {step}')}")
    else:
        loop = writer.begin_loop(lower, upper, step, carried, signed=counter.signed)
        index = loop.index
    index = (
        index if counter.bits == 64 else writer.emit(f"trunc i64 {loop.index} to i{counter.bits}")
    )
    context.bind_scalar(body.arguments[0], index)
    context.loops[operation] = loop
    names = iter(loop.values)
    for number, argument in enumerate(arguments):
        if number in inductions:
            context.bind_scalar(inductions[number].inside, next(names))
        elif argument in analysis.replaced:
            continue
        elif not is_tile(argument):
            bind_parts(context, argument, names)
        elif number in partial_sums:
            for _ in range(PARTIAL_SUM_GROUPS):
                next(names)

    following: list[str] = []

    def finish(terminator: Operation) -> None:
        pairs: list[tuple[Value, Buffer]] = []
        for number, value in enumerate(terminator.operands):
            if number in inductions:
                following.append(_moved(context, inductions[number]))
            elif arguments[number] in analysis.replaced:
                continue
            elif not is_tile(value):
                following.extend(parts(context, value))
            elif number in partial_sums:
                start = groups[number]
                width = _partial_sum_width(context, arguments[number])
                following.extend(
                    _add_to_partial_sums(
                        context,
                        partial_sums[number],
                        loop.values[start : start + PARTIAL_SUM_GROUPS],
                        width,
                    )
                )
            else:
                pairs.append((value, buffers[number]))
        assign(context, pairs)

    lower_region(context, body, finish)
    results = iter(writer.end_loop(loop, following))
    for number, result in enumerate(operation.results):
        if number in inductions:
            context.bind_scalar(inductions[number].after, next(results))
        elif arguments[number] in analysis.replaced:
            continue
        elif not is_tile(result):
            bind_parts(context, result, results)
        elif number in partial_sums:
            state = PartialSumState(
                element_type(result.type),
                _partial_sum_width(context, result),
                [next(results) for _ in range(PARTIAL_SUM_GROUPS)],
            )
            context.partial_sums[result] = state
        else:
            context.bind_buffer(result, buffers[number])


def _accumulator_buffer(context: Context, loop: For, number: int, runs: str) -> Buffer:
    """The buffer of a carried tile that dots add up from zero, cleared unless the loop ``runs``."""
    argument, writer = loop.body.arguments[number + 1], context.writer
    type_ = argument.type
    assert isinstance(type_, TileType)
    buffer = context.new_buffer(type_.shape, type_.element)
    context.reserve(buffer, context.analysis.end[loop])
    context.bind_buffer(argument, buffer)
    context.loop_accumulators[argument] = open_accumulator(context, loop, number)
    with writer.when(writer.emit(f"xor i1 {runs}, true")):
        clear_buffer(context, buffer)
    return buffer


def _partial_sum_width(context: Context, value: Value) -> int:
    return context.state.hardware.vector_bytes // (8 if element_type(value.type) is F64 else 4)


def _widened(context: Context, value: Value) -> str:
    """A loop bound as i64, so that the counter does not overflow."""
    text, type_ = context.scalar(value), value.type
    assert isinstance(type_, IntType)
    if type_.bits == 64 or not text.startswith("%"):
        return (
            text if type_.signed or not text.startswith("-") else str(int(text) % (1 << type_.bits))
        )
    return context.writer.emit(
        f"{'sext' if type_.signed else 'zext'} {context.llvm_type(type_)} {text} to i64"
    )


def _trip_count(context: Context, lower: str, upper: str, step: str, signed: bool) -> str:
    """Trip count of a loop with i64 bounds, as an unsigned number."""
    writer = context.writer
    distance = writer.emit(f"sub i64 {upper}, {lower}")
    steps = writer.emit(
        f"udiv i64 {writer.emit(f'sub i64 {distance}, 1')}, "
        f"{writer.intrinsic('llvm.umax', 'i64', [('i64', step), ('i64', '1')])}"
    )
    runs = writer.emit(f"icmp {'slt' if signed else 'ult'} i64 {lower}, {upper}")
    return writer.emit(f"select i1 {runs}, i64 {writer.emit(f'add i64 {steps}, 1')}, i64 0")


def _moved(context: Context, induction: Induction) -> str:
    """The scalar of a carried tile that moves by a uniform step, in the next iteration."""
    writer = context.writer
    step = context.resolve(induction.step)
    if is_tile(step):
        assert isinstance(step.type, TileType)
        NestPlan(context, step.type.shape, [(step, identity(step.type.rank))])
        with context.nest():
            text = evaluate(context, step, (ZERO,) * step.type.rank)
    else:
        text = context.scalar(step)
    target, source = induction.inside.type, element_type(step.type)
    if target is I64 and source is not I64:
        text = context.convert(text, source, I64)
    return writer.emit(
        f"{'sub' if induction.subtract else 'add'} {register_type(target)} "
        f"{context.scalar(induction.inside)}, {text}"
    )


# ---- while


def lower_while(context: Context, operation: While) -> None:
    """``while``."""
    writer = context.writer
    before, after = operation.before, operation.after
    firsts = [
        pair
        for init in operation.operands
        if not is_tile(init)
        for pair in typed_parts(context, init)
    ]
    buffers: dict[Value, Buffer] = {}
    for init, argument in zip(operation.operands, before.arguments, strict=True):
        if is_tile(argument):
            buffers[argument] = first_buffer(context, operation, init, argument)
    entry = writer.current
    header, body, leave = (
        writer.new_block("while"),
        writer.new_block("do"),
        writer.new_block("done"),
    )
    polls = CancellationCheck(context, operation)
    writer.branch(header)
    writer.place(header)
    phis = [writer.fresh("c") for _ in firsts]
    names = iter(phis)
    for argument in before.arguments:
        if not is_tile(argument):
            bind_parts(context, argument, names)
    header.lines.extend([""] * len(phis))
    polls.open(header)
    forwarded: list[Buffer | None] = []

    def decide(terminator: Operation) -> None:
        assert isinstance(terminator, Condition)
        values = terminator.values
        pairs: list[tuple[Value, Buffer]] = []
        for value, result in zip(values, operation.results, strict=True):
            if not is_tile(value):
                rename(context, result, value)
                forwarded.append(None)
                continue
            assert isinstance(result.type, TileType)
            own = context.buffers.get(context.resolve(value))
            carried = {buffer.pointer for buffer in buffers.values()}
            if own is not None and own.pointer in carried:
                forwarded.append(own)
                continue
            buffer = context.new_buffer(result.type.shape, result.type.element)
            context.reserve(buffer, context.analysis.end[operation])
            pairs.append((value, buffer))
            forwarded.append(buffer)
        assign(context, pairs)
        writer.branch_if(context.scalar(terminator.condition), body, leave)

    lower_region(context, before, decide)
    writer.place(body)
    for argument, result, buffer in zip(after.arguments, operation.results, forwarded, strict=True):
        if buffer is None:
            rename(context, argument, result)
        else:
            context.bind_buffer(argument, buffer)
    following: list[str] = []

    def finish(terminator: Operation) -> None:
        for value in terminator.operands:
            if not is_tile(value):
                following.extend(parts(context, value))
        assign(
            context,
            [
                (value, buffers[argument])
                for value, argument in zip(terminator.operands, before.arguments, strict=True)
                if is_tile(value)
            ],
        )

    lower_region(context, after, finish)
    polls.ask(context)
    latch = writer.current
    writer.branch(header)
    polls.count(entry, latch)
    for number, ((type_, first), name) in enumerate(zip(firsts, phis, strict=True)):
        header.lines[number] = (
            f"  {name} = phi {type_} [ {first}, %{entry.label} ], [ {following[number]}, "
            f"%{latch.label} ]"
        )
    writer.place(leave)
    for result, buffer in zip(operation.results, forwarded, strict=True):
        if buffer is not None:
            context.bind_buffer(result, buffer)


# ---- if


def lower_if(context: Context, operation: If) -> None:
    """``if``."""
    writer = context.writer
    condition = context.scalar(operation.condition)
    buffers: dict[int, Buffer] = {}
    for number, result in enumerate(operation.results):
        if is_tile(result):
            assert isinstance(result.type, TileType)
            buffers[number] = context.new_buffer(result.type.shape, result.type.element)
            context.reserve(buffers[number], context.analysis.end[operation])
    join = writer.new_block("join")
    blocks = [writer.new_block("then"), writer.new_block("else")]
    simple = len(operation.else_) == 1 and not operation.results
    writer.branch_if(condition, blocks[0], join if simple else blocks[1])
    incoming: list[tuple[list[str], BasicBlock]] = []
    for region, block in zip(operation.regions, blocks, strict=True):
        if simple and region is operation.else_:
            continue
        writer.place(block)
        scalars: list[str] = []

        def finish(terminator: Operation, scalars: list[str] = scalars) -> None:
            for value in terminator.operands:
                if not is_tile(value):
                    scalars.extend(parts(context, value))
            assign(
                context,
                [(terminator.operands[number], buffer) for number, buffer in buffers.items()],
            )

        lower_region(context, region, finish)
        incoming.append((scalars, writer.current))
        writer.branch(join)
    writer.place(join)
    types = [
        type_
        for result in operation.results
        if not is_tile(result)
        for type_ in part_types(result.type)
    ]
    joined = iter(
        [
            writer.phi(type_, [(names[number], block) for names, block in incoming])
            for number, type_ in enumerate(types)
        ]
    )
    for number, result in enumerate(operation.results):
        if number in buffers:
            context.bind_buffer(result, buffers[number])
        else:
            bind_parts(context, result, joined)


# ---- scalars


def lower_scalar(context: Context, operation: Operation) -> None:
    """An elementwise operation of scalars, or a selection of descriptors."""
    if isinstance(operation.results[0].type, DescriptorType):
        assert isinstance(operation, Select)
        condition, w = context.scalar(operation.condition), context.writer
        pairs = zip(typed_parts(context, operation.a), parts(context, operation.b), strict=True)
        bind_parts(
            context,
            operation.result,
            iter(
                [
                    w.emit(f"select i1 {condition}, {type_} {a}, {type_} {b}")
                    for (type_, a), b in pairs
                ]
            ),
        )
        return
    texts = [context.scalar(value) for value in operation.operands]
    context.bind_scalar(operation.results[0], emit_operation(context, operation, texts, 0))


def lower_constant(context: Context, operation: Constant) -> None:
    result = operation.results[0]
    context.bind_scalar(result, constant(element_type(result.type), operation.value))


def lower_program_id(context: Context, operation: ProgramId) -> None:
    context.bind_scalar(operation.results[0], context.program_ids[operation.axis])


def lower_num_programs(context: Context, operation: NumPrograms) -> None:
    context.bind_scalar(operation.results[0], context.grid[operation.axis])


LOWERINGS = {
    "for": lower_for,
    "while": lower_while,
    "if": lower_if,
    "constant": lower_constant,
    "program_id": lower_program_id,
    "num_programs": lower_num_programs,
}
