"""Kernels whose launches native code starts, and whether it does."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def many(
    x,
    y,
    n,
    m,
    flag,
    scale,
    maybe,
    BLOCK: tl.constexpr,
    MODE: tl.constexpr = "plain",
    *,
    LAST: tl.constexpr = 0.5,
):
    tl.store(x, n)


@tw.jit
def two(x, n):
    tl.store(x, n)


@tw.jit
def loose(x, n, m):
    tl.store(x, n)


@tw.jit
def ignores(x, n):
    tl.store(x, 1.0)


def is_native(kernel):
    return type(kernel._dispatcher.start).__name__ == "builtin_function_or_method"
