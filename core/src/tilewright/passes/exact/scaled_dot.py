"""Block-scaled dots: operands decoded to f32's ring, times their scales, and a dot by digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.core import Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import BF16, U8, U32, TileType, element_type, shape_of
from tilewright.passes.exact.algebra import multiply, multiply_residues
from tilewright.passes.exact.conversion import between_rings
from tilewright.passes.exact.digit_dot import DotPayloads, digit_dot, is_zero
from tilewright.passes.exact.digits import DigitOperand, DigitPlan, plan_digits
from tilewright.passes.exact.ring import Ring, ring, ring_of
from tilewright.passes.exact.rules import whole

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext

#: The bias of e8m0 codes, and the code of NaN.
_BIAS, _NAN = 127, 0xFF


def exponent_scale(ring: Ring, code: Number) -> Number:
    """The payload of an e8m0 scale, ``2**(code - 127)``; of the code 255 it is NaN."""
    wide = code.cast(ring.wide)
    factor = wide.like(pow(2, -_BIAS, ring.modulus))
    for bit in range(8):
        is_set = ((wide >> bit) & 1).differs(0)
        step = select(is_set, wide.like(pow(2, 1 << bit, ring.modulus)), 1)
        factor = multiply_residues(ring, factor, step)
    return select(
        code.equals(_NAN), code.cast(ring.payload).like(ring.nan), factor.cast(ring.payload)
    )


def nibble(ring: Ring, byte: Number, shift: int) -> Number:
    """The payload of one of the two e2m1 numbers in a byte: 0, 0.5, 1, 1.5, 2, 3, 4, 6."""
    code = (byte >> shift).cast(U32) & 0xF
    magnitude = code & 7
    # in halves: 0 to 4 as they are, then 6, 8, 12
    above = select(magnitude.equals(7), magnitude.like(12), magnitude * 2 - 4)
    halves = select(magnitude > 4, above, magnitude).cast(ring.wide)
    residue = multiply_residues(ring, halves, pow(2, -1, ring.modulus)).cast(ring.payload)
    negative = (code >= 8) & residue.differs(0)
    return select(negative, residue.like(ring.modulus) - residue, residue)


def _unpacked(rewriter: ExactContext, value: Value, target: Ring, axis: int) -> Value:
    """e2m1 pairs along an axis as payloads, the lower four bits first."""
    builder, type_ = rewriter.builder, value.type
    assert isinstance(type_, TileType)
    low, high = (
        rewriter.formula(
            ("e2m1", shift),
            lambda byte, shift=shift: nibble(target, byte, shift),
            [value],
            target.payload,
        )
        for shift in (0, 4)
    )
    pairs = builder.join(low, high)
    order = (*range(axis + 1), type_.rank, *range(axis + 1, type_.rank))
    shape = tuple(n * 2 if own == axis else n for own, n in enumerate(type_.shape))
    found: Value = builder.reshape(
        builder.permute(pairs, order=order), result=TileType(shape, target.payload)
    )
    return found


def _spread_scale(rewriter: ExactContext, scale: Value, like: TileType, along_rows: bool) -> Value:
    """Scales [..., outer, groups] for each element of an operand."""
    builder, type_ = rewriter.builder, scale.type
    assert isinstance(type_, TileType)
    k_axis = like.rank - 1 if along_rows else like.rank - 2
    group, rank = like.shape[k_axis] // type_.shape[-1], like.rank
    wide = builder.broadcast(
        builder.expand_dims(scale, axis=rank),
        result=TileType((*type_.shape, group), type_.element),
    )
    flat = builder.reshape(
        wide, result=TileType((*type_.shape[:-1], like.shape[k_axis]), type_.element)
    )
    if along_rows:
        return flat  # type: ignore[no-any-return]
    found: Value = builder.permute(flat, order=(*range(rank - 2), rank - 1, rank - 2))
    return found


def _operand(
    rewriter: ExactContext, operation: DotScaled, value: Value, scale: Value | None, is_a: bool
) -> Value:
    target = ring(32)
    format_, pack_k = (
        (operation.a_format, operation.a_pack_k)
        if is_a
        else (operation.b_format, operation.b_pack_k)
    )
    (payloads,) = rewriter.payloads([value])
    assert isinstance(payloads.type, TileType)
    rank = payloads.type.rank
    if format_ == "e2m1":
        payloads = _unpacked(rewriter, payloads, target, rank - 1 if pack_k == is_a else rank - 2)
    else:
        source = ring_of(value.type)
        payloads = rewriter.formula(
            ("cast", source.bits, target.bits),
            lambda x: between_rings(source, target, x),
            [payloads],
            target.payload,
        )
    if scale is not None:
        (codes,) = rewriter.payloads([scale])
        if element_type(scale.type) is U8:
            factors = rewriter.formula(
                ("e8m0",), lambda code: exponent_scale(target, code), [codes], target.payload
            )
        else:
            own = ring_of(scale.type)
            factors = rewriter.formula(
                ("cast", own.bits, target.bits),
                lambda x: between_rings(own, target, x),
                [codes],
                target.payload,
            )
        assert isinstance(payloads.type, TileType)
        factors = _spread_scale(rewriter, factors, payloads.type, is_a)
        payloads = rewriter.formula(
            ("mul", target.bits),
            lambda x, y: multiply(target, x, y),
            [payloads, factors],
            target.payload,
        )
    return payloads


def plan_of_scaled_dot(way: str, operation: DotScaled) -> DigitPlan:
    """The digits of a block-scaled dot of the module on floats."""
    operand = DigitOperand(ring(32), BF16)
    return plan_digits(way, operand, operand, ring_of(operation.c.type), terms_of(operation))


def terms_of(operation: DotScaled) -> int:
    """The number of terms along K of a block-scaled dot."""
    pack = 2 if operation.a_format == "e2m1" and operation.a_pack_k else 1
    return shape_of(operation.a.type)[-1] * pack


def payloads_of_scaled_dot(context: ExactContext, operation: DotScaled) -> DotPayloads:
    """The operands of a block-scaled dot of the module on floats, times their scales."""
    a = _operand(context, operation, operation.a, operation.a_scale, True)
    b = _operand(context, operation, operation.b, operation.b_scale, False)
    return DotPayloads(a, b, {})


@whole(
    "dot_scaled",
    "the residue of the dot of elements times scales, exactly",
    keeps=("a scaled operand is its elements times its scales",),
    digitwise=True,
)
def dot_scaled(context: ExactContext, operation: DotScaled) -> list[Value]:
    plan = plan_of_scaled_dot(context.options.dot, operation)
    (c,) = context.payloads([operation.c])
    operands = payloads_of_scaled_dot(context, operation)
    return [digit_dot(context, plan, operands, c, from_zero=is_zero(operation.c))]
