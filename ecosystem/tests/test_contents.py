"""Runs of whole numbers, by which a record says what a tensor holds."""

from __future__ import annotations

import numpy as np
import pytest
from corpus.contents import filled, runs_of


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ([2048] * 128, ((2048, 0, 1),)),
        ([0, 1024, 2048, 4096], ((0, 1024, 3), (4096, 0, 1))),
        ([i % 32 for i in range(4096)], ((0, 1, 32),)),
        (list(range(100, 200)), ((100, 1, 100),)),
        ([5, 3, 9, 1], ((5, -2, 2), (9, -8, 2))),
        ([0, 1, 0, 1, 0], ((0, 1, 2),)),
        ([3], ((3, 0, 1),)),
        ([], ()),
    ],
)
def test_runs_of_the_part_that_is_repeated(
    values: list[int], runs: tuple[tuple[int, int, int], ...]
) -> None:
    assert runs_of(values) == runs


def test_numbers_without_order_are_not_told() -> None:
    assert (
        runs_of([int(each) for each in np.random.default_rng(0).integers(0, 1 << 20, 4096)]) == ()
    )


def test_runs_give_the_numbers_again() -> None:
    random = np.random.default_rng(0)
    for _ in range(500):
        part = random.integers(0, 3, int(random.integers(1, 12)))
        values = np.resize(part, int(random.integers(1, 40)))
        assert (
            filled(runs_of(values.tolist()), len(values), np.dtype("i8")).tolist()
            == values.tolist()
        )
