"""Tiles as they are seen through operations that only name elements differently: what is behind
them can be read from the same place in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.shape import ExpandDims, Permute, Reshape
from tilewright.ir.types import TileType
from tilewright.simt.dialect.layout_rules import result_layout
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, combine, log2

#: Operations that only name elements differently.
Renaming = Permute | ExpandDims | Reshape


def renames(operation: Operation) -> TypeGuard[Renaming]:
    """Return whether an operation only renames elements, and moves none of them."""
    return isinstance(operation, Renaming) and not (
        isinstance(operation, Reshape) and operation.reorder
    )


@dataclass(frozen=True, slots=True)
class View:
    """A tile as it is seen through shape operations: ``bits[i]`` is the image there of bit i of an
    element's number in the loaded tile."""

    value: Value
    bits: tuple[int, ...]

    def shared(self, shared: SharedLayout) -> SharedLayout:
        """The shared layout of the view, for that of the loaded tile."""
        assert isinstance(self.value.type, TileType)
        return SharedLayout(
            self.value.type.shape,
            tuple(shared.images[self.bits.index(1 << bit)] for bit in range(len(self.bits))),
        )

    def unviewed_shared(self, shared: SharedLayout, shape: tuple[int, ...]) -> SharedLayout:
        """The shared layout of the loaded tile, for that of the view."""
        return SharedLayout(shape, shared.through(self.bits))

    def unviewed(self, layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
        """The layout of the loaded tile, for that of the view."""
        back = [1 << self.bits.index(1 << bit) for bit in range(len(self.bits))]
        moved = [
            tuple([combine(back, image) for image in images])
            for images in (layout.registers, layout.lanes, layout.warps)
        ]
        return LinearLayout(shape, *moved)


def views_of(value: Value) -> Iterator[View]:
    """The tile itself, and all that shape operations in the same region make of it."""
    assert isinstance(value.type, TileType)
    count = log2(value.type.numel)
    work = [(value, tuple(1 << bit for bit in range(count)))]
    while work:
        seen, bits = work.pop()
        yield View(seen, bits)
        for user in seen.uses:
            if renames(user):
                assert isinstance(seen.type, TileType)
                moved = result_layout(user, LinearLayout(seen.type.shape, bits, (), ()))
                work.append((user.results[0], moved.registers))


def named_before(operation: Renaming, bits: tuple[int, ...]) -> tuple[int, ...]:
    """The images of the bits of an element's number in the tile that an operation renames, for
    ``bits``, those of its result's."""
    source = operation.x.type
    assert isinstance(source, TileType)
    named = result_layout(
        operation,
        LinearLayout(source.shape, tuple(1 << bit for bit in range(log2(source.numel))), (), ()),
    )
    return tuple(combine(bits, image) for image in named.registers)
