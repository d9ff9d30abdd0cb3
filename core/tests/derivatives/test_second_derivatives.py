"""Derivatives of tangent kernels, as launches."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import DefinitionError, LaunchError


@tw.jit
def wave(x, w, out, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask)
    b = tl.load(w + offsets, mask=mask)
    tl.store(out + offsets, tl.sin(a) * b * b * scale, mask=mask)


tangent = tw.jvp(wave, inputs=("scale", "x", "w"), outputs="out")
RNG = np.random.default_rng(0)
x, w, tx, t_w, gradient = (RNG.normal(size=100) for _ in range(5))
SCALE, T_SCALE = 0.7, 0.3
GRID = (2,)


def launch(kernel, **own):
    out, t_out = np.zeros(100), np.zeros(100)
    tangents = {"t_x": tx, "t_w": t_w, "t_scale": T_SCALE, "t_out": t_out}
    kernel[GRID](x, w, out, SCALE, 100, BLOCK=64, **tangents, **own)


def test_the_gradient_of_a_tangent() -> None:
    dx, dw, dtx = (np.zeros(100) for _ in range(3))
    adjoint = tw.vjp(tangent, outputs="t_out", wrt=("x", "w", "t_x"))
    launch(adjoint, d_t_out=gradient, d_x=dx, d_w=dw, d_t_x=dtx)
    along_w = SCALE * 2 * np.cos(x) * w * t_w + T_SCALE * np.cos(x) * w * w
    np.testing.assert_allclose(dx, gradient * (along_w - SCALE * np.sin(x) * tx * w * w))
    along_x = SCALE * (2 * np.cos(x) * tx * w + 2 * np.sin(x) * t_w)
    np.testing.assert_allclose(dw, gradient * (along_x + 2 * T_SCALE * np.sin(x) * w))
    np.testing.assert_allclose(dtx, gradient * SCALE * np.cos(x) * w * w)


def test_the_gradient_of_a_tangent_of_a_tangent() -> None:
    second = tw.jvp(tangent, inputs=("x", "t_x"), outputs="t_out", prefix="u_")
    u_out, dw, zeros = np.zeros(100), np.zeros(100), np.zeros(100)
    own = {"u_x": tx, "u_t_x": zeros, "u_t_out": u_out}
    launch(second, **own)
    expected = SCALE * (2 * np.cos(x) * tx * w * t_w - np.sin(x) * tx * tx * w * w)
    np.testing.assert_allclose(u_out, expected + T_SCALE * np.cos(x) * tx * w * w)
    third = tw.vjp(second, outputs="u_t_out", wrt="w")
    launch(third, **own, d_u_t_out=gradient, d_w=dw)
    expected = SCALE * (2 * np.cos(x) * tx * t_w - 2 * np.sin(x) * tx * tx * w)
    np.testing.assert_allclose(dw, gradient * (expected + 2 * T_SCALE * np.cos(x) * tx * w))


def test_tangents_of_tuned_kernels_have_gradients_with_the_tuned_constants() -> None:
    tuned = tw.heuristics({"BLOCK": lambda meta: tw.next_power_of_2(meta["n"])})(wave)
    dx, dtx, out, t_out = (np.zeros(100) for _ in range(4))
    adjoint = tw.vjp(tw.jvp(tuned, inputs="x", outputs="out"), outputs="t_out", wrt=("x", "t_x"))
    own = {"t_x": tx, "t_out": t_out, "d_t_out": gradient, "d_x": dx, "d_t_x": dtx}
    adjoint[(1,)](x, w, out, SCALE, 100, **own)
    np.testing.assert_allclose(dx, -gradient * SCALE * np.sin(x) * tx * w * w)
    np.testing.assert_allclose(dtx, gradient * SCALE * np.cos(x) * w * w)


def test_adjoints_have_no_derivatives_and_tangents_must_be_given() -> None:
    adjoint = tw.vjp(wave, outputs="out", wrt="x")
    with pytest.raises(DefinitionError, match=r"of tw\.jvp\(wave, \.\.\.\)"):
        tw.vjp(adjoint, outputs="d_x", wrt="x")
    again = tw.vjp(tangent, outputs="t_out", wrt="x")
    with pytest.raises(LaunchError, match="wave_jvp takes 't_w' by keyword"):
        own = {"t_scale": T_SCALE, "t_x": tx, "t_out": tx.copy(), "d_t_out": tx, "d_x": tx.copy()}
        again[GRID](x, w, tx.copy(), SCALE, 100, BLOCK=64, **own)
