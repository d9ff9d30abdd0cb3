"""Attention by products of warpgroups on the device, against NumPy in float64: outputs full of NaN before, lengths that are no multiples of anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from attention_kernels import attention_module
from gpu_support import launch_on_gpu, prepare
from test_gpu_hopper import hopper_is_there, tensor, within_patience

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here")]


def rounded(values: np.ndarray[Any, Any], element: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(what is in memory, the numbers in float64)."""
    if element == "f16":
        stored = values.astype(np.float16)
        return stored, stored.astype(np.float64)
    bits = (np.ascontiguousarray(values.astype(np.float32)).view(np.uint32) >> 16).astype(np.uint16)
    return bits, from_bits(bits)


def from_bits(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("shape", [(64, 128, 128, 8, 3), (64, 256, 64, 16, 3), (128, 128, 128, 8, 2), (128, 128, 64, 8, 3), (128, 64, 64, 4, 3)], ids=str)
@pytest.mark.parametrize("n", [1, 128, 200, 1024, 1337])
def test_attention(n: int, shape: tuple[int, int, int, int, int], element: str, causal: bool) -> None:
    d, bm, bn, warps, stages = shape
    rng = np.random.default_rng(n)
    (q, wide_q), (k, wide_k), (v, wide_v) = (rounded(rng.standard_normal((n, d)), element) for _ in range(3))
    out = np.full((n, d), np.nan, np.float16) if element == "f16" else np.full((n, d), 0x7FC0, np.uint16)
    lse = np.full(n, np.nan, np.float32)
    scale = d**-0.5 * 1.4426950408889634
    launch, memory = prepare(attention_module(element, d, bm, bn, causal), asynchronous=True, num_warps=warps, num_stages=stages)
    arguments = [*map(tensor, (q, k, v)), out, lse, n, scale]
    within_patience(f"attention of {n} by {shape}", lambda: launch_on_gpu(launch, memory, arguments, (-(-n // bm), 1, 1)))
    scores = wide_q @ wide_k.T * scale
    if causal:
        scores = np.where(np.arange(n)[:, None] >= np.arange(n)[None, :], scores, -np.inf)
    highest = scores.max(axis=1, keepdims=True)
    weights = np.exp2(scores - highest)
    total = weights.sum(axis=1, keepdims=True)
    found = out.astype(np.float64) if element == "f16" else from_bits(out)
    np.testing.assert_allclose(found, weights @ wide_v / total, rtol=2e-2, atol=2e-3 if element == "f16" else 2e-2)
    np.testing.assert_allclose(lse, (highest + np.log2(total))[:, 0], rtol=1e-4, atol=1e-3)
