"""Output of kernels: prints, assertions, compiler errors; assumptions and target-specific code."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    KernelError,
    TilewrightError,
)
from tilewright_conformance.oracles import dtypes
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("control", "control", "Python and NumPy")

# ---- prints. Programs may print in any order, and so may elements.


@tw.jit
def say(x, HEX: tl.constexpr, BLOCK: tl.constexpr):
    tl.device_print("value", tl.load(x), hex=HEX)
    tl.device_print("tile: ", tl.load(x + tl.arange(0, BLOCK)), hex=HEX)


def _text(value: Any, bits: int | None) -> str:
    """A value as kernels print it.

    Floats are as C's %f, integers in decimal, or (with ``bits``) in hexadecimal of their full
    width.
    """
    if isinstance(value, float):
        return f"{value:f}"
    return str(int(value)) if bits is None else f"0x{value & ((1 << bits) - 1):0{bits // 4}x}"


def _check_lines(session: Session, found: list[str], expected: list[str]) -> None:
    missing, extra = list(expected), []
    for line in found:
        if line in missing:
            missing.remove(line)
        else:
            extra.append(line)
    session.require(
        not missing and not extra,
        f"printed {extra[:3]!r} in place of {missing[:3]!r} ({len(found)} lines, "
        f"{len(expected)} due)",
    )


PRINTED: dict[str, list[Any]] = {
    **{f"i{bits}": [-5, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 0] for bits in (8, 16, 32, 64)},
    **{f"u{bits}": [5, 2**bits - 1, 2 ** (bits - 1), 0] for bits in (8, 16, 32, 64)},
    **{name: [-1.5, 0.0078125, 1024.0, 0.0] for name in ("f16", "bf16", "f32", "f64")},
}


@CASES(
    "print/type",
    "device_print",
    each={n: n for n in PRINTED},
    needs=lambda name: elements(name, tile=4, features={"print"}),
    quick=("i8", "u64", "f32"),
)
def numbers_of_every_type(session: Session, name: str) -> None:
    kind = dtypes.kind({text: own for own, text in dtypes.IR.items()}[name])
    x, bits = np.array(PRINTED[name], kind), int(name.lstrip("iubf"))
    for hexadecimal in (False, True) if name[0] in "iu" else (False,):
        texts = [_text(value, bits if hexadecimal else None) for value in PRINTED[name]]
        with session.printed() as lines:
            session.launch(say, (1,), x, HEX=hexadecimal, BLOCK=4)
        _check_lines(
            session,
            lines,
            [
                f"pid (0, 0, 0) idx () value: {texts[0]}",
                *(f"pid (0, 0, 0) idx ({i}) tile: {text}" for i, text in enumerate(texts)),
            ],
        )


@CASES("print/special", "device_print", needs=elements("f32", tile=4, features={"print"}))
def infinities_and_great_numbers(session: Session) -> None:
    x = np.array([np.inf, -np.inf, -0.0, 3.0e38], np.float32)
    with session.printed() as lines:
        session.launch(say, (1,), x, HEX=False, BLOCK=4)
    texts = [f"{float(value):f}" for value in x]
    _check_lines(
        session,
        lines,
        [
            f"pid (0, 0, 0) idx () value: {texts[0]}",
            *(f"pid (0, 0, 0) idx ({i}) tile: {text}" for i, text in enumerate(texts)),
        ],
    )


@tw.jit
def say_several(x, n, flag, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = tl.load(x + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])
    tl.device_print("both", tile, n * 2)
    tl.device_print("bare")
    tl.device_print("flags 100%:", flag, tl.arange(0, 2) > 0)
    print("plain ", tl.program_id(1), hex=True)


@CASES(
    "print/programs", "device_print", needs=elements("f32", tile=32, features={"print"}), quick=True
)
def several_values_and_programs(session: Session) -> None:
    """Print several values in several programs.

    Coordinates are as wide as the largest; values of one statement are numbered; every line has its
    program.
    """
    rows, columns = 2, 16
    x = session.rng.integers(-9, 9, (rows, columns)).astype(np.float32)
    with session.printed() as lines:
        session.launch(say_several, (2, 1, 2), x, 21, True, ROWS=rows, COLUMNS=columns)
    expected = []
    for pid in ("pid (0, 0, 0)", "pid (1, 0, 0)", "pid (0, 0, 1)", "pid (1, 0, 1)"):
        expected += [
            f"{pid} idx ({i}, {j:2d}) both: (operand 0) {x[i, j]:f}"
            for i in range(rows)
            for j in range(columns)
        ]
        expected += [
            f"{pid} idx () both: (operand 1) 42",
            f"{pid} bare",
            f"{pid} idx () flags 100%: (operand 0) 1",
        ]
        expected += [f"{pid} idx ({i}) flags 100%: (operand 1) {i}" for i in range(2)]
        expected.append(f"{pid} idx () plain: 0x00000000")
    _check_lines(session, lines, expected)


@tw.jit
def say_sometimes(x, n):
    pid = tl.program_id(0)
    for i in range(n):
        value = tl.load(x + i)
        if value > pid * 10:
            tl.device_print("above", value)


@CASES("print/in_branches", "device_print", needs=elements(features={"print"}), quick=True)
def prints_in_loops_and_branches(session: Session) -> None:
    x = np.array([5, 15, -3, 25, 12], np.int32)
    with session.printed() as lines:
        session.launch(say_sometimes, (3,), x, 5)
    _check_lines(
        session,
        lines,
        [
            f"pid ({pid}, 0, 0) idx () above: {value}"
            for pid in range(3)
            for value in x.tolist()
            if value > pid * 10
        ],
    )
    with session.printed() as lines:
        session.launch(say_sometimes, (3,), x, 2)
        session.launch(say_sometimes, (1,), x, 3)
    due = [(pid, value) for pid in range(3) for value in (5, 15) if value > pid * 10] + [
        (0, 5),
        (0, 15),
    ]
    _check_lines(session, lines, [f"pid ({pid}, 0, 0) idx () above: {value}" for pid, value in due])


# ---- assertions


@tw.jit
def guarded_copy(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.device_assert(value < 100, "a hundred or more", mask=offsets < n)
    tl.store(out + offsets, value + 1)


@tw.jit
def guarded_scalars(x, out, n):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        if value != 7:
            assert value > 0, "not positive"
        total += value
    tl.store(out, total)


def _usable(session: Session) -> None:
    """The device and the process still run kernels."""
    x, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    session.launch(guarded_copy, (2,), x, out, 16, BLOCK=8, debug=True)
    session.check(out, x + 1, name="a launch around a failed assertion")


def _usable_or_lost(session: Session) -> None:
    """After a failed assertion the process lives, and the device works or launches say why not."""
    try:
        _usable(session)
    except KernelError as error:
        session.require(str(error), "a launch on a device that is lost should say so")


@contextlib.contextmanager
def _failed_assertion(session: Session, message: str) -> Iterator[None]:
    """Demand an error about an assertion, and its message: in the error, or in what is printed."""
    reported = ""
    with session.printed(errors=True) as lines, session.raises(KernelError, "assert"):
        try:
            yield
        except KernelError as error:
            reported = str(error)
            raise
    session.require(
        message in "\n".join((reported, *lines)),
        f"the assertion's message {message!r} is not reported: {reported}",
    )


@CASES("assert/holds", "device_assert", needs=elements(tile=8, features={"assert"}), quick=True)
def assertions_that_hold(session: Session) -> None:
    """Nothing is raised; lanes that the mask leaves out may hold anything."""
    x = session.rng.integers(-50, 100, 32).astype(np.int32)
    x[20:] += 1000
    out = np.zeros(32, np.int32)
    session.launch(guarded_copy, (4,), x, out, 20, BLOCK=8, debug=True)
    session.check(out, x + 1)
    total = np.zeros(1, np.int32)
    session.launch(guarded_scalars, (1,), np.array([3, 7, 1, -5], np.int32), total, 3, debug=True)
    session.check(total, np.array([11], np.int32))


@CASES(
    "assert/fails",
    "device_assert",
    each={"first": 0, "last": 31, "middle": 13},
    needs=elements(tile=8, features={"assert"}),
    quick=("last",),
)
def a_failed_assertion_is_an_error(session: Session, at: int) -> None:
    """One lane of one of several programs is enough."""
    x, out = np.zeros(32, np.int32), np.zeros(32, np.int32)
    x[at] = 100
    _usable(session)
    with _failed_assertion(session, "a hundred or more"):
        session.launch(guarded_copy, (4,), x, out, 32, BLOCK=8, debug=True)
    _usable_or_lost(session)


@CASES("assert/message", "device_assert", needs=elements(tile=8, features={"assert"}))
def the_message_is_reported(session: Session) -> None:
    """The message appears once or more where every lane fails."""
    x, out = np.full(8, 100, np.int32), np.zeros(8, np.int32)
    _usable(session)
    with _failed_assertion(session, "a hundred or more"):
        session.launch(guarded_copy, (1,), x, out, 8, BLOCK=8, debug=True)
    _usable_or_lost(session)


@CASES("assert/mask", "device_assert", needs=elements(tile=8, features={"assert"}), quick=True)
def the_mask_tells_which_lanes_count(session: Session) -> None:
    x, out = np.full(16, 500, np.int32), np.zeros(16, np.int32)
    x[:10] = 1
    session.launch(guarded_copy, (2,), x, out, 10, BLOCK=8, debug=True)
    session.check(out, x + 1)
    with _failed_assertion(session, "a hundred or more"):
        session.launch(guarded_copy, (2,), x, out, 11, BLOCK=8, debug=True)
    _usable_or_lost(session)


@CASES(
    "assert/in_loop",
    "device_assert",
    each={"second": (1, -2, 3), "last": (7, 7, 0)},
    needs=elements(features={"assert"}),
    quick=("second",),
)
def assertions_in_loops_and_branches(session: Session, values: tuple[int, ...]) -> None:
    """Assertions of branches that are not taken do not count; one in a later iteration does."""
    total = np.zeros(1, np.int32)
    for good in ((1, 2, 3), (7, 7)):
        session.launch(
            guarded_scalars, (1,), np.array(good, np.int32), total, len(good), debug=True
        )
        session.check(total, np.array([sum(good)], np.int32))
    with _failed_assertion(session, "not positive"):
        session.launch(
            guarded_scalars, (1,), np.array(values, np.int32), total, len(values), debug=True
        )


@tw.jit(debug=True)
def always_checked(x, n):
    tl.device_assert(tl.load(x) == n, "x is not n")


@CASES(
    "assert/debug_mode", "device_assert", needs=elements(tile=8, features={"assert"}), quick=True
)
def assertions_are_for_debug_mode(session: Session) -> None:
    """Check nothing without ``debug``, which the decorator or the launch may set."""
    x, out = np.full(8, 100, np.int32), np.zeros(8, np.int32)
    session.launch(guarded_copy, (1,), x, out, 8, BLOCK=8, debug=False)
    session.check(out, x + 1)
    session.launch(always_checked, (1,), x, 100)
    session.launch(always_checked, (1,), x, 3, debug=False)
    with _failed_assertion(session, "x is not n"):
        session.launch(always_checked, (1,), x, 3)


# ---- errors of the compiler: they name the rule and the place, and the next kernel compiles


@tw.jit
def asserts_width(out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 4, "BLOCK is too small")
    tl.static_assert(BLOCK % 8 == 0, f"BLOCK is {BLOCK}, and should be a multiple of 8")  # wrong
    tl.store(out + tl.arange(0, BLOCK), BLOCK)


@tw.jit
def has_unknown_name(out, BLOCK: tl.constexpr):
    value = tl.arange(0, BLOCK)
    tl.store(out + value, valu)  # type: ignore[name-defined]  # noqa: F821  # wrong


@tw.jit
def changes_type(out, BLOCK: tl.constexpr):
    total = 0
    for i in range(BLOCK + tl.program_id(0)):
        total = total + i * 0.5  # wrong
    tl.store(out, total)


@tw.jit
def merges_types(out, BLOCK: tl.constexpr):
    if tl.program_id(0) > BLOCK:  # wrong
        value = 1.5
    else:
        value = tl.arange(0, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), value)


@tw.jit
def mixes_shapes(out, BLOCK: tl.constexpr):
    value = tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK)  # wrong
    tl.store(out + tl.arange(0, BLOCK), value)


@tw.jit
def odd_extent(out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK + 1)  # wrong
    tl.store(out + offsets, offsets)


@tw.jit
def stores_to_constant(out: tl.const, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1)  # wrong


@tw.jit
def inner_function(out, BLOCK: tl.constexpr):
    return tl.load(out + tl.arange(0, BLOCK), other=3)  # wrong


@tw.jit
def calls_what_is_wrong(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), inner_function(out, BLOCK))


@tw.jit
def shifts_floats(out, BLOCK: tl.constexpr):
    value = tl.arange(0, BLOCK).to(tl.float32)
    tl.store(out + tl.arange(0, BLOCK), value << 1)  # wrong


@tw.jit
def needs_a_constant(out, BLOCK: tl.constexpr):
    tl.static_assert(tl.program_id(0) == BLOCK)  # wrong


#: name -> (kernel, function that has the wrong line, type of the error, what it says)
WRONG: dict[str, tuple[Any, Any, type[CompilationError], str]] = {
    "static_assert": (
        asserts_width,
        asserts_width,
        CompileTimeAssertionFailure,
        "BLOCK is 4, and should be a multiple of 8",
    ),
    "unknown_name": (has_unknown_name, has_unknown_name, CompilationError, "valu"),
    "loop_type": (changes_type, changes_type, CompilationError, "total"),
    "branch_type": (merges_types, merges_types, CompilationError, "value"),
    "shapes": (mixes_shapes, mixes_shapes, CompilationError, "incompatible dimensions"),
    "extent": (odd_extent, odd_extent, CompilationError, "power of 2"),
    "constant_pointer": (
        stores_to_constant,
        stores_to_constant,
        CompilationError,
        "constant pointer",
    ),
    "in_function": (calls_what_is_wrong, inner_function, CompilationError, "other"),
    "operator": (shifts_floats, shifts_floats, CompilationError, "fp32|float"),
    "run_time_condition": (
        needs_a_constant,
        needs_a_constant,
        CompilationError,
        "compile-time|constexpr",
    ),
}


def _wrong_line(function: Any) -> int:
    lines, start = inspect.getsourcelines(function.fn)
    return start + next(
        index for index, line in enumerate(lines) if line.rstrip().endswith("# wrong")
    )


@CASES(
    "errors",
    "CompilationError",
    each=WRONG,
    needs=elements(tile=8),
    quick=("static_assert", "in_function", "shapes"),
)
def errors_tell_the_place(
    session: Session, given: tuple[Any, Any, type[CompilationError], str]
) -> None:
    kernel, function, kind, text = given
    out = np.zeros(8, np.int32)
    for _ in range(2):  # a compilation that failed is not cached
        try:
            with session.raises(kind, text):
                session.launch(kernel, (1,), out, BLOCK=4)
        except CompilationError as error:  # of another kind
            session.require(
                False,
                f"the error should be a {kind.__name__}, and is a {type(error).__name__}: {error}",
            )
    try:
        session.launch(kernel, (1,), out, BLOCK=4)
    except CompilationError as error:
        place = error.__cause__ if isinstance(error.__cause__, CompilationError) else error
        session.require(
            place.line == _wrong_line(function),
            f"the error is in line {_wrong_line(function)}, and names line {place.line}: {error}",
        )
        session.require(
            str(error).count(function.__name__) > 0,
            f"the error does not name {function.__name__}: {error}",
        )
        session.require("^" in str(error), f"the error does not show the place: {error}")
    session.check(out, np.zeros(8, np.int32), name="an array of a kernel that was never compiled")
    session.launch(asserts_width, (1,), out, BLOCK=8)
    session.check(out, np.full(8, 8, np.int32))


# ---- promises to the compiler


@tw.jit
def assumed(x, out, n, stride, BLOCK: tl.constexpr):
    tl.assume(n > 0)
    tl.assume(stride % 16 == 0)
    stride = tl.multiple_of(stride, 16)
    row = tl.program_id(0)
    offsets = tl.max_contiguous(tl.multiple_of(row * stride + tl.arange(0, BLOCK), BLOCK), BLOCK)
    same = tl.max_constancy(tl.arange(0, BLOCK) // 4, 4)
    value = tl.load(x + offsets, mask=tl.arange(0, BLOCK) < n, other=-1)
    tl.store(out + offsets, value * 100 + same)


@CASES("hints", "assume", each={"i32": 48, "i64": 1 << 33}, needs=elements(tile=16), quick=("i32",))
def promises_that_hold_change_nothing(session: Session, stride: int) -> None:
    rows = 1 if stride > 48 else 3
    x, out = (
        session.rng.integers(-9, 9, (rows, 48)).astype(np.int32),
        np.full((rows, 48), 7, np.int32),
    )
    for n in (16, 5):
        session.launch(assumed, (rows,), x, out, n, stride, BLOCK=16)
        expected = np.full((rows, 48), 7)
        expected[:, :16] = np.where(np.arange(16) < n, x[:, :16], -1) * 100 + np.arange(16) // 4
        session.check(out, expected.astype(np.int32))


# ---- code of the target's own. No instruction at all is one that every target has: outputs that
# share the registers of inputs.


@tw.jit
def through_registers(x, y, out, other, PURE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, b = tl.load(x + offsets), tl.load(y + offsets)
    c, d = tl.inline_asm_elementwise(
        "", "=r,=r,1,0", [a, b], dtype=(tl.int32, tl.int32), is_pure=PURE, pack=1
    )
    tl.store(out + offsets, c)
    tl.store(other + offsets, d)


@CASES(
    "inline_asm/exchange",
    "inline_asm_elementwise",
    each={"pure": True, "impure": False},
    needs=elements(tile=64, features={"inline_asm"}),
    quick=("pure",),
)
def registers_are_exchanged(session: Session, pure: bool) -> None:
    """The first output is in the second input's register, and the other way round."""
    x, y = (numbers.wide(session.rng, "int32", 64) for _ in range(2))
    out, other = np.zeros(64, np.int32), np.zeros(64, np.int32)
    session.launch(through_registers, (1,), x, y, out, other, PURE=pure, BLOCK=64)
    session.check(out, y)
    session.check(other, x)


