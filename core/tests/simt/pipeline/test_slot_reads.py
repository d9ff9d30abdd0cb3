"""Threads read slots at the top of an iteration, or where they need them if registers are short."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matmul_kernels import BK, BM, BN, MODES, build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget


@device_function
def scaled_late(
    a, b, scale, out, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Load the scales of an iteration's result before its matmul."""
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        factor = scale.load([k // BK * BM])
        one = tl.dot(a.load([0, k]), b.load([k, 0]))
        total += one * factor[:, None]
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total)


def run(registers: int, completion: str, *, parts: bool) -> Module:
    k = 5 * BK
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((BM, k), (k, BN)))
    scale = rng.integers(1, 4, (5, BM)).astype(np.float32)
    out = np.full((BM, BN), np.nan, np.float32)
    module = build(
        scaled_late,
        {
            "a": f"tensordesc<fp32[{BM},{BK}]>",
            "b": f"tensordesc<fp32[{BK},{BN}]>",
            "scale": f"tensordesc<fp32[{BM}]>",
            "out": "*fp32",
            "K": "i32",
        },
        BM=BM,
        BN=BN,
        BK=BK,
        PARTS=parts,
    )
    target = BulkTarget(8)
    target.resources = replace(target.resources, registers=registers)
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (a, b, scale.ravel())), out, k],
        (1, 1, 1),
        num_warps=2,
        target=target,
        num_stages=3,
        completion=completion,
    )
    np.testing.assert_array_equal(out, (a * scale.repeat(BK, 0).T) @ b)
    return module


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize(("parts", "registers"), [(True, 255), (True, 1), (False, 1)])
def test_reads_move_where_registers_are_short(parts: bool, registers: int, completion: str) -> None:
    module = run(registers, completion, parts=parts)
    start = operations(module, "simt.dot_start")[0]
    assert start.parent is not None
    names = [operation.name for operation in start.parent]
    is_late = names.index("simt.load") > names.index("simt.dot_start")
    assert is_late == (parts and registers == 1)
