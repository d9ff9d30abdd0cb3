"""Instructions of particular processors that LLVM does not choose by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import BF16, F32, F64, FloatType, TileType, Type, element_type
from tilewright.llvm.emission.registers import vector_type
from tilewright.llvm.emission.scalar_regions import run_function
from tilewright.passes.math.math_library import exp2_of_fraction
from tilewright_cpu.codegen.context import Context
from tilewright_cpu.codegen.gemm.gemv import MAX_COLUMNS
from tilewright_cpu.codegen.gemm.plan import BF16_PAIRS, BF16_TILES, choose_scheme
from tilewright_cpu.codegen.intrinsics.erf import LANES, erf

#: Immediate of the instructions that round to an integer: to nearest even, with no exception.
_NEAREST = "8"


def machine_operation(
    context: Context,
    name: str,
    operands: list[str],
    width: int,
    element: Type,
    attributes: Mapping[str, Any],
) -> str | None:
    """AVX-512's instructions for an operation on f32 or f64, where they are shorter."""
    if name == "erf" and element is F32 and width <= LANES and context.state.hardware.tables:
        return erf(context, operands[0], width)
    if (
        element not in (F32, F64)
        or width * element.bits not in (128, 256, 512)
        or not context.state.hardware.can("range")
    ):
        return None
    if name in ("min", "max") and attributes.get("nan", "ignore") == "ignore":
        # the immediate: 4 | (0 min, 1 max)
        return _avx512(context, "range", operands, element, width, "5" if name == "max" else "4")
    if name == "exp2" and element is F32:
        return _exp2(context, operands[0], width)
    return None


def _exp2(context: Context, x: str, width: int) -> str:
    """2**x as 2**n * 2**(x - n) for the integer n nearest to x.

    Scaling by a power of two takes n as a float of any size, and the instruction that takes an
    integer off yields 0 for infinity, so x needs no limits.
    """
    fraction = _avx512(context, "reduce", [x], F32, width, _NEAREST)
    power = run_function(context, exp2_of_fraction(), [fraction], width)
    return _avx512(
        context,
        "scalef",
        [power, _avx512(context, "rndscale", [x], F32, width, _NEAREST)],
        F32,
        width,
    )


def _avx512(
    context: Context,
    name: str,
    operands: list[str],
    element: FloatType,
    width: int,
    immediate: str | None = None,
) -> str:
    """An instruction on whole registers without a mask, in the current rounding."""
    type_, bits = vector_type(element, width), width * element.bits
    arguments = [(type_, operand) for operand in operands]
    if immediate is not None:
        arguments.append(("i32", immediate))
    arguments += [(type_, "zeroinitializer"), ("i16" if width == 16 else "i8", "-1")]
    if bits == 512:
        arguments.append(("i32", "4"))
    return context.writer.call(
        f"llvm.x86.avx512.mask.{name}.{'ps' if element is F32 else 'pd'}.{bits}", type_, arguments
    )


def rounded_for_dots(context: Context, cast: Cast, operand: str, width: int) -> str | None:
    """f32 to bf16 by the instruction that flushes subnormal numbers to 0, or None.

    It is used where only matmuls that flush them too read the result.
    """
    (result,) = cast.results
    if (
        element_type(result.type) is not BF16
        or element_type(cast.x.type) is not F32
        or cast.rounding != "rtne"
    ):
        return None
    hardware = context.state.hardware
    if (
        width * 32 != hardware.vector_bits
        or width not in (8, 16)
        or not hardware.can("bf16")
        or not all(_flushes(context, user, result) for user in result.uses)
    ):
        return None
    writer, bits = context.writer, width * 32
    bfloats = f"<{width} x bfloat>"
    rounded = writer.call(
        f"llvm.x86.avx512bf16.cvtneps2bf16.{bits}", bfloats, [(vector_type(F32, width), operand)]
    )
    return writer.emit(f"bitcast {bfloats} {rounded} to {vector_type(BF16, width)}")


def _flushes(context: Context, user: Operation, operand: Value) -> bool:
    """Return whether an operation is a matmul that takes subnormal elements of an operand for 0."""
    if not isinstance(user, Dot) or operand is user.c:
        return False
    a, b = user.a, user.b
    assert isinstance(a.type, TileType) and isinstance(b.type, TileType)
    extents = a.type.shape[-2], b.type.shape[-1], a.type.shape[-1]
    return (
        choose_scheme(a.type.element, b.type.element, context.state.hardware, extents)
        in (BF16_PAIRS, BF16_TILES)
        and extents[1] > MAX_COLUMNS
    )
