"""Kernels of one step of a decoder, on blocks of the values of a state."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.sequence.chunk_kernels import softplus
from tilewright_kernels.sequence.chunks import load_state, store_state


@tw.jit
def ssd_step_kernel(
    state_ptr, x_ptr, dt_ptr, rate_ptr, b_ptr, c_ptr, skip_ptr, z_ptr, bias_ptr, y_ptr, new_ptr,
    state_batch, state_head, state_value, state_key, x_batch, x_head, dt_batch, dt_head,
    b_batch, b_head, c_batch, c_head, z_batch, z_head, skip_head, skip_dim, heads, lower, upper,
    GROUP: tl.constexpr, SOFTPLUS: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store a row and the state after it."""
    batch, head, dim = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2) * WIDTH
    keys, dims = tl.arange(0, PADDED), dim + tl.arange(0, WIDTH)
    dt = tl.load(dt_ptr + batch * dt_batch + head * dt_head).to(tl.float32)
    if bias_ptr is not None:
        dt += tl.load(bias_ptr + head).to(tl.float32)
    if SOFTPLUS:
        dt = softplus(dt)
    dt = tl.minimum(tl.maximum(dt, lower), upper)
    decay = tl.exp(dt * tl.load(rate_ptr + head).to(tl.float32))
    at = batch * b_batch + (head // GROUP) * b_head + keys
    b = tl.load(b_ptr + at, mask=keys < D, other=0.0).to(tl.float32)
    at = batch * c_batch + (head // GROUP) * c_head + keys
    c = tl.load(c_ptr + at, mask=keys < D, other=0.0).to(tl.float32)
    at = batch * x_batch + head * x_head + dims
    x = tl.load(x_ptr + at, mask=dims < D_V, other=0.0).to(tl.float32)
    at = state_ptr + batch * state_batch + head * state_head
    state = load_state(at, dim, state_key, state_value, D, D_V, PADDED, WIDTH).to(tl.float32)
    state = state * decay + b[:, None] * (x * dt)[None, :]
    at = new_ptr + (batch * heads + head) * D * D_V
    store_state(at, dim, 1, D, state, D, D_V, PADDED, WIDTH)
    y = tl.sum(state * c[:, None], 0)
    if skip_ptr is not None:
        at = skip_ptr + head * skip_head + dims * skip_dim
        y += x * tl.load(at, mask=dims < D_V, other=0.0).to(tl.float32)
    if z_ptr is not None:
        at = batch * z_batch + head * z_head + dims
        z = tl.load(z_ptr + at, mask=dims < D_V, other=0.0).to(tl.float32)
        y *= z * tl.sigmoid(z)
    tl.store(y_ptr + (batch * heads + head) * D_V + dims, y, mask=dims < D_V)


@tw.jit
def delta_step_kernel(
    state_ptr, q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, out_ptr, new_ptr,
    state_batch, state_head, state_key, state_value, q_batch, q_head, k_batch, k_head,
    v_batch, v_head, g_batch, g_head, beta_batch, beta_head, heads, scale, eps,
    GROUP: tl.constexpr, NORM: tl.constexpr, D: tl.constexpr, D_V: tl.constexpr,
    PADDED: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store a row and the state after it."""
    batch, head, dim = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2) * WIDTH
    keys, dims = tl.arange(0, PADDED), dim + tl.arange(0, WIDTH)
    at = batch * q_batch + (head // GROUP) * q_head + keys
    q = tl.load(q_ptr + at, mask=keys < D, other=0.0).to(tl.float32)
    at = batch * k_batch + (head // GROUP) * k_head + keys
    k = tl.load(k_ptr + at, mask=keys < D, other=0.0).to(tl.float32)
    if NORM:
        q *= tl.rsqrt(tl.sum(q * q, 0) + eps)
        k *= tl.rsqrt(tl.sum(k * k, 0) + eps)
    at = batch * v_batch + head * v_head + dims
    v = tl.load(v_ptr + at, mask=dims < D_V, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + batch * g_batch + head * g_head).to(tl.float32)
    beta = tl.load(beta_ptr + batch * beta_batch + head * beta_head).to(tl.float32)
    at = state_ptr + batch * state_batch + head * state_head
    state = load_state(at, dim, state_key, state_value, D, D_V, PADDED, WIDTH).to(tl.float32)
    state *= tl.exp(g)
    u = (v - tl.sum(state * k[:, None], 0)) * beta
    state += k[:, None] * u[None, :]
    at = new_ptr + (batch * heads + head) * D * D_V
    store_state(at, dim, D_V, 1, state, D, D_V, PADDED, WIDTH)
    out = tl.sum(state * q[:, None], 0) * scale
    tl.store(out_ptr + (batch * heads + head) * D_V + dims, out, mask=dims < D_V)
