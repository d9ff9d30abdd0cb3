"""The language's operators: result types by the rules of C and of the language, values by NumPy.

They run on pairs of all number types, on tensors with numbers of the program text and with
arguments, at special values, and over broadcast shapes. Integers are checked exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.cases.core.operators import kernels as ops
from tilewright_conformance.cases.core.operators.kernels import common, meet
from tilewright_conformance.cases.core.operators.multiplications import multiplications
from tilewright_conformance.cases.core.operators.operator_case import BLOCK, case
from tilewright_conformance.oracles.dtypes import (
    FLOATS,
    INTEGERS,
    IR,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    kind,
    language,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.numbers import check, draw, special, unset, wide


def cases() -> Iterator[Case]:
    yield from _pairs()
    yield from _scalars()
    yield from _alone()
    yield from _extremes()
    yield from multiplications()
    yield from _functions()
    yield from _shapes()


# ---- two tensors of any types


def _arithmetic(a: str, b: str, session: Session) -> None:
    name = common(a, b)
    x, y = ops.operands(session.rng, a, b, BLOCK)
    found = [unset(BLOCK, kind(name)) for _ in range(3)]
    session.launch(
        ops.arithmetic, (1,), x, y, *found, TYPE=language(name), BLOCK=BLOCK, **session.strict
    )
    p, q = meet(x, name), meet(y, name)
    with np.errstate(all="ignore"):
        expected = {"x + y": p + q, "x - y": p - q, "x * y": p * q}
    for result, (text, values) in zip(found, expected.items(), strict=True):
        check(session, result, values, name=text)


def _comparison(a: str, b: str, session: Session) -> None:
    name = common(a, b)
    x, y = ops.operands(session.rng, a, b, BLOCK)
    found = unset((6, BLOCK), np.int8)
    session.launch(ops.compared, (1,), x, y, found, BLOCK=BLOCK)
    p, q = meet(x, name), meet(y, name)
    with np.errstate(invalid="ignore"):
        for row, compare in zip(found, ops.COMPARISONS, strict=True):
            session.check(row, compare(p, q).astype(np.int8), name=compare.__name__)


def _division(a: str, b: str, session: Session) -> None:
    """``//`` and ``%`` truncate, as C does; ``/`` of integers and of narrow floats is of fp32."""
    name = common(a, b)
    whole = name in INTEGERS
    quotient = "float64" if name == "float64" else "float32"
    rest = name if whole else quotient
    if whole:
        x, y = (ops.usual(session.rng, one, BLOCK) for one in (a, b))
        if name in SIGNED:
            y[y == -1] = 3  # the smallest number has no opposite
    else:
        x, y = ops.operands(session.rng, a, b, BLOCK)
    found = [unset(BLOCK, kind(kept)) for kept in (quotient, rest, rest)]
    types = {"TYPE": language(quotient), "REST": language(rest)}
    session.launch(ops.divided, (1,), x, y, *found, **types, BLOCK=BLOCK, **session.strict)
    p, q = meet(x, rest), meet(y, rest)
    with np.errstate(all="ignore"):
        session.check(found[0], meet(x, quotient) / meet(y, quotient), name="x / y")
        session.check(found[2], np.fmod(p, q), name="x % y")
    if whole:
        session.check(found[1], ops.truncated_quotient(p, q), name="x // y")


def _bits(a: str, b: str, session: Session) -> None:
    """``>>`` brings in the sign where the left operand is signed."""
    name = common(a, b)
    x, y = (wide(session.rng, one, BLOCK) for one in (a, b))
    found = [unset(BLOCK, name) for _ in range(5)]
    inverted = unset(BLOCK, a)
    session.launch(ops.bitwise, (1,), x, y, *found, inverted, TYPE=language(name), BLOCK=BLOCK)
    p, q = x.astype(name), y.astype(name)
    amount = (y & y.dtype.type(8 * p.itemsize - 1)).astype(name)
    left, right = ops.shifted(p, amount, arithmetic=a in SIGNED)
    wanted = {"x & y": p & q, "x | y": p | q, "x ^ y": p ^ q, "x << y": left, "x >> y": right}
    for result, (text, values) in zip(found, wanted.items(), strict=True):
        session.check(result, values, name=text)
    session.check(inverted, ~x, name="~x")


