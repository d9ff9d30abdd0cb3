"""Arguments of launches: numbers, floats, None, constants, tuples, keywords and defaults.

They are of every width and at every position.
"""
# ruff: noqa: F821

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.launch.launch import many_parameters
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import NOTHING, Table, elements

CASES = Table("launch", "launch", "Python and NumPy")

# ---- how many


def _mixed(session: Session, count: int) -> list[Any]:
    """Numbers and arrays of all kinds in turn, no two alike."""
    rng, values = session.rng, []
    for position in range(count):
        own = int(rng.integers(2, 1000)) * 64 + position
        values.append(
            (
                own,
                -(own << 32) - position,
                float(np.float32(own / 7)),
                np.array([own], np.int32),
                bool(own // 64 % 2),
                (1 << 63) + own,
                np.array([0, own / 8], np.float32)[1:],
                np.float32(-own),
                np.array([own % 100], np.int8),
            )[position % 9]
        )
    return values


def _of_mixed(count: int) -> Needs:
    """The needs of so many of them, and of the places for results."""
    return elements("u64", "f32", *["i8"] * (count > 8))


def _places(room: int = many_parameters.MOST) -> list[np.ndarray]:
    """Arrays for the integers, the unsigned integers and the floats among the values."""
    return [np.zeros(room, np.int64), np.zeros(room, np.uint64), np.zeros(room, np.float32)]


def _expected(values: list[Any], room: int = many_parameters.MOST) -> list[np.ndarray]:
    integers, unsigned, floats = _places(room)
    for position, value in enumerate(values):
        number = value[0] if isinstance(value, np.ndarray) else value
        if isinstance(number, float | np.floating):
            floats[position] = number
        elif number > (1 << 63) - 1:
            unsigned[position] = number
        else:
            integers[position] = number
    return [integers, unsigned, floats]


@CASES(
    "arguments/count",
    "launch",
    each={str(n): n for n in (3, 4, 5, 8, 15, 16, 17, 18, 31, 32, 33, 48, 63, 64)},
    needs=lambda count: _of_mixed(count - 3),
    quick=("17", "64"),
)
def every_position_counts(session: Session, count: int) -> None:
    """Pass arguments of mixed types at every position, twice, with other values.

    Three arrays take the results of the further arguments.
    """
    given = count - 3
    for _ in range(2):
        values, found = _mixed(session, given), _places()
        session.launch(many_parameters.take, (1,), *found, *values)
        for array, expected, name in zip(
            found, _expected(values), ("integers", "unsigned", "floats"), strict=True
        ):
            session.check(array, expected, name=name)


@CASES(
    "arguments/variadic",
    "launch",
    each={str(n): n for n in (0, 1, 20, 61)},
    needs=_of_mixed,
    quick=("20",),
)
def parameters_of_any_number(session: Session, count: int) -> None:
    for _ in range(2):
        values, found = _mixed(session, count), _places()
        session.launch(many_parameters.take_any, (1,), *found, *values)
        for array, expected, name in zip(
            found, _expected(values), ("integers", "unsigned", "floats"), strict=True
        ):
            session.check(array, expected, name=name)


@CASES(
    "arguments/numbers",
    "launch",
    each={"integers": 1, "floats": 0.37},
    needs=elements("u64", "f32"),
    quick=True,
)
def late_numbers(session: Session, start: float) -> None:
    """Sixty-one numbers and no other arguments between them."""
    values = [type(start)(start + 3 * position) for position in range(61)]
    found = _places()
    session.launch(many_parameters.take, (1,), *found, *values)
    if isinstance(start, float):
        session.check(found[2], np.array(values, np.float32))
    else:
        session.check(found[0], np.array(values))


@tw.jit
def nothing():
    pass


@tw.jit
def only_ids(out):
    tl.store(out + tl.program_id(0), tl.num_programs(0) * 100 + tl.program_id(0))


@CASES("arguments/none_at_all", "launch", quick=True)
def kernels_without_arguments(session: Session) -> None:
    for grid in ((1,), (5, 2), (0,)):
        found = session.launch(nothing, grid)
        session.require(found is not None, "a launch returns the compiled kernel")
    out = np.zeros(3, np.int32)
    session.launch(only_ids, (3,), out)
    session.check(out, np.array([300, 301, 302], np.int32))


# ---- integers and booleans


@tw.jit
def put_number(out, number):
    tl.store(out, number)
    tl.store(out + 1, number + 1)


INTEGERS = {
    "small": (0, 1, -1, 2, 16, 17, -16, 100),
    "i32": (2**31 - 1, 2**31 - 2, -(2**31), -(2**31) + 1, 2**30, -(2**31) + 16),
    "i64": (
        2**31,
        -(2**31) - 1,
        2**32 - 1,
        2**32,
        2**40 + 5,
        -(2**40) - 5,
        2**63 - 2,
        -(2**63),
        -(2**63) + 1,
        2**62,
    ),
    "u64": (2**63, 2**63 + 1, 2**64 - 2, 2**64 - 16),
}
#: The needs of some; among the others are values that arrive as u32.
_NEEDS = {"small": NOTHING, "u64": elements("u64")}


@CASES(
    "integers",
    "launch",
    each={n: n for n in INTEGERS},
    needs=lambda name: _NEEDS.get(name, elements("u32")),
    quick=("i32", "i64", "u64"),
)
def integers_by_their_size(session: Session, name: str) -> None:
    """Pass Python's and NumPy's integers, and constants.

    1 and multiples of 16 have specializations.
    """
    dtype = np.uint64 if name == "u64" else np.int64
    for value in INTEGERS[name]:
        for given, constant in ((value, False), (dtype(value), False), (tl.constexpr(value), True)):
            out = np.zeros(2, dtype)
            session.launch(put_number, (1,), out, given)
            # A sum of i32 is an i32, and one of constants is computed in Python.
            more = -(2**31) if value == 2**31 - 1 and not constant else value + 1
            session.check(out, np.array([value, more], dtype), name=f"{value} and one more")


@tw.jit
def put_annotated(
    out,
    unsigned,
    a: i8,  # type: ignore[name-defined]
    b: i16,  # type: ignore[name-defined]
    c: tl.int32,
    d: i64,  # type: ignore[name-defined]
    e: tl.uint8,
    f: tl.uint16,
    g: u32,  # type: ignore[name-defined]
    h: tl.uint64,
):
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d)
    tl.store(unsigned, e)
    tl.store(unsigned + 1, f)
    tl.store(unsigned + 2, g)
    tl.store(unsigned + 3, h)


