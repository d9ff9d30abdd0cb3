"""Products by plain pointers with ``asynchronous=True``: loads raised to copies of blocks, their maps made at the launch. Small whole numbers, whose sums are
exact, amid NaNs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "core/tests/simt"))
from gpu_support import launch_on_gpu, prepare
from pointer_kernels import KERNELS, matrix, product_module
from test_gpu_hopper import agree, hopper_is_there, operand, within_patience

import tilewright.language as tl

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here")]

#: By element: its name in the language, what is put around matrices, and what is summed in.
ELEMENTS: dict[str, tuple[str, Any, str]] = {
    "f16": ("fp16", np.nan, "fp32"),
    "bf16": ("bf16", 0x7FC0, "fp32"),
    "f32": ("fp32", np.nan, "fp32"),
    "f8e4m3fn": ("fp8e4nv", 0x7F, "fp32"),
    "i8": ("i8", 77, "i32"),
}


def multiplied(
    name: str, shape: tuple[int, int, int], element: str, turned: tuple[bool, bool], block: tuple[int, int, int], warps: int = 4, stages: int = 3
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    named, poison, result = ELEMENTS[element]
    (left, first), (right, second) = (operand(rng, extents, element, transposed=False) for extents in ((m, k), (k, n)))
    x, y = (matrix(values, turns, poison) for values, turns in zip((left, right), turned, strict=True))
    out = np.full((m + 3, n + 5), 77, np.float32 if result == "fp32" else np.int32)
    sums, precision = getattr(tl, {"fp32": "float32", "i32": "int32"}[result]), "tf32" if element == "f32" else "ieee"
    module = product_module(KERNELS[name], named, result, block, turned=turned, sums=sums, precision=precision)
    launch, memory = prepare(module, asynchronous=True, num_warps=warps, num_stages=stages)
    strides = [step // x.itemsize for turns, array in zip(turned, (x, y), strict=True) for step in (array.strides[1:] if turns else array.strides[:1])]
    programs = 2 if name == "persistent" else -(-m // block[0]) * -(-n // block[1])
    what = f"{name} of {shape} {element} in {block}"
    within_patience(what, lambda: launch_on_gpu(launch, memory, [x, y, out, m, n, k, *strides, out.shape[1]], (programs, 1, 1)))
    expected = np.full(out.shape, 77, np.float64)
    expected[:m, :n] = first @ second
    agree(out.astype(np.float64), expected)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(128, 128, 64), (200, 333, 77), (5, 3, 300)], ids=str)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_products_by_pointers(name: str, shape: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    multiplied(name, shape, "f16", turned, (128, 128, 64))


@pytest.mark.parametrize("k", [1, 2, 15, 63, 64, 65, 127, 128, 129])
def test_any_depth(k: int) -> None:
    multiplied("wrapping", (150, 270, k), "f16", (False, False), (128, 256, 64), warps=8)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("turned", [(False, False), (False, True)], ids=str)
def test_each_type(element: str, turned: tuple[bool, bool]) -> None:
    multiplied("wrapping", (100, 150, 333), element, turned, (64, 128, 32 if element == "f32" else 64))
