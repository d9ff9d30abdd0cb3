"""The inner loop of a loop nest, over the vector strips of a row, and its versions.

Masks bound the lanes of a row. Strips below the bound are evaluated without masks, several at a
time; the strip that the bound cuts is evaluated with masks; strips beyond it are skipped where they
have no effect. Conditions that do not depend on the lane are decided once a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tilewright.ir.core import Value
from tilewright.ir.ops.memory import Load, Store
from tilewright_cpu.codegen.analysis.contiguity import assuming
from tilewright_cpu.codegen.analysis.mask_bounds import emit_limit
from tilewright_cpu.codegen.context import ZERO, Coordinate, Index, with_coordinate
from tilewright_cpu.codegen.loops.evaluate import evaluate
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, Root
from tilewright_cpu.codegen.sanitizer.nest_bounds import decidable, emit_inside

if TYPE_CHECKING:
    from tilewright.llvm.emission.writer import BasicBlock

#: Writes the code of one strip: (index, carried values, number of the unrolled copy) -> next
#: carried values.
Body = Callable[[Index, list[str], int], Sequence[str]]
#: Above this many strips a row is a loop; up to it, straight code.
_STRAIGHT_STRIPS: Final = 4


def version_row(
    plan: NestPlan, index: Index, write: Callable[[], list[tuple[str, str]]], stores_only: bool
) -> list[str]:
    """Write a row twice: for the case that all its row conditions hold, and for the other one.

    ``write`` writes the row and returns (type, name) of what it computed. With ``stores_only`` a
    row whose store conditions do not all hold is skipped. Where the loop nest checks bounds, that
    all it may access is inside is one of the conditions.
    """
    context, writer = plan.context, plan.context.writer
    decided = _decidable(plan)
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
    incoming: list[tuple[list[tuple[str, str]], BasicBlock]] = []
    saved_limits = dict(context.limits)
    with context.scope(then, leaves, floor=bool(decided)), context.trusting(decided):
        incoming.append((write(), writer.current))
    context.limits = saved_limits
    writer.branch(join)
    if not only_stores:
        writer.place(other)
        stored = (
            [root for root in plan.row_conditions if root[0] in plan.store_conditions]
            if stores_only
            else []
        )
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
        results.append(
            writer.phi(type_, [(values[number][1], block) for values, block in incoming])
        )
    return results


def _decidable(plan: NestPlan) -> list[Load | Store]:
    """Return the accesses whose bounds one check decides for the whole loop nest."""
    if not plan.accesses or plan.lane < 0 or not plan.context.state.checks.accesses:
        return []
    with assuming(plan.context, plan.consecutive):
        return decidable(plan.context, plan.accesses, bool(plan.outer_axes()))


class InnerLoop:
    """The loop over the lanes of one row.

    ``carried`` are (type, first value) of one group of accumulators; each unrolled copy has a group
    of its own. ``stop`` is an i64 from which on lanes need not be visited (None: all are). Lanes
    left over where the extent is no multiple of the width go to ``body`` in narrower strips, or to
    ``rest`` where one is given.
    """

    def __init__(
        self,
        plan: NestPlan,
        index: Index,
        body: Body,
        carried: Sequence[tuple[str, str]] = (),
        rest: Callable[[Index], None] | None = None,
    ) -> None:
        self.plan, self.index, self.body, self.rest = plan, index, body, rest
        self.context, self.writer = plan.context, plan.context.writer
        self.carried = carried
        #: accumulators to go on from, instead of copies of ``carried``
        self.initial: list[list[str]] = []

    def _strip(self, coordinate: Coordinate, width: int, values: list[str], copy: int) -> list[str]:
        index = with_coordinate(self.index, self.plan.lane, coordinate._replace(width=width))
        self.context.nest_index = index
        return list(self.body(index, values, copy))

    def limit(self) -> tuple[str, frozenset[Value]] | None:
        """The minimum of this row's bounds, and the comparisons that hold below it.

        Each bound is recorded for strips that it cuts.
        """
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

    def run(
        self, stop: str | None = None, limit: tuple[str, frozenset[Value]] | None = None
    ) -> list[list[str]]:
        """Write the loops; the groups of accumulators after them."""
        context = self.context
        saved, context.row = (
            context.row,
            (list(context.scopes), context.floor, context.assumed, context.axis_strides),
        )
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
        strips = extent // width
        whole = strips * width
        if limit is None:
            limit = self.limit()
        rows = len(plan.outer_axes()) > 0
        straight = (
            strips <= _STRAIGHT_STRIPS and (rows or strips <= 2) and plan.cost * strips <= 160
        )
        copies = min(plan.unroll if not straight else strips, 4, strips)
        if not straight and not self.carried and strips <= 2 * copies:
            copies = 1  # a loop of few iterations takes longer to compile than it saves
        groups = [list(first) for _ in range(copies)]
        if self.initial:
            copies, straight = len(self.initial), False
            groups = [list(group) for group in self.initial]
        few = (
            not rows
            and not straight
            and limit is not None
            and strips <= _STRAIGHT_STRIPS
            and self.context.state.hardware.can("mask")
        )
        if (plan.brief or few) and not self.carried:
            groups = (
                self._bounded(whole, groups, False, None, stop)
                if strips > 1
                else self._straight(groups, strips)
            )
        elif limit is None and stop is None:
            groups = self._all(strips, groups, straight)
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

    def _straight(self, groups: list[list[str]], strips: int) -> list[list[str]]:
        width = self.plan.width
        for strip in range(strips):
            copy = strip % len(groups)
            groups[copy] = self._strip(Coordinate(str(strip * width)), width, groups[copy], copy)
        return groups

    def _loop(
        self,
        lower: str,
        upper: str,
        step: int,
        groups: list[list[str]],
        *,
        nonempty: bool = False,
        assume: frozenset[Value] = frozenset(),
    ) -> list[list[str]]:
        """A loop that takes one strip a group an iteration; groups keep their number."""
        flat = [
            (type_, value)
            for group in groups
            for (type_, _), value in zip(self.carried, group, strict=True)
        ]
        width, count = self.plan.width, len(self.carried)
        with self.context.loop(lower, upper, step, flat, nonempty=nonempty, assume=assume) as (
            loop,
            coordinate,
        ):
            following: list[str] = []
            for copy in range(len(groups)):
                at = coordinate
                if copy:
                    at = Coordinate(
                        self.writer.emit(f"add nuw nsw i64 {coordinate.base}, {copy * width}"),
                        coordinate.depth,
                    )
                following.extend(
                    self._strip(at, width, loop.values[copy * count : (copy + 1) * count], copy)
                )
            loop.next_values = following
        results = loop.results
        return [results[copy * count : (copy + 1) * count] for copy in range(len(groups))]

    def _all(self, strips: int, groups: list[list[str]], straight: bool) -> list[list[str]]:
        if straight:
            return self._straight(groups, strips)
        width, copies = self.plan.width, len(groups)
        main = strips // copies * copies
        groups = self._loop("0", str(main * width), copies * width, groups, nonempty=True)
        for strip in range(main, strips):
            copy = strip - main
            groups[copy] = self._strip(Coordinate(str(strip * width)), width, groups[copy], copy)
        return groups

    def _bounded(
        self,
        whole: int,
        groups: list[list[str]],
        straight: bool,
        limit: tuple[str, frozenset[Value]] | None,
        stop: str | None,
    ) -> list[list[str]]:
        writer, width = self.writer, self.plan.width
        end = (
            str(whole)
            if stop is None
            else writer.intrinsic("llvm.umin", "i64", [("i64", stop), ("i64", str(whole))])
        )
        if limit is None:
            return self._one_by_one("0", end, groups)
        lanes, leaves = limit
        if straight:
            return self._versioned(whole, groups, lanes, leaves, end)
        inside = lanes
        if whole < self.plan.shape[self.plan.lane]:
            inside = writer.intrinsic("llvm.umin", "i64", [("i64", lanes), ("i64", str(whole))])
        copies = len(groups)
        strip_end = writer.emit(f"and i64 {inside}, {-width}")
        start = "0"
        if copies > 1:
            if copies & (copies - 1) == 0:
                start = writer.emit(f"and i64 {inside}, {-width * copies}")
            else:
                turns = writer.emit(f"udiv i64 {inside}, {width * copies}")
                start = writer.emit(f"mul i64 {turns}, {width * copies}")
            groups = self._loop("0", start, copies * width, groups, assume=leaves)
        groups[0] = self._loop(start, strip_end, width, groups[:1], assume=leaves)[0]
        groups[0] = self._loop(strip_end, end, width, groups[:1])[0]
        return groups

    def _one_by_one(self, start: str, end: str, groups: list[list[str]]) -> list[list[str]]:
        groups[0] = self._loop(start, end, self.plan.width, groups[:1])[0]
        return groups

    def _versioned(
        self, whole: int, groups: list[list[str]], lanes: str, leaves: frozenset[Value], end: str
    ) -> list[list[str]]:
        """Write two versions of few strips: unmasked if the bound is the extent, or one by one."""
        writer, context = self.writer, self.context
        full = writer.emit(f"icmp uge i64 {lanes}, {whole}")
        then, other, join = (
            writer.new_block("full"),
            writer.new_block("cut"),
            writer.new_block("join"),
        )
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
            [
                writer.phi(type_, [(a, one_end), (b, two_end)])
                for (type_, _), a, b in zip(self.carried, first, second, strict=True)
            ]
            for first, second in zip(one, two, strict=True)
        ]