def _choice(a: str, b: str, session: Session) -> None:
    name = common(a, b)
    x, y = ops.operands(session.rng, a, b, BLOCK)
    condition = session.rng.integers(0, 2, BLOCK).astype(np.int32)
    found = [unset(BLOCK, kind(name)) for _ in range(3)]
    session.launch(ops.chosen, (1,), condition, x, y, *found, TYPE=language(name), BLOCK=BLOCK)
    p, q = meet(x, name), meet(y, name)
    check(session, found[0], np.where(condition != 0, p, q), name="where(c, x, y)")
    with np.errstate(invalid="ignore"):
        check(session, found[1], np.fmin(p, q), name="minimum(x, y)", zero_sign=False)
        check(session, found[2], np.fmax(p, q), name="maximum(x, y)", zero_sign=False)


def _pairs() -> Iterator[Case]:
    for index, (a, b) in enumerate(ops.PAIRS):
        name, pair, quick = common(a, b), f"{IR[a]}_{IR[b]}", index % 9 == 0 or a == b
        mixed = {a, b} <= set(INTEGERS) and (a in SIGNED) != (b in SIGNED)
        yield case(
            f"arithmetic/{pair}/values",
            "x + y",
            functools.partial(_arithmetic, a, b),
            a,
            b,
            name,
            quick=quick,
        )
        yield case(
            f"compare/{pair}/values",
            "x < y",
            functools.partial(_comparison, a, b),
            a,
            b,
            name,
            "int8",
            quick=quick,
        )
        if not mixed:
            results = (
                ("float64",)
                if name == "float64"
                else (name, "float32")
                if name in INTEGERS
                else ("float32",)
            )
            yield case(
                f"divide/{pair}/values",
                "x / y",
                functools.partial(_division, a, b),
                a,
                b,
                *results,
                quick=quick,
            )
        wide_bf16 = ("float32",) if "bfloat16" in (a, b) else ()
        yield case(
            f"choose/{pair}/values",
            "tl.where",
            functools.partial(_choice, a, b),
            a,
            b,
            name,
            *wide_bf16,
            quick=quick,
        )
    for index, (a, b) in enumerate((a, b) for a in INTEGERS for b in INTEGERS):
        name = common(a, b)
        # a right shift has the signedness of what is shifted
        shifted = f"{'' if a in SIGNED else 'u'}{name.removeprefix('u')}"
        yield case(
            f"bits/{IR[a]}_{IR[b]}/values",
            "x & y",
            functools.partial(_bits, a, b),
            a,
            b,
            name,
            shifted,
            quick=index % 9 == 0,
        )


# ---- a tensor and a number


def _with_number(name: str, number: float, result: str, kernel: Any, session: Session) -> None:
    x = wide(session.rng, name, BLOCK)
    found = [unset(BLOCK, kind(result)) for _ in range(3)]
    given = {"NUMBER": number} if kernel is ops.with_number else {"number": number}
    session.launch(kernel, (1,), x, *found, TYPE=language(result), BLOCK=BLOCK, **given)
    p, q = meet(x, result), np.array(number).astype(kind(result))
    with np.errstate(all="ignore"):
        expected = {"x + n": p + q, "n - x": q - p, "x * n": p * q}
    for values, (text, wanted) in zip(found, expected.items(), strict=True):
        check(session, values, wanted, name=text)


def _beyond(name: str, number: int, session: Session) -> None:
    """Compare with a number outside the element type's range, which has a type of its own."""
    x = wide(session.rng, name, BLOCK)
    found = unset((3, BLOCK), np.int8)
    session.launch(ops.beyond, (1,), x, found, NUMBER=number, BLOCK=BLOCK)
    exact = x.astype(object)
    for row, expected in zip(
        found, (exact < number, exact == number, exact >= number), strict=True
    ):
        session.check(row, expected.astype(np.int8))


