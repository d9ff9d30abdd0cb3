"""Operations that move and repeat elements: samples as Tile IR, and compositions in the language.

Tiles have one to four axes, and NumPy the expected values. Elements keep their bits, so all results
are exact.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Trait
from tilewright_conformance.oracles.dtypes import IR, Array, kind
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.numbers import check, unset, wide
from tilewright_conformance.testlib.sampled_cases import sampled
from tilewright_conformance.testlib.tiles import positions

OPERATIONS = tuple(spec.name for spec in TABLE if Trait.SHAPE in spec.traits)
Shape = tuple[int, ...]
_case = Table("shapes", "core").case

#: Element types to move: one of each width and kind.
_MOVED = ("float32", "int8", "float16", "int64", "bool", "bfloat16", "uint16", "int32")


def cases() -> Iterator[Case]:
    for case in sampled("shapes", "core", dict.fromkeys(OPERATIONS, True)):
        narrow = any(name.startswith("f8") for name in case.needs.dtypes)
        yield dataclasses.replace(case, profile="fp8") if narrow else case
    yield from _of_one()
    yield from _of_two()
    yield from _scalars()


# ---- functions of one tile and a compile-time argument


@tw.jit
def permuted(x, ORDER: tl.constexpr):
    return tl.permute(x, ORDER)


@tw.jit
def transposed(x, ORDER: tl.constexpr):
    return tl.trans(x)


@tw.jit
def transposed_axes(x, ORDER: tl.constexpr):
    return tl.trans(x, *ORDER)


@tw.jit
def attribute(x, ARGUMENT: tl.constexpr):
    return x.T


@tw.jit
def reshaped(x, SHAPE: tl.constexpr):
    return tl.reshape(x, SHAPE)


@tw.jit
def raveled(x, ARGUMENT: tl.constexpr):
    return tl.ravel(tl.trans(x))


@tw.jit
def in_blocks(x, BLOCK: tl.constexpr):
    """Blocks of rows and columns, one behind the other."""
    rows: tl.constexpr = x.shape[0] // BLOCK
    columns: tl.constexpr = x.shape[1] // BLOCK
    tiles = tl.permute(tl.reshape(x, (rows, BLOCK, columns, BLOCK)), (0, 2, 1, 3))
    return tl.reshape(tiles, (rows * columns, BLOCK * BLOCK))


@tw.jit
def expanded(x, AXES: tl.constexpr):
    return tl.expand_dims(x, AXES)


@tw.jit
def indexed(x, ARGUMENT: tl.constexpr):
    return x[:, None, :]


@tw.jit
def repeated(x, SHAPE: tl.constexpr):
    return tl.broadcast_to(x, SHAPE)


@tw.jit
def squeezed(x, AXIS: tl.constexpr):
    return tl.squeeze(x, AXIS)


@tw.jit
def unsqueezed(x, AXIS: tl.constexpr):
    return tl.unsqueeze(x, AXIS)


@tw.jit
def neighbours_swapped(x, ARGUMENT: tl.constexpr):
    pairs: tl.constexpr = x.numel // 2
    left, right = tl.split(tl.reshape(x, (pairs, 2)))
    return tl.ravel(tl.join(right, left))


@tw.jit
def evens_twice(x, ARGUMENT: tl.constexpr):
    """The elements at even positions, by two splits, and the same with neighbours exchanged."""
    count: tl.constexpr = x.numel // 4
    left, _ = tl.split(tl.reshape(x, (count, 2, 2)))
    first, third = tl.split(left)
    return tl.cat(tl.interleave(first, third), tl.interleave(third, first), dim=0)


@tw.jit
def back_again(x, ORDER: tl.constexpr):
    """Flattened in another order and brought back."""
    return tl.reshape(tl.ravel(tl.permute(x, ORDER)), x.shape)


@tw.jit
def repeated_and_flat(x, COUNT: tl.constexpr):
    return tl.ravel(tl.broadcast_to(x[None, :], (COUNT, x.shape[0])).T)


def _blocks(x: Array, block: Any) -> Array:
    rows, columns = x.shape[0] // block, x.shape[1] // block
    return (
        x.reshape(rows, block, columns, block)
        .transpose(0, 2, 1, 3)
        .reshape(rows * columns, block * block)
    )


def _evens(x: Array, argument: Any) -> Array:
    first, third = x.ravel()[0::4], x.ravel()[2::4]
    return np.concatenate(
        [np.stack([first, third], -1).ravel(), np.stack([third, first], -1).ravel()]
    )


_Row = tuple[str, Any, Any, Callable[[Array, Any], Array], tuple[Shape, ...]]
#: id, function, its compile-time argument, the same with NumPy, shapes of the tile
_ONE: tuple[_Row, ...] = (
    (
        "trans",
        transposed,
        None,
        lambda x, _: x.swapaxes(-1, -2),
        ((8, 8), (4, 32), (64, 2), (1, 16), (2, 4, 8), (64, 64)),
    ),
    (
        "trans_axes",
        transposed_axes,
        (2, 0, 1),
        lambda x, order: x.transpose(order),
        ((2, 4, 8), (16, 2, 2)),
    ),
    ("attribute_T", attribute, None, lambda x, _: x.T, ((16, 8), (32, 32))),
    (
        "permute_102",
        permuted,
        (1, 0, 2),
        lambda x, order: x.transpose(order),
        ((4, 8, 2), (8, 2, 16)),
    ),
    (
        "permute_120",
        permuted,
        (1, 2, 0),
        lambda x, order: x.transpose(order),
        ((4, 8, 2), (2, 16, 8)),
    ),
    (
        "permute_210",
        permuted,
        (2, 1, 0),
        lambda x, order: x.transpose(order),
        ((4, 8, 2), (1, 4, 16)),
    ),
    ("permute_021", permuted, (0, 2, 1), lambda x, order: x.transpose(order), ((4, 8, 16),)),
    (
        "permute_3102",
        permuted,
        (3, 1, 0, 2),
        lambda x, order: x.transpose(order),
        ((2, 4, 8, 2), (4, 4, 4, 4)),
    ),
    ("permute_2031", permuted, (2, 0, 3, 1), lambda x, order: x.transpose(order), ((2, 4, 8, 2),)),
    (
        "reshape_flat",
        reshaped,
        (128,),
        lambda x, shape: x.reshape(shape),
        ((4, 32), (2, 4, 16), (2, 2, 4, 8)),
    ),
    (
        "reshape_rows",
        reshaped,
        (16, 8),
        lambda x, shape: x.reshape(shape),
        ((128,), (8, 16), (4, 4, 8)),
    ),
    (
        "reshape_deep",
        reshaped,
        (4, 2, 8, 2),
        lambda x, shape: x.reshape(shape),
        ((128,), (8, 16), (16, 4, 2)),
    ),
    ("reshape_ones", reshaped, (1, 32, 1), lambda x, shape: x.reshape(shape), ((32,), (4, 8))),
    ("ravel_trans", raveled, None, lambda x, _: x.T.ravel(), ((8, 16), (32, 4))),
    ("blocks", in_blocks, 4, _blocks, ((8, 8), (16, 32))),
    ("expand_0", expanded, 0, np.expand_dims, ((16,), (4, 8))),
    ("expand_1", expanded, 1, np.expand_dims, ((16,), (4, 8))),
    ("expand_last", expanded, -1, np.expand_dims, ((4, 8),)),
    ("expand_both", expanded, (0, 2), np.expand_dims, ((16,), (4, 8))),
    ("index_none", indexed, None, lambda x, _: x[:, None, :], ((8, 16),)),
    (
        "broadcast_rows",
        repeated,
        (16, 16),
        lambda x, shape: np.broadcast_to(x, shape),
        ((1, 16), (16, 1), (16,), (1, 1)),
    ),
    (
        "broadcast_middle",
        repeated,
        (4, 8, 16),
        lambda x, shape: np.broadcast_to(x, shape),
        ((4, 1, 16), (8, 16), (4, 8, 1), (1, 8, 1)),
    ),
    ("squeeze", squeezed, 1, np.squeeze, ((8, 1, 4), (16, 1))),
    ("unsqueeze", unsqueezed, -1, np.expand_dims, ((8, 4),)),
    (
        "split_join",
        neighbours_swapped,
        None,
        lambda x, _: x.reshape(-1, 2)[:, ::-1].ravel(),
        ((64,), (8, 16), (2, 1)),
    ),
    ("split_twice", evens_twice, None, _evens, ((64,), (8, 16))),
    (
        "permute_ravel",
        back_again,
        (1, 0),
        lambda x, order: x.transpose(order).reshape(x.shape),
        ((8, 16), (16, 16)),
    ),
    (
        "permute_ravel_3",
        back_again,
        (2, 0, 1),
        lambda x, order: x.transpose(order).reshape(x.shape),
        ((4, 2, 16),),
    ),
    ("repeat_each", repeated_and_flat, 8, lambda x, count: np.repeat(x, count), ((16,), (64,))),
)


@tw.jit
def moved(
    x_ptr,
    out,
    SHAPE: tl.constexpr,
    FUNCTION: tl.constexpr,
    ARGUMENT: tl.constexpr,
    FLAT: tl.constexpr,
):
    y = FUNCTION(tl.load(x_ptr + positions(SHAPE)), ARGUMENT)
    # Positions are broadcast themselves, so that they would go wrong together with a broadcast
    # tile.
    tl.store(out + (tl.reshape(tl.arange(0, y.numel), y.shape) if FLAT else positions(y.shape)), y)


def _move(row: _Row, shape: Shape, name: str, session: Session) -> None:
    _, function, argument, expected, _ = row
    x = wide(session.rng, name, shape)
    wanted = np.ascontiguousarray(expected(x, argument))
    found = unset(wanted.shape, wanted.dtype)
    session.launch(
        moved,
        (1,),
        x,
        found,
        SHAPE=shape,
        FUNCTION=function,
        ARGUMENT=argument,
        FLAT=function is repeated,
    )
    check(session, found, wanted)


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _of_one() -> Iterator[Case]:
    index = 0
    for row in _ONE:
        for shape in row[4]:
            for _ in range(3):
                name = _MOVED[index % len(_MOVED)]
                index += 1
                size = int(np.prod(row[3](np.zeros(shape, np.int8), row[2]).shape))
                yield _case(
                    f"tl.{row[0]}/{IR[name]}/{_text(shape)}",
                    f"tl.{row[0].partition('_')[0]}",
                    functools.partial(_move, row, shape, name),
                    name,
                    tile=max(size, int(np.prod(shape))),
                    quick=index % 7 == 0 or (row[0] == "broadcast_rows" and index % 3 == 0),
                )


# ---- functions of two tiles


@tw.jit
def joined(x, y, AXIS: tl.constexpr):
    return tl.join(x, y)


@tw.jit
def interleaved(x, y, AXIS: tl.constexpr):
    return tl.interleave(x, y)


@tw.jit
def concatenated(x, y, AXIS: tl.constexpr):
    return tl.cat(x, y, dim=AXIS)


@tw.jit
def chosen_across(x, y, AXIS: tl.constexpr):
    """Elements of a tile and of a transposed one, which lie in different places."""
    rows, columns = tl.arange(0, x.shape[0])[:, None], tl.arange(0, x.shape[1])[None, :]
    return tl.where(rows < columns, x, tl.trans(y))


@tw.jit
def joined_and_permuted(x, y, AXIS: tl.constexpr):
    return tl.permute(tl.join(x, y), (2, 1, 0))


def _across(x: Array, y: Array, axis: Any) -> Array:
    rows, columns = np.indices(x.shape)
    return np.where(rows < columns, x, y.T)


_PairRow = tuple[
    str, Any, Any, Callable[[Array, Array, Any], Array], tuple[tuple[Shape, Shape], ...]
]
_TWO: tuple[_PairRow, ...] = (
    (
        "join",
        joined,
        None,
        lambda x, y, _: np.stack([x, y], -1),
        (((16,), (16,)), ((4, 8), (4, 8)), ((2, 4, 8), (2, 4, 8)), ((1,), (1,))),
    ),
    (
        "interleave",
        interleaved,
        None,
        lambda x, y, _: np.stack([x, y], -1).reshape(*x.shape[:-1], -1),
        (((32,), (32,)), ((8, 4), (8, 4))),
    ),
    (
        "cat",
        concatenated,
        0,
        lambda x, y, axis: np.concatenate([x, y], axis),
        (((32,), (32,)), ((4, 8), (4, 8)), ((1,), (1,))),
    ),
    (
        "cat_columns",
        concatenated,
        1,
        lambda x, y, axis: np.concatenate([x, y], axis),
        (((8, 8), (8, 8)), ((16, 1), (16, 1)), ((2, 4, 8), (2, 4, 8))),
    ),
    (
        "where_across",
        chosen_across,
        None,
        _across,
        (((8, 8), (8, 8)), ((4, 32), (32, 4)), ((64, 16), (16, 64))),
    ),
    (
        "join_permute",
        joined_and_permuted,
        None,
        lambda x, y, _: np.stack([x, y], -1).transpose(2, 1, 0),
        (((8, 16), (8, 16)), ((4, 4), (4, 4))),
    ),
)


@tw.jit
def moved_together(
    x_ptr, y_ptr, out, SHAPES: tl.constexpr, FUNCTION: tl.constexpr, AXIS: tl.constexpr
):
    z = FUNCTION(tl.load(x_ptr + positions(SHAPES[0])), tl.load(y_ptr + positions(SHAPES[1])), AXIS)
    tl.store(out + positions(z.shape), z)


def _move_together(row: _PairRow, shapes: tuple[Shape, Shape], name: str, session: Session) -> None:
    _, function, axis, expected, _ = row
    x, y = (wide(session.rng, name, shape) for shape in shapes)
    wanted = np.ascontiguousarray(expected(x, y, axis))
    found = unset(wanted.shape, wanted.dtype)
    session.launch(moved_together, (1,), x, y, found, SHAPES=shapes, FUNCTION=function, AXIS=axis)
    check(session, found, wanted)


def _of_two() -> Iterator[Case]:
    index = 0
    for row in _TWO:
        for shapes in row[4]:
            for _ in range(3):
                name = _MOVED[(index + index // 8) % len(_MOVED)]
                index += 1
                yield _case(
                    f"tl.{row[0]}/{IR[name]}/{_text(shapes[0])}",
                    f"tl.{row[0].partition('_')[0]}",
                    functools.partial(_move_together, row, shapes, name),
                    name,
                    tile=2 * int(np.prod(shapes[0])),
                    quick=index % 6 == 0,
                )


# ---- tiles of scalars, scalars of tiles


@tw.jit
def filled(x_ptr, out, SHAPE: tl.constexpr):
    """A scalar from memory, a number and zeros as tiles."""
    at = positions(SHAPE)
    size: tl.constexpr = at.numel
    tile = tl.full(SHAPE, tl.load(x_ptr), x_ptr.dtype.element_ty)
    tl.store(out + at, tile)
    tl.store(out + size + at, tl.full(SHAPE, 1, x_ptr.dtype.element_ty))
    tl.store(out + 2 * size + at, tl.zeros_like(tile))


@tw.jit
def single(x_ptr, out):
    """Reshape a tile of one element to a scalar and back; join two scalars and split them."""
    x = tl.load(x_ptr + tl.arange(0, 1))
    scalar = tl.reshape(x, ())
    tl.store(out + tl.arange(0, 4), tl.full((4,), scalar, x.dtype))
    other = tl.load(x_ptr + 1)
    pair = tl.join(scalar, other)
    tl.static_assert(pair.shape[0] == 2)
    tl.store(out + 4 + tl.arange(0, 2), pair)
    first, second = tl.split(pair)
    tl.store(out + 6, second)
    tl.store(out + 7, first)


def _fill(name: str, shape: Shape, session: Session) -> None:
    x = wide(session.rng, name, 1)
    found = np.full((3, *shape), 3).astype(kind(name))
    session.launch(filled, (1,), x, found, SHAPE=shape)
    for tile, number in zip(found, (x[0], 1, 0), strict=True):
        check(session, tile, np.full(shape, number).astype(x.dtype))


def _single(name: str, session: Session) -> None:
    x = wide(session.rng, name, 2)
    found = unset(8, kind(name))
    session.launch(single, (1,), x, found)
    check(session, found, x[[0, 0, 0, 0, 0, 1, 1, 0]])


def _scalars() -> Iterator[Case]:
    for index, name in enumerate(_MOVED):
        shape = ((64,), (8, 16), (2, 4, 8), (2, 2, 2, 4))[index % 4]
        run = functools.partial(_fill, name, shape)
        yield _case(
            f"tl.full/{IR[name]}/{_text(shape)}",
            "tl.full",
            run,
            name,
            tile=int(np.prod(shape)),
            quick=index % 3 == 0,
        )
        yield _case(
            f"tl.scalar/{IR[name]}/one",
            "tl.reshape",
            functools.partial(_single, name),
            name,
            tile=4,
            quick=index % 4 == 0,
        )
