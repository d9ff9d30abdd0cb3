"""The formats of 8 bits in the language: conversions, moves, comparison and arithmetic.

Every number of each format takes part. Samples of the operations are in the family of each (casts,
dots, elementwise). Expected values come from the formats' definition.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import ELEMENTS, FLOATS, FP8, IR, Array, given, storage
from tilewright_conformance.oracles.formats import FORMATS, Format, format_of
from tilewright_conformance.oracles.matrix import E2M1, SCALED, bound
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

#: names in the language
KINDS = tuple(ELEMENTS[text] for text in FP8)
_COMMON = ("float8e4nv", "float8e5")
_BLOCK = 256
_BYTES = np.arange(256, dtype=np.uint8)
_TABLE = Table("fp8", "fp8", "the definition of the format")


def cases() -> Iterator[Case]:
    for name in KINDS:
        yield from _conversions(name)
        yield from _memory(name)
        yield from _operators(name)
        yield from _matmuls(name)
    yield from _scaled()


def _case(
    name: str,
    id_: str,
    subject: str,
    body: Callable[[Session], None],
    *types: str,
    quick: bool = False,
    tile: int = _BLOCK,
    **needs: Any,
) -> Case:
    return _TABLE.case(
        f"{IR[name]}/{id_}", subject, body, name, *types, quick=quick, tile=tile, **needs
    )


def _check(
    session: Session, found: Array, expected: Array, name: str, label: str = "result"
) -> None:
    """Bits of a format, against numbers: a NaN has many patterns."""
    session.check(found, expected, type_=IR[name], name=label)


# ---- conversions


@tw.jit
def convert(x_ptr, y_ptr, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.cast(x, y_ptr.dtype.element_ty, ROUNDING), mask=at < n)


def _wider(name: str, target: str, session: Session) -> None:
    """Every number, exactly; in an order that changes from lane to lane too."""
    bits = np.concatenate([_BYTES, session.rng.permutation(_BYTES), _BYTES[::-1][:77]])
    found = np.zeros(len(bits), storage(target))
    session.launch(
        convert,
        (-(-len(bits) // _BLOCK),),
        given(bits, name),
        given(found, target),
        len(bits),
        ROUNDING=None,
        BLOCK=_BLOCK,
    )
    session.check(found, FORMATS[name].worth(bits), type_=IR[target])


def _decisive(form: Format, dtype: Any) -> Array:
    """Every number of the format, the ties between neighbors, and numbers of ``dtype`` nearby.

    The tie behind the maximum is among them. Of f64 also those off a tie by less than f32 or f16
    can represent, where rounding by way of these goes wrong.
    """
    known = np.unique(form.worth(np.arange(256)))
    known = known[np.isfinite(known) & (known >= 0)]
    beyond = 2 * known[-1] - known[-2]
    middles = (np.append(known, beyond)[1:] + known) / 2
    exact = np.concatenate([known, middles, [beyond, 2 * beyond, 1e4 * beyond]])
    near = [exact]
    for part in (2.0**-12, 2.0**-14, 2.0**-20, 2.0**-26, 2.0**-30, 2.0**-45):
        near += [middles * (1 + part), middles * (1 - part)]
    with np.errstate(over="ignore"):
        x = np.concatenate(near).astype(dtype)
        return np.concatenate(
            [
                sign * part
                for sign in (1, -1)
                for part in (x, np.nextafter(x, dtype(np.inf)), np.nextafter(x, dtype(0)))
            ]
        ).astype(dtype)


def _arguments(session: Session, name: str, source: str) -> tuple[Array, Array]:
    """(the kernel's argument, float64 values) of a wider type.

    They are all numbers of 16 bits; decisive, random and special ones of the others.
    """
    if source in ("float16", "bfloat16"):
        bits = np.arange(1 << 16, dtype=np.uint16)
        return (bits.view(np.float16) if source == "float16" else bits), FORMATS[source].worth(bits)
    dtype = storage(source).type
    form = FORMATS[name]
    with np.errstate(over="ignore"):
        special = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-40, -1e-38, 3e38, -3e38, 1e300, 5e-324]
        ).astype(dtype)
        scale = np.exp2(
            session.rng.uniform(
                np.log2(form.worth(np.array([1]))[0]) - 3, np.log2(form.maximum) + 2, 4000
            )
        )
        x = np.concatenate(
            [
                _decisive(form, dtype),
                special,
                (session.rng.choice([-1, 1], 4000) * scale).astype(dtype),
            ]
        )
    return x, x.astype(np.float64)


def _narrower(name: str, source: str, rounding: str, session: Session) -> None:
    x, values = _arguments(session, name, source)
    found = np.zeros(len(x), np.uint8)
    session.launch(
        convert,
        (-(-len(x) // 1024),),
        given(x, source),
        given(found, name),
        len(x),
        ROUNDING=rounding,
        BLOCK=1024,
    )
    _check(session, found, FORMATS[name].rounded(values, rounding), name)


def _across(name: str, session: Session) -> None:
    """From one format of 8 bits to each other one."""
    for target in KINDS:
        if target != name:
            found = np.zeros(256, np.uint8)
            session.launch(
                convert,
                (1,),
                given(_BYTES.copy(), name),
                given(found, target),
                256,
                ROUNDING=None,
                BLOCK=_BLOCK,
            )
            _check(
                session,
                found,
                FORMATS[target].rounded(FORMATS[name].worth(_BYTES)),
                target,
                f"to {target}",
            )


@tw.jit
def there_and_back(x_ptr, y_ptr, MIDDLE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(MIDDLE).to(x_ptr.dtype.element_ty))


def _round_trip(name: str, session: Session) -> None:
    """Widen and narrow again without a change, except for infinity, which saturates.

    A wider number that went through the format is rounded to it.
    """
    worth = FORMATS[name].rounded(FORMATS[name].worth(_BYTES))
    for middle in ("float16", "bfloat16", "float32"):
        found = np.zeros(256, np.uint8)
        session.launch(
            there_and_back,
            (1,),
            given(_BYTES.copy(), name),
            given(found, name),
            MIDDLE=getattr(tl, middle),
            BLOCK=_BLOCK,
        )
        _check(session, found, worth, name, f"through {middle}")
    x = (session.rng.standard_normal(_BLOCK) * FORMATS[name].maximum / 3).astype(np.float32)
    y = np.zeros_like(x)
    session.launch(there_and_back, (1,), x, y, MIDDLE=getattr(tl, name), BLOCK=_BLOCK)
    session.check(y, FORMATS[name].rounded(x.astype(np.float64)), name="fp32 through the format")


def _conversions(name: str) -> Iterator[Case]:
    for target in FLOATS:
        text = IR[target]
        body = functools.partial(_wider, name, target)
        yield _case(
            name,
            f"to-{text}/every-number",
            "tl.cast",
            body,
            text,
            quick=target in ("float32", "bfloat16") and name in _COMMON,
        )
    for source in FLOATS:
        text = IR[source]
        for rounding in ("rtne", "rtz"):
            body = functools.partial(_narrower, name, source, rounding)
            quick = name in _COMMON and (source, rounding) in (
                ("float32", "rtne"),
                ("float64", "rtne"),
                ("float16", "rtz"),
            )
            yield _case(
                name, f"from-{text}/{rounding}", "tl.cast", body, text, quick=quick, tile=1024
            )
    yield _case(
        name,
        "across/every-number",
        "tl.cast",
        functools.partial(_across, name),
        *FP8,
        quick=name == "float8e5",
    )
    yield _case(
        name,
        "round-trip/every-number",
        "tl.cast",
        functools.partial(_round_trip, name),
        "f16",
        "bf16",
        "f32",
        quick=name == "float8e4b8",
    )


# ---- loads, stores, bits


@tw.jit
def copy_rows(
    x_ptr, y_ptr, rows, columns, x_row, y_row, OTHER: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    row, column = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_row + column, mask=inside, other=OTHER)
    tl.store(y_ptr + row * y_row + column, x, mask=(row < rows) & (column < C))


def _copied(name: str, session: Session) -> None:
    """Copy rows of odd lengths out of a larger array; masked-off lanes load ``other``, rounded."""
    x = session.rng.permutation(np.tile(_BYTES, 4)).reshape(16, 64)
    rows, columns = 13, 45
    found = np.full((rows + 2, 67), 0x11, np.uint8)
    expected = FORMATS[name].worth(found)
    expected[:rows, :64] = FORMATS[name].rounded(np.array([1.3]))[0]
    expected[:rows, :columns] = FORMATS[name].worth(x[:rows, 3 : 3 + columns])
    session.launch(
        copy_rows,
        (4,),
        given(x.reshape(-1)[3:], name),
        given(found, name),
        rows,
        columns,
        64,
        67,
        OTHER=1.3,
        R=4,
        C=64,
    )
    _check(session, found, expected, name)


@tw.jit
def as_bytes(x_ptr, signed_ptr, back_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(signed_ptr + at, x.to(tl.int8, bitcast=True))
    tl.store(back_ptr + at, (x.to(tl.uint8, bitcast=True) ^ 0x80).to(x.dtype, bitcast=True))


def _bits(name: str, session: Session) -> None:
    """Bits of numbers are what they are; a NaN's may change where it is moved as a float."""
    bits = _BYTES[~np.isnan(FORMATS[name].worth(_BYTES))]
    bits = np.resize(bits, _BLOCK)
    signed, back = np.zeros(_BLOCK, np.int8), np.zeros(_BLOCK, np.uint8)
    session.launch(as_bytes, (1,), given(bits, name), signed, given(back, name), BLOCK=_BLOCK)
    session.check(signed.view(np.uint8), bits)
    _check(session, back, FORMATS[name].worth(bits ^ np.uint8(0x80)), name)


@tw.jit
def gathered(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at)
    tl.store(
        y_ptr + index,
        tl.where(
            at % 3 == 0, tl.load(x_ptr + index), tl.full((BLOCK,), 0.5, x_ptr.dtype.element_ty)
        ),
    )


def _gathered(name: str, session: Session) -> None:
    """Loads and stores at addresses in any order, a choice, and a constant of the type."""
    index = session.rng.permutation(_BLOCK).astype(np.int32)
    found = np.zeros(_BLOCK, np.uint8)
    session.launch(
        gathered, (1,), given(_BYTES.copy(), name), index, given(found, name), BLOCK=_BLOCK
    )
    expected = np.full(_BLOCK, 0.5)
    expected[index[::3]] = FORMATS[name].worth(_BYTES)[index[::3]]
    _check(session, found, expected, name)


def _memory(name: str) -> Iterator[Case]:
    yield _case(
        name,
        "memory/rows",
        "tl.load",
        functools.partial(_copied, name),
        "f32",
        quick=name == "float8e4nv",
    )
    yield _case(
        name,
        "memory/bits",
        "tl.cast(bitcast)",
        functools.partial(_bits, name),
        "i8",
        "u8",
        quick=name in _COMMON,
    )
    yield _case(
        name,
        "memory/gathered",
        "tl.load",
        functools.partial(_gathered, name),
        quick=name == "float8e5",
    )


# ---- operators


@tw.jit
def all_pairs(
    x_ptr, y_ptr, out_ptr, FUNCTION: tl.constexpr, RESULT: tl.constexpr, BLOCK: tl.constexpr
):
    """A program for each number x, a lane for each number y."""
    at = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + tl.program_id(0)), tl.load(y_ptr + at)
    value = FUNCTION(x, y)
    tl.static_assert(value.dtype == RESULT)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + at, value)


