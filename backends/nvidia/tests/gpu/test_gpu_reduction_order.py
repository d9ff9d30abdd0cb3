"""Reductions, scans and matmuls in a stated order on the GPU: the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_support import gpu_is_there, run_on_gpu

from tilewright.ir.types import F32
from tilewright_conformance.testlib import reduction_order

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize("order", reduction_order.ORDERS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((32,), 0), ((64,), 0), ((512,), 0), ((16, 64), 1), ((64, 16), 0)]
)
def test_sums(shape: tuple[int, ...], axis: int, order: str, num_warps: int) -> None:
    sample = reduction_order.sum_sample(F32, shape, axis, order)
    found = sample.make_arguments(np.random.default_rng(0))
    run_on_gpu(sample.module, found, sample.grid, num_warps=num_warps)
    assert reduction_order.bits(sample, found) == reduction_order.run_on_reference(sample)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_matmuls_in_sequence(element: str, num_warps: int) -> None:
    sample = reduction_order.dot_sample(element)
    found = sample.make_arguments(np.random.default_rng(0))
    run_on_gpu(sample.module, found, sample.grid, num_warps=num_warps)
    assert reduction_order.bits(sample, found) == reduction_order.run_on_reference(sample)
