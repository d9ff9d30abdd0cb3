"""Control flow: branches and loops.

A carried tile is one phi a register, so nothing moves where an iteration ends; one of narrow floats
is carried in words, as matmuls take them, for a machine's register holds no less than a word, and
accumulators of matmuls in vectors where instructions take such.

Conditions and bounds of a kernel are the same in all threads of a program; inside the regions of
``reduce``, ``scan`` and ``map`` they are a thread's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.core import Operation, Value
from tilewright.ir.integer_ranges import is_known_positive
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.memory import Barrier
from tilewright.ir.types import FloatType, IntType, TileType, element_type
from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.lowering.emission.context import UNWRITTEN, SimtContext

#: Names of the registers of several values, one after the other, with their LLVM types.
Typed = list[tuple[str, str]]


def _typed(context: SimtContext, values: Sequence[Value], carried: Sequence[Value]) -> Typed:
    """Return (LLVM type, name) of the live registers, or packed words, of ``values``.

    ``carried`` are the loop-carried values or results that hold them; they determine liveness.
    """
    found: Typed = []
    for value, carrier in zip(values, carried, strict=True):
        names, count, vector = (
            context.registers[value],
            _in_word(context, carrier),
            _in_vector(context, carrier),
        )
        if vector > 1:
            kind = context.llvm_type(value.type)
            found += [
                (f"<{vector} x {kind}>", _joined(context.writer, kind, names[i : i + vector]))
                for i in range(0, len(names), vector)
            ]
        elif count > 1:
            element = element_type(value.type)
            word = context.llvm_type(context.target.matrix.fragment_word(element)[0])
            found += [
                (word, name) for name in context.target.matrix.pack(context.writer, names, element)
            ]
        else:
            found += [
                (context.llvm_type(value.type), name)
                for register, name in enumerate(names)
                if context.is_needed(carrier, register)
            ]
    return found


def _bind(
    context: SimtContext, values: Sequence[Value], like: Sequence[Value], names: Sequence[str]
) -> None:
    """Bind ``values`` to names: those of their live registers, or of packed words, in order.

    A value has as many registers as the corresponding one of ``like``.
    """
    following = iter(names)
    for value, source in zip(values, like, strict=True):
        registers, count, vector = (
            len(context.registers[source]),
            _in_word(context, value),
            _in_vector(context, value),
        )
        if vector > 1:
            kind = f"<{vector} x {context.llvm_type(value.type)}>"
            wholes = [next(following) for _ in range(registers // vector)]
            context.bind(
                value,
                [
                    context.writer.emit(f"extractelement {kind} {whole}, i32 {i}")
                    for whole in wholes
                    for i in range(vector)
                ],
            )
        elif count > 1:
            words = [next(following) for _ in range(registers // count)]
            context.bind(
                value, context.target.matrix.unpack(context.writer, words, element_type(value.type))
            )
        else:
            context.bind(
                value,
                [
                    next(following) if context.is_needed(value, register) else UNWRITTEN
                    for register in range(registers)
                ],
            )
    assert next(following, None) is None


def _in_word(context: SimtContext, value: Value) -> int:
    """Return how many registers of a value control flow carries in one packed word.

    More than one for tiles of narrow floats, all of whose registers are live.
    """
    if not isinstance(value.type, TileType) or not isinstance(value.type.element, FloatType):
        return 1
    return _whole(context, value, context.target.matrix.fragment_word(value.type.element)[1])


def _in_vector(context: SimtContext, value: Value) -> int:
    """Return how many registers of a value control flow carries in one vector.

    More than one for tiles that the target's matmuls keep in vectors, all of whose registers are
    live.
    """
    return (
        _whole(context, value, context.target.matrix.vector_of(context, value))
        if isinstance(value.type, TileType)
        else 1
    )


def _whole(context: SimtContext, value: Value, count: int) -> int:
    """Return ``count`` if it divides the number of a tile's registers and all are live, else 1."""
    registers = context.layout(value).register_count
    return (
        count
        if registers % count == 0
        and all(context.is_needed(value, register) for register in range(registers))
        else 1
    )


