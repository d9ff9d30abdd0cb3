"""Kernels whose loops prefetch in every way that GPUs have, with code around such loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.ir import Module
from tilewright.passes.pipeline import STANDARD, run
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.devices.device_registry import named_target
from tilewright.runtime.launch.jit import JITFunction
from tilewright.tools.inspect import specialize


@tw.jit
def matmul(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A matmul of rows at pointers, with a residual."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    at, inside = out + m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)
    total = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    for start in range(0, K, BK):
        left = tl.load(
            a + m[:, None] * K + (start + k)[None, :], mask=(start + k)[None, :] < K, other=0.0
        )
        right = tl.load(
            b + (start + k)[:, None] * N + n[None, :], mask=(start + k)[:, None] < K, other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(at, total.to(tl.float16), mask=inside)


@tw.jit
def blocks(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A matmul of blocks that descriptors lead to; the second factor is transposed."""
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    result = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([m, k]), right.load([n, k]).T, total)
    result.store([m, n], total.to(tl.float16))


@tw.jit
def gathered(x, index, out, count, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Accumulate rows that an index names, with a scan and a reduction over all programs."""
    rows = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[1, BN])
    row = tl.load(index + tl.arange(0, BM))
    total = tl.zeros((BN, BM), tl.float32)
    for i in range(N):
        total += tl.trans(rows.gather(row + i, 0)) * 2.0
        total += tl.sum(total, 0)[None, :]
    total = tl.cumsum(total, 0)
    tl.atomic_add(count, tl.sum(tl.max(total, 1), 0))
    tl.store(out + tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :], total)


@tw.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention of one head."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :])
    top, size = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        at = (start + tl.arange(0, BN))[:, None] * D + d[None, :]
        scores = tl.dot(q, tl.load(k_ptr + at).T)
        above = tl.maximum(top, tl.max(scores, 1))
        weights, shrink = tl.exp(scores - above[:, None]), tl.exp(top - above)
        size = size * shrink + tl.sum(weights, 1)
        total = tl.dot(weights.to(tl.float16), tl.load(v_ptr + at), total * shrink[:, None])
        top = above
    tl.store(out_ptr + m[:, None] * D + d[None, :], (total / size[:, None]).to(tl.float16))


@tw.jit
def scaled(a, a_scale, b, b_scale, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A block-scaled matmul of e4m3."""
    m, n, k, group = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK), tl.arange(0, BK // 32)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * BN + n[None, :])
        scales = m[:, None] * (K // 32) + (start // 32 + group)[None, :]
        total = tl.dot_scaled(
            left,
            tl.load(a_scale + scales),
            "e4m3",
            right,
            tl.load(b_scale + n[:, None] * (K // 32) + (start // 32 + group)[None, :]),
            "e4m3",
            total,
        )
    tl.store(out + m[:, None] * BN + n[None, :], total)


@tw.jit
def grouped(addresses, out, groups, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Matmuls of matrices whose addresses are in memory, through descriptors made in the loop."""
    for group in range(groups):
        a = tl.load(addresses + 2 * group).to(tl.pointer_type(tl.float16))
        b = tl.load(addresses + 2 * group + 1).to(tl.pointer_type(tl.float16))
        left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
        right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([0, k]), right.load([k, 0]), total)
        at = group * BM * BN + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        tl.store(out + at, total)


@tw.jit
def looked_up(table, index, out, n, BLOCK: tl.constexpr):
    """A loop that gathers elements of a tile by the indices of the last iteration."""
    k = tl.arange(0, BLOCK)
    values, at = tl.load(table + k), tl.load(index + k)
    for _ in range(n):
        values += tl.gather(values, at, 0)
        at = tl.gather(at, at, 0)
    tl.store(out + k, values)


_SIZES = "M=i32:16, N=i32:16, K=i32:16"
#: kernel -> (types of its arguments, constants).
SIGNATURES = {
    matmul: (f"a=*fp16:16, b=*fp16:16, out=*fp16:16, {_SIZES}", {"BM": 64, "BN": 64, "BK": 32}),
    blocks: (f"a=*fp16:16, b=*fp16:16, out=*fp16:16, {_SIZES}", {"BM": 64, "BN": 64, "BK": 64}),
    gathered: (
        "x=*fp32:16, index=*i32:16, out=*fp32:16, count=*fp32:16, M=i32:16, N=i32:16",
        {"BM": 32, "BN": 32},
    ),
    attention: (
        "q_ptr=*fp16:16, k_ptr=*fp16:16, v_ptr=*fp16:16, out_ptr=*fp16:16, n=i32:16",
        {"BM": 64, "BN": 32, "D": 64},
    ),
    scaled: (
        "a=*fp8e4nv:16, a_scale=*u8:16, b=*fp8e4nv:16, b_scale=*u8:16, out=*fp32:16, K=i32:64",
        {"BM": 32, "BN": 32, "BK": 64},
    ),
    grouped: (
        f"addresses=*i64:16, out=*fp32:16, groups=i32, {_SIZES}",
        {"BM": 64, "BN": 64, "BK": 32},
    ),
    looked_up: ("table=*fp32:16, index=*i32:16, out=*fp32:16, n=i32", {"BLOCK": 512}),
}


def tile_ir(
    kernel: JITFunction, backend_name: str, arch: str
) -> tuple[Module, Target, Mapping[str, Any]]:
    """Return one of these kernels after the standard passes, its target, and the launch options."""
    backend = registry().get(backend_name)
    target = named_target(backend, arch)
    specialization = specialize(kernel, *SIGNATURES[kernel], backend)
    module = build_module(specialization, backend, target)
    run(module, STANDARD)
    return module, target, specialization.options
