"""The library under the debug mode's check for overflow: what has a result in range raises nothing,
whatever its intermediate steps are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit
from tilewright.language.semantic import Options

DEBUG = Options(debug=True)
LEAST, MOST = -(2**31), 2**31 - 1


@jit
def uniform(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.uint_to_uniform_float(tl.load(x + at)))


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_every_pattern_of_bits_is_a_uniform_number(run: Callable[..., None], dtype: str) -> None:
    x = np.array([LEAST, MOST, 0, -1], np.int32).view(dtype)
    out = np.full(4, -1, np.float32)
    run(uniform, x, out, B=4, options=DEBUG)
    np.testing.assert_allclose(out, [0.99999994, 0.99999994, 0, 0], rtol=1e-6)


@jit
def divided(x, by, out):
    tl.store(out, tl.cdiv(tl.load(x), tl.load(by)))


@pytest.mark.parametrize(("x", "by"), [(MOST - 1, 2), (MOST, 1), (1, MOST), (MOST - 63, 64)])
def test_quotients_rounded_up_reach_the_end_of_the_range(
    run: Callable[..., None], x: int, by: int
) -> None:
    out = np.zeros(1, np.int32)
    run(divided, np.array([x], np.int32), np.array([by], np.int32), out, options=DEBUG)
    assert int(out[0]) == -(-x // by)


@jit
def downwards(out, start, stop):
    for i in range(start, stop, -(2**30)):
        tl.store(out, i)
        out += 1


@jit
def downwards_until(out, start, stop):
    for i in range(start, stop, -(2**30)):
        tl.store(out, i)
        out += 1
        if i < 0:
            break


@pytest.mark.parametrize(("kernel", "count"), [(downwards, 4), (downwards_until, 3)])
def test_ranges_count_down_over_the_whole_range(
    run: Callable[..., None], kernel: Any, count: int
) -> None:
    out = np.zeros(6, np.int32)
    run(kernel, out, MOST, LEAST, options=DEBUG)
    assert out.tolist() == list(range(MOST, LEAST, -(2**30)))[:count] + [0] * (6 - count)
