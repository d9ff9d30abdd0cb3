"""Kernels of the gated delta rule beside those of all recurrences in chunks.

A step adds ``k[t] u[t]'`` to the state, where ``u`` solves ``(I + A) u = beta (v - exp(a) k S)``
with the state ``S`` before the chunk, the prefix sums ``a`` of log decays, and the strictly lower
triangular ``A[t, s] = beta[t] exp(a[t] - a[s]) k[t]' k[s]``. With the inverse of ``I + A`` the
states need ``u = u0 - w S`` alone: the WY form.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.sequence.chunks import (
    decay_between,
    load_state,
    load_tile,
    rows_of_chunk,
    store_tile,
)

#: Rows of diagonal blocks that forward substitution inverts.
_SIDE = tl.constexpr(16)


@tw.jit
def diagonal_blocks(a, T: tl.constexpr, SIDE: tl.constexpr):
    """Return the diagonal blocks of a matrix of T rows: (blocks, SIDE, SIDE)."""
    BLOCKS: tl.constexpr = T // SIDE
    block = tl.arange(0, BLOCKS)
    tiles = tl.reshape(a, [BLOCKS, SIDE, BLOCKS, SIDE])
    is_diagonal = block[:, None, None, None] == block[None, None, :, None]
    return tl.sum(tl.where(is_diagonal, tiles, 0.0), 2)


@tw.jit
def joined_inverses(found, a, T: tl.constexpr, SIDE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the inverses of blocks of twice SIDE from those of SIDE.

    The block below two inverses is minus the product of the lower one, that of ``a``, the upper.
    """
    PAIRS: tl.constexpr = T // (2 * SIDE)
    tiles = tl.reshape(diagonal_blocks(a, T, 2 * SIDE), [PAIRS, 2, SIDE, 2, SIDE])
    half = tl.arange(0, 2)
    row, column = half[None, :, None, None, None], half[None, None, None, :, None]
    below = tl.sum(tl.sum(tl.where(row > column, tiles, 0.0), 3), 1)
    pairs = tl.reshape(found, [PAIRS, 2, SIDE, SIDE])
    is_lower = half[None, :, None, None] == 1
    lower = tl.sum(tl.where(is_lower, pairs, 0.0), 1)
    upper = tl.sum(tl.where(is_lower, 0.0, pairs), 1)
    below = tl.dot(lower, below, input_precision=PRECISION)
    below = tl.dot(below, upper, input_precision=PRECISION)[:, None, :, None, :]
    whole = tl.where(row > column, -below, 0.0)
    whole = tl.where(row == column, pairs[:, :, :, None, :], whole)
    return tl.reshape(whole, [PAIRS, 2 * SIDE, 2 * SIDE])


@tw.jit
def unit_lower_inverse(a, T: tl.constexpr, PRECISION: tl.constexpr):
    """Return the inverse of ``I + a`` of T rows, at most 64, of a strictly lower triangular ``a``.

    Forward substitution inverts the diagonal blocks of 16 rows, all at once; matmuls join them.
    """
    BLOCKS: tl.constexpr = T // _SIDE
    block, side = tl.arange(0, BLOCKS), tl.arange(0, _SIDE)
    diagonal = diagonal_blocks(a, T, _SIDE)
    row, column = side[None, :, None], side[None, None, :]
    found = tl.where((row == column) & (block >= 0)[:, None, None], 1.0, 0.0)
    for step in range(1, _SIDE):
        factors = tl.sum(tl.where(row == step, diagonal, 0.0), 1)
        change = tl.sum(factors[:, :, None] * found, 1)
        found = tl.where(row == step, found - change[:, None, :], found)
    if T > _SIDE:
        found = joined_inverses(found, a, T, _SIDE, PRECISION)
    if T > 2 * _SIDE:
        found = joined_inverses(found, a, T, 2 * _SIDE, PRECISION)
    return tl.reshape(found, [T, T])


