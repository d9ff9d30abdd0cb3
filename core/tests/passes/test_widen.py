"""Arithmetic on floats that a target does not compute in: done in f32 and rounded, it is that of
the narrow format to the bit, on the reference."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilewright.ir import TABLE, Builder, Function, Module, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.types import (
    BF16,
    F8E4M3FN,
    F8E5M2FNUZ,
    F16,
    F64,
    FLOATS,
    I32,
    I64,
    U64,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    element_type,
)
from tilewright.passes.decompose.catalogue import decompose
from tilewright.passes.math.float_formats import round_to
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import decode, encode, is_raw, numpy_dtype
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.oracles.formats import saturated

NAMES = [spec.name for spec in TABLE]
NARROW = tuple(type_ for type_ in FLOATS if type_.bits <= 16)
#: Hand numbers on as they are.
MOVING = frozenset({"select", "bitcast", "addptr", "hint"})


def is_narrow(type_: Type, computes: tuple[str, ...]) -> bool:
    element = element_type(type_)
    return isinstance(element, FloatType) and element.bits <= 16 and str(element) not in computes


def widened(module: Module, computes: tuple[str, ...]) -> Module:
    apart = parse_module(str(module))
    decompose(apart, NAMES, computes)
    verify(apart)
    for operation in apart.walk():
        if operation.spec.elementwise and operation.name not in MOVING:
            assert not any(
                is_narrow(value.type, computes)
                for value in (*operation.operands, *operation.results)
            ), operation
    return apart


@pytest.mark.each_value
@pytest.mark.parametrize(
    "computes", [("f32",), ("f32", "f64"), ("f32", "f64", "f16"), ("f32", "bf16")], ids=" ".join
)
@pytest.mark.parametrize(
    "name",
    [
        "constant",
        "add",
        "sub",
        "mul",
        "div",
        "rem",
        "neg",
        "abs",
        "min",
        "max",
        "cmp",
        "fma",
        "cast",
        "reduce",
        "scan",
    ],
)
def test_samples(name: str, computes: tuple[str, ...]) -> None:
    ran = 0
    for sample in samples(name):
        if not any(str(type_) in str(sample.module) for type_ in NARROW) or (
            "f64" not in computes and "f64" in str(sample.module)
        ):
            continue
        apart = widened(sample.module, computes)
        assert "f64" in computes or "f64" not in str(apart)
        found = []
        for module in (sample.module, apart):
            arguments = sample.make_arguments(np.random.default_rng(11 + ran))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run(module, arguments, sample.grid)
            found.append(arguments)
        check_outputs(sample, *found)
        ran += 1
    assert ran


def elementwise(operands: list[Type], result: Type, count: int, write: Any) -> Module:
    module = Module()
    function = module.add(
        Function(
            "kernel",
            [PointerType(type_) for type_ in (*operands, result)],
            (),
            ["a", "b", "c", "d"][: len(operands) + 1],
        )
    )
    b = Builder.at_end(function.body)
    index = b.arange(start=0, end=count)
    pointers = [
        b.addptr(b.splat(base, result=TileType((count,), base.type)), index)
        for base in function.arguments
    ]
    b.store(pointers[-1], write(b, *(b.load(pointer) for pointer in pointers[:-1])))
    b.return_([])
    verify(module)
    return module


def encodings(type_: FloatType, rng: np.random.Generator, count: int) -> Any:
    """Random numbers of a format of every magnitude, as the reference keeps them."""
    bits = rng.integers(0, 1 << type_.bits, count).astype(f"u{type_.bits // 8}")
    return bits if is_raw(type_) else bits.view(numpy_dtype(type_))


def numbers(values: Any, type_: FloatType) -> list[float]:
    return [
        float(value)
        for value in (decode(values, type_) if is_raw(type_) else values.astype(np.float64))
    ]


@pytest.mark.parametrize("type_", [F16, BF16, F8E4M3FN, F8E5M2FNUZ], ids=str)
def test_fma_is_rounded_once(type_: FloatType) -> None:
    """Against exact rationals: any bits, and sums that nearly are ties."""
    rng, count = np.random.default_rng(12), 6000
    a, x, c = (encodings(type_, rng, count) for _ in range(3))
    near, other = numbers(a[: count // 2], type_), numbers(x[: count // 2], type_)
    with np.errstate(all="ignore"):
        close = np.array(near) * np.array(other) * 2.0 ** rng.integers(-9, 9, count // 2)
        c[: count // 2] = (
            encode(close, type_) if is_raw(type_) else close.astype(numpy_dtype(type_))
        )
    apart = widened(
        elementwise([type_] * 3, type_, count, lambda b, *operands: b.fma(*operands)), ("f32",)
    )
    d = np.zeros_like(a)
    with np.errstate(all="ignore"):
        run(apart, [a, x, c, d], (1, 1, 1))
    tested = 0
    for first, second, third, found in zip(
        numbers(a, type_), numbers(x, type_), numbers(c, type_), numbers(d, type_), strict=True
    ):
        if not np.isfinite([first, second, third]).all():
            continue
        exact = Fraction(first) * Fraction(second) + Fraction(third)
        expected = round_to(saturated(exact, type_), type_)
        assert found == expected or (expected != expected and found != found), (
            first,
            second,
            third,
            found,
            expected,
        )
        tested += 1
    assert tested > count // 2


def test_special_values_of_fma() -> None:
    inf, nan, most = np.inf, np.nan, 3.3895313892515355e38  # the maximum bf16
    rows = [
        (inf, 1, -inf),
        (inf, 0, 1),
        (2, 3, inf),
        (most, most, -inf),
        (most, 2, -most),
        (most, most, -most),
        (nan, 1, 1),
        (0, inf, 0),
        (-most, most, inf),
    ]
    a, x, c = (
        np.asarray(encode(np.array([row[i] for row in rows], np.float64), BF16)) for i in range(3)
    )
    apart = widened(
        elementwise([BF16] * 3, BF16, len(rows), lambda b, *operands: b.fma(*operands)), ("f32",)
    )
    d = np.zeros_like(a)
    with np.errstate(all="ignore"):
        run(apart, [a, x, c, d], (1, 1, 1))
    np.testing.assert_array_equal(numbers(d, BF16), [nan, nan, inf, -inf, most, inf, nan, nan, inf])


def test_a_product_that_vanishes_leaves_its_sign() -> None:
    """It is no zero, so that the sum with a zero of another sign has its own."""
    tiny = 2.0**-100
    a, x = (
        np.asarray(encode(np.array(row, np.float64), BF16))
        for row in ([-tiny, tiny, -tiny, tiny], [tiny, tiny, tiny, -tiny])
    )
    c = np.asarray(encode(np.array([0.0, -0.0, -0.0, 0.0]), BF16))
    apart = widened(
        elementwise([BF16] * 3, BF16, 4, lambda b, *operands: b.fma(*operands)), ("f32",)
    )
    d = np.zeros_like(a)
    run(apart, [a, x, c, d], (1, 1, 1))
    np.testing.assert_array_equal(d, [0x8000, 0, 0x8000, 0x8000])


@pytest.mark.parametrize("result", [F16, BF16, F8E4M3FN], ids=str)
@pytest.mark.parametrize("source", [I32, I64, U64], ids=str)
def test_integers_are_rounded_once_without_f64(source: IntType, result: FloatType) -> None:
    rng, dtype = (
        np.random.default_rng(13),
        np.dtype(f"{'i' if source.signed else 'u'}{source.bits // 8}"),
    )
    x = rng.integers(source.minimum, source.maximum, 3000, dtype, endpoint=True) >> dtype.type(0)
    x = x >> rng.integers(0, source.bits - 1, 3000).astype(dtype)
    ties = [
        (2 * odd + 1) << shift
        for odd in (128, 129, 1024, 1025, 200)
        for shift in range(source.bits - 14)
    ]
    x = np.concatenate(
        [
            x,
            np.array([tie + near for tie in ties for near in (-1, 0, 1)], dtype),
            np.array([source.minimum, source.maximum, 0, 1], dtype),
        ]
    )
    apart = widened(
        elementwise(
            [source],
            result,
            len(x),
            lambda b, x: b.cast(x, result=TileType((len(ties) * 3 + 3004,), result)),
        ),
        ("f32",),
    )
    assert "f64" not in str(apart)
    found = np.zeros(len(x), numpy_dtype(result))
    with np.errstate(all="ignore"):
        run(apart, [x, found], (1, 1, 1))
    for value, own in zip(x.tolist(), numbers(found, result), strict=True):
        expected = round_to(saturated(Fraction(value), result), result)
        assert own == expected or (expected != expected and own != own), (value, own, expected)


def test_text(check_pass: Any) -> None:
    check_pass(
        lambda module: decompose(module, NAMES, ("f32",)),
        "%r = constant {value = 1.5} : f16\n%d = neg %h : f16\nuse %r, %d, %f",
        "%b1 = constant {value = 15872} : u16\n%r = bitcast %b1 : f16\n"
        "%b2 = bitcast %h : u16\n%b3 = constant {value = 32768} : u16\n%b4 = xor %b2, %b3 : u16\n"
        "%d = bitcast %b4 : f16\nuse %r, %d, %f",
    )


def test_what_is_computed_stays() -> None:
    module = elementwise([F16, F16], F16, 8, lambda b, x, y: b.add(x, y))
    assert not decompose(module, NAMES, ("f32", "f16"))
    assert not decompose(module, NAMES)
    assert decompose(module, NAMES, ("f32", "bf16"))
    wide = elementwise([F64, F64], F64, 8, lambda b, x, y: b.add(x, y))
    assert not decompose(wide, NAMES, ("f32",))