def _joined(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """Build a vector of values of one LLVM type."""
    vector = "poison"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{len(names)} x {type_}> {vector}, {type_} {name}, i32 {i}")
    return vector


# ---- if


def lower_if(context: SimtContext, operation: If) -> None:
    """Emit a block for each region and, for results, phis in the join block."""
    w = context.writer
    then, join = w.new_block("then"), w.new_block("join")
    empty_else = len(operation.else_) == 1 and not operation.results
    otherwise = join if empty_else else w.new_block("else")
    w.branch_if(context.scalar(operation.condition), then, otherwise)
    incoming: list[tuple[Typed, BasicBlock]] = []
    yielded: Sequence[Value] = ()
    for number, block in enumerate((then, otherwise)):
        if block is join:
            continue
        w.place(block)
        yielded = _lower_region(context, operation, number).operands
        incoming.append((_typed(context, yielded, operation.results), w.current))
        w.branch(join)
    w.place(join)
    if operation.results:
        (first, first_block), (second, second_block) = incoming
        names = [
            w.phi(type_, ((a, first_block), (b, second_block)))
            for (type_, a), (_, b) in zip(first, second, strict=True)
        ]
        _bind(context, operation.results, yielded, names)


def _lower_region(context: SimtContext, operation: Operation, number: int) -> Operation:
    """Emit one of the operation's regions; return its terminator."""
    terminator = context.lower_region(operation.regions[number])
    context.operation = operation
    return terminator


# ---- phis in a loop header, whose latch values are known when the loop is closed


class _Header:
    """The header block of a loop. Its phis are written when the loop is closed."""

    def __init__(self, w: FunctionWriter, hint: str, carried: Typed) -> None:
        self._w, self._from, self._carried = w, w.current, carried
        self.block = w.new_block(hint)
        w.branch(self.block)
        w.place(self.block)
        self.names = [w.fresh("c") for _ in carried]
        self.block.lines.extend([""] * len(carried))

    def close(self, following: Sequence[str], branch: Callable[[], None]) -> None:
        """End the latch by ``branch``; ``following`` are the next loop-carried values."""
        latch = self._w.current
        branch()
        for number, ((type_, first), name, value) in enumerate(
            zip(self._carried, self.names, following, strict=True)
        ):
            self.block.lines[number] = (
                f"  {name} = phi {type_} [ {first}, %{self._from.label} ], [ {value}, "
                f"%{latch.label} ]"
            )


# ---- for


def lower_for(context: SimtContext, operation: For) -> None:
    """Emit a bottom-tested loop behind a guard that skips it if the range is empty.

    The counter never steps beyond the upper bound, where it could overflow: the test uses the
    remainder of the range.
    """
    w = context.writer
    body, counter = operation.body, operation.lower.type
    assert isinstance(counter, IntType)
    type_, sign = context.llvm_type(counter), "s" if counter.signed else "u"
    lower, upper, step = (
        context.scalar(value) for value in (operation.lower, operation.upper, operation.step)
    )
    inits = operation.inits
    carried = _typed(context, inits, operation.results)
    preheader, leave = w.new_block("preheader"), w.new_block("exit")
    before = w.current
    runs = w.emit(f"icmp {sign}lt {type_} {lower}, {upper}")
    if not is_known_positive(operation.step):
        # a loop with the step 0 would never end
        runs = w.emit(f"and i1 {runs}, {w.emit(f'icmp {sign}gt {type_} {step}, 0')}")
    w.branch_if(runs, preheader, leave)
    w.place(preheader)
    goes_on = _continuation(w, type_, counter, lower, upper, step)
    header = _Header(w, "loop", [(type_, lower), *carried])
    index, *names = header.names
    context.bind(body.arguments[0], [index])
    _bind(context, body.arguments[1:], inits, names)
    yielded = _lower_region(context, operation, 0).operands
    last = _typed(context, yielded, operation.results)
    again, following = goes_on(index)
    end = w.current
    drained = w.new_block("drained") if _is_drained(context, operation) else leave
    hint = (
        w.module.loop_hint("llvm.loop.unroll.full")
        if _is_unrolled(context, header.block, (lower, upper, step))
        else ""
    )
    header.close(
        [following, *(name for _, name in last)],
        lambda: w.branch_if(again, header.block, drained, loop=hint),
    )
    if drained is not leave:
        w.place(drained)
        context.target.async_copy.wait(context, MATMULS.queue, 0, [])
        w.branch(leave)
        end = drained
    w.place(leave)
    results = [
        w.phi(kind, ((first, before), (value, end)))
        for (kind, first), (_, value) in zip(carried, last, strict=True)
    ]
    _bind(context, operation.results, inits, results)


def _is_unrolled(context: SimtContext, header: BasicBlock, bounds: Sequence[str]) -> bool:
    """Return whether LLVM is asked to unroll the loop that ends here in full.

    Its known trip count is small, and so is the code of all iterations.
    """
    lower, upper, step = map(_number, bounds)
    if lower is None or upper is None or step is None or step <= 0:
        return False
    trips, blocks = len(range(lower, upper, step)), context.writer.blocks
    lines = sum(len(block.lines) for block in blocks[blocks.index(header) :])
    costs = context.target.costs
    return trips <= costs.unrolled_trips and trips * lines <= costs.thresholds.unrolled_lines


def _is_drained(context: SimtContext, operation: Operation) -> bool:
    """Return whether matmuls that a loop leaves in flight are waited for in its own exit block.

    There, the path has not yet joined that of a loop that did not run. A compiler would move uses
    of the accumulator after a later wait ahead of that wait, because they are constants on the
    other path.
    """
    users = [user for result in operation.results if result.type is MATMULS for user in result.uses]
    return bool(users) and all(
        isinstance(user, Wait) and (MATMULS.queue, 0) in context.tokens.pending(user)
        for user in users
    )


def _continuation(
    w: FunctionWriter, type_: str, counter: IntType, lower: str, upper: str, step: str
) -> Callable[[str], tuple[str, str]]:
    """Return an emitter of (whether another iteration follows ``index``, its index).

    The emitter is called where the range is known not to be empty.
    """
    stride, limit = _number(step), _number(upper)
    if stride == 1 or (
        stride is not None and limit is not None and limit + stride <= counter.maximum
    ):
        sign, flag = ("s", "nsw") if counter.signed else ("u", "nuw")

        def compared(index: str) -> tuple[str, str]:
            following = w.emit(f"add {flag} {type_} {index}, {step}")
            return w.emit(f"icmp {sign}lt {type_} {following}, {upper}"), following

        return compared
    if stride is not None and stride > 0 and stride & (stride - 1) == 0:
        # upper - 1 and lower are in the type's range, so their distance, unsigned, is exact
        distance = w.emit(f"sub {type_} {w.emit(f'sub {type_} {upper}, 1')}, {lower}")
        final = w.emit(f"add {type_} {lower}, {w.emit(f'and {type_} {distance}, {-stride}')}")

        def until_last(index: str) -> tuple[str, str]:
            return w.emit(f"icmp ne {type_} {index}, {final}"), w.emit(
                f"add {type_} {index}, {step}"
            )

        return until_last

    def by_rest(index: str) -> tuple[str, str]:
        rest = w.emit(f"sub {type_} {upper}, {index}")
        return w.emit(f"icmp ugt {type_} {rest}, {step}"), w.emit(f"add {type_} {index}, {step}")

    return by_rest


def _number(name: str) -> int | None:
    """Return the value of a constant operand, else None."""
    return None if name.startswith("%") else int(name)


# ---- while


def lower_while(context: SimtContext, operation: While) -> None:
    """Emit the ``before`` region at the loop's header, then the branch, then the ``after`` region.

    The header dominates the exit, so the forwarded values are available after the loop.
    """
    w = context.writer
    before, after = operation.before, operation.after
    header = _Header(w, "while", _typed(context, operation.inits, before.arguments))
    _bind(context, before.arguments, operation.inits, header.names)
    condition = _lower_region(context, operation, 0)
    assert isinstance(condition, Condition)
    body, leave = w.new_block("do"), w.new_block("done")
    w.branch_if(context.scalar(condition.condition), body, leave)
    w.place(body)
    for argument, result, value in zip(
        after.arguments, operation.results, condition.values, strict=True
    ):
        context.bind(argument, context.registers[value])
        context.bind(result, context.registers[value])
    following = [
        name
        for _, name in _typed(
            context, _lower_region(context, operation, 1).operands, before.arguments
        )
    ]
    header.close(following, lambda: w.branch(header.block))
    w.place(leave)


def lower_barrier(context: SimtContext, operation: Barrier) -> None:
    context.barrier()


INTERFACES = register_interfaces(
    {
        "if": Interface(lower_if),
        "for": Interface(lower_for),
        "while": Interface(lower_while),
        "barrier": Interface(lower_barrier),
    }
)
