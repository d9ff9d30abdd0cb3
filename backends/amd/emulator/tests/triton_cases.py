"""Arguments and expected results, by NumPy, of the kernels in ``triton_sources.py``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
#: The fp8 type that a target has instructions for, else one that it converts to f16.
FP8 = {
    "gfx942": ("fp8e4b8", ml_dtypes.float8_e4m3fnuz),
    "gfx950": ("fp8e4nv", ml_dtypes.float8_e4m3fn),
    "gfx1100": ("fp8e5", ml_dtypes.float8_e5m2), "gfx1201": ("fp8e4nv", ml_dtypes.float8_e4m3fn),
}  # fmt: skip


@dataclass
class Case:
    """One launch: ``signature`` and ``constants`` of the kernel, arguments in its order, and for
    each output (its number) what is expected, and how near."""

    kernel: str
    signature: str
    constants: dict[str, Any]
    arguments: list[Any]
    expected: dict[int, Array]
    grid: tuple[int, int, int] = (1, 1, 1)
    tolerance: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


CASES: dict[str, Callable[[np.random.Generator, str], Case]] = {}


def case(
    function: Callable[[np.random.Generator, str], Case],
) -> Callable[[np.random.Generator, str], Case]:
    CASES[function.__name__] = function
    return function


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


@case
def vector_add(rng: np.random.Generator, arch: str) -> Case:
    x, y = normal(rng, 2, 1000)
    return Case(
        "vector_add",
        "x=*fp32:16, y=*fp32:16, out=*fp32:16, n=i32",
        {"BLOCK": 256},
        [x, y, np.zeros_like(x), 1000],
        {2: x + y},
        (4, 1, 1),
    )


@case
def softmax(rng: np.random.Generator, arch: str) -> Case:
    x = normal(rng, 3, 781)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    return Case(
        "softmax",
        "x=*fp32:16, out=*fp32:16, columns=i32",
        {"BLOCK": 1024},
        [x, np.zeros_like(x), 781],
        {1: expected},
        (3, 1, 1),
        2e-6,
    )


@case
def layer_norm(rng: np.random.Generator, arch: str) -> Case:
    x, weight, bias = normal(rng, 2, 500, dtype=np.float16), normal(rng, 500), normal(rng, 500)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(
        wide.var(1, keepdims=True) + 1e-5
    ) * weight + bias
    signature = "x=*fp16:16, weight=*fp32:16, bias=*fp32:16, out=*fp16:16, columns=i32, eps=fp32"
    return Case(
        "layer_norm",
        signature,
        {"BLOCK": 512},
        [x, weight, bias, np.zeros_like(x), 500, 1e-5],
        {3: expected},
        (2, 1, 1),
        2e-3,
    )


def product(
    rng: np.random.Generator,
    kind: str,
    dtype: Any,
    total: str,
    sums: Any,
    tolerance: float,
    block: int = 32,
    **options: Any,
) -> Case:
    m, n, k = 64, 64, 128
    if np.issubdtype(sums, np.integer):
        a, b = (
            rng.integers(-128, 128, (m, k)).astype(dtype),
            rng.integers(-128, 128, (k, n)).astype(dtype),
        )
        expected = a.astype(np.int64) @ b.astype(np.int64)
    else:
        a, b = normal(rng, m, k, dtype=dtype), normal(rng, k, n, dtype=dtype)
        expected = a.astype(np.float64) @ b.astype(np.float64)
    wide = {"fp32": "tl.float32", "fp16": "tl.float16", "i32": "tl.int32", "fp64": "tl.float64"}[
        total
    ]
    return Case(
        "matmul", f"a=*{kind}:16, b=*{kind}:16, out=*{total}:16, K=i32:16",
        {"A": kind, "SUM": wide, "M": m, "N": n, "BLOCK_K": block},
        [a, b, np.zeros((m, n), sums), k], {2: expected}, tolerance=tolerance, options=options,
    )  # fmt: skip


@case
def matmul_f16(rng: np.random.Generator, arch: str) -> Case:
    return product(rng, "fp16", np.float16, "fp32", np.float32, 1e-5)


@case
def matmul_f16_pipelined(rng: np.random.Generator, arch: str) -> Case:
    return product(rng, "fp16", np.float16, "fp32", np.float32, 1e-5, num_stages=3, num_warps=8)


@case
def matmul_bf16(rng: np.random.Generator, arch: str) -> Case:
    return product(rng, "bf16", ml_dtypes.bfloat16, "fp32", np.float32, 1e-5)


@case
def matmul_f32(rng: np.random.Generator, arch: str) -> Case:
    # where there are instructions for it, Triton takes the ten bits of mantissa of tf32
    return product(rng, "fp32", np.float32, "fp32", np.float32, 2e-3 if arch == "gfx942" else 1e-5)


@case
def matmul_fp8(rng: np.random.Generator, arch: str) -> Case:
    kind, dtype = FP8[arch]
    return product(rng, kind, dtype, "fp32", np.float32, 1e-5, 64)


@case
def matmul_i8(rng: np.random.Generator, arch: str) -> Case:
    return product(rng, "i8", np.int8, "i32", np.int32, 0, 64)


@case
def matmul_epilogue(rng: np.random.Generator, arch: str) -> Case:
    a, b = normal(rng, 32, 64, dtype=np.float16), normal(rng, 64, 64, dtype=np.float16)
    bias, residual = normal(rng, 64), normal(rng, 32, 64)
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64).T + bias + residual, 0)
    signature = "a=*fp16:16, b=*fp16:16, bias=*fp32:16, residual=*fp32:16, out=*fp16:16, K=i32:16"
    arguments = [a, b, bias, residual, np.zeros((32, 64), np.float16), 64]
    return Case(
        "matmul_epilogue",
        signature,
        {"M": 32, "N": 64, "BLOCK_K": 32},
        arguments,
        {4: expected},
        tolerance=2e-3,
    )


@case
def matmul_split_k(rng: np.random.Generator, arch: str) -> Case:
    a, b = normal(rng, 32, 256, dtype=np.float16), normal(rng, 256, 32, dtype=np.float16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    signature, constants = (
        "a=*fp16:16, b=*fp16:16, out=*fp32:16, K=i32:16",
        {"PART": 64, "M": 32, "N": 32, "BLOCK_K": 32},
    )
    return Case(
        "matmul_split_k",
        signature,
        constants,
        [a, b, np.zeros((32, 32), np.float32), 256],
        {2: expected},
        (4, 1, 1),
        1e-5,
    )


def _attention(rng: np.random.Generator, causal: bool) -> Case:
    length, head = 128, 64
    q, k, v = normal(rng, 3, length, head, dtype=np.float16)
    scale = 1 / math.sqrt(head)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True) @ v.astype(np.float64)
    signature = "q=*fp16:16, k=*fp16:16, v=*fp16:16, out=*fp32:16, scale=fp32, length=i32:16"
    constants = {"CAUSAL": causal, "M": 64, "N": 32, "HEAD": head}
    arguments = [q, k, v, np.zeros((length, head), np.float32), scale * math.log2(math.e), length]
    return Case("attention", signature, constants, arguments, {3: expected}, (2, 1, 1), 2e-3)


@case
def attention(rng: np.random.Generator, arch: str) -> Case:
    return _attention(rng, False)


@case
def attention_causal(rng: np.random.Generator, arch: str) -> Case:
    return _attention(rng, True)


@case
def reductions(rng: np.random.Generator, arch: str) -> Case:
    m, n = 16, 128
    x = normal(rng, m, n)
    folded = np.bitwise_xor.reduce(x.view(np.int32).reshape(-1)).view(np.float32)
    expected = np.concatenate(
        [x.sum(1), x.max(1), x.min(1), x.sum(0), x.argmax(1), x.argmin(1), [folded]]
    ).astype(np.float32)
    return Case(
        "reductions",
        "x=*fp32:16, out=*fp32:16",
        {"M": m, "N": n},
        [x, np.zeros_like(expected)],
        {1: expected},
        tolerance=1e-5,
    )


@case
def scans(rng: np.random.Generator, arch: str) -> Case:
    x = normal(rng, 16, 64)
    expected = {1: np.cumsum(x, 1), 2: np.cumsum(x[::-1], 0)[::-1]}
    signature, constants = "x=*fp32:16, out=*fp32:16, other=*fp32:16", {"M": 16, "N": 64}
    return Case(
        "scans",
        signature,
        constants,
        [x, np.zeros_like(x), np.zeros_like(x)],
        expected,
        tolerance=1e-5,
    )


@case
def sorts(rng: np.random.Generator, arch: str) -> Case:
    x = rng.permutation(256).astype(np.float32).reshape(4, 64)
    expected = {1: np.sort(x, 1), 2: -np.sort(-x, 1)[:, :8]}
    signature, constants = "x=*fp32:16, out=*fp32:16, other=*fp32:16", {"M": 4, "N": 64, "K": 8}
    return Case(
        "sorts", signature, constants, [x, np.zeros_like(x), np.zeros((4, 8), np.float32)], expected
    )


@case
def atomics(rng: np.random.Generator, arch: str) -> Case:
    # no negative numbers: Triton 3.6 combines those of a wave for one address by the unsigned
    # maximum, on gfx942 and gfx950
    x, places = (
        rng.integers(0, 1000, 512).astype(np.int32),
        rng.integers(0, 16, 512).astype(np.int32),
    )
    start = np.zeros((4, 16), np.int32)
    start[2] = 500
    sums, floats = start.copy(), np.zeros(16, np.float32)
    np.add.at(sums[0], places, x)
    np.maximum.at(sums[1], places, x)
    np.minimum.at(sums[2], places, x)
    np.bitwise_xor.at(sums[3], places[x > 300], x[x > 300])
    np.add.at(floats, places, x.astype(np.float32) / 1024)
    signature = "x=*i32:16, places=*i32:16, out=*i32:16, floats=*fp32:16, swapped=*i32:16"
    arguments = [x, places, start, np.zeros(16, np.float32), np.zeros(2, np.int32)]
    expected = {2: sums, 3: floats, 4: np.array([1, 7], np.int32)}
    return Case("atomics", signature, {"N": 256, "BINS": 16}, arguments, expected, (2, 1, 1), 1e-5)


@case
def gather(rng: np.random.Generator, arch: str) -> Case:
    x, places = normal(rng, 32, 32), rng.integers(0, 32, (32, 32)).astype(np.int32)
    expected = np.stack([np.take_along_axis(x, places, 0), np.take_along_axis(x, places, 1)])
    signature = "x=*fp32:16, places=*i32:16, out=*fp32:16"
    return Case(
        "gather", signature, {"M": 32, "N": 32}, [x, places, np.zeros_like(expected)], {2: expected}
    )


@case
def conversions(rng: np.random.Generator, arch: str) -> Case:
    x = (normal(rng, 256) * 30).clip(-127, 127)
    half, brain = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
    back = half.astype(np.float64) + brain.astype(np.float32).astype(np.float64)
    expected = {
        1: half,
        2: brain,
        3: x.astype(np.int32),
        4: x.astype(np.int32).astype(np.int8),
        5: back,
    }
    signature = (
        "x=*fp32:16, half=*fp16:16, brain=*bf16:16, integer=*i32:16, byte=*i8:16, back=*fp64:16"
    )
    outs = [
        np.zeros(256, dtype)
        for dtype in (np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.float64)
    ]
    return Case("conversions", signature, {"N": 256}, [x, *outs], expected)


@case
def fp8_conversions(rng: np.random.Generator, arch: str) -> Case:
    kind, dtype = FP8[arch]
    x = normal(rng, 256) * 8
    narrow = x.astype(dtype)
    signature = "x=*fp32:16, out=*u8:16, half=*fp16:16"
    constants = {
        "FP8": {"fp8e4b8": "tl.float8e4b8", "fp8e4nv": "tl.float8e4nv", "fp8e5": "tl.float8e5"}[
            kind
        ],
        "N": 256,
    }
    arguments = [x, np.zeros(256, np.uint8), np.zeros(256, np.float16)]
    return Case(
        "fp8_conversions",
        signature,
        constants,
        arguments,
        {1: narrow.view(np.uint8), 2: narrow.astype(np.float16)},
    )


@case
def transposes(rng: np.random.Generator, arch: str) -> Case:
    x = normal(rng, 32, 64, dtype=np.float16)
    swapped = x.reshape(32, 32, 2)[:, :, ::-1].reshape(32, 64)
    signature = "x=*fp16:16, out=*fp16:16, joined=*fp16:16"
    return Case(
        "transposes",
        signature,
        {"M": 32, "N": 64},
        [x, np.zeros((64, 32), np.float16), np.zeros_like(x)],
        {1: x.T, 2: swapped},
    )


def _philox(seed: int, offsets: Array) -> Array:
    counter = [offsets.astype(np.uint64), *[np.zeros_like(offsets, np.uint64)] * 3]
    key, low = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        high = np.uint64(32)
        counter = [
            b >> high ^ counter[1] ^ np.uint64(key[0]),
            b & low,
            a >> high ^ counter[3] ^ np.uint64(key[1]),
            a & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(counter, axis=-1).astype(np.uint32)


@case
def philox(rng: np.random.Generator, arch: str) -> Case:
    numbers = _philox(1234, np.arange(256, dtype=np.uint32))
    first = numbers[:, 0].view(np.int32).astype(np.int64)
    uniform = (np.where(first < 0, -first - 1, first) * 4.6566127342e-10).astype(np.float32)
    signature = "out=*i32:16, uniform=*fp32:16, seed=i32"
    arguments = [np.zeros((256, 4), np.int32), np.zeros(256, np.float32), 1234]
    return Case(
        "philox",
        signature,
        {"N": 128},
        arguments,
        {0: numbers.view(np.int32), 1: uniform},
        (2, 1, 1),
        1e-6,
    )


@case
def histogram(rng: np.random.Generator, arch: str) -> Case:
    x = rng.integers(0, 32, 1024).astype(np.int32)
    expected = np.bincount(x, minlength=32).astype(np.int32)
    return Case(
        "histogram",
        "x=*i32:16, out=*i32:16",
        {"N": 1024, "BINS": 32},
        [x, np.zeros(32, np.int32)],
        {1: expected},
    )


@case
def math_functions(rng: np.random.Generator, arch: str) -> Case:
    x = normal(rng, 128) * 4
    w = x.astype(np.float64)
    roots = [np.sqrt(abs(w)), np.sin(w), np.cos(w), np.log(abs(w) + 1), np.exp(w / 8)]
    expected = np.stack(
        [
            *roots,
            np.floor(w) + np.ceil(w),
            w * w + 1,
            1 / (w + 100),
            np.vectorize(math.erf)(w / 4),
            1 / (1 + np.exp(-w)),
        ]
    )
    return Case(
        "math_functions",
        "x=*fp32:16, out=*fp32:16",
        {"N": 128},
        [x, np.zeros_like(expected, np.float32)],
        {1: expected},
        tolerance=3e-6,
    )


@case
def integers(rng: np.random.Generator, arch: str) -> Case:
    x = rng.integers(0, 1 << 31, 256).astype(np.int32)
    y = rng.integers(1, 1 << 20, 256).astype(np.int32)
    a, b = x.astype(np.int64), y.astype(np.int64)
    shifted = ((a << (b & 7)) & 0xFFFFFFFF).astype(np.uint32).view(np.int32) ^ (x >> (y & 15))
    expected = {
        2: np.stack(
            [x // y, x % y, (a * b >> 32).astype(np.int32), shifted, np.where(x > y, x & y, x | y)]
        ),
        3: a * b + a // 7,
    }
    signature = "x=*u32:16, y=*u32:16, out=*i32:16, wide=*i64:16"
    return Case(
        "integers",
        signature,
        {"N": 256},
        [x, y, np.zeros((5, 256), np.int32), np.zeros(256, np.int64)],
        expected,
    )


@case
def doubles(rng: np.random.Generator, arch: str) -> Case:
    x, y = rng.standard_normal((2, 128))
    expected = np.concatenate([x * y + 1, x / y, np.sqrt(abs(x)), np.maximum(x, y), [x.sum()]])
    return Case(
        "doubles",
        "x=*fp64:16, y=*fp64:16, out=*fp64:16",
        {"N": 128},
        [x, y, np.zeros_like(expected)],
        {2: expected},
        tolerance=1e-13,
    )


@case
def while_loop(rng: np.random.Generator, arch: str) -> Case:
    x = np.array([1, 7, 27, 97], np.int32)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    counts = np.array([steps(int(n)) for n in x], np.int32)
    expected = np.concatenate([counts, (counts[:, None] * np.arange(64)).reshape(-1)]).astype(
        np.int32
    )
    return Case(
        "while_loop",
        "x=*i32:16, out=*i32:16",
        {"N": 64},
        [x, np.zeros_like(expected)],
        {1: expected},
        (4, 1, 1),
    )


@case
def recurrence(rng: np.random.Generator, arch: str) -> Case:
    decay, x = rng.uniform(0.5, 1, (4, 128)).astype(np.float32), normal(rng, 4, 128)
    state, rows = np.zeros(4), []
    for i in range(128):
        state = state * decay[:, i] + x[:, i]
        rows.append(state)
    signature = "decay=*fp32:16, x=*fp32:16, out=*fp32:16"
    return Case(
        "recurrence",
        signature,
        {"M": 4, "N": 128},
        [decay, x, np.zeros_like(x)],
        {2: np.stack(rows, 1)},
        tolerance=1e-5,
    )


@case
def descriptors(rng: np.random.Generator, arch: str) -> Case:
    x = normal(rng, 40, 80)
    signature, constants = (
        "x=*fp32:16, out=*fp32:16, M=i32, N=i32:16",
        {"BLOCK_M": 16, "BLOCK_N": 32},
    )
    return Case(
        "descriptors", signature, constants, [x, np.zeros_like(x), 40, 80], {1: 2 * x}, (3, 3, 1)
    )
