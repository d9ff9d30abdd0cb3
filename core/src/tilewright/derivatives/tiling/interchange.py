"""Grid-loop interchange: programs that add to each other's elements become programs that gather.

Program p of a kernel runs a loop over k; iteration k adds to addresses A(k), which every p adds to.
Iterations are independent but for these sums, so that p and k may change places::

    for k in K(p):  atomic d[A(k)] += V(p, k)

    acc = 0                                          # program k
    for p where k in K(p):  acc += V(p, k)
    d[A(k)] += acc

The kernel that results has as many programs along the axis as the loop has iterations at most, and
a parameter with the number of programs that there were. Each program runs at least one iteration:
a launch with more programs than iterations is not allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.derivatives.cotangent_types import cotangent_type
from tilewright.derivatives.tiling.grid_dependence import (
    add_dependent,
    depends,
    hoist_grid_queries,
    is_float_value,
    is_heavy,
    operations_before,
    place_along,
    writing_loop,
)
from tilewright.derivatives.tiling.iteration_bounds import (
    IterationBounds,
    first_program,
    iteration_bounds,
)
from tilewright.derivatives.tiling.kernel_memory import (
    Addition,
    KernelMemory,
    NoTilingError,
    add_parameter,
    copied_kernel,
    is_addition,
    place_in_kernel,
)
from tilewright.derivatives.tiling.partial_sums import (
    add_up,
    addend,
    address_of,
    replaced_operations,
    write_total,
)
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Addptr, NumPrograms, ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.types import I32, I64, IntType, PointerType, TileType, Type, element_type
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_operation
from tilewright.passes.pipeline import run as run_passes


@dataclass(frozen=True, slots=True)
class Interchanged:
    """A kernel whose programs are iterations.

    Attributes:
        module: the kernel.
        programs: its parameter for the number of programs along the axis before.
    """

    module: Module
    programs: str


def interchange(
    module: Module, axis: int, mode: Literal["atomic", "add", "store"] = "atomic"
) -> Interchanged:
    """Interchange the loop that writes with the programs along an axis of the grid.

    Args:
        mode: how a sum is written: ``atomic``; or ``add`` where it is known that no two programs of
            the result write to one element, and ``store`` where nothing was added to it before.

    Raises:
        NoTilingError: the kernel has no such loop, or its iterations are not independent.
    """
    source = copied_kernel(module)
    hoist_grid_queries(source.kernel)
    made = _Interchange(source, axis, mode).build()
    verify(made.module)
    run_passes(made.module)
    verify(made.module)
    return made


class _Interchange:
    def __init__(self, source: Module, axis: int, mode: str) -> None:
        self.old, self.axis, self.mode = source.kernel, axis, mode
        memory = KernelMemory(source)
        memory.require_apart()
        self.loop = writing_loop(memory.writes)
        self.carried = self.loop.body.arguments[1:]
        self.place = place_along(self.old, axis)
        self.before = operations_before(self.old, self.loop)
        self.increments = {value: _increment(self.loop, value) for value in self.carried}
        self.dependent = self._dependent()
        self.additions = self._check(memory)
        self.replaced = replaced_operations(self.additions)
        self.bounds = self._check_bounds()
        old = self.old
        self.new = Function(
            f"{old.name}_interchanged",
            [value.type for value in old.arguments],
            (),
            [value.name for value in old.arguments],
            location=old.location,
        )
        self.new.argument_attributes = [dict(facts) for facts in old.argument_attributes]
        self.new.attributes = dict(old.attributes)
        self.programs = add_parameter(self.new, I32, f"programs_{axis}")
        self.b = Builder.at_end(self.new.body, old.location)
        arguments = self.new.arguments[: len(old.arguments)]
        self.mapping: dict[Value, Value] = dict(zip(old.arguments, arguments, strict=True))

    # ---- legality

    def _dependent(self) -> set[Value]:
        """Return the values that depend on the place along the axis."""
        found = {self.place}
        add_dependent(self.before, found)
        while True:
            count = len(found)
            for value, init in zip(self.carried, self.loop.inits, strict=True):
                by = self.increments[value]
                if init in found or (by is not None and by in found):
                    found.add(value)
            add_dependent(self.loop.body, found)
            if len(found) == count:
                return found

    def _check(self, memory: KernelMemory) -> list[Addition]:
        loop, additions = self.loop, []
        for write, name in memory.writes.items():
            if write.parent is not loop.body:
                raise NoTilingError(f"{name}: its write stands in a branch or an inner loop")
            if not is_addition(write):
                raise NoTilingError(f"{name}: it is stored, and not added to")
            assert isinstance(write, Addition)
            if any(value in self.dependent for value in address_of(write)):
                raise NoTilingError(
                    f"{name}: its addresses, or its mask, depend on program_id({self.axis})"
                )
            additions.append(write)
        if any(result.uses for result in loop.results):
            raise NoTilingError("what the loop carries is read after it")
        for value in self.carried:
            if self.increments[value] is None and _is_read(loop, value):
                raise NoTilingError(
                    f"the loop carries {value.name or 'a value'}, to which each iteration does "
                    "not add the same integer"
                )
        for operation in self.before:
            if is_heavy(operation) and depends(operation, self.dependent):
                raise NoTilingError(
                    f"the {operation.name} at {place_in_kernel(operation)} would be repeated for "
                    "each iteration: materialize it first"
                )
        return additions

    def _check_bounds(self) -> IterationBounds:
        loop = self.loop
        if loop.lower in self.dependent or loop.step in self.dependent:
            raise NoTilingError(
                f"the loop's first iteration, or its step, depends on program_id({self.axis})"
            )
        if loop.lower.type not in (I32, I64):
            raise NoTilingError(f"the loop counts in {loop.lower.type}")
        bounds = iteration_bounds(self.old, loop, self.place, self.dependent)
        if not bounds.is_uniform and not bounds.is_complete:
            raise NoTilingError(
                "the loop's bound depends on the program in a way that is not followed"
            )
        return bounds

    # ---- the new kernel

    def build(self) -> Interchanged:
        b, loop = self.b, self.loop
        number = b.program_id(axis=self.axis)
        self._emit(self.before, dependent=False)
        lower, step = self.mapping[loop.lower], self.mapping[loop.step]
        wide = b.cast(number, result=lower.type) if lower.type is not I32 else number
        self.index = b.add(lower, b.mul(wide, step))
        self.mapping[loop.body.arguments[0]] = self.index
        first = first_program(b, self.bounds, self.index, self.place, self.mapping)
        if self.bounds.is_uniform:
            self._body(number, first)
        else:  # programs along other axes may have fewer iterations
            runs = b.cmp(first, self.programs, predicate="lt")
            for bound in self.bounds.common:
                below = b.cmp(self.index, self.mapping[bound], predicate="lt")
                runs = b.and_(runs, below)
            then, otherwise = Region(), Region()
            with b.at_region(then):
                self._body(number, first)
                b.yield_([])
            with b.at_region(otherwise):
                b.yield_([])
            b.region_op("if", runs, regions=[then, otherwise])
        b.return_([])
        module = Module()
        module.add(self.new)
        return Interchanged(module, self.programs.name)

    def _body(self, number: Value, first: Value) -> None:
        """Append the loop over the programs that run the iteration, and the writes of its sums."""
        b, loop = self.b, self.loop
        self._carry(number, dependent=False)
        self._emit(loop.body, dependent=False)
        values = [addend(addition) for addition in self.additions]
        zeros = [b.constant_like(cotangent_type(value.type), 0.0) for value in values]
        body = Region([I32, *(value.type for value in zeros)], ["program"])
        with b.at_region(body):
            place, *totals = body.arguments
            self.mapping[self.place] = place
            self._emit(self.before, dependent=True)
            self._carry(number, dependent=True)
            if self.bounds.is_complete:
                self._emit(loop.body, dependent=True)
                b.yield_(add_up(b, totals, [self.mapping[value] for value in values]))
            else:
                b.yield_(self._guarded(totals, values))
        one = b.constant_like(I32, 1)
        made = b.region_op("for", first, self.programs, one, zeros, regions=[body])
        for addition, total in zip(self.additions, made.results, strict=True):
            write_total(b, addition, total, self.mapping, self.mode)

    def _guarded(self, totals: Sequence[Value], values: Sequence[Value]) -> Sequence[Value]:
        """Append the sums of an iteration, where the program runs it."""
        b = self.b
        runs = b.cmp(self.index, self.mapping[self.loop.upper], predicate="lt")
        then, otherwise = Region(), Region()
        with b.at_region(then):
            self._emit(self.loop.body, dependent=True)
            b.yield_(add_up(b, totals, [self.mapping[value] for value in values]))
        with b.at_region(otherwise):
            b.yield_(list(totals))
        types: list[Type] = [total.type for total in totals]
        return b.region_op("if", runs, regions=[then, otherwise], results=types).results

    def _emit(self, operations: Iterable[Operation], *, dependent: bool) -> None:
        """Append copies of the operations that depend on the place along the axis, or do not."""
        b = self.b
        for operation in operations:
            if operation.spec.terminator or operation in self.replaced:
                continue
            if isinstance(operation, NumPrograms) and operation.axis == self.axis:
                self.mapping[operation.result] = self.programs
                continue
            if isinstance(operation, ProgramId) and operation.axis == self.axis:
                continue
            if depends(operation, self.dependent) == dependent:
                b.location = operation.location
                b.insert(clone_operation(operation, self.mapping))

    def _carry(self, number: Value, *, dependent: bool) -> None:
        """Append what the loop carries in this iteration, in closed form."""
        b = self.b
        for value, init in zip(self.carried, self.loop.inits, strict=True):
            by = self.increments[value]
            if (value in self.dependent) != dependent or by is None:
                continue
            step, start = self.mapping[by], self.mapping[init]
            is_address = isinstance(element_type(start.type), PointerType)
            element = I64 if is_address else element_type(step.type)  # addresses are that wide
            if element_type(step.type) is not element:
                wide = (
                    TileType(step.type.shape, element)
                    if isinstance(step.type, TileType)
                    else element
                )
                step = b.cast(step, result=wide)
            count = number if element is I32 else b.cast(number, result=element)
            if isinstance(step.type, TileType):
                count = b.splat(count, result=step.type)
            distance = b.mul(step, count)
            self.mapping[value] = (
                b.addptr(start, distance) if is_address else b.add(start, distance)
            )


def _increment(loop: For, value: Value) -> Value | None:
    """Return the integer that each iteration adds to a carried integer or address; None if none."""
    assert loop.body.last is not None
    operation = loop.body.last.operands[value.index - 1].definition
    if operation is None or operation.parent is not loop.body or is_float_value(value):
        return None
    if not isinstance(operation, Addptr) and operation.name != "add":
        return None
    others = [operand for operand in operation.operands if operand is not value]
    if len(others) != 1 or not isinstance(element_type(others[0].type), IntType):
        return None
    inside = {result for inner in loop.walk() if inner is not loop for result in inner.results}
    return None if others[0] in inside or others[0] in loop.body.arguments else others[0]


def _is_read(loop: For, value: Value) -> bool:
    return any(reader is not loop.body.last for reader in value.uses)


__all__ = ["Interchanged", "interchange"]
