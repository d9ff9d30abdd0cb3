"""Values that are not tiles as LLVM operands: one for a number or a pointer, several for a descriptor.

Loops carry the parts, branches join them, calls pass them. What a descriptor pads with is no part: it is known when the kernel is compiled, and has to be
the same on every way a descriptor can come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tilewright.errors import LoweringError
from tilewright.ir.core import Value
from tilewright.ir.types import DescriptorType, Type
from tilewright.llvm.registers import register_type
from tilewright_cpu.lowering.context import Context
from tilewright_cpu.lowering.descriptors import Descriptor


def part_types(type_: Type) -> list[str]:
    """The LLVM types of the parts of a value that is no tile."""
    if isinstance(type_, DescriptorType):
        return ["ptr", *["i64"] * (2 * type_.rank)]
    return [register_type(type_)]


def parts(context: Context, value: Value) -> list[str]:
    """The LLVM operands of a value."""
    if isinstance(value.type, DescriptorType):
        descriptor = context.descriptors[value]
        return [descriptor.base, *descriptor.shape, *descriptor.strides]
    return [context.scalar(value)]


def typed_parts(context: Context, value: Value) -> list[tuple[str, str]]:
    """(LLVM type, operand) of each part."""
    return list(zip(part_types(value.type), parts(context, value), strict=True))


def padding_of(context: Context, value: Value) -> str:
    """What a descriptor pads with; empty for other values."""
    return context.descriptors[value].padding if isinstance(value.type, DescriptorType) else ""


def bind_parts(context: Context, value: Value, names: Iterator[str], padding: str) -> None:
    """Take a value's parts from ``names``."""
    if not isinstance(value.type, DescriptorType):
        context.bind_scalar(value, next(names))
        return

    rank = value.type.rank
    base, *numbers = islice(names, 1 + 2 * rank)
    context.descriptors[value] = Descriptor(base, tuple(numbers[:rank]), tuple(numbers[rank:]), padding)


def rename(context: Context, value: Value, source: Value) -> None:
    """Let ``value`` stand for what ``source`` is."""
    bind_parts(context, value, iter(parts(context, source)), padding_of(context, source))


def require_padding(context: Context, value: Value, padding: str) -> None:
    """Refuse a descriptor that meets others with another padding.

    Raises:
        LoweringError: the paddings differ.
    """
    found = padding_of(context, value)
    if found != padding:
        operation = context.operation
        raise LoweringError(
            f"the CPU backend needs one padding for all the descriptors that can arrive here, and found {padding!r} and {found!r}, "
            f"at {operation.location if operation is not None else None}: give the descriptors the same padding_option"
        )
