"""Forward kernels of ``gradients.py``, and backward kernels by hand beside them."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def layer_norm_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, mean_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    out = centred * rstd * w + b
    tl.store(out_ptr + row * n + columns, out.to(out_ptr.dtype.element_ty), mask=inside)


@tw.jit
def rms_norm_kernel(x_ptr, w_ptr, out_ptr, rstd_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(rstd_ptr + row, rstd)
    out = x * rstd * w
    tl.store(out_ptr + row * n + columns, out.to(out_ptr.dtype.element_ty), mask=inside)


@tw.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, lse_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    start = row.to(tl.int64) * n
    x = tl.load(x_ptr + start + columns, mask=inside, other=-float("inf")).to(tl.float32)
    target = tl.load(target_ptr + row)
    highest = tl.max(x, axis=0)
    lse = highest + tl.log(tl.sum(tl.exp(x - highest), axis=0))
    chosen = tl.sum(tl.where(columns == target, x, 0.0), axis=0)
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, lse - chosen)


@tw.jit
def swiglu_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(a_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    out = a * tl.sigmoid(a) * b
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


@tw.jit
def geglu_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(a_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
    gelu = a * tl.sigmoid(2 * inner)  # 0.5 (1 + tanh(inner)) = sigmoid(2 inner)
    tl.store(out_ptr + offsets, (gelu * b).to(out_ptr.dtype.element_ty), mask=inside)


@tw.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Rotate [rows, heads, 2 HALF]; cosines and sines are [rows, HALF]."""
    row = tl.program_id(0)
    head = tl.arange(0, HEADS)[:, None]
    lane = tl.arange(0, HALF)[None, :]
    inside = head < heads
    offsets = row.to(tl.int64) * heads * (2 * HALF) + head * (2 * HALF) + lane
    cos = tl.load(cos_ptr + row * HALF + lane).to(tl.float32)
    sin = tl.load(sin_ptr + row * HALF + lane).to(tl.float32)
    first = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + offsets + HALF, mask=inside, other=0.0).to(tl.float32)
    element = out_ptr.dtype.element_ty
    tl.store(out_ptr + offsets, (first * cos - second * sin).to(element), mask=inside)
    tl.store(out_ptr + offsets + HALF, (second * cos + first * sin).to(element), mask=inside)


# ---- by hand


@tw.jit
def softmax_backward_kernel(out_ptr, d_out_ptr, d_x_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    offsets = tl.program_id(0) * n + columns
    out = tl.load(out_ptr + offsets, mask=inside, other=0.0)
    d_out = tl.load(d_out_ptr + offsets, mask=inside, other=0.0)
    d_x = out * (d_out - tl.sum(out * d_out, axis=0))
    tl.store(d_x_ptr + offsets, d_x, mask=inside)


@tw.jit
def swiglu_backward_kernel(a_ptr, b_ptr, d_out_ptr, d_a_ptr, d_b_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(a_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    d_out = tl.load(d_out_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    s = tl.sigmoid(a)
    d_a = d_out * b * s * (1 + a * (1 - s))
    tl.store(d_a_ptr + offsets, d_a.to(d_a_ptr.dtype.element_ty), mask=inside)
    tl.store(d_b_ptr + offsets, (d_out * a * s).to(d_b_ptr.dtype.element_ty), mask=inside)


@tw.jit
def leaky_relu_backward_kernel(out_ptr, d_out_ptr, d_x_ptr, n, BLOCK: tl.constexpr):
    """The gradient of a leaky ReLU's input, whose sign is its output's."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    out = tl.load(out_ptr + offsets, mask=inside, other=0.0)
    d_out = tl.load(d_out_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    d_x = tl.where(out >= 0, d_out, 0.01 * d_out)
    tl.store(d_x_ptr + offsets, d_x.to(d_x_ptr.dtype.element_ty), mask=inside)


@tw.jit
def layer_norm_backward_kernel(
    x_ptr, w_ptr, mean_ptr, rstd_ptr, d_out_ptr, d_x_ptr, parts_ptr, rows, n, BLOCK: tl.constexpr
):
    """A program's share of the rows; sums of the weight and the bias are [programs, 2, n]."""
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    w = tl.load(w_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    d_w = tl.zeros([BLOCK], tl.float32)
    d_b = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        offsets = row * n + columns
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        d_out = tl.load(d_out_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        scaled = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        d_scaled = d_out * w
        mean = tl.sum(d_scaled, axis=0) / n
        slope = tl.sum(d_scaled * scaled, axis=0) / n
        d_x = (d_scaled - mean - scaled * slope) * rstd
        tl.store(d_x_ptr + offsets, d_x.to(d_x_ptr.dtype.element_ty), mask=inside)
        d_w += d_out * scaled
        d_b += d_out
    base = parts_ptr + tl.program_id(0) * 2 * n + columns
    tl.store(base, d_w, mask=inside)
    tl.store(base + n, d_b, mask=inside)


@tw.jit
def add_parts_kernel(
    parts_ptr, d_w_ptr, d_b_ptr, parts, n, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up the sums of all programs, in order."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n
    d_w = tl.zeros([ROWS, BLOCK], tl.float32)
    d_b = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, parts, ROWS):
        part = start + tl.arange(0, ROWS)
        mask = (part < parts)[:, None] & inside[None, :]
        base = parts_ptr + part[:, None] * 2 * n + columns[None, :]
        d_w += tl.load(base, mask=mask, other=0.0)
        d_b += tl.load(base + n, mask=mask, other=0.0)
    tl.store(d_w_ptr + columns, tl.sum(d_w, axis=0).to(d_w_ptr.dtype.element_ty), mask=inside)
    tl.store(d_b_ptr + columns, tl.sum(d_b, axis=0).to(d_b_ptr.dtype.element_ty), mask=inside)
