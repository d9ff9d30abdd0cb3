"""Attention by wgmma on the device, against NumPy in float64.

Outputs are NaN before the launch, and sequence lengths are no multiples of block sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_kernels import attention_module, backward_module
from gpu_support import launch_on_gpu, prepare
from hopper_gpu import hopper_is_there, tensor, within_patience

from tilewright_conformance.oracles import attention as exact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]


def rounded(
    values: np.ndarray[Any, Any], element: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
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
@pytest.mark.parametrize(
    "shape",
    [
        (64, 128, 128, 8, 3),
        (64, 256, 64, 16, 3),
        (128, 128, 128, 8, 2),
        (128, 128, 64, 8, 3),
        (128, 64, 64, 4, 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [1, 128, 200, 1024, 1337])
def test_attention(
    n: int, shape: tuple[int, int, int, int, int], element: str, causal: bool
) -> None:
    d, bm, bn, warps, stages = shape
    rng = np.random.default_rng(n)
    (q, wide_q), (k, wide_k), (v, wide_v) = (
        rounded(rng.standard_normal((n, d)), element) for _ in range(3)
    )
    out = (
        np.full((n, d), np.nan, np.float16)
        if element == "f16"
        else np.full((n, d), 0x7FC0, np.uint16)
    )
    lse = np.full(n, np.nan, np.float32)
    scale = d**-0.5
    launch, memory = prepare(
        attention_module(element, d, bm, bn, causal),
        asynchronous=True,
        num_warps=warps,
        num_stages=stages,
    )
    arguments = [*map(tensor, (q, k, v)), out, lse, n, scale / np.log(2)]
    within_patience(
        f"attention of {n} by {shape}",
        lambda: launch_on_gpu(launch, memory, arguments, (-(-n // bm), 1, 1)),
    )
    (expected,), (logarithms,) = exact.forward(
        wide_q[None], wide_k[None], wide_v[None], scale, causal
    )
    found = out.astype(np.float64) if element == "f16" else from_bits(out)
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3 if element == "f16" else 2e-2)
    np.testing.assert_allclose(lse, logarithms / np.log(2), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize(
    "shape",
    [(64, 64, 128, 8, 2), (64, 64, 64, 4, 2), (64, 128, 64, 8, 2), (128, 64, 128, 8, 2)],
    ids=str,
)
@pytest.mark.parametrize("n", [128, 1280])
def test_backward(n: int, shape: tuple[int, int, int, int, int], element: str) -> None:
    d, bm, bn, warps, stages = shape
    rng = np.random.default_rng(n)
    (q, wide_q), (k, wide_k), (v, wide_v), (g, wide_g) = (
        rounded(rng.standard_normal((n, d)), element) for _ in range(4)
    )
    scale = d**-0.5
    wide = [values[None] for values in (wide_q, wide_k, wide_v)]
    (out,), (logarithms,) = exact.forward(*wide, scale, causal=False)
    expected = dict(
        zip(
            ("dq", "dk", "dv"),
            (one[0] for one in exact.gradients(*wide, wide_g[None], scale, causal=False)),
            strict=True,
        )
    )
    inputs = [
        *map(tensor, (q, k, v, g)),
        (logarithms / np.log(2)).astype(np.float32),
        (out * wide_g).sum(axis=1).astype(np.float32),
    ]
    for part, names, block in (("keys", ("dk", "dv"), bn), ("queries", ("dq",), bm)):
        found = {name: np.full((n, d), np.nan, np.float32) for name in names}
        launch, memory = prepare(
            backward_module(part, element, d, bm, bn),
            asynchronous=True,
            num_warps=warps,
            num_stages=stages,
        )
        arguments = [*inputs, *found.values(), n, scale]
        within_patience(
            f"gradients of {part} by {shape}",
            lambda: launch_on_gpu(launch, memory, arguments, (n // block, 1, 1)),
        )
        for name, one in found.items():
            np.testing.assert_allclose(
                one, expected[name], rtol=2e-2, atol=5e-3 if element == "f16" else 5e-2
            )
