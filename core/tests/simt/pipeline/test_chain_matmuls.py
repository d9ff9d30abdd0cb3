"""Matmuls that accumulate one after the other in flight, in the emulator with any completion order.

The kernel attends to rows whose keys are longer than their values: scores are the sum of two
matmuls. Small integers keep sums exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from matmul_kernels import build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.analysis.async_hazards import check_in_flight
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget


@device_function
def latent(q, q_rope, rows, ropes, out, n, BETWEEN: tl.constexpr):
    queries, query_ropes = q.load([0, 0]), q_rope.load([0, 0])
    total = tl.zeros([16, 8], dtype=tl.float32)
    for start in tl.range(0, n, 16, warp_specialize=True):
        values, rope = rows.load([start, 0]), ropes.load([start, 0])
        scores = tl.dot(queries, values.T)
        if BETWEEN:
            scores = tl.abs(scores)
        scores = tl.dot(query_ropes, rope.T, scores)
        total = tl.dot(scores, values, total)
    out.store([0, 0], total)


def run(n: int, completion: str, between: bool = False) -> Module:
    """Run the kernel on ``n`` rows, check its result, and return its final form."""
    rng = np.random.default_rng(n)
    q, q_rope, rows, ropes = (
        rng.integers(-2, 3, (max(extent, 1), 8)).astype(np.float32) for extent in (16, 16, n, n)
    )
    out = np.full((16, 8), np.nan, np.float32)
    blocks = dict.fromkeys(("q", "q_rope", "rows", "ropes", "out"), "tensordesc<fp32[16,8]>")
    module = build(latent, {**blocks, "n": "i32"}, BETWEEN=between)
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (q, q_rope, rows, ropes, out)), n],
        num_warps=2,
        target=BulkTarget(8, rows=True),
        num_stages=2,
        completion=completion,
        seed=n,
    )
    scores = q @ rows[:n].T
    scores = (np.abs(scores) if between else scores) + q_rope @ ropes[:n].T
    np.testing.assert_array_equal(out, scores @ rows[:n])
    check_in_flight(kernel_of(module))
    return module


@pytest.mark.parametrize(
    ("n", "completion"), [(0, "late"), (16, "early"), (48, "crossed"), (80, "random"), (64, "late")]
)
def test_scores_of_two_matmuls(n: int, completion: str) -> None:
    run(n, completion)


@pytest.mark.parametrize("between", [False, True])
def test_who_reads_a_result_waits_for_it(between: bool) -> None:
    module = run(32, "late", between)
    starts = operations(module, "simt.dot_start")
    in_flight = {start.results[0] for start in starts}
    continued = [start for start in starts if start.c in in_flight]
    waits = [
        wait
        for wait in operations(module, "simt.wait")
        if any(token.type is MATMULS for token in wait.tokens)
    ]
    assert bool(continued) != between
    assert len(waits) == len(starts) - len(continued)
