"""Invariant launches on emulated waves: one pattern of bits over batches, tiles and warps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

from tilewright_conformance.kernels.invariant_kernels import matmul, softmax
from tilewright_conformance.testlib import reduction_order

ARCHS = ("gfx942", "gfx1100")
K, N = 64, 32


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
def test_matmul(arch: str) -> None:
    a, b = (reduction_order.spread(shape, 3).astype(np.float16) for shape in ((17, K), (N, K)))
    found = set()
    for rows, block_m, block_n, warps in (
        (1, 16, 16, 1),
        (17, 16, 16, 1),
        (17, 16, 32, 4),
        (5, 32, 32, 4),
    ):
        signature = "x_ptr=*fp16:16, w_ptr=*fp16:16, out_ptr=*fp32:16, M=i32, N=i32, K=i32"
        constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32}
        code = compiled(matmul, signature, arch, constants, num_warps=warps, invariant=True)
        c = np.zeros((rows, N), np.float32)
        grid = (math.ceil(rows / block_m) * (N // block_n),)
        launched(code, [a[:rows].copy(), b, c, rows, N, K], grid)
        found.add(c[0].tobytes())
    assert len(found) == 1


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ARCHS)
def test_softmax(arch: str) -> None:
    x = np.random.default_rng(5).standard_normal((5, 100)).astype(np.float32)
    found = set()
    for rows, block, warps in ((1, 1, 1), (5, 1, 4), (5, 4, 1)):
        constants = {"ROWS": block, "BLOCK": 128}
        signature = "x_ptr=*fp32:16, out_ptr=*fp32:16, M=i32, N=i32"
        code = compiled(softmax, signature, arch, constants, num_warps=warps, invariant=True)
        out = np.zeros((rows, 100), np.float32)
        launched(code, [x[:rows].copy(), out, rows, 100], (math.ceil(rows / block),))
        found.add(out[0].tobytes())
    assert len(found) == 1


def test_sums_differ_in_other_launches() -> None:
    x = reduction_order.spread((1, 512))

    def patterns(**options: bool) -> int:
        found = set()
        for warps in (1, 2):
            constants = {"N": 512, "ROWS": 1, "ORDER": None}
            signature, kernel = "x=*fp32:16, out=*fp32:16", reduction_order.sum_rows
            code = compiled(kernel, signature, "gfx942", constants, num_warps=warps, **options)
            out = np.zeros(1, np.float32)
            launched(code, [x, out])
            found.add(out.tobytes())
        return len(found)

    assert patterns() == 2
    assert patterns(invariant=True) == 1
