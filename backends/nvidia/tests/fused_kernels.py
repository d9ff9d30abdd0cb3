"""Kernels that load by descriptors one tile after another, into the same shared memory."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def gated(a, b, c, BM: tl.constexpr, BN: tl.constexpr):
    """c = a * sigmoid(a) * b."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = a.load([row, column]).to(tl.float32)
    y = b.load([row, column]).to(tl.float32)
    c.store([row, column], (x * tl.sigmoid(x) * y).to(c.dtype))


@tw.jit
def fused(p, q, a, b, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = (p @ q) * a + b."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, depth, BK):
        total = tl.dot(p.load([row, k]), q.load([k, column]), total)
    total *= a.load([row, column]).to(tl.float32)
    total += b.load([row, column]).to(tl.float32)
    c.store([row, column], total.to(c.dtype))


@tw.jit
def branching(a, b, c, BM: tl.constexpr, BN: tl.constexpr):
    """c = a + b in every other block of rows, else b."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.zeros((BM, BN), dtype=tl.float32)
    if tl.program_id(0) % 2 == 0:
        x = a.load([row, column]).to(tl.float32)
    c.store([row, column], (x + b.load([row, column]).to(tl.float32)).to(c.dtype))


@tw.jit
def summed(a, b, c, width, BM: tl.constexpr, BN: tl.constexpr):
    """The sum of the blocks of columns of a * b, by a loop without a matmul."""
    row = tl.program_id(0) * BM
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for column in range(0, width, BN):
        x = a.load([row, column]).to(tl.float32)
        total += x * b.load([row, column]).to(tl.float32)
    c.store([row, 0], total.to(c.dtype))


@tw.jit
def dequantized(p, q, a, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = p @ q + a, where threads convert q, of int8, from the slots of the loop."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, depth, BK):
        total = tl.dot(p.load([row, k]), q.load([k, column]).to(tl.bfloat16), total)
    c.store([row, column], (total + a.load([row, column]).to(tl.float32)).to(c.dtype))


@tw.jit
def exact(p, q, a, b, c, depth, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = (p @ q) * a + b in IEEE f32, where threads multiply from the slots of the loop."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, depth, BK):
        total = tl.dot(p.load([row, k]), q.load([k, column]), total, input_precision="ieee")
    total *= a.load([row, column])
    total += b.load([row, column])
    c.store([row, column], total)