@tw.jit
def plus(x, y):
    return x + y


@tw.jit
def minus(x, y):
    return x - y


@tw.jit
def times(x, y):
    return x * y


@tw.jit
def over(x, y):
    return x / y


@tw.jit
def less(x, y):
    return x < y


@tw.jit
def not_equal(x, y):
    return x != y


@tw.jit
def at_least(x, y):
    return x >= y


#: name -> (the kernel's function, what it is of float64)
_ARITHMETIC: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "add": (plus, operator.add),
    "sub": (minus, operator.sub),
    "mul": (times, operator.mul),
}
_COMPARISONS: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "lt": (less, operator.lt),
    "ne": (not_equal, operator.ne),
    "ge": (at_least, operator.ge),
}


def _every_pair(name: str, other: str = "") -> tuple[list[Any], Array, Array]:
    """The two operands as a kernel takes them, and their values as a column and a row."""
    x, y = FORMATS[name].worth(_BYTES), FORMATS[other or name].worth(_BYTES)
    return [given(_BYTES.copy(), name), given(_BYTES.copy(), other or name)], x[:, None], y[None, :]


def _arithmetic(name: str, operation: str, session: Session) -> None:
    """Add, subtract and multiply every pair: exact, rounded once to the type."""
    function, exact = _ARITHMETIC[operation]
    operands, x, y = _every_pair(name)
    found = np.zeros((256, 256), np.uint8)
    session.launch(
        all_pairs,
        (256,),
        *operands,
        given(found, name),
        FUNCTION=function,
        RESULT=getattr(tl, name),
        BLOCK=_BLOCK,
    )
    with np.errstate(invalid="ignore"):
        _check(session, found, FORMATS[name].rounded(exact(x, y)), name)


