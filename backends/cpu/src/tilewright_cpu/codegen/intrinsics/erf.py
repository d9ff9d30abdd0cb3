"""The error function from coefficients that a permute instruction looks up in registers.

An instruction that permutes sixteen numbers is a table of sixteen. This takes half of the
operations of :mod:`tilewright.passes.math.math_library`, which writes for every target and so
computes both of two formulas and an exponential; its error, 0.81 ULP at most, is below the bound
stated there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import F32, I32
from tilewright.llvm.emission.registers import constant, vector_type
from tilewright.llvm.emission.writer import float_constant
from tilewright.passes.math.math_coefficients import ERF_PIECE_WIDTH, ERF_PIECES
from tilewright_cpu.codegen.context import Context

LANES = 16
_TYPE, _INTEGERS = vector_type(F32, LANES), vector_type(I32, LANES)

#: From here on erf is 1; it lies within the last piece.
_END = 3.93

#: Added to a number it leaves the number's integer part in the low bits of the sum.
_MAGIC = 1.5 * 2.0**23

#: Immediate of the instructions with a rounding of their own: downwards, with no exception.
_DOWNWARDS = "9"


def erf(context: Context, x: str, width: int) -> str:
    """erf of ``width`` lanes of f32, at most :data:`LANES`.

    It is computed in a register of 512 bits, of which fewer lanes, or a scalar, are a part.
    """
    w, type_ = context.writer, vector_type(F32, width)
    if width == LANES:
        return _erf(context, x)
    if not width:
        alone = w.emit(f"insertelement {_TYPE} poison, float {x}, i64 0")
        return w.emit(f"extractelement {_TYPE} {_erf(context, alone)}, i64 0")
    wide = w.emit(
        f"shufflevector {type_} {x}, {type_} poison, "
        f"{_order([min(lane, width) for lane in range(LANES)])}"
    )
    return w.emit(
        f"shufflevector {_TYPE} {_erf(context, wide)}, {_TYPE} poison, {_order(range(width))}"
    )


def _order(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def _erf(context: Context, x: str) -> str:
    w = context.writer

    def number(value: float) -> str:
        return constant(F32, value, LANES)

    def fused(a: str, b: str, c: str) -> str:
        return w.intrinsic("llvm.fma", _TYPE, [(_TYPE, a), (_TYPE, b), (_TYPE, c)])

    magnitude = w.intrinsic("llvm.fabs", _TYPE, [(_TYPE, x)])
    beyond = w.emit(f"fcmp ogt {_TYPE} {magnitude}, {number(_END)}")
    bounded = w.emit(f"select <{LANES} x i1> {beyond}, {_TYPE} {number(_END)}, {_TYPE} {magnitude}")
    scaled = [
        (_TYPE, bounded),
        (_TYPE, number(1 / ERF_PIECE_WIDTH)),
        (_TYPE, number(_MAGIC)),
        ("i32", _DOWNWARDS),
    ]
    shifted = w.call("llvm.x86.avx512.vfmadd.ps.512", _TYPE, scaled)
    # the instruction reads four bits of each number: the piece
    piece = w.emit(f"bitcast {_TYPE} {shifted} to {_INTEGERS}")

    def look_up(column: Sequence[float]) -> str:
        table = ", ".join(f"float {float_constant('float', value)}" for value in column)
        return w.call(
            "llvm.x86.avx512.permvar.sf.512", _TYPE, [(_TYPE, f"<{table}>"), (_INTEGERS, piece)]
        )

    centres, values, *coefficients = ERF_PIECES
    distance = w.emit(f"fsub {_TYPE} {bounded}, {look_up(centres)}")
    total = look_up(coefficients[-1])
    for column in reversed(coefficients[:-1]):
        total = fused(total, distance, look_up(column))
    # near 0 what is added to is x itself, so that small results are as close as great ones
    first = w.emit(f"fcmp oeq {_TYPE} {shifted}, {number(_MAGIC)}")
    start = w.emit(f"select <{LANES} x i1> {first}, {_TYPE} {distance}, {_TYPE} {look_up(values)}")
    return w.intrinsic("llvm.copysign", _TYPE, [(_TYPE, fused(total, distance, start)), (_TYPE, x)])
