"""Sums that one program keeps in registers, in place of additions to memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.derivatives.tiling.kernel_memory import Addition
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import AtomicRmw, DescriptorReduce
from tilewright.ir.types import FloatType, bit_width, element_type
from tilewright.passes.rewriter import constant_of


def addend(addition: Addition) -> Value:
    """Return the value to sum up: what is added, before it was cast to a narrower float."""
    value = addition.value
    cast = value.definition
    if isinstance(cast, Cast):
        wide = element_type(cast.x.type)
        if isinstance(wide, FloatType) and bit_width(wide) > bit_width(element_type(value.type)):
            return cast.x
    return value


def replaced_operations(additions: Sequence[Addition]) -> set[Operation]:
    """Return the additions, and the casts of what they add."""
    found: set[Operation] = set(additions)
    for addition in additions:
        cast = addition.value.definition
        if cast is not None and addend(addition) is not addition.value:
            found |= {cast} if len(addition.value.uses) == 1 else set()
    return found


def address_of(addition: Addition) -> list[Value]:
    """Return the operands that say where to add: the address, offsets, the mask."""
    return [value for value in addition.operands if value is not addition.value]


def add_up(b: Builder, totals: Sequence[Value], values: Sequence[Value]) -> list[Value]:
    """Append the sums of totals and values; a matmul of its own accumulates into the total."""
    found: list[Value] = []
    for total, value in zip(totals, values, strict=True):
        dot = value.definition
        is_own = sum(other is value for other in values) == 1 and not value.uses
        fits = is_own and value.type is total.type
        if isinstance(dot, Dot) and fits and dot.parent is b.region and constant_of(dot.c) == 0.0:
            dot.set_operand(2, total)
            found.append(value)
            continue
        if value.type is not total.type:
            value = b.cast(value, result=total.type)
        found.append(b.add(total, value))
    return found


def write_total(
    b: Builder, addition: Addition, total: Value, mapping: dict[Value, Value], mode: str
) -> None:
    """Append the write of a total.

    Args:
        addition: where it goes.
        mapping: values of the kernel -> those at the builder's place.
        mode: ``atomic`` adds atomically; ``add`` adds, where no other program writes to the
            elements; ``store`` stores, where nothing was there before either.
    """
    b.location = addition.location
    if total.type is not addition.value.type:
        total = b.cast(total, result=addition.value.type)
    if isinstance(addition, AtomicRmw):
        pointer = mapping[addition.pointer]
        mask = None if addition.mask is None else mapping[addition.mask]
        if mode == "add":
            total = b.add(b.load(pointer, mask=mask), total)
        if mode != "atomic":
            b.store(pointer, total, mask)
        else:
            b.atomic_rmw(
                pointer, total, mask, kind="add", order=addition.order, scope=addition.scope
            )
        return
    assert isinstance(addition, DescriptorReduce)
    descriptor = mapping[addition.descriptor]
    offsets = [mapping[offset] for offset in addition.offsets]
    if mode == "add":
        total = b.add(b.descriptor_load(descriptor, offsets=offsets), total)
    if mode != "atomic":
        b.descriptor_store(descriptor, offsets=offsets, value=total)
    else:
        b.descriptor_reduce(descriptor, offsets=offsets, value=total, kind="add")


__all__ = ["add_up", "addend", "address_of", "replaced_operations", "write_total"]
