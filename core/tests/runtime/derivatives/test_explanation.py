"""Explanations of adjoints, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < n)


@tw.jit
def scaled(x, w, out, n, BLOCK: tl.constexpr):
    """Each row times a weight that all programs read."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + at, mask=at < n)
    tl.store(out + row * n + at, v * tl.load(w + at, mask=at < n), mask=at < n)


@tw.jit
def recurrence(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.zeros([BLOCK], tl.float32)
    for i in range(n):
        h = tl.sin(h * 0.7 + tl.load(x + i * 64 + at))
    tl.store(out + at, h)


@tw.jit
def picked(x, index, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sin(tl.load(x + tl.load(index + at))))


@tw.jit
def averages(scores, values, out, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Averages of values by online softmax: a gauge."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    highest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mean = tl.zeros([ROWS], tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        at = rows[:, None] * n + columns[None, :]
        inside = columns[None, :] < n
        s = tl.load(scores + at, mask=inside, other=-float("inf"))
        v = tl.load(values + at, mask=inside, other=0.0)
        new = tl.maximum(highest, tl.max(s, axis=1))
        weights = tl.exp2(s - new[:, None])
        correction = tl.exp2(highest - new)
        total = total * correction + tl.sum(weights, axis=1)
        mean = mean * correction + tl.sum(weights * v, axis=1)
        highest = new
    tl.store(out + rows, mean / total)


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with tw.backend("reference"):
        yield


X, W = np.zeros((5, 100), "f4"), np.zeros(100, "f4")


def test_a_condition_that_holds_and_what_could_be_saved() -> None:
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    found = adjoint.explain(X, X, 100, 100, grid=(5,), BLOCK=128, d_out=X, d_x=X.copy())
    lines = str(found).splitlines()
    assert lines[:7] == [
        "softmax_vjp for reference numpy",
        "gradients:",
        "  x  stored: one program alone writes each element, once (one program alone loads each "
        "element, once)",
        "kernels:",
        "  softmax_vjp, grid (5, 1, 1) of (grid[0],): writes the gradient of x (store)",
        "conditions:",
        "  stride >= n: 100 >= 100 holds",
    ]
    assert lines[7] == "residuals:"
    before, after = found.savings[0].before, found.savings[0].after
    assert lines[8] == (
        f"  out is computed again: named in saved, it leaves {after} of {before} operations"
    )
    assert [value.name for value in found.proposals] == ["the maximum", "the sum"]
    assert "test_explanation.py:" in lines[9] and "/" not in lines[9]
    reading = tw.vjp(softmax, outputs="out", wrt="x", saved="out")
    left = reading.explain(X, X, 100, 100, grid=(5,), BLOCK=128, d_out=X, d_x=X.copy())
    assert not left.savings and not left.proposals
    # the counts are of the kernels that there are
    plan = reading.plan(X, X, 100, 100, grid=(5,), BLOCK=128, d_out=X, d_x=X.copy())
    assert after == sum(1 for kernel in plan.kernels for _ in kernel.module.kernel.walk())
    assert after < before


def test_a_condition_that_fails_is_the_reason_for_atomics() -> None:
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    found = adjoint.explain(X, X, 100, 64, grid=(5,), BLOCK=128, d_out=X, d_x=X.copy())
    assert found.inputs["x"][0] == "atomic"
    assert "do not satisfy" in found.inputs["x"][1] and "stride >= n" in found.inputs["x"][1]
    assert "  stride >= n: 64 >= 100 does not hold" in str(found).splitlines()


def test_partial_sums_with_their_memory() -> None:
    adjoint = tw.vjp(scaled, outputs="out", wrt=("x", "w"))
    x = np.zeros((500, 100), "f4")
    cotangents = {"d_out": x, "d_x": x.copy(), "d_w": W.copy()}
    found = adjoint.explain(x, W, x.copy(), 100, grid=(500,), BLOCK=128, **cotangents)
    assert {name: way for name, (way, _) in found.inputs.items()} == {"x": "store", "w": "partial"}
    first, second = found.kernels
    (buffer,) = found.scratch
    assert first.grid == (buffer.programs, 1, 1) and second.grid == (1, 1, 1)
    assert buffer.bytes == buffer.programs * 128 * 4
    assert dict(first.writes) == {"x": "store"} and dict(second.writes) == {"w": "partial"}
    assert f"of each of {buffer.programs} programs" in str(found)


def test_a_tape() -> None:
    adjoint = tw.vjp(recurrence, outputs="out", wrt="x")
    x, out = np.zeros((6, 64), "f4"), np.zeros(64, "f4")
    found = adjoint.explain(x, out, 6, grid=(2,), BLOCK=32, d_out=out, d_x=x.copy())
    ((place, way, _),) = found.loops
    assert way == "tape" and "test_explanation.py" in place
    (tape,) = found.tapes
    assert (tape.programs, tape.bytes) == (2, 2 * 32 * 4)
    assert ": 32 of f32 of each of 2 programs, 256 bytes an iteration" in str(found)


def test_an_online_softmax_proposes_the_logarithm_of_its_sum() -> None:
    adjoint = tw.vjp(averages, outputs="out", wrt=("scores", "values"), saved="out")
    x, out = np.zeros((8, 100), "f4"), np.zeros(8, "f4")
    cotangents = {"d_out": out, "d_scores": x.copy(), "d_values": x.copy()}
    blocks = {"ROWS": 4, "BLOCK": 16}
    found = adjoint.explain(x, x.copy(), out.copy(), 100, grid=(2,), **blocks, **cotangents)
    assert [way for _, way, _ in found.loops] == ["gauge"]
    text = str(found)
    assert "store highest + log2(total), and name that output in saved" in text
    assert {way for way, _ in found.inputs.values()} == {"store"}


def test_what_stays_atomic_says_why() -> None:
    adjoint = tw.vjp(picked, outputs="out", wrt="x")
    index, out = np.zeros(64, "i4"), np.zeros(64, "f4")
    found = adjoint.explain(W, index, out, grid=(2,), BLOCK=32, d_out=out, d_x=W.copy())
    assert found.inputs["x"][0] == "atomic" and found.inputs["x"][1]


def test_the_record_is_json() -> None:
    adjoint = tw.vjp(softmax, outputs="out", wrt="x")
    found = adjoint.explain(X, X, 100, 64, grid=(5,), BLOCK=128, d_out=X, d_x=X.copy())
    record = json.loads(json.dumps(found.record()))
    assert record["gradients"]["x"]["way"] == "atomic"
    assert record["kernels"][0]["grid"] == [5, 1, 1]
    assert {"text": "stride >= n", "values": "64 >= 100", "holds": False} in record["conditions"]
    assert record["savings"][0]["names"] == ["out"]
    assert [one["value"] for one in record["residuals"]] == ["the maximum", "the sum"]
