"""Materialization: what a kernel computes before its loop is computed once, by a kernel of its own.

An interchanged kernel computes for each iteration what each program computed once. It may repeat
loads and elementwise operations; matmuls, reductions and loops it may not. A first kernel on the
old grid computes them and keeps them in scratch memory: the row sums of ``out * d_out`` of
attention, the derivative of an epilogue. Operands of matmuls that are computed from several tiles
are kept, too: then the loop loads one tile, which matrix units may read from where copies put it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilewright.derivatives.tile_memory import tile_at
from tilewright.derivatives.tiling.grid_dependence import is_heavy, writing_loop
from tilewright.derivatives.tiling.kernel_memory import (
    KernelMemory,
    NoTilingError,
    add_scratch,
    copied_kernel,
    place_in_kernel,
)
from tilewright.derivatives.tiling.needed_values import needed_values
from tilewright.derivatives.tiling.restrict_writes import restrict_writes
from tilewright.derivatives.tiling.scratch_tiles import (
    ScratchTile,
    axes_read,
    program_number,
)
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load
from tilewright.ir.ops.shape import Permute
from tilewright.ir.types import FloatType, IntType, bit_width, element_type, shape_of
from tilewright.passes.pipeline import run as run_passes


@dataclass(frozen=True, slots=True)
class Materialized:
    """A kernel in two.

    Attributes:
        first: computes the tiles in scratch memory, on the kernel's grid; None where there are
            none.
        rest: the kernel, which loads them.
        scratch: the parameters for scratch memory, which both have.
    """

    first: Module | None
    rest: Module
    scratch: tuple[ScratchTile, ...]


def materialize(
    module: Module, names: Collection[str] | None = None, scratch: Collection[str] = ()
) -> Materialized:
    """Split off the heavy operations before the loop that writes.

    Args:
        names: arguments, to which that loop alone writes; all that the kernel writes to if None.
            Operations that only writes to others need stay as they are.
        scratch: arguments that the kernel writes before it reads them, see ``restrict_writes``.

    Raises:
        NoTilingError: no single loop writes, a value is computed from what the kernel writes, or a
            value is no number.
    """
    rest = copied_kernel(module)
    function = rest.kernel
    memory = KernelMemory(rest)
    writes = [write for write, name in memory.writes.items() if names is None or name in names]
    loop = writing_loop(writes)
    needed = needed_values(writes)
    readers = [
        inner
        for inner in loop.walk()
        if inner in writes or any(result in needed for result in inner.results)
    ]
    inside = dict.fromkeys(
        value
        for inner in readers
        for value in ((loop.lower, loop.upper, loop.step) if inner is loop else inner.operands)
    )
    inside.update(
        dict.fromkeys(
            init
            for init, carried in zip(loop.inits, loop.body.arguments[1:], strict=True)
            if carried in needed
        )
    )
    cuts = _Cuts()
    chosen: dict[Value, None] = {}
    for value in inside:
        if value.definition is not None and value.definition.parent is function.body:
            kept = (value,) if _is_costly_operand(value, loop) else cuts.of(value)
            chosen.update(dict.fromkeys(kept))
    if not chosen:
        return Materialized(None, rest, ())
    first = copied_kernel(rest)
    twins = dict(zip(function.body, first.kernel.body, strict=True))
    axes = axes_read(rest)
    tiles = []
    for value in chosen:
        definition = value.definition
        assert definition is not None
        _require_number(value, definition)
        element = element_type(value.type)
        base = add_scratch(function, element, "scratch_0")
        tiles.append(ScratchTile(base.name, value.type))
        b = Builder.at(_following(definition))
        loaded = b.load(tile_at(b, base, program_number(b, axes), value.type))
        value.replace_all_uses(loaded)
        twin = twins[definition]
        b = Builder.at(_following(twin))
        base = add_scratch(first.kernel, element, base.name)
        b.store(tile_at(b, base, program_number(b, axes), value.type), twin.results[value.index])
    first = restrict_writes(first, [tile.name for tile in tiles], scratch)
    run_passes(rest)
    return Materialized(first, rest, tuple(tiles))


def _following(operation: Operation) -> Operation:
    assert operation.next is not None
    return operation.next


def _require_number(value: Value, definition: Operation) -> None:
    element = element_type(value.type)
    if not isinstance(element, IntType | FloatType) or bit_width(element) < 8:
        raise NoTilingError(
            f"the {definition.name} at {place_in_kernel(definition)} computes {value.type}, which "
            "memory does not hold"
        )


def _is_costly_operand(value: Value, loop: For) -> bool:
    """Return whether a loop's matmul reads what is computed from tiles of twice its bytes."""
    readers = [reader for reader in value.uses if loop in reader.ancestors()]
    readers += [
        reader
        for transpose in readers
        if isinstance(transpose, Permute)
        for reader in transpose.result.uses
    ]
    if not any(isinstance(reader, Dot) and reader.c is not value for reader in readers):
        return False
    pending, seen, loaded = [value], {value}, 0
    while pending:
        current = pending.pop()
        operation = current.definition
        if operation is None:
            continue
        if isinstance(operation, Load) or is_heavy(operation):
            loaded += _bytes(current)
        else:
            pending += [operand for operand in operation.operands if operand not in seen]
            seen.update(operation.operands)
    return loaded >= 2 * _bytes(value)


class _Cuts:
    """The values to keep in memory so that no heavy operation is repeated, the fewest bytes."""

    def __init__(self) -> None:
        self._known: dict[Value, tuple[Value, ...]] = {}

    def of(self, value: Value) -> tuple[Value, ...]:
        """Return the values to keep for a value; none where it is cheap."""
        pending = [value]
        while pending:  # operands first, for expressions may be deep
            current = pending[-1]
            operation = current.definition
            operands = [] if operation is None or is_heavy(operation) else operation.operands
            rest = [operand for operand in operands if operand not in self._known]
            if rest:
                pending += rest
                continue
            pending.pop()
            self._known[current] = self._found(current, operation)
        return self._known[value]

    def _found(self, value: Value, operation: Operation | None) -> tuple[Value, ...]:
        if operation is None:
            return ()
        if is_heavy(operation):
            return (value,)
        needed = {part: None for operand in operation.operands for part in self._known[operand]}
        if not needed:
            return ()
        cost = sum(map(_bytes, needed))
        return (value,) if _bytes(value) < cost else tuple(needed)


def _bytes(value: Value) -> int:
    elements = 1
    for extent in shape_of(value.type):
        elements *= extent
    element = element_type(value.type)
    if not isinstance(element, IntType | FloatType) or bit_width(element) < 8:
        return 1 << 62  # addresses and conditions are computed
    return elements * bit_width(element) // 8


__all__ = ["Materialized", "materialize"]
