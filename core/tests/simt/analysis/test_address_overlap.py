"""Overlap of two accesses' addresses: the equation that decides it."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tilewright.simt.analysis.address_overlap import has_solution


@pytest.mark.parametrize("seed", range(40))
def test_sums_are_found_exactly(seed: int) -> None:
    draw = random.Random(seed)
    terms = [
        (draw.choice((-1, 1)) * draw.randint(0, 9), low, low + draw.randint(0, 4))
        for low in (draw.randint(-4, 0) for _ in range(draw.randint(0, 4)))
    ]
    sums = {
        sum(choice)
        for choice in itertools.product(
            *([factor * x for x in range(low, high + 1)] for factor, low, high in terms)
        )
    }
    for target in range(-120, 121):
        assert has_solution(terms, target) == (target in sums), (terms, target)


def test_numbers_without_bound() -> None:
    columns = [(1, 0, 31), (-1, 0, 31)]
    assert not has_solution([*columns, (64, 1, math.inf)], 32)
    assert has_solution([*columns, (64, 1, math.inf)], 33)
    assert not has_solution([*columns, (64, -math.inf, -1)], 0)
    anything = [(64, -math.inf, math.inf), (96, -math.inf, math.inf)]  # multiples of 32
    assert has_solution([*anything, (1, 0, 15)], 32 * 1001 + 15)
    assert not has_solution([*anything, (1, 0, 15)], 32 * 1001 + 16)
    assert has_solution([(6, 0, math.inf), (10, -math.inf, math.inf)], 2)
    assert not has_solution([(6, 0, math.inf), (10, -math.inf, math.inf)], 1)


def test_what_takes_long_to_tell_may_be() -> None:
    assert has_solution([(1000 + 3 * i, 0, 1 << 20) for i in range(6)], 10**9 + 1)
