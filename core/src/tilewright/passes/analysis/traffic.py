"""Operations and memory traffic of a launch: what a kernel computes, what its accesses ask for, and
what must move at least.

Every run of every region is followed (:mod:`.execution_counts`), its accesses as boxes of addresses
under their masks, so that each distinct element of an argument counts once for what must move, and
every time for what is asked for. Where addresses or masks depend on what is loaded, that is said,
and no number made up. Without a launch the pass reports one run of each region.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops import linear
from tilewright.ir.ops.arithmetic import Addptr, Bitcast, Cast, Constant, Fma, Select
from tilewright.ir.ops.control import Call, For, If, Reduce, Scan, While
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import (
    AtomicCas,
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    DescriptorBlocks,
    DescriptorGather,
    DescriptorLoad,
    DescriptorRows,
    Load,
    MakeDescriptor,
    Store,
)
from tilewright.ir.ops.rules import pointee_of
from tilewright.ir.table import Effect
from tilewright.ir.types import FloatType, TileType, byte_size, element_type, shape_of
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.affine_forms import ZERO, CoordinateBound, Form, Wrapped
from tilewright.passes.analysis.execution_counts import MOST_RUNS, Numbers, Runs, unknown_text
from tilewright.passes.analysis.footprint import Boxes, Integers, distinct
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.analysis.work import dot_of

_Accesses = (
    Load
    | AtomicLoad
    | Store
    | AtomicStore
    | AtomicRmw
    | AtomicCas
    | DescriptorBlocks
    | DescriptorRows
)
#: Operations of floats that compute nothing: they choose, or write a number in another type.
_FREE: Final = (Bitcast, Cast, Constant, Hint, Select)


@dataclass(frozen=True, slots=True)
class DescriptorTensor:
    """Tensor of a launch's descriptor argument, in elements."""

    shape: Sequence[int]
    strides: Sequence[int]


@dataclass(slots=True)
class LoopTraffic:
    """One run of the kernel, or of a loop's body, without the loops inside.

    Attributes:
        line: of the loop, 0 for the kernel or where it is not known; depth: loops around, itself
            included.
        innermost: whether there is no loop inside.
        matmuls, arithmetic: operations by type, see :class:`Traffic`.
        loaded, stored: bytes of the tiles that are loaded and stored, lanes that a mask switches
            off included.
        runs: in the whole launch; None where that is not known.
    """

    line: int
    depth: int
    innermost: bool = True
    matmuls: Counter[str] = field(default_factory=Counter)
    arithmetic: Counter[str] = field(default_factory=Counter)
    loaded: int = 0
    stored: int = 0
    runs: int | None = 0


@dataclass(slots=True)
class ArgumentTraffic:
    """Bytes of one argument that a launch moves in one direction.

    Attributes:
        asked: bytes requested by accesses.
        exact: whether ``asked`` is exact; else it is an upper bound, as masks may disable lanes.
        minimum: bytes of distinct elements; None if unknown.
        why: the reason why ``minimum`` is unknown.
    """

    asked: int = 0
    exact: bool = True
    minimum: int | None = 0
    why: str = ""


