"""Rules of operations that access memory.

A store has the cotangent of its value in the memory beside the output, a load adds its cotangent to
the memory beside the input. Masked-off lanes have neither.
"""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.analysis.memory_effects import Writes, adds
from tilewright.derivatives.refusals import refusal
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.memory import (
    AtomicRmw,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Load,
    Store,
)
from tilewright.ir.ops.rules import accessed_type
from tilewright.ir.types import (
    I32,
    DescriptorType,
    FloatType,
    TileType,
    element_type,
    shape_of,
    with_element,
)


def _shadow(builder: AdjointBuilder, operation: Operation) -> Value:
    """Return the address of the cotangents of what an operation accesses."""
    shadow = builder.analysis.shadows.of.get(operation.operands[0])
    if shadow is None:
        raise refusal(
            operation,
            "its address is carried by a while loop",
            "compute the address from the number of the iteration",
        )
    return builder.primal[shadow]


def _root(builder: AdjointBuilder, operation: Operation) -> Value | None:
    return builder.analysis.memory.addresses.root(operation.operands[0])


# ---- what is stored


def _stored(builder: AdjointBuilder, operation: Writes) -> None:
    """Read the cotangent of what an operation wrote to an output."""
    root = _root(builder, operation)
    if root not in builder.analysis.outputs:
        return
    assert root is not None
    consumed = root.name in builder.analysis.consumed and not adds(operation)
    if operation.value not in builder.varied and not consumed:
        return
    b, address = builder.b, _shadow(builder, operation)
    primal = builder.primal
    match operation:
        case Store() | AtomicRmw():
            mask = None if operation.mask is None else primal[operation.mask]
            cotangent = b.load(address, mask=mask)
            if consumed:
                b.store(address, b.constant_like(cotangent.type, 0.0), mask)
        case DescriptorStore() | DescriptorReduce():
            offsets = [primal[value] for value in operation.offsets]
            cotangent = b.descriptor_load(address, offsets=offsets)
            if consumed:
                zero = b.constant_like(cotangent.type, 0.0)
                b.descriptor_store(address, offsets=offsets, value=zero)
        case DescriptorScatter():
            rows, column = primal[operation.rows], primal[operation.column]
            cotangent = b.descriptor_gather(address, rows=rows, column=column)
            if consumed:
                zero = b.constant_like(cotangent.type, 0.0)
                b.descriptor_scatter(address, rows=rows, column=column, value=zero)
    if consumed:
        b.barrier()  # an earlier store of the program may read it by other threads
    builder.add_cotangent(operation.value, cotangent)


@transposes(Store, "the output's cotangent is loaded")
def store(builder: AdjointBuilder, operation: Store) -> None:
    _stored(builder, operation)


@transposes(AtomicRmw, "add: load the output's cotangent; other kinds have no derivative")
def atomic_rmw(builder: AdjointBuilder, operation: AtomicRmw, *_: Value | None) -> None:
    _stored(builder, operation)


@transposes(DescriptorStore, "load the output's cotangent, with zero outside of the tensor")
def descriptor_store(builder: AdjointBuilder, operation: DescriptorStore) -> None:
    _stored(builder, operation)


@transposes(DescriptorReduce, "add: load the output's cotangent; other kinds have no derivative")
def descriptor_reduce(builder: AdjointBuilder, operation: DescriptorReduce) -> None:
    _stored(builder, operation)


@transposes(DescriptorScatter, "the output's cotangent is gathered")
def descriptor_scatter(builder: AdjointBuilder, operation: DescriptorScatter) -> None:
    _stored(builder, operation)


# ---- what is loaded


def _mode(builder: AdjointBuilder, operation: Operation) -> str | None:
    """Return how the cotangent of what an operation loads is written; None where it is not."""
    root = _root(builder, operation)
    if root not in builder.analysis.wrt:
        return None
    assert root is not None
    mode = builder.analysis.modes.get(root.name, "atomic")
    element = builder.analysis.shadows.elements[root]
    if mode == "atomic" and isinstance(element, FloatType) and element.is_fp8:
        raise refusal(
            operation,
            f"its cotangents are added atomically, which {element} has no operation for",
            f"pass d_{root.name} as an array of float32",
        )
    return mode


