"""Loop nests: one loop an outer axis, and along the lane axis a loop over vector chunks.

Masks bound the lanes of a row. Chunks below the bound are evaluated without masks, several at a time; the chunk that the bound cuts is evaluated with
masks; chunks beyond it are skipped where they have no effect. Conditions that do not depend on the lane are decided once a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.errors import LoweringError
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Reshape
from tilewright.ir.types import I1, FloatType, IntType, PointerType, TileType, element_type
from tilewright.llvm.registers import storage_size
from tilewright.passes.transfer import unit_reshape
from tilewright_cpu.lowering.analysis import cost_of_one, is_lazy
from tilewright_cpu.lowering.context import ZERO, Context, Coordinate, Index
from tilewright_cpu.lowering.contiguity import assuming
from tilewright_cpu.lowering.evaluate import evaluate, with_coordinate
from tilewright_cpu.lowering.masks import Axes, Bound, bound_of, conjuncts, emit_limit, operand_axes
from tilewright_cpu.lowering.nest_bounds import decidable, emit_inside
from tilewright_cpu.lowering.strides import form

if TYPE_CHECKING:
    from tilewright.llvm.writer import Block

#: A root of a nest: a tile, and the nest's axis each of its axes runs along.
Root = tuple[Value, Axes]
#: Writes the code of one chunk: (index, carried values, number of the unrolled copy) -> next carried values.
Body = Callable[[Index, list[str], int], Sequence[str]]
#: Above this many chunks a row is a loop; up to it, straight code.
STRAIGHT_CHUNKS = 4


def identity(rank: int) -> Axes:
    return tuple(range(rank))


class Plan:
    """How a nest over ``shape`` evaluates its roots.

    Attributes:
        lane: the axis of the lanes; -1 where every extent is 1.
        width: lanes of a chunk.
        unroll: chunks a turn of the main loop takes.
        bounds: comparisons that bound the lanes.
        row_conditions: conditions of loads' and stores' masks that a row decides, with their axes.
        accesses: the loads that are evaluated, and the store whose nest it is.
        leading: an i64, how far along the first axis the nest goes where that is no axis of lanes; None for all of it.
    """

    __slots__ = (
        "accesses",
        "bounds",
        "brief",
        "consecutive",
        "context",
        "cost",
        "fresh",
        "lane",
        "leading",
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
    ) -> None:
        self.context, self.shape, self.roots = context, shape, roots
        self.leading: str | None = None
        self.fresh: list[Value] = []
        self.accesses: list[Load | Store] = []
        visited = self._prepare(volatile)
        maybe = [value for value in visited if value in context.consecutive]
        with assuming(context, maybe):
            self.lane = self._choose_lane(visited) if lane is None else lane
            self.width = self._choose_width(visited)
            self.cost = self._cost(visited)
        #: index tiles along the lanes that are taken for consecutive where they are
        self.consecutive = [value for value in maybe if self.lane in visited[value]]
        self._decide_kept()
        self.unroll = 4 if self.cost <= 24 else 2 if self.cost <= 64 else 1
        self.bounds: list[Bound] = []
        #: whether what is being written is for rows that are seldom met, in as little code as may be
        self.brief = False
        self.row_conditions: list[Root] = []
        self.store_conditions: set[Value] = set()
        self._find_conditions(visited, store_mask)

    # ---- what is evaluated

    def _prepare(self, volatile: bool) -> dict[Value, Axes]:
        """Put into memory what cannot be evaluated in this nest; all the values that are."""
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
            if operation is None or not (is_lazy(operation) or (volatile and isinstance(operation, Load))):
                where = operation.name if operation is not None else "a region's argument"
                raise LoweringError(f"a tile made by {where} is read before it is in memory, by {context.operation!r}")
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
                self.accesses.append(operation)
            for number, operand in enumerate(operation.operands):
                stack.append((operand, operand_axes(value, axes, number)))
        for value in twice:
            visited[value] = ()
        return visited

    def _choose_lane(self, visited: dict[Value, Axes]) -> int:
        """The axis along which most accesses are consecutive; the last one if that is no help."""
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
                    if axis in votes and type_.shape[number] > 1 and form(context, value, number) == size:
                        votes[axis] += type_.numel
        return max(candidates, key=lambda axis: (votes[axis], axis))

    def _choose_width(self, visited: dict[Value, Axes]) -> int:
        if self.lane < 0:
            return 0
        widest = 1
        for value, axes in visited.items():
            element = element_type(value.type)
            if isinstance(element, FloatType):
                size = max(4, element.bits // 8) if value.definition is not None and value.definition.name not in ("load", "select") else element.bits // 8
            elif isinstance(element, IntType) and element is not I1:
                size = element.bits // 8
                if size > widest and len(axes) == len(value.type.shape) and self.lane in axes:  # type: ignore[attr-defined]
                    step = form(self.context, value, axes.index(self.lane))
                    if step is not None:
                        continue
            else:
                continue
            widest = max(widest, size)
        if widest == 1 and not any(isinstance(element_type(value.type), IntType | FloatType) and element_type(value.type) is not I1 for value in visited):
            widest = 8 if any(isinstance(element_type(value.type), PointerType) for value in visited) else 1
        width = max(1, self.context.state.machine.vector_bytes // widest)
        extent = self.shape[self.lane]
        while width > extent:
            width //= 2
        return width

    def _decide_kept(self) -> None:
        """A kept tile that is uniform along the lanes is not evaluated once a chunk, so it gets a nest of its own."""
        context = self.context
        for value in list(self.fresh):
            if self.lane < 0 or form(context, value, self.lane) is not None:
                self.fresh.remove(value)
                context.materialize(value)

    def _cost(self, visited: dict[Value, Axes]) -> int:
        context, lane, cost = self.context, self.lane, 0
        for value, axes in visited.items():
            operation = value.definition
            if operation is None or value in context.buffers or isinstance(element_type(value.type), PointerType):
                cost += 1
            elif lane in axes and form(context, value, axes.index(lane)) is None:
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
            if operation is None or value in context.buffers or len(axes) != value.type.rank:  # type: ignore[attr-defined]
                continue
            if isinstance(operation, Load):
                if operation.mask is not None:
                    masks.append((operation.mask, axes, True))
            elif isinstance(operation, Select):
                masks.append((operation.condition, axes, False))
        for mask, axes, access in masks:
            for leaf, leaf_axes in conjuncts(context, mask, axes):
                if leaf in self.context.buffers or (leaf in visited and len(visited[leaf]) != len(leaf_axes)):
                    continue
                if mask is store_mask:
                    self.store_conditions.add(leaf)
                if leaf in seen:
                    continue
                seen.add(leaf)
                uniform = self.lane not in leaf_axes or form(context, leaf, leaf_axes.index(self.lane)) == 0
                if uniform:
                    if access:
                        self.row_conditions.append((leaf, leaf_axes))
                    continue
                bound = bound_of(context, leaf, leaf_axes, self.lane)
                if bound is not None:
                    self.bounds.append(bound)

    def decidable(self) -> list[Load | Store]:
        """The accesses whose bounds are checked for the whole nest."""
        if not self.accesses or self.lane < 0 or not self.context.state.checks.accesses:
            return []
        with assuming(self.context, self.consecutive):
            return decidable(self.context, self.accesses, bool(self.outer_axes()))

    def without_versions(self) -> None:
        """Write a row once, for all that its conditions and bounds may be: every chunk under its mask."""
        if not self.consecutive:
            self.brief, self.row_conditions = True, []

    # ---- loops

    def outer_axes(self) -> list[int]:
        return [axis for axis, extent in enumerate(self.shape) if axis != self.lane and extent > 1]

    def rows(self, skip: int = -1) -> Iterator[Index]:
        """Loops over the outer axes but ``skip``: write one row in the body of a ``for`` over this. The index has 0 along the lanes."""
        axes = [axis for axis in self.outer_axes() if axis != skip]
        index = [ZERO] * len(self.shape)
        yield from self._loops(axes, index)

    def _loops(self, axes: list[int], index: list[Coordinate]) -> Iterator[Index]:
        if not axes:
            yield tuple(index)
            return
        end = self.leading if axes[0] == 0 else None
        with self.context.loop("0", end or str(self.shape[axes[0]]), 1, nonempty=end is None) as (_, coordinate):
            index[axes[0]] = coordinate
            yield from self._loops(axes[1:], index)


def decide_row(plan: Plan, index: Index, write: Callable[[], list[tuple[str, str]]], stores_only: bool) -> list[str]:
    """Write a row twice: for the case that all its row conditions hold, and for the other one.

    ``write`` writes the row and gives back (type, name) of what it computed. With ``stores_only`` a row whose store conditions do not all hold is
    skipped. Where the nest checks bounds, that all it may access is inside is one of the conditions.
    """
    context, writer = plan.context, plan.context.writer
    decided = plan.decidable()
    if not plan.row_conditions and not plan.consecutive and not decided:
        return [name for _, name in write()]

    def holds(conditions: Sequence[Root]) -> str | None:
        result: str | None = None
        for leaf, axes in conditions:
            own = tuple(ZERO if axis is None or axis == plan.lane else index[axis] for axis in axes)
            text = evaluate(context, leaf, own)
            result = text if result is None else writer.emit(f"and i1 {result}, {text}")
        return result

    conditions = frozenset(leaf for leaf, _ in plan.row_conditions)
    leaves = conditions | frozenset(plan.consecutive)
    condition = holds(plan.row_conditions)
    for value in plan.consecutive:
        flag = context.consecutive[value]
        condition = flag if condition is None else writer.emit(f"and i1 {condition}, {flag}")
    if decided:
        with context.ahead_of_nest(), assuming(context, plan.consecutive):
            inside = emit_inside(context, decided)
        condition = inside if condition is None else writer.emit(f"and i1 {condition}, {inside}")
    assert condition is not None
    scope = context.scopes[-1]
    scope.block = writer.current
    only_stores = stores_only and not decided and leaves <= plan.store_conditions
    then, join = writer.new_block("row"), writer.new_block("join")
    other = join if only_stores else writer.new_block("edge")
    writer.branch_if(condition, then, other)
    writer.place(then)
    incoming: list[tuple[list[tuple[str, str]], Block]] = []
    saved_limits = dict(context.limits)
    with context.scope(then, leaves, floor=bool(decided)), context.trusting(decided):
        incoming.append((write(), writer.current))
    context.limits = saved_limits
    writer.branch(join)
    if not only_stores:
        writer.place(other)
        stored = [root for root in plan.row_conditions if root[0] in plan.store_conditions] if stores_only else []
        with context.scope(other, floor=True):
            kept = holds(stored)
            if kept is not None:
                inner = writer.new_block("edge")
                context.scopes[-1].block = writer.current
                writer.branch_if(kept, inner, join)
                writer.place(inner)
                with context.scope(inner, frozenset(leaf for leaf, _ in stored)):
                    write()
            else:
                # what is not consecutive in one row is not in most of them
                plan.brief = not plan.consecutive
                incoming.append((write(), writer.current))
                plan.brief = False
        context.limits = dict(saved_limits)
        writer.branch(join)
    writer.place(join)
    results = []
    for number, (type_, _) in enumerate(incoming[0][0]):
        results.append(writer.phi(type_, [(values[number][1], block) for values, block in incoming]))
    return results


class Lanes:
    """The loop over the lanes of one row.

    ``carried`` are (type, first value) of one group of accumulators; each unrolled copy has a group of its own. ``stop`` is an i64 from which on lanes
    need not be visited (None: all are). Lanes left over where the extent is no multiple of the width go to ``body`` in narrower chunks, or to
    ``rest`` where one is given.
    """

    def __init__(self, plan: Plan, index: Index, body: Body, carried: Sequence[tuple[str, str]] = (), rest: Callable[[Index], None] | None = None) -> None:
        self.plan, self.index, self.body, self.rest = plan, index, body, rest
        self.context, self.writer = plan.context, plan.context.writer
        self.carried = carried
        #: accumulators to go on from, instead of copies of ``carried``
        self.initial: list[list[str]] = []

    def _chunk(self, coordinate: Coordinate, width: int, values: list[str], copy: int) -> list[str]:
        index = with_coordinate(self.index, self.plan.lane, coordinate._replace(width=width))
        self.context.nest_index = index
        return list(self.body(index, values, copy))

    def limit(self) -> tuple[str, frozenset[Value]] | None:
        """The smallest bound of this row, and the comparisons that hold below it. Notes each bound for chunks that it cuts."""
        context, plan = self.context, self.plan
        lowest: str | None = None
        for bound in plan.bounds:
            text = emit_limit(context, bound, self.index, plan.shape[plan.lane])
            context.limits[(bound.leaf, bound.axis)] = text
            if lowest is None:
                lowest = text
            elif lowest != text:
                lowest = self.writer.intrinsic("llvm.umin", "i64", [("i64", lowest), ("i64", text)])
        if lowest is None:
            return None
        return lowest, frozenset(bound.leaf for bound in plan.bounds)

    def run(self, stop: str | None = None, limit: tuple[str, frozenset[Value]] | None = None) -> list[list[str]]:
        """Write the loops; the groups of accumulators after them."""
        context = self.context
        saved, context.row = context.row, (list(context.scopes), context.floor, context.assumed, context.forms)
        try:
            return self._run(stop, limit)
        finally:
            context.row = saved

    def _run(self, stop: str | None, limit: tuple[str, frozenset[Value]] | None) -> list[list[str]]:
        plan, width = self.plan, self.plan.width
        first = [value for _, value in self.carried]
        if plan.lane < 0:
            self.context.nest_index = self.index
            return [list(self.body(self.index, first, 0))]
        extent = plan.shape[plan.lane]
        chunks = extent // width
        whole = chunks * width
        if limit is None:
            limit = self.limit()
        rows = len(plan.outer_axes()) > 0
        straight = chunks <= STRAIGHT_CHUNKS and (rows or chunks <= 2) and plan.cost * chunks <= 160
        copies = min(plan.unroll if not straight else chunks, 4, chunks)
        if not straight and not self.carried and chunks <= 2 * copies:
            copies = 1  # a loop of few turns takes longer to compile than it saves
        groups = [list(first) for _ in range(copies)]
        if self.initial:
            copies, straight = len(self.initial), False
            groups = [list(group) for group in self.initial]
        few = not rows and not straight and limit is not None and chunks <= STRAIGHT_CHUNKS and self.context.state.machine.can("mask")
        if (plan.brief or few) and not self.carried:
            groups = self._bounded(whole, groups, False, None, stop) if chunks > 1 else self._straight(groups, chunks)
        elif limit is None and stop is None:
            groups = self._all(chunks, groups, straight)
        else:
            groups = self._bounded(whole, groups, straight, limit, stop)
        position = whole
        piece = width
        while position < extent:
            while position + piece > extent:
                piece //= 2
            coordinate = Coordinate(str(position), 0, piece)
            index = with_coordinate(self.index, plan.lane, coordinate)
            self.context.nest_index = index
            if self.rest is not None:
                self.rest(index)
            else:
                self.body(index, [], 0)
            position += piece
        return groups

    def _straight(self, groups: list[list[str]], chunks: int) -> list[list[str]]:
        width = self.plan.width
        for chunk in range(chunks):
            copy = chunk % len(groups)
            groups[copy] = self._chunk(Coordinate(str(chunk * width)), width, groups[copy], copy)
        return groups

    def _loop(
        self, lower: str, upper: str, step: int, groups: list[list[str]], *, nonempty: bool = False, assume: frozenset[Value] = frozenset()
    ) -> list[list[str]]:
        """A loop that takes one chunk a group a turn; groups keep their number."""
        flat = [(type_, value) for group in groups for (type_, _), value in zip(self.carried, group, strict=True)]
        width, count = self.plan.width, len(self.carried)
        with self.context.loop(lower, upper, step, flat, nonempty=nonempty, assume=assume) as (loop, coordinate):
            following: list[str] = []
            for copy in range(len(groups)):
                at = coordinate
                if copy:
                    at = Coordinate(self.writer.emit(f"add nuw nsw i64 {coordinate.base}, {copy * width}"), coordinate.depth)
                following.extend(self._chunk(at, width, loop.values[copy * count : (copy + 1) * count], copy))
            loop.next_values = following
        results = loop.results
        return [results[copy * count : (copy + 1) * count] for copy in range(len(groups))]

    def _all(self, chunks: int, groups: list[list[str]], straight: bool) -> list[list[str]]:
        if straight:
            return self._straight(groups, chunks)
        width, copies = self.plan.width, len(groups)
        main = chunks // copies * copies
        groups = self._loop("0", str(main * width), copies * width, groups, nonempty=True)
        for chunk in range(main, chunks):
            copy = chunk - main
            groups[copy] = self._chunk(Coordinate(str(chunk * width)), width, groups[copy], copy)
        return groups

    def _bounded(self, whole: int, groups: list[list[str]], straight: bool, limit: tuple[str, frozenset[Value]] | None, stop: str | None) -> list[list[str]]:
        writer, _context, width = self.writer, self.context, self.plan.width
        end = str(whole) if stop is None else writer.intrinsic("llvm.umin", "i64", [("i64", stop), ("i64", str(whole))])
        if limit is None:
            return self._one_by_one("0", end, groups)
        lanes, leaves = limit
        if straight:
            return self._versioned(whole, groups, lanes, leaves, end)
        inside = lanes
        if whole < self.plan.shape[self.plan.lane]:
            inside = writer.intrinsic("llvm.umin", "i64", [("i64", lanes), ("i64", str(whole))])
        copies = len(groups)
        chunk_end = writer.emit(f"and i64 {inside}, {-width}")
        start = "0"
        if copies > 1:
            if copies & (copies - 1) == 0:
                start = writer.emit(f"and i64 {inside}, {-width * copies}")
            else:
                turns = writer.emit(f"udiv i64 {inside}, {width * copies}")
                start = writer.emit(f"mul i64 {turns}, {width * copies}")
            groups = self._loop("0", start, copies * width, groups, assume=leaves)
        groups[0] = self._loop(start, chunk_end, width, groups[:1], assume=leaves)[0]
        groups[0] = self._loop(chunk_end, end, width, groups[:1])[0]
        return groups

    def _one_by_one(self, start: str, end: str, groups: list[list[str]]) -> list[list[str]]:
        groups[0] = self._loop(start, end, self.plan.width, groups[:1])[0]
        return groups

    def _versioned(self, whole: int, groups: list[list[str]], lanes: str, leaves: frozenset[Value], end: str) -> list[list[str]]:
        """Few chunks: all of them without masks if the bound is no less than the extent, else one by one."""
        writer, context = self.writer, self.context
        full = writer.emit(f"icmp uge i64 {lanes}, {whole}")
        then, other, join = writer.new_block("full"), writer.new_block("cut"), writer.new_block("join")
        context.scopes[-1].block = writer.current
        writer.branch_if(full, then, other)
        writer.place(then)
        before = [list(group) for group in groups]
        with context.scope(then, leaves):
            one = self._straight(groups, whole // self.plan.width)
            one_end = writer.current
        writer.branch(join)
        writer.place(other)
        with context.scope(other):
            two = self._one_by_one("0", end, before)
            two_end = writer.current
        writer.branch(join)
        writer.place(join)
        return [
            [writer.phi(type_, [(a, one_end), (b, two_end)]) for (type_, _), a, b in zip(self.carried, first, second, strict=True)]
            for first, second in zip(one, two, strict=True)
        ]
