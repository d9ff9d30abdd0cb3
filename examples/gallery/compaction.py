"""Prefix compaction: two kernels copy the elements that satisfy a condition, in the same order.

In the first of the two kernels, each instance counts the elements of its block that satisfy the
condition. A running sum of these counts says where the elements of each block begin in the result.
In the second kernel, a running sum over the elements of a block that satisfy the condition says
where each of these elements goes.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def count_kernel(x_ptr, counts_ptr, n, limit, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = (
        tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf")) > limit
    )
    tl.store(counts_ptr + tl.program_id(0), tl.sum(kept.to(tl.int32), axis=0))


@tw.jit
def compact_kernel(
    x_ptr, starts_ptr, out_ptr, places_ptr, n, limit, BLOCK: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))
    kept = x > limit
    before = tl.cumsum(kept.to(tl.int32), axis=0) - 1
    to = tl.load(starts_ptr + tl.program_id(0)) + before
    tl.store(out_ptr + to, x, mask=kept)
    tl.store(places_ptr + to, offsets, mask=kept)


def compact(x: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements above a limit, and their positions."""
    programs = tw.cdiv(x.size, 512)
    counts = np.empty(programs, np.int32)
    count_kernel[(programs,)](x, counts, x.size, limit, BLOCK=512)
    ends = counts.cumsum(dtype=np.int32)
    out, places = np.empty(ends[-1], x.dtype), np.empty(ends[-1], np.int32)
    compact_kernel[(programs,)](
        x, ends - counts, out, places, x.size, limit, BLOCK=512
    )
    return out, places


def field() -> np.ndarray:
    """Return a smooth random field of 150 by 250 pixels."""
    y, x = np.mgrid[:150, :250]
    rng = np.random.default_rng(0)
    waves = sum(
        np.sin(
            x * rng.uniform(-0.1, 0.1)
            + y * rng.uniform(-0.1, 0.1)
            + rng.uniform(0, 6)
        )
        for _ in range(12)
    )
    return np.asarray(waves, np.float32)


def check() -> float:
    """Return how many elements differ from NumPy's."""
    found, places = compact(field().ravel(), 1.0)
    exact = np.flatnonzero(field().ravel() > 1.0)
    if len(places) != len(exact):
        return float("inf")
    return float(
        (places != exact).sum() + (found != field().ravel()[exact]).sum()
    )


def picture() -> np.ndarray:
    """Return the field, and the elements that were kept in white."""
    image = field() / 24 + 0.3
    _, places = compact(field().ravel(), 1.0)
    image.reshape(-1)[places] = 1
    return image