def _quotients(name: str, session: Session) -> None:
    """Quotients are fp32."""
    operands, x, y = _every_pair(name)
    found = np.zeros((256, 256), np.float32)
    session.launch(
        all_pairs,
        (256,),
        *operands,
        found,
        FUNCTION=over,
        RESULT=tl.float32,
        BLOCK=_BLOCK,
        **session.strict,
    )
    with np.errstate(all="ignore"):
        session.check(found, x / y)


def _mixed(name: str, session: Session) -> None:
    """Different formats are added as fp16, of which each has all numbers of."""
    other = "float8e5" if name != "float8e5" else "float8e4nv"
    operands, x, y = _every_pair(name, other)
    found = np.zeros((256, 256), np.float16)
    session.launch(
        all_pairs, (256,), *operands, found, FUNCTION=plus, RESULT=tl.float16, BLOCK=_BLOCK
    )
    with np.errstate(all="ignore"):
        session.check(found, (x + y).astype(np.float16))


def _comparisons(name: str, session: Session) -> None:
    for operation, (function, exact) in _COMPARISONS.items():
        operands, x, y = _every_pair(name)
        found = np.full((256, 256), 7, np.int8)
        session.launch(
            all_pairs, (256,), *operands, found, FUNCTION=function, RESULT=tl.int1, BLOCK=_BLOCK
        )
        session.check(found, exact(x, y).astype(np.int8), name=operation)


