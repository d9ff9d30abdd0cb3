"""Bytes that memory moves for the bytes that an access uses, and strides that cause the difference.

Memory moves sectors. Where neighbouring elements of a tile are far apart in memory, each of them
costs a sector, of which the access uses one element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from tilewright.ir.core import Function, Value
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import TileType
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.analysis.access_causes import AccessCauses
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.loop_carried import operations_of_program
from tilewright.simt.dialect.ops.async_copy import LoadStart
from tilewright.simt.layouts.linear_layout import LinearLayout, coordinates, span
from tilewright.simt.target.cost_model import WarpAccess, element_size
from tilewright.simt.target.simt_target import SimtTarget

#: Bytes moved for a byte used, from which on an access is a missed optimization.
_WASTE: Final = 4
#: What such a remark says, and no other.
OF_USED: Final = " times the bytes that it uses"


class AccessWaste:
    """Bytes that the accesses of a function move."""

    def __init__(
        self, function: Function, target: SimtTarget, axes: Mapping[Value, AxisInfo]
    ) -> None:
        self._function, self._target, self._axes = function, target, axes
        self._affine = Affine(function)

    def moved(self, pointer: Value, access: WarpAccess) -> tuple[float, bool]:
        """Return the bytes that memory moves for each byte that a warp asks for, and whether the
        number is exact or an upper bound."""
        times = self._by_strides(pointer, layout_of(pointer), element_size(pointer))
        if times is not None:
            return times, True
        if max(self._axes[pointer].constancy) > 1:
            return 1.0, False  # threads that ask for the same are served by one sector
        return access.moved * self._target.costs.sector / access.asked, False

    def _by_strides(self, pointer: Value, layout: LinearLayout, size: int) -> float | None:
        """The bytes of the sectors that a warp's part of a tile is in, for each byte that its
        threads ask for; None where the distances of elements are not known. The first element is
        taken to begin a sector."""
        form = self._affine.form(pointer)
        if form is None:
            return None
        steps = {key: step.constant for key, step in form.steps if isinstance(key, int)}
        if len(steps) < len(form.steps) or any(step is None for step in steps.values()):
            return None
        strides = [(steps.get(axis) or 0) * size for axis in range(len(layout.shape))]
        places = [
            sum(map(int.__mul__, strides, coordinates(image, layout.shape)))
            for image in span([*layout.registers, *layout.lanes])
        ]
        first, sector = min(places), self._target.costs.sector
        sectors = {(place - first) // sector for place in places}
        return len(sectors) * sector / (len(places) * size)

    def remark(
        self, operation: Load | Store | LoadStart, access: WarpAccess, causes: AccessCauses
    ) -> str:
        """Return what a strided access wastes, why, and what to do; empty if it wastes little.

        Nothing is said of gathers, whose places only the data know, of tiles of less than a warp's
        elements, nor where other accesses of the function use the bytes beside.
        """
        pointer = operation.pointer
        type_, info = pointer.type, self._axes[pointer]
        assert isinstance(type_, TileType)
        if math.prod(type_.shape) < self._target.resources.warp_size:
            return ""
        times, exact = self.moved(pointer, access)
        if times < _WASTE or times / self._beside(operation) < _WASTE:
            return ""
        axis = max(range(type_.rank), key=lambda i: (type_.shape[i] > 1, info.contiguity[i], i))
        form = self._affine.form(pointer)
        if form is None or not any(key == axis for key, _ in form.steps):
            return ""
        cause = causes.of_stride(pointer, axis, 2 * info.contiguity[axis])
        if cause.loaded or cause.computed or not (cause.arguments or cause.constants):
            return ""
        strides = [f"`{name}`" for name in cause.arguments] + [
            stride.removeprefix("-") for stride in cause.constants
        ]
        stored = isinstance(operation, Store)
        when = "before the store if it has" if stored else "if the result needs"
        return (
            f"{'store' if stored else 'load'} {'moves' if exact else 'may move up to'} "
            f"{times:.2g}{OF_USED}: neighbouring elements of the tile are "
            f"{' and '.join(strides)} elements apart in memory; {'store' if stored else 'load'} a "
            f"2-D tile whose last axis is contiguous in memory, and transpose the tile (tl.trans) "
            f"{when} the other order"
        )

    def _beside(self, operation: Load | Store | LoadStart) -> int:
        """The number of elements within a sector, at known distances from an access's element,
        that accesses of its kind touch: it itself, and those that use the bytes beside."""
        here = self._affine.form(operation.pointer)
        reach = self._target.costs.sector // element_size(operation.pointer)
        if here is None:
            return 1
        distances = {0}
        for other in self._accesses(isinstance(operation, Store)):
            there = self._affine.form(other.pointer)
            if there is not None and there.base is here.base and there.steps == here.steps:
                distance = there.start.minus(here.start).constant
                if distance is not None and abs(distance) < reach:
                    distances.add(distance % reach)
        return len(distances)

    def _accesses(self, stores: bool) -> Iterator[Load | Store | LoadStart]:
        """The accesses of tiles, either all stores or all loads."""
        for operation in operations_of_program(self._function.body):
            if isinstance(operation, Store if stores else Load | LoadStart) and isinstance(
                operation.pointer.type, TileType
            ):
                yield operation
