"""Reductions to the minimum and the maximum, lane by lane."""

import itertools
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

#: makes kernels that are compiled anew, whatever is in the cache
SALTS = itertools.count()


@tw.jit
def extremes(
    x_ptr, low_ptr, high_ptr, N: tl.constexpr, PROPAGATE: tl.constexpr, SALT: tl.constexpr
):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    if PROPAGATE:
        low, high = tl.reduce(x, 1, _lower), tl.reduce(x, 1, _higher)
    else:
        low, high = tl.min(x, 1), tl.max(x, 1)
    tl.store(low_ptr + tl.arange(0, N), low)
    tl.store(high_ptr + tl.arange(0, N), high)


@tw.jit
def _lower(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@tw.jit
def _higher(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("extent", [1, 2, 4, 8, 16, 64])
def test_extremes_across_lanes_find_every_lane(extent: int, kind: type, propagate: bool) -> None:
    """Among numbers that are 0, and among such as are all below or all above it."""
    salt = next(SALTS)
    for others in (0, -9, 9):
        x = np.full((extent, extent), others, kind)
        np.fill_diagonal(x, others + np.where(np.arange(extent) % 2, 3, -3))
        if extent > 2:
            x[2] = np.nan
            x[3, 0] = np.nan
        low, high = np.full(extent, 77, kind), np.full(extent, 77, kind)
        extremes[(1,)](x, low, high, N=extent, PROPAGATE=propagate, SALT=salt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of a row of NaNs
            least, most = (np.min, np.max) if propagate else (np.nanmin, np.nanmax)
            np.testing.assert_array_equal(low, least(x, axis=1))
            np.testing.assert_array_equal(high, most(x, axis=1))
