"""K-means: each point joins the nearest center, and each center moves to its points' mean.

The distances of a block of points to all centers are computed by a matmul. The sums of the points
of each center are also computed by a matmul: a matrix of zeros and ones, which says which point
joins which center, is multiplied by the points. Each kernel instance writes the sums of its
own block of points, and these sums are added in a fixed order.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def assign_kernel(
    points_ptr,
    centers_ptr,
    nearest_ptr,
    sums_ptr,
    n,
    CENTERS: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims, numbers = tl.arange(0, DIMS), tl.arange(0, CENTERS)
    inside = rows < n
    at = points_ptr + rows[:, None] * DIMS + dims
    points = tl.load(at, mask=inside[:, None], other=0.0)
    centers = tl.load(centers_ptr + numbers[:, None] * DIMS + dims)
    squares = tl.sum(centers * centers, axis=1)
    distance = squares[None, :] - 2 * tl.dot(points, centers.T)
    nearest = tl.argmin(distance, axis=1)
    tl.store(nearest_ptr + rows, nearest, mask=inside)
    joins = (nearest[:, None] == numbers[None, :]) & inside[:, None]
    # The last sum counts the points.
    points = tl.where(dims == DIMS - 1, 1.0, points)
    first = tl.program_id(0) * CENTERS * DIMS
    at = first + numbers[:, None] * DIMS + dims[None, :]
    joins = joins.to(tl.float32)
    tl.store(sums_ptr + at, tl.dot(joins.T, points))


def clusters(
    points: np.ndarray, centers: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each point's center, and the centers, after a number of steps.

    Points and centers have two coordinates.
    """
    n, count = len(points), len(centers)
    wide = np.zeros((n, 16), np.float32)
    wide[:, :2] = points
    blocks = tw.cdiv(n, 64)
    nearest, sums = (
        np.empty(n, np.int32),
        np.empty((blocks, count, 16), np.float32),
    )
    now = np.zeros((count, 16), np.float32)
    now[:, :2] = centers
    for _ in range(steps):
        assign_kernel[(blocks,)](
            wide, now, nearest, sums, n, CENTERS=count, DIMS=16, BLOCK=64
        )
        total = sums.sum(0, dtype=np.float64)
        now[:, :2] = total[:, :2] / np.maximum(total[:, 15:], 1)
    return nearest, now[:, :2]


def expected(points: np.ndarray, centers: np.ndarray, steps: int) -> np.ndarray:
    """Compute the centers of :func:`clusters` by NumPy, in float64."""
    centers = centers.astype(np.float64)
    for _ in range(steps):
        nearest = ((points[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
        centers = np.stack(
            [points[nearest == each].mean(0) for each in range(len(centers))]
        )
    return centers


def points() -> tuple[np.ndarray, np.ndarray]:
    """Return 3,000 points around 16 places, and 16 of them to start with."""
    rng = np.random.default_rng(0)
    places = rng.uniform(0.1, 0.9, (16, 2))
    found = (
        places[rng.integers(0, 16, 3000)] + rng.normal(0, 0.03, (3000, 2))
    ).astype(np.float32)
    return found, found[:16]


def check() -> float:
    """Return the largest error of the centers after five steps."""
    return float(
        np.abs(clusters(*points(), 5)[1] - expected(*points(), 5)).max()
    )


def picture() -> np.ndarray:
    """Return the points in the shades of their centers, on 150 by 250 pixels."""
    found, start = points()
    nearest, _ = clusters(found, start, 20)
    image = np.zeros((150, 250), np.float32)
    place = np.clip(found, 0, 0.999)
    image[(place[:, 1] * 150).astype(int), (place[:, 0] * 250).astype(int)] = (
        0.3 + nearest / 20
    )
    return image
