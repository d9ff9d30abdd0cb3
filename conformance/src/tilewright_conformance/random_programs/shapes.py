"""Steps that move, repeat or count elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tilewright.ir import Value
from tilewright.ir.types import (
    I1,
    I32,
    I64,
    IntType,
    TileType,
    element_type,
    shape_of,
    with_element,
)
from tilewright_conformance.random_programs.state import Item, State, is_int


def _tile(state: State) -> tuple[Item, Value, TileType] | None:
    """A tile to move: exact or not."""
    item = state.pick(
        lambda item: isinstance(item.type, TileType) and isinstance(item.value, Value)
    )
    return (
        (item, item.value, item.type)
        if item is not None and isinstance(item.type, TileType)
        else None
    )


def _partner(state: State, item: Item) -> Value:
    """Return a second operand of the same type; the tile itself if its bits must stay exact."""
    return state.partner(item.value) if item.bound is None else item.value


def permute(state: State) -> None:
    item = state.pick(lambda item: len(shape_of(item.type)) > 1)
    if item is not None:
        rank = len(shape_of(item.type))
        orders = [
            order for order in itertools.permutations(range(rank)) if order != tuple(range(rank))
        ]
        state.add(state.builder.permute(item.value, order=state.one_of(orders[:23])), item.bound)


def expand(state: State) -> None:
    found = _tile(state)
    if found is not None and found[2].rank < 4:
        item, value, type_ = found
        state.add(state.builder.expand_dims(value, axis=state.number(0, type_.rank)), item.bound)


def reshape(state: State) -> None:
    found = _tile(state)
    if found is None:
        return
    item, value, type_ = found
    firsts = [
        extent
        for extent in (1, 2, 3, 4, 8, 16)
        if type_.numel % extent == 0 and extent <= type_.numel
    ]
    first = state.one_of(firsts)
    rest = type_.numel // first
    shapes = [
        (first, rest),
        (rest, first),
        (type_.numel,),
        *([(first, 2, rest // 2)] if rest % 2 == 0 else []),
    ]
    shapes = [shape for shape in shapes if shape != type_.shape and state.language.fits(shape)]
    if shapes:
        state.add(
            state.builder.reshape(value, result=TileType(state.one_of(shapes), type_.element)),
            item.bound,
        )


def broadcast(state: State) -> None:
    item = state.pick(lambda item: 1 in shape_of(item.type))
    if item is None:
        scalar = state.pick(lambda item: not isinstance(item.type, TileType))
        tile = state.pick(lambda item: isinstance(item.type, TileType))
        if scalar is not None and tile is not None:
            state.add(
                state.builder.splat(scalar.value, result=with_element(tile.type, scalar.type)),
                scalar.bound,
            )
        return
    extent = state.one_of((2, 4, 8))
    shape = tuple(extent if own == 1 else own for own in shape_of(item.type))
    if state.language.fits(shape):
        state.add(
            state.builder.broadcast(item.value, result=TileType(shape, element_type(item.type))),
            item.bound,
        )


def unsplat(state: State) -> None:
    """The element of a tile that has one: as it is, or picked from a row."""
    item = state.pick(lambda item: isinstance(item.type, TileType) and item.type.numel == 1)
    if item is None:
        item = state.pick(lambda item: len(shape_of(item.type)) == 1)
        if item is not None:
            index = state.builder.constant_like(
                TileType((1,), I32), state.number(0, shape_of(item.type)[0] - 1)
            )
            item = Item(state.builder.gather(item.value, index, axis=0), item.bound)
    if item is not None:
        state.add(state.builder.unsplat(item.value), item.bound)


def join(state: State) -> None:
    found = _tile(state)
    if found is not None and found[2].rank < 4 and state.language.fits((*found[2].shape, 2)):
        state.add(state.builder.join(found[1], _partner(state, found[0])), found[0].bound)


def split(state: State) -> None:
    item = state.pick(lambda item: shape_of(item.type)[-1:] == (2,))
    if item is None:
        found = _tile(state)
        if found is None or found[2].numel % 2:
            return
        item = found[0]
        shape = (found[2].numel // 2, 2)
        if not state.language.fits(shape):
            return
        halves = state.builder.split(
            state.builder.reshape(found[1], result=TileType(shape, found[2].element))
        )
    else:
        halves = state.builder.split(item.value)
    for half in halves:
        state.add(half, item.bound)


def concatenate(state: State) -> None:
    found = _tile(state)
    if found is None:
        return
    item, value, type_ = found
    axis = state.number(0, type_.rank - 1)
    if state.language.fits(
        tuple(extent * 2 if i == axis else extent for i, extent in enumerate(type_.shape))
    ):
        state.add(state.builder.cat(value, _partner(state, item), axis=axis), item.bound)


def gather(state: State) -> None:
    found = _tile(state)
    if found is None:
        return
    item, value, type_ = found
    axis = state.number(0, type_.rank - 1)
    shape = list(type_.shape)
    shape[axis] = state.one_of(
        (shape[axis], shape[axis], max(1, shape[axis] // 2), shape[axis] * 2)
    )
    if not state.language.fits(tuple(shape)):
        return
    index = below(state, state.integers(tuple(shape)), type_.shape[axis])
    state.add(state.builder.gather(value, index, axis=axis), item.bound)


def below(state: State, value: Value, limit: int) -> Value:
    """An integer from 0 to ``limit`` - 1 made of any integer; its type holds the limit."""
    types = [type_ for type_ in (I32, I64, *state.language.integers) if type_.maximum >= limit]
    target = state.one_of(types)
    with state.guarding() as b:
        if element_type(value.type) is not target:
            value = b.cast(value, result=with_element(value.type, target))
        if limit & (limit - 1) == 0:
            found: Value = b.and_(value, b.constant_like(value.type, limit - 1))
        else:
            if target.signed:
                value = b.and_(value, b.constant_like(value.type, target.maximum))
            found = b.rem(value, b.constant_like(value.type, limit))
    return found


def histogram(state: State) -> None:
    value = state.exact_tile(lambda type_: is_int(type_.element))
    if value is None:
        return
    type_ = value.type
    assert isinstance(type_, TileType)
    bins = state.one_of((1, 2, 4, 8, 16))
    element = type_.element
    assert isinstance(element, IntType)
    with state.guarding() as b:
        if type_.rank != 1:
            value = b.reshape(value, result=TileType((type_.numel,), element))
        if state.chance(2):  # about half of them in a bin
            value = b.and_(value, b.constant_like(value.type, 2 * bins - 1))
    mask = state.exact_of(with_element(value.type, I1))
    if mask is None and state.chance(2):
        mask = state.builder.cmp(
            value, state.partner(value), predicate=state.one_of(("ne", "lt", "ge"))
        )
    state.add(state.builder.histogram(value, mask, bins=bins))


def count(state: State) -> None:
    """Numbers from one to another."""
    tile = state.exact_tile(lambda type_: True)
    if tile is not None:
        start, shape = state.one_of((0, 1, -4, 100, 2**31 - 1024, -(2**31))), shape_of(tile.type)
        numbers = state.builder.arange(start=start, end=start + state.language.numel(shape))
        state.add(
            numbers
            if len(shape) == 1
            else state.builder.reshape(numbers, result=TileType(shape, I32))
        )


STEPS: dict[Callable[[State], None], int] = {
    permute: 6,
    expand: 2,
    reshape: 5,
    broadcast: 4,
    unsplat: 2,
    join: 3,
    split: 4,
    concatenate: 4,
    gather: 4,
    histogram: 3,
    count: 3,
}
