"""The number of iterations that each program's loop has: the extent of an interchanged grid."""

from __future__ import annotations

from tilewright.derivatives.tiling.grid_dependence import writing_loop
from tilewright.derivatives.tiling.kernel_memory import KernelMemory, copied_kernel
from tilewright.derivatives.tiling.scalar_slice import scalar_slice
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module
from tilewright.ir.types import I32


def iteration_counts(module: Module) -> Module:
    """Return the slice of a kernel that stores the iterations of its loop that writes.

    The grid of an interchanged kernel has their maximum along the axis.

    Raises:
        NoTilingError: no single loop writes, or its bounds depend on memory.
    """
    source = copied_kernel(module)
    loop = writing_loop(KernelMemory(source).writes)
    b = Builder.at(loop)
    zero, one = (b.constant_like(loop.lower.type, number) for number in (0, 1))
    distance = b.max(b.sub(loop.upper, loop.lower), zero)
    count = b.div(b.add(distance, b.sub(loop.step, one)), loop.step)
    if count.type is not I32:
        count = b.cast(count, result=I32)
    return scalar_slice(source, [count], loop)


__all__ = ["iteration_counts"]
