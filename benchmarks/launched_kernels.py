"""Kernels of ``launches.py``: an empty kernel, plain and with the decorators that programs use.

``rival`` is the library that is measured.
"""

from __future__ import annotations

from typing import Any

import rival as tw
import rival.language as tl

#: Two configurations, because the tuner has no choice with one.
CONFIGS = [tw.Config({"BLOCK": block}, num_warps=4) for block in (64, 128)]


def _nothing(arguments: dict[str, Any]) -> None:
    """Do nothing, as the hook of a configuration."""


@tw.jit
def plain(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


@tw.autotune(CONFIGS, key=["n", "m", "k"])
@tw.jit
def tuned(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


@tw.autotune(
    [tw.Config({"BLOCK": block}, num_warps=4, pre_hook=_nothing) for block in (64, 128)],
    key=["n", "m", "k"],
)
@tw.jit
def hooked(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


@tw.heuristics({"FLAG": lambda arguments: arguments["n"] % 2 == 0})
@tw.jit
def guessed(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


@tw.heuristics({"FLAG": lambda arguments: arguments["n"] % 2 == 0})
@tw.autotune(CONFIGS, key=["n", "m", "k"])
@tw.jit
def guessed_tuned(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


@tw.jit
def described(a, b, c, n, m):
    pass


@tw.jit
def doubled(a, b, c, d, e, n, m, k, s, t, BLOCK: tl.constexpr):
    """The kernel of which derivatives are launched: a gradient of all of ``a``."""
    at = tl.arange(0, BLOCK)
    tl.store(b + at, 2 * tl.load(a + at))
