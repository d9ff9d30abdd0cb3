"""Memory that holds floats as sums of residues or as keys: conversions at each access.

A sum is an i64: residues add up below 2^50, enough for 2^18 additions, and codes count above, up
to 2^8 additions of them. A key is an i32 that orders as the balanced number does, with codes at
both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.core import Operation, Value
from tilewright.ir.expressions import Number, select
from tilewright.ir.ops.memory import (
    AtomicCas,
    AtomicRmw,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
)
from tilewright.ir.table import Trait
from tilewright.ir.types import (
    I1,
    I32,
    I64,
    U64,
    DescriptorType,
    TileType,
    element_type,
    with_element,
)
from tilewright.passes.exact.address_groups import Storage
from tilewright.passes.exact.algebra import is_finite, reduced
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.order import balanced
from tilewright.passes.exact.ring import Ring, is_float, ring_of
from tilewright.passes.exact.rules import touches_floats, whole

if TYPE_CHECKING:
    from tilewright.passes.exact.context import ExactContext

#: The unit of what codes add to a sum: one to four of a stored code, which one it is, and
#: :data:`ADDED_CODE` of a code that is added, which makes NaN.
CODE_UNIT = 1 << 50
ADDED_CODE = 16
#: Bits of a sum below the count of codes.
_SUM_BITS = 50


def to_sum(ring: Ring, a: Number, added: bool) -> Number:
    """A payload as a sum, or as what is added to one."""
    wide = a.cast(I64)
    code = wide.like(ADDED_CODE * CODE_UNIT) if added else ((wide & 3) + 1) * CODE_UNIT
    return select(is_finite(ring, a), wide, code)


def from_sum(ring: Ring, x: Number) -> Number:
    """The payload of a sum: NaN where codes were added."""
    codes = x >> _SUM_BITS
    total = (x & (CODE_UNIT - 1)).cast(U64)
    residue = reduced(total, ring.modulus, CODE_UNIT).cast(ring.payload)
    code = (codes - 1).cast(ring.payload) + ring.negative_infinity
    stored = (codes > 0) & (codes <= 4)
    return select(codes.equals(0), residue, select(stored, code, ring.nan))


def to_key(ring: Ring, a: Number, storage: Storage) -> Number:
    """A payload as a key: NaN loses every comparison, undefined wins it."""
    low, high = I32.minimum, I32.maximum
    nan, undefined = (low, high - 1) if storage is Storage.MAXIMA else (high, low + 1)
    infinite = select(a.equals(ring.infinity), a.cast(I32).like(high - 2), low + 2)
    code = select(
        a.equals(ring.nan),
        infinite.like(nan),
        select(a.equals(ring.undefined), infinite.like(undefined), infinite),
    )
    return select(is_finite(ring, a), balanced(ring, a).cast(I32), code)


def from_key(ring: Ring, x: Number) -> Number:
    """The payload of a key."""
    low, high = I32.minimum, I32.maximum
    wide = x.cast(I64)
    residue = select(wide < 0, wide + ring.modulus, wide).cast(ring.payload)
    infinite = select(x < 0, residue.like(ring.negative_infinity), ring.infinity)
    undefined = x.equals(low + 1) | x.equals(high - 1)
    code = select(undefined, infinite.like(ring.undefined), infinite)
    code = select(x.equals(low) | x.equals(high), code.like(ring.nan), code)
    inside = (x > low + 2) & (x < high - 2)
    return select(inside, residue, code)


def stored(
    rewriter: ExactContext, ring: Ring, payloads: Value, storage: Storage, added: bool = False
) -> Value:
    """Append the conversion of payloads to a representation."""
    element = storage.element
    if storage is Storage.SUMS:
        key: tuple[object, ...] = ("to a sum", ring.bits, added)
        return rewriter.formula(key, lambda a: to_sum(ring, a, added), [payloads], element)
    key = ("to a key", ring.bits, storage)
    return rewriter.formula(key, lambda a: to_key(ring, a, storage), [payloads], element)


def loaded(rewriter: ExactContext, ring: Ring, value: Value, storage: Storage) -> Value:
    """Append the conversion of a representation to payloads."""
    read = from_sum if storage is Storage.SUMS else from_key
    key = (read.__name__, ring.bits)
    return rewriter.formula(key, lambda x: read(ring, x), [value], ring.payload)


def is_converted(rewriter: ExactContext, operation: Operation) -> bool:
    """Return whether an operation accesses memory that holds no payloads."""
    if Trait.ACCESS not in operation.spec.traits:
        return False
    address, *_ = operation.operands
    return rewriter.groups.storage(address) is not Storage.PAYLOADS


def access(rewriter: ExactContext, operation: Operation) -> list[Value]:
    """Append an access to such memory; its result, if any, as payloads."""
    address, *_ = operation.operands
    storage = rewriter.groups.storage(address)
    if isinstance(operation, AtomicCas) and storage is Storage.SUMS:
        raise ExactModeError(
            "an atomic cas of floats in memory that is also added to atomically",
            "use atomic additions alone for that array",
            operation.location,
        )
    added = isinstance(operation, AtomicRmw | DescriptorReduce) and operation.kind == "add"
    operands = []
    for value in operation.operands:
        if is_float(value.type):
            (payloads,) = rewriter.payloads([value])
            operands.append(stored(rewriter, ring_of(value.type), payloads, storage, added))
        else:
            operands.append(rewriter.values[value])
    types = [with_element(value.type, storage.element) for value in operation.results]
    made = Operation(
        operation.spec,
        operands,
        operation.segments,
        operation.attributes,
        types,
        (),
        operation.location,
    )
    rewriter.builder.insert(made)
    return [
        loaded(rewriter, ring_of(old.type), new, storage)
        for old, new in zip(operation.results, made.results, strict=True)
    ]


def pads_with_nan(rewriter: ExactContext, operation: Operation) -> bool:
    """Return whether a load of a descriptor of floats reads NaN outside of the tensor."""
    if not isinstance(operation, DescriptorLoad | DescriptorGather) or not touches_floats(
        operation
    ):
        return False
    paddings = rewriter.groups.paddings(operation.descriptor)
    if len(paddings) > 1:
        raise ExactModeError(
            "a descriptor that pads with zero or with NaN, as control flow decides",
            "give the descriptors that meet there the same padding",
            operation.location,
        )
    return "nan" in paddings


def with_nan_outside(
    rewriter: ExactContext, operation: DescriptorLoad | DescriptorGather, payloads: Value
) -> Value:
    """Payloads of a load, with NaN's code outside of the tensor."""
    builder, values = rewriter.builder, rewriter.values
    type_, kind = payloads.type, operation.descriptor.type
    assert isinstance(type_, TileType) and isinstance(kind, DescriptorType)
    descriptor, inside = values[operation.descriptor], None
    if isinstance(operation, DescriptorGather):
        rows, starts = values[operation.rows], [None, operation.column]
    else:
        rows, starts = None, [*operation.offsets]
    for axis, start in enumerate(starts):
        if start is None:
            along = builder.cast(rows, result=TileType((type_.shape[0],), I64))
        else:
            line = TileType((type_.shape[axis],), I64)
            first = builder.cast(values[start], result=I64)
            steps = builder.cast(builder.arange(start=0, end=type_.shape[axis]), result=line)
            along = builder.add(builder.splat(first, result=line), steps)
        extent = builder.descriptor_extent(descriptor, axis=axis)
        extents = builder.splat(extent, result=along.type)
        zero = builder.constant_like(along.type, 0)
        fits = builder.and_(
            builder.cmp(along, zero, predicate="ge"), builder.cmp(along, extents, predicate="lt")
        )
        thin = tuple(n if own == axis else 1 for own, n in enumerate(type_.shape))
        mask = builder.broadcast(
            builder.reshape(fits, result=TileType(thin, I1)), result=with_element(type_, I1)
        )
        inside = mask if inside is None else builder.and_(inside, mask)
    nan = builder.constant_like(type_, ring_of(element_type(operation.result.type)).nan)
    found: Value = builder.select(inside, payloads, nan)
    return found


def _is_update(operation: AtomicRmw | DescriptorReduce) -> bool:
    return is_float(operation.value.type) and operation.kind != "xchg"


@whole(
    "atomic_rmw",
    "add: an integer addition to the sum of residues; min and max: of keys; xchg moves",
    keeps=("any order and any split of additions",),
    digitwise=False,
    applies=_is_update,
)
def atomic_rmw(rewriter: ExactContext, operation: AtomicRmw) -> list[Value]:
    return access(rewriter, operation)


@whole(
    "descriptor_reduce",
    "add: an integer addition to the sums of residues; min and max: of keys",
    keeps=("any order and any split of additions",),
    digitwise=False,
    applies=_is_update,
)
def descriptor_reduce(rewriter: ExactContext, operation: DescriptorReduce) -> list[Value]:
    return access(rewriter, operation)
