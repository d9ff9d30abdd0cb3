"""Loads, stores, atomics, tensor descriptors, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tilewright.ir.core import Operation
from tilewright.ir.declare import (
    Declarations,
    OptionalOperand,
    SingleOperand,
    TypedAttribute,
    VariadicOperand,
)
from tilewright.ir.ops.rules import (
    accessed_type,
    nothing,
    pointee_of,
    require,
    require_int,
    require_mask,
    require_tile,
)
from tilewright.ir.table import Effect, RuleError, Shape, Trait
from tilewright.ir.types import (
    I64,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    bit_width,
    element_type,
)


def _load(shape: Shape) -> Sequence[Type]:
    pointer = shape.type("pointer")
    value, mask, other = accessed_type(pointer), shape.optional("mask"), shape.optional("other")
    require_mask(mask, pointer)
    if other is not None:
        require(mask is not None, "other needs a mask")
        require(other is value, f"other must be {value}, not {other}")
    return (value,)


def _store(shape: Shape) -> Sequence[Type]:
    pointer, value = shape.type("pointer"), shape.type("value")
    expected = accessed_type(pointer)
    require(value is expected, f"value must be {expected}, not {value}")
    require_mask(shape.optional("mask"), pointer)
    return ()


def _atomic_rmw(shape: Shape) -> Sequence[Type]:
    pointer, value, kind = shape.type("pointer"), shape.type("value"), shape.attributes["kind"]
    expected = accessed_type(pointer)
    require(value is expected, f"value must be {expected}, not {value}")
    require_mask(shape.optional("mask"), pointer)
    check_atomic_element(kind, pointee_of(pointer))
    return (value,)


def check_atomic_element(kind: str, element: Type) -> None:
    """The element types each kind of atomic works on."""
    if kind == "add":
        fits = (isinstance(element, FloatType) and not element.is_fp8) or (
            isinstance(element, IntType) and element.bits >= 32
        )
    elif kind in ("min", "max"):
        fits = isinstance(element, IntType | FloatType) and bit_width(element) >= (
            16 if isinstance(element, FloatType) else 32
        )
    elif kind == "xchg":
        fits = isinstance(element, IntType | FloatType | PointerType) and bit_width(element) >= 16
    else:
        fits = isinstance(element, IntType) and element.bits >= 32
    if not fits:
        raise RuleError(f"an atomic {kind} does not work on {element}")


def _atomic_cas(shape: Shape) -> Sequence[Type]:
    pointer, compare, value = shape.type("pointer"), shape.type("compare"), shape.type("value")
    expected = accessed_type(pointer)
    require(
        value is expected and compare is expected,
        f"compare and value must be {expected}, not {compare} and {value}",
    )
    require(
        bit_width(value) in (16, 32, 64),
        f"an atomic cas works on 16, 32 or 64 bits, not {element_type(value)}",
    )
    return (value,)


def _atomic_element(element: Type, what: str) -> None:
    fits = isinstance(element, IntType | FloatType | PointerType) and bit_width(element) in (
        8,
        16,
        32,
        64,
    )
    require(fits, f"{what} works on 8, 16, 32 or 64 bits, not on {element}")


def _atomic_load(shape: Shape) -> Sequence[Type]:
    pointer = shape.type("pointer")
    value, mask = accessed_type(pointer), shape.optional("mask")
    require_mask(mask, pointer)
    _atomic_element(element_type(value), "an atomic load")
    return (value,)


def _atomic_store(shape: Shape) -> Sequence[Type]:
    _atomic_element(pointee_of(shape.type("pointer")), "an atomic store")
    return _store(shape)


def _clock(shape: Shape) -> Sequence[Type]:
    return (I64,)


def _make_descriptor(shape: Shape) -> Sequence[Type]:
    result = shape.result
    if not isinstance(result, DescriptorType):
        raise RuleError(f"result must be a descriptor, not {result}")
    base = shape.type("base")
    require(
        base.is_scalar and pointee_of(base, "base") is result.element,
        f"base must be a pointer to {result.element}, not {base}",
    )
    for name in ("shape", "strides"):
        group = shape.groups[name]
        require(
            len(group) == result.rank, f"{name} must have {result.rank} entries, not {len(group)}"
        )
        require(all(type_ is I64 for type_ in group), f"{name} must be i64")
    return (result,)


def descriptor_of(shape: Shape) -> DescriptorType:
    """The type of ``descriptor``; raises :class:`RuleError` for other things."""
    descriptor = shape.type("descriptor")
    if not isinstance(descriptor, DescriptorType):
        raise RuleError(f"descriptor must be a descriptor, not {descriptor}")
    return descriptor


def _descriptor_number(shape: Shape) -> Sequence[Type]:
    descriptor, axis = descriptor_of(shape), shape.attributes["axis"]
    require(
        0 <= axis < descriptor.rank,
        f"axis must be 0 to {descriptor.rank - 1} for {descriptor}, not {axis}",
    )
    return (I64,)


def _check_offsets(shape: Shape, descriptor: DescriptorType) -> None:
    offsets = shape.groups["offsets"]
    require(
        len(offsets) == descriptor.rank,
        f"offsets must have {descriptor.rank} entries, not {len(offsets)}",
    )
    require(all(isinstance(type_, IntType) for type_ in offsets), "offsets must be integers")


def _descriptor_load(shape: Shape) -> Sequence[Type]:
    descriptor = descriptor_of(shape)
    _check_offsets(shape, descriptor)
    return (descriptor.block_type,)


def _descriptor_store(shape: Shape) -> Sequence[Type]:
    descriptor = descriptor_of(shape)
    _check_offsets(shape, descriptor)
    value = shape.type("value")
    require(value is descriptor.block_type, f"value must be {descriptor.block_type}, not {value}")
    return ()


def _descriptor_reduce(shape: Shape) -> Sequence[Type]:
    check_atomic_element(shape.attributes["kind"], descriptor_of(shape).element)
    return _descriptor_store(shape)


def _rows(shape: Shape) -> tuple[DescriptorType, int]:
    """The descriptor and the number of rows of a gather or scatter of rows."""
    descriptor = descriptor_of(shape)
    require(
        descriptor.rank == 2 and descriptor.block_shape[0] == 1,
        f"the descriptor's block must be one row, not {descriptor}",
    )
    rows = require_tile(shape.type("rows"), "rows")
    require(rows.rank == 1, f"rows must have rank 1, not {rows}")
    require_int(rows, "rows")
    require(isinstance(shape.type("column"), IntType), "column must be an integer")
    return descriptor, rows.shape[0]


def _descriptor_gather(shape: Shape) -> Sequence[Type]:
    descriptor, count = _rows(shape)
    return (TileType((count, descriptor.block_shape[1]), descriptor.element),)


def _descriptor_scatter(shape: Shape) -> Sequence[Type]:
    descriptor, count = _rows(shape)
    expected = TileType((count, descriptor.block_shape[1]), descriptor.element)
    require(shape.type("value") is expected, f"value must be {expected}, not {shape.type('value')}")
    return ()


OPS = Declarations()

_POINTER = SingleOperand()
_VALUE = SingleOperand()
_DESCRIPTOR = SingleOperand()
_MASK = OptionalOperand("masked-off lanes access no memory")
_OFFSETS = VariadicOperand("the block's first coordinate along each axis")
_EVICTION = TypedAttribute[Literal["normal", "first", "last"]]("cache eviction hint", "normal")
_ORDER = TypedAttribute[Literal["relaxed", "acquire", "release", "acq_rel"]](
    "memory ordering", "acq_rel"
)
_LOAD_ORDER = TypedAttribute[Literal["relaxed", "acquire"]]("memory ordering", "acquire")
_STORE_ORDER = TypedAttribute[Literal["relaxed", "release"]]("memory ordering", "release")
_SCOPE = TypedAttribute[Literal["program", "device", "system"]](
    "the threads that the memory ordering includes: those of this program instance, of this "
    "device, or of the whole system",
    "device",
)
_KIND = TypedAttribute[Literal["add", "min", "max", "and", "or", "xor", "xchg"]](
    "the operation on the old value"
)
_REDUCE = TypedAttribute[Literal["add", "min", "max", "and", "or", "xor"]](
    "the operation on the old value"
)
_AXIS = TypedAttribute[int]("axis of the tensor")
_UPDATE = Effect.READ | Effect.WRITE


@OPS.operation(
    "load",
    "the values in memory at the addresses `pointer`. Where `mask` is false, the result is the "
    "value of `other`, or zero if the operation has no operand `other`. In memory, an i1 takes one "
    "byte, and is true unless this byte is 0",
    _load,
    effects=Effect.READ,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class Load(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    other = OptionalOperand("the value of masked-off lanes")
    cache = TypedAttribute[Literal["", "ca", "cg", "cs", "cv"]]("cache operator hint", "")
    eviction = _EVICTION
    volatile = TypedAttribute[bool]("whether the load must not be merged, moved or dropped", False)


@OPS.operation(
    "store",
    "write `value` to memory at the addresses `pointer`, where `mask` is true. If two elements are "
    "written to the same address, either of the two values may remain in memory",
    _store,
    effects=Effect.WRITE,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class Store(Operation):
    __slots__ = ()

    pointer = _POINTER
    value = _VALUE
    mask = _MASK
    cache = TypedAttribute[Literal["", "wb", "cg", "cs", "wt"]]("cache operator hint", "")
    eviction = _EVICTION


@OPS.operation(
    "atomic_rmw",
    "update each value in memory at the addresses `pointer` atomically, and return the old values. "
    "If floats are updated by the `kind` 'min' or 'max', -0.0 is smaller than 0.0. Where `mask` is "
    "false, the result is undefined",
    _atomic_rmw,
    effects=_UPDATE,
    traits=Trait.ACCESS,
)
class AtomicRmw(Operation):
    __slots__ = ()

    pointer = _POINTER
    value = _VALUE
    mask = _MASK
    kind = _KIND
    order = _ORDER
    scope = _SCOPE


@OPS.operation(
    "atomic_cas",
    "atomically compare each value in memory at the addresses `pointer` with `compare`, bit by "
    "bit, and replace the value in memory by `value` if all bits are equal. The results are the "
    "old values in memory",
    _atomic_cas,
    effects=_UPDATE,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class AtomicCas(Operation):
    __slots__ = ()

    pointer = _POINTER
    compare = SingleOperand()
    value = _VALUE
    order = _ORDER
    scope = _SCOPE


@OPS.operation(
    "atomic_load",
    "the values in memory at the addresses `pointer`. The operation reads each value atomically. "
    "The attributes `order` and `scope` state how this read is ordered with memory accesses of "
    "other threads. Where `mask` is false, the result is undefined",
    _atomic_load,
    effects=Effect.READ | Effect.ORDER,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class AtomicLoad(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    order = _LOAD_ORDER
    scope = _SCOPE


@OPS.operation(
    "atomic_store",
    "write `value` to memory at the addresses `pointer`, where `mask` is true. The operation "
    "writes each element atomically. The attributes `order` and `scope` state how this write is "
    "ordered with memory accesses of other threads",
    _atomic_store,
    effects=Effect.WRITE | Effect.ORDER,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class AtomicStore(Operation):
    __slots__ = ()

    pointer = _POINTER
    value = _VALUE
    mask = _MASK
    order = _STORE_ORDER
    scope = _SCOPE


#: Atomic operations on single elements.
ATOMICS: Final = (AtomicRmw, AtomicCas, AtomicLoad, AtomicStore)


@OPS.operation(
    "clock",
    "the time of a monotonic clock of the device in nanoseconds. All threads of a program "
    "instance get the same value",
    _clock,
    effects=Effect.ORDER,
    traits=Trait.BITWISE,
)
class Clock(Operation):
    __slots__ = ()


@OPS.operation(
    "make_descriptor",
    "a descriptor of the tensor at the address `base`. The operands `shape` and `strides` are the "
    "extents and the strides of the tensor, in elements",
    _make_descriptor,
    explicit_results=True,
    traits=Trait.BITWISE,
)
class MakeDescriptor(Operation):
    __slots__ = ()

    base = SingleOperand()
    shape = VariadicOperand()
    strides = VariadicOperand()
    padding = TypedAttribute[Literal["zero", "nan"]](
        "the value that a load returns outside the tensor", "zero"
    )
    aligned = TypedAttribute[bool](
        "whether base and all strides except the last are multiples of 16 bytes, and the last "
        "stride is 1",
        False,
    )


@OPS.operation(
    "descriptor_extent",
    "the extent of the tensor along `axis`, in elements",
    _descriptor_number,
    traits=Trait.BITWISE,
)
class DescriptorExtent(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    axis = _AXIS


@OPS.operation(
    "descriptor_stride",
    "the stride of the tensor along `axis`, in elements",
    _descriptor_number,
    traits=Trait.BITWISE,
)
class DescriptorStride(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    axis = _AXIS


@OPS.operation(
    "descriptor_load",
    "the block of the tensor whose first element has the coordinates `offsets`. Elements of the "
    "block that lie outside the tensor have the padding value of the descriptor",
    _descriptor_load,
    effects=Effect.READ,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class DescriptorLoad(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    offsets = _OFFSETS


@OPS.operation(
    "descriptor_store",
    "write `value` to the block of the tensor whose first element has the coordinates `offsets`. "
    "Elements of the block that lie outside the tensor are not written",
    _descriptor_store,
    effects=Effect.WRITE,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class DescriptorStore(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    offsets = _OFFSETS
    value = _VALUE


@OPS.operation(
    "descriptor_reduce",
    "update the block of the tensor whose first element has the coordinates `offsets` with the "
    "elements of `value`. The update of each element is atomic. Elements of the block that lie "
    "outside the tensor are not written",
    _descriptor_reduce,
    effects=_UPDATE,
    traits=Trait.ACCESS,
)
class DescriptorReduce(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    offsets = _OFFSETS
    value = _VALUE
    kind = _REDUCE


@OPS.operation(
    "descriptor_gather",
    "the elements from the column `column` on of several rows of the tensor. The operand `rows` "
    "contains the indices of these rows. Elements that lie outside the tensor have the padding "
    "value of the descriptor",
    _descriptor_gather,
    effects=Effect.READ,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class DescriptorGather(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    rows = SingleOperand()
    column = SingleOperand()


@OPS.operation(
    "descriptor_scatter",
    "write each row i of `value` to the row `rows[i]` of the descriptor's tensor. The first "
    "element of the row i goes to the column `column`. Elements that lie outside the tensor are "
    "not written",
    _descriptor_scatter,
    effects=Effect.WRITE,
    traits=Trait.ACCESS | Trait.BITWISE,
)
class DescriptorScatter(Operation):
    __slots__ = ()

    descriptor = _DESCRIPTOR
    rows = SingleOperand()
    column = SingleOperand()
    value = _VALUE


#: Accesses of a descriptor's block at offsets, and of its rows.
DescriptorBlocks = DescriptorLoad | DescriptorStore | DescriptorReduce
DescriptorRows = DescriptorGather | DescriptorScatter


@OPS.operation(
    "barrier",
    "wait until all threads of this program instance have reached this operation. After the "
    "barrier, each thread sees what the other threads wrote to memory before the barrier",
    nothing,
    effects=Effect.ORDER,
    traits=Trait.BITWISE,
)
class Barrier(Operation):
    __slots__ = ()