@transposes(
    Load,
    "add dy to the input's cotangent where the mask is true, and to the cotangent "
    "of other elsewhere",
)
def load(builder: AdjointBuilder, operation: Load, dy: Value) -> None:
    b = builder.b
    mask = None if operation.mask is None else builder.primal[operation.mask]
    if operation.other is not None and operation.other in builder.varied:
        elsewhere = b.select(mask, b.constant_like(dy.type, 0.0), dy)
        builder.add_cotangent(operation.other, elsewhere)
    mode = _mode(builder, operation)
    if mode is None:
        return
    pointer = _shadow(builder, operation)
    dy = builder.to(dy, accessed_type(pointer.type))
    match mode:
        case "atomic":
            b.atomic_rmw(pointer, dy, mask, kind="add", order="relaxed")
        case "add":
            b.store(pointer, b.add(b.load(pointer, mask=mask), dy), mask)
            b.barrier()  # another load of the program may add to it by other threads
        case _:
            b.store(pointer, dy, mask)


@transposes(DescriptorLoad, "add dy to the input's cotangent, inside of the tensor")
def descriptor_load(builder: AdjointBuilder, operation: DescriptorLoad, dy: Value) -> None:
    mode = _mode(builder, operation)
    if mode is None:
        return
    b, descriptor = builder.b, _shadow(builder, operation)
    offsets = [builder.primal[value] for value in operation.offsets]
    assert isinstance(descriptor.type, DescriptorType)
    dy = builder.to(dy, descriptor.type.block_type)
    match mode:
        case "atomic":
            b.descriptor_reduce(descriptor, offsets=offsets, value=dy, kind="add")
        case "add":
            known = b.descriptor_load(descriptor, offsets=offsets)
            b.descriptor_store(descriptor, offsets=offsets, value=b.add(known, dy))
            b.barrier()
        case _:
            b.descriptor_store(descriptor, offsets=offsets, value=dy)


@transposes(DescriptorGather, "add the rows of dy to those of the input's cotangent")
def descriptor_gather(builder: AdjointBuilder, operation: DescriptorGather, dy: Value) -> None:
    mode = _mode(builder, operation)
    if mode is None:
        return
    b, descriptor = builder.b, _shadow(builder, operation)
    rows, column = builder.primal[operation.rows], builder.primal[operation.column]
    assert isinstance(descriptor.type, DescriptorType)
    dy = builder.to(dy, with_element(dy.type, descriptor.type.element))
    match mode:
        case "atomic":
            _add_rows(b, descriptor, rows, column, dy)
        case "add":
            known = b.descriptor_gather(descriptor, rows=rows, column=column)
            b.descriptor_scatter(descriptor, rows=rows, column=column, value=b.add(known, dy))
            b.barrier()
        case _:
            b.descriptor_scatter(descriptor, rows=rows, column=column, value=dy)


def _add_rows(b: Builder, descriptor: Value, rows: Value, column: Value, tile: Value) -> None:
    """Append a loop that adds each row of a tile to a row of a tensor: rows may be the same."""
    count, columns = shape_of(tile.type)
    zero, one, end = (b.constant_like(I32, number) for number in (0, 1, count))
    body = Region([I32], ["row"])
    with b.at_region(body):
        (number,) = body.arguments
        place = b.gather(rows, b.splat(number, result=TileType((1,), I32)), axis=0)
        combine = Region([element_type(rows.type)] * 2)
        with b.at_region(combine):
            b.yield_([b.max(*combine.arguments)])
        (row,) = b.region_op("reduce", [place], regions=[combine], axis=0).results
        index = b.splat(number, result=TileType((1, columns), I32))
        value = b.gather(tile, index, axis=0)
        b.descriptor_reduce(descriptor, offsets=[row, column], value=value, kind="add")
        b.yield_([])
    b.region_op("for", zero, end, one, [], regions=[body])