def _shifted_by(name: str, session: Session) -> None:
    x = wide(session.rng, name, BLOCK)
    bits = 8 * x.itemsize
    for amount in sorted({1, bits // 2 + 1, bits - 1}):
        left, right = unset(x.shape, x.dtype), unset(x.shape, x.dtype)
        session.launch(ops.shifted_by, (1,), x, left, right, AMOUNT=amount, BLOCK=BLOCK)
        session.check(left, x << x.dtype.type(amount), name=f"x << {amount}")
        session.check(right, x >> x.dtype.type(amount), name=f"x >> {amount}")


def _scalars() -> Iterator[Case]:
    for index, name in enumerate(NUMBERS):
        integer = name in INTEGERS
        numbers: list[tuple[str, float, str]] = [
            ("one", 1, name),
            ("hundred", 100, name),
            ("true", True, name),
        ]
        numbers += [("minus_three", -3, name)] * (name not in UNSIGNED)
        numbers += [("fraction", 0.375, "float32" if integer else name)]
        for text, number, result in numbers:
            quick = index % 3 == 0 and text in ("hundred", "fraction")
            run = functools.partial(_with_number, name, number, result, ops.with_number)
            yield case(f"number/{IR[name]}/{text}", "x + 1", run, name, result, quick=quick)
        for text, number, own in (("int", 77, "int32"), ("float", 2.5, "float32")):
            result = common(name, own)
            run = functools.partial(_with_number, name, number, result, ops.with_argument)
            yield case(
                f"argument/{IR[name]}/{text}", "x + n", run, name, result, own, quick=index % 4 == 0
            )
        if integer:
            yield case(
                f"shift/{IR[name]}/numbers",
                "x >> 1",
                functools.partial(_shifted_by, name),
                name,
                quick=index % 3 == 0,
            )
    for name, number in (
        ("uint8", 300),
        ("int8", -200),
        ("int8", 127),
        ("int16", 70000),
        ("uint16", 40000),
        ("int32", 2**40),
        ("uint32", 2**31),
        ("int64", 7),
    ):
        own = (
            "int32" if -(2**31) <= number < 2**31 else "uint32" if 0 <= number < 2**32 else "int64"
        )
        run = functools.partial(_beyond, name, number)
        yield case(
            f"compare/{IR[name]}/number_{number}",
            "x < 1",
            run,
            name,
            own,
            "int8",
            quick=number in (300, 2**40),
        )


# ---- one tensor


def _of_one(name: str, session: Session) -> None:
    x = wide(session.rng, name, BLOCK)
    if name in FLOATS:
        x[:17] = special(name)
    found = [unset(x.shape, x.dtype) for _ in range(3)]
    session.launch(ops.alone, (1,), x, *found, BLOCK=BLOCK)
    with np.errstate(all="ignore"):
        for result, expected, text in zip(
            found, (np.negative(x), np.abs(x), x), ("-x", "abs(x)", "+x"), strict=True
        ):
            check(session, result, expected, name=text)


def _negated(name: str, session: Session) -> None:
    """Negate and take magnitudes in the operand's own type: the minimum integer stays as it is."""
    x, y = wide(session.rng, name, BLOCK), wide(session.rng, name, BLOCK)
    x[::5] = np.iinfo(name).min
    greater, size_greater, best = (
        unset(BLOCK, np.int8),
        unset(BLOCK, np.int8),
        unset(BLOCK, kind(name)),
    )
    session.launch(ops.negated, (1,), x, y, greater, best, size_greater, BLOCK=BLOCK)
    with np.errstate(all="ignore"):
        negative, size = np.negative(x), np.abs(x)
    session.check(greater, (negative > y).astype(np.int8), name="-x > y")
    session.check(best, np.maximum(negative, y), name="max(-x, y)")
    session.check(size_greater, (size > y).astype(np.int8), name="abs(x) > y")


def _logic(session: Session) -> None:
    x, y = (session.rng.integers(-5, 6, BLOCK).astype(np.int32) for _ in range(2))
    found = unset((6, BLOCK), np.int8)
    session.launch(ops.logic, (1,), x, y, found, BLOCK=BLOCK)
    p, q = x > 0, y > 0
    for row, expected in zip(
        found, (p & q, p | q, p ^ q, ~p, np.where(p, q, ~q), p == q), strict=True
    ):
        session.check(row, expected.astype(np.int8))
    found = unset((3, 16), np.int8)
    session.launch(ops.scalar_logic, (16,), x, y, found, 16)
    p, q = p[:16], q[:16]
    for row, expected in zip(found, (p & q, p | q, ~p), strict=True):
        session.check(row, expected.astype(np.int8))


def _ranges(start: int, end: int, session: Session) -> None:
    found = unset(end - start, np.int32)
    session.launch(ops.ranges, (1,), found, START=start, END=end)
    session.check(found, np.arange(start, end, dtype=np.int32))


def _alone() -> Iterator[Case]:
    for index, name in enumerate(NUMBERS):
        yield case(
            f"unary/{IR[name]}/values",
            "-x",
            functools.partial(_of_one, name),
            name,
            quick=index % 3 == 0,
        )
    for name in SIGNED:
        yield case(
            f"unary/{IR[name]}/compared",
            "-x",
            functools.partial(_negated, name),
            name,
            "int8",
            quick=name == "int16",
        )
    yield case("logic/i1/values", "x & y", _logic, "int32", "int8", quick=True)
    for start, end in ((0, 1), (1, 2), (5, 69), (-16, 16), (100, 1124)):
        text = f"{start}_{end}".replace("-", "m")
        yield case(
            f"arange/i32/{text}",
            "tl.arange",
            functools.partial(_ranges, start, end),
            quick=start in (5, -16),
            tile=end - start,
        )


# ---- minimum, maximum and clamp at special values


def _not_numbers(name: str, propagate: bool, session: Session) -> None:
    x, y = (special(name)[session.rng.integers(0, 17, BLOCK)] for _ in range(2))
    found = unset((3, BLOCK), kind(name))
    session.launch(ops.not_numbers, (1,), x, y, found, PROPAGATE=propagate, BLOCK=BLOCK)
    with np.errstate(invalid="ignore"):
        p, q = x.astype(np.float64), y.astype(np.float64)
    maximum, minimum = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
    check(session, found[0], maximum(p, q), name="maximum", zero_sign=False)
    check(session, found[1], minimum(p, q), name="minimum", zero_sign=False)
    # What a NaN becomes that is held between limits, and not propagated, is left open.
    defined = np.full(BLOCK, True) if propagate else ~np.isnan(p)
    check(session, found[2][defined], np.clip(p, -1, 1)[defined], name="clamp", zero_sign=False)


def _limited(name: str, session: Session) -> None:
    x, first, second = (wide(session.rng, name, BLOCK) for _ in range(3))
    low, high = np.minimum(first, second), np.maximum(first, second)
    found = unset(BLOCK, kind(name))
    session.launch(ops.limited, (1,), x, low, high, found, BLOCK=BLOCK)
    check(session, found, np.minimum(np.maximum(x, low), high))


def _extremes() -> Iterator[Case]:
    for index, name in enumerate(FLOATS):
        for propagate in (False, True):
            run = functools.partial(_not_numbers, name, propagate)
            yield case(
                f"extremes/{IR[name]}/nan_{'all' if propagate else 'none'}",
                "tl.maximum",
                run,
                name,
                "float32",
                quick=index % 2 == 0,
            )
    for index, name in enumerate(NUMBERS):
        own = ("float32",) if name == "bfloat16" else ()
        yield case(
            f"clamp/{IR[name]}/values",
            "tl.clamp",
            functools.partial(_limited, name),
            name,
            *own,
            quick=index % 4 == 0,
        )


# ---- functions of one operation, whose results are exact


@tw.jit
def whole_parts(x_ptr, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out + at, tl.floor(x))
    tl.store(out + BLOCK + at, tl.ceil(x))
    tl.store(out + 2 * BLOCK + at, libdevice.trunc(x))
    tl.store(out + 3 * BLOCK + at, libdevice.rint(x))


@tw.jit
def exact_roots(x_ptr, y_ptr, roots, signs, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(roots + at, tl.sqrt_rn(x))
    tl.store(signs + at, libdevice.copysign(x, tl.load(y_ptr + at)))


@tw.jit
def bit_counts(x_ptr, leading, ones, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(leading + at, libdevice.clz(x))
    tl.store(ones + at, libdevice.popc(x))


def _whole_parts(name: str, session: Session) -> None:
    halves = np.arange(-20, 20) / 2
    x = np.concatenate([special(name), halves, 2.0**22 + halves, wide(session.rng, name, BLOCK)])[
        :BLOCK
    ].astype(name)
    found = unset((4, BLOCK), name)
    session.launch(whole_parts, (1,), x, found, BLOCK=BLOCK)
    for row, function in zip(found, (np.floor, np.ceil, np.trunc, np.rint), strict=True):
        session.check(row, function(x), name=function.__name__)


def _exact_roots(session: Session) -> None:
    x, y = np.abs(wide(session.rng, "float32", BLOCK)), wide(session.rng, "float32", BLOCK)
    x[:17], y[:4] = special("float32"), (0.0, -0.0, np.inf, -np.inf)
    found = [unset(BLOCK, np.float32) for _ in range(2)]
    session.launch(exact_roots, (1,), x, y, *found, BLOCK=BLOCK)
    with np.errstate(invalid="ignore"):
        session.check(found[0], np.sqrt(x), name="sqrt_rn")
    session.check(found[1], np.copysign(x, y), name="copysign")


def _bit_counts(name: str, session: Session) -> None:
    x = wide(session.rng, name, BLOCK) >> session.rng.integers(
        0, 8 * kind(name).itemsize, BLOCK
    ).astype(name)
    x[:3] = 0, -1, 1
    found = [unset(BLOCK, np.int32) for _ in range(2)]
    session.launch(bit_counts, (1,), x, *found, BLOCK=BLOCK)
    bits = [f"{value & ((1 << 8 * x.itemsize) - 1):0{8 * x.itemsize}b}" for value in x.tolist()]
    session.check(
        found[0],
        np.array([len(text) - len(text.lstrip("0")) for text in bits], np.int32),
        name="clz",
    )
    session.check(found[1], np.array([text.count("1") for text in bits], np.int32), name="popc")


def _functions() -> Iterator[Case]:
    for name in ("float32", "float64"):
        yield case(
            f"whole/{IR[name]}/values",
            "tl.floor",
            functools.partial(_whole_parts, name),
            name,
            quick=name == "float32",
        )
    yield case("roots/f32/values", "tl.sqrt_rn", _exact_roots, "float32", quick=True)
    for name in ("int32", "int64"):
        yield case(
            f"counts/{IR[name]}/values",
            "libdevice.clz",
            functools.partial(_bit_counts, name),
            name,
            quick=name == "int32",
        )


# ---- operands of different shapes


@tw.jit
def outer(x_ptr, y_ptr, added, differences, below, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A column and a row, a scalar and a tile, a row and a tile of more axes."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    x, y = tl.load(x_ptr + rows), tl.load(y_ptr + columns)
    tl.store(added + at, x[:, None] + y[None, :])
    tl.store(differences + at, tl.load(x_ptr) - (x[:, None] - y))
    tl.store(below + at, y < x[:, None])


@tw.jit
def four_axes(
    x_ptr, y_ptr, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr
):
    x = tl.load(
        x_ptr + tl.arange(0, A)[:, None, None, None] * C + tl.arange(0, C)[None, None, :, None]
    )
    y = tl.load(y_ptr + tl.arange(0, B)[:, None, None] * D + tl.arange(0, D)[None, None, :])
    at = (
        (tl.arange(0, A)[:, None, None, None] * B + tl.arange(0, B)[:, None, None]) * C
        + tl.arange(0, C)[:, None]
    ) * D + tl.arange(0, D)
    tl.store(out + at, x * y)


def _outer(name: str, shape: tuple[int, int], session: Session) -> None:
    x, y = draw(session.rng, name, shape[0]), draw(session.rng, name, shape[1])
    found, below = [unset(shape, kind(name)) for _ in range(2)], unset(shape, np.int8)
    session.launch(outer, (1,), x, y, *found, below, ROWS=shape[0], COLUMNS=shape[1])
    check(session, found[0], x[:, None] + y[None, :], name="column + row")
    check(session, found[1], x[0] - (x[:, None] - y), name="scalar - (column - row)")
    session.check(below, (y < x[:, None]).astype(np.int8), name="row < column")


def _four_axes(session: Session) -> None:
    x, y = draw(session.rng, "int32", (2, 8)), draw(session.rng, "int32", (4, 16))
    found = unset((2, 4, 8, 16), np.int32)
    session.launch(four_axes, (1,), x, y, found, A=2, B=4, C=8, D=16)
    session.check(found, x[:, None, :, None] * y[:, None, :])


def _shapes() -> Iterator[Case]:
    shapes = ((8, 8), (1, 64), (64, 1), (16, 32), (32, 4), (1, 1), (128, 16))
    names = ("float32", "int32", "float16", "int8", "uint64", "bfloat16", "int16")
    for index, shape in enumerate(shapes):
        for name in (names[index], names[(index + 3) % 7]):
            run = functools.partial(_outer, name, shape)
            yield case(
                f"broadcast/{IR[name]}/{shape[0]}x{shape[1]}",
                "x + y",
                run,
                name,
                "int8",
                quick=index % 3 == 0,
                tile=shape[0] * shape[1],
            )
    yield case("broadcast/i32/2x4x8x16", "x + y", _four_axes, "int32", quick=True, tile=1024)
