"""Matmuls with plain pointers and ``asynchronous=True``.

Loads promoted to TMA, with launch-time maps.

Operands are small integers, whose sums are exact, surrounded by NaNs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_support import launch_on_gpu, prepare
from hopper_gpu import agree, hopper_is_there, operand, within_patience
from pointer_kernels import KERNELS, attention, batched, dot_module, kernel_module, matrix

import tilewright.language as tl
from tilewright_conformance.oracles import attention as exact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]

#: By element: its name in the language, what is put around matrices, and what is summed in.
ELEMENTS: dict[str, tuple[str, Any, str]] = {
    "f16": ("fp16", np.nan, "fp32"),
    "bf16": ("bf16", 0x7FC0, "fp32"),
    "f32": ("fp32", np.nan, "fp32"),
    "f8e4m3fn": ("fp8e4nv", 0x7F, "fp32"),
    "i8": ("i8", 77, "i32"),
}


def multiplied(
    name: str,
    shape: tuple[int, int, int],
    element: str,
    transposed: tuple[bool, bool],
    block: tuple[int, int, int],
    warps: int = 4,
    stages: int = 3,
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    named, poison, result = ELEMENTS[element]
    (left, first), (right, second) = (
        operand(rng, extents, element, transposed=False) for extents in ((m, k), (k, n))
    )
    x, y = (
        matrix(values, turns, poison)
        for values, turns in zip((left, right), transposed, strict=True)
    )
    out = np.full((m + 3, n + 5), 77, np.float32 if result == "fp32" else np.int32)
    sums, precision = (
        getattr(tl, {"fp32": "float32", "i32": "int32"}[result]),
        "tf32" if element == "f32" else "ieee",
    )
    module = dot_module(
        KERNELS[name], named, result, block, transposed=transposed, sums=sums, precision=precision
    )
    launch, memory = prepare(module, asynchronous=True, num_warps=warps, num_stages=stages)
    strides = [
        step // x.itemsize
        for turns, array in zip(transposed, (x, y), strict=True)
        for step in (array.strides[1:] if turns else array.strides[:1])
    ]
    programs = 2 if name == "persistent" else -(-m // block[0]) * -(-n // block[1])
    what = f"{name} of {shape} {element} in {block}"
    within_patience(
        what,
        lambda: launch_on_gpu(
            launch, memory, [x, y, out, m, n, k, *strides, out.shape[1]], (programs, 1, 1)
        ),
    )
    expected = np.full(out.shape, 77, np.float64)
    expected[:m, :n] = first @ second
    agree(out.astype(np.float64), expected)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(128, 128, 64), (200, 333, 77), (5, 3, 300)], ids=str)
@pytest.mark.parametrize(
    "transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str
)
def test_products_by_pointers(
    name: str, shape: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:
    multiplied(name, shape, "f16", transposed, (128, 128, 64))


@pytest.mark.parametrize("k", [1, 2, 15, 63, 64, 65, 127, 128, 129])
def test_any_depth(k: int) -> None:
    multiplied("wrapping", (150, 270, k), "f16", (False, False), (128, 256, 64), warps=8)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("transposed", [(False, False), (False, True)], ids=str)
def test_each_type(element: str, transposed: tuple[bool, bool]) -> None:
    multiplied(
        "wrapping", (100, 150, 333), element, transposed, (64, 128, 32 if element == "f32" else 64)
    )


def padded(values: np.ndarray[Any, Any], rows: int) -> np.ndarray[Any, Any]:
    """Batches of f16 amid NaNs, with so many rows each, which are multiples of 16 elements
    apart."""
    batches, height, width = values.shape
    found = np.full((batches, rows, -(-width // 16) * 16), np.nan, np.float16)
    found[:, :height, :width] = values
    return found


@pytest.mark.parametrize("shape", [(128, 128, 64), (100, 150, 77)], ids=str)
def test_an_axis_that_tiles_have_not(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, (3, *extents)).astype(np.float16) for extents in ((m, k), (k, n)))
    x, y = padded(a, m + 1), padded(b, k + 3)
    c = np.full((3, m, n), 77, np.float32)
    constants, aligned = (
        {"BM": 128, "BN": 64, "BK": 64},
        ("a", "b", "a_batch", "a_row", "b_batch", "b_row"),
    )
    module = kernel_module(batched, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, constants, aligned)
    launch, memory = prepare(module, asynchronous=True, num_warps=4, num_stages=3)
    arguments = [x, y, c, m, n, k, x[0].size, x.shape[2], y[0].size, y.shape[2], m * n, n]
    grid = (-(-m // 128) * -(-n // 64), 3, 1)
    within_patience(f"batches of {shape}", lambda: launch_on_gpu(launch, memory, arguments, grid))
    agree(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("n", [256, 333])
@pytest.mark.parametrize("head", [64, 128])
def test_attention(n: int, head: int) -> None:
    rng = np.random.default_rng(n)
    given = [rng.standard_normal((2, n, head)).astype(np.float16) for _ in range(3)]
    q, k, v = (padded(values, n + 1) for values in given)
    out = np.full((2, n + 1, head), 77, np.float32)
    types = dict.fromkeys("qkv", "*fp16") | {"out": "*fp32", "scale": "fp32"}
    module = kernel_module(
        attention, types, {"BM": 128, "BN": 64, "HEAD": head}, ("q", "k", "v", "q_head", "k_head")
    )
    launch, memory = prepare(module, asynchronous=True, num_warps=8, num_stages=3)
    arguments = [q, k, v, out, n, (n + 1) * head, (n + 1) * head, 0.125]
    within_patience(
        f"attention of {n} keys",
        lambda: launch_on_gpu(launch, memory, arguments, (-(-n // 128), 2, 1)),
    )
    np.testing.assert_allclose(
        out[:, :n], exact.forward(*given, 0.125 * np.log(2), causal=False)[0], atol=4e-3
    )
    assert (out[:, n:] == 77).all()
