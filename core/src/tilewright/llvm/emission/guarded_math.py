"""Sine and cosine with a short form for most arguments, behind a guard.

They are functions of the module, one a vector type, not inlined: the long reduction of great
arguments is behind a branch there, which chunk evaluation could not have in the middle of an
expression, and its many instructions are written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.types import FloatType
from tilewright.llvm.emission.registers import constant, vector_type
from tilewright.llvm.emission.scalar_regions import run_function
from tilewright.passes.math.math_library import math_function

if TYPE_CHECKING:
    from tilewright.llvm.emission.element_context import ElementContext


def call_guarded(
    context: ElementContext, name: str, operand: str, width: int, element: FloatType, limit: float
) -> str:
    """Call the function of ``width`` lanes: the short form, or the full one beyond ``limit``.

    One lane beyond it is enough for the full one.
    """
    type_ = vector_type(element, width)
    symbol = f"tilewright_{name}_{element}_{width}"
    if all(function.name != symbol for function in context.writer.module.functions):
        _write(context, symbol, name, width, element, limit)
    return context.writer.emit(f"call {type_} @{symbol}({type_} {operand})")


def _write(
    context: ElementContext, symbol: str, name: str, width: int, element: FloatType, limit: float
) -> None:

    type_, outer = vector_type(element, width), context.writer
    w = outer.module.function(symbol, [(type_, "x")], type_, linkage="internal")
    context.writer = w
    try:
        magnitude = w.intrinsic("llvm.fabs", type_, [(type_, "%x")])
        mask = f"<{width} x i1>" if width else "i1"
        great = w.emit(f"fcmp ogt {type_} {magnitude}, {constant(element, limit, width)}")
        some = (
            w.intrinsic("llvm.vector.reduce.or", "i1", [(mask, great)], [mask]) if width else great
        )
        full, short = w.new_block("full"), w.new_block("short")
        w.branch_if(some, full, short, likely=False)
        w.place(short)
        short_range = math_function(name, element, full_range=False)
        w.ret(f"{type_} {run_function(context, short_range, ['%x'], width)}")
        w.place(full)
        if not width:
            w.ret(f"{type_} {run_function(context, math_function(name, element), ['%x'], 0)}")
            return
        # Lane by lane: it is seldom taken, and scalar code takes a fraction of the time to compile.
        scalar = vector_type(element, 0)
        with w.loop("0", str(width), 1, [(type_, "poison")], nonempty=True) as loop:
            lane = w.emit(f"extractelement {type_} %x, i64 {loop.index}")
            found = run_function(context, math_function(name, element), [lane], 0)
            loop.next_values = [
                w.emit(
                    f"insertelement {type_} {loop.values[0]}, {scalar} {found}, i64 {loop.index}"
                )
            ]
        w.ret(f"{type_} {loop.results[0]}")
    finally:
        context.writer = outer
