"""Loads that feed matrix products: which can be copied, and the layouts that their tiles can have in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.types import I1, FloatType, IntType, TileType
from tilewright.llvm.registers import storage_size
from tilewright.passes.axis import AxisInfo
from tilewright.passes.rewriter import constant_of
from tilewright.simt.copies import CopyMechanism
from tilewright.simt.costs import access_width
from tilewright.simt.facts import layout_of
from tilewright.simt.lane_order import lane_ordered_shared
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, log2
from tilewright.simt.lowering.asynchronous import copy_width
from tilewright.simt.matmul_plans import MULTIPLYING, PRODUCTS
from tilewright.simt.pipeline.views import LOADS, VIEWS, View, views_of
from tilewright.simt.plans import plan_of
from tilewright.simt.swizzle import shared_between
from tilewright.simt.target import SimtTarget


def feeding_products(body: Region, products: frozenset[str] = MULTIPLYING) -> list[Operation]:
    """The loads from which what products, of these names, multiply is computed, in program order."""
    reached: set[Operation] = set()
    work = [operand for operation in body if operation.name in products for operand in operation.operands[:-1]]
    while work:
        operation = work.pop().definition
        if operation is None or operation.parent is not body or operation in reached:
            continue
        reached.add(operation)
        if operation.name not in LOADS and operation.spec.pure and not operation.regions:
            work += operation.operands
    return [operation for operation in body if operation in reached and operation.name in LOADS]


def is_plain(load: Operation) -> bool:
    """Whether a load is one of a tile of numbers."""
    type_ = load.results[0].type
    return isinstance(type_, TileType) and isinstance(type_.element, IntType | FloatType) and type_.element is not I1 and not load.attribute("volatile")


def is_copyable(load: Operation) -> bool:
    """Whether a load is plain, and fills with zeros where its mask is false."""
    other = load.operand("other")
    value = 0 if other is None else constant_of(other)
    return is_plain(load) and value is not None and value == 0 and not str(value).startswith("-")


def copied_elements(load: Operation, mechanism: CopyMechanism, axes: Mapping[Value, AxisInfo]) -> int:
    """How many elements one copy of a mechanism of groups can move, by the pointers; 0 where it can move none."""
    pointer, mask = load.operand("pointer"), load.operand("mask")
    (result,) = load.results
    assert pointer is not None and isinstance(result.type, TileType)
    size = storage_size(result.type.element)
    width = access_width(layout_of(pointer), axes[pointer], axes[mask] if mask is not None else None, size, max(mechanism.widths))
    while width and width * size not in mechanism.widths:
        width //= 2
    return width


def group_layout(load: Operation, mechanism: CopyMechanism, target: SimtTarget, axes: Mapping[Value, AxisInfo]) -> SharedLayout | None:
    """The layout in shared memory that the widest copies of a mechanism of groups can write and the first product that reads the tile reads best; None
    where there is none."""
    width = copied_elements(load, mechanism, axes)
    if not width:
        return None
    pointer, mask = load.operand("pointer"), load.operand("mask")
    (result,) = load.results
    assert pointer is not None and isinstance(result.type, TileType)
    layout, shape, size = layout_of(pointer), result.type.shape, storage_size(result.type.element)
    pointer_axes, mask_axes = axes[pointer], axes[mask] if mask is not None else None

    if mechanism.lanes_side_by_side:
        return lane_ordered_shared(layout, width)

    def copies(shared: SharedLayout) -> bool:
        return copy_width(layout, shared, pointer_axes, mask_axes, size, mechanism.widths) == width

    reader = layout
    for view, product, position in products_of(result):
        wishes, own = _wanted(product, position, target)
        for wished in wishes:
            shared = view.unviewed_shared(wished, shape)
            if copies(shared):
                return shared
        reader = view.unviewed(own, shape)
        break
    shared = shared_between(layout, reader, size, target.max_access, target.banks, 0, layout.registers[: log2(width)])
    return shared if copies(shared) else None


def wished_layout(load: Operation, mechanism: CopyMechanism, target: SimtTarget) -> SharedLayout | None:
    """The layout in shared memory that the first product that reads the tile wishes for, or reads best, if the mechanism can fill it."""
    (result,) = load.results
    assert isinstance(result.type, TileType)
    shape, element = result.type.shape, result.type.element
    layout = layout_of(result)
    for view, product, position in products_of(result):
        wishes, own = _wanted(product, position, target)
        for wished in wishes:
            if mechanism.can_fill(shared := view.unviewed_shared(wished, shape), element):
                return shared
        reader = view.unviewed(own, shape)
        shared = shared_between(layout, reader, storage_size(element), target.max_access, target.banks)
        if mechanism.can_fill(shared, element):
            return shared
        break
    plain = SharedLayout.row_major(shape)
    return plain if mechanism.can_fill(plain, element) else None


def _wanted(product: Operation, position: int, target: SimtTarget) -> tuple[Sequence[SharedLayout], LinearLayout]:
    """The shared layouts that an operand of a product is wanted in, the best first, and what a thread reads of it."""
    if product.name not in PRODUCTS:
        return (), layout_of(product.operands[position])
    plan = plan_of(product, target)
    return plan.wishes(position), plan.operand(position)


def products_of(value: Value) -> Iterator[tuple[View, Operation, int]]:
    """(view, product, operand position) of the products that read a tile as it is, in whatever layout and shape."""
    for view in views_of(value):
        for reader in _through_conversions(view.value):
            for user in reader.uses:
                if user.name in MULTIPLYING:
                    for position in range(len(user.operands) - 1):
                        if user.operands[position] is reader:
                            yield view, user, position


def _through_conversions(value: Value) -> list[Value]:
    converted = [user.results[0] for user in value.uses if user.name == "simt.convert"]
    return [value, *converted, *(user.results[0] for one in converted for user in one.uses if user.name == "bitcast")]


def stepped_product(loop: Operation, loads: list[Operation], target: SimtTarget) -> Operation | None:
    """The product that can be computed step by step along K, the fragments of its first step loaded in the iteration before: both of its operands are
    copied ahead and go nowhere else, and it is the last to read what was copied. None where there is no such product."""
    (body,) = loop.regions
    sources = {load.results[0] for load in loads}
    product: Operation | None = None
    own: tuple[Value, ...] = ()
    earlier: set[Operation] = set()
    before: set[Operation] = set()
    for operation in body:
        if operation.name == "simt.dot" and _has_steps(operation, target):
            first, second = (_only_source(operand) for operand in operation.operands[:2])
            if first is not None and second is not None and first is not second and first in sources and second in sources:
                product, own, earlier = operation, (first, second), set(before)
        before.add(operation)
    others = [value for value in sources if value not in own]
    return product if all(reader in earlier for value in others for reader in _readers(value)) else None


def _readers(value: Value) -> Iterator[Operation]:
    """The operations before which a copied tile may be read from shared memory."""
    for view in views_of(value):
        for user in view.value.uses:
            yield user
            if user.name == "simt.convert":
                yield from (reader for reader in user.results[0].uses if reader.name in PRODUCTS)


def _has_steps(product: Operation, target: SimtTarget) -> bool:
    plan = plan_of(product, target)
    return plan.reads == ("registers", "registers") and 0 < plan.k_step < plan.a.shape[-1]


def _only_source(operand: Value) -> Value | None:
    """The tile of which an operand of a product is a view, in the product's layout, if the product alone reads it; what is not one of ``views_of`` is
    no tile that was copied."""
    value = operand
    while len(value.uses) == 1:
        operation = value.definition
        if operation is None:
            return None
        if not (operation.name in VIEWS or (operation.name == "simt.convert" and value is operand)) or operation.attributes.get("reorder"):
            return value
        value = operation.operands[0]
    return None
