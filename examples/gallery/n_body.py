"""Gravity: each kernel instance adds up the pull of all bodies on a block of bodies.

The tile of forces has a row for each body of the block and a column for each body that pulls it.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def pull_kernel(
    x_ptr, y_ptr, mass_ptr, ax_ptr, ay_ptr, n, softening, BLOCK: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = (
        tl.load(x_ptr + rows, mask=rows < n),
        tl.load(y_ptr + rows, mask=rows < n),
    )
    ax, ay = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        others = start + tl.arange(0, BLOCK)
        inside = others < n
        dx = (
            tl.load(x_ptr + others, mask=inside, other=0.0)[None, :]
            - x[:, None]
        )
        dy = (
            tl.load(y_ptr + others, mask=inside, other=0.0)[None, :]
            - y[:, None]
        )
        mass = tl.load(mass_ptr + others, mask=inside, other=0.0)
        inverse = tl.rsqrt(dx * dx + dy * dy + softening)
        pull = mass[None, :] * inverse * inverse * inverse
        ax += tl.sum(pull * dx, axis=1)
        ay += tl.sum(pull * dy, axis=1)
    tl.store(ax_ptr + rows, ax, mask=rows < n)
    tl.store(ay_ptr + rows, ay, mask=rows < n)


def pulls(
    place: np.ndarray, mass: np.ndarray, softening: float = 1e-3
) -> np.ndarray:
    """Return the accelerations of bodies at places of shape (2, bodies)."""
    out = np.empty_like(place)
    n = len(mass)
    pull_kernel[(tw.cdiv(n, 64),)](*place, mass, *out, n, softening, BLOCK=64)
    return out


def expected(
    place: np.ndarray, mass: np.ndarray, softening: float = 1e-3
) -> np.ndarray:
    """Compute :func:`pulls` by NumPy, in float64."""
    apart = place[:, None, :].astype(np.float64) - place[:, :, None]
    return (mass * apart / ((apart**2).sum(0) + softening) ** 1.5).sum(-1)


def bodies() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places, velocities and masses of 1,000 bodies on a rotating disk."""
    rng = np.random.default_rng(0)
    radius, angle = (
        np.sqrt(rng.uniform(0.02, 1, 1000)),
        rng.uniform(0, 2 * np.pi, 1000),
    )
    place = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
    velocity = np.stack([-place[1], place[0]])
    mass = np.full(1000, 1e-3)
    return (
        place.astype(np.float32),
        velocity.astype(np.float32),
        mass.astype(np.float32),
    )


def check() -> float:
    """Return the largest error, relative to the largest result."""
    place, _, mass = bodies()
    exact = expected(place, mass)
    return float(np.abs(pulls(place, mass) - exact).max() / np.abs(exact).max())


def picture() -> np.ndarray:
    """Return the bodies' paths over 150 steps, on 150 by 250 pixels."""
    place, velocity, mass = bodies()
    image = np.zeros((150, 250), np.float32)
    for step in range(150):
        velocity += 0.01 * pulls(place, mass)
        place += 0.01 * velocity
        rows, columns = (
            (75 + 55 * place[1]).astype(int),
            (125 + 55 * place[0]).astype(int),
        )
        seen = (rows >= 0) & (rows < 150) & (columns >= 0) & (columns < 250)
        image[rows[seen], columns[seen]] = np.maximum(
            image[rows[seen], columns[seen]], (step + 30) / 180
        )
    return image
