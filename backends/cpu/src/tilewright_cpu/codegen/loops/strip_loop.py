"""Loops over tiles in memory, a vector at a time, for operations that are not evaluated lazily."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.context import Buffer

#: Writes the code of one strip: its first index, an i64 operand, and its lanes (0 for a scalar).
Body = Callable[[str, int], None]


def for_strips(w: FunctionWriter, extent: int, width: int, body: Body) -> None:
    """Run ``body`` over 0 .. ``extent`` - 1 in strips of ``width`` (a power of two).

    The remainder is covered by strips of smaller powers of two.
    """
    start, lanes = 0, width
    while start < extent:
        count = (extent - start) // lanes
        if count:
            stop = start + count * lanes
            if count == 1:
                body(str(start), lanes if lanes > 1 else 0)
            else:
                with w.loop(str(start), str(stop), lanes, nonempty=True) as loop:
                    body(loop.index, lanes if lanes > 1 else 0)
            start = stop
        lanes //= 2


def for_each(w: FunctionWriter, extent: int, body: Callable[[str], None]) -> None:
    """Run ``body`` for every index, one at a time."""
    if extent == 1:
        body("0")
        return
    with w.loop("0", str(extent), 1, nonempty=True) as loop:
        body(loop.index)


def around_axis(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(product of the extents before an axis, its extent, product of those after it)."""
    before = after = 1
    for extent in shape[:axis]:
        before *= extent
    for extent in shape[axis + 1 :]:
        after *= extent
    return before, shape[axis], after


def viewed(buffer: Buffer, *shape: int) -> Buffer:
    """The same memory in another shape."""
    return Buffer(buffer.pointer, shape, buffer.element)