@CASES(
    "integers/annotated",
    "launch",
    needs=elements("i8", "i16", "u8", "u16", "u32", "u64"),
    quick=True,
)
def annotations_fix_the_width(session: Session) -> None:
    """The ends of every width, stored with 64 bits, so that signs and widths show."""
    bits = (8, 16, 32, 64)
    for signed, unsigned in (
        ([2 ** (n - 1) - 1 for n in bits], [2**n - 1 for n in bits]),
        ([-(2 ** (n - 1)) for n in bits], [2 ** (n - 1) for n in bits]),
        ([-1] * 4, [1] * 4),
        ([16] * 4, [0] * 4),
        ([-77, -7777, -77777, -7777777777], [200, 60000, 4000000000, 2**63 + 5]),
    ):
        out, other = np.zeros(4, np.int64), np.zeros(4, np.uint64)
        session.launch(put_annotated, (1,), out, other, *signed, *unsigned)
        session.check(out, np.array(signed, np.int64), name="signed")
        session.check(other, np.array(unsigned, np.uint64), name="unsigned")


@tw.jit
def put_booleans(out, a, b, c):
    tl.store(out, a)
    if b:
        tl.store(out + 1, 5)
    else:
        tl.store(out + 1, 6)
    tl.store(out + 2, tl.where(c, 7, 8))
    tl.store(out + 3, a.to(tl.int32) + b.to(tl.int32) * 2 + c.to(tl.int32) * 4)


