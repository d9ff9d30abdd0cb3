"""Splitting of matmuls along K if their operands exceed shared memory.

The operands of each piece reuse the memory of the previous ones. Programs written for a GPU with
more memory then run. Partial sums are added in the same order.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import TileType, bit_width
from tilewright.simt.dialect.attributes import note

#: Minimum extent along K of a piece: the maximum of matrix instructions.
_MIN_K: Final = 32


def slice_along_k(function: Function, most: int) -> bool:
    """Split matmuls with larger operands along K until they fit; return whether there were any."""
    found = [
        operation
        for operation in function.walk()
        if isinstance(operation, Dot) and _is_long(operation.a, operation.b, most)
    ]
    for operation in found:
        _shorten(operation, most)
    return bool(found)


def _is_long(a: Value, b: Value, most: int) -> bool:
    bits = 0
    for tile in (a, b):
        assert isinstance(tile.type, TileType)
        bits += tile.type.numel * bit_width(tile.type.element)
    assert isinstance(a.type, TileType)
    return bits > 8 * most and a.type.shape[-1] >= 2 * _MIN_K


def _shorten(operation: Dot, most: int) -> None:
    builder = Builder.at(operation)
    pieces, total = [(operation.a, operation.b)], operation.c
    while _is_long(*pieces[0], most):
        pieces = [
            pair
            for a, b in pieces
            for pair in zip(_halves(builder, a, -1), _halves(builder, b, -2), strict=True)
        ]
    for a, b in pieces:
        total = builder.dot(a, b, total, **operation.attributes)
    assert total.definition is not None
    note(total.definition, f"in {len(pieces)} pieces along K, for want of shared memory")
    operation.results[0].replace_all_uses(total)
    operation.erase()


def _halves(builder: Builder, tile: Value, axis: int) -> tuple[Value, Value]:
    """Split a tile along an axis, counted from the end, into its first and second half."""
    assert isinstance(tile.type, TileType)
    shape, rank = tile.type.shape, len(tile.type.shape)
    at = rank + axis
    cut = builder.reshape(
        tile, result=TileType((*shape[:at], 2, shape[at] // 2, *shape[at + 1 :]), tile.type.element)
    )
    permuted = builder.permute(
        cut, order=(*(place for place in range(rank + 1) if place != at), at)
    )
    first, second = builder.split(permuted)
    return first, second
