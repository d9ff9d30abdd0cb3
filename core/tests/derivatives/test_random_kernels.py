"""Both modes on random kernels; ``gradient_checks.py`` checks thousands."""

from __future__ import annotations

import pytest
from gradient_checks import DIFFERENCE_TOLERANCE, DOT_TOLERANCE, check, check_second

#: Among these are kernels with tapes, nested loops, branches in loops, and every combination.
SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_modes_agree_with_differences_and_each_other(seed: int) -> None:
    errors = check(seed)
    assert errors.difference <= DIFFERENCE_TOLERANCE
    assert errors.dot <= DOT_TOLERANCE


def test_some_of_them_have_tapes() -> None:
    assert check(1).is_taped
    assert not check(0).is_taped


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 13])
def test_adjoints_have_tangents(seed: int) -> None:
    """Second derivatives: of adjoints with a tape, too."""
    assert check_second(seed) <= DIFFERENCE_TOLERANCE


@pytest.mark.slow
def test_hundreds_of_random_kernels() -> None:
    for seed in range(100, 400):
        errors = check(seed)
        assert errors.dot <= DOT_TOLERANCE, seed
