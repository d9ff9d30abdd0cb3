"""Steps that load, store and update memory, and the stores of a program's results.

Every access lies in an argument of its own, and what one program writes no other one touches,
except by atomic updates that commute and whose old values nobody reads: results are the same in
every order of the programs.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import Value
from tilewright.ir.types import (
    I1,
    I32,
    I64,
    U8,
    FloatType,
    PointerType,
    TileType,
    Type,
    element_type,
    shape_of,
    tile_or_scalar,
    with_element,
)
from tilewright_conformance.random_programs.shapes import below
from tilewright_conformance.random_programs.state import Item, Slot, State, is_number

_PREDICATES = ("lt", "le", "ne", "eq", "ge")
_SCOPES, _ORDERS = ("program", "device", "system"), ("relaxed", "acquire", "release", "acq_rel")


# ---- addresses


def _layout(state: State, shape: tuple[int, ...]) -> tuple[Value, int]:
    """(offsets of a tile in i32, all different; how many elements they span)."""
    kind = state.number(0, 7)
    numel = state.language.numel(shape)
    if kind < 3 and len(shape) > 1:
        return _strided(state, shape)
    offsets = state.positions(shape)
    with state.guarding() as b:
        if kind == 3:
            return b.sub(b.constant_like(offsets.type, numel - 1), offsets), numel
        if kind == 4:
            stride, start = state.number(2, 3), state.number(0, 2)
            return b.add(
                b.mul(offsets, b.constant_like(offsets.type, stride)),
                b.constant_like(offsets.type, start),
            ), (numel - 1) * stride + start + 1
    return offsets, numel


def _strided(state: State, shape: tuple[int, ...]) -> tuple[Value, int]:
    """Offsets of a tile's elements: the sum over the axes of a coordinate times a stride.

    The axes lie in memory in any order, with gaps between.
    """
    order = state.random.sample(range(len(shape)), len(shape))
    strides, span = [0] * len(shape), 1
    for axis in order:
        strides[axis] = span
        span = span * shape[axis] + state.one_of((0, 0, 1, 3))
    with state.guarding() as b:
        total: Value | None = None
        for axis in range(len(shape)):
            along = state.along(shape, axis)
            part = b.mul(along, b.constant_like(along.type, strides[axis]))
            total = part if total is None else b.add(total, part)
    assert total is not None
    return total, sum(
        (extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)
    ) + 1


def _moved(state: State, base: Value, offsets: Value, maximum: int) -> Value:
    """Pointers at offsets, which are of any type that holds ``maximum``."""
    types = [
        type_ for type_ in (I32, I32, I64, *state.language.integers) if type_.maximum >= maximum
    ]
    target = with_element(offsets.type, state.one_of(types))
    with state.guarding() as b:
        if offsets.type is not target:
            offsets = b.cast(offsets, result=target)
        shape = shape_of(offsets.type)
        base = b.splat(base, result=TileType(shape, base.type)) if shape else base
        found: Value = b.addptr(base, offsets)
    return found


def own_part(state: State, slot: Value, span: int) -> Value:
    """The part of an argument that belongs to this program."""
    program = state.linear_program()
    with state.guarding() as b:
        found: Value = b.addptr(slot, b.mul(program, b.constant_like(I32, span)))
    return found


def _region(
    state: State,
    element: Type,
    shape: tuple[int, ...],
    fill: str,
    name: str,
    written: tuple[float, float] | None = None,
) -> tuple[Slot, Value]:
    """A new argument with room for a tile of each program, and the tile's pointers."""
    if not shape:
        slot = state.array(element, state.programs, fill, name, written)
        return slot, own_part(state, slot.value, 1)
    offsets, span = _layout(state, shape)
    slot = state.array(element, span * state.programs, fill, name, written)
    return slot, _moved(state, own_part(state, slot.value, span), offsets, span - 1)


def _global(
    state: State,
    element: Type,
    shape: tuple[int, ...],
    fill: str,
    name: str,
    written: tuple[float, float] | None = None,
) -> tuple[Value, Value]:
    """(pointers, mask) of the program's tile of an array that ends inside a tile.

    The lanes beyond the array's end are masked off.
    """
    numel = state.language.numel(shape)
    total = numel * state.programs
    count = state.number(1, total)
    slot = state.array(element, count, fill, name, written)
    limit = (
        state.scalar(I32, count, "n").value
        if state.chance(2)
        else state.builder.constant_like(I32, count)
    )
    positions = state.positions(shape)
    with state.guarding() as b:
        start = b.mul(state.linear_program(), b.constant_like(I32, numel))
        offsets = b.add(b.splat(start, result=positions.type), positions)
    pointers = _moved(state, slot.value, offsets, total)
    with state.guarding() as b:
        mask: Value = b.cmp(offsets, b.splat(limit, result=offsets.type), predicate="lt")
    return pointers, mask


