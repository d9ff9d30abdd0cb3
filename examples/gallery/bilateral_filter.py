"""Bilateral filter: the kernel smooths the noise of a picture and keeps its edges.

Each pixel becomes a weighted mean of the pixels around it. The weight of a pixel decreases with its
distance and with its difference in brightness.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def bilateral_kernel(
    x_ptr,
    out_ptr,
    H,
    W,
    distance,
    difference,
    RADIUS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (rows < H) & (columns < W)
    center = tl.load(x_ptr + rows * W + columns, mask=inside, other=0.0)
    total, weights = tl.zeros_like(center), tl.zeros_like(center)
    for step in tl.static_range((2 * RADIUS + 1) * (2 * RADIUS + 1)):
        down: tl.constexpr = step // (2 * RADIUS + 1) - RADIUS
        right: tl.constexpr = step % (2 * RADIUS + 1) - RADIUS
        r, c = rows + down, columns + right
        there = (r >= 0) & (r < H) & (c >= 0) & (c < W)
        x = tl.load(x_ptr + r * W + c, mask=there, other=0.0)
        apart = (down * down + right * right) * distance
        weight = tl.exp(-apart - (x - center) * (x - center) * difference)
        weight = tl.where(there, weight, 0.0)
        total += weight * x
        weights += weight
    tl.store(out_ptr + rows * W + columns, total / weights, mask=inside)


def smooth(
    image: np.ndarray,
    radius: int = 4,
    distance: float = 0.06,
    difference: float = 12.0,
) -> np.ndarray:
    """Return a smoothed image of floats."""
    h, w = image.shape
    out = np.empty_like(image)
    grid = tw.cdiv(h, 16), tw.cdiv(w, 16)
    bilateral_kernel[grid](
        image, out, h, w, distance, difference, RADIUS=radius, BLOCK=16
    )
    return out


def expected(
    image: np.ndarray,
    radius: int = 4,
    distance: float = 0.06,
    difference: float = 12.0,
) -> np.ndarray:
    """Compute :func:`smooth` by NumPy, in float64."""
    x = np.pad(image.astype(np.float64), radius, constant_values=np.nan)
    h, w = image.shape
    total, weights = np.zeros((h, w)), np.zeros((h, w))
    for down in range(2 * radius + 1):
        for right in range(2 * radius + 1):
            there = x[down : down + h, right : right + w]
            apart = ((down - radius) ** 2 + (right - radius) ** 2) * distance
            weight = np.exp(-apart - (there - image) ** 2 * difference)
            total += np.nan_to_num(weight * there)
            weights += np.nan_to_num(weight)
    return total / weights


def noisy() -> np.ndarray:
    """Return a disk on a ramp, with noise, of 150 by 250 pixels."""
    y, x = np.mgrid[:150, :250]
    disk = (y - 75) ** 2 + (x - 125) ** 2 < 50**2
    noise = np.random.default_rng(0).normal(0, 0.12, disk.shape)
    return (0.2 + x / 700 + 0.5 * disk + noise).astype(np.float32)


def check() -> float:
    """Return the largest error."""
    return float(np.abs(smooth(noisy()) - expected(noisy())).max())


def picture() -> np.ndarray:
    """Return the noisy image above the smoothed one."""
    return np.concatenate([noisy(), smooth(noisy())])
