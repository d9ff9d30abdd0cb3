"""Kernels whose source is written and compiled again: most of the language in small pieces."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl

#: parameter -> its type; other parameters are constants
TYPES = {
    "x": "*fp32",
    "y": "*fp32",
    "out": "*fp32",
    "h": "*fp16",
    "b": "*bf16",
    "i": "*i32",
    "w": "*i64",
    "u": "*u32",
    "s": "*i8",
    "flags": "*i1",
    "d": "tensordesc<fp16[16,16]>",
    "n": "i32",
    "m": "i64",
    "scale": "fp32",
}


@tw.jit
def matmul(h, n):
    pid = tl.program_id(0)
    rows = pid * 16 + tl.arange(0, 16)
    ks = tl.arange(0, 16)
    acc = tl.zeros([16, 16], tl.float32)
    for k in tl.range(0, n, 16, num_stages=3):
        inside = (rows[:, None] < n) & (k + ks[None, :] < n)
        x = tl.load(h + rows[:, None] * n + (k + ks)[None, :], mask=inside, other=0.0)
        acc = tl.dot(x, tl.trans(x), acc)
    acc = tl.where(acc > 0, acc, acc * 0.0099945068359375)
    tl.store(h + rows[:, None] * n + ks[None, :], acc)


@tw.jit
def ordered(x, out):
    k = tl.arange(0, 16)
    v = tl.load(x + k)
    total = tl.sum(v)
    tl.store(out + k, v * tl.max(v))
    tl.store(out, total + tl.min(v))


@tw.jit
def collatz(i):
    count = 0
    value = tl.load(i)
    while value > 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = value * 3 + 1
        count += 1
    tl.store(i, count)


@tw.jit
def _moments(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    return (
        mean_a + delta * count_b / count,
        square_a + square_b + delta * delta * count_a * count_b / count,
        count,
    )


@tw.jit
def welford(x, out, n):
    offsets = tl.arange(0, 32)
    for start in range(0, n, 32):
        values = tl.load(x + start + offsets)
        zeros, ones = tl.zeros_like(values), tl.full([32], 1.0, tl.float32)
        mean, square, _count = tl.reduce((values, zeros, ones), 0, _moments)
        tl.store(out + start, mean)
        wide = tl.reshape(values, [4, 8])
        mean2, square2, _ = tl.reduce((wide, wide, wide), 1, _moments)
        tl.store(out + start + tl.arange(0, 4), mean2 + square2 + square)


@tw.jit
def swaps(x, out, n, scale):
    """Variables that change places, so that no order of plain assignments is right."""
    a, b, c = tl.load(x), tl.load(x + 1), scale
    for step in range(n):
        a, b, c = b, c, a + step
        if a > b:
            a, b = b, a
    tl.store(out, a)
    tl.store(out + 1, b - c)


@tw.jit
def nested(x, out, n, m):
    total = tl.zeros([16], tl.float32)
    count = 0
    for row in range(n):
        best = tl.full([16], -float("inf"), tl.float32)
        for column in range(0, m, 2):
            value = tl.load(x + row * m + column + tl.arange(0, 16))
            best = tl.maximum(best, value)
            if column > row:
                total += best
                count += 1
            elif column == 4:
                count = row
        total += best
    tl.store(out + tl.arange(0, 16), total + count)


@tw.jit
def early_exits(i, n):
    found = -1
    for k in range(n):
        value = tl.load(i + k)
        if value < 0:
            continue
        if value == 7:
            found = k
            break
    tl.store(i, found)


@tw.jit
def spin(i, n):
    while tl.atomic_cas(i, 0, 1, sem="acquire") == 1:
        pass
    tl.atomic_add(i + 1, n, sem="relaxed", scope="sys")
    tl.debug_barrier()
    tl.atomic_xchg(i, 0)


@tw.jit
def types(x, h, b, i, w, u, s, flags):
    k = tl.arange(0, 16)
    v, half, brain = tl.load(x + k), tl.load(h + k), tl.load(b + k)
    small, word, wide = tl.load(s + k), tl.load(u + k), tl.load(w + k)
    truth = tl.load(flags + k)
    tl.store(x + k, half * v + brain)
    tl.store(h + k, v * 0.1)
    tl.store(b + k, tl.maximum(brain, half).to(tl.bfloat16))
    tl.store(s + k, (small > 300 - word.to(tl.int32)).to(tl.int8) + (small << 2))
    tl.store(w + k, wide + small * 3 - (word >> 5))
    tl.store(u + k, tl.umulhi(word, word ^ 0xFFFFFFFF) + (v.to(tl.uint32, bitcast=True) % 7))
    tl.store(flags + k, ~truth & (half < 0.5) | (wide >= 5000000000))
    tl.store(i + k, tl.where(truth, -1, v.to(tl.int32)) // 3)


@tw.jit
def mathematics(x, out, scale):
    k = tl.arange(0, 16)
    v = tl.load(x + k)
    v = tl.exp(v) + tl.exp2(v) * tl.log(v) - tl.log2(tl.sin(v)) / tl.cos(v)
    v += tl.sqrt(v) + tl.sqrt_rn(v) + tl.rsqrt(tl.abs(v)) + tl.erf(-v)
    v += tl.floor(v) + tl.ceil(v) + tl.fma(v, 2.0, scale) + tl.fdiv(v, scale) + tl.div_rn(v, v)
    v += tl.extra.libdevice.tanh(v) + tl.extra.libdevice.rint(v) + tl.extra.libdevice.trunc(v)
    v = tl.extra.libdevice.copysign(v, scale) + tl.extra.libdevice.ldexp(v, 3)
    v = tl.sigmoid(v) + tl.softmax(v) + tl.minimum(v, scale) + tl.clamp(v, -1.0, 1.0)
    tl.store(out + k, v, mask=k < 12)


@tw.jit
def shapes(x, i, out):
    k = tl.arange(0, 16)
    v = tl.load(x + k)
    square = tl.reshape(v, [4, 4])
    a, b = tl.split(tl.reshape(tl.permute(square, (1, 0)), [4, 2, 2]))
    joined = tl.join(a, b)
    both = tl.cat(v, tl.gather(v, tl.load(i + k) & 15, 0))
    tl.store(out + tl.arange(0, 32), tl.flip(both))
    tl.store(out + k, tl.reshape(joined, [16]) + tl.histogram(tl.load(i + k), 16))
    tl.store(out, tl.sum(square) + tl.sum(square, axis=1, keep_dims=True).to(tl.float16).max())


@tw.jit
def orders(x, i, out):
    k = tl.arange(0, 16)
    v = tl.load(x + k)
    tl.store(
        out + k, tl.sort(v, descending=True) + tl.cumsum(v, 0) * tl.cumprod(v, 0, reverse=True)
    )
    tl.store(out + tl.arange(0, 4), tl.topk(v, 4))
    tl.store(i, tl.argmax(v, 0) + tl.min(tl.load(i + k)) + tl.xor_sum(tl.load(i + k), 0))
    tl.store(out, tl.sum(v, order="sequential"))


@tw.jit
def random(i, out, n):
    k = tl.arange(0, 16)
    tl.store(out + k, tl.rand(n, k) + tl.randn(n, k))
    tl.store(i + k, tl.randint(n, k))


@tw.jit
def descriptors(d, h, n):
    tile = d.load([n, 16])
    inner = tl.make_tensor_descriptor(h, [n, 64], [64, 1], [16, 16])
    inner.store([n, n], tile + inner.load([0, n]))
    inner.atomic_add([n, 0], tile)
    tl.store(h, d.shape[0] + d.strides[0])


@tw.jit(noinline=True)
def _outlined(p, n):
    return tl.load(p + n) * 2, n + 1


@tw.jit
def _each(value, other):
    result = other
    if value > 0:
        result = value * 2
    return result


@tw.jit
def functions(x, out, n):
    k = tl.arange(0, 16)
    a, following = _outlined(x, n)
    v = tl.map_elementwise(_each, tl.load(x + k), a)
    tl.store(out + k + following, v)


@tw.jit
def hints(x, out, i, n):
    tl.assume(n > 0)
    start = tl.multiple_of(n * 16, 16)
    k = tl.max_contiguous(start + tl.arange(0, 16), 16)
    v = tl.load(x + k, cache_modifier=".cg", eviction_policy="evict_last", volatile=True)
    tl.device_print("v", v)
    v = tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [v], tl.float32, is_pure=True, pack=1)
    tl.store(out + k, v, cache_modifier=".cs")


#: name -> (kernel, its constants)
KERNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    kernel.__name__: (kernel, {})
    for kernel in (
        matmul,
        ordered,
        collatz,
        welford,
        swaps,
        nested,
        early_exits,
        spin,
        types,
        mathematics,
        shapes,
        orders,
        random,
        descriptors,
        functions,
        hints,
    )
}
