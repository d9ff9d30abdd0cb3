"""Conversions of bf16 and the fp8 kinds: every encoding of the narrow formats, dense samples of the
wide ones."""

import math

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import Module, verify
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I8,
    I32,
    I64,
    INTEGERS,
    U8,
    U32,
    U64,
    FloatType,
    IntType,
)
from tilewright.passes.math.float_formats import round_to, to_bits
from tilewright.passes.math.math_casts import cast_function
from tilewright_conformance.oracles.formats import saturated

FP8 = tuple(type_ for type_ in FLOATS if type_.is_fp8)
FOREIGN = (BF16, *FP8)
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


def dtype_of(type_):
    if isinstance(type_, IntType):
        return (
            np.dtype(bool)
            if type_ is I1
            else np.dtype(f"{'i' if type_.signed else 'u'}{type_.bits // 8}")
        )
    return np.dtype(
        {F16: np.float16, F32: np.float32, F64: np.float64}.get(type_) or f"u{type_.bits // 8}"
    )


OPERATIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "neg": np.negative,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "gt": np.greater,
    "select": np.where,
}


def evaluate(function, x):
    """The function on an array; bf16 and fp8 numbers are given and taken as raw bits."""
    module = Module()
    module.add(function)
    verify(module)
    values = {function.arguments[0]: x}
    with np.errstate(all="ignore"):
        for operation in function.body:
            operands = [values[operand] for operand in operation.operands]
            if operation.name == "return":
                return operands[0]
            dtype = dtype_of(operation.result.type)
            match operation.name:
                case "constant":
                    value = np.asarray(operation.attribute("value"), dtype)
                case "cast":
                    assert operation.result.type not in FOREIGN, (
                        "a cast that the function was to do"
                    )
                    value = operands[0].astype(dtype)
                case "bitcast":
                    value = operands[0].view(dtype)
                case "cmp":
                    value = OPERATIONS[operation.attribute("predicate")](*operands)
                case name:
                    value = OPERATIONS[name](*operands)
                    assert value.dtype == dtype
            values[operation.result] = value


def exact(number, format_, rounding):
    """The encoding of a Python number by the definition of rounding; None for NaN. Rounding towards
    zero stays finite."""
    if isinstance(number, float) and math.isnan(number):
        return None
    if rounding == "rtne":
        number = saturated(number, format_)
    rounded = round_to(number, format_, towards_zero=rounding == "rtz")
    infinite = isinstance(number, float) and math.isinf(number)
    if rounding == "rtz" and not infinite and not math.isfinite(rounded):
        return (1 << (format_.bits - 1)) * (number < 0) | largest(format_)
    return to_bits(rounded, format_)


def largest(format_):
    everything = (1 << (format_.bits - 1)) - 1
    if format_.has_infinity:
        return (((1 << format_.exponent) - 1) << format_.mantissa) - 1
    return everything - 1 if format_.has_negative_zero else everything


def is_nan(bits, format_):
    magnitude = bits & ((1 << (format_.bits - 1)) - 1)
    if not format_.has_negative_zero:
        return bits == 1 << (format_.bits - 1)
    infinity = ((1 << format_.exponent) - 1) << format_.mantissa
    return (
        magnitude > infinity if format_.has_infinity else magnitude == (1 << (format_.bits - 1)) - 1
    )


#: Of numbers that a table rounds, one in so many is rounded by the definition too.
BY_DEFINITION = 16


def by_table(numbers, format_, rounding):
    """The encodings of an array of float64 in a format of at most 16 bits, and for which numbers
    the table of its finite numbers says them: for those below the greatest. The table is that of
    the encodings; differences to a neighbour are exact in float64, or too great for their rounding
    to count."""
    codes = np.arange(largest(format_) + 1)
    table = np.asarray(numbers_of(format_, codes.astype(f"u{format_.bits // 8}")))
    said = np.abs(numbers) < table[-1]
    magnitudes = np.where(said, np.abs(numbers), 0)
    below = np.searchsorted(table, magnitudes, side="right") - 1
    over, under = (
        magnitudes - table[below],
        table[np.minimum(below + 1, len(table) - 1)] - magnitudes,
    )
    found = below + ((rounding == "rtne") & ((over > under) | ((over == under) & (below % 2 == 1))))
    signed = np.signbit(numbers) & (format_.has_negative_zero | (found > 0))
    return found + (signed.astype(np.int64) << (format_.bits - 1)), said


