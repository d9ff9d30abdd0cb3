"""``triton.tools.ragged_tma``: descriptors of tensors with batches of rows of different lengths.

A batch is a range of rows, found at run time. A block that passes the range's end must not touch
the next batch, though it is inside the tensor. So the descriptor gets two leading dimensions whose
strides cancel (modulo 2**64, as addresses are reckoned) a shift of the ragged dimension: a block's
rows are counted so that the batch's last row is the last the descriptor has, and its bounds check
cuts off the rest.
"""

# The functions of the language are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803 (parameters are given by these names)

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.compat.triton.runtime.jit import jit
from tilewright.language.core import constexpr
from tilewright.runtime.arguments.descriptor import TensorDescriptor

#: Rows that the descriptor pretends to have: more than any batch.
_ROWS = constexpr(1 << 30)
#: Extents of the two leading dimensions.
_LARGE = 0x7FFF0000


def create_ragged_descriptor(T: Any, block_shape: Any, ragged_dim: int = 0) -> TensorDescriptor:
    """Make a descriptor of ``T`` (2 or 3 dimensions) for the functions on ragged rows.

    They are :func:`load_ragged`, :func:`store_ragged` and :func:`atomic_add_ragged`.

    Args:
        block_shape: the block's extents, as many as ``T`` has.
        ragged_dim: the dimension that is divided into batches; not the last.

    Raises:
        AssertionError: a rule above is broken.
    """
    blocks, shape = list(block_shape), list(T.shape)
    rank = len(shape)
    ragged = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    assert 0 <= ragged < rank - 1, "last dimension cannot be ragged"
    assert rank <= 3, "read-write ragged descriptors must have at most 3 dimensions"
    assert len(blocks) == rank, "block shape must have same length as tensor shape"
    assert shape[ragged] <= _ROWS.value, "number of rows may not exceed 2**30"
    step = T.stride(ragged)
    shape[ragged] = _ROWS.value
    return TensorDescriptor(
        T,
        [_LARGE, _LARGE, *shape],
        [(1 << 34) - step, step, *(T.stride(dim) for dim in range(rank))],
        [1, 1, *blocks],
    )


@jit
def to_ragged_indices(batch_offset, batch_size, row):
    """Return a row's positions in the two leading dimensions and in the ragged one."""
    return _ROWS, batch_offset + batch_size, _ROWS - batch_size + row


@jit
def load_ragged(TMA, batch_offset, batch_size, coords, ragged_dim: tl.constexpr = 0):
    """Load the block at ``coords`` of rows ``batch_offset`` to ``batch_offset + batch_size``.

    Outside of them it has zeros.
    """
    tl.static_assert(
        len(TMA.shape) == len(coords) + 2, "the descriptor must be made by create_ragged_descriptor"
    )
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    block = TMA.load([first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]])
    return tl.reshape(block, block.shape[2:])


@jit
def store_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Store a block at ``coords`` of rows ``batch_offset`` to ``batch_offset + batch_size``.

    Elements outside of them are not stored.
    """
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    TMA.store(
        [first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]],
        tl.reshape(data, [1, 1, *data.shape]),
    )


@jit
def atomic_add_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Add a block at ``coords`` of rows ``batch_offset`` to ``batch_offset + batch_size``.

    Elements outside of them are not added.
    """
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    TMA.atomic_add(
        [first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1 :]],
        tl.reshape(data, [1, 1, *data.shape]),
    )


__all__ = [
    "atomic_add_ragged",
    "create_ragged_descriptor",
    "load_ragged",
    "store_ragged",
    "to_ragged_indices",
]
