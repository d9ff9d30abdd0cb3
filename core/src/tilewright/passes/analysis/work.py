"""Work of a program: matmuls, bytes moved and elements computed, with trip counts of loops.

Loops are followed with the arguments of a launch: their bounds are computed where they follow from
scalar arguments, constants and the program's place in the grid. What depends on memory is guessed,
and marked as such. It is a basis of estimates, before anything is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops import linear
from tilewright.ir.ops.arithmetic import Constant, NumPrograms, ProgramId
from tilewright.ir.ops.control import Call, For, If, While
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import DescriptorType, FloatType, IntType, TileType, Type, byte_size
from tilewright.ir.work import Body, MatmulWork, Work
from tilewright.passes.fold import fold

#: Iterations of a loop whose bounds are not known.
GUESSED_RUNS: Final = 16
#: How deep calls of functions are followed.
_DEPTH: Final = 8
#: From this cost on an operation counts as a slow one.
_SLOW: Final = 8


def work_of(
    module: Module,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    grid: Callable[[], tuple[int, int, int] | None],
) -> Work:
    """The work of a module's kernel.

    Args:
        arguments: those of the launch by name.
        grid: yields the sizes of the grid, None where they are not known; called for kernels that
            multiply matrices alone.
    """
    largest = max(
        (
            value.type.numel
            for operation in module.walk()
            for value in operation.results
            if isinstance(value.type, TileType)
        ),
        default=1,
    )
    sizes = (
        grid() if any(isinstance(operation, linear.DOTS) for operation in module.walk()) else None
    )
    programs = None if sizes is None else math.prod(sizes)
    places = (
        [(0, 0, 0)]
        if not programs or sizes is None
        else sorted({_place(number, sizes) for number in (0, programs // 2, programs - 1)})
    )
    return Work(
        programs,
        tuple(tuple(_Walk(module, arguments, place, sizes).bodies) for place in places),
        dict(options),
        largest,
    )


def _place(number: int, sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    """The place of a program, the first axis fastest."""
    return number % sizes[0], number // sizes[0] % sizes[1], number // sizes[0] // sizes[1]


class _Walk:
    """One program's way through a kernel."""

    def __init__(
        self,
        module: Module,
        arguments: Mapping[str, Any],
        place: tuple[int, int, int],
        sizes: tuple[int, int, int] | None,
    ) -> None:
        self.module, self.place, self.sizes = module, place, sizes
        self.bodies = [Body(0, 1, 1)]
        values: dict[Value, Any] = {}
        for argument in module.kernel.arguments:
            given = arguments.get(argument.name)
            if isinstance(argument.type, IntType | FloatType) and isinstance(
                given, bool | int | float
            ):
                values[argument] = given
        self._function(module.kernel, values, self.bodies[0], 1.0, 0)

    def _function(
        self, function: Function, values: dict[Value, Any], body: Body, weight: float, depth: int
    ) -> None:
        self._region(function.body, values, body, weight, depth)

    def _region(
        self, region: Region, values: dict[Value, Any], body: Body, weight: float, depth: int
    ) -> None:
        """Follow a region; ``weight`` is the part of the runs of ``body`` that come here."""
        for operation in region:
            if isinstance(operation, For):
                self._for(operation, values, body, weight, depth)
            elif isinstance(operation, While):
                self._loop(
                    operation, operation.regions, GUESSED_RUNS, False, values, body, weight, depth
                )
            elif isinstance(operation, If):
                self._if(operation, values, body, weight, depth)
            elif isinstance(operation, Call):
                callee = self.module.functions.get(operation.callee)
                if callee is not None and depth < _DEPTH:
                    inner = {
                        own: values[given]
                        for own, given in zip(callee.arguments, operation.arguments, strict=False)
                        if given in values
                    }
                    self._function(callee, inner, body, weight, depth + 1)
            else:
                self._count(operation, body, weight)
                self._compute(operation, values)

    def _for(
        self, operation: For, values: dict[Value, Any], body: Body, weight: float, depth: int
    ) -> None:
        bounds: list[Any] = [
            values[operand]
            for operand in (operation.lower, operation.upper, operation.step)
            if operand in values
        ]
        known, runs = len(bounds) == 3 and bounds[2] > 0, GUESSED_RUNS
        region = operation.body
        inner = dict(values)
        if known:
            lower, upper, step = bounds
            runs = max(0, -((lower - upper) // step))
            inner[region.arguments[0]] = lower + max(0, runs - 1) // 2 * step
        for own, given in zip(region.arguments[1:], operation.inits, strict=False):
            if given in values:
                inner[own] = values[given]
        self._loop(operation, (region,), runs, known, inner, body, weight, depth)

    def _loop(
        self,
        operation: Operation,
        regions: Any,
        runs: float,
        known: bool,
        values: dict[Value, Any],
        body: Body,
        weight: float,
        depth: int,
    ) -> None:
        entries = body.runs * weight
        made = Body(
            body.depth + 1,
            entries * runs,
            entries,
            body.known and known,
            flattened=body.flattened,
            specialized=body.specialized,
        )
        if isinstance(operation, For):
            made.stages = operation.num_stages
            made.flattened |= operation.flatten
            made.specialized |= operation.warp_specialize
        self.bodies.append(made)
        for region in regions:
            self._region(region, dict(values), made, 1.0, depth)

    def _if(
        self, operation: If, values: dict[Value, Any], body: Body, weight: float, depth: int
    ) -> None:
        condition = values.get(operation.condition)
        for number, region in enumerate(operation.regions):
            if condition is None:
                self._region(region, dict(values), body, weight / 2, depth)
            elif bool(condition) == (number == 0):
                self._region(region, dict(values), body, weight, depth)

    def _count(self, operation: Operation, body: Body, weight: float) -> None:
        if isinstance(operation, linear.Dot | linear.DotScaled):
            body.dots.append(dot_of(operation))
        elif _loads(operation):
            body.loaded += int(weight * sum(_bytes(value.type) for value in operation.results))
        elif Trait.ACCESS in operation.spec.traits:
            body.stored += int(
                weight
                * max(
                    (
                        _bytes(value.type)
                        for value in operation.operands
                        if not _is_address(value.type)
                    ),
                    default=0,
                )
            )
        else:
            made = (
                0
                if operation.spec.traits & Trait.SHAPE
                else sum(_floats(value.type) for value in operation.results)
            )
            body.computed += int(weight * made)
            body.slow += int(weight * made) if operation.spec.cost >= _SLOW else 0

    def _compute(self, operation: Operation, values: dict[Value, Any]) -> None:
        """The value of a scalar operation, where those of its operands are known."""
        if len(operation.results) != 1 or isinstance(operation.result.type, TileType):
            return
        found: Any = None
        if isinstance(operation, Constant):
            found = operation.value
        elif isinstance(operation, ProgramId):
            found = self.place[operation.axis]
        elif isinstance(operation, NumPrograms):
            found = None if self.sizes is None else self.sizes[operation.axis]
        elif operation.operands and all(operand in values for operand in operation.operands):
            found = fold(operation, [values[operand] for operand in operation.operands])
        if found is not None:
            values[operation.result] = found


def dot_of(operation: linear.Dot | linear.DotScaled) -> MatmulWork:
    """Return the description of a matmul that backends get."""
    a, b = operation.a, operation.b
    assert (
        isinstance(a.type, TileType)
        and isinstance(b.type, TileType)
        and isinstance(operation.result.type, TileType)
    )
    *batch, m, n = operation.result.type.shape
    k = max(a.type.shape[-1], b.type.shape[-2])
    precision = operation.precision if isinstance(operation, linear.Dot) else "ieee"
    loaded = (_was_loaded(a, operation.parent), _was_loaded(b, operation.parent))
    return MatmulWork(
        m,
        n,
        k,
        math.prod(batch),
        a.type.element,
        b.type.element,
        operation.result.type.element,
        *loaded,
        precision,
    )


def _loads(operation: Operation) -> bool:
    """Return whether an operation reads memory, and does not write it."""
    spec = operation.spec
    return Trait.ACCESS in spec.traits and not spec.effects & Effect.WRITE


def _was_loaded(value: Value, region: Region | None) -> bool:
    """Return whether a tile comes from a load in the same region, through unary operations."""
    operation = value.definition
    while operation is not None and operation.parent is region:
        if _loads(operation):
            return True
        tiles = [operand for operand in operation.operands if isinstance(operand.type, TileType)]
        if len(tiles) != 1:
            return False
        operation = tiles[0].definition
    return False


def _is_address(type_: Type) -> bool:
    element = type_.element if isinstance(type_, TileType) else type_
    return not isinstance(element, IntType | FloatType) or isinstance(type_, DescriptorType)


def _floats(type_: Type) -> int:
    """Elements of a tile of floats."""
    return (
        type_.numel if isinstance(type_, TileType) and isinstance(type_.element, FloatType) else 0
    )


def _bytes(type_: Type) -> int:
    return (
        type_.numel * byte_size(type_.element) if isinstance(type_, TileType) else byte_size(type_)
    )


__all__ = ["GUESSED_RUNS", "Body", "MatmulWork", "Work", "dot_of", "work_of"]
