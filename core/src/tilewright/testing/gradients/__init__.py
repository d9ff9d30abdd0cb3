"""Checks of a kernel's derivatives, with the element that is to blame.

tw.testing.assert_gradients(swiglu, grid, x, w, out, n, BLOCK=256, outputs="out", wrt="x")
"""

from __future__ import annotations

from tilewright.testing.gradients.gradcheck import assert_gradients, gradcheck
from tilewright.testing.gradients.gradient_report import Blame, GradientCheck

__all__ = ["Blame", "GradientCheck", "assert_gradients", "gradcheck"]