@tw.jit
def one_operand(x_ptr, negated_ptr, size_ptr, scaled_ptr, wide_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(negated_ptr + at, -x)
    tl.store(size_ptr + at, tl.abs(x))
    tl.store(scaled_ptr + at, x * 0.75)
    wide = x + tl.full((), 0.1, tl.float32)
    tl.static_assert(wide.dtype == tl.float32)
    tl.store(wide_ptr + at, wide)


def _one_operand(name: str, session: Session) -> None:
    """Negate and take magnitudes exactly, and operate with a literal and with fp32.

    The literal takes the format's type, fp32 does not.
    """
    found, wide = np.zeros((3, 256), np.uint8), np.zeros(256, np.float32)
    session.launch(
        one_operand,
        (1,),
        *(given(part, name) for part in (_BYTES.copy(), *found)),
        wide,
        BLOCK=_BLOCK,
    )
    x = FORMATS[name].worth(_BYTES)
    multiplied = FORMATS[name].rounded(x * FORMATS[name].rounded(np.array([0.75])))
    for part, expected, label in zip(
        found, (-x, np.abs(x), multiplied), ("-x", "abs", "x * 0.75"), strict=True
    ):
        _check(session, part, expected, name, label)
    session.check(wide, (x.astype(np.float32) + np.float32(0.1)), name="x + fp32")


@tw.jit
def rows_reduced(x_ptr, sum_ptr, maximum_ptr, root_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + at)
    wide = x.to(tl.float32)
    tl.store(sum_ptr + tl.arange(0, ROWS), tl.sum(wide, 1))
    tl.store(maximum_ptr + tl.arange(0, ROWS), tl.max(wide, 1))
    tl.store(root_ptr + at, tl.sqrt(tl.abs(wide)).to(x.dtype))


def _upcast(name: str, session: Session) -> None:
    """Reduce and take square roots in fp32.

    Additions of few bits are exact; the root of every number is rounded to the type.
    """
    form = FORMATS[name]
    bits = session.rng.permutation(_BYTES)
    worth = form.worth(bits)
    small = np.isfinite(worth) & (np.abs(worth) <= 4) & (worth * 256 == np.rint(worth * 256))
    bits = np.resize(bits[small], 256).reshape(4, 64)
    total, maximum, root = (
        np.zeros(4, np.float32),
        np.zeros(4, np.float32),
        np.zeros((4, 64), np.uint8),
    )
    options = {"ROWS": 4, "COLUMNS": 64}
    session.launch(
        rows_reduced,
        (1,),
        given(bits, name),
        total,
        maximum,
        given(root, name),
        **options,
        **session.strict,
    )
    session.check(total, form.worth(bits).sum(1), zero_sign=False)
    session.check(maximum, form.worth(bits).max(1), zero_sign=False)
    _check(session, root, form.rounded(np.sqrt(np.abs(form.worth(bits)))), name, "the root")


def _operators(name: str) -> Iterator[Case]:
    for operation in _ARITHMETIC:
        body = functools.partial(_arithmetic, name, operation)
        yield _case(
            name,
            f"{operation}/every-pair",
            operation,
            body,
            quick=name in _COMMON and operation != "sub",
        )
    yield _case(
        name,
        "div/every-pair",
        "div",
        functools.partial(_quotients, name),
        "f32",
        quick=name == "float8e5",
    )
    yield _case(
        name,
        "mixed/every-pair",
        "add",
        functools.partial(_mixed, name),
        "f8e5m2",
        *(("f8e4m3fn",) if name == "float8e5" else ()),
        "f16",
    )
    yield _case(
        name,
        "compare/every-pair",
        "cmp",
        functools.partial(_comparisons, name),
        "i8",
        quick=name == "float8e4nv",
    )
    yield _case(
        name,
        "operators/every-number",
        "neg",
        functools.partial(_one_operand, name),
        "f32",
        quick=name == "float8e4nv",
    )
    yield _case(
        name,
        "upcast/rows",
        "tl.sum",
        functools.partial(_upcast, name),
        "f32",
        quick=name == "float8e5",
    )


# ---- matmuls that show every number: of a matrix with the unit matrix


@tw.jit
def by_unit(x_ptr, unit_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr):
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * K + inner[None, :])
    unit = tl.load(unit_ptr + inner[:, None] * K + column[None, :])
    tl.store(out_ptr + row[:, None] * K + column[None, :], tl.dot(x, unit, out_dtype=OUT))


