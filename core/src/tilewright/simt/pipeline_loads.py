"""Which loads of a loop are worth copying ahead of time, and what must be computed ahead for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.types import I1, FloatType, IntType, TileType
from tilewright.llvm.registers import storage_size
from tilewright.passes.axis import AxisInfo
from tilewright.passes.rewriter import constant_of
from tilewright.simt.assignment import Assignment
from tilewright.simt.conversion import SharedMove, plan_conversion
from tilewright.simt.costs import access_width
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine, log2
from tilewright.simt.lowering.shared import copy_width
from tilewright.simt.rules import result_layout
from tilewright.simt.swizzle import shared_between
from tilewright.simt.target import SimtTarget

#: Operations that only name elements differently: what is behind them can be read from the same place in memory.
_VIEWS = frozenset({"permute", "expand_dims", "reshape"})
#: Operations of no effect that are too expensive to do twice, or need scratch memory.
_NOT_REPEATED = frozenset({"dot", "dot_scaled", "gather", "histogram", "simt.convert"})
#: Operations that are repeated at most.
_SLICE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class View:
    """A tile as it is seen through shape operations: ``bits[i]`` is the image there of bit i of an element's number in the loaded tile."""

    value: Value
    bits: tuple[int, ...]

    def shared(self, shared: SharedLayout) -> SharedLayout:
        """The shared layout of the view, for that of the loaded tile."""
        assert isinstance(self.value.type, TileType)
        return SharedLayout(self.value.type.shape, tuple(shared.images[self.bits.index(1 << bit)] for bit in range(len(self.bits))))

    def unviewed_shared(self, shared: SharedLayout, shape: tuple[int, ...]) -> SharedLayout:
        """The shared layout of the loaded tile, for that of the view."""
        return SharedLayout(shape, shared.through(self.bits))

    def unviewed(self, layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
        """The layout of the loaded tile, for that of the view."""
        back = [1 << self.bits.index(1 << bit) for bit in range(len(self.bits))]
        moved = [tuple([combine(back, image) for image in images]) for images in (layout.registers, layout.lanes, layout.warps)]
        return LinearLayout(shape, *moved)


def views_of(value: Value, assignment: Assignment) -> Iterator[View]:
    """The tile itself, and all that shape operations in the same region make of it."""
    assert isinstance(value.type, TileType)
    count = log2(value.type.numel)
    work = [(value, tuple(1 << bit for bit in range(count)))]
    while work:
        seen, bits = work.pop()
        yield View(seen, bits)
        for user in seen.uses:
            if user.name in _VIEWS and not (user.name == "reshape" and user.attribute("reorder")):
                assert isinstance(seen.type, TileType)
                moved = result_layout(user, LinearLayout(seen.type.shape, bits, (), ()))
                work.append((user.results[0], moved.registers))


def sink_conversions(body: Region, assignment: Assignment) -> None:
    """Let shape operations come before conversions: what converts last can read its own layout from shared memory."""
    for operation in list(body):
        if operation.name not in _VIEWS or operation.attributes.get("reorder"):
            continue
        conversion, (result,) = operation.operands[0].definition, operation.results
        if conversion is None or conversion.name != "simt.convert" or conversion.parent is not body or len(conversion.results[0].uses) > 1:
            continue
        source = conversion.operands[0]
        builder = Builder.at(operation)
        view = builder.create(operation.spec, ((source,),), operation.attributes, (result.type,) if operation.spec.explicit_results else ()).results[0]
        assignment.layouts[view] = result_layout(operation, assignment.layouts[source])
        moved = builder.create(conversion.spec, ((view,),), conversion.attributes).results[0]
        assignment.layouts[moved] = assignment.layouts[result]
        result.replace_all_uses(moved)
        operation.erase()
        conversion.erase()


@dataclass(frozen=True, slots=True)
class AheadLoad:
    """A load whose elements are copied to shared memory ahead of time, the layout they have there, and how many copies a thread starts."""

    operation: Operation
    shared: SharedLayout
    copies: int

    @property
    def bytes(self) -> int:
        type_ = self.operation.results[0].type
        assert isinstance(type_, TileType)
        return -(-type_.numel * storage_size(type_.element) // 16) * 16


def loads_ahead(loop: Operation, target: SimtTarget, assignment: Assignment, axes: Mapping[Value, AxisInfo]) -> list[AheadLoad]:
    """The loads of a loop's body that feed matrix products and can be copied asynchronously."""
    (body,) = loop.regions
    found = []
    for operation in _feeding_products(body):
        if _is_plain(operation) and slice_of(body, (operation,), assignment, target) is not None:
            width = _copy_width(operation, target, assignment, axes)
            shared = _shared_layout(operation, width, target, assignment, axes) if width else None
            if shared is not None:
                found.append(AheadLoad(operation, shared, assignment.layouts[operation.operands[0]].register_count // width))
    return found


def _feeding_products(body: Region) -> list[Operation]:
    """The loads from which operands of products are computed, in program order."""
    reached: set[Operation] = set()
    work = [operand for operation in body if operation.name == "dot" for operand in operation.operands[:2]]
    while work:
        operation = work.pop().definition
        if operation is None or operation.parent is not body or operation in reached:
            continue
        reached.add(operation)
        if operation.name != "load" and operation.spec.pure and not operation.regions and operation.name != "dot":
            work += operation.operands
    return [operation for operation in body if operation in reached and operation.name == "load"]


def _is_plain(load: Operation) -> bool:
    """A load of numbers that fills with zeros where its mask is false."""
    type_ = load.results[0].type
    if not isinstance(type_, TileType) or not isinstance(type_.element, IntType | FloatType) or type_.element is I1 or load.attribute("volatile"):
        return False
    other = load.operand("other")
    value = 0 if other is None else constant_of(other)
    return value is not None and value == 0 and not str(value).startswith("-")


def _copy_width(load: Operation, target: SimtTarget, assignment: Assignment, axes: Mapping[Value, AxisInfo]) -> int:
    """How many elements one copy can move, by the pointers; 0 where there are no such copies."""
    pointer, mask = load.operand("pointer"), load.operand("mask")
    (result,) = load.results
    assert pointer is not None and isinstance(result.type, TileType)
    size = storage_size(result.type.element)
    width = access_width(assignment.layouts[pointer], axes[pointer], axes[mask] if mask is not None else None, size, max(target.copy_widths))
    while width and width * size not in target.copy_widths:
        width //= 2
    return width


def _shared_layout(load: Operation, width: int, target: SimtTarget, assignment: Assignment, axes: Mapping[Value, AxisInfo]) -> SharedLayout | None:
    """The layout in shared memory that copies of ``width`` elements can write and the first product that reads the tile reads best; None where there is
    none."""
    pointer, mask = load.operand("pointer"), load.operand("mask")
    (result,) = load.results
    assert pointer is not None and isinstance(result.type, TileType)
    layout, shape, size = assignment.layouts[pointer], result.type.shape, storage_size(result.type.element)
    pointer_axes, mask_axes = axes[pointer], axes[mask] if mask is not None else None

    def copies(shared: SharedLayout) -> bool:
        return copy_width(layout, shared, pointer_axes, mask_axes, size, target.copy_widths) == width

    reader = layout
    for view, product, position in _products(result, assignment):
        plan = assignment.dots[product]
        wished = plan.a_shared if position == 0 else plan.b_shared
        if wished is not None:
            shared = view.unviewed_shared(wished, shape)
            if copies(shared):
                return shared
        reader = view.unviewed(plan.a if position == 0 else plan.b, shape)
        break
    shared = shared_between(layout, reader, size, target.max_access, target.banks, 0, layout.registers[: log2(width)])
    return shared if copies(shared) else None


def _products(value: Value, assignment: Assignment) -> Iterator[tuple[View, Operation, int]]:
    """(view, product, operand position) of the products that read a tile as it is, in whatever layout and shape."""
    for view in views_of(value, assignment):
        for reader in _through_conversions(view.value):
            for user in reader.uses:
                if user.name == "dot":
                    for position in (0, 1):
                        if user.operands[position] is reader:
                            yield view, user, position


def _through_conversions(value: Value) -> list[Value]:
    return [value, *(user.results[0] for user in value.uses if user.name == "simt.convert")]


def stepped_product(loop: Operation, loads: Iterable[AheadLoad], assignment: Assignment) -> Operation | None:
    """The product that can be computed step by step along K, the fragments of its first step loaded in the iteration before: both of its operands are
    copied ahead and go nowhere else, and it is the last to read what was copied. None where there is no such product."""
    (body,) = loop.regions
    sources = {load.operation.results[0] for load in loads}
    product: Operation | None = None
    own: tuple[Value, ...] = ()
    earlier: set[Operation] = set()
    before: set[Operation] = set()
    for operation in body:
        if operation.name == "dot" and _is_stepped(operation, assignment):
            first, second = (_only_source(operand) for operand in operation.operands[:2])
            if first is not None and second is not None and first is not second and first in sources and second in sources:
                product, own, earlier = operation, (first, second), set(before)
        before.add(operation)
    others = [value for value in sources if value not in own]
    return product if all(reader in earlier for value in others for reader in _readers(value, assignment)) else None


def _readers(value: Value, assignment: Assignment) -> Iterator[Operation]:
    """The operations before which a copied tile may be read from shared memory."""
    for view in views_of(value, assignment):
        for user in view.value.uses:
            yield user
            if user.name == "simt.convert":
                yield from (reader for reader in user.results[0].uses if reader.name == "dot")


def _is_stepped(product: Operation, assignment: Assignment) -> bool:
    plan = assignment.dots[product]
    return plan.emit is not None and 0 < plan.k_step < plan.a.shape[-1]


def _only_source(operand: Value) -> Value | None:
    """The tile of which an operand of a product is a view, in the product's layout, if the product alone reads it; what is not one of ``views_of`` is
    no tile that was copied."""
    value = operand
    while len(value.uses) == 1:
        operation = value.definition
        if operation is None:
            return None
        if not (operation.name in _VIEWS or (operation.name == "simt.convert" and value is operand)) or operation.attributes.get("reorder"):
            return value
        value = operation.operands[0]
    return None


@dataclass(frozen=True, slots=True)
class Slice:
    """What one iteration of a loop computes for the addresses of loads.

    Attributes:
        operations: in program order.
        carried: indices of the carried values among what they read.
        counter: whether they read the loop's counter.
    """

    operations: tuple[Operation, ...]
    carried: tuple[int, ...]
    counter: bool


def slice_of(body: Region, loads: Iterable[Operation], assignment: Assignment, target: SimtTarget) -> Slice | None:
    """What must be repeated to know the pointers and masks of ``loads`` in later iterations; None where that should not be done. Loads among it, such as
    of a table of pages, are repeated too: nothing in the loop may write to memory."""
    last = body.terminator
    assert last is not None
    needed: set[Operation] = set()
    carried: set[int] = set()
    counter = False
    work = [operand for load in loads for operand in (load.operand("pointer"), load.operand("mask")) if operand is not None]
    while work:
        value = work.pop()
        owner = value.owner
        if owner is body:
            index = value.index - 1
            if index < 0:
                counter = True
            elif index not in carried:
                carried.add(index)
                work.append(last.operands[index])
        elif isinstance(owner, Operation) and owner.parent is body and owner not in needed:
            if not _is_repeatable(owner, assignment, target) or len(needed) >= _SLICE_LIMIT:
                return None
            needed.add(owner)
            work += owner.operands
    return Slice(tuple(operation for operation in body if operation in needed), tuple(sorted(carried)), counter)


def _is_repeatable(operation: Operation, assignment: Assignment, target: SimtTarget) -> bool:
    if operation.name == "load":
        return not operation.attribute("volatile")
    if operation.name == "simt.convert":
        (x,), (result,) = operation.operands, operation.results
        assert isinstance(x.type, TileType)
        plan = plan_conversion(assignment.layouts[x], assignment.layouts[result], x.type.element, target)
        return not isinstance(plan, SharedMove)
    return operation.spec.pure and not operation.regions and operation.name not in _NOT_REPEATED
