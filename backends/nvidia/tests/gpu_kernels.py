"""Kernels that the tests of this backend compile, and run where there is a GPU: classic ones of the
benchmarks and the suite, and those that show one thing."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.kernels.matrices import attention_forward as attention_forward
from tilewright_conformance.kernels.portable_kernels import add as add
from tilewright_conformance.kernels.portable_kernels import dropout as dropout
from tilewright_conformance.kernels.portable_kernels import layer_norm as layer_norm
from tilewright_conformance.kernels.portable_kernels import softmax as softmax


@tw.jit
def copy(x, z, BLOCK: tl.constexpr, CACHE: tl.constexpr, EVICT: tl.constexpr, STORE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        z + offsets,
        tl.load(x + offsets, cache_modifier=CACHE, eviction_policy=EVICT),
        cache_modifier=STORE,
        eviction_policy=EVICT,
    )


@tw.jit
def volatile_copy(x, z):
    tl.store(z, tl.load(x, volatile=True))


@tw.jit
def masked_with_other(x, z, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(z + offsets, tl.load(x + offsets, mask=offsets < n, other=7.0))


@tw.jit
def left_out(x, z, n, BLOCK: tl.constexpr, SEEN: tl.constexpr):
    """Masked-off lanes are zero, and are stored if ``SEEN`` is set."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    x_block = tl.load(x + offsets, mask=inside)
    if SEEN:
        tl.store(z + offsets, x_block)
    else:
        tl.store(z + offsets, x_block, mask=inside)


@tw.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    program, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = program // (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    pm, pn = (
        group * GROUP + (program % (GROUP * columns)) % height,
        (program % (GROUP * columns)) // height,
    )
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    a_pointers = a + rm[:, None] * K + rk[None, :]
    b_pointers = b + rk[:, None] * N + rn[None, :]
    accumulator = tl.zeros(
        (BM, BN), c.dtype.element_ty if c.dtype.element_ty == tl.int32 else tl.float32
    )
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_pointers, mask=(rm[:, None] < M) & (rk[None, :] < K - k * BK), other=0.0)
        right = tl.load(b_pointers, mask=(rk[:, None] < K - k * BK) & (rn[None, :] < N), other=0.0)
        accumulator = tl.dot(left, right, accumulator, input_precision=PRECISION)
        a_pointers += BK
        b_pointers += BK * N
    tl.store(
        c + rm[:, None] * N + rn[None, :],
        accumulator.to(c.dtype.element_ty),
        mask=(rm[:, None] < M) & (rn[None, :] < N),
    )


@tw.jit
def assembly(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    shifted = tl.inline_asm_elementwise(
        "shl.b32 $0, $1, 3;", "=r,r", [values], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(z + offsets, shifted)


@tw.jit
def packed_assembly(x, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    inverted = tl.inline_asm_elementwise(
        "not.b32 $0, $1;", "=r,r", [values], dtype=tl.int8, is_pure=True, pack=4
    )
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
        tl.store(
            z + offsets,
            tl.load(data + offsets) + tl.atomic_load(z + offsets, offsets > 1, sem="relaxed"),
        )


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
    elif NAME == "fast quotient":
        result = libdevice.fast_dividef(values, tl.load(y + offsets))
    elif NAME == "rounded quotient":
        result = tl.div_rn(values, tl.load(y + offsets))
    else:
        result = tl.sqrt_rn(values)
    tl.store(z + offsets, result)


@tw.jit
def row_sums(x, z, n, BLOCK: tl.constexpr, ORDER: tl.constexpr, SCOPE: tl.constexpr):
    """Every program adds its row to the same n elements."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(x + tl.program_id(0) * n + offsets, mask=inside)
    tl.atomic_add(z + offsets, value, mask=inside, sem=ORDER, scope=SCOPE)


@tw.jit
def row_sums_with_old(x, z, old, n, BLOCK: tl.constexpr):
    """Every program adds the same row, and keeps what it found."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    found = tl.atomic_add(z + offsets, tl.load(x + offsets, mask=inside), mask=inside)
    tl.store(old + tl.program_id(0) * n + offsets, found, mask=inside)


@tw.jit
def tile_sums(x, z, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    """The sum of each row is added to one element, every STRIDE-th of z."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    value = tl.load(x + (tl.program_id(0) * m + rows[:, None]) * n + columns[None, :], mask=inside)
    tl.atomic_add(z + rows * STRIDE, tl.sum(value, 1), mask=rows < m)


@tw.jit
def split_product(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each program adds the matmul of some columns of a and the matching rows of b."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.program_id(0) * K + tl.arange(0, K)
    x = tl.load(
        a + rows[:, None] * k + depth[None, :],
        mask=(rows[:, None] < m) & (depth[None, :] < k),
        other=0.0,
    )
    y = tl.load(
        b + depth[:, None] * n + columns[None, :],
        mask=(depth[:, None] < k) & (columns[None, :] < n),
        other=0.0,
    )
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.atomic_add(
        c + rows[:, None] * n + columns[None, :],
        tl.dot(x, y).to(c.dtype.element_ty),
        mask=inside,
        sem="relaxed",
    )


@tw.jit
def published_sums(x, z, ready, seen, n, BLOCK: tl.constexpr):
    """The program that comes last reads what all have added: each adds its row, and then itself, by
    a release and an acquire."""
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    tl.atomic_add(
        z + offsets, tl.load(x + tl.program_id(0) * n + offsets, mask=inside), mask=inside
    )
    if tl.atomic_add(ready, 1) == tl.num_programs(0) - 1:
        tl.store(seen + offsets, tl.load(z + offsets, mask=inside), mask=inside)
