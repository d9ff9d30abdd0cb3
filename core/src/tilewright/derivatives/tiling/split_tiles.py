"""Tiles of rank 1 split over the programs of an axis of the grid that has one program.

The kernel that adds up partial sums of a tile would be a single program where the tile is a whole
row. All that it does is elementwise along the row, so that programs may take a part of it each.
"""

from __future__ import annotations

from tilewright.derivatives.tiling.kernel_memory import copied_kernel
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops.arithmetic import Arange, ProgramId
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import AtomicRmw, Load, Store
from tilewright.ir.ops.shape import Splat
from tilewright.ir.types import I32, TileType
from tilewright.ir.verifier import verify
from tilewright.passes.pipeline import run as run_passes


def split_tiles(module: Module, axis: int, width: int) -> tuple[Module, int] | None:
    """Return a kernel whose programs along an axis take a part of its tiles, and their number.

    Args:
        axis: one that has a single program, of which the kernel does not read its place.
        width: the elements of a part.

    Returns:
        None where the kernel is not elementwise along tiles of one extent, they are no wider, or it
            writes a scalar, as each of the programs would.
    """
    made = copied_kernel(module)
    kernel = made.kernel
    if any(isinstance(op, ProgramId) and op.axis == axis for op in kernel.walk()):
        return None
    tiles = [value for value in _values(kernel) if isinstance(value.type, TileType)]
    shapes = {value.type.shape for value in tiles if isinstance(value.type, TileType)}
    if len(shapes) != 1 or not all(map(_is_elementwise, kernel.walk())):
        return None
    if any(map(_writes_scalar, kernel.walk())):
        return None
    (shape,) = shapes
    if len(shape) != 1 or shape[0] <= width or shape[0] % width:
        return None
    assert kernel.body.first is not None
    b = Builder.at(kernel.body.first)
    start = b.mul(b.program_id(axis=axis), b.constant_like(I32, width))
    for value in tiles:
        assert isinstance(value.type, TileType)
        value.type = TileType((width,), value.type.element)
    for operation in list(kernel.walk()):
        if isinstance(operation, Arange):
            b = Builder.at(operation)
            moved = b.arange(start=operation.start, end=operation.start + width)
            moved = b.add(moved, b.splat(start, result=moved.type))
            operation.result.replace_all_uses(moved)
            operation.erase()
    run_passes(made)
    verify(made)
    return made, shape[0] // width


def _values(kernel: Function) -> list[Value]:
    found = [result for operation in kernel.walk() for result in operation.results]
    regions = (region for operation in kernel.walk() for region in operation.regions)
    return found + [value for region in regions for value in region.arguments]


def _writes_scalar(operation: Operation) -> bool:
    """Return whether an operation writes to one element of memory."""
    return isinstance(operation, Store | AtomicRmw) and not isinstance(
        operation.operands[0].type, TileType
    )


def _is_elementwise(operation: Operation) -> bool:
    """Return whether each lane of an operation depends on the same lane of its operands alone."""
    if not any(isinstance(v.type, TileType) for v in (*operation.operands, *operation.results)):
        return True
    known = For | Load | Store | AtomicRmw | Arange | Splat
    return isinstance(operation, known) or operation.spec.elementwise or operation.spec.terminator


__all__ = ["split_tiles"]
