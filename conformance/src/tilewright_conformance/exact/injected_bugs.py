"""Mistakes in kernels that exact mode sees, of which tolerances miss a third."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tilewright as tw
from tilewright_conformance.exact.launches import Launch, filled
from tilewright_conformance.kernels import exact_kernels as kernels


def matmul() -> Launch:
    m, n, k = 35, 27, 101
    a, b, c = (filled(*shape, dtype=np.float16) for shape in ((m + 1, k), (k + 1, n), (m, n)))
    blocks = {"BM": 32, "BN": 32, "BK": 32}
    return Launch(kernels.matmul_tiled, (a, b, c, m, n, k), (tw.cdiv(m, 32),), blocks)


def softmax() -> Launch:
    arguments = (filled(6, 301), filled(6, 301), 301)
    return Launch(kernels.softmax_online, arguments, (6,), {"BLOCK": 128})


def flash(causal: bool = False) -> Launch:
    heads, length, head = 2, 50, 16
    q, k, v, out = (filled(heads + 1, length, head, dtype=np.float16) for _ in range(4))
    arguments = (q, k, v, out, filled(heads, length), head**-0.5, length)
    block = {"CAUSAL": causal, "BM": 16, "BN": 16, "HEAD": 16}
    return Launch(kernels.flash, arguments, (4, heads), block)


def causal() -> Launch:
    return flash(True)


def layer_norm() -> Launch:
    x, w, b, out = filled(6, 300, dtype=np.float16), filled(300), filled(300), filled(6, 300)
    arguments = (x, out, w, b, filled(6), filled(6), 300, 1e-5)
    return Launch(kernels.layer_norm, arguments, (6,), {"BLOCK": 128})


def cross_entropy() -> Launch:
    target = np.arange(0, 300, 50, dtype=np.int32)
    arguments = (filled(6, 301), target, filled(6), 301)
    return Launch(kernels.cross_entropy_online, arguments, (6,), {"BLOCK": 64})


def prefix() -> Launch:
    return Launch(kernels.prefix_blocks, (filled(1000), filled(1000), 1000), (1,), {"BLOCK": 32})


def group_scale() -> Launch:
    arguments = (filled(4, 128), filled(4), filled(4, 128), 4, 128)
    return Launch(kernels.group_scale, arguments, (2,), {"BLOCK": 256})


#: Launches, and the mistakes that their kernels make.
BUGS: tuple[tuple[Callable[[], Launch], str], ...] = (
    *((matmul, bug) for bug in ("tail mask", "last step", "stride", "accumulator", "twice")),
    (softmax, "padding"), (softmax, "rescaling"),
    (flash, "rescaling"), (flash, "columns"), (causal, "diagonal"),
    *((layer_norm, bug) for bug in ("tail", "eps", "n - 1", "operands")),
    (cross_entropy, "rescaling"), (prefix, "carry"), (group_scale, "group"),
)  # fmt: skip


def with_bug(launch: Launch, bug: str) -> Launch:
    """The launch of the kernel that makes a mistake."""
    return launch._replace(constants={**launch.constants, "BUG": bug})
