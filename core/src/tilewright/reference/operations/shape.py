"""The meaning of operations that move or repeat elements.

Axes are counted from the last one, so that a leading axis over programs makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    Histogram,
    Join,
    Moved,
    Permute,
    Reshape,
    Splat,
    Split,
    Unsplat,
)
from tilewright.ir.types import TileType, shape_of
from tilewright.reference.numerics import Array

if TYPE_CHECKING:
    from tilewright.reference.frame import Frame
    from tilewright.reference.operations.arithmetic import Meaning


def leading(operation: Moved, x: Array) -> tuple[int, ...]:
    """Return the extent over programs of the operand's array, as a shape of rank 1 or 0."""
    rank = len(shape_of(operation.x.type))
    return x.shape[: x.ndim - rank]


def _together(a: Array, b: Array) -> tuple[Array, Array]:
    """Both with an axis over programs, or neither."""
    if a.ndim == b.ndim:
        return a, b
    if a.ndim < b.ndim:
        return np.broadcast_to(a, (b.shape[0], *a.shape)), b
    return a, np.broadcast_to(b, (a.shape[0], *b.shape))


def splat(frame: Frame, operation: Splat, x: Array) -> Array:
    shape = shape_of(operation.result.type)
    if x.ndim == 0:
        return np.ndarray(shape, x.dtype, np.asarray(x), 0, (0,) * len(shape))
    return np.broadcast_to(x.reshape(x.shape + (1,) * len(shape)), x.shape + shape)


def unsplat(frame: Frame, operation: Unsplat, x: Array) -> Array:
    return x.reshape(leading(operation, x))


def broadcast(frame: Frame, operation: Broadcast, x: Array) -> Array:
    return np.broadcast_to(x, leading(operation, x) + shape_of(operation.result.type))


def expand_dims(frame: Frame, operation: ExpandDims, x: Array) -> Array:
    return x.reshape(leading(operation, x) + shape_of(operation.result.type))


def reshape(frame: Frame, operation: Reshape, x: Array) -> Array:
    return x.reshape(leading(operation, x) + shape_of(operation.result.type))


def permute(frame: Frame, operation: Permute, x: Array) -> Array:
    lead = len(leading(operation, x))
    return x.transpose((*range(lead), *(axis + lead for axis in operation.order)))


def cat(frame: Frame, operation: Cat, a: Array, b: Array) -> Array:
    axis = operation.axis - len(shape_of(operation.result.type))
    return np.concatenate(_together(a, b), axis=axis)


def join(frame: Frame, operation: Join, a: Array, b: Array) -> Array:
    return np.stack(_together(a, b), axis=-1)


def split(frame: Frame, operation: Split, x: Array) -> tuple[Array, Array]:
    return x[..., 0], x[..., 1]


def gather(frame: Frame, operation: Gather, x: Array, index: Array) -> Array:
    x_type = operation.x.type
    assert isinstance(x_type, TileType)
    axis = operation.axis
    # An index out of range, which the IR leaves undefined, picks the nearest element.
    limit = x_type.shape[axis] - 1
    index = (
        np.clip(index.astype(np.int64, copy=False), 0, limit)
        if index.dtype != np.uint64
        else np.minimum(index, np.uint64(limit)).astype(np.int64)
    )
    return np.take_along_axis(*_together(x, index), axis=axis - x_type.rank)


def histogram(frame: Frame, operation: Histogram, x: Array, mask: Array | None) -> Array:
    bins = operation.bins
    if mask is not None:
        x, mask = _together(x, mask)
    inside = x < bins
    if x.dtype.kind == "i":
        inside = inside & (x >= 0)
    if mask is not None:
        inside = inside & mask
    lead = x.shape[:-1]
    rows = 1 if not lead else lead[0]
    where = np.nonzero(inside.reshape(rows, -1))
    slots = where[0] * bins + x.reshape(rows, -1)[where].astype(np.int64)
    return np.bincount(slots, minlength=rows * bins).astype(np.int32).reshape((*lead, bins))


MEANINGS: dict[str, Meaning] = {
    "splat": splat,
    "unsplat": unsplat,
    "broadcast": broadcast,
    "expand_dims": expand_dims,
    "reshape": reshape,
    "permute": permute,
    "cat": cat,
    "join": join,
    "split": split,
    "gather": gather,
    "histogram": histogram,
}
