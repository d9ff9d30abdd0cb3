"""Embedding: rows of a table by indices, with a gradient that has the same bits in every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import contiguous, is_on_gpu, with_rows
from tilewright_kernels.rows.token_lists import sum_by_lists

#: Tokens of a program that ranks indices, and those that it compares at a time.
_RANKED, _COMPARED = 16, 128
#: Rows of the tile that sums cotangents, and its columns.
_SUMMED, _COLUMNS = 4, 512
#: Elements that a program sets to zero.
_ZEROED = 4096


@tw.jit
def embedding_kernel(index_ptr, table_ptr, y_ptr, table_stride, n_columns, BLOCK: tl.constexpr):
    blocks = tl.cdiv(n_columns, BLOCK)
    token = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    row = tl.load(index_ptr + token).to(tl.int64)
    found = tl.load(table_ptr + row * table_stride + columns, mask=inside)
    tl.store(y_ptr + token * n_columns + columns, found, mask=inside)


@tw.jit
def zero_kernel(array_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(array_ptr + places, tl.zeros([BLOCK], tl.float32), mask=places < n)


@tw.jit
def rank_kernel(
    index_ptr, sorted_ptr, order_ptr, n_tokens, RANKED: tl.constexpr, COMPARED: tl.constexpr
):
    """Sort tokens by index, those of one index in their order: count those before each."""
    tokens = tl.program_id(0) * RANKED + tl.arange(0, RANKED)
    inside = tokens < n_tokens
    index = tl.load(index_ptr + tokens, mask=inside, other=0)
    counts = tl.zeros([RANKED, COMPARED], tl.int32)
    for start in range(0, n_tokens, COMPARED):
        others = start + tl.arange(0, COMPARED)
        other = tl.load(index_ptr + others, mask=others < n_tokens, other=0)
        is_before = other[None, :] < index[:, None]
        is_before |= (other[None, :] == index[:, None]) & (others[None, :] < tokens[:, None])
        counts += (is_before & (others < n_tokens)[None, :]).to(tl.int32)
    rank = tl.sum(counts, axis=1)
    tl.store(sorted_ptr + rank, index, mask=inside)
    tl.store(order_ptr + rank, tokens, mask=inside)


@tw.jit
def embedding_backward_kernel(
    sorted_ptr,
    order_ptr,
    dy_ptr,
    d_table_ptr,
    dy_stride,
    n_tokens,
    n_columns,
    padding_index,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum the cotangents of the tokens of one index, by the program of the first of them."""
    blocks = tl.cdiv(n_columns, BLOCK)
    first = tl.program_id(0) // blocks
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    index = tl.load(sorted_ptr + first)
    before = tl.load(sorted_ptr + first - 1, mask=first > 0, other=-1)
    if (index != before) & (index != padding_index):
        sums = tl.zeros([ROWS, BLOCK], tl.float32)
        start = first
        count = 1
        while count > 0:
            places = start + tl.arange(0, ROWS)
            of_index = tl.load(sorted_ptr + places, mask=places < n_tokens, other=-1) == index
            token = tl.load(order_ptr + places, mask=of_index, other=0).to(tl.int64)
            mask = of_index[:, None] & inside[None, :]
            address = dy_ptr + token[:, None] * dy_stride + columns[None, :]
            sums += tl.load(address, mask=mask, other=0.0).to(tl.float32)
            start += ROWS
            count = tl.where(tl.sum(of_index.to(tl.int32), axis=0) == ROWS, 1, 0)
        total = tl.sum(sums, axis=0)
        tl.store(d_table_ptr + index.to(tl.int64) * n_columns + columns, total, mask=inside)


def embedding_reference(index: Any, table: Any, padding_index: int = -1) -> Any:
    """Return ``table[index]``."""
    xp = array_api_compat.array_namespace(index, table)
    found = xp.take(table, xp.reshape(index, (-1,)), axis=0)
    return xp.reshape(found, (*index.shape, table.shape[1]))


