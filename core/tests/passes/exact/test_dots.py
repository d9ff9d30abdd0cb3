"""Dots: over drawn payloads, of every float, in either way, and with codes in rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.type_text import parse_type
from tilewright.passes.exact.ring import Ring, ring_of
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.testing.exact import exact_mode

DTYPES = {
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "fp64": tl.float64,
    "fp8e4nv": tl.float8e4nv, "fp8e5": tl.float8e5, "fp8e4b15": tl.float8e4b15,
}  # fmt: skip


@tw.jit
def dot(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    places = m[:, None] * N + n[None, :]
    c = tl.load(c_ptr + places)
    tl.store(out_ptr + places, tl.dot(a, b, c, out_dtype=c.dtype))


def ring_named(name: str) -> Ring:
    return ring_of(parse_type(IR_TEXT[name]))


def payloads(rng: np.random.Generator, ring: Ring, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, ring.modulus, shape, dtype=np.uint64).astype(f"uint{ring.bits}")


def balanced(ring: Ring, x: np.ndarray) -> np.ndarray:
    numbers = x.astype(object)
    return np.where(numbers > ring.half, numbers - ring.modulus, numbers)


def launched(a, b, c, names: tuple[str, str], **options) -> np.ndarray:
    operand, result = (DTYPES[name] for name in names)
    out = np.zeros_like(c)
    with exact_mode("reference", **options):
        dot[(1,)](
            *(tw.reinterpret(x, operand) for x in (a, b)),
            *(tw.reinterpret(x, result) for x in (c, out)),
            *a.shape[:1], b.shape[1], a.shape[1],
        )  # fmt: skip
    return out


@pytest.mark.each_value
@pytest.mark.parametrize("way", ["native", "i8"])
@pytest.mark.parametrize("carry", ["float", "int"])
@pytest.mark.parametrize(
    "names",
    [
        ("fp16", "fp32"), ("fp16", "fp16"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64"),
        ("fp8e4nv", "fp32"), ("fp8e5", "fp16"), ("fp8e4b15", "fp32"),
    ],
    ids="-".join,
)  # fmt: skip
def test_dots_are_exact(names, carry, way) -> None:
    rng = np.random.default_rng(7)
    source, target = (ring_named(name) for name in names)
    a, b, c = (
        payloads(rng, source, (16, 64)),
        payloads(rng, source, (64, 32)),
        payloads(rng, target, (16, 32)),
    )
    exact = balanced(source, a) @ balanced(source, b) + balanced(target, c)
    found = launched(a, b, c, names, carry=carry, dot=way)
    assert (found.astype(object) == exact % target.modulus).all()


@pytest.mark.parametrize("way", ["native", "i8"])
def test_a_long_k_is_exact_too(way) -> None:
    rng = np.random.default_rng(8)
    ring = ring_named("fp16")
    a = np.full((16, 2048), ring.half, np.uint16)
    b, c = payloads(rng, ring, (2048, 16)), payloads(rng, ring_named("fp32"), (16, 16))
    exact = balanced(ring, a) @ balanced(ring, b) + balanced(ring_named("fp32"), c)
    found = launched(a, b, c, ("fp16", "fp32"), dot=way)
    assert (found.astype(object) == exact % ring_named("fp32").modulus).all()


def test_codes_stay_in_their_rows_and_columns() -> None:
    rng = np.random.default_rng(9)
    source, target = ring_named("fp16"), ring_named("fp32")
    a, b = payloads(rng, source, (16, 16)), payloads(rng, source, (16, 16))
    c = payloads(rng, target, (16, 16))
    a[2, 5], b[7, 3], c[9, 9], a[4, 4] = source.nan, source.infinity, target.infinity, 0
    found = launched(a, b, c, ("fp16", "fp32"))
    assert (np.delete(found[2], 3) == target.nan).all()
    assert (np.delete(found[:, 3], 2) == target.undefined).all()
    assert found[9, 9] == target.infinity
    rest = np.delete(np.delete(found, 2, 0), 3, 1)
    assert (rest < target.modulus).sum() == rest.size - 1


@tw.jit
def scaled(a_ptr, a_scale_ptr, b_ptr, c_ptr, FORMAT: tl.constexpr, PACK: tl.constexpr):
    m, n, k = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, 64)
    packed = tl.arange(0, 64 // PACK)
    a = tl.load(a_ptr + m[:, None] * (64 // PACK) + packed[None, :])
    scale = tl.load(a_scale_ptr + m[:, None] * 2 + tl.arange(0, 2)[None, :])
    b = tl.load(b_ptr + k[:, None] * 16 + n[None, :])
    c = tl.dot_scaled(a, scale, FORMAT, b, None, "bf16")
    tl.store(c_ptr + m[:, None] * 16 + n[None, :], c)


@pytest.mark.parametrize("way", ["native", "i8"])
def test_block_scaled_dots_are_exact(way) -> None:
    rng = np.random.default_rng(10)
    wide, narrow = ring_named("fp32"), ring_named("bf16")
    codes = rng.integers(0, 256, (16, 32), dtype=np.uint8)
    scale = rng.integers(100, 150, (16, 2), dtype=np.uint8)
    b, out = payloads(rng, narrow, (64, 16)), np.zeros((16, 16), np.uint32)
    with exact_mode("reference", dot=way):
        scaled[(1,)](
            codes, scale, tw.reinterpret(b, tl.bfloat16), tw.reinterpret(out, tl.float32), "e2m1", 2
        )
    halves = np.array([0, 1, 2, 3, 4, 6, 8, 12], dtype=object)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(16, 64)
    numbers = np.where(nibbles >= 8, -halves[nibbles & 7], halves[nibbles & 7])
    factors = [[pow(2, int(s) - 127 - 1, wide.modulus) for s in row] for row in scale]
    factors = np.repeat(np.array(factors, dtype=object), 32, axis=1)
    exact = (numbers * factors) @ balanced(narrow, b) % wide.modulus
    assert (out.astype(object) == exact).all()
