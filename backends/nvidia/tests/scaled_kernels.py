"""A matmul of block-scaled operands."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl


@tw.jit
def scaled_kernel(
    a, a_scale, b, b_scale, c, out, trips,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    SCALES: tl.constexpr, TRIPS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """``c`` plus the sum over ``trips`` pieces along K of a [M, TRIPS * K] times b [N, TRIPS * K],
    transposed; e2m1 in pairs along K, or M and N."""
    OF_A: tl.constexpr = K // 2 if A == "e2m1" and PACKED else K
    OF_B: tl.constexpr = K // 2 if B == "e2m1" and PACKED else K
    ROWS: tl.constexpr = M if PACKED or A != "e2m1" else M // 2
    COLUMNS: tl.constexpr = N if PACKED or B != "e2m1" else N // 2
    GROUPS: tl.constexpr = K // 32
    rows, columns, groups = tl.arange(0, M), tl.arange(0, N), tl.arange(0, GROUPS)
    sums = tl.load(c + rows[:, None] * N + columns[None, :])
    for i in range(trips):
        left = tl.load(
            a
            + tl.arange(0, ROWS)[:, None] * (TRIPS * OF_A)
            + i * OF_A
            + tl.arange(0, OF_A)[None, :]
        )
        right = tl.load(
            b
            + tl.arange(0, COLUMNS)[:, None] * (TRIPS * OF_B)
            + i * OF_B
            + tl.arange(0, OF_B)[None, :]
        )
        left_scale, right_scale = None, None
        if SCALES[0]:
            left_scale = tl.load(
                a_scale + rows[:, None] * (TRIPS * GROUPS) + i * GROUPS + groups[None, :]
            )
        if SCALES[1]:
            right_scale = tl.load(
                b_scale + columns[:, None] * (TRIPS * GROUPS) + i * GROUPS + groups[None, :]
            )
        sums = tl.dot_scaled(
            left, left_scale, A, right.T, right_scale, B, sums, lhs_k_pack=PACKED, rhs_k_pack=PACKED
        )
    tl.store(out + rows[:, None] * N + columns[None, :], sums)


SIGNATURE = {
    "a": "*u8",
    "a_scale": "*u8",
    "b": "*u8",
    "b_scale": "*u8",
    "c": "*fp32",
    "out": "*fp32",
    "trips": "i32",
}


ARGUMENTS = tuple(SIGNATURE)


def constants(
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    scales: tuple[bool, bool] = (True, True),
    trips: int = 1,
    packed: bool = True,
) -> Any:
    m, n, k = shape
    return {
        "A": formats[0],
        "B": formats[1],
        "M": m,
        "N": n,
        "K": k,
        "SCALES": scales,
        "TRIPS": trips,
        "PACKED": packed,
    }