@dataclass(slots=True)
class Traffic:
    """See the module's text.

    Attributes:
        programs: of the launch; None where the grid is not known, and all else is of one program.
        matmuls: operations, two for a multiply-add, by the type of the operands: ``f16``, ``f32
            tf32`` with the precision.
        arithmetic: operations of floats by type, two for a fused multiply-add.
        steps: what one run of the kernel and of each loop does.
        reads, writes: argument -> bytes; of ``""`` what is accessed through pointers that come from
            elsewhere.
        lacking: names of arguments, and ``grid``, without which the totals are not known; unknown:
            what else is in the way, in words.
    """

    programs: int | None
    matmuls: Counter[str] = field(default_factory=Counter)
    arithmetic: Counter[str] = field(default_factory=Counter)
    steps: list[LoopTraffic] = field(default_factory=list)
    reads: dict[str, ArgumentTraffic] = field(default_factory=dict)
    writes: dict[str, ArgumentTraffic] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Return whether the totals are known."""
        return not self.lacking and not self.unknown

    @property
    def asked(self) -> int:
        """Bytes that accesses ask for."""
        return sum(moved.asked for moved in (*self.reads.values(), *self.writes.values()))

    @property
    def minimum(self) -> int:
        """Bytes that must move: those that are known."""
        return sum(moved.minimum or 0 for moved in (*self.reads.values(), *self.writes.values()))


def traffic_of(
    module: Module, arguments: Mapping[str, Any], sizes: tuple[int, int, int] | None
) -> Traffic:
    """The traffic of a module's kernel.

    Args:
        arguments: those of the launch by name: numbers, for descriptors :class:`DescriptorTensor`;
            others are not asked for.
        sizes: of the grid; None where it is not known.
    """
    return _TrafficWalk(module.kernel, arguments, sizes).found()


@dataclass(frozen=True, slots=True)
class _Touched:
    """The elements of one access: their boxes, or why they have none; ``asked`` is None where not
    even the runs are known."""

    size: int
    asked: int | None
    exact: bool
    boxes: Sequence[Boxes] | None
    why: str = ""


class _TrafficWalk:
    """All programs' way through a kernel."""

    def __init__(
        self, function: Function, arguments: Mapping[str, Any], sizes: tuple[int, int, int] | None
    ) -> None:
        self.affine = Affine(function)
        given = {
            argument: arguments[argument.name]
            for argument in function.arguments
            if argument.name in arguments
        }
        self._tensors = {
            argument: value
            for argument, value in given.items()
            if isinstance(value, DescriptorTensor)
        }
        self.numbers = Numbers(
            self.affine,
            {
                argument: value
                for argument, value in given.items()
                if isinstance(value, int | float)
            },
            sizes,
        )
        self._accesses: dict[tuple[bool, str], list[_Touched]] = {}
        programs = None if sizes is None else sizes[0] * sizes[1] * sizes[2]
        self._found = Traffic(programs)
        self._stop = ""
        step = LoopTraffic(0, 0)
        self._found.steps.append(step)
        self._region(
            function.body,
            step,
            self._limited(
                Runs.of_grid(sizes) if programs is None or programs <= MOST_RUNS else None
            ),
        )

    def found(self) -> Traffic:
        """The totals."""
        found = self._found
        for (writes, name), touched in self._accesses.items():
            (found.writes if writes else found.reads)[name] = _moved(touched)
        if found.programs is None:
            self.numbers.lacking["grid"] = None
        found.lacking = tuple(sorted(self.numbers.lacking, key=lambda name: name == "grid"))
        found.unknown = (*self.numbers.unknown, *([self._stop] if self._stop else []))
        return found

    def _limited(self, runs: Runs | None) -> Runs | None:
        if runs is None:
            self._stop = f"more than {MOST_RUNS} runs, which are not followed"
        return runs

    # ---- control

    def _region(self, region: Region, step: LoopTraffic, runs: Runs | None) -> None:
        if step.runs is not None and region.owner is not None and not isinstance(region.owner, If):
            step.runs = None if runs is None else runs.count
        for operation in region:
            if isinstance(operation, For):
                self._loop(operation, operation.body, step, self._iterations(operation, runs))
            elif isinstance(operation, While):
                self.numbers.unknown[f"how often the while loop{_at_line(operation)} runs"] = None
                for inner in operation.regions:
                    self._loop(operation, inner, step, None)
            elif isinstance(operation, If):
                self._branch(operation, step, runs)
            elif isinstance(operation, Call):
                self.numbers.unknown[f"what the function {operation.callee} does"] = None
            else:
                self._count(operation, step, runs)

    def _loop(
        self,
        loop: Operation,
        region: Region,
        around: LoopTraffic,
        runs: Runs | None,
    ) -> None:
        around.innermost = False
        line = loop.location.line if loop.location is not None else 0
        step = LoopTraffic(line, around.depth + 1)
        self._found.steps.append(step)
        self._region(region, step, runs)

    def _iterations(self, loop: For, runs: Runs | None) -> Runs | None:
        trips = None if runs is None else self.numbers.trips(loop, runs)
        if runs is None or trips is None:
            return None
        total = int(np.sum(trips)) if isinstance(trips, np.ndarray) else trips * runs.count
        return self._limited(runs.of_loop(loop, trips) if total <= MOST_RUNS else None)

    def _branch(self, branch: If, step: LoopTraffic, runs: Runs | None) -> None:
        holds = None if runs is None else self.numbers.of_value(branch.condition, runs)
        for number, region in enumerate(branch.regions):
            taken = None
            if runs is not None and holds is not None:
                taken = runs.where(np.equal(holds, 0) if number else holds)
            self._region(region, step, taken)

    # ---- operations

    def _count(self, operation: Operation, step: LoopTraffic, runs: Runs | None) -> None:
        if isinstance(operation, linear.Dot | linear.DotScaled):
            dot = dot_of(operation)
            key = (
                f"{dot.a}"
                if not isinstance(dot.a, FloatType) or byte_size(dot.a) != 4
                else f"f32 {dot.precision}"
            )
            if isinstance(operation, linear.DotScaled):
                key = f"{operation.a_format} x {operation.b_format}"
            self._add(self._found.matmuls, step.matmuls, key, dot.operations, runs)
        elif isinstance(operation, _Accesses):
            self._access(operation, step, runs)
        else:
            for key, count in _arithmetic(operation):
                self._add(self._found.arithmetic, step.arithmetic, key, count, runs)

    @staticmethod
    def _add(
        total: Counter[str], step: Counter[str], key: str, count: int, runs: Runs | None
    ) -> None:
        step[key] += count
        if runs is not None:
            total[key] += count * runs.count

    def _access(self, operation: Any, step: LoopTraffic, runs: Runs | None) -> None:
        descriptor = isinstance(operation, DescriptorBlocks | DescriptorRows)
        place = operation.descriptor if descriptor else operation.pointer
        size = byte_size(place.type.element if descriptor else pointee_of(place.type))
        shape = _accessed_shape(operation)
        count = math.prod(shape) * size
        touched = (
            self._descriptor(operation, shape, size, runs)
            if descriptor
            else self._pointers(operation, shape, size, runs)
        )
        effects = operation.spec.effects
        reads, writes = bool(effects & Effect.READ), bool(effects & Effect.WRITE)
        step.loaded += count * reads
        step.stored += count * writes
        name = self._argument(place)
        for direction in (False,) * reads + (True,) * writes:
            self._accesses.setdefault((direction, name), []).append(touched)

    def _argument(self, place: Value) -> str:
        """The argument that addresses begin at; empty where that is not known."""
        while True:
            operation = place.definition
            if isinstance(operation, Addptr):
                place = operation.pointer
            elif isinstance(operation, MakeDescriptor):
                place = operation.base
            elif operation is not None and (
                operation.spec.moves or operation.spec.forwards or isinstance(operation, Bitcast)
            ):
                place, *_ = operation.operands
            elif (
                operation is None
                and isinstance(place.owner, Region)
                and isinstance(loop := place.owner.owner, For)
                and place.index
            ):
                place = loop.inits[place.index - 1]
            elif isinstance(operation, For):
                place = operation.inits[place.index]
            else:
                return (
                    place.name
                    if operation is None
                    and isinstance(place.owner, Region)
                    and isinstance(place.owner.owner, Function)
                    else ""
                )

    # ---- addresses

    def _pointers(
        self, operation: Any, shape: Sequence[int], size: int, runs: Runs | None
    ) -> _Touched:
        mask = None if isinstance(operation, AtomicCas) else operation.mask
        bounds = self.affine.mask_bounds(mask) if mask is not None else []
        form = self.affine.form(operation.pointer)
        why = ""
        if form is None or self._argument(operation.pointer) != (
            form.base.name if form.base is not None and form.base.definition is None else None
        ):
            form, why = None, _irregular(operation.pointer)
        return self._touched(form, bounds, shape, size, runs, why)

    def _descriptor(
        self, operation: Any, shape: Sequence[int], size: int, runs: Runs | None
    ) -> _Touched:
        """A block of a tensor, as far as it lies inside."""
        made = operation.descriptor.definition
        if isinstance(operation, DescriptorRows):
            return self._touched(None, [], shape, size, runs, _irregular(operation.rows))
        starts = [self.affine.number(offset) for offset in operation.offsets]
        if isinstance(made, MakeDescriptor):
            base = self.affine.form(made.base)
            extents, strides = (
                [self.affine.number(value) for value in values]
                for values in (made.shape, made.strides)
            )
        else:
            tensor = self._tensors.get(operation.descriptor)
            if tensor is None:
                if operation.descriptor.definition is None and self._argument(operation.descriptor):
                    self.numbers.lacking[operation.descriptor.name] = None
                return self._touched(None, [], shape, size, runs, "its descriptor is not known")
            base = Form(operation.descriptor, ZERO)
            extents, strides = (
                [Polynomial.number(value) for value in values]
                for values in (tensor.shape, tensor.strides)
            )
        if base is None or base.base is None:
            return self._touched(
                None, [], shape, size, runs, "where its tensor begins is not known"
            )
        start = base.start
        for offset, stride in zip(starts, strides, strict=True):
            start = start.plus(offset.times(stride))
        bounds: list[CoordinateBound | None] = [
            CoordinateBound(axis, upper=extent.minus(offset), lower=offset.scaled(-1))
            for axis, (offset, extent) in enumerate(zip(starts, extents, strict=True))
        ]
        return self._touched(
            Form(base.base, start, tuple(enumerate(strides))), bounds, shape, size, runs, ""
        )

    def _touched(
        self,
        form: Form | None,
        bounds: Sequence[CoordinateBound | None],
        shape: Sequence[int],
        size: int,
        runs: Runs | None,
        why: str,
    ) -> _Touched:
        """The elements that an access touches in all runs."""
        if runs is None:
            return _Touched(size, None, False, None, why)
        exact = all(bound is not None for bound in bounds)
        # the last column is 0 for runs that a scalar condition switches off
        lower, upper = (
            np.zeros((runs.count, len(shape) + 1), np.int64),
            np.tile(np.asarray((*shape, 1), np.int64), (runs.count, 1)),
        )
        for bound in bounds:
            if bound is not None:
                exact &= self._clip(bound, lower, upper, runs)
        extents = np.maximum(0, upper - lower)
        boxes = None if form is None else self._boxes(form, lower, extents, runs)
        if form is not None:
            still = [
                axis
                for axis in range(len(shape))
                if axis not in {key if isinstance(key, int) else key.axis for key, _ in form.steps}
            ]
            extents[:, still] = np.minimum(
                extents[:, still], 1
            )  # lanes that access the same element ask for it once
            if boxes is None:
                why = "its addresses depend on what is not known"
        asked = int(extents.prod(axis=1).sum())
        if not exact:
            boxes, why = None, why or "its mask depends on what is loaded or computed"
        return _Touched(size, asked, exact, boxes, why)

    def _clip(self, bound: CoordinateBound, lower: Integers, upper: Integers, runs: Runs) -> bool:
        """Narrow coordinates by a bound; whether it is known."""
        below = self.numbers.of(bound.upper, runs) if bound.upper is not None else None
        above = self.numbers.of(bound.lower, runs) if bound.lower is not None else None
        if (bound.upper is not None and below is None) or (
            bound.lower is not None and above is None
        ):
            return False
        if bound.axis is None:
            upper[np.broadcast_to(np.asarray(below) <= 0, (runs.count,)), -1] = 0
            return True
        if below is not None:
            upper[:, bound.axis] = np.minimum(upper[:, bound.axis], below)
        if above is not None:
            lower[:, bound.axis] = np.maximum(lower[:, bound.axis], above)
        return True

    def _boxes(
        self, form: Form, lower: Integers, extents: Integers, runs: Runs
    ) -> list[Boxes] | None:
        """The boxes of a form within coordinates; None where a number is not known, or strides
        change from run to run."""
        start = self.numbers.of(form.start, runs)
        strides: list[int] = []
        parts: list[list[tuple[Any, Integers]]] = []
        axes = [key if isinstance(key, int) else key.axis for key, _ in form.steps]
        rest = [axis for axis in range(extents.shape[1]) if axis not in axes]
        used = (extents[:, rest] > 0).all(axis=1)
        known = start is not None and len(set(axes)) == len(axes)
        for key, step in form.steps:
            stride = self.numbers.of(step, runs)
            if isinstance(stride, np.ndarray):
                stride = (
                    int(stride[0])
                    if stride.size and (stride == stride[0]).all()
                    else None
                    if stride.size
                    else 0
                )
            axis = key if isinstance(key, int) else key.axis
            along = (
                [(lower[:, axis], extents[:, axis])]
                if isinstance(key, int)
                else self._wrapped(key, lower[:, axis], extents[:, axis], runs)
            )
            known &= stride is not None and along is not None
            strides.append(int(stride or 0))
            parts.append(along or [])
        if not known:
            return None
        boxes = [
            (
                np.broadcast_to(np.asarray(start, np.int64), (runs.count,))[used],
                np.zeros((int(used.sum()), 0), np.int64),
            )
        ]
        for stride, along in zip(strides, parts, strict=True):
            boxes = [
                (starts + stride * first[used], np.column_stack((columns, count[used])))
                for starts, columns in boxes
                for first, count in along
            ]
        return [Boxes(starts, tuple(strides), columns) for starts, columns in boxes]

    def _wrapped(
        self, key: Wrapped, lower: Integers, extents: Integers, runs: Runs
    ) -> list[tuple[Any, Integers]] | None:
        """The coordinates below a modular index's extent, and from 0 on those that a remainder
        leads back."""
        start, extent = self.numbers.of(key.start, runs), self.numbers.of(key.extent, runs)
        if start is None or extent is None:
            return None
        first = start + lower
        if not key.nonnegative:
            return [(first, np.clip(extent - first, 0, extents))]
        first = first % np.maximum(1, extent)
        here = np.minimum(extents, extent - first)
        return [(first, here), (np.zeros_like(here), np.minimum(extents - here, extent))]


