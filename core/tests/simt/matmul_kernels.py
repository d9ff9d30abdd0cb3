"""Matmuls by pointers and by descriptors, their operands, and how they are built and run on the
emulated machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Builder, Function, Module, Value, verify
from tilewright.ir.core import Operation
from tilewright.ir.types import PointerType, TileType
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.testing.toy_targets import StagedTarget

MODES = ("late", "early", "random")
BM, BN, BK = 16, 8, 8


@device_function
def by_pointers(
    a,
    b,
    out,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FILL: tl.constexpr = 0.0,
):
    rows, columns = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(
            a + rows[:, None] * K + inner[None, :],
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=FILL,
        )
        y = tl.load(
            b + inner[:, None] * N + columns[None, :],
            mask=(inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@device_function
def by_blocks(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def build(fn: Any, signature: dict[str, str], **constants: Any) -> Module:
    module = compile_function(fn, {**signature, **dict.fromkeys(constants, "constexpr")}, constants)
    run_passes(module)
    return module


def matmul_module(fn: Any, *, blocks: bool, **constants: Any) -> Module:
    a, b = (
        (f"tensordesc<fp32[{BM},{BK}]>", f"tensordesc<fp32[{BK},{BN}]>")
        if blocks
        else ("*fp32", "*fp32")
    )
    return build(
        fn,
        {"a": a, "b": b, "out": "*fp32", **dict.fromkeys("MNK", "i32")},
        BM=BM,
        BN=BN,
        BK=BK,
        **constants,
    )


def matrices(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return small integers, whose products are exact, and a result full of wrong values."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


def operations(module: Module, name: str) -> list[Operation]:
    return [operation for operation in kernel_of(module).walk() if operation.name == name]


def run_matmul(
    size: tuple[int, int, int],
    stages: int,
    target: StagedTarget,
    fill: float = 0.0,
    num_warps: int = 1,
    **options: Any,
) -> Any:
    m, n, k = size
    a, b, out = matrices(m, n, k)
    # rows are multiples of 16 bytes, and so is where they end
    facts = {"N": 4, "K": 4}
    module = matmul_module(by_pointers, blocks=False, FILL=fill)
    for argument, attributes in zip(
        kernel_of(module).arguments, kernel_of(module).argument_attributes, strict=True
    ):
        attributes["divisibility"] = (
            16 if argument.name in ("a", "b") else facts.get(argument.name, 1)
        )
    emulator.run(
        module,
        [a, b, out, m, n, k],
        (-(-m // BM), -(-n // BN), 1),
        num_warps=num_warps,
        target=target,
        num_stages=stages,
        **options,
    )
    np.testing.assert_array_equal(out, a @ b)
    return module


def dot_module(
    a: TileType, b: TileType, c: TileType, precision: str = "ieee", chain: int = 1
) -> Module:
    """out = a @ b + c, ``chain`` times in a row."""

    def addresses(builder: Builder, base: Value, shape: tuple[int, ...]) -> Value:
        flat = builder.addptr(
            builder.splat(base, result=TileType((math.prod(shape),), base.type)),
            builder.arange(start=0, end=math.prod(shape)),
        )
        return builder.reshape(flat, result=TileType(shape, base.type))

    module = Module()
    function = module.add(
        Function(
            "kernel",
            [PointerType(tile.element) for tile in (a, b, c, c)],
            argument_names=["a", "b", "c", "out"],
        )
    )
    builder = Builder.at_end(function.body)
    x, y, total = (
        builder.load(addresses(builder, pointer, tile.shape))
        for pointer, tile in zip(function.arguments, (a, b, c), strict=False)
    )
    for _ in range(chain):
        total = builder.dot(x, y, total, precision=precision)
    builder.store(addresses(builder, function.arguments[3], c.shape), total)
    builder.return_()
    verify(module)
    return module
