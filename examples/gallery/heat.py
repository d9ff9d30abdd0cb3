"""Five-point stencil: the kernel computes how heat spreads from hot spots on a plate.

Each kernel instance computes a block of the next state from the same block of the current state and
the elements around it. The edge of the plate keeps its temperature.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def heat_kernel(now_ptr, next_ptr, H, W, rate, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = now_ptr + rows * W + columns
    on_plate = (rows < H) & (columns < W)
    inner = (rows > 0) & (rows < H - 1) & (columns > 0) & (columns < W - 1)
    here = tl.load(at, mask=on_plate)
    around = tl.load(at - W, mask=inner) + tl.load(at + W, mask=inner)
    around += tl.load(at - 1, mask=inner) + tl.load(at + 1, mask=inner)
    there = tl.where(inner, here + rate * (around - 4 * here), here)
    tl.store(next_ptr + rows * W + columns, there, mask=on_plate)


def spread(plate: np.ndarray, steps: int, rate: float = 0.2) -> np.ndarray:
    """Return a plate of floats after a number of steps."""
    h, w = plate.shape
    now, later = plate.copy(), np.empty_like(plate)
    for _ in range(steps):
        heat_kernel[(tw.cdiv(h, 32), tw.cdiv(w, 32))](
            now, later, h, w, rate, BLOCK=32
        )
        now, later = later, now
    return now


def expected(plate: np.ndarray, steps: int, rate: float = 0.2) -> np.ndarray:
    """Compute :func:`spread` by NumPy, in float64."""
    now = plate.astype(np.float64)
    for _ in range(steps):
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        now[1:-1, 1:-1] += rate * (around - 4 * now[1:-1, 1:-1])
    return now


def plate() -> np.ndarray:
    """Return a plate with hot spots, of 150 by 250 pixels."""
    found = np.zeros((150, 250), np.float32)
    for row, column in np.random.default_rng(0).integers(
        20, (130, 230), (12, 2)
    ):
        found[row - 8 : row + 8, column - 8 : column + 8] = 1
    return found


def check() -> float:
    """Return the largest error of 20 steps."""
    return float(np.abs(spread(plate(), 20) - expected(plate(), 20)).max())


def picture() -> np.ndarray:
    """Return the plate after 200 steps."""
    return spread(plate(), 200)
