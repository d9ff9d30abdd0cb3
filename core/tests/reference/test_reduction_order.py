"""The orders of reductions, scans and matmuls on the reference, which is their definition.

Probes find the tree of a sum: of ones, with 2**60 at i and -2**60 at j, the sum is n minus the size
of the smallest subtree that holds both.
"""

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.order import tree_bits
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import VerificationError, verify
from tilewright.reference.interpreter import run

ORDERS = ("tree", "sequential")


@tw.jit
def sum_rows(x: Any, out: Any, n: tl.constexpr, rows: tl.constexpr, order: tl.constexpr) -> None:
    row = tl.arange(0, rows)
    values = tl.load(x + row[:, None] * n + tl.arange(0, n)[None, :])
    tl.store(out + row, tl.sum(values, 1, order=order))


@tw.jit
def scan_rows(
    x: Any,
    out: Any,
    n: tl.constexpr,
    rows: tl.constexpr,
    reverse: tl.constexpr,
    order: tl.constexpr,
) -> None:
    at = tl.arange(0, rows)[:, None] * n + tl.arange(0, n)[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 1, reverse, order=order))


@tw.jit(order="tree")
def sum_by_default(x: Any, out: Any, n: tl.constexpr) -> None:
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, n)), 0))


@tw.jit
def multiply(
    a: Any, b: Any, c: Any, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr, order: tl.constexpr
) -> None:
    i, j, kk = tl.arange(0, m), tl.arange(0, n), tl.arange(0, k)
    x = tl.load(a + i[:, None] * k + kk[None, :])
    y = tl.load(b + kk[:, None] * n + j[None, :])
    at = c + i[:, None] * n + j[None, :]
    tl.store(at, tl.dot(x, y, tl.load(at), order=order))


def spread(shape: Any, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-12, 13, shape)
    return values.astype(np.float32)


def subtree(order: str, n: int, i: int, j: int) -> int:
    """Return the size of the smallest subtree of an order that holds elements i and j."""
    if order == "sequential":
        return max(i, j) + 1
    combined = 0
    for bit in tree_bits(n):
        combined |= 1 << bit
        if not (i ^ j) & ~combined:
            break
    return sum(not (i ^ other) & ~combined for other in range(n))


TEXT = """\
tilewright.ir 1.0
kernel @k(%x: ptr<f32>, %out: ptr<f32>) {{
  %pid = program_id {{axis = 0}} : i32
  %n = constant {{value = {n}}} : i32
  %first = mul %pid, %n : i32
  %from = addptr %x, %first : ptr<f32>
  %all = splat %from : tile<{n}xptr<f32>>
  %offsets = arange {{start = 0, end = {n}}} : tile<{n}xi32>
  %pointers = addptr %all, %offsets : tile<{n}xptr<f32>>
  %values = load %pointers : tile<{n}xf32>
  %sum = reduce %values {{axis = 0, order = {order}}} : f32 combine(%a: f32, %b: f32) {{
    %s = add %a, %b : f32
    yield %s
  }}
  %to = addptr %out, %pid : ptr<f32>
  store %to, %sum
  return
}}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 13, 32])
def test_the_tree_of_a_sum_is_the_one_of_its_order(n: int, order: str) -> None:
    pairs = list(itertools.combinations(range(n), 2)) or [(0, 0)]
    x = np.ones((len(pairs), n), np.float32)
    for row, (i, j) in enumerate(pairs):
        if i != j:
            x[row, i], x[row, j] = 2.0**60, -(2.0**60)
    out = np.zeros(len(pairs), np.float32)
    module = parse_module(TEXT.format(n=n, order=order))
    run(module, [x, out], (len(pairs), 1, 1))
    expected = [n - subtree(order, n, i, j) if i != j else n for i, j in pairs]
    assert out.tolist() == expected


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 8, 32])
def test_scans_follow_their_order(n: int, reverse: bool) -> None:
    x = spread((4, n))
    found = {}
    for order in ORDERS:
        found[order] = np.zeros_like(x)
        scan_rows[(1,)](x, found[order], n, 4, reverse, order, backend="reference")
    values = x[:, ::-1] if reverse else x
    expected = np.cumsum(values, 1, dtype=np.float32)
    tree = values.copy()
    for bit in range((n - 1).bit_length()):
        for i in range(n):
            if i >> bit & 1:
                tree[:, i] = tree[:, (i >> bit << bit) - 1] + tree[:, i]
    for order, wanted in (("sequential", expected), ("tree", tree)):
        wanted = wanted[:, ::-1] if reverse else wanted
        assert found[order].tobytes() == np.ascontiguousarray(wanted).tobytes(), order


def test_a_kernel_states_the_order_of_its_reductions() -> None:
    x = spread(64)
    found, expected = np.zeros(1, np.float32), np.zeros(1, np.float32)
    sum_by_default[(1,)](x, found, 64, backend="reference")
    sum_rows[(1,)](x, expected, 64, 1, "tree", backend="reference")
    assert found.tobytes() == expected.tobytes()
    plain = tw.jit(sum_by_default.fn)
    assert plain.cache_key != sum_by_default.cache_key
    with pytest.raises(tw.TilewrightError, match="order of jit must be one of"):
        tw.jit(order="sorted")(sum_by_default.fn)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_matmuls_follow_their_order(dtype: Any) -> None:
    wide = np.float64 if dtype is np.float64 else np.float32
    a, b = spread((4, 16)).astype(dtype), spread((16, 8), 1).astype(dtype)
    c = spread((4, 8), 2).astype(wide)
    found = {order: c.copy() for order in ORDERS}
    for order in ORDERS:
        multiply[(1,)](a, b, found[order], 4, 8, 16, order, backend="reference")
    left, right = a.astype(wide), b.astype(wide)
    if dtype is np.float16:  # whose multiplications are exact in float32
        sequential = c.copy()
        for k in range(16):
            sequential += left[:, k, None] * right[None, k, :]
        assert found["sequential"].tobytes() == sequential.tobytes()
    terms = np.ascontiguousarray((left[:, :, None] * right[None]).transpose(0, 2, 1))
    tree = np.zeros(32, wide)
    sum_rows[(1,)](terms.reshape(32, 16), tree, 16, 32, "tree", backend="reference")
    assert found["tree"].tobytes() == (c + tree.reshape(4, 8)).tobytes()
    np.testing.assert_allclose(found["sequential"], left @ right + c, rtol=1e-2, atol=1)


def test_the_order_is_absent_from_the_text_where_it_is_any() -> None:
    module = parse_module(TEXT.format(n=4, order="tree"))
    assert "order = tree" in print_module(module)
    assert "order" not in print_module(parse_module(TEXT.format(n=4, order="any")))
    with pytest.raises(VerificationError, match="order must be one of"):
        verify(parse_module(TEXT.format(n=4, order="sorted")))
