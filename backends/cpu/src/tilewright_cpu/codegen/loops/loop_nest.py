"""Loop nests: a loop for each outer axis, and along the lane axis rows of vector strips.

A :class:`NestPlan` decides what bounds the lanes of rows and which conditions decide on whole rows;
:mod:`.inner_loop` writes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.errors import LoweringError
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Reshape
from tilewright.ir.types import (
    I1,
    FloatType,
    IntType,
    PointerType,
    TileType,
    element_type,
    shape_of,
)
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.transfer_functions import unit_reshape
from tilewright_cpu.codegen.analysis.contiguity import assuming
from tilewright_cpu.codegen.analysis.mask_bounds import (
    Axes,
    PrefixBound,
    bound_of,
    operand_axes,
    placed_conjuncts,
)
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import cost_of_one, is_lazy
from tilewright_cpu.codegen.context import ZERO, Buffer, Context, Coordinate, Index

if TYPE_CHECKING:
    pass

#: A root of a loop nest: a tile, and the loop nest's axis each of its axes runs along.
Root = tuple[Value, Axes]


def identity(rank: int) -> Axes:
    return tuple(range(rank))


class NestPlan:
    """Plan of a loop nest over ``shape`` that evaluates its roots.

    Attributes:
        lane: the axis of the lanes; -1 where every extent is 1.
        width: lanes of a vector strip.
        unroll: strips of an iteration of the main loop.
        bounds: comparisons that bound the lanes.
        row_conditions: conditions of loads' and stores' masks that a row decides, with their axes.
        accesses: the loads that are evaluated, and the store whose loop nest it is.
        ends: by axis, an i64: how far along it the loop nest goes at least; all of it where there
        is
            none.
    """

    __slots__ = (
        "accesses",
        "bounds",
        "brief",
        "consecutive",
        "context",
        "cost",
        "ends",
        "fresh",
        "lane",
        "roots",
        "row_conditions",
        "shape",
        "store_conditions",
        "unroll",
        "width",
    )

    def __init__(
        self,
        context: Context,
        shape: tuple[int, ...],
        roots: Sequence[Root],
        store_mask: Value | None = None,
        *,
        lane: int | None = None,
        volatile: bool = False,
        target: Buffer | None = None,
    ) -> None:
        self.context, self.shape, self.roots = context, shape, roots
        self.ends: Mapping[int, str] = {}
        self.fresh: list[Value] = []
        self.accesses: list[Load | Store] = []
        visited = self._prepare(volatile)
        maybe = [value for value in visited if value in context.consecutive]
        with assuming(context, maybe):
            self.lane = self._choose_lane(visited, target) if lane is None else lane
            self.width = self._choose_width(visited)
            self.cost = self._cost(visited)
        #: index tiles along the lanes that are treated as consecutive where they are
        self.consecutive = [value for value in maybe if self.lane in visited[value]]
        self._split_off_uniform()
        self.unroll = 4 if self.cost <= 24 else 2 if self.cost <= 64 else 1
        self.bounds: list[PrefixBound] = []
        #: whether what is being written is for rows that are seldom met, in as little code as may
        #: be
        self.brief = False
        self.row_conditions: list[Root] = []
        self.store_conditions: set[Value] = set()
        self._find_conditions(visited, store_mask)

    # ---- what is evaluated

    def _prepare(self, volatile: bool) -> dict[Value, Axes]:
        """Put into memory what cannot be evaluated in this loop nest; all the values that are."""
        context = self.context
        own = identity(len(self.shape))
        visited: dict[Value, Axes] = {}
        twice: set[Value] = set()
        seen: set[Root] = set()
        stack: list[Root] = [(context.resolve(value), axes) for value, axes in reversed(self.roots)]
        while stack:
            value, axes = stack.pop()
            type_ = value.type
            if not isinstance(type_, TileType):
                continue
            value = context.resolve(value)
            if (value, axes) in seen:
                continue
            seen.add((value, axes))
            if value in visited:
                twice.add(value)
            visited[value] = axes
            if value in context.buffers:
                continue
            operation = value.definition
            if operation is None or not (
                is_lazy(operation) or (volatile and isinstance(operation, Load))
            ):
                where = operation.name if operation is not None else "a region's argument"
                raise LoweringError(
                    f"a tile made by {where} is read before it is in memory, by "
                    f"{context.operation!r}"
                )
            if isinstance(operation, Reshape):
                source = operation.x.type
                assert isinstance(source, TileType)
                if unit_reshape(source.shape, type_.shape) is None:
                    context.materialize(value)
                    continue
            written = context.analysis.written_by_first_nest(value)
            if written is not None and written not in self.fresh and written not in context.buffers:
                if axes == own and type_.shape == self.shape:
                    self.fresh.append(written)
                else:
                    context.materialize(value)
                    continue
            if isinstance(operation, Load):
                if self._gathers_in_each_row(operation, axes):
                    context.materialize(value)
                    continue
                self.accesses.append(operation)
            for number, operand in enumerate(operation.operands):
                stack.append((operand, operand_axes(value, axes, number)))
        for value in twice:
            visited[value] = ()
        return visited

    def _gathers_in_each_row(self, load: Load, axes: Axes) -> bool:
        """Return whether a load gathers the same elements in each row of the loop nest."""
        type_ = load.result.type
        assert isinstance(type_, TileType)
        last = len(self.shape) - 1
        if load.volatile or type_.rank != 1 or axes != (last,) or type_.numel == 1:
            return False
        if max(self.shape[:-1], default=1) == 1:
            return False
        step = stride_along(self.context, load.pointer, 0)
        return step not in (0, storage_size(type_.element))

    def _choose_lane(self, visited: dict[Value, Axes], target: Buffer | None) -> int:
        """The axis along which most accesses are consecutive; the last one if that is no help.

        The nest writes ``target``, along whose contiguous axis strips of at least half a vector are
        worth as much as reads of all but one of its elements.
        """
        context, shape = self.context, self.shape
        candidates = [axis for axis, extent in enumerate(shape) if extent > 1]
        if len(candidates) < 2:
            return candidates[0] if candidates else -1
        votes = dict.fromkeys(candidates, 0)
        for value, axes in visited.items():
            type_ = value.type
            assert isinstance(type_, TileType)
            if len(axes) != type_.rank:
                continue
            if value in context.buffers:
                strides = context.buffers[value].strides
                for axis, extent, stride in zip(axes, type_.shape, strides, strict=True):
                    if axis in votes and extent > 1 and stride == 1:
                        votes[axis] += type_.numel
            elif isinstance(type_.element, PointerType):
                size = storage_size(type_.element.pointee)
                for number, axis in enumerate(axes):
                    if (
                        axis in votes
                        and type_.shape[number] > 1
                        and stride_along(context, value, number) == size
                    ):
                        votes[axis] += type_.numel
        if target is not None:
            most = context.elements_for(target.element)
            for axis in candidates:
                if target.strides[axis] == 1 and 2 * shape[axis] >= most:
                    votes[axis] += target.numel - 1
        return max(candidates, key=lambda axis: (votes[axis], axis))

    def _choose_width(self, visited: dict[Value, Axes]) -> int:
        if self.lane < 0:
            return 0
        widest = 1
        for value, axes in visited.items():
            element = element_type(value.type)
            if isinstance(element, FloatType):
                size = (
                    max(4, element.bits // 8)
                    if value.definition is not None
                    and not isinstance(value.definition, Load | Select)
                    else element.bits // 8
                )
            elif isinstance(element, IntType) and element is not I1:
                size = element.bits // 8
                if size > widest and len(axes) == len(shape_of(value.type)):
                    # what is uniform or affine along the lanes is evaluated once a row
                    if self.lane not in axes:
                        continue
                    if stride_along(self.context, value, axes.index(self.lane)) is not None:
                        continue
            else:
                continue
            widest = max(widest, size)
        if widest == 1 and not any(
            isinstance(element_type(value.type), IntType | FloatType)
            and element_type(value.type) is not I1
            for value in visited
        ):
            widest = (
                8
                if any(isinstance(element_type(value.type), PointerType) for value in visited)
                else 1
            )
        width = max(1, self.context.state.hardware.vector_bytes // widest)
        extent = self.shape[self.lane]
        while width > extent:
            width //= 2
        return width

    def _split_off_uniform(self) -> None:
        """Give a kept tile that is uniform along the lanes a loop nest of its own.

        Here it would not be evaluated once a strip.
        """
        context = self.context
        for value in list(self.fresh):
            if self.lane < 0 or stride_along(context, value, self.lane) is not None:
                self.fresh.remove(value)
                context.materialize(value)

    def _cost(self, visited: dict[Value, Axes]) -> int:
        context, lane, cost = self.context, self.lane, 0
        for value, axes in visited.items():
            operation = value.definition
            if (
                operation is None
                or value in context.buffers
                or isinstance(element_type(value.type), PointerType)
            ):
                cost += 1
            elif lane in axes and stride_along(context, value, axes.index(lane)) is None:
                cost += cost_of_one(operation)
        return cost

    def _find_conditions(self, visited: dict[Value, Axes], store_mask: Value | None) -> None:
        context = self.context
        if self.lane < 0:
            return
        seen: set[Value] = set()
        masks: list[tuple[Value, Axes, bool]] = []
        if store_mask is not None:
            masks.append((store_mask, identity(len(self.shape)), True))
        for value, axes in visited.items():
            operation = value.definition
            whole = len(axes) == len(shape_of(value.type))
            if operation is None or value in context.buffers or not whole:
                continue
            if isinstance(operation, Load):
                if operation.mask is not None:
                    masks.append((operation.mask, axes, True))
            elif isinstance(operation, Select):
                masks.append((operation.condition, axes, False))
        for mask, axes, access in masks:
            for leaf, leaf_axes in placed_conjuncts(context, mask, axes):
                if leaf in self.context.buffers or (
                    leaf in visited and len(visited[leaf]) != len(leaf_axes)
                ):
                    continue
                if mask is store_mask:
                    self.store_conditions.add(leaf)
                if leaf in seen:
                    continue
                seen.add(leaf)
                uniform = (
                    self.lane not in leaf_axes
                    or stride_along(context, leaf, leaf_axes.index(self.lane)) == 0
                )
                if uniform:
                    if access:
                        self.row_conditions.append((leaf, leaf_axes))
                    continue
                bound = bound_of(context, leaf, leaf_axes, self.lane)
                if bound is not None:
                    self.bounds.append(bound)

    def without_versions(self) -> None:
        """Write one version of a row: every strip under its mask."""
        if not self.consecutive:
            self.brief, self.row_conditions = True, []

    # ---- loops

    def outer_axes(self) -> list[int]:
        return [axis for axis, extent in enumerate(self.shape) if axis != self.lane and extent > 1]

    def rows(self, skip: int = -1) -> Iterator[Index]:
        """Loops over the outer axes but ``skip``: write one row in the body of a ``for`` over this.

        The index has 0 along the lanes.
        """
        axes = [axis for axis in self.outer_axes() if axis != skip]
        index = [ZERO] * len(self.shape)
        yield from self._loops(axes, index)

    def _loops(self, axes: list[int], index: list[Coordinate]) -> Iterator[Index]:
        if not axes:
            yield tuple(index)
            return
        end = self.ends.get(axes[0])
        with self.context.loop("0", end or str(self.shape[axes[0]]), 1, nonempty=end is None) as (
            _,
            coordinate,
        ):
            index[axes[0]] = coordinate
            yield from self._loops(axes[1:], index)
