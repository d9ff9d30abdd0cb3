"""Kernels that go row by row, as people write them: normalisations, losses, sorting, scans."""
# Kernels are written in the language, whose types a checker of Python does not know.
# mypy: ignore-errors

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice


@tw.jit
def rms_norm_forward(x_ptr, w_ptr, y_ptr, rstd_ptr, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    y_ptr += row * stride
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares) / columns + eps)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        tl.store(y_ptr + offsets, x * rstd * tl.load(w_ptr + offsets, mask=mask), mask=mask)


@tw.jit
def rms_norm_backward(
    dy_ptr,
    x_ptr,
    w_ptr,
    rstd_ptr,
    dx_ptr,
    dw_ptr,
    stride,
    rows,
    columns,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
    dw = tl.zeros_like(w)
    for row in tl.range(program, rows, PROGRAMS, num_stages=2):
        x = tl.load(x_ptr + row * stride + offsets, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + row * stride + offsets, mask=mask, other=0.0)
        rstd = tl.load(rstd_ptr + row)
        hat, scaled = x * rstd, w * dy
        tl.store(
            dx_ptr + row * stride + offsets,
            rstd * (scaled - hat * (tl.sum(hat * scaled, axis=0) / columns)),
            mask=mask,
        )
        dw += dy * hat
    tl.store(dw_ptr + program * columns + offsets, dw, mask=mask)


@tw.jit
def layer_norm_gradient(
    dx,
    dy,
    dw,
    db,
    x,
    w,
    mean,
    rstd,
    locks,
    stride,
    columns,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x += row * stride
    dy += row * stride
    dx += row * stride
    group = row % GROUPS
    locks += group
    counts = locks + GROUPS
    dw = dw + group * columns + at
    db = db + group * columns + at
    values = tl.load(x + at, mask=mask, other=0).to(tl.float32)
    grads = tl.load(dy + at, mask=mask, other=0).to(tl.float32)
    weights = tl.load(w + at, mask=mask).to(tl.float32)
    hat = (values - tl.load(mean + row)) * tl.load(rstd + row)
    scaled = weights * grads
    hat = tl.where(mask, hat, 0.0)
    scaled = tl.where(mask, scaled, 0.0)
    c1 = tl.sum(hat * scaled, axis=0) / columns
    c2 = tl.sum(scaled, axis=0) / columns
    tl.store(dx + at, (scaled - (hat * c1 + c2)) * tl.load(rstd + row), mask=mask)
    partial_w = (grads * hat).to(w.dtype.element_ty)
    partial_b = grads.to(w.dtype.element_ty)
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    count = tl.load(counts)
    if count == 0:
        tl.atomic_xchg(counts, 1)
    else:
        partial_w += tl.load(dw, mask=mask)
        partial_b += tl.load(db, mask=mask)
    tl.store(dw, partial_w, mask=mask)
    tl.store(db, partial_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(locks, 0)


@tw.jit
def rotate(
    q_ptr,
    cos_ptr,
    sin_ptr,
    q_row,
    heads,
    half,
    BACKWARD: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    position = tl.program_id(0)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    cos = tl.load(cos_ptr + position * half + column, mask=column < half, other=0)
    sin = tl.load(sin_ptr + position * half + column, mask=column < half, other=0)
    if BACKWARD:
        sin = -sin
    first = q_ptr + position * q_row + head * (2 * half) + column
    mask = (head < heads) & (column < half)
    a = tl.load(first, mask=mask, other=0).to(sin.dtype)
    b = tl.load(first + half, mask=mask, other=0).to(sin.dtype)
    tl.store(first, a * cos - b * sin, mask=mask)
    tl.store(first + half, b * cos + a * sin, mask=mask)


@tw.jit
def cross_entropy(
    logits,
    target,
    loss,
    classes,
    stride,
    ignored,
    smoothing: tl.constexpr,
    HAS_CAP: tl.constexpr,
    cap,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    wanted = tl.load(target + row)
    if wanted == ignored:
        for start in range(0, classes, BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(logits + at, 0.0, mask=at < classes)
        tl.store(loss + row, 0.0)
        return
    top = float("-inf")
    total = 0.0
    mean = 0.0
    chosen = tl.load(logits + wanted).to(tl.float32)
    if HAS_CAP:
        chosen = cap * libdevice.tanh(chosen / cap)
    for start in range(0, classes, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < classes, other=float("-inf")).to(tl.float32)
        if HAS_CAP:
            x = cap * libdevice.tanh(x / cap)
            x = tl.where(at < classes, x, float("-inf"))
        if smoothing > 0:
            mean += tl.sum(tl.where(at < classes, x, 0.0)) / classes
        new_top = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top))
        top = new_top
    lse = top + tl.log(total)
    result = lse - chosen
    if smoothing > 0:
        result = result * (1 - smoothing) + smoothing * (lse - mean)
    tl.store(loss + row, result)
    for start in range(0, classes, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + at, mask=at < classes, other=float("-inf")).to(tl.float32)
        slope = tl.full((BLOCK,), 1.0, tl.float32)
        if HAS_CAP:
            squashed = libdevice.tanh(x / cap)
            slope = 1 - squashed * squashed
            x = cap * squashed
        p = tl.exp(x - lse) - smoothing / classes
        p = tl.where(at == wanted, p - (1 - smoothing), p)
        tl.store(logits + at, p * slope, mask=at < classes)


@tw.jit
def dropout(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    base = tl.program_id(0) * BLOCK * 4 + tl.arange(0, BLOCK)
    draws = tl.rand4x(seed, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    for i in tl.static_range(4):
        at = base + i * BLOCK
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, tl.where(draws[i] > p, x / (1 - p), 0.0), mask=at < n)


@tw.jit
def quantise(x_ptr, q_ptr, scale_ptr, columns, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(x)), 1e-10) / LARGEST
    scaled = x / scale
    if q_ptr.dtype.element_ty.is_int():
        quantised = tl.clamp(libdevice.rint(scaled), -LARGEST, LARGEST).to(q_ptr.dtype.element_ty)
    else:
        quantised = scaled.to(q_ptr.dtype.element_ty)
    tl.store(q_ptr + row * columns + at, quantised, mask=at < columns)
    tl.store(scale_ptr + row, scale)


@tw.jit
def top_k(x_ptr, values_ptr, places_ptr, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
    # The order of a float's bits, place in the low word: ties go to the lower place.
    bits = x.to(tl.int32, bitcast=True)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    keys = (ordered << 32) | (BLOCK - 1 - at)
    best = tl.topk(keys, K)
    places = BLOCK - 1 - (best & 0xFFFFFFFF).to(tl.int32)
    out = tl.arange(0, K)
    tl.store(places_ptr + row * K + out, places)
    tl.store(values_ptr + row * K + out, tl.gather(x, places, 0))


@tw.jit
def bitonic_rows(
    x_ptr, y_ptr, columns, DESCENDING: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, ROWS)[:, None] * columns + tl.arange(0, BLOCK)[None, :]
    mask = tl.arange(0, BLOCK)[None, :] < columns
    filler = float("-inf") if DESCENDING else float("inf")
    x = tl.load(x_ptr + at, mask=mask & (at >= 0), other=filler)
    tl.store(y_ptr + at, tl.sort(x, descending=DESCENDING), mask=mask)


@tw.jit
def first_order(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@tw.jit
def selective_scan(
    x_ptr,
    delta_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    y_ptr,
    length,
    channels,
    REVERSE: tl.constexpr,
    STATES: tl.constexpr,
    CHUNK: tl.constexpr,
):
    channel = tl.program_id(0)
    state = tl.arange(0, STATES)
    a = tl.load(a_ptr + channel * STATES + state)
    carried = tl.zeros((STATES,), tl.float32)
    for chunk in range(tl.cdiv(length, CHUNK)):
        if REVERSE:
            at = length - (chunk + 1) * CHUNK + tl.arange(0, CHUNK)
        else:
            at = chunk * CHUNK + tl.arange(0, CHUNK)
        mask = (at >= 0) & (at < length)
        delta = tl.load(delta_ptr + at * channels + channel, mask=mask, other=0.0)
        x = tl.load(x_ptr + at * channels + channel, mask=mask, other=0.0)
        grid = at[:, None] * STATES + state[None, :]
        b = tl.load(b_ptr + grid, mask=mask[:, None], other=0.0)
        c = tl.load(c_ptr + grid, mask=mask[:, None], other=0.0)
        decay = 1 / (1 - delta[:, None] * a[None, :])
        drive = (delta * x)[:, None] * b
        decays, states = tl.associative_scan((decay, drive), 0, first_order, reverse=REVERSE)
        states += decays * carried
        tl.store(y_ptr + at * channels + channel, tl.sum(states * c, axis=1), mask=mask)
        last = 0 if REVERSE else CHUNK - 1
        carried = tl.sum(tl.where((tl.arange(0, CHUNK) == last)[:, None], states, 0.0), axis=0)
