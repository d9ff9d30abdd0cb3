"""Casts between number types, on LLVM scalars and vectors.

bf16 and fp8 values are their bits in registers: conversions to and from them are integer arithmetic
(bf16 here, the rest from the shared library), exact for subnormals too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.errors import LoweringError
from tilewright.ir.float_to_int import conversion_type, integer_of_nan
from tilewright.ir.types import BF16, F16, F32, F64, I1, I32, I64, FloatType, IntType, Type
from tilewright.llvm.emission.registers import constant, register_type, vector_type
from tilewright.llvm.emission.scalar_regions import run_function
from tilewright.llvm.emission.writer import splat_constant, vector

if TYPE_CHECKING:
    from tilewright.llvm.emission.element_context import ElementContext
    from tilewright.llvm.emission.writer import FunctionWriter

_NATIVE = (F16, F32, F64)


def emit_cast(
    context: ElementContext,
    name: str,
    source: Type,
    result: Type,
    width: int,
    rounding: str = "rtne",
) -> str:
    """``name`` of element type ``source`` as ``result``, by the rules of the operation ``cast``."""
    if source is result:
        return name
    own = context.machine_cast(name, source, result, width, rounding)
    if own is not None:
        return own
    if isinstance(source, IntType):
        return _from_int(context, name, source, result, width)
    assert isinstance(source, FloatType), source
    if isinstance(result, IntType):
        return _to_int(context, name, source, result, width)
    assert isinstance(result, FloatType), result
    return _float_to_float(context, name, source, result, width, rounding)


def _from_int(context: ElementContext, name: str, source: IntType, result: Type, width: int) -> str:
    writer, from_, to = context.writer, vector_type(source, width), vector_type(result, width)
    if isinstance(result, IntType):
        if result is I1:
            return writer.emit(f"icmp ne {from_} {name}, {constant(source, 0, width)}")
        if result.bits == source.bits:
            return name
        if result.bits < source.bits:
            return writer.emit(f"trunc {from_} {name} to {to}")
        if not name.startswith("%") and not width:
            return (
                name
                if name.lstrip("-").isdigit() and int(name) >= 0
                else writer.emit(f"{'sext' if source.signed else 'zext'} {from_} {name} to {to}")
            )
        return writer.emit(f"{'sext' if source.signed else 'zext'} {from_} {name} to {to}")
    if isinstance(result, FloatType):
        if result in (F32, F64):
            return writer.emit(f"{'si' if source.signed else 'ui'}tofp {from_} {name} to {to}")
        if source.bits == 64 and result is not F16:
            # f64 does not hold them all, and a middle of two numbers must not be made on the way;
            # what fits in f16 is held
            from tilewright.passes.math.math_library import cast_function

            function = cast_function(source, result)
            assert function is not None
            return run_function(context, function, [name], width)
        # the one rounding is the narrowing: f64 holds every integer of 32 bits, and those that f32
        # does not hold are infinite in f16
        through = F32 if source.bits <= 16 or result is F16 else F64
        wide = writer.emit(
            f"{'si' if source.signed else 'ui'}tofp {from_} {name} to {vector_type(through, width)}"
        )
        return emit_cast(context, wide, through, result, width)
    raise LoweringError(f"there is no cast of {source} to {result}")


def _to_int(
    context: ElementContext, name: str, source: FloatType, result: IntType, width: int
) -> str:
    writer = context.writer
    if source not in _NATIVE:
        name, source = _float_to_float(context, name, source, F32, width, "rtne"), F32
    from_ = vector_type(source, width)
    if result is I1:
        return writer.emit(f"fcmp une {from_} {name}, {constant(source, 0.0, width)}")
    through = conversion_type(result)
    if width and source is F16:  # which does not hold the ends of all ranges
        name, source, from_ = (
            writer.emit(f"fpext {from_} {name} to {vector('float', width)}"),
            F32,
            vector("float", width),
        )
    computed = I32 if width and through.bits == 16 else through
    to = vector_type(computed, width)
    how = f"fpto{'s' if computed.signed else 'u'}i"
    if width:
        whole = _saturated(context, name, source, through, computed, width)
    else:
        whole = writer.intrinsic(f"llvm.{how}.sat", to, [(from_, name)], [to, from_])
    nan = integer_of_nan(source, through)
    if nan or width:
        is_nan = writer.emit(f"fcmp uno {from_} {name}, {name}")
        whole = writer.emit(
            f"select {vector('i1', width)} {is_nan}, {to} {constant(computed, nan, width)}, "
            f"{to} {whole}"
        )
    return (
        whole
        if computed is result
        else writer.emit(f"trunc {to} {whole} to {vector_type(result, width)}")
    )


def _saturated(
    context: ElementContext,
    name: str,
    source: FloatType,
    ends: IntType,
    computed: IntType,
    width: int,
) -> str:
    """Convert floats within the range of ``ends`` to ``computed``; NaN becomes some number.

    LLVM's saturating conversion is scalarized on vectors of many targets.
    """
    writer, from_, mask, to = (
        context.writer,
        vector_type(source, width),
        vector("i1", width),
        vector_type(computed, width),
    )
    how = f"fpto{'s' if computed.signed else 'u'}i"

    def number(value: float) -> str:
        return constant(source, value, width)

    above = writer.emit(f"fcmp ogt {from_} {name}, {number(float(ends.minimum))}")
    bounded = writer.emit(
        f"select {mask} {above}, {from_} {name}, {from_} {number(float(ends.minimum))}"
    )
    beyond = writer.emit(f"fcmp oge {from_} {bounded}, {number(float(ends.maximum + 1))}")
    if ends.bits <= source.mantissa:
        bounded = writer.emit(
            f"select {mask} {beyond}, {from_} {number(float(ends.maximum))}, {from_} {bounded}"
        )
        return writer.emit(f"{how} {from_} {bounded} to {to}")
    bounded = writer.emit(f"select {mask} {beyond}, {from_} {number(0.0)}, {from_} {bounded}")
    whole = writer.emit(f"{how} {from_} {bounded} to {to}")
    return writer.emit(
        f"select {mask} {beyond}, {to} {constant(computed, computed.maximum, width)}, {to} {whole}"
    )


def _float_to_float(
    context: ElementContext,
    name: str,
    source: FloatType,
    result: FloatType,
    width: int,
    rounding: str,
) -> str:
    writer, from_, to = context.writer, vector_type(source, width), vector_type(result, width)
    if source is result:
        return name
    if source in _NATIVE and result in _NATIVE:
        if result.bits > source.bits:
            if source is F16 and result is F64:
                name, from_ = (
                    writer.emit(f"fpext {from_} {name} to {vector('float', width)}"),
                    vector("float", width),
                )
            return writer.emit(f"fpext {from_} {name} to {to}")
        if rounding == "rtne":
            if source is F64 and result is F16:
                name, from_ = _round_to_odd(context, name, width), vector("float", width)
            return writer.emit(f"fptrunc {from_} {name} to {to}")
    if source is BF16 and result in (F32, F64):
        wide = writer.emit(f"zext {from_} {name} to {vector('i32', width)}")
        bits = writer.emit(
            f"shl {vector('i32', width)} {wide}, {splat_constant('i32', '16', width)}"
        )
        single = writer.emit(f"bitcast {vector('i32', width)} {bits} to {vector('float', width)}")
        return (
            single
            if result is F32
            else writer.emit(f"fpext {vector('float', width)} {single} to {to}")
        )
    if source is F32 and result is BF16 and rounding == "rtne":
        return _round_to_bf16(context, name, width)
    if source is F64 and result is BF16 and rounding == "rtne":
        return emit_cast(context, _round_to_odd(context, name, width), F32, result, width)
    from tilewright.passes.math.math_library import cast_function

    function = cast_function(source, result, rounding)
    if function is not None:
        return run_function(context, function, [name], width)
    if source is not F32 and result is not F32:
        # two steps: into f32 is exact from every narrow format
        if source is F64:
            single = _round_to_odd(context, name, width)
        else:
            single = _float_to_float(context, name, source, F32, width, "rtne")
        return _float_to_float(context, single, F32, result, width, rounding)
    raise LoweringError(f"there is no cast of {source} to {result} with rounding {rounding}")


def rounded_upper_half(writer: FunctionWriter, bits: str, width: int = 0) -> str:
    """Return the bits of an f32 number whose upper half is the number rounded to bf16.

    Rounding is to nearest even; a NaN has any bits. Numbers of ``width`` are a vector.
    """
    i32 = vector("i32", width)
    one, half, sixteen = (splat_constant("i32", str(value), width) for value in (1, 0x7FFF, 16))
    odd = writer.emit(f"and {i32} {writer.emit(f'lshr {i32} {bits}, {sixteen}')}, {one}")
    return writer.emit(f"add {i32} {bits}, {writer.emit(f'add {i32} {odd}, {half}')}")


def _round_to_bf16(context: ElementContext, name: str, width: int) -> str:
    """f32 to bf16 to nearest even on the bits; a NaN stays a quiet NaN."""
    writer, i32, float_ = context.writer, vector("i32", width), vector("float", width)

    def number(value: int) -> str:
        return splat_constant("i32", str(value), width)

    bits = writer.emit(f"bitcast {float_} {name} to {i32}")
    rounded = writer.emit(f"lshr {i32} {rounded_upper_half(writer, bits, width)}, {number(16)}")
    high = writer.emit(f"lshr {i32} {bits}, {number(16)}")
    quiet = writer.emit(f"or {i32} {high}, {number(0x40)}")
    is_nan = writer.emit(f"fcmp uno {float_} {name}, {name}")
    chosen = writer.emit(f"select {vector('i1', width)} {is_nan}, {i32} {quiet}, {i32} {rounded}")
    return writer.emit(f"trunc {i32} {chosen} to {vector('i16', width)}")


def _round_to_odd(context: ElementContext, name: str, width: int) -> str:
    """Convert f64 to f32, rounded to odd.

    That is towards zero, with the last bit set where that was not exact. Rounding the result again
    to a narrower format then yields the result of rounding once (Boldo and Melquiond, "When double
    rounding is odd").
    """
    writer = context.writer
    double, float_, i32, i1 = (vector(type_, width) for type_ in ("double", "float", "i32", "i1"))
    near = writer.emit(f"fptrunc {double} {name} to {float_}")
    back = writer.emit(f"fpext {float_} {near} to {double}")
    inexact = writer.emit(f"fcmp one {double} {back}, {name}")
    size, size_back = (writer.intrinsic("llvm.fabs", double, [(double, x)]) for x in (name, back))
    beyond = writer.emit(f"fcmp ogt {double} {size_back}, {size}")
    bits = writer.emit(f"bitcast {float_} {near} to {i32}")
    one = writer.emit(f"zext {i1} {beyond} to {i32}")
    bits = writer.emit(f"sub {i32} {bits}, {one}")
    sticky = writer.emit(f"zext {i1} {inexact} to {i32}")
    bits = writer.emit(f"or {i32} {bits}, {sticky}")
    return writer.emit(f"bitcast {i32} {bits} to {float_}")


def emit_bitcast(context: ElementContext, name: str, source: Type, result: Type, width: int) -> str:
    """The same bits as another type of the same width."""
    from_, to = register_type(source), register_type(result)
    if from_ == to:
        return name
    if "ptr" in (from_, to) and "i64" not in (from_, to):
        # LLVM casts pointers to and from integers only
        name = emit_bitcast(context, name, source, I64, width)
        return emit_bitcast(context, name, I64, result, width)
    how = "ptrtoint" if from_ == "ptr" else "inttoptr" if to == "ptr" else "bitcast"
    return context.writer.emit(f"{how} {vector(from_, width)} {name} to {vector(to, width)}")
