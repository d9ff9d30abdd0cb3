"""Matmuls in the emulator: by multiply-adds, and by plans of a fictional matrix instruction."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from matmul_kernels import dot_module

from tilewright.ir.types import BF16, F16, F32, F64, I8, I32, U8, FloatType, TileType, Type
from tilewright.reference.interpreter import run as run_reference
from tilewright.reference.numerics import encode
from tilewright.simt import emulator
from tilewright.simt.compile import compile_kernel
from tilewright.simt.layouts.linear_layout import log2
from tilewright.simt.target.fma_plan import fma_plan, result_layout
from tilewright.simt.target.matmul_plan import Matmul
from tilewright.testing.matrix_target import MatrixTarget

F8 = FloatType("f8e4m3fn")
F8B = FloatType("f8e5m2")


def whole(rng: np.random.Generator, type_: TileType) -> np.ndarray:
    """Return small integers, whose products and sums are exact in every type."""
    low = 0 if type_.element is U8 else -3
    values = rng.integers(low, 4, type_.shape)
    return (
        encode(values.astype(np.float64), type_.element)
        if isinstance(type_.element, FloatType)
        else values.astype({I8: "i1", U8: "u1", I32: "i4"}[type_.element])
    )


def compare(
    a: TileType,
    b: TileType,
    c: TileType,
    *,
    target: emulator.EmulatedTarget,
    num_warps: int,
    chain: int = 1,
    precision: str = "ieee",
    seed: int = 0,
) -> str:
    """Run on the emulated machine and the reference; the results are equal bit for bit. Gives the
    LLVM IR."""
    rng = np.random.default_rng(seed)
    arrays = [whole(rng, tile) for tile in (a, b, c)]
    expected, out = (np.full_like(arrays[2], 77) for _ in range(2))
    run_reference(dot_module(a, b, c, precision, chain), [*arrays, expected], (1, 1, 1))
    module = dot_module(a, b, c, precision, chain)
    text = compile_kernel(
        module, target, {"num_warps": num_warps, "num_stages": 1, "enable_fp_fusion": False}
    )
    emulator.run_text(
        text,
        target,
        [argument.type for argument in module.kernel.arguments],
        [*arrays, out],
        (1, 1, 1),
        num_warps,
    )
    np.testing.assert_array_equal(out, expected)
    return text


TYPES = [
    (F32, F32, F32),
    (F64, F64, F64),
    (F16, F16, F32),
    (F16, F16, F16),
    (BF16, BF16, F32),
    (F8, F8, F32),
    (F8B, F8, F16),
    (I8, I8, I32),
    (U8, I8, I32),
]


@pytest.mark.parametrize(("a", "b", "c"), TYPES, ids=str)
def test_multiplied_and_added_in_every_type(a: Type, b: Type, c: Type) -> None:
    rng = random.Random(f"{a} {b} {c}")
    m, n, k = (1 << rng.randint(2, 4) for _ in range(3))
    compare(
        TileType((m, k), a),
        TileType((k, n), b),
        TileType((m, n), c),
        target=emulator.EmulatedTarget(8),
        num_warps=2,
        chain=2,
    )


@pytest.mark.each_value
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (1, 16, 8), (16, 1, 8), (8, 4, 1), (2, 2, 64), (32, 16, 128), (64, 64, 4)],
    ids=str,
)
@pytest.mark.parametrize("batches", [(), (2,), (2, 4)], ids=str)
def test_multiplied_and_added_in_every_shape(
    shape: tuple[int, int, int], batches: tuple[int, ...]
) -> None:
    m, n, k = shape
    if math.prod(batches) * m * n > 1024:
        batches = (2,)
    element = F32 if m * n < 4096 else F16
    compare(
        TileType((*batches, m, k), element), TileType((*batches, k, n), element),
        TileType((*batches, m, n), F32),
        target=emulator.EmulatedTarget(4), num_warps=2,
    )  # fmt: skip


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"])
def test_no_precision_is_lost(precision: str) -> None:
    """Sums of ordinary numbers: fused multiplications in f32 are as near to the exact result as f32
    allows."""
    m, n, k = 8, 16, 32
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.normal(size=(m, k)).astype(np.float32),
        rng.normal(size=(k, n)).astype(np.float32),
        rng.normal(size=(m, n)).astype(np.float32),
    )
    out = np.full_like(c, np.nan)
    module = dot_module(
        TileType((m, k), F32), TileType((k, n), F32), TileType((m, n), F32), precision
    )
    emulator.run(module, [a, b, c, out], num_warps=2, warp_size=8)
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    bound = (np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(c)) * 2.0**-24 * k
    assert (np.abs(out - exact) <= bound).all()


@pytest.mark.parametrize(("lanes", "warps"), [(32, 4), (64, 8), (1, 1), (8, 2)])
def test_results_are_spread_over_threads_in_square_blocks(lanes: int, warps: int) -> None:
    for m, n in itertools.product((1, 2, 16, 128), repeat=2):
        for batches in ((), (4,)):
            layout = result_layout((*batches, m, n), log2(lanes), log2(warps))
            assert layout.covers
            assert layout.register_count == max(1, math.prod(batches) * m * n // (lanes * warps))
            plan = fma_plan(
                emulator.EmulatedTarget(lanes),
                Matmul((*batches, m, n), 16, F32, F32, F32, "ieee", 0, warps),
            )
            assert plan.a.covers and plan.b.covers
    big = fma_plan(emulator.EmulatedTarget(32), Matmul((128, 128), 16, F32, F32, F32, "ieee", 0, 4))
    # 128 elements of the result: 8 rows by 16 columns of the operands
    assert (big.a.register_count // 16, big.b.register_count // 16) == (8, 16)


@pytest.mark.parametrize("k_step", [0, 4, 8])
@pytest.mark.parametrize("num_warps", [1, 2])
def test_matrix_instructions_with_operands_in_registers(k_step: int, num_warps: int) -> None:
    target = MatrixTarget(k_step, fragments=True, wish=False)
    compare(
        TileType((16, 16), F32),
        TileType((16, 8), F32),
        TileType((16, 8), F32),
        target=target,
        num_warps=num_warps,
        chain=2,
    )
    assert len(target.matrix.calls) == 2 * (16 // k_step if k_step else 1)
    assert not target.matrix.loads
