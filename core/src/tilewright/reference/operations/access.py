"""The meaning of loads, stores, atomics and descriptors: which lanes touch which addresses.

Masked-off lanes are never touched, whatever their address. A masked-off lane of a load without
``other`` is zero; so is here one of an atomic, whose old value the IR leaves undefined there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import KernelError
from tilewright.ir.ops.memory import (
    AtomicCas,
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    Barrier,
    Clock,
    DescriptorBlocks,
    DescriptorExtent,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorRows,
    DescriptorScatter,
    DescriptorStore,
    DescriptorStride,
    Load,
    MakeDescriptor,
    Store,
)
from tilewright.ir.types import (
    DescriptorType,
    FloatType,
    PointerType,
    Type,
    byte_size,
    element_type,
    shape_of,
)
from tilewright.reference.memory.memory import OutsideError
from tilewright.reference.numerics import Array, encode, numpy_dtype
from tilewright.reference.operations import atomics
from tilewright.reference.values import Descriptor

if TYPE_CHECKING:
    from tilewright.ir.core import Operation
    from tilewright.reference.frame import Frame
    from tilewright.reference.operations.arithmetic import Meaning

#: Accesses at pointers.
_Pointed = Load | Store | AtomicRmw | AtomicCas | AtomicLoad | AtomicStore


def _pointee(operation: _Pointed) -> Type:
    pointer = element_type(operation.pointer.type)
    assert isinstance(pointer, PointerType)
    return pointer.pointee


def _selected(mask: Array | None) -> bool:
    """Return whether no lane is masked off."""
    return mask is None or bool(mask.all())


def _outside(
    frame: Frame,
    operation: Operation,
    error: OutsideError,
    shape: tuple[int, ...],
    rank: int,
    lanes: NDArray[Any] | None = None,
) -> KernelError:
    """Make the error of an access outside of memory.

    ``lanes`` maps the error's lane to a flat position in ``shape``.
    """
    position = error.lane if lanes is None else int(lanes[error.lane])
    index = tuple(int(i) for i in np.unravel_index(position, shape)) if shape else ()
    row, lane = (index[0], index[1:]) if len(index) > rank else (0, index)
    message = f"{operation.name} {error.reason}: {frame.memory.nearest(error.address)}"
    return frame.failure(operation, message, row, lane)


def read(
    frame: Frame,
    operation: Operation,
    addresses: Array,
    mask: Array | None,
    other: Array | None,
    element: Type,
    rank: int,
    argument: int | None = None,
) -> Array:
    """The values of ``element`` at addresses where the mask holds, ``other`` or zero elsewhere."""
    dtype = numpy_dtype(element)
    if frame.checker is not None:
        mask = frame.checker.access(
            frame, operation, "read", addresses, mask, dtype.itemsize, rank, argument
        )
    try:
        if _selected(mask):
            return frame.memory.load(addresses, dtype)
    except OutsideError as error:
        raise _outside(frame, operation, error, addresses.shape, rank) from None
    assert mask is not None
    shape = np.broadcast_shapes(addresses.shape, mask.shape, () if other is None else other.shape)
    result = np.zeros(shape, dtype) if other is None else np.array(np.broadcast_to(other, shape))
    mask = np.broadcast_to(mask, shape)
    chosen = np.broadcast_to(addresses, shape)[mask]
    if chosen.size:
        try:
            result[mask] = frame.memory.load(chosen, dtype)
        except OutsideError as error:
            raise _outside(frame, operation, error, shape, rank, np.flatnonzero(mask)) from None
    return result


def write(
    frame: Frame,
    operation: Operation,
    addresses: Array,
    values: Array,
    mask: Array | None,
    rank: int,
    argument: int | None = None,
) -> None:
    """Write values to addresses where the mask holds."""
    if frame.checker is not None:
        mask = frame.checker.access(
            frame, operation, "write", addresses, mask, values.dtype.itemsize, rank, argument
        )
    lanes = None
    if _selected(mask):
        shape = np.broadcast_shapes(addresses.shape, values.shape)
        addresses = np.broadcast_to(addresses, shape)
    else:
        assert mask is not None
        shape = np.broadcast_shapes(addresses.shape, values.shape, mask.shape)
        mask = np.broadcast_to(mask, shape)
        lanes = np.flatnonzero(mask)
        addresses, values = (
            np.broadcast_to(addresses, shape)[mask],
            np.broadcast_to(values, shape)[mask],
        )
    try:
        frame.memory.store(addresses, values)
    except OutsideError as error:
        raise _outside(frame, operation, error, shape, rank, lanes) from None


def update(
    frame: Frame,
    operation: Operation,
    addresses: Array,
    operands: Sequence[Array],
    mask: Array | None,
    rank: int,
    step: Callable[..., NDArray[Any]],
    argument: int | None = None,
    dtype: np.dtype[Any] | None = None,
    kind: str = "atomic",
) -> Array:
    """Do atomic updates, each row's lanes after those of the row before.

    ``step(addresses, *operands)``, all of rank 1, returns the old values, whose dtype is by default
    that of the operands.
    """
    if dtype is None:
        dtype = operands[0].dtype
    if frame.checker is not None:
        mask = frame.checker.access(
            frame, operation, kind, addresses, mask, dtype.itemsize, rank, argument
        )
    shape = np.broadcast_shapes(
        addresses.shape, *(x.shape for x in operands), () if mask is None else mask.shape
    )
    if len(shape) == rank and frame.rows > 1:
        shape = (frame.rows, *shape)
    chosen = np.ones(shape, dtype=np.bool_) if mask is None else np.broadcast_to(mask, shape)
    result = np.zeros(shape, dtype)
    lanes = np.flatnonzero(chosen)
    if lanes.size:
        flat = [np.broadcast_to(x, shape)[chosen] for x in (addresses, *operands)]
        try:
            result[chosen] = step(*flat)
        except OutsideError as error:
            raise _outside(frame, operation, error, shape, rank, lanes) from None
    return result


# -- pointers --------------------------------------------------------------------------------------


def load(
    frame: Frame, operation: Load, pointer: Array, mask: Array | None, other: Array | None
) -> Array:
    return read(
        frame,
        operation,
        pointer,
        mask,
        other,
        _pointee(operation),
        len(shape_of(operation.pointer.type)),
    )


def store(frame: Frame, operation: Store, pointer: Array, value: Array, mask: Array | None) -> None:
    write(frame, operation, pointer, value, mask, len(shape_of(operation.pointer.type)))


def atomic_rmw(
    frame: Frame, operation: AtomicRmw, pointer: Array, value: Array, mask: Array | None
) -> Array:
    kind, element, memory = operation.kind, _pointee(operation), frame.memory

    def step(addresses: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
        return atomics.read_modify_write(memory, kind, element, addresses, values)

    return update(
        frame, operation, pointer, [value], mask, len(shape_of(operation.pointer.type)), step
    )


def atomic_cas(
    frame: Frame, operation: AtomicCas, pointer: Array, compare: Array, value: Array
) -> Array:
    element, memory = _pointee(operation), frame.memory

    def step(
        addresses: NDArray[np.int64], expected: NDArray[Any], values: NDArray[Any]
    ) -> NDArray[Any]:
        return atomics.compare_and_swap(memory, element, addresses, expected, values)

    return update(
        frame,
        operation,
        pointer,
        [compare, value],
        None,
        len(shape_of(operation.pointer.type)),
        step,
    )


def atomic_load(frame: Frame, operation: AtomicLoad, pointer: Array, mask: Array | None) -> Array:
    dtype, memory = numpy_dtype(_pointee(operation)), frame.memory

    def step(addresses: NDArray[np.int64]) -> NDArray[Any]:
        return memory.load(addresses, dtype)

    return update(
        frame,
        operation,
        pointer,
        [],
        mask,
        len(shape_of(operation.pointer.type)),
        step,
        dtype=dtype,
        kind="peek",
    )


def atomic_store(
    frame: Frame, operation: AtomicStore, pointer: Array, value: Array, mask: Array | None
) -> None:
    memory = frame.memory

    def step(addresses: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
        memory.store(addresses, values)
        return values

    update(frame, operation, pointer, [value], mask, len(shape_of(operation.pointer.type)), step)


def clock(frame: Frame, operation: Clock) -> Array:
    return np.asarray(time.monotonic_ns(), np.int64)


# -- descriptors -----------------------------------------------------------------------------------


def make_descriptor(
    frame: Frame, operation: MakeDescriptor, base: Array, shape: list[Array], strides: list[Array]
) -> Descriptor:
    return Descriptor(base, tuple(shape), tuple(strides), np.bool_(operation.padding == "nan"))


def descriptor_extent(frame: Frame, operation: DescriptorExtent, descriptor: Descriptor) -> Array:
    return descriptor.shape[operation.axis]


def descriptor_stride(frame: Frame, operation: DescriptorStride, descriptor: Descriptor) -> Array:
    return descriptor.strides[operation.axis]


def _descriptor_type(operation: DescriptorBlocks | DescriptorRows) -> DescriptorType:
    type_ = operation.descriptor.type
    assert isinstance(type_, DescriptorType)
    return type_


def padding(descriptor: Descriptor, type_: DescriptorType, rank: int) -> Array:
    """Return the padding of a load of a block of ``rank`` axes; integers have no NaN but zero."""
    zero = np.zeros((), dtype=numpy_dtype(type_.element))
    if not isinstance(type_.element, FloatType) or not descriptor.pads_nan.any():
        return zero
    nan = encode(np.float64(np.nan), type_.element)
    return np.where(_spread(descriptor.pads_nan, rank), nan, zero)


def _elements(
    descriptor: Descriptor, coordinates: Sequence[Array], itemsize: int
) -> tuple[Array, Array]:
    """Return addresses of elements, and whether they are in the tensor.

    Coordinates broadcast to the block, extents and strides to them.
    """
    rank = len(coordinates)
    address, inside = _spread(descriptor.base, rank), np.True_
    for coordinate, extent, stride in zip(
        coordinates, descriptor.shape, descriptor.strides, strict=True
    ):
        address = address + coordinate * (_spread(stride, rank) * np.int64(itemsize))
        inside = inside & (coordinate >= np.int64(0)) & (coordinate < _spread(extent, rank))
    return address, inside


def _spread(x: Array, rank: int) -> Array:
    """A scalar, or one a row, with ``rank`` axes of extent 1 after that."""
    return x.reshape(x.shape + (1,) * rank)


def block_elements(
    operation: DescriptorBlocks, descriptor: Descriptor, offsets: Sequence[Array]
) -> tuple[Array, Array]:
    """Addresses of the block at offsets, and which of its elements are in the tensor."""
    type_ = _descriptor_type(operation)
    coordinates = []
    for axis, (offset, extent) in enumerate(zip(offsets, type_.block_shape, strict=True)):
        along = np.arange(extent, dtype=np.int64).reshape(
            (extent,) + (1,) * (type_.rank - 1 - axis)
        )
        coordinates.append(_spread(offset.astype(np.int64), type_.rank) + along)
    return _elements(descriptor, coordinates, byte_size(type_.element))


def row_elements(
    operation: DescriptorRows, descriptor: Descriptor, rows: Array, column: Array
) -> tuple[Array, Array]:
    """Addresses of rows from a column on, and which elements are in the tensor."""
    type_ = _descriptor_type(operation)
    along = _spread(column.astype(np.int64), 2) + np.arange(type_.block_shape[1], dtype=np.int64)
    return _elements(
        descriptor, [rows.astype(np.int64)[..., np.newaxis], along], byte_size(type_.element)
    )


def descriptor_load(
    frame: Frame, operation: DescriptorLoad, descriptor: Descriptor, offsets: list[Array]
) -> Array:
    type_ = _descriptor_type(operation)
    addresses, inside = block_elements(operation, descriptor, offsets)
    return read(
        frame,
        operation,
        addresses,
        inside,
        padding(descriptor, type_, type_.rank),
        type_.element,
        type_.rank,
        descriptor.argument,
    )


def descriptor_store(
    frame: Frame,
    operation: DescriptorStore,
    descriptor: Descriptor,
    offsets: list[Array],
    value: Array,
) -> None:
    addresses, inside = block_elements(operation, descriptor, offsets)
    write(
        frame,
        operation,
        addresses,
        value,
        inside,
        _descriptor_type(operation).rank,
        descriptor.argument,
    )


def descriptor_reduce(
    frame: Frame,
    operation: DescriptorReduce,
    descriptor: Descriptor,
    offsets: list[Array],
    value: Array,
) -> None:
    kind, type_, memory = operation.kind, _descriptor_type(operation), frame.memory
    addresses, inside = block_elements(operation, descriptor, offsets)

    def step(addresses: NDArray[np.int64], values: NDArray[Any]) -> NDArray[Any]:
        return atomics.read_modify_write(memory, kind, type_.element, addresses, values)

    update(frame, operation, addresses, [value], inside, type_.rank, step, descriptor.argument)


def descriptor_gather(
    frame: Frame, operation: DescriptorGather, descriptor: Descriptor, rows: Array, column: Array
) -> Array:
    type_ = _descriptor_type(operation)
    addresses, inside = row_elements(operation, descriptor, rows, column)
    return read(
        frame,
        operation,
        addresses,
        inside,
        padding(descriptor, type_, 2),
        type_.element,
        2,
        descriptor.argument,
    )


def descriptor_scatter(
    frame: Frame,
    operation: DescriptorScatter,
    descriptor: Descriptor,
    rows: Array,
    column: Array,
    value: Array,
) -> None:
    addresses, inside = row_elements(operation, descriptor, rows, column)
    write(frame, operation, addresses, value, inside, 2, descriptor.argument)


def barrier(frame: Frame, operation: Barrier) -> None:
    """Rows run in step, and a program's operations in order: there is nothing to wait for."""


MEANINGS: dict[str, Meaning] = {
    "load": load,
    "store": store,
    "atomic_rmw": atomic_rmw,
    "atomic_cas": atomic_cas,
    "atomic_load": atomic_load,
    "atomic_store": atomic_store,
    "clock": clock,
    "make_descriptor": make_descriptor,
    "descriptor_extent": descriptor_extent,
    "descriptor_stride": descriptor_stride,
    "descriptor_load": descriptor_load,
    "descriptor_store": descriptor_store,
    "descriptor_reduce": descriptor_reduce,
    "descriptor_gather": descriptor_gather,
    "descriptor_scatter": descriptor_scatter,
    "barrier": barrier,
}