def _mask(state: State, shape: tuple[int, ...]) -> Value:
    """Lanes below a number, of a rectangle, or by a value of the program."""
    b = state.builder
    kind = state.number(0, 3)
    if kind == 0:
        found = state.exact_of(tile_or_scalar(shape, I1))
        if found is not None:
            return found
    if not shape:
        value = state.linear_program()
        made: Value = b.cmp(
            value, b.constant_like(I32, state.number(0, 3)), predicate=state.one_of(_PREDICATES)
        )
        return made
    if kind < 3 and len(shape) > 1:
        conditions = []
        for axis in range(len(shape)):
            along = state.along(shape, axis)
            conditions.append(
                b.cmp(
                    along, b.constant_like(along.type, state.number(0, shape[axis])), predicate="lt"
                )
            )
        both = conditions[0]
        for condition in conditions[1:]:
            both = b.and_(both, condition)
        return both
    positions = state.positions(shape)
    limit: Value = b.constant_like(positions.type, state.number(0, state.language.numel(shape)))
    if state.chance(2):
        limit = b.splat(
            state.scalar(I32, state.number(0, state.language.numel(shape)), "n").value,
            result=positions.type,
        )
    mask: Value = b.cmp(positions, limit, predicate="lt")
    return mask


# ---- loads


def load(state: State, shape: tuple[int, ...] | None = None, element: Type | None = None) -> None:
    """A tile of an argument, with whatever addresses and masks."""
    if shape is None:
        tile = state.exact_tile(lambda type_: True)
        shape = shape_of(tile.type) if tile is not None and state.number(0, 4) else ()
    element = element or state.one_of(state.language.stored)
    kind = state.number(0, 5)
    mask: Value | None = None
    if kind == 0 and shape:
        pointers, mask = _global(state, element, shape, "random", "x")
    elif kind == 1 and shape:
        span = state.one_of((1, 7, 64, 200, 300))
        slot = state.array(element, span, "random", "x")
        pointers = _moved(state, slot.value, below(state, state.integers(shape), span), span - 1)
    else:
        pointers = _region(state, element, shape, "random", "x")[1]
        if state.chance(2):
            mask = _mask(state, shape)
    type_ = tile_or_scalar(shape, element)
    attributes = (
        {"volatile": True}
        if state.chance(12)
        else {"eviction": state.one_of(("first", "last"))}
        if state.chance(8)
        else {}
    )
    if mask is None:
        state.add(state.builder.load(pointers, **attributes))
    elif state.number(0, 2):
        state.add(state.builder.load(pointers, mask=mask, other=state.of(type_), **attributes))
    else:  # masked-off lanes are zero
        state.add(state.builder.load(pointers, mask=mask, **attributes))


# ---- stores


def _storable(state: State, item: Item) -> Value:
    """The value with booleans as bytes."""
    if element_type(item.type) is I1:
        with state.guarding() as b:
            found: Value = b.cast(
                item.value, result=with_element(item.type, U8 if state.language.has(U8) else I32)
            )
        return found
    return item.value


def store_result(state: State, item: Item) -> None:
    """Store a value where nothing else is stored."""
    value = _storable(state, item)
    shape, element, bound = shape_of(value.type), element_type(value.type), item.bound or (0.0, 0.0)
    if shape and state.chance(3):
        pointers, mask = _global(state, element, shape, "poison", "out", bound)
        state.builder.store(pointers, value, mask)
        return
    if len(shape) > 1 and state.number(0, 2):
        with state.guarding() as b:
            value = b.reshape(value, result=TileType((state.language.numel(shape),), element))
        shape = shape_of(value.type)
    pointers = _region(state, element, shape, "poison", "out", bound)[1]
    state.builder.store(pointers, value, _mask(state, shape) if state.chance(3) else None)


def store(state: State) -> None:
    """A store in the middle of the program, of a loop or of a branch."""
    item = state.pick(lambda item: not isinstance(element_type(item.type), PointerType))
    if item is not None:
        store_result(state, item)


