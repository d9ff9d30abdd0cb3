"""Kernels that go row by row, as people write them: CPU and GPU against the reference and against float64, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice

RNG = np.random.default_rng(20)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int, dtype: Any = np.float32) -> Any:
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


# -- root-mean-square norm ----------------------------------------------------------------------------------------------------------------------------


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
def rms_norm_backward(dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr, dw_ptr, stride, rows, columns, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
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
        tl.store(dx_ptr + row * stride + offsets, rstd * (scaled - hat * (tl.sum(hat * scaled, axis=0) / columns)), mask=mask)
        dw += dy * hat
    tl.store(dw_ptr + program * columns + offsets, dw, mask=mask)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 37), (7, 300)])
def test_rms_norm_and_its_gradient(launch: Any, rows: int, columns: int) -> None:
    x, w, dy = normal(rows, columns), normal(columns), normal(rows, columns)
    y, rstd, dx, dw = poisoned(rows, columns), poisoned(rows), poisoned(rows, columns), poisoned(3, columns)
    launch(rms_norm_forward, (rows,), x, w, y, rstd, columns, columns, 1e-6, BLOCK=64)
    launch(rms_norm_backward, (3,), dy, x, w, rstd, dx, dw, columns, rows, columns, PROGRAMS=3, BLOCK=tw.next_power_of_2(columns))
    x64, w64, dy64 = x.astype(float), w.astype(float), dy.astype(float)
    r64 = 1 / np.sqrt((x64**2).mean(1, keepdims=True) + 1e-6)
    hat = x64 * r64
    np.testing.assert_allclose(y, hat * w64, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dx, r64 * (w64 * dy64 - hat * (hat * w64 * dy64).mean(1, keepdims=True)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dw.sum(0), (dy64 * hat).sum(0), rtol=1e-4, atol=1e-4)


# -- layer norm: gradient with locks ------------------------------------------------------------------------------------------------------------------


@tw.jit
def layer_norm_gradient(dx, dy, dw, db, x, w, mean, rstd, locks, stride, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
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


def test_the_gradient_of_a_layer_norm_under_locks(launch: Any) -> None:
    rows, columns, groups = 13, 29, 4
    x, w, dy = normal(rows, columns), normal(columns), normal(rows, columns)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    dx, dw, db, locks = poisoned(rows, columns), poisoned(groups, columns), poisoned(groups, columns), np.zeros(2 * groups, np.int32)
    launch(layer_norm_gradient, (rows,), dx, dy, dw, db, x, w, mean, rstd, locks, columns, columns, GROUPS=groups, BLOCK=32, rtol=1e-4)
    hat = (x.astype(float) - mean[:, None]) * rstd[:, None]
    scaled = w * dy.astype(float)
    exact = (scaled - hat * (hat * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)) * rstd[:, None]
    np.testing.assert_allclose(dx, exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dw.sum(0), (dy * hat).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(db.sum(0), dy.sum(0, dtype=float), rtol=1e-4, atol=1e-4)
    assert locks[:groups].tolist() == [0] * groups


# -- rotary embedding ---------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def rotate(q_ptr, cos_ptr, sin_ptr, q_row, heads, half, BACKWARD: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr):
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


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rotary_embedding_and_back(launch: Any, dtype: Any) -> None:
    positions, heads, half = 5, 3, 12
    q = normal(positions, heads, 2 * half).astype(dtype)
    angle = np.arange(positions)[:, None] / 10000 ** (np.arange(half) / half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    found = q.copy()
    close = 1e-5 if dtype == np.float32 else 4e-3
    launch(rotate, (positions,), found, cos, sin, heads * 2 * half, heads, half, BACKWARD=False, HEADS=4, HALF=16, atol=close)
    turned = (q[..., :half] + 1j * q[..., half:].astype(float)) * np.exp(1j * angle)[:, None, :]
    np.testing.assert_allclose(found, np.concatenate([turned.real, turned.imag], -1), rtol=close, atol=close)
    launch(rotate, (positions,), found, cos, sin, heads * 2 * half, heads, half, BACKWARD=True, HEADS=4, HALF=16, atol=close)
    np.testing.assert_allclose(found, q, rtol=2 * close, atol=2 * close)


# -- cross entropy, online, its gradient in place -----------------------------------------------------------------------------------------------------


@tw.jit
def cross_entropy(logits, target, loss, classes, stride, ignored, smoothing: tl.constexpr, HAS_CAP: tl.constexpr, cap, BLOCK: tl.constexpr):
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


@pytest.mark.parametrize(("smoothing", "cap"), [(0.0, None), (0.1, None), (0.0, 5.0)])
def test_cross_entropy_and_its_gradient(launch: Any, smoothing: float, cap: float | None) -> None:
    rows, classes = 5, 83
    x = normal(rows, classes) * 4
    target = RNG.integers(0, classes, rows)
    target[2] = -100
    found, loss = x.copy(), poisoned(rows)
    options = {"smoothing": smoothing, "HAS_CAP": cap is not None, "cap": cap, "BLOCK": 32}
    launch(cross_entropy, (rows,), found, target, loss, classes, classes, -100, **options)
    x64 = x.astype(float)
    z = x64 if cap is None else cap * np.tanh(x64 / cap)
    logp = z - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)) - z.max(1, keepdims=True)
    q = np.full((rows, classes), smoothing / classes)
    q[np.arange(rows), target % classes] += 1 - smoothing
    keep = target != -100
    np.testing.assert_allclose(loss, np.where(keep, -(q * logp).sum(1), 0), rtol=1e-4, atol=1e-5)
    gradient = (np.exp(logp) - q) * (1 if cap is None else 1 - np.tanh(x64 / cap) ** 2)
    np.testing.assert_allclose(found, gradient * keep[:, None], rtol=1e-4, atol=1e-5)


# -- dropout ------------------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def dropout(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    base = tl.program_id(0) * BLOCK * 4 + tl.arange(0, BLOCK)
    draws = tl.rand4x(seed, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    for i in tl.static_range(4):
        at = base + i * BLOCK
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, tl.where(draws[i] > p, x / (1 - p), 0.0), mask=at < n)


def test_dropout_repeats_by_its_seed(launch: Any) -> None:
    n, p = 5003, 0.3
    x = np.abs(normal(n)) + 1
    first, again, other = poisoned(n), poisoned(n), poisoned(n)
    launch(dropout, (5,), x, first, n, p, 123, BLOCK=256)
    launch(dropout, (5,), x, again, n, p, 123, BLOCK=256)
    launch(dropout, (5,), x, other, n, p, 2**40 + 123, BLOCK=256)
    kept = first != 0
    np.testing.assert_allclose(first[kept], x[kept] / (1 - np.float32(p)), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 0.03
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


# -- quantisation of rows -----------------------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("name", "largest", "bits"), [("float8_e4m3fn", 448.0, 3), ("float8_e5m2", 57344.0, 2), ("int8", 127.0, 0)])
def test_rows_are_quantised(launch: Any, name: str, largest: float, bits: int) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    rows, columns = 4, 45
    x = normal(rows, columns) * np.logspace(-3, 3, rows, dtype=np.float32)[:, None]
    x[1] = 0
    q, scale = np.full((rows, columns), 3, np.int8).view(dtype), poisoned(rows)
    launch(quantise, (rows,), x, q, scale, columns, LARGEST=largest, BLOCK=64, exact=True)
    exact = np.maximum(np.abs(x.astype(float)).max(1), 1e-10) / largest
    np.testing.assert_allclose(scale, exact, rtol=1e-6)
    found = q.astype(np.float32) * scale[:, None]
    step = np.abs(x) * 2.0 ** -(bits + 1) + scale[:, None] * 2.0**-8 if bits else scale[:, None] * 0.501
    assert (np.abs(found - x) <= step).all()
    np.testing.assert_array_equal(q.view(np.int8), (np.rint(x / scale[:, None]) if not bits else x / scale[:, None]).astype(dtype).view(np.int8))


# -- sorting and choosing -----------------------------------------------------------------------------------------------------------------------------


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
def bitonic_rows(x_ptr, y_ptr, columns, DESCENDING: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * columns + tl.arange(0, BLOCK)[None, :]
    mask = tl.arange(0, BLOCK)[None, :] < columns
    filler = float("-inf") if DESCENDING else float("inf")
    x = tl.load(x_ptr + at, mask=mask & (at >= 0), other=filler)
    tl.store(y_ptr + at, tl.sort(x, descending=DESCENDING), mask=mask)


def test_the_best_of_each_row(launch: Any) -> None:
    rows, columns, k = 3, 100, 8
    x = np.round(normal(rows, columns), 1)
    values, places = poisoned(rows, k), poisoned(rows, k, dtype=np.int32)
    launch(top_k, (rows,), x, values, places, columns, K=k, BLOCK=128)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted(launch: Any, descending: bool) -> None:
    x = normal(4, 53)
    y = poisoned(4, 53)
    launch(bitonic_rows, (1,), x, y, 53, DESCENDING=descending, ROWS=4, BLOCK=64)
    np.testing.assert_array_equal(y, -np.sort(-x, axis=1) if descending else np.sort(x, axis=1))


# -- selective scan -----------------------------------------------------------------------------------------------------------------------------------


@tw.jit
def first_order(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@tw.jit
def selective_scan(x_ptr, delta_ptr, a_ptr, b_ptr, c_ptr, y_ptr, length, channels, REVERSE: tl.constexpr, STATES: tl.constexpr, CHUNK: tl.constexpr):
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
        decay = tl.exp(delta[:, None] * a[None, :])
        drive = (delta * x)[:, None] * b
        decays, states = tl.associative_scan((decay, drive), 0, first_order, reverse=REVERSE)
        states += decays * carried
        tl.store(y_ptr + at * channels + channel, tl.sum(states * c, axis=1), mask=mask)
        last = 0 if REVERSE else CHUNK - 1
        carried = tl.sum(tl.where((tl.arange(0, CHUNK) == last)[:, None], states, 0.0), axis=0)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_selective_scan_in_chunks(launch: Any, reverse: bool) -> None:
    length, channels, states = 21, 3, 4
    x, delta = normal(length, channels), np.abs(normal(length, channels))
    a, b, c, y = -np.abs(normal(channels, states)), normal(length, states), normal(length, states), poisoned(length, channels)
    launch(selective_scan, (channels,), x, delta, a, b, c, y, length, channels, REVERSE=reverse, STATES=states, CHUNK=8)
    state, exact = np.zeros((channels, states)), np.empty((length, channels))
    for t in reversed(range(length)) if reverse else range(length):
        state = np.exp(delta[t, :, None].astype(float) * a) * state + (delta[t] * x[t])[:, None].astype(float) * b[t]
        exact[t] = state @ c[t]
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)
