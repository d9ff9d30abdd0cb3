"""Exact conversions of narrow numbers, as they lie in memory, to wider ones.

All functions work on vectors of ``lanes`` lanes and, with ``lanes`` 0, on scalars.
"""

from __future__ import annotations

from tilewright.ir.types import BF16, F16, F32, FloatType, IntType, Type
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant, splat_constant, vector


def widen_float(
    w: FunctionWriter, element: FloatType, value: str, lanes: int, half_is_fast: bool = True
) -> str:
    """``value``, stored elements of a float type of at most 32 bits, as LLVM ``float``."""
    if element is F32:
        return value
    if element is F16:
        return w.emit(f"fpext {vector('half', lanes)} {value} to {vector('float', lanes)}")
    if element is BF16:
        wide = w.emit(f"zext {vector('i16', lanes)} {value} to {vector('i32', lanes)}")
        shifted = w.emit(f"shl {vector('i32', lanes)} {wide}, {splat_constant('i32', '16', lanes)}")
        return w.emit(f"bitcast {vector('i32', lanes)} {shifted} to {vector('float', lanes)}")
    return widen_code(w, element, value, lanes, half_is_fast)


def widen_code(
    w: FunctionWriter, format_: FloatType, value: str, lanes: int, half_is_fast: bool = True
) -> str:
    """The ``float`` of 8-bit encodings (``i8``) of a format.

    Sign and magnitude are moved to the fields of a wider format; the difference of the biases is a
    multiplication by a power of two, which also makes subnormal numbers right. Going through
    ``half`` where its exponent is wide enough avoids subnormal ``float`` operands, which are slow
    on some processors. NaN of formats without infinity is put in by hand.
    """
    through_half = half_is_fast and (format_.exponent < 5 or format_.has_infinity)
    integer, target, bits, mantissa, bias = (
        ("i16", "half", 16, 10, 15) if through_half else ("i32", "float", 32, 23, 127)
    )

    def binary(operation: str, type_: str, a: str, constant: int) -> str:
        return w.emit(
            f"{operation} {vector(type_, lanes)} {a}, {splat_constant(type_, str(constant), lanes)}"
        )

    wide = w.emit(f"zext {vector('i8', lanes)} {value} to {vector(integer, lanes)}")
    sign = binary("shl", integer, binary("lshr", integer, wide, 7), bits - 1)
    magnitude = binary(
        "shl", integer, binary("and", integer, wide, 0x7F), mantissa - format_.mantissa
    )
    joined = w.emit(f"or {vector(integer, lanes)} {sign}, {magnitude}")
    number = w.emit(f"bitcast {vector(integer, lanes)} {joined} to {vector(target, lanes)}")
    if through_half:
        number = w.emit(f"fpext {vector('half', lanes)} {number} to {vector('float', lanes)}")
    if bias != format_.bias:
        number = _scale(w, number, bias - format_.bias, lanes)
    if format_.has_infinity:
        return number if through_half else _infinite(w, format_, value, number, lanes)
    return _with_nan(w, format_, value, number, lanes)


def _scale(w: FunctionWriter, number: str, exponent: int, lanes: int) -> str:
    factor = splat_constant("float", float_constant("float", 2.0**exponent), lanes)
    return w.emit(f"fmul {vector('float', lanes)} {number}, {factor}")


def _with_nan(w: FunctionWriter, format_: FloatType, value: str, number: str, lanes: int) -> str:
    """NaN where a format without infinity has it.

    Its code has all magnitude bits set, or is that of negative zero.
    """
    narrow = vector("i8", lanes)
    if format_.has_negative_zero:
        magnitude = w.emit(f"and {narrow} {value}, {splat_constant('i8', '127', lanes)}")
        is_nan = w.emit(f"icmp eq {narrow} {magnitude}, {splat_constant('i8', '127', lanes)}")
    else:
        is_nan = w.emit(f"icmp eq {narrow} {value}, {splat_constant('i8', '-128', lanes)}")
    nan = splat_constant("float", float_constant("float", float("nan")), lanes)
    return w.emit(
        f"select {vector('i1', lanes)} {is_nan}, {vector('float', lanes)} {nan}, "
        f"{vector('float', lanes)} {number}"
    )


def _infinite(w: FunctionWriter, format_: FloatType, value: str, number: str, lanes: int) -> str:
    """Infinity and NaN of a format that has both, where ``float`` fields were filled.

    The maximum exponent must stay the maximum.
    """
    top = ((1 << format_.exponent) - 1) << format_.mantissa
    magnitude = w.emit(f"and {vector('i8', lanes)} {value}, {splat_constant('i8', '127', lanes)}")
    special = w.emit(
        f"icmp uge {vector('i8', lanes)} {magnitude}, {splat_constant('i8', str(top), lanes)}"
    )
    grown = _scale(
        w, _scale(w, number, 127, lanes), 127, lanes
    )  # past the range of float: infinity of the right sign
    is_nan = w.emit(
        f"icmp ugt {vector('i8', lanes)} {magnitude}, {splat_constant('i8', str(top), lanes)}"
    )
    nan = splat_constant("float", float_constant("float", float("nan")), lanes)
    floats, bools = vector("float", lanes), vector("i1", lanes)
    grown = w.emit(f"select {bools} {is_nan}, {floats} {nan}, {floats} {grown}")
    return w.emit(f"select {bools} {special}, {floats} {grown}, {floats} {number}")


def widen_integer(w: FunctionWriter, element: IntType, value: str, lanes: int, target: str) -> str:
    """Integers of at most the width of LLVM type ``target``, by their own signedness."""
    source = storage_type(element)
    if source == target:
        return value
    return w.emit(
        f"{'sext' if element.signed else 'zext'} {vector(source, lanes)} {value} to "
        f"{vector(target, lanes)}"
    )


def widen(
    w: FunctionWriter, element: Type, value: str, lanes: int, target: str, half_is_fast: bool = True
) -> str:
    """``value``, as it lies in memory, as LLVM type ``target``.

    That is ``float`` from floats, ``double`` from f64, integers from integers, or the same bits.
    """
    if storage_type(element) == target:
        return value
    if isinstance(element, IntType):
        return widen_integer(w, element, value, lanes, target)
    assert isinstance(element, FloatType)
    return widen_float(w, element, value, lanes, half_is_fast)
