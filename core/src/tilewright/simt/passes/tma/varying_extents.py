"""One tensor map of the launch for descriptors that differ in an extent alone.

    for each group:
        %d = make_descriptor %p, shape=[%end, %n], strides=[%s, %one]
        %x = descriptor_load %d, [%row, %column]                     a block of R rows

becomes, if all but ``%end`` are known at launch, and ``%row`` is not negative,

    %t = simt.tensor %p, [2**31, 2**31, 2**30, %n], [2**34 - %s, %s, %s, %one]       (at the entry)
    for each group:
        %inside = max(min(%end - %row, R), 0)
        %x = descriptor_load %t, [2**30, %row + %inside, 2**30 - %inside, %column]

The third axis ends behind the block's last row in the group. Addresses have 64 bits, so that
``2**30 * 2**34`` elements are nothing, and the coordinates together address ``%row``:

    2**30 * (2**34 - %s) + (%row + %inside) * %s + (2**30 - %inside) * %s = %row * %s

A map that the kernel makes for each group would cost the time of writing and publishing it, and
copies by the previous one would have to end before.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.memory import DescriptorLoad, DescriptorStore, MakeDescriptor
from tilewright.ir.types import I32, I64, DescriptorType, FloatType, IntType, Type
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.simt.analysis.tensor_accesses import is_on_host
from tilewright.simt.dialect.ops import SIMT_TABLE

#: Writes a polynomial as a scalar.
Emit = Callable[[Builder, Polynomial, IntType], Value]
#: Axes of a tensor map at most, and those that are put in front.
_MOST, _MORE = 5, 2
#: Extents of the axes in front, that of the varying axis, and the stride that wraps around.
_UNBOUNDED, _EXTENT, _WRAP = 1 << 31, 1 << 30, 1 << 34


def varying_extents(function: Function, affine: Affine) -> dict[MakeDescriptor, int]:
    """Return the descriptors of a kernel that differ in the extent of one axis, and the axis."""
    return {
        operation: axis
        for operation in function.walk()
        if isinstance(operation, MakeDescriptor)
        and (axis := _varying_axis(operation, affine)) is not None
    }


def is_hoistable(made: MakeDescriptor, affine: Affine) -> bool:
    """Return whether a tensor map of the launch can have a descriptor's base and padding."""
    base, type_ = made.base, made.result.type
    assert isinstance(type_, DescriptorType)
    zero = made.padding == "zero" or not isinstance(type_.element, FloatType)
    return zero and base.owner is affine.function.body


def _varying_axis(made: MakeDescriptor, affine: Affine) -> int | None:
    """Return the axis whose extent alone is not known at launch; None if there is none."""
    varying = [
        axis
        for axis, extent in enumerate(made.shape)
        if not is_on_host(affine.number(extent), affine)
    ]
    if (
        len(varying) != 1
        or varying[0] == len(made.shape) - 1
        or len(made.shape) + _MORE > _MOST
        or not is_hoistable(made, affine)
        or not all(is_on_host(affine.number(stride), affine) for stride in made.strides)
    ):
        return None
    (axis,) = varying
    fits = all(
        isinstance(user, DescriptorLoad | DescriptorStore)
        and affine.is_nonnegative(affine.number(user.offsets[axis]))
        for user in made.result.uses
    )
    return axis if fits else None


def write_varying_extent(
    made: MakeDescriptor, axis: int, affine: Affine, head: Builder, emit: Emit
) -> None:
    """Replace a descriptor, and its loads and stores, by a tensor map of the launch.

    ``head`` stands at the function's entry, and ``emit`` writes numbers of the launch there.
    """
    type_, shape = made.result.type, list(made.shape)
    assert isinstance(type_, DescriptorType)
    strides = [affine.number(stride) for stride in made.strides]
    wrapping = Polynomial.number(_WRAP).minus(strides[axis])
    extents = [affine.number(extent) for extent in shape]
    extents[axis] = Polynomial.number(_EXTENT)
    unbounded = [Polynomial.number(_UNBOUNDED)] * _MORE
    block = (*(1 for _ in range(_MORE)), *type_.block_shape)
    tensor = head.create(
        SIMT_TABLE["simt.tensor"],
        [
            [made.base],
            [emit(head, each, I64) for each in (*unbounded, *extents)],
            [emit(head, each, I64) for each in (wrapping, strides[axis], *strides)],
        ],
        {},
        (DescriptorType(block, type_.element),),
    ).results[0]
    tensor.name = made.result.name
    for access in list(made.result.uses):
        assert isinstance(access, DescriptorLoad | DescriptorStore)
        _write_access(access, tensor, axis, made.shape[axis], block)
    made.erase()


def _write_access(
    access: DescriptorLoad | DescriptorStore,
    tensor: Value,
    axis: int,
    extent: Value,
    block: tuple[int, ...],
) -> None:
    """Access a block of the new tensor in place of that of a descriptor."""
    b, offsets = Builder.at(access), list(access.offsets)
    start, rows = offsets[axis], block[axis + _MORE]
    behind = b.sub(extent, _as(b, start, extent.type))
    inside = b.max(
        b.min(behind, b.constant(value=rows, result=extent.type)),
        b.constant(value=0, result=extent.type),
    )
    inside = _as(b, inside, I32)
    wrap = b.constant(value=_EXTENT, result=I32)
    offsets[axis] = b.sub(wrap, inside)
    offsets = [wrap, b.add(_as(b, start, I32), inside), *offsets]
    if isinstance(access, DescriptorLoad):
        tile = b.descriptor_load(tensor, offsets)
        tile.definition.attributes.update(access.attributes)
        found = b.reshape(tile, result=access.results[0].type)
        found.name = access.results[0].name
        access.results[0].replace_all_uses(found)
    else:
        assert isinstance(tensor.type, DescriptorType)
        value = b.reshape(access.value, result=tensor.type.block_type)
        b.descriptor_store(tensor, offsets, value)
    access.erase()


def _as(b: Builder, value: Value, type_: Type) -> Value:
    return value if value.type is type_ else b.cast(value, result=type_)
