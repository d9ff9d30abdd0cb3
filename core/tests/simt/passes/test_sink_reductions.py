"""Sums that loops over matmuls carry: partial sums per thread, reduced after the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.printer import print_module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import run_stages
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget

OPTIONS = {"num_warps": 2, "num_stages": 2, "enable_fp_fusion": False}
M, K = 16, 8


@device_function
def scaled(a, b, out, n, AXIS: tl.constexpr):
    total = tl.full([16], 3.0, tl.float32)
    for i in range(0, n, 8):
        x = tl.dot(a.load([0, i]), b.load([i, 0]))
        total = total * tl.min(x, AXIS) + tl.sum(x, AXIS)
    tl.store(out + tl.arange(0, 16), total)


@device_function
def plain(a, b, out, n, AXIS: tl.constexpr):
    total = tl.zeros([16], tl.float32)
    for i in range(0, n, 8):
        total = tl.sum(tl.dot(a.load([0, i]), b.load([i, 0])), AXIS) + total
    tl.store(out + tl.arange(0, 16), total)


@device_function
def read(a, b, out, n, AXIS: tl.constexpr):
    """Each iteration reads what the sum is so far."""
    total = tl.zeros([16], tl.float32)
    for i in range(0, n, 8):
        total = total + tl.sum(tl.dot(a.load([0, i]), b.load([i, 0])), AXIS)
        total = tl.minimum(total, 5.0)
    tl.store(out + tl.arange(0, 16), total)


def built(fn: Any, axis: int) -> Module:
    signature = {
        "a": f"tensordesc<fp32[{M},{K}]>",
        "b": f"tensordesc<fp32[{K},{M}]>",
        "out": "*fp32",
        "n": "i32",
        "AXIS": "constexpr",
    }
    module = compile_function(fn, signature, {"AXIS": axis})
    run_passes(module)
    return module


def expected(fn: Any, a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    total = np.full(M, 3.0 if fn is scaled else 0.0)
    for i in range(0, a.shape[1], K):
        x = a[:, i : i + K] @ b[i : i + K]
        total = total * (x.min(axis) if fn is scaled else 1.0) + x.sum(axis)
        total = np.minimum(total, 5.0) if fn is read else total
    return total


@pytest.mark.parametrize(("fn", "deferred"), [(scaled, True), (plain, True), (read, False)])
def test_where_threads_add_up(fn: Any, deferred: bool) -> None:
    """Along the first axis, of which the machine's threads have parts."""
    module, target = built(fn, 0), BulkTarget(8)
    run_stages(module, target, OPTIONS, ["prepare", "layouts"])
    before = [operation.name for operation in module.kernel.body]
    run_stages(module, target, OPTIONS, ["sink_reductions"])
    after = [operation.name for operation in module.kernel.body]
    assert (after.count("reduce") - before.count("reduce") == 1) is deferred
    assert (before == after) is not deferred


def test_rows_that_threads_have_whole_are_left() -> None:
    module, target = built(plain, 1), BulkTarget(8, rows=True)
    run_stages(module, target, OPTIONS, ["prepare", "layouts"])
    before = print_module(module)
    run_stages(module, target, OPTIONS, ["sink_reductions"])
    assert print_module(module) == before


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fn", [scaled, plain, read])
@pytest.mark.parametrize("n", [0, 8, 24])
def test_sums(fn: Any, axis: int, n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = (
        rng.integers(-1, 2, shape).astype(np.float32) for shape in ((M, max(n, K)), (max(n, K), M))
    )
    out = np.full(M, np.nan, np.float32)
    emulator.run(
        built(fn, axis),
        [EmulatedDescriptor(a), EmulatedDescriptor(b), out, n],
        (1, 1, 1),
        target=BulkTarget(8),
        **OPTIONS,
    )
    np.testing.assert_array_equal(out, expected(fn, a[:, :n], b[:n], axis))
