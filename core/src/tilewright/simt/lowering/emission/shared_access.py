"""Accesses of tiles in shared memory, planned by :mod:`tilewright.simt.layouts.swizzle`.

An i1 takes a byte there, a pointer 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.types import I1, FloatType, IntType, Type
from tilewright.llvm.emission.registers import storage_size, storage_type
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.layouts.swizzle import Accesses, accesses
from tilewright.simt.lowering.emission.context import SimtContext


@dataclass(frozen=True, slots=True)
class Place:
    """The address of one access.

    Attributes:
        registers: the registers it moves, in memory order.
        base: the name of an address in shared memory.
        offset: bytes to add to the base.
        offset_bits: what the access adds to the thread's offset by xor, in elements.
    """

    registers: tuple[int, ...]
    base: str
    offset: int
    offset_bits: int


def plan_accesses(
    context: SimtContext, layout: LinearLayout, shared: SharedLayout, element: Type
) -> Accesses:
    return accesses(
        layout, shared, max(1, context.target.resources.max_access // storage_size(element))
    )


def places(
    context: SimtContext,
    base: str,
    plan: Accesses,
    element: Type,
    inside: int = -1,
    index: tuple[str, int] | None = None,
) -> list[Place]:
    """Emit the addresses of a plan's accesses to the tile at address ``base``.

    Args:
        inside: mask of the bits of an offset, in elements, within a round; the others are the
            number of the element's round.
        index: the name of an i32 to xor into the byte offsets, and the mask of bits it may have
            set.
    """
    w, size = context.writer, storage_size(element)
    lanes, warps = (
        [(image & inside) * size for image in images] for images in (plan.lanes, plan.warps)
    )
    thread = context.thread_part(lanes, warps)
    varying = 0
    for image in (*lanes, *warps):
        varying |= image
    if index is not None:
        thread = w.emit(f"xor i32 {thread}, {index[0]}")
        varying |= index[1]
    # Bits that no thread sets are a constant offset, which the addressing mode adds for free.
    bases: dict[int, str] = {}
    found = []
    for registers, bits in plan.groups:
        offset = (bits & inside) * size
        mixed = offset & varying
        name = bases.get(mixed)
        if name is None:
            moved = w.emit(f"xor i32 {thread}, {mixed}") if mixed else thread
            name = bases[mixed] = w.emit(
                f"getelementptr i8, {context.target.shared.pointer} {base}, i32 {moved}"
            )
        found.append(Place(registers, name, offset ^ mixed, bits))
    return found


def read(context: SimtContext, place: Place, element: Type) -> list[str]:
    """Load the elements at a place."""
    size, count = storage_size(element), len(place.registers)
    word, each = _words(context, element, count)
    if each > 1:
        words = context.shared_load(
            place.base, storage_type(word), count // each, place.offset, count * size
        )
        return context.target.matrix.unpack(context.writer, words, element)
    names = context.shared_load(
        place.base, storage_type(element), count, place.offset, count * size
    )
    return (
        [context.writer.emit(f"trunc i8 {name} to i1") for name in names]
        if element is I1
        else names
    )


def write(context: SimtContext, place: Place, element: Type, registers: Sequence[str]) -> None:
    """Store to a place its own registers, out of all ``registers`` of the tile."""
    names = [registers[register] for register in place.registers]
    size = len(names) * storage_size(element)
    word, each = _words(context, element, len(names))
    if each > 1:
        context.shared_store(
            place.base,
            storage_type(word),
            context.target.matrix.pack(context.writer, names, element),
            place.offset,
            size,
        )
        return
    if element is I1:
        names = [context.writer.emit(f"zext i1 {name} to i8") for name in names]
    context.shared_store(place.base, storage_type(element), names, place.offset, size)


def _words(context: SimtContext, element: Type, count: int) -> tuple[Type, int]:
    """Return the type of words that ``count`` narrow elements are moved in, and elements per word.

    Packed elements are then not unpacked only to be moved. One element per word if they are moved
    as they are.
    """
    if element is I1 or not isinstance(element, IntType | FloatType):
        return element, 1
    word, each = context.target.matrix.fragment_word(element)
    return (word, each) if count % each == 0 else (element, 1)


def read_tile(
    context: SimtContext, base: str, layout: LinearLayout, shared: SharedLayout, element: Type
) -> list[str]:
    """Load the registers of a tile from shared memory."""
    names = [""] * layout.register_count
    for place in places(context, base, plan_accesses(context, layout, shared, element), element):
        for register, name in zip(place.registers, read(context, place, element), strict=True):
            names[register] = name
    return names


def write_tile(
    context: SimtContext,
    base: str,
    layout: LinearLayout,
    shared: SharedLayout,
    element: Type,
    registers: Sequence[str],
) -> None:
    """Store a tile to shared memory. Of the warps that hold the same elements, one stores them."""
    found = places(context, base, plan_accesses(context, layout, shared, element), element)

    def write_all() -> None:
        for place in found:
            write(context, place, element, registers)

    when(context, writing_warp(context, layout), write_all)


def writing_warp(context: SimtContext, layout: LinearLayout) -> str | None:
    """Emit an i1 that holds in one of the warps that hold the same elements.

    Returns None if no two warps hold the same elements. Lanes with equal elements write the same
    word, which costs nothing.
    """
    return context.thread_is_zero(0, layout.redundant_threads()[1])


def when(context: SimtContext, condition: str | None, body: object) -> None:
    """Emit ``body()`` under a condition, if there is one."""
    assert callable(body)
    if condition is None:
        body()
        return
    with context.writer.when(condition):
        body()
