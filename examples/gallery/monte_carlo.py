"""Monte Carlo: the kernel simulates paths of a random walk to price an option on a share.

Each kernel instance computes a block of paths. A random number is a function of the seed, the path
and the step, so the result does not depend on how the paths are divided into blocks.
"""

from __future__ import annotations

import math

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def walk_kernel(
    end_ptr, paths, steps, drift, volatility, seed, BLOCK: tl.constexpr
):
    path = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    logarithm = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        logarithm += drift + volatility * tl.randn(seed, path * steps + step)
    tl.store(end_ptr + path, tl.exp(logarithm), mask=path < paths)


def ends(
    paths: int, steps: int = 32, volatility: float = 0.2, seed: int = 0
) -> np.ndarray:
    """Return the price of the share at the end of each path, which starts at 1."""
    out = np.empty(paths, np.float32)
    drift, spread = -(volatility**2) / 2 / steps, volatility / math.sqrt(steps)
    walk_kernel[(tw.cdiv(paths, 256),)](
        out, paths, steps, drift, spread, seed, BLOCK=256
    )
    return out


def exact_price(strike: float, volatility: float = 0.2) -> float:
    """Return the formula of Black and Scholes, without interest, for one year."""
    d = -math.log(strike) / volatility + volatility / 2
    normal = [
        (1 + math.erf(each / math.sqrt(2))) / 2 for each in (d, d - volatility)
    ]
    return normal[0] - strike * normal[1]


def check() -> float:
    """Return the error of the price of an option, in standard errors of the estimate."""
    gain = np.maximum(ends(50_000).astype(np.float64) - 1.1, 0)
    return float(
        abs(gain.mean() - exact_price(1.1))
        / (gain.std() / math.sqrt(len(gain)))
    )


def picture() -> np.ndarray:
    """Return the distribution of prices at the end, as a chart of 150 by 250 pixels."""
    counts, _ = np.histogram(ends(50_000), 250, (0.4, 2.0))
    height = 145 * counts / counts.max()
    return (np.arange(150)[::-1, None] < height[None, :]).astype(np.float32)
