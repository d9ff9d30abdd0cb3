"""Constant folding gives, to the bit, what the reference computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright.ir import TABLE, Builder, Function, Module
from tilewright.ir.types import (
    BF16,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    FloatType,
    IntType,
    PointerType,
    Type,
    bit_width,
)
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.fold import FOLDS, fold
from tilewright.passes.math.float_formats import max_finite, min_exponent, round_to
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import decode, is_raw, numpy_dtype

INTS: tuple[Type, ...] = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS: tuple[Type, ...] = (F16, BF16, F32, F64, F8E5M2)
BOTH = (*INTS, *FLOATS)
#: operation -> operand types, one group of all operands' type unless a tuple
TYPES: dict[str, tuple[Type, ...]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "neg", "abs"), BOTH),
    **dict.fromkeys(("min", "max", "cmp"), (*BOTH, I1)),
    **dict.fromkeys(("and", "or", "xor"), (*INTS, I1)),
    **dict.fromkeys(("shl", "shr", "clz", "popcount"), INTS),
    "mulhi": (I32, U32, I64, U64),
    "fma": FLOATS,
    **dict.fromkeys(
        ("sqrt", "floor", "ceil", "round_even", "trunc", "copysign", "ldexp"), (F32, F64)
    ),
}


def draw(rng: np.random.Generator, type_: Type) -> Any:
    """A constant of the type: from its ends, or anywhere."""
    if type_ is I1:
        return bool(rng.integers(2))
    if isinstance(type_, IntType):
        ends = (type_.minimum, type_.minimum + 1, type_.maximum, type_.maximum - 1, 0, 1, 2, 5, 7)
        if rng.random() < 0.4:
            return ends[rng.integers(len(ends))]
        return int(
            rng.integers(type_.minimum, type_.maximum, dtype=numpy_dtype(type_), endpoint=True)
        ) >> int(rng.integers(0, type_.bits))
    assert isinstance(type_, FloatType)
    greatest, least = max_finite(type_), math.ldexp(1.0, min_exponent(type_))
    special = (
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        greatest,
        -greatest,
        least,
        -least,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.5,
    )
    if rng.random() < 0.4:
        return special[rng.integers(len(special))]
    return round_to(float(rng.standard_normal() * np.exp2(rng.integers(-10, 11))), type_)


def compare(build: Any, count: int = 24, expect: float = 0.5) -> None:
    """Build ``count`` results of one type; run them as they are and folded. At least a share of
    ``expect`` must fold."""
    module = Module()
    function = module.add(Function("k", ()))
    b = Builder.at_end(function.body)
    results = [build(b) for _ in range(count)]
    type_ = results[0].type
    out = function.body.add_argument(PointerType(type_))
    function.argument_attributes.append({})
    for index, value in enumerate(results):
        b.store(b.addptr(out, b.constant(value=index, result=I32)), value)
    b.return_([])
    expected = np.zeros(count, numpy_dtype(type_))
    found = expected.copy()
    with np.errstate(all="ignore"):
        run(module, [expected], (1, 1, 1))
    before = sum(
        operation.name not in ("constant", "addptr", "store", "return")
        for operation in module.walk()
    )
    canonicalize(module)
    after = sum(
        operation.name not in ("constant", "addptr", "store", "return")
        for operation in module.walk()
    )
    assert before - after >= expect * count
    with np.errstate(all="ignore"):
        run(module, [found], (1, 1, 1))
    if isinstance(type_, FloatType):
        numbers = [decode(array, type_) if is_raw(type_) else array for array in (expected, found)]
        bits = [array.view(f"u{array.itemsize}") for array in (expected, found)]
        assert ((np.isnan(numbers[0]) & np.isnan(numbers[1])) | (bits[0] == bits[1])).all(), (
            expected,
            found,
        )
    else:
        np.testing.assert_array_equal(expected, found)


CASES = [(name, type_) for name, types in TYPES.items() for type_ in types]


def test_all_folds_are_tried() -> None:
    assert set(TYPES) | {"cast", "bitcast"} == set(FOLDS)


@pytest.mark.sampled(72)
@pytest.mark.parametrize(("name", "type_"), CASES, ids=lambda value: str(value))
def test_against_the_reference(name: str, type_: Type) -> None:
    rng = np.random.default_rng(CASES.index((name, type_)))
    spec = TABLE[name]

    def build(b: Builder) -> Any:
        attributes: dict[str, Any] = {}
        if name == "cmp":
            attributes["predicate"] = str(rng.choice(["eq", "ne", "lt", "le", "gt", "ge"]))
        elif name in ("min", "max"):
            attributes["nan"] = str(rng.choice(["ignore", "propagate"]))
        values = [draw(rng, type_) for _ in spec.operands]
        if name in ("div", "rem") and isinstance(type_, IntType):
            if values[1] in (0, -1):
                values[1] = 3
        elif name in ("shl", "shr"):
            values[1] = int(rng.integers(0, bit_width(type_)))
        if name in ("min", "max") and values[0] == values[1] == 0:
            values[1] = values[0]  # either zero may win
        types = [type_] * len(values)
        if name == "ldexp":
            values[1], types[1] = int(rng.integers(-200, 200)), I32
        operands = [
            b.constant(value=value, result=operand)
            for value, operand in zip(values, types, strict=True)
        ]
        return getattr(b, spec.python_name)(*operands, **attributes)

    for _ in range(3):
        compare(build, expect=1.0)


@pytest.mark.parametrize("source", (*BOTH, I1), ids=str)
def test_casts(source: Type) -> None:
    rng = np.random.default_rng(5)
    for target in (*BOTH, I1):
        for rounding in ("rtne", "rtz"):
            if rounding == "rtz" and not (
                isinstance(source, FloatType)
                and isinstance(target, FloatType)
                and target.bits < source.bits
            ):
                continue

            def build(b: Builder, target: Type = target, rounding: str = rounding) -> Any:
                while True:
                    value = draw(rng, source)
                    to_integer = (
                        isinstance(source, FloatType)
                        and isinstance(target, IntType)
                        and target is not I1
                    )
                    if to_integer and not (
                        math.isfinite(value)
                        and target.minimum <= math.trunc(value) <= target.maximum
                    ):
                        continue
                    if (
                        rounding == "rtz"
                        and isinstance(target, FloatType)
                        and not abs(value) <= max_finite(target)
                    ):
                        continue
                    return b.cast(
                        b.constant(value=value, result=source), rounding=rounding, result=target
                    )

            compare(build, expect=1.0)


@pytest.mark.parametrize("source", BOTH, ids=str)
def test_bitcasts(source: Type) -> None:
    rng = np.random.default_rng(6)
    for target in BOTH:
        if bit_width(source) == bit_width(target):
            compare(
                lambda b, target=target: b.bitcast(
                    b.constant(value=draw(rng, source), result=source), result=target
                ),
                expect=0.3,
            )


def _folded(value: Any) -> Any:
    operation = value.owner
    return fold(operation, [operand.owner.attributes["value"] for operand in operation.operands])


def test_results_that_are_not_exact_are_left() -> None:
    b = Builder.at_end(Function("k", ()).body)
    infinite = b.constant(value=math.inf, result=F32)
    assert _folded(b.cast(infinite, rounding="rtz", result=F8E4M3FN)) is None
    assert _folded(b.exp(b.constant(value=0.0, result=F32))) is None


def test_operands_out_of_range_have_one_meaning() -> None:
    b = Builder.at_end(Function("k", ()).body)

    def constant(type_: Type, value: float) -> Any:
        return b.constant(value=value, result=type_)

    cases = [
        (b.div(constant(I32, 7), constant(I32, 0)), 7),
        (b.rem(constant(I32, 7), constant(I32, 0)), 0),
        (b.div(constant(I8, -128), constant(I8, -1)), -128),
        (b.rem(constant(I8, -128), constant(I8, -1)), 0),
        (b.shl(constant(I32, 1), constant(I32, 32)), 0),
        (b.shr(constant(I32, -5), constant(I32, -1)), -1),
        (b.shr(constant(U32, 5), constant(U32, 32)), 0),
        (b.shl(constant(I1, True), constant(I1, True)), False),
        (b.cast(constant(F32, 3e9), result=I32), 2**31 - 1),
        (b.cast(constant(F32, -1.0), result=U32), 0),
        (b.cast(constant(F32, math.nan), result=I32), 0),
        (b.cast(constant(F32, math.nan), result=I64), -(2**63)),
        (b.cast(constant(F64, math.nan), result=U32), 2**31),
        (b.cast(constant(F32, 300.0), result=I8), 44),
        (b.cast(constant(F32, 1e6), result=I8), -1),
        (b.cast(constant(F32, -1.0), result=U8), 0),
        (b.cast(constant(F32, -math.inf), result=I16), -(2**15)),
    ]
    assert [_folded(value) for value, _ in cases] == [expected for _, expected in cases]


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_casts_out_of_range_fold_as_they_run(source: Type) -> None:
    assert isinstance(source, FloatType)
    rng = np.random.default_rng(8)
    ends = [
        math.nan,
        math.inf,
        -math.inf,
        *(sign * 2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)),
    ]
    numbers = [
        round_to(value, source)
        for value in [*ends, *(rng.standard_normal(10) * np.exp2(rng.integers(0, 70, 10))).tolist()]
    ]
    for target in INTS:
        drawn = iter(numbers)
        compare(
            lambda b, target=target, drawn=drawn: b.cast(
                b.constant(value=next(drawn), result=source), result=target
            ),
            len(numbers),
            expect=1.0,
        )


def test_overflow_towards_zero_is_the_greatest_finite_number() -> None:
    compare(
        lambda b: b.cast(b.constant(value=-1e6, result=F32), rounding="rtz", result=F16), expect=1.0
    )
    assert round_to(-1e6, F16, towards_zero=True) == -65504.0


@pytest.mark.parametrize(("value", "expected"), [(1e6, 448.0), (-449.0, -448.0), (math.inf, 448.0)])
def test_fp8_saturates(value: float, expected: float) -> None:
    compare(lambda b: b.cast(b.constant(value=value, result=F32), result=F8E4M3FN), expect=1.0)
    b = Builder.at_end(Function("k", ()).body)
    assert _folded(b.cast(b.constant(value=value, result=F32), result=F8E4M3FN)) == expected


def test_a_constant_is_rounded_to_its_type_first() -> None:
    function = Function("k", ())
    b = Builder.at_end(function.body)
    total = b.add(b.constant(value=0.1, result=F32), b.constant(value=0.0, result=F32)).owner
    assert fold(total, [0.1, 0.0]) == float(np.float32(0.1))
