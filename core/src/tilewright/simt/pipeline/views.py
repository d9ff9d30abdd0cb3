"""Tiles as they are seen through operations that only name elements differently: what is behind them can be read from the same place in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Region, Value
from tilewright.ir.types import TileType
from tilewright.simt.facts import layout_of
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, combine, log2
from tilewright.simt.rules import result_layout

#: Operations that a tile may come from.
LOADS = frozenset({"load", "descriptor_load"})
#: Operations that only name elements differently.
VIEWS = frozenset({"permute", "expand_dims", "reshape"})


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
            if user.name in VIEWS and not (user.name == "reshape" and user.attribute("reorder")):
                assert isinstance(seen.type, TileType)
                moved = result_layout(user, LinearLayout(seen.type.shape, bits, (), ()))
                work.append((user.results[0], moved.registers))


def sink_conversions(body: Region) -> None:
    """Let shape operations come before conversions: what converts last can read its own layout from shared memory. What only names the bits of a loaded tile
    otherwise comes after them."""
    for operation in list(body):
        _let_convert_first(operation, body)
    for operation in list(body):
        if operation.name not in VIEWS or operation.attributes.get("reorder"):
            continue
        conversion, (result,) = operation.operands[0].definition, operation.results
        if conversion is None or conversion.name != "simt.convert" or conversion.parent is not body or len(conversion.results[0].uses) > 1:
            continue
        source = conversion.operands[0]
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
    cast = conversion.operands[0].definition if conversion.name == "simt.convert" else None
    if cast is None or cast.name != "bitcast" or cast.parent is not body or len(cast.results[0].uses) > 1:
        return
    (source,), (result,) = cast.operands, conversion.results
    if source.definition is None or source.definition.name not in LOADS or source.definition.parent is not body:
        return
    builder = Builder.at(conversion)
    moved = builder.create(conversion.spec, ((source,),), conversion.attributes).results[0]
    moved.layout = result.layout
    named = builder.create(cast.spec, ((moved,),), cast.attributes, (result.type,)).results[0]
    named.layout = result.layout
    result.replace_all_uses(named)
    conversion.erase()
    cast.erase()