@tl.core.extern
def nowhere(x: Any, _semantic: Any = None) -> Any:
    return tl.core.extern_elementwise(
        "",
        "",
        [x],
        {(tl.float32,): ("a_function_that_no_library_has", tl.float32)},
        is_pure=True,
        _semantic=_semantic,
    )


@tw.jit
def call_nowhere(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, nowhere(tl.load(x + offsets)))


@tl.core.extern
def tripled(x: Any, _semantic: Any = None) -> Any:
    return tl.core.extern_elementwise(
        "library",
        "",
        [x],
        {(tl.float32,): ("tripled", tl.float32)},
        is_pure=True,
        _semantic=_semantic,
    )


@tw.jit
def call_tripled(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tripled(tl.load(x + offsets)))


@CASES(
    "extern/bitcode",
    "extern_elementwise",
    needs=elements("f32", tile=8, features={"extern_libraries"}),
    quick=True,
)
def functions_of_bitcode_libraries(session: Session) -> None:
    """Run a function that the launch passes as LLVM bitcode; without it the launch is an error."""
    library = b"a backend that takes no libraries has no LLVM, and looks into none"
    if "extern_libraries" in session.capabilities.features:
        import llvmlite.binding as llvm

        library = llvm.parse_assembly(
            "define float @tripled(float %x) {\n  %y = fmul float %x, 3.0\n  ret float %y\n}"
        ).as_bitcode()
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.bc")
        path.write_bytes(library)
        session.launch(call_tripled, (1,), x, out, BLOCK=8, extern_libs={"library": str(path)})
        session.check(out, 3 * x)
    try:
        session.launch(call_tripled, (1,), x, out, BLOCK=8)
    except TilewrightError:
        session.checks += 1
    else:
        session.require(False, "a function that no library has was called, and no error was raised")


@CASES(
    "extern/unknown",
    "extern_elementwise",
    needs=elements("f32", tile=8, features={"extern"}),
    quick=True,
)
def functions_that_no_library_has(session: Session) -> None:
    """An error, and no crash; the next kernel runs."""
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    try:
        session.launch(call_nowhere, (1,), x, out, BLOCK=8)
    except TilewrightError:
        if "extern" not in session.capabilities.features:
            raise
        session.checks += 1
    else:
        session.require(False, "a function that no library has was called, and no error was raised")
    numbers_out = np.zeros(8, np.int32)
    session.launch(asserts_width, (1,), numbers_out, BLOCK=8)
    session.check(numbers_out, np.full(8, 8, np.int32))