def store_and_load(state: State) -> None:
    """Write a tile and read it in another order.

    A barrier on either side is needed, because a lane reads elements that other lanes wrote.
    """
    item = state.pick(lambda item: isinstance(item.type, TileType))
    if item is None:
        return
    value = _storable(state, item)
    shape, element = shape_of(value.type), element_type(value.type)
    offsets, span = _layout(state, shape)
    slot = state.array(element, span * state.programs, "poison", "m", item.bound or (0.0, 0.0))
    base = own_part(state, slot.value, span)
    state.builder.barrier()
    state.builder.store(_moved(state, base, offsets, span - 1), value)
    state.builder.barrier()
    with state.guarding() as b:
        other = (
            b.sub(b.constant_like(offsets.type, span - 1), offsets) if state.chance(2) else offsets
        )
        loaded = b.load(_moved(state, base, other, span - 1))
    state.add(loaded, item.bound)


# ---- atomics


def atomic_own(state: State) -> None:
    """An update of cells that no other lane touches: the old value is known."""
    if not state.language.atomics:
        return
    element, kind = state.one_of(state.language.atomics)
    tile = state.exact_tile(lambda type_: type_.element is element) or state.exact_tile(
        lambda type_: True
    )
    shape = shape_of(tile.type) if tile is not None and state.number(0, 5) else ()
    type_ = tile_or_scalar(shape, element)
    adds = kind == "add" and isinstance(element, FloatType)
    pointers = _region(state, element, shape, "whole" if adds else "finite", "m", (0.0, 0.0))[1]
    attributes = {"order": state.one_of(_ORDERS), "scope": state.one_of(_SCOPES)}
    value = state.whole(type_, 4) if adds else state.settled(state.of(type_))
    if kind == "cas":
        with state.guarding() as b:
            found = b.load(pointers)
            state.builder.barrier()
        if state.number(0, 2):  # half of the lanes, more or less, find what they expect
            with state.guarding() as b:
                some = state.integers(shape)
                found = b.select(
                    b.cmp(
                        b.and_(some, b.constant_like(some.type, 1)),
                        b.constant_like(some.type, 0),
                        predicate="eq",
                    ),
                    found,
                    value,
                )
        state.add(state.builder.atomic_cas(pointers, found, value, **attributes))
        _look(state, pointers)
        return
    mask = _mask(state, shape) if state.chance(3) else None
    old = state.builder.atomic_rmw(pointers, value, mask, kind=kind, **attributes)
    if mask is not None:
        with state.guarding() as b:
            old = b.select(mask, old, b.constant_like(type_, 1))
    state.add(old)
    _look(state, pointers)


def _look(state: State, pointers: Value) -> None:
    """Now and then, read what an update left."""
    if state.chance(2):
        state.builder.barrier()
        state.add(state.builder.load(pointers))


def atomic_shared(state: State) -> None:
    """Updates of a few cells by many lanes and programs, in whatever order."""
    kinds = [
        (element, kind)
        for element, kind in state.language.atomics
        if kind not in ("xchg", "cas") and element.bits >= 32
    ]
    tile = state.exact_tile(lambda type_: True)
    if not kinds or tile is None:
        return
    element, kind = state.one_of(kinds)
    type_ = with_element(tile.type, element)
    cells = state.one_of((1, 2, 4, 8, 33))
    adds = kind == "add" and isinstance(element, FloatType)
    slot = state.array(element, cells, "whole" if adds else "finite", "m", (0.0, 0.0))
    pointers = _moved(
        state, slot.value, below(state, state.integers(shape_of(type_)), cells), cells - 1
    )
    value = state.whole(type_, 4) if adds else state.settled(state.of(type_))
    mask = _mask(state, shape_of(type_)) if state.chance(3) else None
    state.builder.atomic_rmw(
        pointers,
        value,
        mask,
        kind=kind,
        order=state.one_of(_ORDERS),
        scope=state.one_of(_SCOPES[1:]),
    )


def atomic_access(state: State) -> None:
    """Whole stores and loads."""
    item = state.pick(lambda item: is_number(element_type(item.type)))
    if item is None:
        return
    shape, element = shape_of(item.type), element_type(item.type)
    pointers = _region(state, element, shape, "finite", "m", item.bound or (0.0, 0.0))[1]
    mask = _mask(state, shape) if state.chance(3) else None
    scope = state.one_of(_SCOPES)
    state.builder.atomic_store(
        pointers, item.value, mask, order=state.one_of(("relaxed", "release")), scope=scope
    )
    if mask is None or item.bound is None:
        state.builder.barrier()
        loaded = state.builder.atomic_load(
            pointers, order=state.one_of(("relaxed", "acquire")), scope=scope
        )
        state.add(loaded, item.bound)


STEPS: dict[Callable[[State], None], int] = {
    load: 6,
    store: 2,
    store_and_load: 3,
    atomic_own: 5,
    atomic_shared: 3,
    atomic_access: 2,
}
