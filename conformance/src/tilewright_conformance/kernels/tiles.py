"""Everyday kernels, as people write them: elementwise, layouts, stencils, row statistics.

Reductions of segments and prefix scans are here, too.
"""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def axpy_in_place(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr):
    """``y = alpha x + y``, each program a whole stretch of blocks."""
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < n
        y = tl.load(y_ptr + at, mask=inside)
        tl.store(
            y_ptr + at, (alpha * tl.load(x_ptr + at, mask=inside) + y).to(y.dtype), mask=inside
        )


@tw.jit
def softmax(x_ptr, out_ptr, x_row, out_row, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    weights = tl.exp(x - tl.max(x, axis=0))
    tl.store(
        out_ptr + row * out_row + at,
        (weights / tl.sum(weights, axis=0)).to(out_ptr.dtype.element_ty),
        mask=at < columns,
    )


@tw.jit
def online_softmax(x_ptr, out_ptr, lse_ptr, columns, BLOCK: tl.constexpr):
    """Online softmax of rows of any length in blocks.

    One pass computes the maximum and the total, which is rescaled to each new maximum.
    """
    row = tl.program_id(0)
    x_ptr += row * columns
    out_ptr += row * columns
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=float("-inf"))
        new_top = tl.maximum(top, x)
        # a lane that has seen nothing yet: -inf less -inf
        total = tl.where(
            new_top == float("-inf"), 0.0, total * tl.exp(top - new_top) + tl.exp(x - new_top)
        )
        top = new_top
    highest = tl.max(top, axis=0)
    total = tl.sum(tl.where(top == float("-inf"), 0.0, total * tl.exp(top - highest)), axis=0)
    lse = highest + tl.log(total)
    tl.store(lse_ptr + row, lse)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=float("-inf"))
        tl.store(out_ptr + at, tl.exp(x - lse), mask=at < columns)


