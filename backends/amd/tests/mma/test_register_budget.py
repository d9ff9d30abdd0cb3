"""Kernels whose tiles take nearly all of the 256 registers of an RDNA thread.

Loads are serialized, operands stay in LDS, rows stay in their waves, and a tile has one address.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "benchmarks" / "amd"))
from amd_emulated import launched
from amd_support import example, listed
from static_quality import kernels

from tilewright.ir.types import F8E5M2
from tilewright.plugins.manifest import CodeObject
from tilewright.reference.numerics import decode
from tilewright_conformance.oracles import attention

ARCHS = ["gfx1100", "gfx1201"]


def code_of(arch: str, name: str) -> CodeObject:
    module, kernel, signature, constants = kernels(arch)[name]
    return listed(getattr(example(module), kernel), signature, arch, constants)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["f16", "fp8"])
@pytest.mark.parametrize("arch", ARCHS)
def test_products_are_right_in_any_order_of_the_waves(arch: str, kind: str) -> None:
    code, rng = code_of(arch, f"matmul {kind}"), np.random.default_rng(7)
    # many iterations, parts of blocks, one iteration, none
    for m, n, k in ((128, 128, 320), (144, 112, 176), (16, 32, 48), (16, 16, 0)):
        a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
        if kind == "fp8":
            # as many bits in front as f16 has, and all of these numbers end in zeros
            a, b = ((values.view(np.uint16) >> 8).astype(np.uint8) for values in (a, b))
        c = np.full((m, n), np.nan, np.float16)
        launched(
            code,
            [a, b, c, m, n, k, k, n, n],
            (-(-m // 128) * -(-n // 128),),
            schedule="random",
            seed=k,
        )
        x, y = (decode(values, F8E5M2) if kind == "fp8" else values for values in (a, b))
        np.testing.assert_array_equal(
            c, (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float16)
        )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ARCHS)
def test_attention_is_right_in_any_order_of_the_waves(arch: str) -> None:
    code, rng = code_of(arch, "attention"), np.random.default_rng(8)
    for length in (208, 64, 16):
        q, k, v = (rng.standard_normal((length, 64)).astype(np.float16) for _ in range(3))
        out, lse = np.full((length, 64), np.nan, np.float16), np.full(length, np.nan, np.float32)
        launched(
            code,
            [q, k, v, out, lse, 0.125, length],
            (-(-length // 128), 1),
            schedule="random",
            seed=length,
        )
        (expected,), (logarithms,) = attention.forward(
            q[None], k[None], v[None], 0.125, causal=False
        )
        np.testing.assert_allclose(out, expected, rtol=0, atol=4e-3)
        np.testing.assert_allclose(lse, logarithms / np.log(2), rtol=0, atol=1e-4)
