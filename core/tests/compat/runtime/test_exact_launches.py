"""Kernels written for Triton in exact mode, before and after ordinary launches."""

from __future__ import annotations

import numpy as np

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.testing.exact import embed, exact_mode, fractions, same_algebra


@triton.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x * factor, mask=place < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def divide(x_ptr, out_ptr, divisor, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x / divisor, mask=place < n)


def scaled(x, out) -> None:
    scale[(triton.cdiv(x.size, 4),)](x, out, 0.001, x.size, BLOCK=4)


def divided(x, out) -> None:
    divide[lambda meta: (triton.cdiv(x.size, meta["BLOCK"]),)](x, out, 1000.0, x.size)


def test_ordinary_and_exact_launches_take_turns() -> None:
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    payloads, found = embed(x), np.zeros(10, np.float32)
    for _ in range(2):
        scaled(x, out)
        assert np.allclose(out, x / 1000)
        with exact_mode():
            scaled(payloads, found)
        assert [str(value) for value in fractions(found)[:3]] == ["0", "1/1000", "1/500"]


def test_a_tuned_kernel_is_compared() -> None:
    arrays = np.ones(10, np.float32), np.zeros(10, np.float32)
    found = same_algebra(scaled, divided, arrays)
    assert found, found
