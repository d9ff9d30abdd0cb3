"""Kernels that the tests of this backend compile, and run where there is a GPU."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(z + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@tw.jit
def copy(x, z, BLOCK: tl.constexpr, CACHE: tl.constexpr, EVICT: tl.constexpr, STORE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + offsets, tl.load(x + offsets, cache_modifier=CACHE, eviction_policy=EVICT), cache_modifier=STORE, eviction_policy=EVICT)


@tw.jit
def volatile_copy(x, z):
    tl.store(z, tl.load(x, volatile=True))


@tw.jit
def masked_with_other(x, z, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(z + offsets, tl.load(x + offsets, mask=offsets < n, other=7.0))


@tw.jit
def left_out(x, z, n, BLOCK: tl.constexpr, SEEN: tl.constexpr):
    """The lanes that the mask leaves out are zero, and stored if they are to be ``SEEN``."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    x_block = tl.load(x + offsets, mask=inside)
    if SEEN:
        tl.store(z + offsets, x_block)
    else:
        tl.store(z + offsets, x_block, mask=inside)


@tw.jit
def softmax(x, z, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * stride + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(z + row * stride + offsets, (values / tl.sum(values, axis=0)).to(z.dtype.element_ty), mask=mask)


@tw.jit
def layer_norm(x, w, b, z, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    scaled = centred * tl.rsqrt(variance + eps)
    tl.store(z + row * columns + offsets, scaled * tl.load(w + offsets, mask=mask) + tl.load(b + offsets, mask=mask), mask=mask)


@tw.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PRECISION: tl.constexpr = "ieee"):
    program, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = program // (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    pm, pn = group * GROUP + (program % (GROUP * columns)) % height, (program % (GROUP * columns)) // height
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_pointers = a + rm[:, None] * K + rk[None, :]
    b_pointers = b + rk[:, None] * N + rn[None, :]
    accumulator = tl.zeros((BM, BN), c.dtype.element_ty if c.dtype.element_ty == tl.int32 else tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_pointers, mask=(rm[:, None] < M) & (rk[None, :] < K - k * BK), other=0.0)
        right = tl.load(b_pointers, mask=(rk[:, None] < K - k * BK) & (rn[None, :] < N), other=0.0)
        accumulator = tl.dot(left, right, accumulator, input_precision=PRECISION)
        a_pointers += BK
        b_pointers += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], accumulator.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@tw.jit
def attention(q, k, v, out, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1)
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    base = head * n * D
    queries = tl.load(q + base + rows[:, None] * D + lanes[None, :], mask=rows[:, None] < n, other=0.0)
    greatest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    accumulator = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + base + columns[None, :] * D + lanes[:, None], mask=columns[None, :] < n, other=0.0)
        scores = tl.where(columns[None, :] < n, tl.dot(queries, keys) * (scale * 1.44269504), -float("inf"))
        new = tl.maximum(greatest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(greatest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + base + columns[:, None] * D + lanes[None, :], mask=columns[:, None] < n, other=0.0)
        accumulator = tl.dot(weights.to(values.dtype), values, accumulator * shrink[:, None])
        greatest = new
    tl.store(out + base + rows[:, None] * D + lanes[None, :], (accumulator / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < n)


@tw.jit
def dropout(x, z, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = tl.rand(seed, offsets) > p
    tl.store(z + offsets, tl.where(keep, tl.load(x + offsets, mask=mask) / (1 - p), 0.0), mask=mask)


@tw.jit
def assembly(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    shifted = tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [values], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(z + offsets, shifted)


@tw.jit
def packed_assembly(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    inverted = tl.inline_asm_elementwise("not.b32 $0, $1;", "=r,r", [values], dtype=tl.int8, is_pure=True, pack=4)
    tl.store(z + offsets, inverted)


@tw.jit
def inside(x, z, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(z + offsets, tl.where(mask, tl.load(x + offsets, mask=mask) - 1, 7.0))


@tw.jit
def negated(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    left, right = tl.load(x + offsets), tl.load(x + BLOCK + offsets)
    tl.store(z + offsets, ((-left > right) & (tl.abs(right) > left)).to(tl.int32))


@tw.jit
def says(x, n):
    i = tl.program_id(0)
    value = tl.load(x + i)
    tl.device_print("value", value)
    tl.device_assert(i < n, "too many programs")


@tw.jit
def sums(x, z, n, BLOCK: tl.constexpr, ORDER: tl.constexpr, SCOPE: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(z + offsets % 4, tl.load(x + offsets), mask=offsets < n, sem=ORDER, scope=SCOPE)


@tw.jit
def extremes(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_max(z + offsets % 2, tl.load(x + offsets))
    tl.atomic_min(z + 2 + offsets % 2, tl.load(x + offsets))


@tw.jit
def handshake(flag, data, z, BLOCK: tl.constexpr, SCOPE: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(data + offsets, offsets)
        tl.atomic_store(flag, 1, scope=SCOPE)
        tl.atomic_store(z + offsets, 5, mask=offsets > 3, sem="relaxed", scope=SCOPE)
    elif tl.atomic_poll(flag, 1, scope=SCOPE, timeout_ns=1_000_000_000):
        tl.store(z + offsets, tl.load(data + offsets) + tl.atomic_load(z + offsets, offsets > 1, sem="relaxed"))


@tw.jit
def function(x, y, z, NAME: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    if NAME == "exp":
        result = tl.exp(values)
    elif NAME == "exp2":
        result = tl.exp2(values)
    elif NAME == "rsqrt":
        result = tl.rsqrt(values)
    elif NAME == "quotient":
        result = values / tl.load(y + offsets)
    elif NAME == "rounded quotient":
        result = tl.div_rn(values, tl.load(y + offsets))
    else:
        result = tl.sqrt_rn(values)
    tl.store(z + offsets, result)
