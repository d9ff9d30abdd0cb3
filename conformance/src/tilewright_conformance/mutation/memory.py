"""Bugs of loads, stores, atomics and their masks."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.ops.arithmetic import Binary, Cmp
from tilewright.ir.ops.memory import Barrier
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import I1, I32, IntType, PointerType, TileType, shape_of, with_element
from tilewright.passes.effects import is_speculatable
from tilewright.passes.rewriter import defined_by
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import (
    CHANGED,
    Rewrite,
    as_bits,
    element,
    is_float,
    is_unsigned,
    like,
    number_of_each,
    other_sign,
    picked,
)


def _masked_store(operation: Operation, b: Builder, kept: Value) -> Any:
    """The store with its mask cut down to ``kept``."""
    mask = operation.operand("mask")
    pointer, value = operation.operands[:2]
    operation.replace_operands(
        [pointer, value, kept if mask is None else b.and_(mask, kept)], (1, 1, 1)
    )
    return CHANGED


def _last_element_lost(operation: Operation, b: Builder) -> Any:
    pointer = operation.operands[0]
    if not isinstance(pointer.type, TileType) or pointer.type.numel == 1:
        return None
    number = number_of_each(b, pointer.type.shape)
    return _masked_store(
        operation, b, b.cmp(number, like(b, number, pointer.type.numel - 1), predicate="ne")
    )


def _last_program_lost(operation: Operation, b: Builder) -> Any:
    kept: Value = b.constant(value=False, result=I1)
    for axis in range(3):
        following = b.add(b.program_id(axis=axis), b.constant(value=1, result=I32))
        kept = b.or_(kept, b.cmp(following, b.num_programs(axis=axis), predicate="lt"))
    alone: Value = b.constant(value=True, result=I1)
    for axis in range(3):
        alone = b.and_(
            alone, b.cmp(b.num_programs(axis=axis), b.constant(value=1, result=I32), predicate="eq")
        )
    kept = b.or_(kept, alone)
    shape = shape_of(operation.operands[0].type)
    return _masked_store(operation, b, b.splat(kept, result=TileType(shape, I1)) if shape else kept)


def _bound_too_low(operation: Operation, b: Builder) -> Any:
    """Replace ``offset < n`` in a mask by ``offset < n - 1``."""
    mask = operation.operand("mask")
    compared = defined_by(mask, Cmp) if mask is not None else None
    if (
        mask is None
        or compared is None
        or compared.predicate != "lt"
        or not isinstance(element(compared.a), IntType)
    ):
        return None
    left, right = compared.a, compared.b
    _replace_mask(operation, b.cmp(left, b.sub(right, like(b, right, 1)), predicate="lt"))
    return CHANGED


def _one_lane_more(operation: Operation, b: Builder) -> Any:
    """The lane behind each one that the mask lets through is let through too."""
    mask = operation.operand("mask")
    if mask is None or len(shape_of(mask.type)) != 1:
        return None
    earlier = picked(b, mask, 0, lambda at: b.max(b.sub(at, like(b, at, 1)), like(b, at, 0)))
    _replace_mask(operation, b.or_(mask, earlier))
    return CHANGED


def _replace_mask(operation: Operation, mask: Value) -> None:
    old = operation.operand("mask")
    for position, operand in enumerate(operation.operands):
        if operand is old and position > 0:
            operation.set_operand(position, mask)


def _zero_where_masked(operation: Operation, b: Builder) -> Any:
    other = operation.operand("other")
    if other is None:
        return None
    operation.set_operand(
        len(operation.operands) - 1,
        like(b, other, 0) if not isinstance(element(other), PointerType) else other,
    )
    return CHANGED


def _garbage_where_masked(operation: Operation, b: Builder) -> Any:
    result = operation.result
    if (
        operation.operand("mask") is None
        or operation.operand("other") is not None
        or isinstance(element(result), PointerType)
    ):
        return None
    return b.load(
        *operation.operands[:2],
        like(b, result, float("nan") if is_float(result) else 1),
        **operation.attributes,
    )


def _first_axis_only(operation: Operation, b: Builder) -> Any:
    """Of a mask made of one condition an axis the first condition alone."""
    mask = operation.operand("mask")
    both = defined_by(mask, Binary, "and") if mask is not None else None
    if both is None or len(shape_of(both.result.type)) < 2:
        return None
    _replace_mask(operation, both.a)
    return CHANGED


def _early(effects: Effect) -> Rewrite:
    """A load moved to before the write that it follows, with what it is computed from.

    The write is an access that reads and writes as ``effects`` say.
    """

    def is_write(operation: Operation) -> bool:
        own = operation.spec.effects & (Effect.READ | Effect.WRITE)
        return Trait.ACCESS in operation.spec.traits and own == effects

    def rewrite(operation: Operation, b: Builder) -> Any:
        if isinstance(element(operation.result), PointerType):  # an old address ends the process
            return None
        write = operation.previous
        while write is not None and not is_write(write) and not isinstance(write, Barrier):
            write = write.previous
        while isinstance(write, Barrier):
            write = write.previous
        if write is None or not is_write(write) or not _hoist(operation, write):
            return None
        return CHANGED

    return rewrite


def _hoist(operation: Operation, anchor: Operation) -> bool:
    """Move an operation and its operands before ``anchor`` in the region; False if impossible."""
    later, current = set(), anchor.next
    while current is not None:
        later.add(current)
        current = current.next
    chain: list[Operation] = []
    pending = [operation]
    while pending:
        found = pending.pop()
        if found in chain:
            continue
        if found is anchor or (found is not operation and not is_speculatable(found)):
            return False
        chain.append(found)
        pending += [
            made
            for value in found.operands
            if (made := value.definition) is not None and (made in later or made is anchor)
        ]
    current = anchor.next
    while current is not None:
        following = current.next
        if current in chain:
            current.move_before(anchor)
        current = following
    return True


def _sign_extended_offset(operation: Operation, b: Builder) -> Any:
    pointer, offset = operation.operands
    if not is_unsigned(offset) or element(offset).bits > 16:  # type: ignore[attr-defined]
        return None
    return b.addptr(pointer, as_bits(b, offset, other_sign(offset)))


# ---- atomics

_MEANING = {"add": "add", "min": "min", "max": "max", "and": "and_", "or": "or_", "xor": "xor"}


def _new_value(operation: Operation, b: Builder) -> Any:
    pointer, value = operation.operands[:2]
    kind = operation.attribute("kind")
    old = b.atomic_rmw(pointer, value, mask=operation.operand("mask"), **operation.attributes)
    return value if kind == "xchg" else getattr(b, _MEANING[kind])(old, value)


def _in_three_steps(operation: Operation, b: Builder) -> Any:
    """A load, an operation and a store."""
    pointer, value, mask = operation.operands[0], operation.operands[1], operation.operand("mask")
    kind = operation.attribute("kind")
    old = b.load(pointer, mask=mask)
    b.store(pointer, value if kind == "xchg" else getattr(b, _MEANING[kind])(old, value), mask=mask)
    return old


def _exchange(operation: Operation, b: Builder) -> Any:
    pointer, _, value = operation.operands
    return b.atomic_rmw(
        pointer,
        value,
        kind="xchg",
        order=operation.attribute("order"),
        scope=operation.attribute("scope"),
    )


def _signed_extreme(operation: Operation, b: Builder) -> Any:
    pointer, value, mask = operation.operands[0], operation.operands[1], operation.operand("mask")
    if operation.attribute("kind") not in ("min", "max") or not is_unsigned(value):
        return None
    signed = other_sign(value)
    moved = b.bitcast(pointer, result=with_element(pointer.type, PointerType(signed)))
    return as_bits(
        b,
        b.atomic_rmw(moved, as_bits(b, value, signed), mask=mask, **operation.attributes),
        element(value),
    )


def _united(operation: Operation, b: Builder) -> Any:
    if operation.attribute("kind") != "xor":
        return None
    operation.attributes["kind"] = "or"
    return CHANGED


def _dropped(operation: Operation, b: Builder) -> Any:
    return ()


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "mask-off-by-one",
        "off-by-one mask",
        "load store",
        _bound_too_low,
        "a mask offset < n leaves out the last element",
    ),
    rewriting(
        "mask-one-too-many",
        "off-by-one mask",
        "store",
        _one_lane_more,
        "a masked store also writes the lane behind each that it should write",
    ),
    rewriting(
        "mask-last-axis-ignored",
        "boundary check",
        "load",
        _first_axis_only,
        "of the conditions of a mask of two axes only the first counts in a load",
    ),
    rewriting(
        "store-last-element-lost",
        "lost store",
        "store",
        _last_element_lost,
        "the last element of a tile is not stored",
    ),
    rewriting(
        "store-last-program-lost",
        "lost store",
        "store",
        _last_program_lost,
        "the last program of a grid stores nothing",
    ),
    rewriting(
        "atomic-store-lost", "lost store", "atomic_store", _dropped, "atomic stores are dropped"
    ),
    rewriting(
        "masked-load-zero",
        "masked lanes",
        "load",
        _zero_where_masked,
        "masked-off lanes of a load are zero, whatever other says",
    ),
    rewriting(
        "masked-load-garbage",
        "masked lanes",
        "load",
        _garbage_where_masked,
        "masked-off lanes of a load without other are not zero",
    ),
    rewriting(
        "load-before-store",
        "missing barrier",
        "load",
        _early(Effect.WRITE),
        "a load may run before the store in front of it, barrier or not",
    ),
    rewriting(
        "load-before-atomic",
        "missing barrier",
        "load",
        _early(Effect.READ | Effect.WRITE),
        "a load may run before the atomic update in front of it",
    ),
    rewriting(
        "offset-sign-extended",
        "integer signedness",
        "addptr",
        _sign_extended_offset,
        "u8 and u16 offsets of pointers are sign-extended",
    ),
    rewriting(
        "atomic-returns-new",
        "atomics",
        "atomic_rmw",
        _new_value,
        "atomic updates give back the new value",
    ),
    rewriting(
        "atomic-not-atomic",
        "atomics",
        "atomic_rmw",
        _in_three_steps,
        "atomic updates are a load, an operation and a store",
    ),
    rewriting(
        "cas-ignores-compare",
        "atomics",
        "atomic_cas",
        _exchange,
        "compare-and-swap swaps whatever it finds",
    ),
    rewriting(
        "atomic-extreme-signed",
        "integer signedness",
        "atomic_rmw",
        _signed_extreme,
        "atomic min and max of unsigned integers as of signed ones",
    ),
    rewriting("atomic-xor-as-or", "atomics", "atomic_rmw", _united, "atomic xor computed as or"),
)
