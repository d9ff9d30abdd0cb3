"""Matmul operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.ops.rules import require, require_tile
from tilewright.ir.order import ANY, Order
from tilewright.ir.table import Shape
from tilewright.ir.types import BF16, F16, F32, F64, I8, I32, U8, FloatType, TileType, Type

#: The format of a block-scaled operand.
ScaledFormat = Literal["e2m1", "e4m3", "e5m2", "bf16", "fp16"]
#: The elements in the IR of each format.
SCALED_FORMATS: dict[str, Type] = {
    "e2m1": U8,
    "e4m3": FloatType("f8e4m3fn"),
    "e5m2": FloatType("f8e5m2"),
    "bf16": BF16,
    "fp16": F16,
}


def accumulator_types(element: Type) -> tuple[Type, ...]:
    """The accumulator elements that a dot of ``element`` operands may have."""
    if element in (I8, U8):
        return (I32,)
    if element is F64:
        return (F64,)
    if isinstance(element, FloatType) and (element.is_fp8 or element is F16):
        return (F32, F16)
    if element in (F32, BF16):
        return (F32,)
    return ()


def _dot(shape: Shape) -> Sequence[Type]:
    a, b, c = (require_tile(shape.type(name), name) for name in ("a", "b", "c"))
    mixed_fp8 = (
        isinstance(a.element, FloatType)
        and isinstance(b.element, FloatType)
        and a.element.is_fp8
        and b.element.is_fp8
    )
    mixed_int8 = {a.element, b.element} <= {I8, U8}
    require(
        a.element is b.element or mixed_fp8 or mixed_int8,
        f"a and b must have one element type, not {a} and {b}",
    )
    require(bool(accumulator_types(a.element)), f"there is no dot of {a.element}")
    require(
        c.element in accumulator_types(a.element),
        f"a dot of {a.element} does not accumulate in {c.element}",
    )
    require(
        a.rank == b.rank == c.rank >= 2,
        f"a, b and c must have one rank of at least 2, not {a}, {b} and {c}",
    )
    fits = (
        a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
        and a.shape[-1] == b.shape[-2]
        and c.shape[-2:] == (a.shape[-2], b.shape[-1])
    )
    require(fits, f"shapes must be [..., M, K], [..., K, N] and [..., M, N], not {a}, {b} and {c}")
    if shape.attributes["order"] != ANY:
        require(
            c.element is not F16,
            f"order {shape.attributes['order']} takes an accumulator of 32 bits or more, not {c}",
        )
        require(
            shape.attributes["precision"] == "ieee",
            f"order {shape.attributes['order']} takes precision ieee, which does not split "
            f"operands, not {shape.attributes['precision']}",
        )
    return (c,)


def _scaled_operand(shape: Shape, name: str, k_axis: int) -> tuple[tuple[int, ...], int, int]:
    """(batches, extent along M or N, extent along K) of operand ``a`` or ``b``, unpacked;
    ``k_axis`` is 1 or 0 of its last two."""
    tile = require_tile(shape.type(name), name)
    kind = shape.attributes[f"{name}_format"]
    require(tile.rank >= 2, f"{name} must have rank 2 or more, not {tile}")
    require(
        tile.element is SCALED_FORMATS[kind],
        f"{name} in format {kind} must hold {SCALED_FORMATS[kind]}, not {tile.element}",
    )
    batches, extents = tile.shape[:-2], list(tile.shape[-2:])
    if kind == "e2m1":
        extents[k_axis if shape.attributes[f"{name}_pack_k"] else 1 - k_axis] *= 2
    outer, k = extents[1 - k_axis], extents[k_axis]
    scale = shape.optional(f"{name}_scale")
    if scale is not None:
        scale = require_tile(scale, f"{name}_scale")
        group = 16 if scale.element is FloatType("f8e4m3fn") else 32
        require(
            scale.element in (U8, FloatType("f8e4m3fn")),
            f"{name}_scale must hold u8 (e8m0) or f8e4m3fn, not {scale.element}",
        )
        require(
            k % group == 0,
            f"{name}'s extent along K must be a multiple of the {group} elements that share a "
            f"scale, not {k}",
        )
        wanted = (*batches, outer, k // group)
        require(scale.shape == wanted, f"{name}_scale must have shape {wanted}, not {scale.shape}")
    return batches, outer, k


def _dot_scaled(shape: Shape) -> Sequence[Type]:
    (batches, m, k), (other_batches, n, other_k) = (
        _scaled_operand(shape, "a", 1),
        _scaled_operand(shape, "b", 0),
    )
    require(
        batches == other_batches,
        f"a and b must have the same batches, not {batches} and {other_batches}",
    )
    require(k == other_k, f"a and b must agree along K, not {k} and {other_k}")
    c, wanted = shape.type("c"), TileType((*batches, m, n), F32)
    require(c is wanted, f"c must be {wanted}, not {c}")
    return (c,)


OPS = Declarations()

#: How f32 operands may be rounded.
Precision = Literal["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"]


@OPS.operation(
    "dot",
    "a @ b + c, where a, b and c are matrices, or batches of matrices along the leading axes. The "
    "products of elements are added in the type of c. Unless the attribute `order` states "
    "otherwise, the products are not rounded, and the order of the additions is arbitrary",
    _dot,
)
class Dot(Operation):
    __slots__ = ()

    a = SingleOperand("[..., M, K]")
    b = SingleOperand("[..., K, N]")
    c = SingleOperand("[..., M, N]")
    precision = TypedAttribute[Precision]("how f32 operands may be rounded", "ieee")
    max_imprecise = TypedAttribute[int](
        "for fp8 operands: the number of terms that may be accumulated at reduced precision "
        "before they are added at full precision; 0 leaves the number to the target",
        0,
    )
    order = TypedAttribute[Order](
        "any: the backend's choice; tree: round the products to the type of c, reduce them over K "
        "by the tree that the operation reduce describes, and add c; sequential: start with c, "
        "and execute one fused multiply-add for each k in order",
        ANY,
    )


@OPS.operation(
    "dot_scaled",
    "a @ b + c, where groups of elements of a and b share a scale. If the scales have the type "
    "u8, a group has 32 elements along K. If the scales have the type f8e4m3fn, a group has 16 "
    "elements along K. A scale of type u8 is a power of two in the format e8m0, in which 0xFF is "
    "NaN",
    _dot_scaled,
)
class DotScaled(Operation):
    __slots__ = ()

    a = SingleOperand("[..., M, K]")
    a_scale = OptionalOperand("[..., M, K / group]")
    b = SingleOperand("[..., K, N]")
    b_scale = OptionalOperand("[..., N, K / group]")
    c = SingleOperand("[..., M, N], f32")
    a_format = TypedAttribute[ScaledFormat]()
    b_format = TypedAttribute[ScaledFormat]()
    a_pack_k = TypedAttribute[bool](
        "whether the two e2m1 elements of a byte are neighbours along K; if false, along M", True
    )
    b_pack_k = TypedAttribute[bool](
        "whether the two e2m1 elements of a byte are neighbours along K; if false, along N", True
    )
    fast_math = TypedAttribute[bool]("whether the compiler may assume that no scale is NaN", False)


#: Matmuls.
DOTS: Final = (Dot, DotScaled)