def check(source, result, rounding, x, numbers):
    """Compare with the definition, number by number; where a table rounds as well, or all that is
    as great is rounded alike, with one in BY_DEFINITION."""
    found = evaluate(cast_function(source, result, rounding), x).view(f"u{result.bits // 8}")
    nan, places = is_nan(found, result), range(len(numbers))
    if result.bits <= 16 and isinstance(source, FloatType):
        given = np.asarray(numbers)
        expected, said = by_table(given, result, rounding)
        np.testing.assert_array_equal(found[said], expected[said])
        beyond = 2 * numbers_of(result, np.asarray([largest(result)], f"u{result.bits // 8}"))[0]
        for far, number in (
            (np.isfinite(given) & (given >= beyond), beyond),
            (np.isfinite(given) & (given <= -beyond), -beyond),
        ):
            code = exact(number, result, rounding)
            assert (nan[far] if code is None else found[far] == code).all()
            said |= far
        places = [*np.flatnonzero(~said), *np.flatnonzero(said)[::BY_DEFINITION]]
    for i in places:
        expected = exact(numbers[i], result, rounding)
        if expected is None:
            assert nan[i], (numbers[i], found[i])
        else:
            assert found[i] == expected, (numbers[i], hex(found[i]), hex(expected))


def numbers_of(format_, bits):
    """The numbers that encodings stand for, as floats; exact for every format here."""
    if format_ in (F16, F32, F64):
        return bits.view(dtype_of(format_)).astype(np.float64).tolist()
    from tilewright.passes.math.float_formats import from_bits

    return [math.nan if (value := from_bits(int(b), format_)) is None else value for b in bits]


def narrowings():
    for source in FLOATS:
        for result in FLOATS:
            for rounding in ("rtne", "rtz"):
                if (rounding == "rtne" or result.bits < source.bits) and cast_function(
                    source, result, rounding
                ) is not None:
                    yield source, result, rounding


@pytest.mark.parametrize("source, result, rounding", [c for c in narrowings() if c[0].bits == 8])
def test_every_number_of_8_bits(source, result, rounding):
    bits = np.arange(256, dtype=np.uint8)
    check(source, result, rounding, bits, numbers_of(source, bits))


@pytest.mark.parametrize("source, result, rounding", [c for c in narrowings() if c[0].bits == 16])
def test_every_number_of_16_bits(source, result, rounding):
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits if result.bits == 8 else bits[::3]
    check(source, result, rounding, bits.view(dtype_of(source)), numbers_of(source, bits))


def interesting(source, result):
    """Random encodings of the source, and its numbers at and next to those of the result and the
    ties between them."""
    random = np.random.default_rng(11)
    unsigned = f"u{source.bits // 8}"
    codes = (
        np.arange(1 << result.bits, dtype=np.uint64)
        if result.bits <= 8
        else random.integers(0, 1 << result.bits, 800, dtype=np.uint64)
    )
    values = np.asarray(numbers_of(result, codes.astype(f"u{result.bits // 8}")))
    values = values[np.isfinite(values)]
    magnitudes = np.sort(np.abs(values))
    ties = np.concatenate(
        [
            (magnitudes[1:] + magnitudes[:-1]) / 2,
            magnitudes,
            [magnitudes[-1] * (1 + 2.0 ** -(result.mantissa + 2)), magnitudes[-1] * 2],
        ]
    )
    with np.errstate(over="ignore"):
        centres = ties.astype(dtype_of(source)).view(unsigned).astype(np.int64)
    near = np.concatenate([centres - 1, centres, centres + 1])
    near = near[near >= 0].astype(unsigned)
    sign = np.asarray(1 << (source.bits - 1), unsigned)
    infinity = ((1 << source.exponent) - 1) << source.mantissa
    specials = np.asarray(
        [0, 1, infinity - 1, infinity, infinity + 1, infinity | (1 << (source.mantissa - 1))],
        unsigned,
    )
    # exponents near the result's range, where random encodings of a wide source seldom are
    exponents = random.integers(
        source.bias - result.bias - result.mantissa - 4, source.bias + result.bias + 4, 1500
    )
    around = (
        np.clip(exponents, 0, 2 * source.bias).astype(np.uint64) << source.mantissa
    ) | random.integers(0, 1 << source.mantissa, 1500, dtype=np.uint64)
    parts = [
        random.integers(0, 1 << source.bits, 1500, dtype=np.uint64).astype(unsigned),
        near,
        specials,
        around.astype(unsigned),
    ]
    found = np.concatenate(parts)
    return np.concatenate([found, found ^ sign])


