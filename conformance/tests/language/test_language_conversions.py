"""Conversions between all number types, in both roundings, on CPU and GPU: every pattern of the
narrow formats, by the formats' definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.core.casts.conversions import cast, values
from tilewright_conformance.oracles.dtypes import INTEGERS, kind
from tilewright_conformance.oracles.formats import FORMATS

Run = Callable[..., None]
RNG = np.random.default_rng(30)


@tw.jit
def convert(
    x_ptr, y_ptr, FROM: tl.constexpr, TO: tl.constexpr, ROUNDING: tl.constexpr, BLOCK: tl.constexpr
):
    """Elements travel as integers of their width."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + at).to(FROM, bitcast=True).to(TO, fp_downcast_rounding=ROUNDING)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty, bitcast=True))


def converted(
    launch: Run, patterns: Any, source: str, target: str, rounding: str | None = None
) -> Any:
    """The patterns that a conversion makes of patterns."""
    kinds = [getattr(tl, name) for name in (source, target)]
    widths = [kind.primitive_bitwidth for kind in kinds]
    block = 1024
    x = np.resize(patterns, -(-len(patterns) // block) * block).astype(f"uint{widths[0]}")
    y = np.zeros(len(x), f"uint{widths[1]}")
    launch(
        convert,
        (len(x) // block,),
        x,
        y,
        FROM=kinds[0],
        TO=kinds[1],
        ROUNDING=rounding,
        BLOCK=block,
    )
    return y[: len(patterns)]


def same(a: Any, b: Any) -> Any:
    """Equal numbers of equal signs, or both NaN."""
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


WIDER = [
    *((name, wide) for name in FORMATS for wide in ("float32", "float64")),
    *((name, "float16") for name in FORMATS if name.startswith("float8")),
    *((name, "bfloat16") for name in FORMATS if name.startswith("float8")),
]


@tw.jit
def stays_nan(
    x_ptr,
    y_ptr,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUNDING: tl.constexpr = None,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = (
        tl.load(x_ptr + at)
        .to(FROM, bitcast=True)
        .to(TO, fp_downcast_rounding=ROUNDING)
        .to(tl.float32)
    )
    tl.store(y_ptr + at, y != y)


@pytest.mark.parametrize(("source", "target"), WIDER)
def test_every_pattern_becomes_wider_exactly(launch: Run, source: str, target: str) -> None:
    patterns = np.arange(1 << FORMATS[source].bits)
    wanted = FORMATS[source].worth(patterns)
    numbers = ~np.isnan(wanted)  # a NaN has many patterns, and any of them will do
    found = converted(launch, patterns[numbers], source, target)
    value = found.view(target) if target in ("float32", "float64") else FORMATS[target].worth(found)
    wrong = ~same(value, wanted[numbers])
    assert not wrong.any(), (patterns[numbers][wrong][:4], value[wrong][:4])
    block = min(1024, len(patterns))
    nan = np.zeros(len(patterns), np.int8)
    x = patterns.astype(f"uint{FORMATS[source].bits}")
    launch(
        stays_nan,
        (len(patterns) // block,),
        x,
        nan,
        FROM=getattr(tl, source),
        TO=getattr(tl, target),
        BLOCK=block,
    )
    assert np.array_equal(nan != 0, ~numbers)


def neighbours(name: str) -> Any:
    """fp32 numbers where rounding is decided: the values of a format, the middles of two of them,
    and their neighbours."""
    values = FORMATS[name].worth(np.arange(1 << FORMATS[name].bits))
    values = np.unique(values[np.isfinite(values)])
    if len(values) > 1 << 13:
        values = np.sort(RNG.choice(values, 1 << 13, replace=False))
    middles = (values[1:] + values[:-1]) / 2
    exact = np.concatenate([values, middles]).astype(np.float32)
    with np.errstate(over="ignore"):
        around = np.concatenate(
            [
                exact,
                np.nextafter(exact, np.float32(np.inf)),
                np.nextafter(exact, np.float32(-np.inf)),
                -exact,
            ]
        )
    return around[np.abs(around.astype(np.float64)) <= FORMATS[name].maximum]


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("target", FORMATS)
def test_fp32_becomes_narrower_by_the_rounding_asked_for(
    launch: Run, target: str, rounding: str
) -> None:
    x = neighbours(target)
    found = converted(launch, x.view(np.uint32), "float32", target, rounding)
    wanted = FORMATS[target].nearest(x, rounding)
    wrong = found != wanted
    assert not wrong.any(), (x[wrong][:4], found[wrong][:4], wanted[wrong][:4])


@pytest.mark.each_value
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", [name for name in FORMATS if name.startswith("float8")])
def test_every_16_bit_pattern_becomes_narrower(
    launch: Run, source: str, target: str, rounding: str
) -> None:
    patterns = np.arange(1 << 16)
    value = FORMATS[source].worth(patterns)
    # a NaN has many patterns, and any of them will do
    numbers = ~np.isnan(value)
    nan, given = np.zeros(1 << 16, np.int8), patterns.astype(np.uint16)
    launch(
        stays_nan,
        (64,),
        given,
        nan,
        FROM=getattr(tl, source),
        TO=getattr(tl, target),
        BLOCK=1024,
        ROUNDING=rounding,
    )
    assert nan[~numbers].all()
    patterns, value = patterns[numbers], value[numbers]
    found = converted(launch, patterns, source, target, rounding)
    fits = np.abs(np.nan_to_num(value, nan=np.inf)) <= FORMATS[target].maximum
    wanted = FORMATS[target].nearest(value[fits], rounding)
    wrong = found[fits] != wanted
    assert not wrong.any(), (value[fits][wrong][:4], found[fits][wrong][:4], wanted[wrong][:4])


@pytest.mark.parametrize("name", ["float8e4nv", "float8e5", "bfloat16"])
def test_the_definitions_are_those_of_others(name: str) -> None:
    """The oracle itself, against ml_dtypes."""
    patterns = np.arange(1 << FORMATS[name].bits).astype(f"uint{FORMATS[name].bits}")
    with np.errstate(invalid="ignore"):
        assert same(
            FORMATS[name].worth(patterns), patterns.view(kind(name)).astype(np.float64)
        ).all()
    x = neighbours(name)
    assert np.array_equal(
        FORMATS[name].nearest(x, "rtne"), x.astype(kind(name)).view(patterns.dtype)
    )


# -- integers, booleans, pointers ------------------------------------------------------------------


@tw.jit
def cast_one(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("source", [*INTEGERS, "float32", "float64", "bool"])
def test_numbers_become_those_of_every_type(launch: Run, source: str) -> None:
    """Integers wrap around, floats lose their fraction, anything but 0 is true, integers round to
    the nearest float."""
    if source == "bool":
        x = RNG.integers(0, 2, 64).astype(bool)
    elif source.startswith("float"):
        x = RNG.uniform(0, 120, 64).astype(source)
        x[::5] = np.round(x[::5])
        x[3] = 0
    else:
        x = np.frombuffer(RNG.bytes(64 * 8), source)[:64].copy()
        x[3] = 0
    for target in (*INTEGERS, "float32", "float64", "bool"):
        out = np.zeros(64, target)
        launch(cast_one, (1,), x, out, BLOCK=64)
        np.testing.assert_array_equal(
            out, x != 0 if target == "bool" else x.astype(target), err_msg=target
        )


@pytest.mark.parametrize("target", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", ["int64", "uint64"])
def test_integers_that_no_float_holds_are_rounded_once(
    launch: Run, source: str, target: str
) -> None:
    """By way of float64 an integer close to the middle of two numbers would become that middle."""
    x = np.resize(values(RNG, source, target), 4096)
    out = np.zeros(4096, ml_dtypes.bfloat16 if target == "bfloat16" else target)
    launch(cast_one, (1,), x, out, BLOCK=4096)
    assert np.array_equal(out.astype(np.float64), cast(x, target).astype(np.float64))


@tw.jit
def as_bits(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.cast(tl.load(x_ptr + at), out_ptr.dtype.element_ty, bitcast=True))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int32"),
        ("float64", "uint64"),
        ("int16", "float16"),
        ("uint8", "int8"),
        ("int64", "float64"),
    ],
)
def test_bits_are_kept(launch: Run, source: str, target: str) -> None:
    x = np.frombuffer(RNG.bytes(64 * 8), np.dtype(f"u{np.dtype(source).itemsize}"))[:64].copy()
    out = np.zeros(64, np.dtype(f"u{np.dtype(target).itemsize}"))
    launch(as_bits, (1,), x.view(source), out.view(target), BLOCK=64)
    assert np.array_equal(out, x)


@tw.jit
def through_numbers(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    addresses = (x_ptr + at).to(tl.int64)
    halves = addresses.to(tl.pointer_type(tl.int16))
    tl.store(out_ptr + at, tl.load(halves + 1))


def test_pointers_are_numbers_and_back(launch: Run) -> None:
    x = RNG.integers(-(2**31), 2**31, 32).astype(np.int32)
    out = np.zeros(32, np.int16)
    launch(through_numbers, (1,), x, out, BLOCK=32)
    assert np.array_equal(out, (x >> 16).astype(np.int16))


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=64)
)
def test_fp32_through_bf16_is_the_nearest(launch: Run, numbers: list[float]) -> None:
    x = np.array(numbers, np.float32)
    x = x[np.abs(x) <= FORMATS["bfloat16"].maximum]
    if len(x):
        assert np.array_equal(
            converted(launch, x.view(np.uint32), "float32", "bfloat16"),
            FORMATS["bfloat16"].nearest(x, "rtne"),
        )
