"""Kernels that real Triton compiles for AMD GPUs: this file is imported where ``triton`` is Triton,
see ``triton_compile.py``."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    normed = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, normed.to(tl.float16), mask=inside)


@triton.jit
def matmul(
    a,
    b,
    out,
    K,
    A: tl.constexpr,
    SUM: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile of a matmul, pipelined along K."""
    rows, columns, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    left, right = a + rows[:, None] * K + ks[None, :], b + ks[:, None] * N + columns[None, :]
    sums = tl.zeros((M, N), SUM)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(tl.load(left + k), tl.load(right + k * N), sums, out_dtype=SUM)
    tl.store(out + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def matmul_epilogue(
    a, b, bias, residual, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows, columns, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    sums = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BLOCK_K):
        left = tl.load(a + rows[:, None] * K + k + ks[None, :])
        # the right operand lies across K
        sums += tl.dot(left, tl.load(b + columns[None, :] * K + k + ks[:, None]))
    sums += tl.load(bias + columns)[None, :] + tl.load(
        residual + rows[:, None] * N + columns[None, :]
    )
    tl.store(out + rows[:, None] * N + columns[None, :], tl.maximum(sums, 0.0).to(tl.float16))


@triton.jit
def matmul_split_k(
    a, b, out, K, PART: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr
):
    rows, columns, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK_K)
    start = tl.program_id(0) * PART
    sums = tl.zeros((M, N), tl.float32)
    for k in range(0, PART, BLOCK_K):
        sums += tl.dot(
            tl.load(a + rows[:, None] * K + start + k + ks[None, :]),
            tl.load(b + (start + k + ks)[:, None] * N + columns[None, :]),
        )
    tl.atomic_add(out + rows[:, None] * N + columns[None, :], sums)


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    scale,
    length,
    CAUSAL: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    HEAD: tl.constexpr,
):
    rows, inner, ds = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, HEAD)
    queries = tl.load(q + rows[:, None] * HEAD + ds[None, :])
    top, total = tl.full((M,), -1.0e30, tl.float32), tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, HEAD), tl.float32)
    for start in range(0, length, N):
        keys = tl.load(k + (start + inner)[None, :] * HEAD + ds[:, None])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= start + inner[None, :], scores, -1.0e30)
        new = tl.maximum(top, tl.max(scores, axis=1))
        powers, less = tl.exp2(scores - new[:, None]), tl.exp2(top - new)
        total = total * less + tl.sum(powers, axis=1)
        values = tl.load(v + (start + inner)[:, None] * HEAD + ds[None, :])
        sums = tl.dot(powers.to(tl.float16), values, sums * less[:, None])
        top = new
    tl.store(out + rows[:, None] * HEAD + ds[None, :], sums / total[:, None])


@triton.jit
def reductions(x, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    values = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows, tl.sum(values, axis=1))
    tl.store(out + M + rows, tl.max(values, axis=1))
    tl.store(out + 2 * M + rows, tl.min(values, axis=1))
    tl.store(out + 3 * M + columns, tl.sum(values, axis=0))
    tl.store(out + 3 * M + N + rows, tl.argmax(values, axis=1).to(tl.float32))
    tl.store(out + 4 * M + N + rows, tl.argmin(values, axis=1).to(tl.float32))
    tl.store(
        out + 5 * M + N,
        tl.xor_sum(values.to(tl.int32, bitcast=True).reshape(M * N), axis=0).to(
            tl.float32, bitcast=True
        ),
    )