@pytest.mark.parametrize("source, result, rounding", [c for c in narrowings() if c[0].bits >= 32])
def test_wide_floats(source, result, rounding):
    bits = interesting(source, result)
    check(source, result, rounding, bits.view(dtype_of(source)), numbers_of(source, bits))


@pytest.mark.parametrize("result", [type_ for type_ in FOREIGN if str(type_) in ML_DTYPES])
def test_f32_agrees_with_ml_dtypes(result):
    """Every 1021st float32; NaNs by class. The conversions of ml_dtypes do not saturate, ours to
    fp8 do."""
    x = np.arange(0, 1 << 32, 1021, dtype=np.uint64).astype(np.uint32).view(np.float32)
    found = evaluate(cast_function(F32, result), x)
    expected = saturated(x, result).astype(ML_DTYPES[str(result)]).view(f"u{result.bits // 8}")
    nan = is_nan(found, result)
    np.testing.assert_array_equal(nan, is_nan(expected, result))
    np.testing.assert_array_equal(found[~nan], expected[~nan])


@pytest.mark.parametrize("source", [type_ for type_ in FOREIGN if str(type_) in ML_DTYPES])
@pytest.mark.parametrize("result", [F32, F64])
def test_widening_agrees_with_ml_dtypes(source, result):
    bits = np.arange(1 << source.bits, dtype=np.uint64).astype(f"u{source.bits // 8}")
    found = evaluate(cast_function(source, result), bits)
    expected = bits.view(ML_DTYPES[str(source)]).astype(dtype_of(result))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(expected)])
    )


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("result", FOREIGN)
def test_integers_to_floats(source, result):
    random = np.random.default_rng(13)
    if source.bits <= 8:
        values = list(range(source.minimum, source.maximum + 1))
    else:
        # ties of the result's precision and their neighbours, at every size
        values = [source.minimum, source.maximum, 0, 1, 2, 3]
        for shift in range(source.bits - 1):
            significand = int(random.integers(1 << result.mantissa, 2 << result.mantissa))
            tie = ((2 * significand + 1) << shift) >> (result.mantissa + 1)
            values += [tie - 1, tie, tie + 1, -tie, -tie - 1, -tie + 1]
        values = [value for value in values if source.minimum <= value <= source.maximum]
    x = np.asarray(values, dtype_of(source))
    check(source, result, "rtne", x, values)


@pytest.mark.parametrize("source", FOREIGN)
@pytest.mark.parametrize("result", [I1, I8, U8, I32, U32, I64, U64])
def test_floats_to_integers(source, result):
    bits = np.arange(1 << source.bits, dtype=np.uint64).astype(f"u{source.bits // 8}")
    numbers = numbers_of(source, bits)
    if result is I1:
        keep = list(range(len(bits)))
        expected = [number != 0 for number in numbers]
    else:
        keep = [
            i
            for i, number in enumerate(numbers)
            if math.isfinite(number) and result.minimum <= math.trunc(number) <= result.maximum
        ]
        expected = [math.trunc(numbers[i]) for i in keep]
    found = evaluate(cast_function(source, result), bits[keep])
    assert found.tolist() == expected


def test_conversions_that_targets_have_are_left_to_them():
    assert cast_function(F32, F64) is None
    assert cast_function(F32, F16) is None
    assert cast_function(F64, F32) is None
    assert cast_function(I32, F32) is None
    assert cast_function(F16, I1) is None
    assert cast_function(BF16, BF16) is None
    assert cast_function(F64, F16) is not None
    assert cast_function(F64, F32, "rtz") is not None
    assert isinstance(BF16, FloatType)
