"""Watched launches on the GPU report what the reference interpreter reports, each many times."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_support import gpu_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.debug import WatchReport, watch

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_is_there() or not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"
    ),
]

REPEATS = 20


@tw.jit
def scores(q, k, out, n, BLOCK: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    depth = tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + depth[None, :], rows[:, None] < n, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        y = tl.load(k + columns[:, None] * D + depth[None, :], columns[:, None] < n, other=0.0)
        total += tl.sum(tl.exp(tl.dot(x, y.T)), 1)
    tl.store(out + rows, tl.log(total), rows < n)


def counts(report: WatchReport) -> list[tuple[object, ...]]:
    """All that does not depend on how floats are rounded."""
    return [
        (v.operation, v.line, v.count, v.nan, v.inf, v.first_nan, v.first_inf, v.nan_origins)
        for v in report.values
    ]


def test_a_report_is_that_of_the_reference_interpreter() -> None:
    rng = np.random.default_rng(3)
    q, k = (rng.normal(size=(100, 32)).astype(np.float16) for _ in range(2))
    q[77, 3], k[12, 5] = np.nan, np.inf
    expected = watch(scores)[(4,)](
        q, k, np.zeros(100, np.float32), 100, BLOCK=32, D=32, backend="reference"
    )
    a, b = torch.tensor(q, device="cuda"), torch.tensor(k, device="cuda")
    for _ in range(REPEATS):
        out = torch.full((100,), 7.0, device="cuda")
        found = watch(scores)[(4,)](a, b, out, 100, BLOCK=32, D=32)
        assert counts(found) == counts(expected)
        for ours, theirs in zip(found.values, expected.values, strict=True):
            for one, other in (
                (ours.minimum, theirs.minimum),
                (ours.maximum, theirs.maximum),
                (ours.mean, theirs.mean),
            ):
                assert one == pytest.approx(other, rel=1e-3, abs=1e-3)
