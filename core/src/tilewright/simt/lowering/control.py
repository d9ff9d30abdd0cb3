"""Control flow: branches and loops.

A carried tile is one phi a register, so nothing moves where an iteration ends; one of narrow floats
is carried in words, as matmuls take them, for a machine's register holds no less than a word, and
sums of matmuls in vectors where instructions take such.

Conditions and bounds of a kernel are the same in all threads of a program; inside the regions of
``reduce``, ``scan`` and ``map`` they are a thread's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.known_integers import is_known_positive
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.memory import Barrier
from tilewright.ir.types import FloatType, IntType, TileType, element_type
from tilewright.llvm.emission.writer import Block, FunctionWriter
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.registry import register_interfaces
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.lowering.emission.context import UNWRITTEN, SimtContext

#: Lines of LLVM IR that a loop of known bounds is unrolled to at most.
_UNROLLED_LINES: Final = 8192
#: Names of the registers of several values, one after the other, with their LLVM types.
Typed = list[tuple[str, str]]


def _typed(context: SimtContext, values: Sequence[Value], carried: Sequence[Value]) -> Typed:
    """(LLVM type, name) of the registers, or words, of ``values`` that are needed of what carries
    them."""
    found: Typed = []
    for value, carrier in zip(values, carried, strict=True):
        names, count, vector = context.registers[value], _in_word(context, carrier), _in_vector(context, carrier)
        if vector > 1:
            kind = context.llvm_type(value.type)
            found += [(f"<{vector} x {kind}>", _joined(context.writer, kind, names[i : i + vector])) for i in range(0, len(names), vector)]
        elif count > 1:
            element = element_type(value.type)
            word = context.llvm_type(context.target.fragment_word(element)[0])
            found += [(word, name) for name in context.target.pack(context.writer, names, element)]
        else:
            found += [(context.llvm_type(value.type), name) for register, name in enumerate(names) if context.is_needed(carrier, register)]
    return found


def _bind(context: SimtContext, values: Sequence[Value], like: Sequence[Value], names: Sequence[str]) -> None:
    """Give ``values``, which have as many registers as ``like``, their names: those of the needed
    ones, or of words, out of one list."""
    following = iter(names)
    for value, source in zip(values, like, strict=True):
        registers, count, vector = len(context.registers[source]), _in_word(context, value), _in_vector(context, value)
        if vector > 1:
            kind = f"<{vector} x {context.llvm_type(value.type)}>"
            wholes = [next(following) for _ in range(registers // vector)]
            context.bind(value, [context.writer.emit(f"extractelement {kind} {whole}, i32 {i}") for whole in wholes for i in range(vector)])
        elif count > 1:
            words = [next(following) for _ in range(registers // count)]
            context.bind(value, context.target.unpack(context.writer, words, element_type(value.type)))
        else:
            context.bind(value, [next(following) if context.is_needed(value, register) else UNWRITTEN for register in range(registers)])
    assert next(following, None) is None


def _in_word(context: SimtContext, value: Value) -> int:
    """How many registers of a value are carried in a word: more than one of tiles of narrow floats
    all of whose registers are needed."""
    if not isinstance(value.type, TileType) or not isinstance(value.type.element, FloatType):
        return 1
    return _whole(context, value, context.target.fragment_word(value.type.element)[1])


def _in_vector(context: SimtContext, value: Value) -> int:
    """How many registers of a value are carried in a vector: more than one of tiles that the
    target's matmuls make so, all of whose registers are needed."""
    return _whole(context, value, context.target.vector_of(context, value)) if isinstance(value.type, TileType) else 1


def _whole(context: SimtContext, value: Value, count: int) -> int:
    """``count``, if the registers of a tile fill as many, and all are needed; else 1."""
    registers = context.layout(value).register_count
    return count if registers % count == 0 and all(context.is_needed(value, register) for register in range(registers)) else 1


