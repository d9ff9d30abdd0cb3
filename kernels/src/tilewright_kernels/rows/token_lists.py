"""Gradient of an embedding on a CPU: linked lists of the tokens of each index.

One program links the tokens in a time proportional to their number, where GPUs count the tokens
before each. A program for each row of the table then sums its list, and stores rows without tokens
as zeros, so that the table is written once.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Launcher

#: Columns of a program: its sums stay in the first cache.
_COLUMNS = 2048


@tw.jit
def link_tokens_kernel(index_ptr, heads_ptr, links_ptr, n_tokens):
    """Store the first token of each index to ``heads``, and the one after each to ``links``.

    Tokens are counted from 1; 0 ends a list. The lists are in the order of the tokens.
    """
    for step in range(n_tokens):
        token = n_tokens - 1 - step
        head_ptr = heads_ptr + tl.load(index_ptr + token).to(tl.int64)
        tl.store(links_ptr + token, tl.load(head_ptr))
        tl.store(head_ptr, token + 1)


@tw.jit
def sum_lists_kernel(
    heads_ptr,
    links_ptr,
    dy_ptr,
    d_table_ptr,
    dy_stride,
    n_columns,
    padding_index,
    BLOCK: tl.constexpr,
):
    """Sum the cotangents of the tokens of one index in their order."""
    blocks = tl.cdiv(n_columns, BLOCK)
    row = tl.program_id(0) // blocks
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    token = tl.load(heads_ptr + row)
    if row == padding_index:
        token = 0
    sums = tl.zeros([BLOCK], tl.float32)
    while token > 0:
        address = dy_ptr + (token - 1).to(tl.int64) * dy_stride + columns
        sums += tl.load(address, mask=inside, other=0.0).to(tl.float32)
        token = tl.load(links_ptr + token - 1)
    tl.store(d_table_ptr + row.to(tl.int64) * n_columns + columns, sums, mask=inside)


def sum_by_lists(
    run: Launcher,
    d_table: Any,
    dy: Any,
    dy_stride: int,
    index: Any,
    n_tokens: int,
    padding_index: int,
) -> None:
    """Store the sum of the cotangents of each row's tokens.

    Args:
        dy: of shape (tokens, columns), with consecutive columns.
        index: the rows that tokens name, one after another.
    """
    n_rows, n_columns = d_table.shape
    heads, links = run.zeros((n_rows,), "int32"), run.empty((n_tokens,), "int32")
    run(link_tokens_kernel, (1,), index, heads, links, n_tokens, updates=("heads_ptr",))
    block = min(_COLUMNS, tw.next_power_of_2(max(n_columns, 1)))
    run(
        sum_lists_kernel,
        (n_rows * tw.cdiv(n_columns, block),),
        heads,
        links,
        dy,
        d_table,
        dy_stride,
        n_columns,
        padding_index,
        BLOCK=block,
    )
