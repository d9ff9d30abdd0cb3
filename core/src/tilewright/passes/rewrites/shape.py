"""Laws of operations that move or repeat elements."""

from __future__ import annotations

from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.ops.control import Reduce, Scan
from tilewright.ir.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    Join,
    Moved,
    Permute,
    Reshape,
    Splat,
    Split,
    Unsplat,
)
from tilewright.ir.types import TileType
from tilewright.passes.rewriter import Rewrite, Rewriter, defined_by


def _of_splat(operation: Moved | Gather, rewriter: Rewriter) -> Any:
    splat = defined_by(operation.x, Splat)
    return None if splat is None else rewriter.splat(splat.x, result=operation.result.type)


def _same_type(operation: Moved, rewriter: Rewriter) -> Value | None:
    x = operation.x
    return x if x.type is operation.result.type else None


def _broadcast_twice(operation: Broadcast, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Broadcast)
    return None if inner is None else rewriter.broadcast(inner.x, result=operation.result.type)


def _reshape_twice(operation: Reshape, rewriter: Rewriter) -> Any:
    x = operation.x
    inner, reorder = x.definition, operation.reorder
    if isinstance(inner, Reshape):
        reorder = reorder or inner.reorder
    elif not isinstance(inner, ExpandDims):
        return None
    return rewriter.reshape(inner.x, reorder=reorder, result=operation.result.type)


def _permute_same(operation: Permute, rewriter: Rewriter) -> Value | None:
    order = operation.order
    return operation.x if order == tuple(range(len(order))) else None


def _permute_twice(operation: Permute, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Permute)
    if inner is None:
        return None
    first, second = inner.order, operation.order
    return rewriter.permute(inner.x, order=tuple([first[axis] for axis in second]))


def _unsplat(operation: Unsplat, rewriter: Rewriter) -> Any:
    x = operation.x
    splat = defined_by(x, Splat)
    if splat is not None:
        return splat.x
    inner = x.definition
    return (
        rewriter.unsplat(inner.x)
        if isinstance(inner, Reshape | ExpandDims | Permute | Broadcast)
        else None
    )


def _splat_back(operation: Splat, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Unsplat)
    result = operation.result.type
    if inner is None or not isinstance(result, TileType) or result.numel != 1:
        return None
    source = inner.x
    return source if source.type is result else rewriter.reshape(source, result=result)


def _split_join(operation: Split, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.x, Join)
    return None if inner is None else (inner.a, inner.b)


def _join_split(operation: Join, rewriter: Rewriter) -> Any:
    a, b = operation.a, operation.b
    inner = defined_by(a, Split)
    if inner is None or a is not inner.results[0] or b is not inner.results[1]:
        return None
    return inner.x


def _pair_of_splats(operation: Join | Cat, rewriter: Rewriter) -> Any:
    first, second = defined_by(operation.a, Splat), defined_by(operation.b, Splat)
    if first is None or second is None or first.x is not second.x:
        return None
    return rewriter.splat(first.x, result=operation.result.type)


def _split_splat(operation: Split, rewriter: Rewriter) -> Any:
    splat = defined_by(operation.x, Splat)
    if splat is None:
        return None
    scalar, part = splat.x, operation.results[0].type
    value = rewriter.splat(scalar, result=part) if isinstance(part, TileType) else scalar
    return value, value


def _reduce_one(operation: Reduce, rewriter: Rewriter) -> Any:
    source = operation.inputs[0].type
    assert isinstance(source, TileType)
    if source.shape[operation.axis] != 1:
        return None
    return [
        rewriter.reshape(value, result=result.type)
        if isinstance(result.type, TileType)
        else rewriter.unsplat(value)
        for value, result in zip(operation.inputs, operation.results, strict=True)
    ]


def _scan_one(operation: Scan, rewriter: Rewriter) -> Any:
    source = operation.inputs[0].type
    assert isinstance(source, TileType)
    return operation.inputs if source.shape[operation.axis] == 1 else None


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        ("broadcast", "expand_dims", "reshape", "permute", "gather"),
        "equal elements stay equal wherever they move",
        _of_splat,
    ),
    Rewrite(("broadcast", "reshape"), "to the same shape nothing moves", _same_type),
    Rewrite(("broadcast",), "repeated and repeated again = repeated", _broadcast_twice),
    Rewrite(("reshape",), "row-major order survives: the last shape alone counts", _reshape_twice),
    Rewrite(("permute",), "the identity moves nothing", _permute_same),
    Rewrite(("permute",), "axis i of the second is axis first[second[i]] of x", _permute_twice),
    Rewrite(("unsplat",), "the only element stays the same in any shape", _unsplat),
    Rewrite(("splat",), "splat to one element of the only element is a reshape", _splat_back),
    Rewrite(("split",), "split (join a b) = a, b", _split_join),
    Rewrite(("split",), "both halves of equal elements are equal", _split_splat),
    Rewrite(("join",), "join (split x) = x", _join_split),
    Rewrite(("join", "cat"), "x beside x is x everywhere", _pair_of_splats),
    Rewrite(("reduce",), "one element combines to itself", _reduce_one),
    Rewrite(("scan",), "one element's prefix is itself", _scan_one),
)