@CASES("booleans", "launch", quick=True)
def booleans(session: Session) -> None:
    for a, b, c in (
        (True, False, True),
        (False, True, False),
        (True, True, True),
        (False, False, False),
    ):
        for kind in (bool, np.bool_):
            out = np.full(4, 9, np.int32)
            session.launch(put_booleans, (1,), out, kind(a), kind(b), kind(c))
            session.check(
                out, np.array([a, 5 if b else 6, 7 if c else 8, a + 2 * b + 4 * c], np.int32)
            )


# ---- floats


@tw.jit
def put_floats(half, brain, f32, plain, a: fp16, b: bf16, c: fp32, d):  # type: ignore[name-defined]
    tl.store(half, a)
    tl.store(brain, b)
    tl.store(f32, c)
    tl.store(plain, d)


@tw.jit
def put_doubles(out, a: fp64, b: tl.float64):  # type: ignore[name-defined]
    tl.store(out, a)
    tl.store(out + 1, b)


#: With numbers between two of f16, bf16 and f32, beyond their ranges, and below their minimum.
FLOATS = (
    0.1,
    -1.0 / 3.0,
    65504.0,
    65519.0,
    65521.0,
    1e5,
    1e-7,
    6e-8,
    1e-40,
    3.3e38,
    1e39,
    -1e39,
    1e-50,
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1 + 2**-8,
    1 + 2**-24,
)


@CASES("floats/f64", "launch", needs=elements("f64"), quick=True)
def floats_of_64_bits(session: Session) -> None:
    for value in FLOATS:
        out = np.zeros(2)
        session.launch(put_doubles, (1,), out, value, -value)
        session.check(out, np.array([value, -value]))


@CASES("floats/narrow", "launch", needs=elements("f16", "bf16", "f32"), quick=True)
def floats_are_rounded_to_their_type(session: Session) -> None:
    """Round floats to the nearest number of their type, ties to even.

    They are infinite beyond the range, subnormal below it. Without an annotation a float is an f32.
    """
    with np.errstate(over="ignore"):
        for value in FLOATS:
            half, brain = np.zeros(1, np.float16), np.zeros(1, ml_dtypes.bfloat16)
            single, plain = np.zeros(1, np.float32), np.zeros(1, np.float32)
            session.launch(put_floats, (1,), half, brain, single, plain, value, value, value, value)
            session.check(single, np.array([value]).astype(np.float32), name=f"{value} as f32")
            session.check(plain, np.array([value]).astype(np.float32), name=f"{value}")
            session.check(half, np.array([value]).astype(np.float16), name=f"{value} as f16")
            session.check(
                brain.view(np.uint16), np.array([value]), type_="bf16", name=f"{value} as bf16"
            )


@tw.jit
def put_single(out, a, b):
    tl.store(out, a)
    tl.store(out + 1, a + b)


@CASES("floats/f32", "launch", needs=elements("f32"), quick=True)
def floats_without_wider_types(session: Session) -> None:
    for a, b in (
        (0.1, 1e5),
        (1e-40, -0.0),
        (3.0e38, 0.0),
        (-np.inf, 1.0),
        (np.float32(0.1), np.float32(0.2)),
        (1.0, 16.0),
        (0.0, np.float32(7.5)),
    ):
        out = np.zeros(2, np.float32)
        session.launch(put_single, (1,), out, a, b)
        wide = np.array([a, float(np.float32(a)) + float(np.float32(b))])
        session.check(out, wide, flush=abs(a) < 1e-38)


# ---- None, constants, tuples, keywords


