"""Small blocks, such as of scales, arrive with the operands of the matmul beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matmul_kernels import BK, BM, BN, MODES, build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget

SIZES = [(BM, BN, blocks * BK) for blocks in (0, 1, 3, 4, 9)]
#: Elements along K that share a scale, as blocks of K that the loop multiplies.
INTEGERS = ("M", "N", "K", "GROUPS")


@device_function
def by_descriptors(
    a, b, scale, out, M, N, K, GROUPS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        if BEFORE:
            factor = scale.load([k // BK, row]).reshape(BM)
            total += tl.dot(a.load([row, k]), b.load([k, column])) * factor[:, None]
        else:
            one = tl.dot(a.load([row, k]), b.load([k, column]))
            total += one * scale.load([k // BK, row]).reshape(BM)[:, None]
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@device_function
def by_pointers(
    a, b, scale, out, M, N, K, GROUPS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """Load scales by pointers; ``BEFORE``: multiply an operand, and not the result."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        factor = tl.load(scale + k // BK * M + rows, mask=rows < M, other=0.0)
        if BEFORE:
            x = a.load([row, k]) * factor[:, None]
            total = tl.dot(x, b.load([k, column]), total)
        else:
            total += tl.dot(a.load([row, k]), b.load([k, column])) * factor[:, None]
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def run(kernel: Any, size: tuple[int, int, int], completion: str, **constants: Any) -> Module:
    m, n, k = size
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    groups = -(-k // BK)
    scale = rng.integers(1, 4, (groups, m)).astype(np.float32)
    out = np.full((m, n), np.nan, np.float32)
    is_block = kernel is by_descriptors
    module = build(
        kernel,
        {
            "a": f"tensordesc<fp32[{BM},{BK}]>",
            "b": f"tensordesc<fp32[{BK},{BN}]>",
            "scale": f"tensordesc<fp32[1,{BM}]>" if is_block else "*fp32",
            "out": "*fp32",
            **dict.fromkeys(INTEGERS, "i32"),
        },
        BM=BM,
        BN=BN,
        BK=BK,
        **constants,
    )
    for argument, facts in zip(
        kernel_of(module).arguments, kernel_of(module).argument_attributes, strict=True
    ):
        facts["divisibility"] = 16 if argument.name in ("scale", "M") else 1

    def block(x: np.ndarray) -> EmulatedDescriptor:
        return EmulatedDescriptor(x if x.size else np.zeros((1, 1), np.float32))

    emulator.run(
        module,
        [block(a), block(b), block(scale) if is_block else scale, out, m, n, k, groups],
        (-(-m // BM), -(-n // BN), 1),
        num_warps=2,
        target=BulkTarget(8, groups=True, raises=16),
        num_stages=3,
        completion=completion,
    )
    spread = scale.repeat(BK, 0)[:k].T
    np.testing.assert_array_equal(out, (a * spread) @ b)
    return module


def check_copies(module: Module) -> None:
    """The copies of an iteration complete at one mbarrier, and threads copy nothing."""
    copies = operations(module, "simt.block_load_start")
    assert {one.operands[0].type.tile_bytes for one in copies} == {4 * BM * BK, 4 * BK * BN, 4 * BM}
    expected = {one.attributes["bytes"] for one in operations(module, "simt.expect")}
    assert expected == {4 * (BM * BK + BK * BN + BM)}
    assert not operations(module, "simt.own_copy_start") and not operations(module, "load")


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("size", [*SIZES, (32, 16, 3 * BK)], ids=str)
def test_blocks_of_descriptors(
    size: tuple[int, int, int], before: bool, parts: bool, completion: str
) -> None:
    check_copies(run(by_descriptors, size, completion, PARTS=parts, BEFORE=before))


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("size", [*SIZES, (32, 16, 3 * BK)], ids=str)
def test_loads_at_pointers(
    size: tuple[int, int, int], before: bool, parts: bool, completion: str
) -> None:
    check_copies(run(by_pointers, size, completion, PARTS=parts, BEFORE=before))
