"""Matmul kernels through descriptors.

One block per program, persistent, and with block-scaled operands.
"""

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline


def multiply(
    a: Any,
    b: Any,
    out: Any,
    K: Any,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TURNED: tl.constexpr,
    PARTS: tl.constexpr,
    SUMS: tl.constexpr,
    IMPRECISE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=SUMS)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        x = a.load([m, k])
        if TURNED:
            y = b.load([n, k]).T
        else:
            y = b.load([k, n])
        acc = tl.dot(
            x, y, acc, max_num_imprecise_acc=IMPRECISE, out_dtype=SUMS, input_precision=PRECISION
        )
    tl.store(out + (m + tl.arange(0, BM))[:, None] * N + (n + tl.arange(0, BN))[None, :], acc)


def matmul_module(
    transposed: bool,
    parts: bool,
    block: tuple[int, int, int],
    columns: int = 1024,
    dtype: str = "fp16",
    other: str = "",
    accumulator: str = "fp32",
    imprecise: int | None = None,
    precision: str = "tf32",
) -> Any:
    """:func:`multiply` of operands of the types ``dtype`` and ``other`` (by default the same)."""
    bm, bn, bk = block
    accumulator_type = {"fp32": tl.float32, "fp16": tl.float16, "i32": tl.int32}[accumulator]
    constants = {"N": columns, "BM": bm, "BN": bn, "BK": bk, "TURNED": transposed, "PARTS": parts}
    constants |= {"SUMS": accumulator_type, "IMPRECISE": imprecise, "PRECISION": precision}
    second = f"{bn},{bk}" if transposed else f"{bk},{bn}"
    types = {"a": f"tensordesc<{dtype}[{bm},{bk}]>", "b": f"tensordesc<{other or dtype}[{second}]>"}
    facts = {"divisibility": 16}
    signature = {
        **types,
        "out": f"*{accumulator}",
        "K": "i32",
        **dict.fromkeys(constants, "constexpr"),
    }
    module = compile_function(
        device_function(multiply),
        signature,
        constants,
        {"a": facts, "b": facts, "out": {"divisibility": 16}},
    )
    pipeline.run(module)
    return module


#: Element types of A and B, of the sums, and after how many elements along K these are promoted.
KINDS = [
    ("fp16", "fp16", "fp16", None),
    ("bf16", "bf16", "fp32", None),
    ("fp32", "fp32", "fp32", None),
    ("i8", "i8", "i32", None),
    ("u8", "u8", "i32", None),
    ("fp8e4nv", "fp8e4nv", "fp32", None),
    ("fp8e4nv", "fp8e5", "fp32", None),
    ("fp8e5", "fp8e5", "fp16", None),
    ("fp8e4nv", "fp8e4nv", "fp32", 128),
    ("fp8e5", "fp8e4nv", "fp32", 64),
    ("fp8e4nv", "fp8e5", "fp32", 32),
]
#: Bytes of an element.
SIZES = {"fp16": 2, "bf16": 2, "fp32": 4, "i8": 1, "u8": 1, "fp8e4nv": 1, "fp8e5": 1}


def persistent(
    a: Any,
    b: Any,
    c: Any,
    M: Any,
    N: Any,
    K: Any,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HALVES: tl.constexpr,
    FLATTEN: tl.constexpr,
) -> None:
    """Each program walks the blocks of the result, which it stores by blocks, in two halves where
    they should be."""
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=FLATTEN
    ):
        m, n = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
        if HALVES:
            left, right = acc.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
            c.store([m, n], left.to(c.dtype))
            c.store([m, n + BN // 2], right.to(c.dtype))
        else:
            c.store([m, n], acc.to(c.dtype))


def persistent_module(block: tuple[int, int, int], halves: bool, flatten: bool) -> Any:
    bm, bn, bk = block
    constants = {"BM": bm, "BN": bn, "BK": bk, "HALVES": halves, "FLATTEN": flatten}
    shapes = {"a": [bm, bk], "b": [bk, bn], "c": [bm, bn // 2 if halves else bn]}
    types = {name: f"tensordesc<fp16{shape}>" for name, shape in shapes.items()}
    signature = {**types, **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    module = compile_function(
        device_function(persistent),
        signature,
        constants,
        {name: {"divisibility": 16, "extent_divisibility": 8} for name in types},
    )
    pipeline.run(module)
    return module


def scaled_product(
    a: Any,
    a_scales: Any,
    b: Any,
    b_scales: Any,
    out: Any,
    K: Any,
    BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    PACKED: tl.constexpr,
) -> None:
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    rows, groups = tl.arange(0, BLOCK)[:, None] * (K // 32), tl.arange(0, BLOCK // 32)[None, :]
    for k in range(0, K, BLOCK):
        x, y = a.load([0, k // PACKED]), b.load([0, k // PACKED])
        at = rows + k // 32 + groups
        acc = tl.dot_scaled(
            x, tl.load(a_scales + at), FORMAT, y.T, tl.load(b_scales + at), FORMAT, acc
        )
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], acc)
