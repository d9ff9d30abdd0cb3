"""Tiles as they are seen through operations that only name elements differently: what is behind them can be read from the same place in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.memory import DescriptorLoad, Load
from tilewright.ir.ops.shape import ExpandDims, Permute, Reshape
from tilewright.ir.types import TileType
from tilewright.simt.facts import layout_of
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine, log2
from tilewright.simt.ops.buffers import Convert
from tilewright.simt.rules import result_layout

#: Operations that only name elements differently.
Renaming = Permute | ExpandDims | Reshape


def renames(operation: Operation) -> TypeGuard[Renaming]:
    """Whether an operation only names elements differently, each of which is where it was."""
    return isinstance(operation, Renaming) and not (isinstance(operation, Reshape) and operation.reorder)


@dataclass(frozen=True, slots=True)
class View:
    """A tile as it is seen through shape operations: ``bits[i]`` is the image there of bit i of an element's number in the loaded tile."""

    value: Value
    bits: tuple[int, ...]

    def shared(self, shared: SharedLayout) -> SharedLayout:
        """The shared layout of the view, for that of the loaded tile."""
        assert isinstance(self.value.type, TileType)
        return SharedLayout(self.value.type.shape, tuple(shared.images[self.bits.index(1 << bit)] for bit in range(len(self.bits))))

    def unviewed_shared(self, shared: SharedLayout, shape: tuple[int, ...]) -> SharedLayout:
        """The shared layout of the loaded tile, for that of the view."""
        return SharedLayout(shape, shared.through(self.bits))

    def unviewed(self, layout: LinearLayout, shape: tuple[int, ...]) -> LinearLayout:
        """The layout of the loaded tile, for that of the view."""
        back = [1 << self.bits.index(1 << bit) for bit in range(len(self.bits))]
        moved = [tuple([combine(back, image) for image in images]) for images in (layout.registers, layout.lanes, layout.warps)]
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
    """The images of the bits of an element's number in the tile that an operation renames, for ``bits``, those of its result's."""
    source = operation.x.type
    assert isinstance(source, TileType)
    named = result_layout(operation, LinearLayout(source.shape, tuple(1 << bit for bit in range(log2(source.numel))), (), ()))
    return tuple(combine(bits, image) for image in named.registers)


def sink_conversions(body: Region) -> None:
    """Let shape operations come before conversions: what converts last can read its own layout from shared memory. What only names the bits of a loaded tile
    otherwise comes after them."""
    for operation in list(body):
        _let_convert_first(operation, body)
    convert_last(body)


def convert_last(body: Region) -> None:
    """Let shape operations of a region come before the conversions of what they are of."""
    for operation in list(body):
        if not renames(operation):
            continue
        conversion, (result,) = operation.x.definition, operation.results
        if not isinstance(conversion, Convert) or conversion.parent is not body or len(conversion.results[0].uses) > 1:
            continue
        source = conversion.x
        builder = Builder.at(operation)
        view = builder.create(operation.spec, ((source,),), operation.attributes, (result.type,) if operation.spec.explicit_results else ()).results[0]
        view.layout = result_layout(operation, layout_of(source))
        moved = builder.create(conversion.spec, ((view,),), conversion.attributes).results[0]
        moved.layout = result.layout
        result.replace_all_uses(moved)
        operation.erase()
        conversion.erase()


def _let_convert_first(conversion: Operation, body: Region) -> None:
    """Let a tile be converted before its elements are taken for others of as many bits, if it is loaded and nothing else reads those."""
    cast = conversion.x.definition if isinstance(conversion, Convert) else None
    if not isinstance(cast, Bitcast) or cast.parent is not body or len(cast.results[0].uses) > 1:
        return
    source, (result,) = cast.x, conversion.results
    if not isinstance(source.definition, Load | DescriptorLoad) or source.definition.parent is not body:
        return
    builder = Builder.at(conversion)
    moved = builder.create(conversion.spec, ((source,),), conversion.attributes).results[0]
    moved.layout = result.layout
    named = builder.create(cast.spec, ((moved,),), cast.attributes, (result.type,)).results[0]
    named.layout = result.layout
    result.replace_all_uses(named)
    conversion.erase()
    cast.erase()
