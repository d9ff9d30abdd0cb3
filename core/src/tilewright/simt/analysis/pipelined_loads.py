"""Loads that feed matmuls: copyability, and the shared memory layouts of their tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import DescriptorGather, Load
from tilewright.ir.types import I1, FloatType, IntType, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.passes.rewriter import constant_of
from tilewright.simt.analysis.shared_views import View, renames, views_of
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import Multiplication, PlannedDot
from tilewright.simt.dialect.pipeline_attributes import Ahead
from tilewright.simt.layouts.lane_order import lane_ordered_shared
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, log2
from tilewright.simt.layouts.swizzle import shared_between, transactions
from tilewright.simt.target.copy_mechanism import CopyMechanism
from tilewright.simt.target.cost_model import access_width, copy_width
from tilewright.simt.target.matmul_plan import MULTIPLYING, REGISTERS, factors
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget


def feeding_matmuls(
    body: Region,
    matmuls: tuple[type[Operation], ...] = MULTIPLYING,
    around: Region | None = None,
) -> list[Ahead]:
    """Loads from which operands of ``matmuls`` are computed, in program order.

    They are those of the matmuls' body, or of a region around it.
    """
    regions = (body, body if around is None else around)
    reached: set[Operation] = set()
    work = [
        operand
        for operation in body
        if isinstance(operation, matmuls)
        for operand in factors(operation)
    ]
    while work:
        operation = work.pop().definition
        if operation is None or operation.parent not in regions or operation in reached:
            continue
        reached.add(operation)
        if not isinstance(operation, Ahead) and operation.spec.pure and not operation.regions:
            work += operation.operands
    return [
        operation
        for operation in regions[-1]
        if isinstance(operation, Ahead) and operation in reached
    ]


def is_plain(load: Load) -> bool:
    """Return whether a load is a non-volatile load of a tile of numbers."""
    type_ = load.results[0].type
    return (
        isinstance(type_, TileType)
        and isinstance(type_.element, IntType | FloatType)
        and type_.element is not I1
        and not load.volatile
    )


def is_copyable(load: Load) -> bool:
    """Return whether a load is plain, and zero where its mask is false."""
    other = load.other
    value = 0 if other is None else constant_of(other)
    return is_plain(load) and value is not None and value == 0 and not str(value).startswith("-")


def copied_elements(load: Load, mechanism: CopyMechanism, axes: Mapping[Value, AxisInfo]) -> int:
    """Return the elements that one copy of a commit-group mechanism can move; 0 if none."""
    pointer, mask = load.pointer, load.mask
    (result,) = load.results
    assert isinstance(result.type, TileType)
    size = storage_size(result.type.element)
    width = access_width(
        layout_of(pointer),
        axes[pointer],
        axes[mask] if mask is not None else None,
        size,
        max(mechanism.widths),
    )
    while width and width * size not in mechanism.widths:
        width //= 2
    return width


def group_layout(
    load: Load, mechanism: CopyMechanism, target: SimtTarget, axes: Mapping[Value, AxisInfo]
) -> SharedLayout | None:
    """Return the shared layout for a tile copied by a commit-group mechanism such as cp.async.

    The widest copies can write it, and the first matmul that reads the tile, or else the first
    layout conversion, reads it best. None if there is no such layout.
    """
    width = copied_elements(load, mechanism, axes)
    if not width:
        return None
    pointer, mask = load.pointer, load.mask
    (result,) = load.results
    assert isinstance(result.type, TileType)
    layout, shape, size = layout_of(pointer), result.type.shape, storage_size(result.type.element)
    pointer_axes, mask_axes = axes[pointer], axes[mask] if mask is not None else None

    if mechanism.lanes_side_by_side:
        return lane_ordered_shared(layout, width)

    def copies(shared: SharedLayout) -> bool:
        return copy_width(layout, shared, pointer_axes, mask_axes, size, mechanism.widths) == width

    reader = _converted_to(result) or layout
    for view, matmul, position in matmuls_of(result):
        wishes, own = _wanted(matmul, position, target)
        for wished in wishes:
            shared = view.unviewed_shared(wished, shape)
            if copies(shared):
                return shared
        reader = reader if own is None else view.unviewed(own, shape)
        break
    shared = shared_between(
        layout,
        reader,
        size,
        target.resources.max_access,
        target.resources.banks,
        0,
        layout.registers[: log2(width)],
    )
    return shared if copies(shared) else None


def wished_layout(
    load: Ahead | DescriptorGather, mechanism: CopyMechanism, target: SimtTarget
) -> SharedLayout | None:
    """Return the shared layout that the first matmul reading the tile prefers.

    If the mechanism cannot fill that one, return the layout that the matmul, or else the first
    layout conversion, reads best, as far as the mechanism can fill it.
    """
    (result,) = load.results
    assert isinstance(result.type, TileType)
    shape, element = result.type.shape, result.type.element
    layout, reader = layout_of(result), _converted_to(result)
    for view, matmul, position in matmuls_of(result):
        wishes, own = _wanted(matmul, position, target)
        for wished in wishes:
            if mechanism.can_fill(shared := view.unviewed_shared(wished, shape), element):
                return shared
        reader = reader if own is None else view.unviewed(own, shape)
        break
    if reader is not None:
        size = storage_size(element)
        shared = shared_between(
            layout, reader, size, target.resources.max_access, target.resources.banks
        )
        if mechanism.can_fill(shared, element):
            return shared
        offered = mechanism.layouts(shape, element) if mechanism.layouts is not None else ()
        fitting = [
            one
            for one in (*offered, SharedLayout.row_major(shape))
            if mechanism.can_fill(one, element)
        ]
        return min(
            fitting,
            key=lambda one: transactions(
                reader, one, size, target.resources.max_access, target.resources.banks
            )[::-1],
            default=None,
        )
    plain = SharedLayout.row_major(shape)
    return plain if mechanism.can_fill(plain, element) else None


def _wanted(
    matmul: Operation, position: int, target: SimtTarget
) -> tuple[Sequence[SharedLayout], LinearLayout | None]:
    """Return a matmul operand's preferred shared layouts, best first, and its register layout.

    The register layout is None if matrix instructions read the operand from shared memory.
    """
    if not isinstance(matmul, Multiplication):
        return (), layout_of(matmul.operands[position])
    plan = plan_of(matmul, target)
    by_instructions = plan.reads[position] != REGISTERS and not plan.by_threads
    return plan.wishes(position), None if by_instructions else plan.operand(position)


def matmuls_of(value: Value) -> Iterator[tuple[View, Operation, int]]:
    """Yield (view, matmul, operand position) for the matmuls that read a tile.

    The tile may be converted to another layout, and viewed in another shape.
    """
    for view in views_of(value):
        for reader in _through_conversions(view.value):
            for user in reader.uses:
                if isinstance(user, MULTIPLYING):
                    for position, factor in enumerate(factors(user)):
                        if factor is reader:
                            yield view, user, position


def _converted_to(value: Value) -> LinearLayout | None:
    """Return the layout of the first conversion of a tile; None if it is not converted.

    A matmul's operand may be computed from the tile in that layout.
    """
    assert isinstance(value.type, TileType)
    for view in views_of(value):
        for user in view.value.uses:
            if isinstance(user, Convert):
                return view.unviewed(layout_of(user.results[0]), value.type.shape)
    return None


def _through_conversions(value: Value) -> list[Value]:
    converted = [user.results[0] for user in value.uses if isinstance(user, Convert)]
    return [
        value,
        *converted,
        *(user.results[0] for one in converted for user in one.uses if isinstance(user, Bitcast)),
    ]


def stepped_matmul(loop: For, loads: list[Ahead], target: SimtTarget) -> PlannedDot | None:
    """Return the matmul whose first K step can be prefetched in the iteration before.

    Both of its operands must be prefetched and have no other use, and it must be the last to read
    copied tiles. None if there is no such matmul.
    """
    (body,) = loop.regions
    sources = {load.results[0] for load in loads}
    matmul: PlannedDot | None = None
    own: tuple[Value, ...] = ()
    earlier: set[Operation] = set()
    before: set[Operation] = set()
    for operation in body:
        if isinstance(operation, PlannedDot) and _has_steps(operation, target):
            first, second = (_only_source(operand) for operand in (operation.a, operation.b))
            if (
                first is not None
                and second is not None
                and first is not second
                and first in sources
                and second in sources
            ):
                matmul, own, earlier = operation, (first, second), set(before)
        before.add(operation)
    others = [value for value in sources if value not in own]
    return (
        matmul if all(reader in earlier for value in others for reader in _readers(value)) else None
    )


def _readers(value: Value) -> Iterator[Operation]:
    """Operations before which a copied tile may be read from shared memory."""
    for view in views_of(value):
        for user in view.value.uses:
            yield user
            if isinstance(user, Convert):
                yield from (
                    reader for reader in user.results[0].uses if isinstance(reader, Multiplication)
                )


def _has_steps(matmul: PlannedDot, target: SimtTarget) -> bool:
    plan = plan_of(matmul, target)
    return plan.reads == (REGISTERS, REGISTERS) and 0 < plan.k_step < plan.a.shape[-1]


def _only_source(operand: Value) -> Value | None:
    """Return the tile that a matmul's operand is a view of, if only the matmul reads it.

    None if the operand is no view of a copied tile.
    """
    value = operand
    while len(value.uses) == 1:
        operation = value.definition
        if operation is None:
            return None
        if not (renames(operation) or (isinstance(operation, Convert) and value is operand)):
            return value
        value = operation.x
    return None