def _joined(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """A vector of values of one LLVM type."""
    vector = "poison"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{len(names)} x {type_}> {vector}, {type_} {name}, i32 {i}")
    return vector


# ---- if


def lower_if(context: SimtContext, operation: If) -> None:
    """Blocks for the regions and, where they yield values, phis that join them."""
    w = context.writer
    then, join = w.new_block("then"), w.new_block("join")
    empty_else = len(operation.else_) == 1 and not operation.results
    otherwise = join if empty_else else w.new_block("else")
    w.branch_if(context.scalar(operation.condition), then, otherwise)
    incoming: list[tuple[Typed, Block]] = []
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
        names = [w.phi(type_, ((a, first_block), (b, second_block))) for (type_, a), (_, b) in zip(first, second, strict=True)]
        _bind(context, operation.results, yielded, names)


def _lower_region(context: SimtContext, operation: Operation, number: int) -> Operation:
    """Write one of the operation's regions; its terminator."""
    terminator = context.lower_region(operation.regions[number])
    context.operation = operation
    return terminator


# ---- phis at the top of a loop, whose second values are known at its end


class _Header:
    """The block at the top of a loop. Phis are written when the loop ends."""

    def __init__(self, w: FunctionWriter, hint: str, carried: Typed) -> None:
        self._w, self._from, self._carried = w, w.current, carried
        self.block = w.new_block(hint)
        w.branch(self.block)
        w.place(self.block)
        self.names = [w.fresh("c") for _ in carried]
        self.block.lines.extend([""] * len(carried))

    def close(self, following: Sequence[str], branch: Callable[[], None]) -> None:
        """End the loop's last block by ``branch``; ``following`` are the carried values of the next
        iteration."""
        latch = self._w.current
        branch()
        for number, ((type_, first), name, value) in enumerate(zip(self._carried, self.names, following, strict=True)):
            self.block.lines[number] = f"  {name} = phi {type_} [ {first}, %{self._from.label} ], [ {value}, %{latch.label} ]"


# ---- for


def lower_for(context: SimtContext, operation: For) -> None:
    """A loop that is entered if it runs at all, with its test at the end.

    The counter never steps beyond the upper bound, where it could overflow: the test is made of
    what is left of the range.
    """
    w = context.writer
    body, counter = operation.body, operation.lower.type
    assert isinstance(counter, IntType)
    type_, sign = context.llvm_type(counter), "s" if counter.signed else "u"
    lower, upper, step = (context.scalar(value) for value in (operation.lower, operation.upper, operation.step))
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
    hint = w.module.loop_hint("llvm.loop.unroll.full") if _is_unrolled(context, header.block, (lower, upper, step)) else ""
    header.close([following, *(name for _, name in last)], lambda: w.branch_if(again, header.block, drained, loop=hint))
    if drained is not leave:
        w.place(drained)
        context.target.wait(context, MATMULS.queue, 0, [])
        w.branch(leave)
        end = drained
    w.place(leave)
    results = [w.phi(kind, ((first, before), (value, end))) for (kind, first), (_, value) in zip(carried, last, strict=True)]
    _bind(context, operation.results, inits, results)


def _is_unrolled(context: SimtContext, header: Block, bounds: Sequence[str]) -> bool:
    """Return whether LLVM is to unroll the loop that ends here in full: its known trip count is
    small, and so is what all of its iterations are written as."""
    lower, upper, step = map(_number, bounds)
    if lower is None or upper is None or step is None or step <= 0:
        return False
    trips, blocks = len(range(lower, upper, step)), context.writer.blocks
    lines = sum(len(block.lines) for block in blocks[blocks.index(header) :])
    return trips <= context.target.unrolled_trips and trips * lines <= _UNROLLED_LINES


def _is_drained(context: SimtContext, operation: Operation) -> bool:
    """Return whether matmuls that a loop leaves in flight are waited for where it ends, before the
    path meets that of a loop that did not run. What is done with sums after a wait behind the
    meeting, a compiler would move before it: on the other path they are constants."""
    users = [user for result in operation.results if result.type is MATMULS for user in result.uses]
    return bool(users) and all(user.name == "simt.wait" and (MATMULS.queue, 0) in context.tokens.pending(user) for user in users)


def _continuation(w: FunctionWriter, type_: str, counter: IntType, lower: str, upper: str, step: str) -> Callable[[str], tuple[str, str]]:
    """Writes, at the end of an iteration at ``index``, whether there is another, and its index.

    Called where the range is known not to be empty.
    """
    stride, limit = _number(step), _number(upper)
    if stride == 1 or (stride is not None and limit is not None and limit + stride <= counter.maximum):
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
            return w.emit(f"icmp ne {type_} {index}, {final}"), w.emit(f"add {type_} {index}, {step}")

        return until_last

    def by_rest(index: str) -> tuple[str, str]:
        rest = w.emit(f"sub {type_} {upper}, {index}")
        return w.emit(f"icmp ugt {type_} {rest}, {step}"), w.emit(f"add {type_} {index}, {step}")

    return by_rest


def _number(name: str) -> int | None:
    """The number an operand is, if it is a constant."""
    return None if name.startswith("%") else int(name)


# ---- while


def lower_while(context: SimtContext, operation: While) -> None:
    """Region before at the top, then the branch, then region after.

    What is forwarded is known after the loop too: the top dominates it.
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
    for argument, result, value in zip(after.arguments, operation.results, condition.values, strict=True):
        context.bind(argument, context.registers[value])
        context.bind(result, context.registers[value])
    following = [name for _, name in _typed(context, _lower_region(context, operation, 1).operands, before.arguments)]
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
