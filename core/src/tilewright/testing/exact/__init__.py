"""Exact mode for tests: kernels that compute in a ring, and verdicts without tolerances.

    verdict = tw.testing.same_algebra(plain, optimized, (x, out, n), grid=(rows,))
    assert verdict.status == "equal", verdict

Arrays of an exact launch hold payloads (:mod:`tilewright.passes.exact.ring`) in the place of
floats: :func:`embed` makes them of numbers, :func:`draw` at random, :func:`fractions` reads them.
"""

from __future__ import annotations

from tilewright.runtime.exact.differences import Difference
from tilewright.runtime.exact.exact_mode import exact_mode
from tilewright.runtime.exact.payloads import agree, draw, embed, fractions
from tilewright.testing.exact.same_algebra import Verdict, same_algebra

__all__ = [
    "Difference",
    "Verdict",
    "agree",
    "draw",
    "embed",
    "exact_mode",
    "fractions",
    "same_algebra",
]