def _count(shape: Any) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _shapes(make: Any, index: Any, table: Any, padding_index: int) -> tuple[Any, ...]:
    if len(table.shape) != 2:
        raise ValueError(f"table has {len(table.shape)} axes: give a matrix of (rows, columns)")
    return (make((*index.shape, table.shape[1]), table.dtype),)


def _launch(run: Launcher, y: Any, index: Array, table: Array, padding_index: int = -1) -> None:
    table, stride = with_rows(table)
    n_columns = table.shape[1]
    block = min(2048 if is_on_gpu(table) else 4096, tw.next_power_of_2(max(n_columns, 1)))
    run(
        embedding_kernel,
        (_count(index.shape) * tw.cdiv(n_columns, block),),
        contiguous(index),
        table,
        y,
        stride,
        n_columns,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 4),
    )


EMBEDDING = Operation("embedding", ("y",), _shapes, _launch, reference=embedding_reference)


def _backward_shapes(
    make: Any, dy: Any, index: Any, n_rows: int, padding_index: int
) -> tuple[Any, ...]:
    return (make((n_rows, dy.shape[-1]), dy.dtype),)


def _backward_launch(
    run: Launcher, d_table: Any, dy: Array, index: Array, n_rows: int, padding_index: int
) -> None:
    n_tokens, n_columns = _count(index.shape), dy.shape[-1]
    index = contiguous(index)
    dy, dy_stride = with_rows(dy)
    if not is_on_gpu(dy):
        sum_by_lists(run, d_table, dy, dy_stride, index, n_tokens, padding_index)
        return
    ranked, order = run.empty((n_tokens,), index.dtype), run.empty((n_tokens,), "int32")
    size = n_rows * n_columns
    run(zero_kernel, (tw.cdiv(size, _ZEROED),), d_table, size, BLOCK=_ZEROED, num_warps=4)
    run(
        rank_kernel,
        (tw.cdiv(n_tokens, _RANKED),),
        index,
        ranked,
        order,
        n_tokens,
        RANKED=_RANKED,
        COMPARED=_COMPARED,
        num_warps=4,
    )
    block = min(_COLUMNS, tw.next_power_of_2(max(n_columns, 1)))
    run(
        embedding_backward_kernel,
        (n_tokens * tw.cdiv(n_columns, block),),
        ranked,
        order,
        dy,
        d_table,
        dy_stride,
        n_tokens,
        n_columns,
        padding_index,
        ROWS=_SUMMED,
        BLOCK=block,
        num_warps=4,
        updates=("d_table_ptr",),
    )


EMBEDDING_BACKWARD = Operation(
    "embedding_backward", ("d_table",), _backward_shapes, _backward_launch
)


@EMBEDDING.differentiate(saved=("index", "table"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    found = EMBEDDING_BACKWARD(dy, saved.index, saved.table.shape[0], saved.padding_index)
    return {"table": found}


def embedding(index: Any, table: Any, *, padding_index: int = -1, out: Any = None) -> Any:
    """Return the rows of a table at the given indices.

    Args:
        index: of any shape, of int32 or int64: the indices of the rows to return.
        table: of shape (rows, columns), of float16, bfloat16 or float32.
        padding_index: the row whose gradient is zero.
        out: the array for the result.

    Returns:
        An array of shape (*index.shape, columns) and of the table's type. If several indices select
        the same row of the table, the gradient of this row is the sum of the gradients of its
        copies in the result. The sum is computed in float32, in an order that depends only on the
        indices, so it has the same bits in every run. On a GPU, the backward pass sorts the
        indices, in a time proportional to the square of their number. For up to about 20,000
        indices, this sort takes less time than the addition of the gradients.

    Raises:
        ValueError: the table is not a matrix.
    """
    return EMBEDDING(index, table, padding_index, out=out)
