"""Fourier transform: the kernel transforms 4096 points by matmuls (four-step algorithm).

A transform of N = 64 x 64 points consists of 64 transforms of 64 points along the columns, a
multiplication by twiddle factors, and 64 transforms along the rows. The kernel computes the 64
transforms along the columns by a single complex matmul with the matrix of the roots of unity, and
the 64 transforms along the rows by another one. A complex number is stored as two real numbers in
two tiles.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def multiply(ar, ai, br, bi):
    """Return the product of two complex matrices, its real and its imaginary part."""
    return tl.dot(ar, br) - tl.dot(ai, bi), tl.dot(ar, bi) + tl.dot(ai, br)


@tw.jit
def fourier_kernel(x_ptr, y_ptr, roots_ptr, twiddles_ptr, SIDE: tl.constexpr):
    size: tl.constexpr = SIDE * SIDE
    rows, columns = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    at = rows * SIDE + columns
    x_ptr += tl.program_id(0) * 2 * size
    y_ptr += tl.program_id(0) * 2 * size
    fr, fi = tl.load(roots_ptr + at), tl.load(roots_ptr + size + at)
    tr, ti = tl.load(twiddles_ptr + at), tl.load(twiddles_ptr + size + at)
    xr, xi = tl.load(x_ptr + at), tl.load(x_ptr + size + at)
    yr, yi = multiply(fr, fi, xr, xi)
    yr, yi = yr * tr - yi * ti, yr * ti + yi * tr
    yr, yi = multiply(yr, yi, fr, fi)
    transposed = columns * SIDE + rows
    tl.store(y_ptr + transposed, yr)
    tl.store(y_ptr + size + transposed, yi)


def parts(x: np.ndarray) -> np.ndarray:
    """Return real and imaginary parts, along a new axis before the last."""
    return np.stack([x.real, x.imag], axis=-2).astype(np.float32)


def transform(x: np.ndarray) -> np.ndarray:
    """Return the Fourier transforms of the rows of a complex matrix with 4096 columns."""
    side = 64
    k = np.arange(side)
    roots = parts(np.exp(-2j * np.pi * np.outer(k, k) / side).reshape(-1))
    twiddles = parts(np.exp(-2j * np.pi * np.outer(k, k) / side**2).reshape(-1))
    given = parts(x)
    out = np.empty_like(given)
    fourier_kernel[(len(x),)](given, out, roots, twiddles, SIDE=side)
    return out[:, 0] + 1j * out[:, 1]


def signal() -> np.ndarray:
    """Return rows of 4096 points: tones whose frequency rises from row to row, with noise."""
    rng = np.random.default_rng(0)
    time, row = np.arange(4096) / 4096, np.arange(40)[:, None]
    tone = np.sin(2 * np.pi * (20 + 5 * row) * time) + 0.5 * np.sin(
        2 * np.pi * 180 * time
    )
    return tone + rng.normal(0, 0.5, tone.shape) + 0j


def check() -> float:
    """Return the largest error, relative to the largest result."""
    exact = np.fft.fft(signal())
    return float(
        np.abs(transform(signal()) - exact).max() / np.abs(exact).max()
    )


def picture() -> np.ndarray:
    """Return the magnitudes of the first 250 frequencies of each row, four pixels high."""
    return np.repeat(np.abs(transform(signal()))[:, :250], 4, axis=0).astype(
        np.float32
    )
