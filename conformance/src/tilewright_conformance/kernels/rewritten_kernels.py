"""Kernels beside plain ones of the same algebra, with the mistakes that ``BUG`` names."""

# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def plain_attention_backward(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, length, scale,
    D: tl.constexpr, LENGTH: tl.constexpr, CAUSAL: tl.constexpr, BUG: tl.constexpr = "",
):  # fmt: skip
    """Gradients of one query and of the key and value at its place."""
    own, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    place, dims = tl.arange(0, LENGTH), tl.arange(0, D)
    at, fits = base + place[:, None] * D + dims[None, :], place[:, None] < length
    q, k = tl.load(q_ptr + at, fits, 0.0), tl.load(k_ptr + at, fits, 0.0)
    v, do = tl.load(v_ptr + at, fits, 0.0), tl.load(do_ptr + at, fits, 0.0)
    mine = base + own * D + dims
    row = head * length + own
    p = tl.exp(tl.sum(k * tl.load(q_ptr + mine)[None, :], 1) * scale - tl.load(lse_ptr + row))
    p = tl.where((place < length) & ((place <= own) if CAUSAL else True), p, 0.0)
    ds = p * (tl.sum(v * tl.load(do_ptr + mine)[None, :], 1) - tl.load(delta_ptr + row))
    tl.store(dq_ptr + mine, tl.sum(ds[:, None] * k, 0) * scale)
    rows = head * length + place
    lse = tl.load(lse_ptr + rows, place < length, 0.0)
    delta = tl.load(delta_ptr + rows, place < length, 0.0)
    first = own + 1 if BUG == "diagonal" else own
    p = tl.exp(tl.sum(q * tl.load(k_ptr + mine)[None, :], 1) * scale - lse)
    p = tl.where((place < length) & ((place >= first) if CAUSAL else True), p, 0.0)
    ds = tl.sum(do * tl.load(v_ptr + mine)[None, :], 1)
    ds = p * (ds if BUG == "delta" else ds - delta)
    dk = tl.sum(ds[:, None] * q, 0)
    tl.store(dk_ptr + mine, dk if BUG == "scale" else dk * scale)
    tl.store(dv_ptr + mine, tl.sum(p[:, None] * do, 0))


@tw.jit
def plain_rms_norm(x_ptr, w_ptr, y_ptr, dy_ptr, dx_ptr, n, eps, offset):
    """``x / sqrt(mean(x ** 2) + eps) * (w + offset)`` and its derivative, element by element."""
    row = tl.program_id(0) * n
    squares, products = 0.0, 0.0
    for i in range(n):
        x = tl.load(x_ptr + row + i)
        squares += x * x
        products += tl.load(dy_ptr + row + i) * (tl.load(w_ptr + i) + offset) * x
    root = tl.sqrt(squares / n + eps)
    for i in range(n):
        x, w = tl.load(x_ptr + row + i), tl.load(w_ptr + i) + offset
        tl.store(y_ptr + row + i, x / root * w)
        cubed = root * root * root
        tl.store(dx_ptr + row + i, tl.load(dy_ptr + row + i) * w / root - x * products / n / cubed)


@tw.jit
def fused_rms_norm(
    x_ptr, w_ptr, y_ptr, dy_ptr, dx_ptr, n, eps, offset,
    BLOCK: tl.constexpr, BUG: tl.constexpr = "",
):  # fmt: skip
    """As Liger's kernels: whole rows, a reciprocal root that the derivative takes, too."""
    row, column = tl.program_id(0) * n, tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + row + column, mask=inside, other=0.0)
    w = tl.load(w_ptr + column, mask=inside, other=0.0)
    w = w if BUG == "offset" else offset + w
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / (BLOCK if BUG == "mean" else n) + eps)
    tl.store(y_ptr + row + column, x * rstd * w, mask=inside)
    scaled = tl.load(dy_ptr + row + column, mask=inside, other=0.0) * w
    inner = tl.sum(scaled * x, axis=0)
    inverse = 1 / n
    if BUG == "square":
        dx = rstd * (scaled - inverse * rstd * inner * x)
    else:
        dx = rstd * (scaled - inverse * rstd * rstd * inner * x)
    tl.store(dx_ptr + row + column, dx, mask=inside)
