"""Distributions cut to their nucleus, and samples of distributions."""

import numpy as np
import pytest

import tilewright_kernels as tk


def distribution(shape):
    """Return rows that sum to 1."""
    x = np.exp(3 * np.random.default_rng(0).standard_normal(shape))
    return (x / x.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(1,), (3, 70), (2, 3, 3000), (0, 4)])
def test_top_p_keeps_the_most_probable(shape, p):
    x = distribution(shape)
    out = np.full(shape, np.nan, np.float32)
    assert tk.top_p(x, p, out=out) is out
    if x.size:
        expected = tk.top_p_reference(x.astype(np.float64), p)
        np.testing.assert_allclose(out, expected, atol=2e-6)
    with pytest.raises(ValueError, match="between 0 and 1"):
        tk.top_p(x, 1.5)


def test_top_p_finds_the_boundary_exactly():
    x = distribution(5000)
    descending = -np.sort(-x.astype(np.float64))
    prefix = np.cumsum(descending)
    for count in range(100, 4000, 300):
        for offset, expected in ((-1e-3, count), (1e-3, count + 1)):
            p = (prefix[count - 1] + offset * descending[count]) / prefix[-1]
            assert np.count_nonzero(tk.top_p(x, p)) == expected


def test_samples_have_the_frequencies_of_the_distribution():
    x = distribution((2, 40))
    x[:, 7] = 0
    found = tk.multinomial(x, 20000, seed=5)
    assert np.array_equal(found, tk.multinomial(x, 20000, seed=5))
    assert not np.array_equal(found, tk.multinomial(x, 20000, seed=6))
    x /= x.sum(-1, keepdims=True)
    for row, draws in zip(x, found, strict=True):
        counts = np.bincount(draws, minlength=40)
        assert counts[7] == 0
        np.testing.assert_allclose(counts / 20000, row, atol=0.02)


def test_samples_of_wide_rows_are_where_the_mass_is():
    x = np.zeros((3, 5000), np.float16)
    x[[0, 1, 2], [0, 2500, 4999]] = 2
    np.testing.assert_array_equal(tk.multinomial(x, 3, seed=0), [[0] * 3, [2500] * 3, [4999] * 3])