@triton.jit
def scans(x, out, other, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    values = tl.load(x + at)
    tl.store(out + at, tl.cumsum(values, axis=1))
    tl.store(other + at, tl.cumsum(values, axis=0, reverse=True))


@triton.jit
def sorts(x, out, other, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    values = tl.load(x + rows * N + tl.arange(0, N)[None, :])
    tl.store(out + rows * N + tl.arange(0, N)[None, :], tl.sort(values))
    tl.store(other + rows * K + tl.arange(0, K)[None, :], tl.topk(values, K))


@triton.jit
def atomics(x, places, out, floats, swapped, N: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    values, place = tl.load(x + at), tl.load(places + at)
    tl.atomic_add(out + place, values)
    tl.atomic_max(out + BINS + place, values)
    tl.atomic_min(out + 2 * BINS + place, values)
    tl.atomic_xor(out + 3 * BINS + place, values, mask=values > 300)
    tl.atomic_add(floats + place, values.to(tl.float32) / 1024)
    tl.atomic_cas(swapped, 0, 1)
    tl.atomic_xchg(swapped + 1, 7)


@triton.jit
def gather(x, places, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(places + at), 0))
    tl.store(out + M * N + at, tl.gather(tl.load(x + at), tl.load(places + at), 1))


@triton.jit
def conversions(x, half, brain, integer, byte, back, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(half + at, values.to(tl.float16))
    tl.store(brain + at, values.to(tl.bfloat16))
    tl.store(integer + at, values.to(tl.int32))
    tl.store(byte + at, values.to(tl.int8))
    tl.store(
        back + at, values.to(tl.float16).to(tl.float64) + values.to(tl.bfloat16).to(tl.float32)
    )


@triton.jit
def fp8_conversions(x, out, half, FP8: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    narrow = tl.load(x + at).to(FP8)
    tl.store(out + at, narrow.to(tl.uint8, bitcast=True))
    tl.store(half + at, narrow.to(tl.float16))


@triton.jit
def transposes(x, out, joined, M: tl.constexpr, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], tl.trans(values))
    even, odd = tl.split(tl.reshape(values, (M, N // 2, 2)))
    tl.store(
        joined + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :],
        tl.reshape(tl.join(odd, even), (M, N)),
    )


@triton.jit
def philox(out, uniform, seed, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, at)
    tl.store(out + 4 * at, a)
    tl.store(out + 4 * at + 1, b)
    tl.store(out + 4 * at + 2, c)
    tl.store(out + 4 * at + 3, d)
    tl.store(uniform + at, tl.rand(seed, at))


@triton.jit
def histogram(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def math_functions(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(out + at, tl.sqrt(tl.abs(values)))
    tl.store(out + N + at, tl.sin(values))
    tl.store(out + 2 * N + at, tl.cos(values))
    tl.store(out + 3 * N + at, tl.log(tl.abs(values) + 1))
    tl.store(out + 4 * N + at, tl.exp(values / 8))
    tl.store(out + 5 * N + at, tl.floor(values) + tl.ceil(values))
    tl.store(out + 6 * N + at, tl.fma(values, values, 1.0))
    tl.store(out + 7 * N + at, 1.0 / (values + 100))
    tl.store(out + 8 * N + at, tl.erf(values / 4))
    tl.store(out + 9 * N + at, tl.sigmoid(values))


@triton.jit
def integers(x, y, out, wide, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a // b)
    tl.store(out + N + at, a % b)
    tl.store(out + 2 * N + at, tl.umulhi(a, b))
    tl.store(out + 3 * N + at, (a << (b & 7)) ^ (a >> (b & 15)))
    tl.store(out + 4 * N + at, tl.where(a > b, a & b, a | b))
    tl.store(wide + at, a.to(tl.int64) * b + (a.to(tl.int64) // 7))


@triton.jit
def doubles(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a * b + 1)
    tl.store(out + N + at, a / b)
    tl.store(out + 2 * N + at, tl.sqrt(tl.abs(a)))
    tl.store(out + 3 * N + at, tl.maximum(a, b))
    tl.store(out + 4 * N, tl.sum(a, axis=0))


@triton.jit
def while_loop(x, out, N: tl.constexpr):
    at = tl.program_id(0)
    value, steps = tl.load(x + at), 0
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out + at, steps)
    lanes = tl.arange(0, N)
    tl.store(out + tl.num_programs(0) + at * N + lanes, lanes * steps)


@triton.jit
def _compose(a, b, c, d):
    return a * c, c * b + d


@triton.jit
def recurrence(decay, x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    _, states = tl.associative_scan((tl.load(decay + at), tl.load(x + at)), 1, _compose)
    tl.store(out + at, states)


@triton.jit
def descriptors(x, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    place = [tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N]
    target.store(place, source.load(place) * 2)
