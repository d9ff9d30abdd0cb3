"""Histogram equalization: two kernels spread the brightness of a picture over the whole range.

Each instance of the first kernel counts the pixels of a block by ``tl.histogram``, and the counts
of all blocks are added in a fixed order. The second kernel looks up the new brightness of each
pixel in a table.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def count_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0).to(tl.int32)
    counts = tl.histogram(x, 256, mask=offsets < n)
    tl.store(counts_ptr + tl.program_id(0) * 256 + tl.arange(0, 256), counts)


@tw.jit
def look_up_kernel(x_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    level = tl.load(x_ptr + offsets, mask=offsets < n, other=0).to(tl.int32)
    tl.store(out_ptr + offsets, tl.load(table_ptr + level), mask=offsets < n)


def counts_of(image: np.ndarray) -> np.ndarray:
    """Return how many pixels of an image of uint8 have each level."""
    programs = tw.cdiv(image.size, 1024)
    counts = np.empty((programs, 256), np.int32)
    count_kernel[(programs,)](image, counts, image.size, BLOCK=1024)
    return counts.sum(0)


def equalize(image: np.ndarray) -> np.ndarray:
    """Return an image of uint8 whose levels are about equally frequent."""
    ranks = counts_of(image).cumsum()
    table = (255 * ranks / image.size).astype(np.uint8)
    out = np.empty_like(image)
    programs = tw.cdiv(image.size, 1024)
    look_up_kernel[(programs,)](image, table, out, image.size, BLOCK=1024)
    return out


def dark() -> np.ndarray:
    """Return waves of little contrast, of 150 by 250 pixels."""
    y, x = np.mgrid[:150, :250]
    waves = np.sin(x / 9) * np.cos(y / 7) + np.sin((x + y) / 23)
    noise = np.random.default_rng(0).normal(0, 0.2, waves.shape)
    return np.clip(60 + 14 * (waves + noise), 0, 255).astype(np.uint8)


def check() -> float:
    """Return how many counts differ from NumPy's."""
    return float(
        np.abs(
            counts_of(dark()) - np.bincount(dark().ravel(), minlength=256)
        ).sum()
    )


def picture() -> np.ndarray:
    """Return the image above the equalized one."""
    return np.concatenate([dark(), equalize(dark())]).astype(np.float32) / 255