def _moved(touched: Sequence[_Touched]) -> ArgumentTraffic:
    """Accesses of one argument in one direction together."""
    asked = sum((each.asked or 0) * each.size for each in touched)
    exact = all(each.exact for each in touched)
    why = next((each.why for each in touched if each.boxes is None and each.why), "")
    sizes = {each.size for each in touched}
    minimum = None
    if all(each.boxes is not None for each in touched):
        if len(sizes) == 1:
            count = distinct([boxes for each in touched for boxes in each.boxes or ()])
            minimum = None if count is None else count * sizes.pop()
        why = (
            ""
            if minimum is not None
            else "it is accessed as several types"
            if len(sizes) > 1
            else "it is accessed at too many places to count"
        )
    return ArgumentTraffic(asked, exact, minimum, why)


def _accessed_shape(operation: Any) -> tuple[int, ...]:
    """Return the shape of an access."""
    if isinstance(operation, DescriptorBlocks | DescriptorRows):
        moved = (
            operation.results[0]
            if isinstance(operation, DescriptorLoad | DescriptorGather)
            else operation.value
        )
        return tuple(shape_of(moved.type))
    return tuple(shape_of(operation.pointer.type))


def _irregular(value: Value) -> str:
    """Explain why addresses have no affine form: by the loads or operations that they depend on."""
    seen, work = {value}, [value]
    computed = ""
    while work:
        operation = work.pop().definition
        if operation is None:
            continue
        if isinstance(operation, Load | AtomicLoad | DescriptorLoad | AtomicRmw | AtomicCas):
            return f"its addresses depend on {unknown_text(operation)}"
        computed = computed or f"its addresses depend on {unknown_text(operation)}"
        fresh = [operand for operand in operation.operands if operand not in seen]
        seen.update(fresh)
        work += fresh
    return computed or "where its addresses begin is not known"


def _arithmetic(operation: Operation) -> list[tuple[str, int]]:
    """Operations of floats by type."""
    if isinstance(operation, Reduce | Scan):
        return [_floats(value, 1) for value in operation.operands if _is_float_tile(value)]
    if not operation.spec.elementwise or isinstance(operation, _FREE):
        return []
    each = 2 if isinstance(operation, Fma) else 1
    return [_floats(value, each) for value in operation.results if _is_float_tile(value)]


def _floats(value: Value, each: int) -> tuple[str, int]:
    """The type of a tile's elements, and so many operations for each."""
    return str(element_type(value.type)), each * math.prod(shape_of(value.type))


def _is_float_tile(value: Value) -> bool:
    return isinstance(value.type, TileType) and isinstance(value.type.element, FloatType)


def _at_line(operation: Operation) -> str:
    return f" at line {operation.location.line}" if operation.location is not None else ""


__all__ = ["ArgumentTraffic", "DescriptorTensor", "LoopTraffic", "Traffic", "traffic_of"]
