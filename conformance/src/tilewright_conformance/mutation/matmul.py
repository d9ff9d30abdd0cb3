"""Bugs of matmuls."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import BF16, F16, F32, I8, I32, U8, U32, TileType, shape_of, with_element
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    Rewrite,
    as_bits,
    as_type,
    element,
    like,
    positions,
)


def _half_accumulator(operation: Operation, b: Builder) -> Any:
    left, right, c = operation.operands
    if element(c) is not F32 or element(left) is not F16:
        return None
    return as_type(b, b.dot(left, right, as_type(b, c, F16), **operation.attributes), F32)


def _rounded_result(operation: Operation, b: Builder) -> Any:
    left, right, c = operation.operands
    if element(c) is not F32 or element(left) is not BF16:
        return None
    return as_type(b, as_type(b, b.dot(left, right, c, **operation.attributes), BF16), F32)


def _tf32(operation: Operation, b: Builder) -> Any:
    left, right, c = operation.operands
    if element(left) is not F32 or operation.attribute("precision") != "ieee":
        return None
    cut = []
    for operand in (left, right):
        bits = as_bits(b, operand, U32)
        cut.append(as_bits(b, b.and_(bits, like(b, bits, 0xFFFFE000)), F32))
    return b.dot(*cut, c, **operation.attributes)


def _accumulator_lost(operation: Operation, b: Builder) -> Any:
    c = operation.operands[-1]
    operation.set_operand(len(operation.operands) - 1, like(b, c, 0))
    return CHANGED


def _transposed(position: int) -> Rewrite:
    """Transpose a square operand."""

    def rewrite(operation: Operation, b: Builder) -> Any:
        operand = operation.operands[position]
        *batch, rows, columns = shape_of(operand.type)
        if rows != columns or rows == 1:
            return None
        rank = len(batch) + 2
        operation.set_operand(
            position, b.permute(operand, order=(*range(rank - 2), rank - 1, rank - 2))
        )
        return CHANGED

    return rewrite


def _last_term_lost(operation: Operation, b: Builder) -> Any:
    left = operation.operands[0]
    shape = shape_of(left.type)
    at = positions(b, shape, len(shape) - 1)
    kept = b.cmp(at, like(b, at, shape[-1] - 1), predicate="ne")
    zero: Value = like(b, left, 0)
    operation.set_operand(0, b.select(kept, left, zero))
    return CHANGED


def _first_batch(operation: Operation, b: Builder) -> Any:
    """Every batch multiplied by the first one's right operand."""
    right = operation.operands[1]
    shape = shape_of(right.type)
    if len(shape) < 3 or shape[0] == 1:
        return None
    index = b.constant_like(TileType(shape, I32), 0)
    operation.set_operand(1, b.gather(right, index, axis=0))
    return CHANGED


def _signed_bytes(operation: Operation, b: Builder) -> Any:
    if U8 not in (element(operation.operands[0]), element(operation.operands[1])):
        return None
    for position in (0, 1):
        operand = operation.operands[position]
        if element(operand) is U8:
            operation.set_operand(
                position, b.bitcast(operand, result=with_element(operand.type, I8))
            )
    return CHANGED


def _scale_lost(operation: Operation, b: Builder) -> Any:
    if operation.operand("b_scale") is None:
        return None
    left, scale, right, c = (operation.group(name) for name in ("a", "a_scale", "b", "c"))
    operation.replace_operands([*left, *scale, *right, *c], (1, len(scale), 1, 0, 1))
    return CHANGED


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "dot-half-accumulator",
        "wrong accumulate type",
        "dot",
        _half_accumulator,
        "f16 matmuls that should accumulate in f32 accumulate in f16",
    ),
    rewriting(
        "dot-bfloat16-result",
        "wrong accumulate type",
        "dot",
        _rounded_result,
        "results of bf16 matmuls are rounded to bf16",
    ),
    rewriting(
        "dot-tf32",
        "wrong precision",
        "dot",
        _tf32,
        "f32 matmuls asked for in IEEE precision are computed through TF32",
    ),
    rewriting(
        "dot-accumulator-lost",
        "wrong accumulate value",
        "dot",
        _accumulator_lost,
        "dot ignores its third operand",
    ),
    rewriting(
        "dot-left-transposed",
        "bad layout",
        "dot",
        _transposed(0),
        "the left operand of a dot is transposed where it is square",
    ),
    rewriting(
        "dot-right-transposed",
        "bad layout",
        "dot",
        _transposed(1),
        "the right operand of a dot is transposed where it is square",
    ),
    rewriting(
        "dot-last-term-lost",
        "off by one",
        "dot",
        _last_term_lost,
        "the last of the K terms is missing",
    ),
    rewriting(
        "dot-first-batch",
        "bad layout",
        "dot",
        _first_batch,
        "every batch is multiplied by the first batch of the right operand",
    ),
    rewriting(
        "dot-bytes-signed",
        "integer signedness",
        "dot",
        _signed_bytes,
        "unsigned bytes of a dot are read as signed",
    ),
    rewriting(
        "dot-scale-lost",
        "wrong accumulate value",
        "dot_scaled",
        _scale_lost,
        "the right operand's scales of a block-scaled dot are ignored",
    ),
)
