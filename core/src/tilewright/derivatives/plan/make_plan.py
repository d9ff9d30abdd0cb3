"""Derivation of a plan: the adjoint, and kernels of other tiles for what its programs share.

The adjoint writes each gradient as the addresses of the kernel allow. Where programs add to each
other's elements, the inputs that are summed over one axis of the grid in one loop become a kernel
whose programs are the iterations (interchange); inputs that are summed outside of loops stay in
the kernel, each of whose programs then takes many places along the axis (coarsening), and leaves a
partial sum for a second kernel. An input to which several loops add gets a kernel for each of them,
of which the later ones add to what the first wrote. The kernels that result are treated in the same
way, until no sums are left, or no pass follows. Those keep their atomic additions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.analysis.write_modes import WriteMode, write_modes
from tilewright.derivatives.plan.adjoint_plan import (
    AdjointPlan,
    CheckedBox,
    CheckedConditions,
    CheckedFactor,
    Coverage,
    InputNote,
    PlannedKernel,
    ScratchBuffer,
)
from tilewright.derivatives.plan.coverage import StoredElements
from tilewright.derivatives.plan.grid_extents import (
    FORWARD_GRID,
    CoordinateAxis,
    Extent,
    FixedExtent,
    Grid,
    Iterations,
    LaunchFacts,
    Shares,
)
from tilewright.derivatives.plan.kernel_draft import KernelDraft
from tilewright.derivatives.plan.proven_writes import proven_writes, without_atomics
from tilewright.derivatives.plan.scalar_expressions import scalar_expression
from tilewright.derivatives.plan.sum_axes import SumPlaces, loop_groups, sum_places
from tilewright.derivatives.reverse_mode import AdjointRequest, adjoint_of
from tilewright.derivatives.simplify.simplify_kernel import simplify_kernel
from tilewright.derivatives.tiling.coarsen import coarsen
from tilewright.derivatives.tiling.delinearize import delinearize
from tilewright.derivatives.tiling.hoist_transposes import hoist_transposes
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.iteration_counts import iteration_counts
from tilewright.derivatives.tiling.kernel_memory import KernelMemory, NoTilingError, is_addition
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.order_stores import order_stores
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.derivatives.tiling.scratch_tiles import ScratchTile
from tilewright.derivatives.tiling.split_tiles import split_tiles
from tilewright.derivatives.tiling.split_writes import split_writes
from tilewright.ir.core import Module, Value
from tilewright.ir.ops.memory import Store
from tilewright.ir.types import FloatType

#: The fewest places that a program of a coarsened kernel takes, for a partial sum costs as much
#: memory traffic as a place.
_MINIMUM_PLACES = 8
#: Elements of a row whose partial sums a program adds up.
_PART = 256


def make_plan(
    module: Module, request: AdjointRequest, launch: LaunchFacts, *, accumulate: bool = False
) -> AdjointPlan:
    """Derive the plan of a kernel's adjoint.

    Args:
        request: the adjoint that is wanted; its ``modes`` are the plan's to choose.
        launch: a launch; the plan is for those that it fits.
        accumulate: whether gradients are added to what is in memory, instead of zeros.

    Raises:
        DerivativeError: the kernel has no derivative, or none that is known here.
    """
    return _Planner(module, request, launch, accumulate).plan()


class _Planner:
    def __init__(
        self, module: Module, request: AdjointRequest, launch: LaunchFacts, accumulate: bool
    ) -> None:
        self.source, self.request, self.launch = module, request, launch
        self.accumulate = accumulate
        self.inputs = {f"{request.prefix}{name}": name for name in request.wrt}
        self.checks: list[CheckedConditions | CheckedBox | CheckedFactor] = []
        self.refusals: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.notes: list[str] = []
        self.coverages: dict[str, Coverage] = {}
        self.buffers = 0

    def plan(self) -> AdjointPlan:
        """Derive the plan."""
        source, grid, modes = self._forward()
        adjoint = adjoint_of(source, replace(self.request, modes=modes))
        self.tapes = [
            value.name
            for value in adjoint.module.kernel.arguments
            if TapeParameter.of(value.name) is not None
        ]
        first = KernelDraft(adjoint.module, grid)
        first.ways = {name: mode for name, mode in modes.items() if mode != "atomic"}
        self._cover(first, [n for n, name in self.inputs.items() if modes[name] == "store"])
        kernels = [self._finished(draft) for draft in self._resolved(first)]
        return AdjointPlan(
            tuple(kernels),
            {name: self._note(name, kernels) for name in self.request.wrt},
            adjoint.loops,
            tuple(self.checks),
            tuple(self.notes),
            self.coverages,
        )

    # ---- the forward kernel

    def _forward(self) -> tuple[Module, Grid, dict[str, str]]:
        """Return the kernel to differentiate, its grid, and how inputs are written by it."""
        modes = self._modes(self.source, FORWARD_GRID)
        if "atomic" not in modes.values():
            return self.source, FORWARD_GRID, modes
        try:
            found = delinearize(self.source)
        except NoTilingError:
            return self.source, FORWARD_GRID, modes
        is_box = self.launch.box(found) is not None
        self.checks.append(CheckedBox(found, is_box))
        if not is_box:
            self.notes.append("the coordinates that programs compute are no bijection onto a box")
            return self.source, FORWARD_GRID, modes
        x, y, z = (CoordinateAxis(found, axis) for axis in range(3))
        self.notes.append(f"the grid is one of the {found.rank} coordinates that programs compute")
        return found.module, (x, y, z), self._modes(found.module, (x, y, z))

    def _modes(self, module: Module, grid: Grid) -> dict[str, str]:
        """Return how the adjoint of a kernel may write the gradients of inputs."""
        modes = {}
        for name, mode in write_modes(module, self.request.wrt, self.request.disjoint).items():
            held = self._held(mode, grid, {})
            modes[name], self.why[name] = self._written(held.mode), held.why
        return modes

    def _held(self, mode: WriteMode, grid: Grid, numbers: Mapping[str, Extent]) -> WriteMode:
        """Return a mode at the launch, and record what it depends on."""
        found = mode.at(self.launch.numbers(grid, numbers))
        if mode.mode != "atomic" and () not in mode.alternatives:
            outcome = found.mode != "atomic"
            checked = CheckedConditions(grid, dict(numbers), mode.alternatives, outcome)
            self.checks.append(checked)
        return found

    def _written(self, mode: str, *, continued: bool = False) -> str:
        return "add" if mode == "store" and (self.accumulate or continued) else mode

    # ---- sums

    def _resolved(self, draft: KernelDraft) -> list[KernelDraft]:
        """Return the kernels that write what a draft writes, in the order of launches."""
        try:
            draft = self._proven(draft)
            places = sum_places(draft.module)
        except NoTilingError as refusal:
            self.notes.append(f"{draft.module.kernel.name} is not re-tiled: {refusal.reason}")
            return [draft]
        if not places:
            return [draft]
        before: list[KernelDraft] = []
        after: list[KernelDraft] = []
        rest, left = draft, KernelMemory(draft.module).written()
        for names in _shared_groups(places):
            try:
                after += self._split(draft, names)
            except NoTilingError as refusal:
                self._refuse(names, refusal.reason)
                continue
            left -= set(names)
        for axis, names in loop_groups(places):
            try:
                firsts, made, rest = self._interchanged(rest, axis, names)
            except NoTilingError as refusal:
                self._refuse(names, refusal.reason)
                continue
            before += firsts
            after += made
            left -= set(names)
        outputs = left - set(self.tapes)
        if not outputs:
            return [*before, *after]
        if after:
            try:
                module = restrict_writes(rest.module, left - set(self.tapes), self.tapes)
            except NoTilingError as refusal:
                self.notes.append(f"{draft.module.kernel.name} stays whole: {refusal.reason}")
                return self._coarsened(draft, places)
            rest = rest.derived(module, *rest.reasons)
        return [*before, *after, *self._coarsened(rest, places)]

    def _refuse(self, names: Collection[str], reason: str) -> None:
        for name in names:
            self.refusals.setdefault(self.inputs.get(name, name), reason)

    def _proven(self, draft: KernelDraft) -> KernelDraft:
        """Return a draft with stores in place of the additions of which that is proven."""
        stored: list[str] = []
        added: list[str] = []
        for name, proof in proven_writes(draft.module).items():
            mode = self._held(proof, draft.grid, draft.numbers)
            original = self.inputs.get(name)
            if original is None or mode.mode == "atomic":
                continue
            way = self._written(mode.mode, continued=original in draft.continued)
            (stored if way == "store" else added).append(name)
            draft.ways.setdefault(original, way)
        if not stored and not added:
            return draft
        made = draft.derived(without_atomics(draft.module, stored, added), *draft.reasons)
        self._cover(made, stored)
        return made

    def _cover(self, draft: KernelDraft, names: Sequence[str]) -> None:
        """Record the stores of gradients that are not added to."""
        written = KernelMemory(draft.module).writes if names else {}
        for name in names:
            writes = [write for write, of in written.items() if of == name]
            stores = [write for write in writes if isinstance(write, Store)]
            if len(stores) == len(writes):
                found = StoredElements(draft.module, stores)
                self.coverages[self.inputs[name]] = Coverage(found, draft.grid, dict(draft.numbers))

    def _interchanged(
        self, draft: KernelDraft, axis: int, names: Sequence[str]
    ) -> tuple[list[KernelDraft], list[KernelDraft], KernelDraft]:
        """Make a kernel of the sums over an axis in a loop.

        Returns:
            the kernels that compute what its programs share; the kernel; and the rest.
        """
        found = materialize(draft.module, names, self.tapes)
        firsts = []
        rest = draft.derived(found.rest, *draft.reasons)
        if found.first is not None:
            first = draft.derived(found.first, "computes what the kernels after it share")
            first.ways = {}
            buffers = self._buffers(found.scratch, draft.grid)
            first.scratch.update(buffers)
            rest.scratch.update(buffers)
            firsts.append(first)
        part = restrict_writes(found.rest, names, self.tapes)
        counts = iteration_counts(part)
        made = interchange(part, axis)
        grid = list(draft.grid)
        grid[axis] = Iterations(counts, draft.grid, dict(draft.numbers), "the loop that adds")
        reason = f"its programs are iterations, and sum over axis {axis} of the grid"
        gathered = rest.derived(
            hoist_transposes(made.module), reason, grid=(grid[0], grid[1], grid[2])
        )
        gathered.numbers[made.programs] = draft.grid[axis]
        gathered.ways = {self.inputs[name]: "loop" for name in names if name in self.inputs}
        return firsts, self._resolved(gathered), rest

    def _split(self, draft: KernelDraft, names: Sequence[str]) -> list[KernelDraft]:
        """Return the kernels that add, one after another, what several loops add.

        Raises:
            NoTilingError: none of them would do without atomic additions.
        """
        notes, coverages = list(self.notes), dict(self.coverages)
        part = restrict_writes(draft.module, names, self.tapes)
        made: list[KernelDraft] = []
        is_better = False
        for number, module in enumerate(split_writes(part)):
            first = draft.derived(module, f"adds what loop {number} of the kernel adds")
            if number:
                first.continued |= {self.inputs[name] for name in names}
            found = self._resolved(first)
            written = [self._writes(draft.module) for draft in found]
            is_better |= not any(True in writes.values() for writes in written)
            made += found
        if not is_better:
            self.notes, self.coverages = notes, coverages
            raise NoTilingError("each of several loops adds to it in any order")
        return made

    def _coarsened(self, draft: KernelDraft, places: Mapping[str, SumPlaces]) -> list[KernelDraft]:
        """Return a draft whose programs take many places, and the kernels that add up its sums."""
        writes = KernelMemory(draft.module).written()
        axes: dict[int, list[str]] = {}
        for name, found in places.items():
            if name in writes and found.is_flat and not found.loops and found.axes:
                axes.setdefault(found.axes[0], []).append(name)
        for axis, names in axes.items():
            try:
                made = coarsen(draft.module, axis, partial=True)
            except NoTilingError as refusal:
                self._refuse(names, refusal.reason)
                continue
            assert made.combine is not None
            places_along = draft.grid[axis]
            shares = Shares(places_along, _MINIMUM_PLACES)
            buffers = self._buffers(made.partials, _with(draft.grid, axis, shares))
            reason = f"each program takes many places along axis {axis} of the grid"
            coarse = draft.derived(made.module, reason, grid=_with(draft.grid, axis, shares))
            coarse.numbers[made.places] = places_along
            coarse.scratch.update(buffers)
            summed = {self.inputs[name] for name in names if name in self.inputs}
            coarse.ways = {name: way for name, way in draft.ways.items() if name not in summed}
            module, programs = split_tiles(made.combine, axis, _PART) or (made.combine, 1)
            combine = draft.derived(
                module,
                "adds up partial sums in a fixed order",
                grid=_with(draft.grid, axis, FixedExtent(programs)),
            )
            combine.numbers.update({made.places: places_along, made.parts: shares})
            combine.scratch.update(buffers)
            combine.ways = dict.fromkeys(summed, "partial")
            return [*self._resolved(coarse), *self._resolved(combine)]
        return [draft]

    def _buffers(self, tiles: Sequence[ScratchTile], grid: Grid) -> dict[str, ScratchBuffer]:
        """Return new memory for the parameters of tiles."""
        found = {}
        for tile in tiles:
            found[tile.name] = ScratchBuffer(f"scratch_{self.buffers}", tile.type, grid)
            self.buffers += 1
        return found

    # ---- the result

    def _finished(self, draft: KernelDraft) -> PlannedKernel:
        order_stores(draft.module)
        parameters = {value.name for value in draft.module.kernel.arguments}
        ways = {}
        for name, is_atomic in sorted(self._writes(draft.module).items()):
            original = self.inputs[name]
            ways[original] = "atomic" if is_atomic else draft.ways.get(original, "store")
        return PlannedKernel(
            draft.module.kernel.name,
            simplify_kernel(draft.module, self._allows),
            draft.grid,
            {name: extent for name, extent in draft.numbers.items() if name in parameters},
            {name: buffer for name, buffer in draft.scratch.items() if name in parameters},
            ways,
            tuple(draft.reasons),
        )

    def _allows(self, factor: Value, narrow: FloatType) -> bool:
        """Return whether values of a narrow type may lack a factor, as it is at the launch."""
        expression = scalar_expression(factor)
        if expression is None:
            return False
        check = CheckedFactor(expression, narrow, False)
        outcome = check.at(self.launch)
        self.checks.append(replace(check, outcome=outcome))
        return outcome

    def _writes(self, module: Module) -> dict[str, bool]:
        """Return the gradients that a kernel writes, and whether it adds to them atomically."""
        try:
            writes = KernelMemory(module).writes
        except NoTilingError:
            return dict.fromkeys(self.inputs, True)
        found: dict[str, bool] = {}
        for write, name in writes.items():
            if name in self.inputs:
                found[name] = found.get(name, False) or is_addition(write)
        return found

    def _note(self, name: str, kernels: Sequence[PlannedKernel]) -> InputNote:
        """Return a note of how the gradient of an input is written."""
        ways = [kernel.writes[name] for kernel in kernels if name in kernel.writes]
        way = "atomic" if "atomic" in ways or not ways else ways[-1]
        why = self.why[name]
        if way == "atomic" and name in self.refusals:
            why = f"{why}, and the kernel is not re-tiled: {self.refusals[name]}"
        return InputNote(way, why)


def _shared_groups(places: Mapping[str, SumPlaces]) -> list[list[str]]:
    """Return the arguments to which several loops add, or a loop and what stands beside it."""
    groups: dict[tuple[frozenset[int], bool], list[str]] = {}
    for name, found in places.items():
        if len(found.loops) + found.is_flat > 1:
            groups.setdefault((found.loops, found.is_flat), []).append(name)
    return list(groups.values())


def _with(grid: Grid, axis: int, extent: Extent) -> Grid:
    """Return a grid with another extent along an axis."""
    x, y, z = (extent if number == axis else old for number, old in enumerate(grid))
    return x, y, z


__all__ = ["make_plan"]