@tw.jit
def triangle_kernel(
    k_ptr, beta_ptr, a_ptr, inverse_ptr, cu_seqlens_ptr,
    k_batch, k_row, k_head, beta_batch, beta_row, beta_head, sequences, length, tokens, heads,
    PRECISION: tl.constexpr, GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    """Store the inverse of a chunk's ``I + A``."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    k_ptr += batch.to(tl.int64) * k_batch + (head // GROUP) * k_head
    beta_ptr += batch.to(tl.int64) * beta_batch + head * beta_head
    rows, step = row + tl.arange(0, T), tl.arange(0, T)
    inside = rows < end
    is_below = inside[:, None] & (step[:, None] > step[None, :])
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    beta = tl.load(beta_ptr + rows.to(tl.int64) * beta_row, mask=inside, other=0.0).to(tl.float32)
    place = head.to(tl.int64) * tokens + batch.to(tl.int64) * length + rows
    a = tl.load(a_ptr + place, mask=inside, other=0.0)
    triangle = tl.dot(k, tl.trans(k), input_precision="ieee") * beta[:, None]
    triangle *= decay_between(a[:, None], a[None, :], is_below)
    inverse = unit_lower_inverse(triangle, T, PRECISION)
    at = (chunk.to(tl.int64) * heads + head) * T * T + step[:, None] * T + step[None, :]
    tl.store(inverse_ptr + at, inverse.to(inverse_ptr.dtype.element_ty))


@tw.jit
def wy_kernel(
    k_ptr, v_ptr, beta_ptr, a_ptr, inverse_ptr, w_ptr, u_ptr, cu_seqlens_ptr,
    k_batch, k_row, k_head, v_batch, v_row, v_head, beta_batch, beta_row, beta_head,
    sequences, length, tokens, heads,
    GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, PADDED_V: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store a chunk's ``w`` and ``u0``."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    k_ptr += batch.to(tl.int64) * k_batch + (head // GROUP) * k_head
    v_ptr += batch.to(tl.int64) * v_batch + head * v_head
    beta_ptr += batch.to(tl.int64) * beta_batch + head * beta_head
    own = batch.to(tl.int64) * length
    rows, step = row + tl.arange(0, T), tl.arange(0, T)
    inside = rows < end
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    beta = tl.load(beta_ptr + rows.to(tl.int64) * beta_row, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + head.to(tl.int64) * tokens + own + rows, mask=inside, other=0.0)
    at = (chunk.to(tl.int64) * heads + head) * T * T + step[:, None] * T + step[None, :]
    inverse = tl.load(inverse_ptr + at).to(tl.float32)
    own = own * heads + head
    scaled = (inverse * (beta * tl.exp(a))[None, :]).to(k.dtype)
    w = tl.dot(scaled, k, input_precision="ieee")
    store_tile(w_ptr + own * D, row, end, heads * D, 0, w, T, D, PADDED)
    scaled = (inverse * beta[None, :]).to(k.dtype)
    for dim in tl.static_range(0, PADDED_V, WIDTH):
        v = load_tile(v_ptr, row, end, v_row, dim, T, D_V, WIDTH)
        u = tl.dot(scaled, v, input_precision="ieee")
        store_tile(u_ptr + own * D_V, row, end, heads * D_V, dim, u, T, D_V, WIDTH)


@tw.jit
def wy_gradient_kernel(
    k_ptr, v_ptr, beta_ptr, a_ptr, inverse_ptr, u_ptr, du_ptr, states_ptr,
    dv_ptr, dbeta_ptr, dk_ptr, da_ptr, cu_seqlens_ptr,
    k_batch, k_row, k_head, v_batch, v_row, v_head, beta_batch, beta_row, beta_head,
    sequences, length, tokens, heads,
    GROUP: tl.constexpr, T: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, PADDED_V: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the gradients of values and ``beta``, and what keys and decays get through ``u``.

    Of ``(I + A) u = r`` the gradients are ``y = (I + A)'^-1 du`` of ``r``, and ``-y u'`` of ``A``.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    batch, row, end = rows_of_chunk(cu_seqlens_ptr, chunk, sequences, length, T)
    k_ptr += batch.to(tl.int64) * k_batch + (head // GROUP) * k_head
    v_ptr += batch.to(tl.int64) * v_batch + head * v_head
    beta_ptr += batch.to(tl.int64) * beta_batch + head * beta_head
    own = batch.to(tl.int64) * length
    rows, step = row + tl.arange(0, T), tl.arange(0, T)
    inside = rows < end
    is_below = inside[:, None] & (step[:, None] > step[None, :])
    k = load_tile(k_ptr, row, end, k_row, 0, T, D, PADDED)
    beta = tl.load(beta_ptr + rows.to(tl.int64) * beta_row, mask=inside, other=0.0).to(tl.float32)
    place = head.to(tl.int64) * tokens + own + rows
    a = tl.load(a_ptr + place, mask=inside, other=0.0)
    number = chunk.to(tl.int64) * heads + head
    at = inverse_ptr + number * T * T + step[:, None] + step[None, :] * T
    transposed = tl.load(at)
    states_ptr += number * D * D_V
    own = (own * heads + head) * D_V
    from_start = tl.exp(a)
    triangle = tl.zeros([T, T], tl.float32)
    back = tl.zeros([T, PADDED], tl.float32)
    of_values = tl.zeros([T], tl.float32)
    of_states = tl.zeros([T], tl.float32)
    for dim in tl.static_range(0, PADDED_V, WIDTH):
        u = load_tile(u_ptr + own, row, end, heads * D_V, dim, T, D_V, WIDTH)
        du = load_tile(du_ptr + own, row, end, heads * D_V, dim, T, D_V, WIDTH)
        v = load_tile(v_ptr, row, end, v_row, dim, T, D_V, WIDTH)
        state = load_state(states_ptr, dim, D_V, 1, D, D_V, PADDED, WIDTH)
        y = tl.dot(transposed, du, input_precision="ieee")
        rounded = y.to(k.dtype)
        triangle = tl.dot(rounded, tl.trans(u), triangle, input_precision="ieee")
        back = tl.dot(rounded, tl.trans(state), back, input_precision="ieee")
        of_values += tl.sum(y * v.to(tl.float32), 1)
        of_states += tl.sum(y * tl.dot(k, state, input_precision="ieee"), 1)
        dv = y * beta[:, None]
        store_tile(dv_ptr + own, row, end, heads * D_V, dim, dv, T, D_V, WIDTH)
    triangle *= -decay_between(a[:, None], a[None, :], is_below)
    products = triangle * tl.dot(k, tl.trans(k), input_precision="ieee")
    of_states *= from_start
    dbeta = of_values - of_states + tl.sum(products, 1)
    products *= beta[:, None]
    da = tl.sum(products, 1) - beta * of_states - tl.sum(products, 0)
    tl.store(da_ptr + place, da, mask=inside)
    at = (batch.to(tl.int64) * length + rows) * heads + head
    tl.store(dbeta_ptr + at, dbeta, mask=inside)
    scaled = (triangle * beta[:, None]).to(k.dtype)
    dk = tl.dot(scaled, k, back * -(beta * from_start)[:, None], input_precision="ieee")
    dk = tl.dot(tl.trans(scaled), k, dk, input_precision="ieee")
    at = dk_ptr + ((batch.to(tl.int64) * length) * heads + head) * D
    store_tile(at, row, end, heads * D, 0, dk, T, D, PADDED)
