"""Coarsening: a program takes many places of an axis, and keeps in registers what it adds.

For sums over the grid without a loop to interchange with: weights of a norm of whole rows, biases::

    atomic d[A] += V(p)

    acc = 0                                          # program c of C
    for p in c, c + C, ...:  acc += V(p)
    atomic d[A] += acc

Whatever else a program writes, it writes in the loop. With ``partial`` each program stores its sum
to scratch memory, and a second kernel adds these up in a fixed order: no atomics, and the same bits
in each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.derivatives.cotangent_types import cotangent_type
from tilewright.derivatives.tile_memory import tile_at
from tilewright.derivatives.tiling.grid_dependence import (
    add_dependent,
    depends,
    hoist_grid_queries,
    place_along,
)
from tilewright.derivatives.tiling.kernel_memory import (
    Addition,
    KernelMemory,
    NoTilingError,
    add_parameter,
    add_scratch,
    copied_kernel,
    is_addition,
)
from tilewright.derivatives.tiling.partial_sums import (
    add_up,
    addend,
    address_of,
    replaced_operations,
    write_total,
)
from tilewright.derivatives.tiling.scratch_tiles import (
    ScratchTile,
    axes_read,
    program_number,
)
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import NumPrograms
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, I32, I64, TileType, element_type
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_operation
from tilewright.passes.effects import effects_of
from tilewright.passes.pipeline import run as run_passes

#: Partial sums that an iteration of the kernel that adds them up loads.
_PARTS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Coarsened:
    """A kernel for any number of programs along an axis.

    Attributes:
        module: the kernel.
        places: its parameter for the number of places that they share, which ``combine`` has too.
        combine: adds up the partial sums, on the grid that has one program along the axis; None
            where the kernel adds atomically.
        partials: the parameters for the partial sums, which both have.
        parts: the parameter of ``combine`` for the number of programs along the axis.
    """

    module: Module
    places: str
    combine: Module | None = None
    partials: tuple[ScratchTile, ...] = ()
    parts: str = ""


def coarsen(
    module: Module,
    axis: int,
    *,
    partial: bool = False,
    mode: Literal["atomic", "add", "store"] = "atomic",
) -> Coarsened:
    """Let each program of a kernel take many places along an axis of the grid.

    Args:
        partial: whether the sums of programs are stored, and added up by a second kernel.
        mode: how the second kernel writes: ``atomic``; or ``add`` where it is known that no two of
            its programs write to one element, and ``store`` where nothing was added to it before.

    Raises:
        NoTilingError: no sum goes to addresses that are the same all along the axis.
    """
    source = copied_kernel(module)
    hoist_grid_queries(source.kernel)
    coarse = _Coarsening(source, axis)
    return coarse.with_partials(mode) if partial else coarse.with_atomics()


class _Coarsening:
    def __init__(self, source: Module, axis: int) -> None:
        self.old, self.axis = source.kernel, axis
        memory = KernelMemory(source)
        place = place_along(self.old, axis)
        self.place, self.dependent = place, {place}
        add_dependent(self.old.body, self.dependent)
        read = memory.read()
        self.axes = axes_read(source)
        self.additions: list[Addition] = []
        for write, name in memory.writes.items():
            address_varies = any(value in self.dependent for value in write.operands[:1])
            if not is_addition(write) or write.parent is not self.old.body or address_varies:
                continue
            assert isinstance(write, Addition)
            if any(value in self.dependent for value in address_of(write)):
                continue
            if name in read:
                raise NoTilingError(f"it reads {name}, to which it adds")
            self.additions.append(write)
        self._check_loads(memory)
        if not self.additions:
            raise NoTilingError(
                f"nothing is added to addresses that do not depend on program_id({axis})"
            )
        self.replaced = replaced_operations(self.additions)

    def _check_loads(self, memory: KernelMemory) -> None:
        """Check that what all places load is what no place writes."""
        for operation, names in memory.reads.items():
            shared = sorted(names & memory.written())
            if shared and not depends(operation, self.dependent):
                raise NoTilingError(f"all places read {shared[0]}, to which it writes")

    # ---- the kernel

    def with_atomics(self) -> Coarsened:
        """Return the kernel that adds each program's sums atomically."""
        function, places = self._copy("coarsened")
        b, mapping, totals = self._loop(function, places)
        for addition, total in zip(self.additions, totals, strict=True):
            write_total(b, addition, total, mapping, "atomic")
        return Coarsened(_finished(b, function), places.name)

    def with_partials(self, mode: str) -> Coarsened:
        """Return the kernel that stores each program's sums, and the one that adds them up."""
        function, places = self._copy("coarsened")
        bases = [
            add_scratch(function, element_type(cotangent_type(addend(addition).type)), "partial")
            for addition in self.additions
        ]
        b, _, totals = self._loop(function, places)
        for base, total in zip(bases, totals, strict=True):
            b.store(tile_at(b, base, program_number(b, self.axes), total.type), total)
        tiles = [
            ScratchTile(base.name, total.type) for base, total in zip(bases, totals, strict=True)
        ]
        first = _finished(b, function)
        combine, parts = self._combine(tiles, mode)
        return Coarsened(first, places.name, combine, tuple(tiles), parts)

    def _copy(self, suffix: str) -> tuple[Function, Value]:
        """Return an empty kernel with the parameters of the old one, and that for places."""
        old = self.old
        new = Function(
            f"{old.name}_{suffix}",
            [value.type for value in old.arguments],
            (),
            [value.name for value in old.arguments],
            location=old.location,
        )
        new.argument_attributes = [dict(facts) for facts in old.argument_attributes]
        new.attributes = dict(old.attributes)
        return new, add_parameter(new, I32, f"places_{self.axis}")

    def _start(self, new: Function, places: Value) -> tuple[Builder, dict[Value, Value]]:
        """Append what does not depend on the place, without effects."""
        b, old = Builder.at_end(new.body, self.old.location), self.old
        arguments = new.arguments[: len(old.arguments)]
        mapping: dict[Value, Value] = dict(zip(old.arguments, arguments, strict=True))
        for operation in old.body:
            if operation.spec.terminator or operation is self.place.definition:
                continue
            if isinstance(operation, NumPrograms) and operation.axis == self.axis:
                mapping[operation.result] = places
            elif not depends(operation, self.dependent) and not _has_effect(operation):
                b.location = operation.location
                b.insert(clone_operation(operation, mapping))
        return b, mapping

    def _loop(
        self, new: Function, places: Value
    ) -> tuple[Builder, dict[Value, Value], list[Value]]:
        """Append the loop over a program's places; return its sums."""
        b, mapping = self._start(new, places)
        first, count = b.program_id(axis=self.axis), b.num_programs(axis=self.axis)
        values = [addend(addition) for addition in self.additions]
        zeros = [b.constant_like(cotangent_type(value.type), 0.0) for value in values]
        body = Region([I32, *(value.type for value in zeros)], ["place"])
        with b.at_region(body):
            place, *totals = body.arguments
            mapping[self.place] = place
            for operation in self.old.body:
                if operation.spec.terminator or operation in self.replaced:
                    continue
                if depends(operation, self.dependent) or _has_effect(operation):
                    b.location = operation.location
                    b.insert(clone_operation(operation, mapping))
            b.yield_(add_up(b, totals, [mapping[value] for value in values]))
        made = b.region_op("for", first, places, count, zeros, regions=[body])
        return b, mapping, list(made.results)

    def _combine(self, tiles: list[ScratchTile], mode: str) -> tuple[Module, str]:
        """Return the kernel that adds up partial sums, the first program's first."""
        function, places = self._copy("combined")
        parts = add_parameter(function, I32, f"parts_{self.axis}")
        bases = [add_scratch(function, element_type(tile.type), tile.name) for tile in tiles]
        b, mapping = self._start(function, places)
        zeros = [b.constant_like(tile.type, 0.0) for tile in tiles]
        body = Region([I32, *(tile.type for tile in tiles)], ["part"])
        with b.at_region(body):
            first, *totals = body.arguments
            for number in range(_PARTS_AT_ONCE):  # whose loads are in flight at once
                part = b.add(first, b.constant_like(I32, number)) if number else first
                exists = b.cmp(part, parts, predicate="lt")
                place = self._number(b, part, parts)
                loaded = [
                    _load_part(b, base, place, tile, exists)
                    for base, tile in zip(bases, tiles, strict=True)
                ]
                totals = add_up(b, totals, loaded)
            b.yield_(totals)
        bounds = (b.constant_like(I32, 0), parts, b.constant_like(I32, _PARTS_AT_ONCE))
        made = b.region_op("for", *bounds, zeros, regions=[body])
        for addition, total in zip(self.additions, made.results, strict=True):
            write_total(b, addition, total, mapping, mode)
        return _finished(b, function), parts.name

    def _number(self, b: Builder, part: Value, parts: Value) -> Value:
        """Append the number in its grid of the coarsened kernel's program."""
        found: Value | None = None
        for axis in reversed(self.axes):
            place = part if axis == self.axis else b.program_id(axis=axis)
            place = b.cast(place, result=I64)
            if found is not None:
                extent = parts if axis == self.axis else b.num_programs(axis=axis)
                place = b.add(place, b.mul(b.cast(extent, result=I64), found))
            found = place
        assert found is not None
        return found


def _load_part(b: Builder, base: Value, place: Value, tile: ScratchTile, exists: Value) -> Value:
    """Append the load of a partial sum; zeros if it does not exist."""
    pointer = tile_at(b, base, place, tile.type)
    zero = b.constant_like(tile.type, 0.0)
    if isinstance(tile.type, TileType):
        exists = b.splat(exists, result=TileType(tile.type.shape, I1))
    found: Value = b.load(pointer, mask=exists, other=zero)
    return found


def _has_effect(operation: Operation) -> bool:
    return bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))


def _finished(b: Builder, function: Function) -> Module:
    b.return_([])
    module = Module()
    module.add(function)
    verify(module)
    run_passes(module)
    verify(module)
    return module


__all__ = ["Coarsened", "coarsen"]
