"""Kernels that each use one part of the language, on f64: ``r`` is computed of ``v`` and ``w``."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.language.standard import sorting

#: Elements of a row, rows of an array, and iterations of loops.
COLUMNS, ROWS, N = 16, 4, 4


@tw.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@tw.jit
def greater(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@tw.jit
def log_add(a, b):
    m = tl.maximum(a, b)
    return m + tl.log(tl.exp(a - m) + tl.exp(b - m))


@tw.jit
def welford(mean1, m1, count1, mean2, m2, count2):
    delta, count = mean2 - mean1, count1 + count2
    return (
        mean1 + delta * count2 / count,
        m1 + m2 + delta * delta * count1 * count2 / count,
        count,
    )


@tw.jit
def pieces(v, w):
    if v > w:
        return v * w
    else:
        return tl.sin(v) - w


@tw.jit
def part(x, y, out, n, B: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.program_id(0)
    v = tl.load(x + row * B + at)
    w = tl.load(y + row * B + at)
    if KIND == "sort":
        r = tl.sort(v) * w
    elif KIND == "sort of rows, descending":
        r = tl.reshape(tl.sort(tl.reshape(v, (4, 4)), descending=True), (B,)) * w
    elif KIND == "top k":
        r = tl.sum(tl.topk(v, 4) * tl.topk(w, 4), axis=0) * w
    elif KIND == "max with its index":
        m, i = tl.max(v, axis=0, return_indices=True)
        r = m * w + i
    elif KIND == "argmax alone":
        r = tl.argmax(v, axis=0) * w * v
    elif KIND == "reduction of a pair with an index that is computed":
        m, i = tl.reduce((v * w, at + n), 0, greater)
        r = m * w + i
    elif KIND == "logsumexp by one combination":
        r = tl.reduce(v, 0, log_add) * w
    elif KIND == "reduction of three":
        mean, m2, _ = tl.reduce((v, v * 0.0, v * 0.0 + 1.0), 0, welford)
        r = (v - mean) / tl.sqrt(m2 / B + 0.1) * w
    elif KIND == "gather":
        r = tl.gather(v, (at * 7 + 3) % B, axis=0) * w
    elif KIND == "gather of loaded order":
        r = tl.gather(v, tl.argmax(w, axis=0) + at * 0, axis=0) * w
    elif KIND == "flip":
        r = tl.flip(v, 0) * w
    elif KIND == "softmax":
        r = tl.softmax(v) * w
    elif KIND == "cumprod":
        r = tl.cumprod(v, axis=0) * w
    elif KIND == "cumsum, reversed":
        r = tl.cumsum(v * w, axis=0, reverse=True) * w
    elif KIND == "scan of pairs":
        a, b = tl.associative_scan((tl.sigmoid(v), w), 0, affine)
        r = a + b
    elif KIND == "interleave":
        r = tl.sum(tl.reshape(tl.interleave(v, w) * tl.interleave(w, w * v), (B, 2)), axis=1)
    elif KIND == "cat":
        r = tl.sum(tl.cat(v, w, dim=0) * tl.cat(w, v * v, dim=0), axis=0) * v
    elif KIND == "random mask":
        r = tl.where(tl.rand(17, row * B + at) > 0.5, v * w * 2, 0.0)
    elif KIND == "clamp":
        r = tl.clamp(v * w, -0.5, 0.5)
    elif KIND == "floor":
        r = tl.floor(v) * w
    elif KIND == "histogram":
        r = tl.histogram((at % 4).to(tl.int32), B) * v * w
    elif KIND == "moments":
        m = tl.sum(v, axis=0) / B
        r = (v - m) / tl.sqrt(tl.sum((v - m) * (v - m), axis=0) / B) * w
    elif KIND == "nested loops":
        r = v * 0.0
        for i in range(n):
            part = v
            for _j in range(i):
                part = part * w
            r += part
    elif KIND == "nested recurrences":
        r = v
        for i in range(n):
            for j in range(2):
                r = tl.sin(r * w) + i + j
    elif KIND == "loop within a branch":
        r = v
        if row > 1:
            for _i in range(n):
                r = r * w
    elif KIND == "branch within a loop":
        r = v
        for i in range(n):
            if i > 1:
                r = tl.sin(r * w)
            else:
                r = r + w
    elif KIND == "loop of no iterations":
        r = v * w
        for _i in range(n, n):
            r = tl.sin(r)
    elif KIND == "loop with a step, downward address":
        r = v
        pointer = y + row * B + at
        for _i in range(1, 2 * n, 3):
            r = tl.cos(r) * tl.load(pointer)
            pointer -= 0
    elif KIND == "loop that carries a truth":
        r = v
        even = row > 1
        for _i in range(n):
            r = tl.where(even, tl.sin(r * w), r + w)
            even = not even
    elif KIND == "while of integers":
        i = 0
        while i * i < n:
            i += 1
        r = v * w * i
    elif KIND == "atomic add":
        r = v
        tl.atomic_add(out + row * B + at, v * w)
    elif KIND == "map":
        r = tl.map_elementwise(pieces, v, w)
    elif KIND == "store twice":
        tl.store(out + row * B + at, v * v * w)
        r = v * w
    elif KIND == "store in each iteration":
        r = v
        for _i in range(n):
            r = r + w * v
            tl.store(out + row * B + at, r)
    elif KIND == "store under two masks":
        tl.store(out + row * B + at, v * v, mask=at < 9)
        tl.store(out + row * B + at, v * w, mask=at >= 5)
    elif KIND == "other of a load":
        r = tl.load(y + row * B + at, mask=at < 7, other=tl.sum(v, axis=0)) * w
    if KIND != "atomic add" and KIND != "store under two masks":
        tl.store(out + row * B + at, r)


@tw.jit
def refused(x, y, out, n, B: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, B)
    row = tl.program_id(0)
    here = row * B + at
    v = tl.load(x + here)
    w = tl.load(y + here)
    if KIND == "bits":
        r = (v.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF).to(tl.float64, bitcast=True) * w
    elif KIND == "bits as numbers":
        r = v.to(tl.int64, bitcast=True).to(tl.float64) * w
    elif KIND == "keys that a loop changes":
        keys = sorting._keys(v)
        r = v * 0.0
        for _i in range(n):
            r += sorting._numbers(keys, tl.float64) * w
            keys = keys ^ 1
    elif KIND == "bits in a loop":
        bits = v.to(tl.int64, bitcast=True)
        for _i in range(n):
            bits = bits ^ 1
        r = bits.to(tl.float64, bitcast=True) * w
    elif KIND == "while":
        r = v
        i = 0
        while i < n:
            r = r * w
            i += 1
    elif KIND == "atomic max":
        r = v
        tl.atomic_max(out + here, v * w)
    elif KIND == "in place":
        r = v * w
        tl.store(x + here, r)
    elif KIND == "read back":
        tl.store(out + here, v * w)
        tl.debug_barrier()
        r = tl.load(out + row * B + (at + 1) % B)
    elif KIND == "old value":
        r = tl.atomic_add(out + here, v) * w
    elif KIND == "assembly":
        r = tl.inline_asm_elementwise("nop", "=r,r", [v], dtype=tl.float64, is_pure=True, pack=1)
    elif KIND == "branch in a combination":
        r = tl.reduce(v, 0, chosen) * w
    tl.store(out + here, r)


@tw.jit
def chosen(a, b):
    if a > 0:
        return a + b
    else:
        return b


def kinds(kernel: tw.JITFunction) -> list[str]:
    """The parts of the language in a kernel."""
    lines = (line for line in kernel.src.splitlines() if 'if KIND == "' in line)
    return [line.split('"')[1] for line in lines]
