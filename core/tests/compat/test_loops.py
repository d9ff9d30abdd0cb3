"""Loops are left at their end only, as in Triton: the extensions of the language do not reach
kernels written for it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402


def returns_in_for(x, n):
    for i in range(n):
        if tl.load(x + i) == 3:
            return
        tl.store(x + i, 1)


def returns_in_while(x, n):
    i = 0
    while i < n:
        if tl.load(x + i) == 3:
            return
        tl.store(x + i, 1)
        i += 1


def breaks(x, n):
    for i in range(n):
        if tl.load(x + i) == 3:
            break
        tl.store(x + i, 1)


def continues(x, n):
    for i in range(n):
        if tl.load(x + i) != 0:
            continue
        tl.store(x + i, 1)


def returns_after(x, n):
    for i in tl.static_range(2):
        tl.store(x + i, 1)
    if n == 7:
        return
    tl.store(x + 2, 1)


def returns_in_unrolled(x, n):
    for i in tl.static_range(4):
        tl.store(x + i, 1)
        if i == 1:
            return


@pytest.mark.parametrize(
    ("function", "message", "line"),
    [
        (returns_in_for, "Cannot have `return` statements inside `while` or `for`", "at 4:12:"),
        (returns_in_while, "Cannot have `return` statements inside `while` or `for`", "at 5:12:"),
        (breaks, "unsupported AST node type: Break", "at 4:12:"),
        (continues, "unsupported AST node type: Continue", "at 4:12:"),
    ],
)
def test_jumps_out_of_loops_are_refused(function, message, line):
    with pytest.raises(triton.CompilationError) as raised:
        triton.jit(function)[(1,)](torch.zeros(4, dtype=torch.int32), 4)
    assert message in str(raised.value)
    assert line in str(raised.value)
    x = np.array([0, 0, 3, 0], np.int32)
    tw.jit(function)[(1,)](x, 4)
    assert x.tolist() == [1, 1, 3, 1 if function is continues else 0]


@pytest.mark.parametrize(
    ("function", "expected"), [(returns_after, [1, 1, 0, 0]), (returns_in_unrolled, [1, 1, 0, 0])]
)
def test_returns_elsewhere_are_not(function, expected):
    x = torch.zeros(4, dtype=torch.int32)
    triton.jit(function)[(1,)](x, 7)
    assert x.tolist() == expected
