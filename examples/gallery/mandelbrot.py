"""Mandelbrot set: for each point c, the kernel counts the steps z = z² + c until z leaves a disk.

Each kernel instance repeats these steps for a block of points c, and stops when z has left the disk
for all points of the block.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def mandelbrot_kernel(
    count_ptr, H, W, left, top, step, LIMIT: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    real, imaginary = (
        left + columns * step + 0.0 * rows,
        top + rows * step + 0.0 * columns,
    )
    x, y = tl.zeros_like(real), tl.zeros_like(real)
    count = tl.zeros((BLOCK, BLOCK), tl.int32)
    iteration, active = 0, BLOCK * BLOCK
    while (iteration < LIMIT) & (active > 0):
        stays = x * x + y * y <= 4.0
        x, y = (
            tl.where(stays, x * x - y * y + real, x),
            tl.where(stays, 2.0 * x * y + imaginary, y),
        )
        count += stays.to(tl.int32)
        active = tl.sum(tl.sum(stays.to(tl.int32), axis=1), axis=0)
        iteration += 1
    inside = (rows < H) & (columns < W)
    tl.store(count_ptr + rows * W + columns, count, mask=inside)


def counts(height: int, width: int, limit: int) -> np.ndarray:
    """Return the number of iterations of each point of the plane from -2.2-1.2i to 0.8+1.2i."""
    out = np.empty((height, width), np.int32)
    grid = tw.cdiv(height, 16), tw.cdiv(width, 16)
    step = np.float64(2.4 / height)
    mandelbrot_kernel[grid](
        out,
        height,
        width,
        np.float64(-2.7),
        np.float64(-1.2),
        step,
        LIMIT=limit,
        BLOCK=16,
    )
    return out


def expected(height: int, width: int, limit: int) -> np.ndarray:
    """Compute :func:`counts` by NumPy."""
    rows, columns = np.mgrid[:height, :width]
    c = (-2.7 + columns * (2.4 / height)) + 1j * (-1.2 + rows * (2.4 / height))
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(limit):
        stays = z.real**2 + z.imag**2 <= 4.0
        z[stays] = z[stays] ** 2 + c[stays]
        count += stays
    return count


def check() -> float:
    """Return the part of the points whose counts differ, which rounding explains for a few."""
    return float((counts(60, 100, 50) != expected(60, 100, 50)).mean())


def picture() -> np.ndarray:
    """Return the logarithms of counts of 150 by 250 points."""
    return np.log(counts(150, 250, 200)).astype(np.float32)
