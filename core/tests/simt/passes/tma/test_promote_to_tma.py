"""Loads at pointers that are raised to TMA copies, on the emulated machine: results are those of
NumPy, whenever copies end, and nothing outside the matrices is seen or touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pointer_kernels import (
    KERNELS,
    attention,
    batched,
    dot_module,
    kernel_module,
    matrix,
    part_of_the_sum,
    persistent_attention,
    switched,
)

from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.testing.toy_targets import BulkTarget

MODES = ("late", "early", "random")


def product(
    name: str,
    shape: tuple[int, int, int],
    turned: tuple[bool, bool] = (False, False),
    block: tuple[int, int, int] = (16, 8, 8),
    **options: Any,
) -> list[str]:
    """Run a kernel on matrices of small whole numbers amid NaNs; the operations of what was
    compiled."""
    m, n, k = shape
    rng = np.random.default_rng(m * n + k)
    a, b = (rng.integers(-3, 4, extents).astype(np.float16) for extents in ((m, k), (k, n)))
    x, y = (matrix(values, turns, np.nan) for values, turns in zip((a, b), turned, strict=True))
    c = np.full((m + 3, n + 5), 77, np.float32)
    module = dot_module(KERNELS[name], "fp16", "fp32", block, transposed=turned)
    programs = 2 if name == "persistent" else -(-m // block[0]) * -(-n // block[1])
    strides = [
        step // 2
        for turns, array in zip(turned, (x, y), strict=True)
        for step in (array.strides[1:] if turns else array.strides[:1])
    ]
    target = BulkTarget(
        8, raises=16, **{key: options.pop(key) for key in ("completion", "seed") if key in options}
    )
    emulator.run(
        module,
        [x, y, c, m, n, k, *strides, c.shape[1]],
        (programs, 1, 1),
        target=target,
        **{"num_warps": 2, "num_stages": 3, **options},
    )
    expected = np.full_like(c, 77)
    expected[:m, :n] = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(c, expected)
    return [operation.name for operation in kernel_of(module).walk()]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(16, 8, 8), (33, 23, 19), (5, 3, 40)], ids=str)
def test_products_by_pointers(name: str, shape: tuple[int, int, int], completion: str) -> None:
    found = product(name, shape, completion=completion, seed=3)
    assert (
        "simt.block_load_start" in found
        and found.count("simt.tensor") == 2
        and "load" not in found
        and "simt.copy_start" not in found
    )


@pytest.mark.each_value
@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_turned_operands(name: str, turned: tuple[bool, bool]) -> None:
    assert product(name, (21, 13, 27), turned).count("simt.tensor") == 2


@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129])
def test_any_depth(k: int) -> None:
    assert "simt.block_load_start" in product("wrapping", (19, 9, k), completion="random", seed=k)


def test_divided_among_warps() -> None:
    found = product("wrapping", (33, 23, 40), warp_specialize=True)
    assert "simt.partition" in found


@pytest.mark.parametrize("completion", MODES)
def test_an_axis_that_tiles_have_not(completion: str) -> None:
    m, n, k, batches = 19, 13, 21, 3
    rng = np.random.default_rng(5)
    a, b = (
        rng.integers(-3, 4, (batches, *extents)).astype(np.float16) for extents in ((m, k), (k, n))
    )
    x, y = (np.full((batches, values.shape[1] + 1, 32), np.nan, np.float16) for values in (a, b))
    for stored, values in ((x, a), (y, b)):
        stored[:, : values.shape[1], : values.shape[2]] = values
    c = np.full((batches, m, n), 77, np.float32)
    module = kernel_module(
        batched,
        {"a": "*fp16", "b": "*fp16", "c": "*fp32"},
        {"BM": 16, "BN": 8, "BK": 8},
        ("a", "b", "a_batch", "a_row", "b_batch", "b_row"),
    )
    arguments = [x, y, c, m, n, k, x.shape[1] * 32, 32, y.shape[1] * 32, 32, m * n, n]
    emulator.run(
        module,
        arguments,
        (4, batches, 1),
        target=BulkTarget(8, raises=16, completion=completion),
        num_warps=2,
        num_stages=3,
    )
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
    blocks = [
        str(operation.results[0].type)
        for operation in kernel_of(module).walk()
        if operation.name == "simt.tensor"
    ]
    assert blocks == ["desc<1x16x8xf16>", "desc<1x8x8xf16>"]


@pytest.mark.parametrize("allowed", [0, 1])
def test_masks_that_switch_a_load_off(allowed: int) -> None:
    n, s = 24, 16
    rng = np.random.default_rng(allowed)
    a, b = (rng.integers(-3, 4, extents).astype(np.float16) for extents in ((2, s, n), (2, n, s)))
    c = np.full((3, s, s), 77, np.float32)
    module = kernel_module(
        switched, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, {"S": s, "BK": 16}, ("a", "b", "n")
    )
    emulator.run(
        module,
        [np.append(a, np.float16("nan")), np.append(b, np.float16("nan")), c, n, 2, allowed],
        (3, 1, 1),
        target=BulkTarget(8, raises=16),
        num_warps=2,
        num_stages=2,
    )
    expected = np.zeros((3, s, s))
    expected[:2] = allowed * (a.astype(np.float64) @ b.astype(np.float64))
    np.testing.assert_array_equal(c, expected)
    found = [operation for operation in kernel_of(module).walk() if operation.name == "simt.tensor"]
    assert [str(operation.results[0].type) for operation in found] == ["desc<1x16x16xf16>"] * 2


@pytest.mark.parametrize("first", [0, 1, 2])
def test_from_before_the_matrix_and_from_the_middle_of_the_sum(first: int) -> None:
    m, n, k = 37, 13, 45
    rng = np.random.default_rng(first)
    a, b = (rng.integers(-3, 4, extents).astype(np.float16) for extents in ((m, k), (k, n)))
    x, y = (matrix(values, False, np.nan) for values in (a, b))
    c = np.full((m, n), 77, np.float32)
    types, aligned = {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, ("a", "b", "a_row", "b_row")
    module = kernel_module(part_of_the_sum, types, {"BM": 16, "BN": 8, "BK": 8}, aligned)
    arguments = [x, y, c, m, n, k, x.strides[0] // 2, y.strides[0] // 2, n, first]
    emulator.run(
        module, arguments, (6, 1, 1), target=BulkTarget(8, raises=16), num_warps=2, num_stages=2
    )
    expected = np.zeros((m, n))
    expected[8:] = a[:-8, 16 * first :].astype(np.float64) @ b[16 * first :].astype(np.float64)
    np.testing.assert_array_equal(c, expected)
    assert [operation.name for operation in kernel_of(module).walk()].count("simt.tensor") == 2


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("n", [8, 21])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_attention(n: int, completion: str, is_persistent: bool) -> None:
    """What is read beyond the keys is zero, and no score.

    Persistent programs copy their queries by TMA, too, in a loop around that over keys.
    """
    head, heads = 8, 2
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((heads, n, head)).astype(np.float16) for _ in range(3))
    out = np.full((heads, n + 1, head), 77, np.float32)
    keys, values, queries = (np.full((heads, n + 1, head), np.nan, np.float16) for _ in range(3))
    for stored, given in ((queries, q), (keys, k), (values, v)):
        stored[:, :n] = given
    types = dict.fromkeys("qkv", "*fp16") | {"out": "*fp32", "scale": "fp32"}
    module = kernel_module(
        persistent_attention if is_persistent else attention,
        types,
        {"BM": 16, "BN": 8, "HEAD": head},
        ("q", "k", "v", "q_head", "k_head"),
    )
    arguments = [queries, keys, values, out, n, (n + 1) * head, (n + 1) * head, 0.25]
    emulator.run(
        module,
        [*arguments, *([heads] if is_persistent else [])],
        (2, 1, 1) if is_persistent else (-(-n // 16), heads, 1),
        target=BulkTarget(8, raises=16, completion=completion),
        num_warps=2,
        num_stages=2,
    )
    scores = np.exp2(0.25 * q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2))
    expected = scores / scores.sum(axis=2, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(out[:, :n], expected, atol=2e-3)
    assert (out[:, n:] == 77).all()
    found = [operation for operation in kernel_of(module).walk() if operation.name == "simt.tensor"]
    blocks = ["desc<1x8x8xf16>"] * 2 + ["desc<1x16x8xf16>"] * is_persistent
    assert [str(operation.results[0].type) for operation in found] == blocks
