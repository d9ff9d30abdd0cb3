"""Descriptors of tensors, which TMA copies take: those that launchers make, and those that a
program makes."""

from __future__ import annotations

from typing import Literal

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute, VariadicOperand
from tilewright.ir.ops.memory import descriptor_of
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I32, I64, DescriptorType, IntType, PointerType, Type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import slot_of


def _tensor(shape: Shape) -> list[Type]:
    result, base = shape.result, shape.type("base")
    if not isinstance(result, DescriptorType):
        raise RuleError(f"the result must be a descriptor, not {result}")
    if not isinstance(base, PointerType) or base.pointee is not result.element:
        raise RuleError(f"base must be a pointer to {result.element}, not {base}")
    for name in ("shape", "strides"):
        group = shape.groups[name]
        if len(group) != result.rank or any(type_ is not I64 for type_ in group):
            raise RuleError(
                f"{name} must be {result.rank} numbers of {I64}, not "
                f"{', '.join(map(str, group)) or 'none'}"
            )
    return [result]


def _memory(shape: Shape) -> list[Type]:
    return [I32]


def _free_descriptors(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("memory"), IntType):
        raise RuleError(f"memory must be what simt.descriptors yields, not {shape.type('memory')}")
    return []


def _make_descriptor(shape: Shape) -> list[Type]:
    _free_descriptors(shape)
    slot_of(shape)
    return _tensor(shape)


def _descriptor_only(shape: Shape) -> list[Type]:
    descriptor_of(shape)
    return []


OPS = Declarations()

_BASE = SingleOperand("the address of the tensor")
_EXTENTS = VariadicOperand("the extents of the tensor")
_STRIDES = VariadicOperand("the strides, in elements")
_MEMORY = SingleOperand("the result of `simt.descriptors`")


@OPS.operation(
    "simt.tensor",
    "a descriptor of a tensor for TMA copies. Before the kernel runs, the launcher encodes the "
    "tensor map of this descriptor from the kernel's arguments. If a TMA load reads elements "
    "outside the tensor, these elements are zero",
    _tensor,
    explicit_results=True,
)
class Tensor(Operation):
    __slots__ = ()

    base = _BASE
    shape = _EXTENTS
    strides = _STRIDES


@OPS.operation(
    "simt.descriptors",
    "allocate global memory for the device-side tensor maps of a program instance or of a "
    "partition. A device-side tensor map is a tensor map that the kernel itself encodes. The "
    "operation `simt.free_descriptors` frees the memory",
    _memory,
    effects=Effect.ORDER,
)
class Descriptors(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.make_descriptor",
    "encode a tensor map of the tensor at the address `base` in shared memory, and copy the tensor "
    "map to the global memory `memory`. The result is a descriptor that uses this tensor "
    "map. If the operation is executed again, it overwrites the previous tensor map. No copy in "
    "flight may then still use the previous tensor map",
    _make_descriptor,
    effects=Effect.ORDER,
    explicit_results=True,
)
class MakeTensorMap(Operation):
    __slots__ = ()

    memory = _MEMORY
    slot = fields.SLOT
    base = _BASE
    shape = _EXTENTS
    strides = _STRIDES
    padding = TypedAttribute[Literal["zero", "nan"]](
        "the value that a load returns for elements outside the tensor", "zero"
    )


@OPS.operation(
    "simt.show_descriptor",
    "make the device-side tensor map of a descriptor visible to TMA copies that the program "
    "instance starts later (PTX: fence.proxy.tensormap)",
    _descriptor_only,
    effects=Effect.ORDER,
)
class ShowDescriptor(Operation):
    __slots__ = ()

    descriptor = SingleOperand()


@OPS.operation(
    "simt.free_descriptors",
    "free the global memory that `simt.descriptors` allocated. No copy in flight may still use a "
    "tensor map in this memory",
    _free_descriptors,
    effects=Effect.ORDER,
)
class FreeDescriptors(Operation):
    __slots__ = ()

    memory = _MEMORY