@tw.jit
def layer_norm(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    columns,
    eps,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    x_ptr += row * columns
    y_ptr += row * columns
    total = tl.zeros((BLOCK,), ACC)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < columns, other=0.0).to(ACC)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), ACC)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=0.0).to(ACC)
        centred = tl.where(at < columns, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        x = tl.load(x_ptr + at, mask=inside).to(ACC)
        y = (x - mean) * rstd * tl.load(w_ptr + at, mask=inside).to(ACC) + tl.load(
            b_ptr + at, mask=inside
        ).to(ACC)
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@tw.jit
def joined(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Welford's rule for two parts: (mean, sum of squares about it, count)."""
    count = count_a + count_b
    gap = mean_b - mean_a
    weight = tl.where(count > 0, count_b / count, 0.0)
    return mean_a + gap * weight, m2_a + m2_b + gap * gap * count_a * weight, count


@tw.jit
def welford(x_ptr, mean_ptr, variance_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * columns
    dtype: tl.constexpr = x_ptr.dtype.element_ty
    mean, m2, count = (
        tl.zeros((BLOCK,), dtype),
        tl.zeros((BLOCK,), dtype),
        tl.zeros((BLOCK,), dtype),
    )
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        count += inside.to(dtype)
        gap = x - mean
        mean = tl.where(inside, mean + gap / tl.maximum(count, 1.0), mean)
        m2 = tl.where(inside, m2 + gap * (x - mean), m2)
    mean, m2, count = tl.reduce((mean, m2, count), 0, joined)
    tl.store(mean_ptr + row, mean)
    tl.store(variance_ptr + row, m2 / count)


@tw.jit
def row_maxima(x_ptr, value_ptr, place_ptr, lowest_ptr, columns, BLOCK: tl.constexpr):
    """The first maximum of each row, and the position of its first minimum, over blocks."""
    row = tl.program_id(0)
    best, at_best = float("-inf"), 0
    worst, at_worst = float("inf"), 0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        high = tl.load(x_ptr + row * columns + at, mask=inside, other=float("-inf"))
        value, place = tl.max(high, axis=0, return_indices=True)
        if value > best:
            best, at_best = value, start + place
        low = tl.load(x_ptr + row * columns + at, mask=inside, other=float("inf"))
        lowest = tl.min(low, axis=0)
        if lowest < worst:
            worst, at_worst = lowest, start + tl.argmin(low, axis=0)
    tl.store(value_ptr + row, best)
    tl.store(place_ptr + row, at_best)
    tl.store(lowest_ptr + row, at_worst)


@tw.jit
def gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@tw.jit
def silu(x):
    return x * tl.sigmoid(x)


@tw.jit
def activated(
    x_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    rows,
    columns,
    FN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """``residual + FN(x + bias)`` of a matrix, in two-dimensional blocks."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    at = row * columns + column
    x = tl.load(x_ptr + at, mask=inside).to(tl.float32) + tl.load(
        bias_ptr + column, mask=column < columns
    )
    y = tl.load(residual_ptr + at, mask=inside).to(tl.float32) + FN(x)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


# ---- layouts and neighbours


@tw.jit
def transpose(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(y_ptr + column[:, None] * rows + row[None, :], tl.trans(x), mask=tl.trans(inside))


@tw.jit
def stencil(x_ptr, w_ptr, y_ptr, n, REACH: tl.constexpr, BLOCK: tl.constexpr):
    """Weighted neighbours on a line, zero past its ends."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(-REACH, REACH + 1):
        near = at + step
        acc += tl.load(w_ptr + REACH + step) * tl.load(
            x_ptr + near, mask=(near >= 0) & (near < n), other=0.0
        )
    tl.store(y_ptr + at, acc, mask=at < n)


@tw.jit
def five_points(x_ptr, y_ptr, rows, columns, alpha, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A step of heat on a torus."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    here = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0)
    around = tl.load(x_ptr + (row + 1) % rows * columns + column, mask=inside, other=0.0)
    around += tl.load(x_ptr + (row + rows - 1) % rows * columns + column, mask=inside, other=0.0)
    around += tl.load(x_ptr + row * columns + (column + 1) % columns, mask=inside, other=0.0)
    around += tl.load(
        x_ptr + row * columns + (column + columns - 1) % columns, mask=inside, other=0.0
    )
    tl.store(y_ptr + row * columns + column, here + alpha * (around - 4 * here), mask=inside)


@tw.jit
def embedding(
    table_ptr, index_ptr, out_ptr, count, width, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows of a table by index, a block a program; an index below zero yields a row of zeros."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < count, other=-1)
    column = tl.arange(0, WIDTH)[None, :]
    rows = tl.load(
        table_ptr + index[:, None] * width + column,
        mask=(index >= 0)[:, None] & (column < width),
        other=0.0,
    )
    tl.store(
        out_ptr + at[:, None] * width + column, rows, mask=(at < count)[:, None] & (column < width)
    )


@tw.jit
def embedding_gradient(grad_ptr, index_ptr, table_ptr, width, WIDTH: tl.constexpr):
    """Rows added to those of a table by index, by all programs at once."""
    row = tl.program_id(0)
    index = tl.load(index_ptr + row)
    column = tl.arange(0, WIDTH)
    tl.atomic_add(
        table_ptr + index * width + column,
        tl.load(grad_ptr + row * width + column, mask=column < width),
        mask=(column < width) & (index >= 0),
    )


@tw.jit
def segment_totals(x_ptr, starts_ptr, out_ptr, most_ptr, BLOCK: tl.constexpr):
    """Total and maximum of each segment of ``x``; a segment may be empty."""
    segment = tl.program_id(0)
    start, stop = tl.load(starts_ptr + segment), tl.load(starts_ptr + segment + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for first in range(start, stop, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + at, mask=at < stop, other=0.0)
        most = tl.maximum(most, tl.load(x_ptr + at, mask=at < stop, other=float("-inf")))
    tl.store(out_ptr + segment, tl.sum(total))
    tl.store(most_ptr + segment, tl.max(most))


@tw.jit
def sparse_times_vector(values_ptr, columns_ptr, starts_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    """A row of a sparse matrix in compressed rows a program."""
    row = tl.program_id(0)
    start, stop = tl.load(starts_ptr + row), tl.load(starts_ptr + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(start, stop, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < stop
        column = tl.load(columns_ptr + at, mask=inside, other=0)
        total += tl.load(values_ptr + at, mask=inside, other=0.0) * tl.load(
            x_ptr + column, mask=inside, other=0.0
        )
    tl.store(y_ptr + row, tl.sum(total))


# ---- counts and prefixes over programs


@tw.jit
def histogram(x_ptr, counts_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts of a block in registers, then added to those of all programs."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), tl.histogram(x, BINS, mask=at < n))


@tw.jit
def scattered_histogram(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    """A count of one an element, straight to memory: many lanes meet at one place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=at < n, sem="relaxed")


@tw.jit
def block_prefixes(x_ptr, y_ptr, totals_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, tl.cumsum(x, 0), mask=at < n)
    tl.store(totals_ptr + program, tl.sum(x))


@tw.jit
def add_totals(y_ptr, totals_ptr, n, BLOCK: tl.constexpr):
    """Add to each block the total of the blocks in front."""
    program = tl.program_id(0)
    before = tl.load(totals_ptr + program - 1, mask=program > 0, other=0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(y_ptr + at, mask=at < n) + before, mask=at < n)


@tw.jit
def one_pass_prefixes(x_ptr, y_ptr, state_ptr, ticket_ptr, n, BLOCK: tl.constexpr):
    """Prefix scan in one launch: each block waits for the total of all blocks in front of it.

    Its neighbor leaves that in one 64-bit word with a flag. Blocks are numbered as their programs
    start, so that a program waits for none that has not started.
    """
    block = tl.atomic_add(ticket_ptr, 1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    own = tl.sum(x)
    before = own * 0
    if block > 0:
        word = tl.atomic_add(state_ptr + block - 1, 0)
        while word == 0:
            word = tl.atomic_add(state_ptr + block - 1, 0)
        before = (word & 0xFFFFFFFF).to(tl.int32)
    # the flag is above the sum, so that the two come at once
    tl.atomic_xchg(state_ptr + block, (1 << 32) | ((before + own).to(tl.int64) & 0xFFFFFFFF))
    tl.store(y_ptr + at, before + tl.cumsum(x, 0), mask=at < n)


@tw.jit
def compact(x_ptr, out_ptr, count_ptr, n, BLOCK: tl.constexpr):
    """The positive elements, side by side, in order, by one program."""
    kept = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0)
        keep = (x > 0).to(tl.int32)
        place = kept + tl.cumsum(keep, 0) - keep
        tl.store(out_ptr + place, x, mask=keep != 0)
        kept += tl.sum(keep)
    tl.store(count_ptr, kept)
