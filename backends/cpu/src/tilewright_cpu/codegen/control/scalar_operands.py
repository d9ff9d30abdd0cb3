"""Scalars and descriptors as LLVM operands: one for a scalar, several for a descriptor.

Loops carry the parts, branches join them, calls pass them. Whether a descriptor pads with NaN is a
part as well: descriptors of different padding may meet. Where all that meet pad alike, LLVM folds
it to a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tilewright.ir.core import Value
from tilewright.ir.types import DescriptorType, Type
from tilewright.llvm.emission.registers import register_type
from tilewright_cpu.codegen.context import Context
from tilewright_cpu.codegen.ops.descriptors import Descriptor


def part_types(type_: Type) -> list[str]:
    """The LLVM types of the parts of a value that is no tile."""
    if isinstance(type_, DescriptorType):
        return ["ptr", *["i64"] * (2 * type_.rank), "i1"]
    return [register_type(type_)]


def parts(context: Context, value: Value) -> list[str]:
    """The LLVM operands of a value."""
    if isinstance(value.type, DescriptorType):
        descriptor = context.descriptors[value]
        return [descriptor.base, *descriptor.shape, *descriptor.strides, descriptor.pads_nan]
    return [context.scalar(value)]


def typed_parts(context: Context, value: Value) -> list[tuple[str, str]]:
    """(LLVM type, operand) of each part."""
    return list(zip(part_types(value.type), parts(context, value), strict=True))


def bind_parts(context: Context, value: Value, names: Iterator[str]) -> None:
    """Take a value's parts from ``names``."""
    if not isinstance(value.type, DescriptorType):
        context.bind_scalar(value, next(names))
        return

    rank = value.type.rank
    base, *numbers, pads_nan = islice(names, 2 + 2 * rank)
    context.descriptors[value] = Descriptor(
        base, tuple(numbers[:rank]), tuple(numbers[rank:]), pads_nan
    )


def rename(context: Context, value: Value, source: Value) -> None:
    """Let ``value`` stand for what ``source`` is."""
    bind_parts(context, value, iter(parts(context, source)))
