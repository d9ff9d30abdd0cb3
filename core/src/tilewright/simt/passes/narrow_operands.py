"""Narrowing of f32 matmuls whose operands are exact in 16 bits.

A kernel that widens loaded tiles before a matmul asks for exact products and f32 accumulation. The
16-bit matrix instructions have both, take half the steps or fewer, and read the operands as they
were loaded. A matmul with precision ``ieee`` stays as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Moved, Permute, Reshape
from tilewright.ir.types import BF16, F16, F32, FloatType, IntType, TileType, Type, element_type
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.math.float_formats import contains
from tilewright.simt.passes.warp_count import warps_asked
from tilewright.simt.target.fma_plan import FMA
from tilewright.simt.target.matmul_plan import matmul_of
from tilewright.simt.target.plan_selection import plans
from tilewright.simt.target.simt_target import SimtTarget

#: Narrow operand types, the preferred one first if both represent an operand's numbers.
_NARROW: Final = (BF16, F16)
#: Operations that only move or repeat elements.
_MOVES: Final = (Permute, Reshape, ExpandDims, Broadcast)


def narrow_operands(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Replace f32 matmuls by 16-bit ones on the operands that theirs were widened from.

    Applies if the target has matrix instructions for these.
    """
    function = module.kernel
    warps = warps_asked(function, options)
    found = [
        operation
        for operation in function.walk()
        if isinstance(operation, Dot) and _narrow(operation, target, warps)
    ]
    if found:
        for pass_ in (canonicalize, cse, dce):
            pass_(module)


def _narrow(matmul: Dot, target: SimtTarget, warps: int) -> bool:
    """Narrow the operands of one matmul; return whether that was possible."""
    if element_type(matmul.a.type) is not F32 or matmul.precision == "ieee":
        return False
    sources = _widened_from(matmul.a), _widened_from(matmul.b)
    if None in sources:
        return False
    for type_ in dict.fromkeys((*(type_ for type_ in _NARROW if type_ in sources), *_NARROW)):
        wanted = dataclasses.replace(
            matmul_of(matmul), a=type_, b=type_, warps=warps, precision="ieee"
        )
        if (
            all(_holds(type_, source) for source in sources)
            and plans(wanted, target)[0].name != FMA
        ):
            builder = Builder.at(matmul)
            operands = [_narrowed(builder, operand, type_) for operand in (matmul.a, matmul.b)]
            made = builder.dot(*operands, matmul.c)
            matmul.results[0].replace_all_uses(made)
            matmul.erase()
            return True
    return False


def _widened_from(value: Value) -> Type | None:
    """Return the element type that an f32 tile was widened from, or None."""
    operation = value.definition
    if isinstance(operation, Cast):
        return element_type(operation.x.type)
    return _widened_from(operation.x) if isinstance(operation, _MOVES) else None


def _holds(wide: FloatType, source: Type | None) -> bool:
    """Return whether ``wide`` represents every number of a type."""
    if isinstance(source, IntType):
        return source.bits - source.signed <= wide.mantissa + 1
    return isinstance(source, FloatType) and contains(wide, source)


def _narrowed(builder: Builder, value: Value, type_: FloatType) -> Value:
    """Return the tile that an f32 tile was widened from, in a type that represents its numbers."""
    operation = value.definition
    assert isinstance(operation, Cast | Moved) and isinstance(value.type, TileType)
    if isinstance(operation, Cast):
        source = operation.x
        return (
            source
            if element_type(source.type) is type_
            else builder.cast(source, result=TileType(value.type.shape, type_))
        )
    source = _narrowed(builder, operation.x, type_)
    result = (TileType(value.type.shape, type_),) if operation.spec.explicit_results else ()
    made: Value = builder.create(
        operation.spec, ((source,),), operation.attributes, result
    ).results[0]
    return made
