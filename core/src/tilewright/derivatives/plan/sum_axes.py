"""Axes of the grid that the additions of a kernel are summed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.derivatives.tiling.grid_dependence import hoist_grid_queries
from tilewright.derivatives.tiling.kernel_memory import (
    Addition,
    KernelMemory,
    copied_kernel,
    is_addition,
)
from tilewright.derivatives.tiling.partial_sums import address_of
from tilewright.derivatives.tiling.restrict_writes import outermost
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import For


@dataclass(frozen=True, slots=True)
class SumPlaces:
    """The additions to an argument.

    Attributes:
        axes: axes of the grid that the kernel reads, and no address or mask depends on.
        loops: numbers of the operations of the outermost level that are loops with additions.
        is_flat: whether an addition stands at the outermost level itself.
    """

    axes: tuple[int, ...]
    loops: frozenset[int]
    is_flat: bool


def sum_places(module: Module) -> dict[str, SumPlaces]:
    """Return the additions of a kernel by argument.

    Raises:
        NoTilingError: it has accesses that are not followed.
    """
    source = copied_kernel(module)
    kernel = source.kernel
    hoist_grid_queries(kernel)
    memory = KernelMemory(source)
    additions: dict[str, list[Addition]] = {}
    for write, name in memory.writes.items():
        if is_addition(write):
            assert isinstance(write, Addition)
            additions.setdefault(name, []).append(write)
    dependent = {op.axis: _dependent(kernel, op.result) for op in _grid_reads(kernel)}
    numbers = {operation: number for number, operation in enumerate(kernel.body)}
    found = {}
    for name, writes in additions.items():
        read = [value for write in writes for value in address_of(write)]
        axes = (axis for axis in sorted(dependent) if dependent[axis].isdisjoint(read))
        outer = {write: outermost(write) for write in writes}
        loops = {operation for operation in outer.values() if isinstance(operation, For)}
        found[name] = SumPlaces(
            tuple(axes),
            frozenset(numbers[loop] for loop in loops),
            any(write is operation for write, operation in outer.items()),
        )
    return found


def _grid_reads(kernel: Function) -> Iterator[ProgramId]:
    return (operation for operation in kernel.body if isinstance(operation, ProgramId))


def _dependent(kernel: Function, place: Value) -> set[Value]:
    """Return the values that may depend on a place, inside of regions as well."""
    found = {place}
    while True:
        before = len(found)
        for operation in kernel.walk():
            if isinstance(operation, For):
                _add_loop(operation, found)
                continue
            regions = (region.last for region in operation.regions)
            yields = [value for last in regions if last is not None for value in last.operands]
            if any(value in found for value in (*operation.operands, *yields)):
                found.update(operation.results)
                found.update(value for region in operation.regions for value in region.arguments)
        if len(found) == before:
            return found


def _add_loop(loop: For, found: set[Value]) -> None:
    """Add what a loop carries, and its results, where they depend on values that do."""
    assert loop.body.last is not None
    index, *carried = loop.body.arguments
    if loop.lower in found or loop.step in found:
        found.add(index)
    is_counted = any(value in found for value in (loop.lower, loop.upper, loop.step))
    flows = zip(carried, loop.inits, loop.body.last.operands, loop.results, strict=True)
    for argument, init, yielded, result in flows:
        if init in found or yielded in found:
            found.update((argument, result))
        elif is_counted:
            found.add(result)


def loop_groups(places: Mapping[str, SumPlaces]) -> list[tuple[int, list[str]]]:
    """Return the arguments that are summed over an axis in a loop: a group for each axis."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, found in places.items():
        if len(found.loops) == 1 and not found.is_flat and found.axes:
            groups.setdefault((found.axes[0], *found.loops), []).append(name)
    return [(axis, names) for (axis, *_), names in groups.items()]


__all__ = ["SumPlaces", "loop_groups", "sum_places"]