@tw.jit
def quantised(x_ptr, scale_ptr, w_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Quantize rows of fp32 to the weights' format by a scale, multiply, and scale back."""
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    x = tl.load(x_ptr + row[:, None] * K + inner[None, :])
    scale = tl.load(scale_ptr + row)
    w = tl.load(w_ptr + inner[:, None] * N + column[None, :])
    multiplied = tl.dot((x / scale[:, None]).to(w.dtype), w)
    tl.store(out_ptr + row[:, None] * N + column[None, :], multiplied * scale[:, None])


def _by_unit(name: str, accumulator: str, session: Session) -> None:
    """Each finite number of the format, times one."""
    form, size = FORMATS[name], 32
    finite = _BYTES[np.isfinite(form.worth(_BYTES))]
    bits = np.resize(finite, (16, size))
    unit = form.nearest(np.eye(size), "rtne").astype(np.uint8)
    found = np.zeros((16, size), np.float16 if accumulator == "f16" else np.float32)
    out = tl.float16 if accumulator == "f16" else tl.float32
    session.launch(
        by_unit, (1,), given(bits, name), given(unit, name), found, M=16, K=size, OUT=out
    )
    session.check(found, form.worth(bits), zero_sign=False)


def _quantised(name: str, session: Session) -> None:
    """Quantize by powers of two, so that only the rounding to the format counts.

    Additions of few bits are exact.
    """
    form = FORMATS[name]
    x = session.rng.standard_normal((16, 64)).astype(np.float32)
    scale = np.exp2(np.ceil(np.log2(np.abs(x).max(1) / form.maximum))).astype(np.float32)
    weights = form.nearest(session.rng.integers(-1, 2, (64, 32)).astype(np.float64), "rtne").astype(
        np.uint8
    )
    found = np.zeros((16, 32), np.float32)
    session.launch(quantised, (1,), x, scale, given(weights, name), found, M=16, N=32, K=64)
    rows = form.rounded((x / scale[:, None]).astype(np.float64))
    exact = rows @ form.worth(weights)
    lost = bound(rows, form.worth(weights), 0.0, "f32", imprecise=True)
    session.check(found, exact * scale[:, None], atol=lost * scale[:, None], zero_sign=False)


def _matmuls(name: str) -> Iterator[Case]:
    text = IR[name]
    for accumulator in ("f32", "f16") if name in _COMMON else ("f32",):
        pair = ("f16" if name == "float8e4b15" else text, accumulator)
        body = functools.partial(_by_unit, name, accumulator)
        types = (accumulator, "f16") if name == "float8e4b15" else (accumulator,)
        more: dict[str, Any] = {"dot": frozenset({pair}), "dot_shape": (16, 32, 32), "tile": 1024}
        yield _case(
            name,
            f"dot/every-number-{accumulator}",
            "tl.dot",
            body,
            *types,
            quick=accumulator == "f32" and name in _COMMON,
            **more,
        )
    pair = ("f16" if name == "float8e4b15" else text, "f32")
    types = ("f32", "f16") if name == "float8e4b15" else ("f32",)
    more = {"dot": frozenset({pair}), "dot_shape": (16, 32, 64), "tile": 2048}
    yield _case(
        name,
        "dot/quantised",
        "tl.dot",
        functools.partial(_quantised, name),
        *types,
        quick=name == "float8e4nv",
        **more,
    )


# ---- block-scaled operands: every number of a format under many scales


@tw.jit
def scaled_by_unit(
    x_ptr,
    scale_ptr,
    unit_ptr,
    out_ptr,
    FORMAT: tl.constexpr,
    BYTES: tl.constexpr,
    M: tl.constexpr,
    K: tl.constexpr,
):
    row, inner, column = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K)
    x = tl.load(x_ptr + row[:, None] * BYTES + tl.arange(0, BYTES)[None, :])
    scale = tl.load(scale_ptr + row[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    unit = tl.load(unit_ptr + inner[:, None] * K + column[None, :])
    out = tl.dot_scaled(x, scale, FORMAT, unit, None, "bf16")
    tl.store(out_ptr + row[:, None] * K + column[None, :], out)


def _scaled_unit(format_: str, session: Session) -> None:
    m, k = 16, 64
    if format_ == "e2m1":
        codes = np.resize(session.rng.permutation(_BYTES), m * k // 2).reshape(m, k // 2)
        values = E2M1[np.stack([codes & 15, codes >> 4], -1).reshape(m, k)]
    else:
        form = format_of(SCALED[format_])
        finite = _BYTES[np.isfinite(form.worth(_BYTES))]
        codes = np.resize(session.rng.permutation(finite), m * k).reshape(m, k)
        values = form.worth(codes)
    scales = session.rng.integers(127 - 90, 127 + 90, (m, k // 32)).astype(np.uint8)
    scales[0], scales[1, 1] = 127, 255
    factor = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127)).repeat(32, 1)
    unit = np.ascontiguousarray(
        (np.eye(k, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    found = np.zeros((m, k), np.float32)
    options = {"FORMAT": format_, "BYTES": codes.shape[1], "M": m, "K": k}
    session.launch(scaled_by_unit, (1,), codes, scales, given(unit, "bfloat16"), found, **options)
    expected = values * factor
    expected[1] = np.nan  # a scale that is no number spoils its row
    session.check(found, expected, zero_sign=False)


def _scaled() -> Iterator[Case]:
    for format_ in ("e2m1", *SCALED):
        types = ("u8", "bf16", "f32", SCALED.get(format_, "u8"))
        body = functools.partial(_scaled_unit, format_)
        options: dict[str, Any] = {
            "features": {"dot_scaled"},
            "tile": 4096,
            "quick": format_ != "e5m2",
        }
        yield _TABLE.case(f"scaled/{format_}/every-code", "tl.dot_scaled", body, *types, **options)