@tw.jit
def put_with_optional(out, x, y, z):
    found = 0
    if x is not None:
        found += tl.load(x)
    if y is not None:
        found += y * 10
    if z is None:
        found += 100
    tl.store(out, found)


@CASES("none", "launch", quick=True)
def none_is_a_constant(session: Session) -> None:
    x = np.array([3], np.int32)
    for given, y, z in ((x, 4, None), (None, 4, None), (x, None, 5), (None, None, x), (x, 4, None)):
        out = np.zeros(1, np.int32)
        session.launch(put_with_optional, (1,), out, given, y, z)
        session.check(
            out,
            np.array(
                [(given is not None) * 3 + (y is not None) * 40 + (z is None) * 100], np.int32
            ),
        )


@tw.jit
def plus_two(x):
    return x + 2


@tw.jit
def times_three(x):
    return x * 3


@tw.jit
def put_constant(out, n, VALUE: tl.constexpr):
    if VALUE is None:
        tl.store(out, n)
    elif isinstance(VALUE, str):
        tl.store(out, n + (10 if VALUE == "ten" else 20))
    elif isinstance(VALUE, tl.dtype):
        tl.store(out, (n * 100 + 0.75).to(VALUE).to(tl.float32))
    elif isinstance(VALUE, tuple):
        tl.store(out, VALUE[0] * n + VALUE[1])
    elif isinstance(VALUE, bool):
        tl.store(out, n if VALUE else -n)
    elif isinstance(VALUE, (int, float)):
        tl.store(out, n + VALUE)
    else:
        tl.store(out, VALUE(n))


CONSTANTS = {
    "integers": [(value, 5 + value) for value in (0, 1, 2, -3, 1000)],
    "floats": [(0.5, 5.5), (-0.25, 4.75), (float("inf"), np.inf), (1e3, 1005.0)],
    "booleans": [(True, 5), (False, -5), (1, 6), (0, 5), (1.0, 6.0)],
    "strings": [("ten", 15), ("twenty", 25), ("ten", 15)],
    "tuples": [((2, 3), 13), ((3, 2), 17), ((2, 0.5), 10.5)],
    "none": [(None, 5), (0, 5), (None, 5)],
    "dtypes": [(tl.float32, 500.75), (tl.int32, 500)],
    "functions": [(plus_two, 7), (times_three, 15), (plus_two, 7)],
}


@CASES(
    "constants",
    "launch",
    each={n: n for n in CONSTANTS},
    needs=elements("f32"),
    quick=("integers", "booleans", "functions"),
)
def constants_that_differ_are_compiled_apart(session: Session, name: str) -> None:
    """Equal but different constants too: 1, 1.0 and True."""
    for value, expected in CONSTANTS[name]:
        out = np.zeros(1, np.float32)
        session.launch(put_constant, (1,), out, 5, VALUE=value)
        session.check(out, np.array([expected], np.float64), name=f"{value!r}")


class Point(NamedTuple):
    x: Any
    y: Any


class Line(NamedTuple):
    start: Point
    end: Point
    name: Any


@tw.jit
def put_tuples(outs, values, line, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    (first, second), third = outs
    a, (b, (c, d)), e = values
    tl.store(first + offsets, tl.load(a + offsets) * b + c)
    tl.store(second, d)
    if e is None:
        tl.store(second + 1, line.start.x + line.end.y * 10)
    else:
        tl.store(second + 1, e)
    tl.store(third, line.name + line[0].y)
    tl.store(third + 1, len(values) * 10 + len(line))


@CASES("tuples", "launch", needs=elements("f32", tile=16), quick=True)
def tuples_in_tuples(session: Session) -> None:
    """Pass arrays, numbers, None and named tuples inside of tuples.

    The same kernel takes other values and other kinds of them.
    """
    for b, c, d, e in (
        (2, 3, 4, None),
        (1, 16, -5, None),
        (2, 3, 4, 77),
        (1 << 20, 0, 2**31 - 1, None),
    ):
        x = session.rng.integers(-9, 9, 16).astype(np.int32)
        first, second, third = (
            np.zeros(16, np.int32),
            np.zeros(2, np.int32),
            np.zeros(2, np.float32),
        )
        line = Line(Point(b, 0.5), end=Point(1.5, c), name=0.25)
        session.launch(
            put_tuples, (1,), ((first, second), third), (x, (b, (c, d)), e), line, BLOCK=16
        )
        session.check(first, x * b + c)
        session.check(second, np.array([d, b + c * 10 if e is None else e], np.int32))
        session.check(third, np.array([0.75, 33.0]))


@tw.jit
def put_keywords(out, a, b=20, c=0.5, *, d, LAST: tl.constexpr = 7, flag=True):
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d)
    tl.store(out + 4, LAST)
    tl.store(out + 5, flag)


