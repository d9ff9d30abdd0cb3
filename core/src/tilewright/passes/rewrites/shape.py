"""Laws of operations that move or repeat elements."""

from __future__ import annotations

from typing import Any

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import TileType
from tilewright.passes.rewriter import Rewrite, Rewriter, defined_by


def _of_splat(operation: Operation, rewriter: Rewriter) -> Any:
    splat = defined_by(operation.operands[0], "splat")
    return None if splat is None else rewriter.splat(splat.operands[0], result=operation.result.type)


def _same_type(operation: Operation, rewriter: Rewriter) -> Value | None:
    x = operation.operands[0]
    return x if x.type is operation.result.type else None


def _broadcast_twice(operation: Operation, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.operands[0], "broadcast")
    return None if inner is None else rewriter.broadcast(inner.operands[0], result=operation.result.type)


def _reshape_twice(operation: Operation, rewriter: Rewriter) -> Any:
    x = operation.operands[0]
    inner = defined_by(x, "reshape")
    reorder = operation.attribute("reorder")
    if inner is not None:
        reorder = reorder or inner.attribute("reorder")
    else:
        inner = defined_by(x, "expand_dims")
        if inner is None:
            return None
    return rewriter.reshape(inner.operands[0], reorder=reorder, result=operation.result.type)


def _permute_same(operation: Operation, rewriter: Rewriter) -> Value | None:
    order = operation.attribute("order")
    return operation.operands[0] if order == tuple(range(len(order))) else None


def _permute_twice(operation: Operation, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.operands[0], "permute")
    if inner is None:
        return None
    first, second = inner.attribute("order"), operation.attribute("order")
    return rewriter.permute(inner.operands[0], order=tuple([first[axis] for axis in second]))


def _unsplat(operation: Operation, rewriter: Rewriter) -> Any:
    x = operation.operands[0]
    splat = defined_by(x, "splat")
    if splat is not None:
        return splat.operands[0]
    for name in ("reshape", "expand_dims", "permute", "broadcast"):
        inner = defined_by(x, name)
        if inner is not None:
            return rewriter.unsplat(inner.operands[0])
    return None


def _splat_back(operation: Operation, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.operands[0], "unsplat")
    result = operation.result.type
    if inner is None or not isinstance(result, TileType) or result.numel != 1:
        return None
    source = inner.operands[0]
    return source if source.type is result else rewriter.reshape(source, result=result)


def _split_join(operation: Operation, rewriter: Rewriter) -> Any:
    inner = defined_by(operation.operands[0], "join")
    return None if inner is None else tuple(inner.operands)


def _join_split(operation: Operation, rewriter: Rewriter) -> Any:
    a, b = operation.operands
    inner = defined_by(a, "split")
    if inner is None or a is not inner.results[0] or b is not inner.results[1]:
        return None
    return inner.operands[0]


def _pair_of_splats(operation: Operation, rewriter: Rewriter) -> Any:
    first, second = (defined_by(operand, "splat") for operand in operation.operands)
    if first is None or second is None or first.operands[0] is not second.operands[0]:
        return None
    return rewriter.splat(first.operands[0], result=operation.result.type)


def _split_splat(operation: Operation, rewriter: Rewriter) -> Any:
    splat = defined_by(operation.operands[0], "splat")
    if splat is None:
        return None
    scalar, part = splat.operands[0], operation.results[0].type
    value = rewriter.splat(scalar, result=part) if isinstance(part, TileType) else scalar
    return value, value


def _reduce_one(operation: Operation, rewriter: Rewriter) -> Any:
    source = operation.operands[0].type
    assert isinstance(source, TileType)
    if source.shape[operation.attribute("axis")] != 1:
        return None
    return [
        rewriter.reshape(value, result=result.type) if isinstance(result.type, TileType) else rewriter.unsplat(value)
        for value, result in zip(operation.operands, operation.results, strict=True)
    ]


def _scan_one(operation: Operation, rewriter: Rewriter) -> Any:
    source = operation.operands[0].type
    assert isinstance(source, TileType)
    return list(operation.operands) if source.shape[operation.attribute("axis")] == 1 else None


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(("broadcast", "expand_dims", "reshape", "permute", "gather"), "equal elements stay equal wherever they move", _of_splat),
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
