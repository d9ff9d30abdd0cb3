"""Conway's game of life: the kernel computes the next state of all cells of a torus.

A cell lives in the next step if three of its eight neighbors live, or if two of them live and the
cell itself lives. At the edges of the array, row and column indices wrap around.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def life_kernel(now_ptr, next_ptr, H, W, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (rows < H) & (columns < W)
    neighbors = tl.zeros((BLOCK, BLOCK), tl.int8)
    for step in tl.static_range(9):
        r = (rows + (step // 3 - 1) + H) % H
        c = (columns + (step % 3 - 1) + W) % W
        if step != 4:
            neighbors += tl.load(now_ptr + r * W + c, mask=inside, other=0)
    lives = tl.load(now_ptr + rows * W + columns, mask=inside, other=0)
    lives = (neighbors == 3) | ((neighbors == 2) & (lives == 1))
    tl.store(next_ptr + rows * W + columns, lives.to(tl.int8), mask=inside)


def generations(world: np.ndarray, count: int) -> np.ndarray:
    """Return a world of zeros and ones (int8) after a number of generations."""
    h, w = world.shape
    now, later = world.copy(), np.empty_like(world)
    for _ in range(count):
        life_kernel[(tw.cdiv(h, 32), tw.cdiv(w, 32))](
            now, later, h, w, BLOCK=32
        )
        now, later = later, now
    return now


def expected(world: np.ndarray, count: int) -> np.ndarray:
    """Compute :func:`generations` by NumPy."""
    for _ in range(count):
        neighbors = sum(
            np.roll(world, (down, right), (0, 1))
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if down or right
        )
        world = ((neighbors == 3) | ((neighbors == 2) & (world == 1))).astype(
            np.int8
        )
    return world


def world() -> np.ndarray:
    """Return a random world of 150 by 250 cells."""
    return (np.random.default_rng(0).random((150, 250)) < 0.3).astype(np.int8)


def check() -> float:
    """Return how many cells differ after 20 generations."""
    return float((generations(world(), 20) != expected(world(), 20)).sum())


def picture() -> np.ndarray:
    """Return the world after 100 generations."""
    return generations(world(), 100).astype(np.float32)
