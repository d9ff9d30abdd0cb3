"""Control flow."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe
from tilewright_conformance.api_coverage.probes.debug import refusal


@tw.jit
def control(x, out, n):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(out, -1)
        return
    value = tl.load(x + pid)
    total = 0
    for i in range(n):
        if value % 2 == 0:
            total += i
        elif value % 3 == 0:
            total += 2 * i
        else:
            total -= 1
    while total > 10:
        total -= 10
    tl.store(out + pid, total if (kept := total > 3) else 0)
    tl.static_assert(kept.dtype == tl.int1)


@probe(
    "syntax.for",
    "syntax.while",
    "syntax.if",
    "syntax.return",
    "syntax.walrus",
    "syntax.ternary",
    "python.range",
)
def control_flow(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16), np.zeros(16, np.int32)
    on(control)[(16,)](x, out, 7)
    expected = [-1]
    for value in x[1:].tolist():
        total = sum(i if value % 2 == 0 else 2 * i if value % 3 == 0 else -1 for i in range(7))
        while total > 10:
            total -= 10
        expected.append(total if total > 3 else 0)
    np.testing.assert_array_equal(out, expected)


@tw.jit
def leaves_loops(x, out, n):
    row = tl.program_id(0)
    found = -1
    for i in range(n):
        value = tl.load(x + row * n + i)
        if value < 0:
            continue
        if value > 90:
            found = i
            break
    tl.store(out + row, found)
    for i in range(n):
        if tl.load(x + row * n + i) == 50:
            return
    tl.store(out + row, found + 1000)


@probe("syntax.break", "syntax.continue", "syntax.return_in_loop")
def leaving_loops(on: Machine, rng: Any) -> None:
    x, out = rng.integers(-99, 99, (16, 40)), np.zeros(16, np.int32)
    on(leaves_loops)[(16,)](x, out, 40)
    first = np.where((x > 90).any(1), (x > 90).argmax(1), -1)
    np.testing.assert_array_equal(out, np.where((x == 50).any(1), first, first + 1000))


@tw.jit
def changes_type(out, n):
    x = 0
    for _ in range(n):
        x = x + 0.5
    tl.store(out, x)


@tw.jit
def assigns_elements(out, N: tl.constexpr):
    x = tl.zeros((N,), tl.float32)
    x[0] = 1.0
    tl.store(out + tl.arange(0, N), x)


@probe("syntax.for", "operator []")
def errors_of_syntax(on: Machine, rng: Any) -> None:
    out = np.zeros(4, np.float32)
    assert "Loop-carried variable x" in str(refusal(on(changes_type)[(1,)], out, 3))
    error = refusal(on(assigns_elements)[(1,)], out, N=4)
    assert "__setitem__ is not supported" in str(error)
    assert "control.py" in str(error)  # every error says where