@CASES("keywords", "launch", needs=elements("f32"), quick=True)
def arguments_bind_as_in_python(session: Session) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any], list[float]]] = [
        ((1,), {"d": 4}, [1, 20, 0.5, 4, 7, 1]),
        ((1, 2, 3.5), {"d": 4, "flag": False}, [1, 2, 3.5, 4, 7, 0]),
        ((), {"d": 4, "c": 1.5, "a": 9}, [9, 20, 1.5, 4, 7, 1]),
        ((5,), {"LAST": 8, "d": 16, "b": -3}, [5, -3, 0.5, 16, 8, 1]),
        ((1,), {"d": 4, "num_warps": 2}, [1, 20, 0.5, 4, 7, 1]),
    ]
    for positional, named, expected in calls * 2:
        out = np.zeros(6, np.float32)
        session.launch(put_keywords, (1,), out, *positional, **named)
        session.check(out, np.array(expected, np.float64))
    out = np.zeros(6, np.float32)
    session.launch(put_keywords, (1,), flag=False, d=1, a=2, out=out)
    session.check(out, np.array([2, 20, 0.5, 1, 7, 0.0]))


# ---- specialisation


@tw.jit
def shifted_copy(x, out, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(out + offsets, value * 2 + stride, mask=offsets < n)


_SPECIAL = {
    "usual": tw.jit(shifted_copy.fn),
    "do_not_specialize": tw.jit(shifted_copy.fn, do_not_specialize=["n", "stride"]),
    "by_position": tw.jit(shifted_copy.fn, do_not_specialize=[2, 3]),
    "not_on_alignment": tw.jit(
        shifted_copy.fn, do_not_specialize_on_alignment=["x", "out", "n", "stride"]
    ),
}


@CASES(
    "specialisation",
    "launch",
    each={n: n for n in _SPECIAL},
    needs=elements("f32", tile=16),
    quick=("usual", "do_not_specialize"),
)
def specializations_agree(session: Session, name: str) -> None:
    """Alternate sizes, strides and alignments that are specialized with others that are not.

    Sizes and strides are 1, multiples of 16 and others; arrays lie at multiples of 16 bytes or not.
    Code of one specialization would be wrong for another.
    """
    kernel = _SPECIAL[name]
    for offset in (0, 1, 4, 3):
        for n, stride in (
            (64, 16),
            (63, 15),
            (1, 1),
            (64, 17),
            (16, 16),
            (33, 1),
            (2, 32),
            (64, 16),
        ):
            whole, result = (
                session.rng.integers(-8, 9, 70).astype(np.float32),
                np.full(70, 9, np.float32),
            )
            x, out = whole[offset:], result[offset:]
            expected = result.copy()
            for program in range(3):
                at = np.arange(program * stride, program * stride + 16)
                at = at[at < n]
                expected[offset + at] = whole[offset + at] * 2 + stride
            session.launch(kernel, (3,), x, out, n, stride, BLOCK=16)
            session.check(
                result, expected, name=f"n={n}, stride={stride}, offset {offset}", zero_sign=False
            )
