"""Casts and bitcasts of each pair of types, as Tile IR and in the language.

The language's have the numbers that decide rounding, wrapping and truncation. Expected values are
exact: every number of a narrow format is known by the format's definition, and a number becomes the
nearest one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.casts import conversions
from tilewright_conformance.oracles.dtypes import (
    FLOATS,
    INTEGERS,
    IR,
    NUMBERS,
    is_integer,
    kind,
    language,
)
from tilewright_conformance.oracles.formats import FORMATS
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.numbers import check, special, wide
from tilewright_conformance.testlib.sampled_cases import sampled

_FP8 = tuple(name for name in FORMATS if name.startswith("float8"))
_BLOCK = 512
_SOURCE = "the definition of the formats, exact integers"
_case = Table("casts", "core", _SOURCE).case


def cases() -> Iterator[Case]:
    for case in sampled("casts", "core", {"cast": True, "bitcast": True}):
        narrow = any(name.startswith("f8") for name in case.needs.dtypes)
        yield dataclasses.replace(case, profile="fp8") if narrow else case
    yield from _numbers()
    yield from _chains()
    yield from _bits()
    yield from _fp8()


# ---- numbers


@tw.jit
def converted(x_ptr, y_ptr, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(
        y_ptr + at, tl.cast(x, y_ptr.dtype.element_ty, fp_downcast_rounding=ROUNDING), mask=at < n
    )


def _convert(source: str, target: str, rounding: str | None, session: Session) -> None:
    x = conversions.values(session.rng, source, target)
    found = np.zeros(len(x), kind(target))
    session.launch(
        converted, (-(-len(x) // _BLOCK),), x, found, len(x), ROUNDING=rounding, BLOCK=_BLOCK
    )
    check(session, found, conversions.cast(x, target, rounding or "rtne"))


def _cast(source: str, target: str, rounding: str | None, quick: bool) -> Case:
    return _case(
        f"to/{IR[source]}_{IR[target]}/{rounding or 'values'}",
        "tl.cast",
        functools.partial(_convert, source, target, rounding),
        source,
        target,
        tile=_BLOCK,
        quick=quick,
    )


def _numbers() -> Iterator[Case]:
    often = (("float64", "float16"), ("float32", "bfloat16"), ("int64", "float32"))
    for index, (source, target) in enumerate(
        (a, b) for a in (*NUMBERS, "bool") for b in (*NUMBERS, "bool") if a != b
    ):
        yield _cast(source, target, None, index % 7 == 0 or (source, target) in often)
    for source, target in (
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float64", "float16"),
        ("float64", "bfloat16"),
        ("float64", "float32"),
    ):
        for rounding in ("rtz", "rtne"):
            yield _cast(source, target, rounding, source == "float32" and rounding == "rtz")


# ---- there and back: what one cast takes away, another does not bring back


@tw.jit
def there_and_back(x_ptr, y_ptr, n, MIDDLE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, x.to(MIDDLE).to(y_ptr.dtype.element_ty), mask=at < n)


_CHAINS = (
    ("float32", "float16", "float32"),
    ("float32", "bfloat16", "float32"),
    ("float64", "float32", "float64"),
    ("float32", "int32", "float32"),
    ("float16", "float32", "float16"),
    ("int32", "int8", "int32"),
    ("int32", "uint8", "int64"),
    ("int16", "uint16", "int32"),
    ("uint8", "int8", "int16"),
    ("uint64", "uint16", "uint64"),
    ("int32", "float16", "int32"),
    ("int64", "float32", "float64"),
    ("int32", "bool", "int32"),
    ("float32", "bool", "float32"),
    ("float32", "float16", "bfloat16"),
)


def _chain(source: str, middle: str, target: str, session: Session) -> None:
    x = conversions.values(session.rng, source, middle)
    expected = conversions.cast(conversions.cast(x, middle).astype(kind(middle)), target)
    found = np.zeros(len(x), kind(target))
    session.launch(
        there_and_back,
        (-(-len(x) // _BLOCK),),
        x,
        found,
        len(x),
        MIDDLE=language(middle),
        BLOCK=_BLOCK,
    )
    check(session, found, expected)


def _chains() -> Iterator[Case]:
    for index, names in enumerate(_CHAINS):
        texts = [IR[name] for name in names]
        case = _case(
            f"chain/{texts[0]}/{texts[1]}_{texts[2]}",
            "tl.cast",
            functools.partial(_chain, *names),
            *names,
            tile=_BLOCK,
            quick=index % 4 == 0,
        )
        carriers = {"i8"} if "bool" in (names[0], names[2]) else set()
        yield dataclasses.replace(
            case, needs=dataclasses.replace(case.needs, dtypes=frozenset(texts) | carriers)
        )


# ---- bits


@tw.jit
def same_bits(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty, bitcast=True), mask=at < n)


@tw.jit
def sign_cleared(x_ptr, y_ptr, n, WORD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    sign: tl.constexpr = 1 << (WORD.primitive_bitwidth - 1)
    bits = x.to(WORD, bitcast=True)
    tl.store(y_ptr + at, (bits & (sign - 1)).to(x.dtype, bitcast=True), mask=at < n)


@tw.jit
def second_halves(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    halves = (x_ptr + at).to(tl.int64).to(tl.pointer_type(tl.int16))
    tl.store(out_ptr + at, tl.load(halves + 1))


def _bitcast(source: str, target: str, session: Session) -> None:
    size = kind(source).itemsize
    patterns = wide(session.rng, f"uint{8 * size}", 3 * _BLOCK - 5)
    for name in {source, target} & set(FLOATS):
        with np.errstate(invalid="ignore"):
            numbers = patterns.view(kind(name)).astype(np.float64)
        patterns = patterns[
            ~np.isnan(numbers)
        ]  # a machine may change the bits of a NaN that it moves as a float
    found = np.zeros(len(patterns), patterns.dtype)
    grid = (-(-len(patterns) // _BLOCK),)
    session.launch(
        same_bits,
        grid,
        patterns.view(kind(source)),
        found.view(kind(target)),
        len(patterns),
        BLOCK=_BLOCK,
    )
    session.check(found, patterns)


def _magnitudes(name: str, session: Session) -> None:
    x = np.concatenate([special(name), wide(session.rng, name, 500)])
    found, word = np.zeros(len(x), x.dtype), f"uint{8 * x.itemsize}"
    session.launch(
        sign_cleared, (-(-len(x) // _BLOCK),), x, found, len(x), WORD=language(word), BLOCK=_BLOCK
    )
    check(session, found, np.abs(x.astype(np.float64)))


def _through_pointers(session: Session) -> None:
    x = wide(session.rng, "int32", 64)
    found = np.zeros(64, np.int16)
    session.launch(second_halves, (1,), x, found, BLOCK=64)
    session.check(found, (x >> 16).astype(np.int16))


def _bits() -> Iterator[Case]:
    pairs = [
        *(
            ("int8", "uint8"),
            ("uint16", "int16"),
            ("uint16", "float16"),
            ("float16", "int16"),
            ("bfloat16", "uint16"),
            ("int16", "bfloat16"),
        ),
        *(
            ("float16", "bfloat16"),
            ("float32", "int32"),
            ("uint32", "float32"),
            ("int32", "uint32"),
            ("float64", "int64"),
            ("uint64", "float64"),
        ),
        *(("int64", "uint64"),),
    ]
    for index, (source, target) in enumerate(pairs):
        yield _case(
            f"bits/{IR[source]}_{IR[target]}/values",
            "tl.cast(bitcast)",
            functools.partial(_bitcast, source, target),
            source,
            target,
            tile=_BLOCK,
            quick=index % 5 == 0,
            source="the same bytes",
        )
    for name in FLOATS:
        yield _case(
            f"bits/{IR[name]}/sign",
            "tl.cast(bitcast)",
            functools.partial(_magnitudes, name),
            name,
            f"uint{8 * kind(name).itemsize}",
            tile=_BLOCK,
            quick=name == "float32",
            source="NumPy",
        )
    yield _case(
        "bits/pointers/halves",
        "tl.cast(bitcast)",
        _through_pointers,
        "int16",
        tile=64,
        quick=True,
        source="NumPy",
    )


# ---- formats of 8 bits, which travel as bytes


@tw.jit
def converted_bytes(
    x_ptr,
    y_ptr,
    n,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    ROUNDING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0).to(FROM, bitcast=True)
    y = tl.cast(x, TO, fp_downcast_rounding=ROUNDING)  # type: ignore[arg-type]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty, bitcast=True), mask=at < n)


def _convert_fp8(source: str, target: str, rounding: str | None, session: Session) -> None:
    """From or to an 8-bit format, or both; the result is judged by the values of its bits."""
    if source in _FP8:
        bits = np.arange(256, dtype=np.uint8)
        value = FORMATS[source].worth(bits)
        bits = np.concatenate([bits, session.rng.permutation(bits)])
        value = np.concatenate([value[:256], FORMATS[source].worth(bits[256:])])
    elif source in INTEGERS:
        ends = np.iinfo(source)
        bits = session.rng.integers(
            max(ends.min, -40), min(ends.max, 40), 600, endpoint=True
        ).astype(source)
        bits = bits[np.abs(bits.astype(np.float64)) <= FORMATS[target].maximum]
        value = bits.astype(np.float64)
    else:
        x = conversions.values(session.rng, source, target)
        with np.errstate(invalid="ignore"):
            bits, value = x.view(f"u{x.itemsize}"), x.astype(np.float64)
    if is_integer(target):
        ends = np.iinfo(target)
        inside = (
            np.isfinite(value)
            & (np.trunc(np.nan_to_num(value)) >= ends.min)
            & (np.trunc(np.nan_to_num(value)) <= ends.max)
        )
        bits, value = bits[inside], value[inside]
    width = 8 if target in _FP8 else 8 * kind(target).itemsize
    found = np.zeros(len(bits), target if is_integer(target) else f"u{width // 8}")
    types = [language(source), language(target)]
    session.launch(
        converted_bytes,
        (-(-len(bits) // _BLOCK),),
        np.ascontiguousarray(bits),
        found,
        len(bits),
        FROM=types[0],
        TO=types[1],
        ROUNDING=rounding,
        BLOCK=_BLOCK,
    )
    if is_integer(target):
        session.check(found, np.trunc(value).astype(target))
        return
    numbers = found.view(target) if target in ("float16", "float32", "float64") else found
    session.check(
        numbers, conversions.from_floats(value, target, rounding or "rtne"), type_=IR[target]
    )


def _fp8() -> Iterator[Case]:
    rows: list[tuple[str, str, str | None]] = []
    for name in _FP8:
        rows += [(name, target, None) for target in FLOATS]
        rows += [(source, name, rounding) for source in FLOATS for rounding in (None, "rtz")]
        rows += [
            (name, "int32", None),
            (name, "uint8", None),
            ("int32", name, None),
            ("uint8", name, None),
        ]
    rows += [
        ("float8e4nv", "float8e5", None),
        ("float8e5", "float8e4nv", None),
        ("float8e4b8", "float8e5b16", None),
        ("float8e5b16", "float8e4nv", None),
    ]
    for index, (source, target, rounding) in enumerate(rows):
        through = (
            ("float32",) if source in INTEGERS else ()
        )  # the language takes integers to fp8 by way of fp32
        carriers = [
            f"uint{8 if name in _FP8 else 8 * kind(name).itemsize}"
            for name in (source, target)
            if name not in INTEGERS
        ]
        yield _case(
            f"fp8/{IR[source]}_{IR[target]}/{rounding or 'values'}",
            "tl.cast",
            functools.partial(_convert_fp8, source, target, rounding),
            source,
            target,
            *through,
            *carriers,
            tile=_BLOCK,
            quick=index % 6 == 0 or (source, target) == ("float32", "float8e4nv"),
        )
