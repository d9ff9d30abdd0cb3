"""The typed writer of native code, piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
import pytest
from interleavings import Machine, State
from llvm_program import Program

from tilewright_cpu.threading.typed_writer import (
    Code,
    Global,
    NativeModule,
    Order,
    Place,
    Signature,
    Struct,
    Value,
)

PAIR = Struct("Pair", first="i64", apart="[7 x i64]", second="i32")
WORD = Global("word", "i64", 5, align=64)
FUNCTION = Signature("function", "i64", pointer="ptr", a="i64", b="i64")
OTHER = Signature("other", "i32", x="i64", internal=True, inlined=False)


def written(write: Callable[[Code], Value | int | None]) -> list[str]:
    """The instructions of a function that returns what ``write`` does, after LLVM has read them."""
    module = NativeModule()
    module.add(PAIR, WORD)
    f = module.define(FUNCTION)
    result = write(f)
    if result is not None:
        f.ret(result)
    text = module.text()
    llvm.parse_assembly(text).verify()
    body = text.split("entry:\n")[1].split("\n}")[0]
    return [line.strip() for line in body.split("\n")]


def run(write: Callable[[Code], Value | int | None], a: int, b: int) -> int:
    """Execute such a function."""
    module = NativeModule()
    module.add(PAIR, WORD)
    f = module.define(FUNCTION)
    result = write(f)
    if result is not None:
        f.ret(result)
    caller = module.define(Signature("caller", pointer="ptr", a="i64", b="i64"))
    found = caller.call(FUNCTION, *caller.parameters)
    caller.word(caller.parameters[0]).store(found)
    caller.ret()
    machine = Machine(Program(module.text()), {}, set())
    thread = machine.start("caller", [("result", 0), a, b], {})
    state = State([thread], {}, {}, {}, {})
    while thread.frames:
        machine.step(state, 0, 0)
    (value, _) = state.memory["result", 0][-1]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda a, b: a + b, 23),
        (lambda a, b: a - b, 17),
        (lambda a, b: b - a, 2**64 - 17),
        (lambda a, b: a * 3, 60),
        (lambda a, b: a // b, 6),
        (lambda a, b: a % b, 2),
        (lambda a, b: (a << 2) >> 3, 10),
        (lambda a, b: (a & 4) | b, 7),
        (lambda a, b: (a < b).widened("i64"), 0),
        (lambda a, b: (a >= b).widened("i64"), 1),
        (lambda a, b: (a - 21 > b).widened("i64"), 1),
        (lambda a, b: (a - 21).less_signed(b).widened("i64"), 1),
        (lambda a, b: a.equals(20).widened("i64") + a.differs(b).widened("i64"), 2),
        (lambda a, b: (a + (1 << 32)).narrowed("i32").widened("i64"), 20),
        (lambda a, b: a.code.choose(a <= b, a, b), 3),
    ],
)
def test_operators_compute_with_unsigned_integers(
    compute: Callable[[Value, Value], Value],
    expected: int,
) -> None:
    assert run(lambda f: compute(*f.parameters[1:]), 20, 3) == expected


def test_fields_are_found_by_name() -> None:
    def write(f: Code) -> Value:
        record = PAIR.at(f.parameters[0])
        record["second"].store(1)
        return record["first"].load()

    assert written(write) == [
        "%t1 = getelementptr %Pair, ptr %pointer, i64 0, i32 2",
        "store i32 1, ptr %t1, align 4",
        "%t2 = load i64, ptr %pointer, align 8",
        "ret i64 %t2",
    ]
    assert PAIR.definition == "%Pair = type { i64, [7 x i64], i32 }"


def test_fields_of_variables_are_constant_addresses() -> None:
    pair = Global("pair", PAIR.name)
    module = NativeModule()
    module.add(PAIR, pair)
    f = module.define(Signature("function"))
    PAIR.at(pair.address(f))["second"].atomic_store(2, Order.RELEASE)
    f.ret()
    llvm.parse_assembly(module.text()).verify()
    place = "getelementptr (%Pair, ptr @pair, i64 0, i32 2)"
    assert f"store atomic i32 2, ptr {place} release, align 4" in module.text()


def test_atomic_accesses_have_orders() -> None:
    def write(f: Code) -> Value:
        place = WORD.place(f)
        place.atomic_load(Order.ACQUIRE)
        place.fetch_add(1, Order.SEQ_CST)
        place.fetch_sub(1, Order.ACQ_REL)
        place.exchange(f.parameters[1], Order.RELAXED)
        f.fence(Order.SEQ_CST)
        held = place.compare_exchange(0, 1, Order.ACQUIRE, Order.RELAXED)
        return held.widened("i64")

    assert written(write)[:7] == [
        "%t1 = load atomic i64, ptr @word acquire, align 64",
        "%t2 = atomicrmw add ptr @word, i64 1 seq_cst",
        "%t3 = atomicrmw sub ptr @word, i64 1 acq_rel",
        "%t4 = atomicrmw xchg ptr @word, i64 %a monotonic",
        "fence seq_cst",
        "%t5 = cmpxchg ptr @word, i64 0, i64 1 acquire monotonic, align 64",
        "%t6 = extractvalue { i64, i1 } %t5, 1",
    ]


def test_blocks_take_arguments() -> None:
    """A loop that adds up the numbers below ``a``."""

    def write(f: Code) -> None:
        _, a, _ = f.parameters
        loop, out = f.label("loop", "i64", "i64"), f.label("out", "i64")
        f.branch(a.differs(0), loop(0, 0), out(0))
        index, total = f.place(loop)
        following = index + 1
        f.branch(following < a, loop(following, total + index), out(total + index))
        (found,) = f.place(out)
        f.ret(found)

    assert [run(write, count, 0) for count in (0, 1, 5)] == [0, 0, 10]


def test_calls_declare_what_they_call() -> None:
    syscall = Signature("syscall", "i64", number="i64", variadic=True)
    module = NativeModule()
    module.declare(syscall)
    f = module.define(OTHER)
    found = f.call(syscall, f.parameters[0], None, f.operand("i32", 7))
    f.call(Signature("free", memory="ptr"), None)
    f.ret(found.narrowed("i32"))
    text = module.text()
    llvm.parse_assembly(text).verify()
    assert "define internal i32 @other(i64 %x) nounwind noinline {" in text
    assert "call i64 (i64, ...) @syscall(i64 %x, ptr null, i32 7)" in text
    assert "declare i64 @syscall(i64, ...)" in text and "declare void @free(ptr)" in text


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda f: f.parameters[1] + f.operand("i32", 1), TypeError, "i32 1 is no i64"),
        (lambda f: PAIR.at(f.parameters[0])["third"], TypeError, "has no field 'third'"),
        (lambda f: PAIR.at(f.parameters[0])["second"].store(f.parameters[1]), TypeError, "no i32"),
        (
            lambda f: WORD.place(f).atomic_load(Order.RELEASE),
            ValueError,
            "load has no order release",
        ),
        (
            lambda f: WORD.place(f).atomic_store(1, Order.ACQUIRE),
            ValueError,
            "has no order acquire",
        ),
        (
            lambda f: WORD.place(f).compare_exchange(0, 1, Order.ACQ_REL, Order.RELEASE),
            ValueError,
            "has no order release",
        ),
        (lambda f: f.call(OTHER), TypeError, "@other takes 1 arguments, not 0"),
        (lambda f: f.call(OTHER, f.null), TypeError, "ptr null is no i64"),
        (lambda f: f.label("loop", "i64")(), TypeError, "has 1 parameters, not 0"),
        (lambda f: f.ret(f.null), TypeError, "ptr null is no i64"),
        (lambda f: f.branch(f.parameters[1], f.label("a"), f.label("b")), TypeError, "is no i1"),
        (lambda f: Place(f, "%pointer", "i32").store(f.parameters[1]), TypeError, "is no i32"),
    ],
)
def test_what_does_not_fit_is_refused(
    write: Callable[[Code], object],
    error: type[Exception],
    message: str,
) -> None:
    f = NativeModule().define(FUNCTION)
    with pytest.raises(error, match=message):
        write(f)
