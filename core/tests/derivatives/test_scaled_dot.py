"""Derivatives of block-scaled matmuls by their operands of floats."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

M, K, N = 16, 64, 32


@tw.jit
def matmul(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, out_ptr,
    A: tl.constexpr, B: tl.constexpr, A_TYPE: tl.constexpr, B_TYPE: tl.constexpr,
    A_PACK_K: tl.constexpr, B_PACK_K: tl.constexpr, SCALES: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Multiply operands that are rounded to their formats; those of e2m1 are bytes."""
    A_M: tl.constexpr = M // 2 if A == "e2m1" and not A_PACK_K else M
    A_K: tl.constexpr = K // 2 if A == "e2m1" and A_PACK_K else K
    B_N: tl.constexpr = N // 2 if B == "e2m1" and not B_PACK_K else N
    B_K: tl.constexpr = K // 2 if B == "e2m1" and B_PACK_K else K
    a = tl.load(a_ptr + tl.arange(0, A_M)[:, None] * A_K + tl.arange(0, A_K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, B_K)[:, None] * B_N + tl.arange(0, B_N)[None, :])
    if A != "e2m1":
        a = a.to(A_TYPE)
    if B != "e2m1":
        b = b.to(B_TYPE)
    a_scale, b_scale = None, None
    if SCALES[0]:
        groups = tl.arange(0, K // SCALES[0])[None, :]
        a_scale = tl.load(a_scale_ptr + tl.arange(0, M)[:, None] * (K // SCALES[0]) + groups)
        if SCALES[0] == 16:
            a_scale = a_scale.to(tl.float8e4nv)
    if SCALES[1]:
        groups = tl.arange(0, K // SCALES[1])[None, :]
        b_scale = tl.load(b_scale_ptr + tl.arange(0, N)[:, None] * (K // SCALES[1]) + groups)
        if SCALES[1] == 16:
            b_scale = b_scale.to(tl.float8e4nv)
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    c = tl.load(c_ptr + offsets)
    c = tl.dot_scaled(a, a_scale, A, b, b_scale, B, c, lhs_k_pack=A_PACK_K, rhs_k_pack=B_PACK_K)
    tl.store(out_ptr + offsets, c)


TYPES = {"bf16": tl.bfloat16, "fp16": tl.float16, "e4m3": tl.float8e4nv, "e5m2": tl.float8e5}
CASES = [
    ("bf16", "e2m1", (0, 32), True, True),
    ("fp16", "e4m3", (0, 32), True, True),
    ("e2m1", "bf16", (32, 0), False, True),
    ("e5m2", "e2m1", (32, 16), True, False),
    ("e4m3", "e4m3", (16, 32), True, True),
    ("e4m3", "fp16", (32, 32), True, True),
]


def drawn(a: str, b: str, scales: tuple[int, int], packs: tuple[bool, bool]) -> dict[str, Any]:
    """Arguments with floats that all formats hold."""
    rng = np.random.default_rng(len(a) + len(b))

    def operand(kind: str, shape: tuple[int, int], axis: int) -> np.ndarray:
        if kind == "e2m1":
            packed = tuple(n // 2 if own == axis else n for own, n in enumerate(shape))
            return rng.integers(0, 256, packed, np.uint8)
        return rng.choice([-1.5, -1.0, -0.25, 0.5, 1.0, 1.75], shape).astype(np.float32)

    def scale(rows: int, group: int) -> np.ndarray:
        if group == 16:
            return rng.choice([0.5, 1.5, 3.0], (rows, K // 16)).astype(np.float32)
        return rng.integers(124, 131, (rows, K // (group or 32)), np.uint8)

    return {
        "a_ptr": operand(a, (M, K), 1 if packs[0] else 0),
        "a_scale_ptr": scale(M, scales[0]),
        "b_ptr": operand(b, (K, N), 0 if packs[1] else 1),
        "b_scale_ptr": scale(N, scales[1]),
        "c_ptr": rng.normal(size=(M, N)).astype(np.float32),
        "out_ptr": np.empty((M, N), np.float32),
    }


def constants(a: str, b: str, scales: tuple[int, int], packs: tuple[bool, bool]) -> dict[str, Any]:
    return {
        "A": a, "B": b, "A_TYPE": TYPES.get(a, tl.uint8), "B_TYPE": TYPES.get(b, tl.uint8),
        "A_PACK_K": packs[0], "B_PACK_K": packs[1], "SCALES": scales, "M": M, "N": N, "K": K,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "a", "b", "scales", "a_pack", "b_pack"),
    [("reference", *case) for case in CASES] + [("cpu", *CASES[0]), ("cpu", *CASES[4])],
)
def test_matmuls_are_linear_in_each_operand_of_floats(
    backend: Any, a: str, b: str, scales: tuple[int, int], a_pack: bool, b_pack: bool
) -> None:
    packs = (a_pack, b_pack)
    arguments, fixed = drawn(a, b, scales, packs), constants(a, b, scales, packs)
    wrt = [name for name, kind in (("a_ptr", a), ("b_ptr", b), ("c_ptr", "")) if kind != "e2m1"]
    d_out = np.random.default_rng(9).normal(size=(M, N)).astype(np.float32)
    gradients = {f"d_{name}": np.full_like(arguments[name], np.nan) for name in wrt}
    with tw.backend(backend):
        adjoint = tw.vjp(matmul, outputs="out_ptr", wrt=tuple(wrt))
        adjoint[(1,)](**arguments, **fixed, d_out_ptr=d_out, **gradients)
        matmul[(1,)](**arguments, **fixed)
        for name in wrt:
            tangent = np.empty_like(d_out)
            forward = tw.jvp(matmul, inputs=name, outputs="out_ptr")
            along = {f"t_{name}": arguments[name], "t_out_ptr": tangent}
            forward[(1,)](**arguments, **fixed, **along)
            expected = arguments["out_ptr"] - (0 if name == "c_ptr" else arguments["c_ptr"])
            if name == "c_ptr":
                expected = arguments["c_ptr"]
            np.testing.assert_allclose(tangent, expected, rtol=1e-5, atol=1e-4)
            left = (d_out.astype(np.float64) * tangent).sum()
            right = (gradients[f"d_{name}"].astype(np.float64) * arguments[name]).sum()
            scale = (np.abs(d_out) * np.abs(tangent)).sum()
            assert abs(left - right) <= 1e-6 * scale


def test_scales_that_vary_are_refused() -> None:
    case = ("e4m3", "e4m3", (16, 32), (True, True))
    arguments, fixed = drawn(*case), constants(*case)
    adjoint = tw.vjp(matmul, outputs="out_ptr", wrt=("a_ptr", "a_scale_ptr"))
    own = {name: np.empty_like(arguments[name]) for name in ("out_ptr", "a_ptr", "a_scale_ptr")}
    with pytest.raises(tw.DerivativeError) as caught, tw.backend("reference"):
        adjoint[(1,)](**arguments, **fixed, **{f"d_{name}": value for name, value in own.items()})
    assert re.search(r"test_scaled_dot.py:\d+", str(caught.value))
    assert caught.value.reason == "dot_scaled: its scales depend on what has a derivative"
    assert caught.value.remedy == "stop the gradient before the scales: tl.stop_gradient(...)"
