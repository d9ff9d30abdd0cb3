"""Guaranteed writes: offsets from each argument's address that a kernel is sure to store to.

Program (0, 0, 0) runs whatever the grid is, and what it stores without a mask, outside branches and
loops, it stores for certain. Where the addresses of such a store have an affine form
(:mod:`.affine`) whose coefficients are numbers in that program, their minimum and maximum are known
exactly. A launcher that knows how long an argument's memory is can refuse, instead of writing over
something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Location, Module
from tilewright.ir.ops.memory import Store
from tilewright.ir.types import PointerType, byte_size, element_type, shape_of
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.execution_counts import Numbers, Runs

#: Offsets beyond this may have wrapped around in the kernel's integers: nothing is said of them.
_LIMIT: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class WriteExtent:
    """Bytes that a kernel certainly writes through an argument.

    Attributes:
        argument: the position of the kernel's argument.
        first, end: offsets in bytes from its address: of the first byte, and after the last.
        location: of the store, if it has one.
    """

    argument: int
    first: int
    end: int
    location: Location | None

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column of the store; empty and zeros if unknown."""
        where = self.location
        return (where.file, where.line, where.column) if where is not None else ("", 0, 0)


def certain_writes(module: Module) -> list[WriteExtent]:
    """Return, for each argument, the stores that reach its lowest and its highest byte.

    Arguments without such stores have no entry.
    """
    kernel = module.kernel
    affine = Affine(kernel)
    numbers = Numbers(affine, {}, None)
    lowest: dict[int, WriteExtent] = {}
    highest: dict[int, WriteExtent] = {}
    for operation in kernel.body:
        if not isinstance(operation, Store) or operation.mask is not None:
            continue
        extent = _extent(operation, affine, numbers)
        if extent is None:
            continue
        argument = extent.argument
        if argument not in lowest or extent.first < lowest[argument].first:
            lowest[argument] = extent
        if argument not in highest or extent.end > highest[argument].end:
            highest[argument] = extent
    return list(dict.fromkeys((*lowest.values(), *highest.values())))


def _extent(store: Store, affine: Affine, numbers: Numbers) -> WriteExtent | None:
    """Return the bytes that program (0, 0, 0) stores to; None if they are not known."""
    form, pointer = affine.form(store.pointer), element_type(store.pointer.type)
    if form is None or form.base is None or form.base.owner is not affine.function.body:
        return None
    assert isinstance(pointer, PointerType)
    fixed = form.evaluated(lambda polynomial: numbers.in_first(polynomial, Runs.of_grid((1, 1, 1))))
    span = None if fixed is None else fixed.span(shape_of(store.pointer.type))
    if span is None:
        return None
    size = byte_size(pointer.pointee)
    first, last = span[0] * size, span[1] * size
    if max(-first, last) >= _LIMIT:
        return None
    return WriteExtent(form.base.index, first, last + size, store.location)


__all__ = ["WriteExtent", "certain_writes"]
