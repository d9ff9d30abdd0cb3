"""Kernels written in the language, against NumPy, in the plain and in the checked mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.interpreter import run
from tilewright_conformance.cases.control.control.whiles import search

MODES = pytest.mark.parametrize("checked", [None, CheckedOptions()], ids=["plain", "checked"])


def build(fn, signature, **constants):
    return compile_function(fn, {**signature, **dict.fromkeys(constants, "constexpr")}, constants)


@device_function
def matmul(a, b, c, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        x = tl.load(
            a + rows[:, None] * K + inner[None, :],
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + inner[:, None] * N + columns[None, :],
            mask=(inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@MODES
def test_matmul_of_odd_sizes(checked, rng):
    m, n, k = 37, 50, 29
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    signature = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    run(build(matmul, signature, BLOCK=16), [a, b, c, m, n, k], (3, 4, 1), checked=checked)
    assert np.allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@device_function
def row_statistics(x, softmax_out, argmax_out, scan_out, sorted_out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    mask = lanes < n
    v = tl.load(x + row * n + lanes, mask=mask, other=-float("inf"))
    tl.store(softmax_out + row * n + lanes, tl.softmax(v), mask=mask)
    tl.store(argmax_out + row, tl.argmax(v, 0))
    tl.store(scan_out + row * n + lanes, tl.cumsum(tl.where(mask, v, 0.0), 0), mask=mask)
    tl.store(sorted_out + row * n + lanes, tl.sort(v, descending=True), mask=mask)


@MODES
def test_reductions_scans_and_sort(checked, rng):
    rows, n = 7, 51
    x = rng.normal(size=(rows, n)).astype(np.float32)
    softmax, scan, ordered = (np.zeros_like(x) for _ in range(3))
    argmax = np.zeros(rows, np.int32)
    signature = {
        "x": "*fp32",
        "softmax_out": "*fp32",
        "argmax_out": "*i32",
        "scan_out": "*fp32",
        "sorted_out": "*fp32",
        "n": "i32",
    }
    run(
        build(row_statistics, signature, BLOCK=64),
        [x, softmax, argmax, scan, ordered, n],
        (rows, 1, 1),
        checked=checked,
    )
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(softmax, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert np.array_equal(argmax, x.argmax(1))
    assert np.allclose(scan, np.cumsum(x, 1), rtol=1e-4, atol=1e-5)
    assert np.array_equal(ordered, -np.sort(-x, 1))


@MODES
def test_binary_search_diverges(checked, rng):
    table = np.sort(rng.integers(0, 1000, 77)).astype(np.int32)
    keys = rng.integers(-5, 1010, 60).astype(np.int32)
    places = np.zeros(60, np.int32)
    signature = {"keys": "*i32", "wanted": "*i32", "out": "*i32", "n": "i32"}
    run(build(search, signature), [table, keys, places, 77], (60, 1, 1), checked=checked)
    assert np.array_equal(places, np.searchsorted(table, keys))


@device_function
def dropout(x, out, n, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    keep = tl.rand(seed, offsets) > 0.3
    v = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, tl.where(keep, v / 0.7, 0.0), mask=mask)


def test_random_numbers_are_clean_in_the_checked_mode(rng):
    x = rng.normal(size=1000).astype(np.float32)
    outs = [np.zeros_like(x), np.zeros_like(x)]
    module = build(dropout, {"x": "*fp32", "out": "*fp32", "n": "i32", "seed": "i32"}, BLOCK=128)
    run(module, [x, outs[0], 1000, 42], (8, 1, 1))
    run(module, [x, outs[1], 1000, 42], (8, 1, 1), checked=CheckedOptions())
    kept = outs[0] != 0
    assert np.array_equal(outs[0], outs[1])
    assert 0.62 < kept.mean() < 0.78
    assert np.allclose(outs[0][kept], x[kept] / 0.7, rtol=1e-6)


@device_function
def forgets_the_mask(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + tl.program_id(0), tl.sum(v, 0))  # lanes past n are masked off


def test_a_mistake_in_a_kernel_is_found_with_its_line(rng):
    module = build(forgets_the_mask, {"x": "*fp32", "out": "*fp32", "n": "i32"}, BLOCK=32)
    with pytest.raises(Exception, match="masked-off-lane") as caught:
        run(
            module,
            [np.ones(40, np.float32), np.zeros(2, np.float32), 40],
            (2, 1, 1),
            checked=CheckedOptions(masked_off=True),
        )
    (finding,) = caught.value.findings
    lines = Path(__file__).read_text().splitlines()
    assert "lanes past n are masked off" in lines[finding.location.line - 1]
    assert finding.program == (1, 0, 0)
