"""Matmuls in pieces along K, where the operands of whole ones do not fit into shared memory: each
piece's operands take the place of those before.

A program that was written for a machine with more memory runs so. The sums are the same, in the
same order.
"""

from __future__ import annotations

from typing import Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import TileType, bit_width
from tilewright.simt.dialect.attributes import note

#: The least extent along K of a piece: matrix instructions take up to so many elements at a time.
_LEAST_K: Final = 32


def slice_along_k(function: Function, most: int) -> bool:
    """Cut every matmul whose operands take more than so many bytes in two along K, and the halves
    again; whether there was one."""
    found = [operation for operation in function.walk() if isinstance(operation, Dot) and _is_long(operation.a, operation.b, most)]
    for operation in found:
        _shorten(operation, most)
    return bool(found)


def _is_long(a: Value, b: Value, most: int) -> bool:
    bits = 0
    for tile in (a, b):
        assert isinstance(tile.type, TileType)
        bits += tile.type.numel * bit_width(tile.type.element)
    assert isinstance(a.type, TileType)
    return bits > 8 * most and a.type.shape[-1] >= 2 * _LEAST_K


def _shorten(operation: Dot, most: int) -> None:
    builder = Builder.at(operation)
    pieces, total = [(operation.a, operation.b)], operation.c
    while _is_long(*pieces[0], most):
        pieces = [pair for a, b in pieces for pair in zip(_halves(builder, a, -1), _halves(builder, b, -2), strict=True)]
    for a, b in pieces:
        total = builder.dot(a, b, total, **operation.attributes)
    assert total.definition is not None
    note(total.definition, f"in {len(pieces)} pieces along K, for want of shared memory")
    operation.results[0].replace_all_uses(total)
    operation.erase()


def _halves(builder: Builder, tile: Value, axis: int) -> tuple[Value, Value]:
    """The first and the second half of a tile along an axis, which is counted from the end."""
    assert isinstance(tile.type, TileType)
    shape, rank = tile.type.shape, len(tile.type.shape)
    at = rank + axis
    cut = builder.reshape(tile, result=TileType((*shape[:at], 2, shape[at] // 2, *shape[at + 1 :]), tile.type.element))
    turned = builder.permute(cut, order=(*(place for place in range(rank + 1) if place != at), at))
    first, second = builder.split(turned)
    return first, second
