"""Six rewritten kernels, each beside a plain one and with three wrong variants of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
from tilewright_conformance.exact.launches import Launch, filled
from tilewright_conformance.kernels import exact_kernels as kernels
from tilewright_conformance.kernels import matrices, rewritten_kernels


class Rewrite(NamedTuple):
    """A plain launch, one of the same algebra, and the mistakes of three wrong ones."""

    name: str
    plain: Launch
    rewritten: Launch
    bugs: tuple[str, str, str]


def rewrites() -> tuple[Rewrite, ...]:
    return (
        *(_attention(), _attention_backward(), _split_k()),
        *(_welford(), _cross_entropy(), _rms_norm()),
    )


def _attention() -> Rewrite:
    heads, length, head = 2, 50, 16
    q, k, v, out = (filled(heads, length, head, dtype=np.float16) for _ in range(4))
    arguments = (q, k, v, out, filled(heads, length), head**-0.5, length)
    plain = Launch(
        kernels.attention, arguments, (length, heads),
        {"CAUSAL": False, "LENGTH": 64, "HEAD": head},
    )  # fmt: skip
    block = {"CAUSAL": False, "BM": 32, "BN": 16, "HEAD": head}
    flash = Launch(kernels.flash, arguments, (tw.cdiv(length, 32), heads), block)
    return Rewrite("flash attention", plain, flash, ("rescaling", "columns", "total"))


def _attention_backward() -> Rewrite:
    """The mistakes are in the plain kernel: a verdict has no direction."""
    heads, length, head = 2, 24, 16
    q, k, v, do, dq, dk, dv = (filled(heads, length, head) for _ in range(7))
    lse, delta = filled(heads, length), filled(heads, length)
    arguments = (q, k, v, do, lse, delta, dq, dk, dv, length, head**-0.5)
    sizes = {"D": head, "CAUSAL": True}
    grid = (tw.cdiv(length, 16), heads)
    flash = Launch(matrices.attention_backward, arguments, grid, {**sizes, "B": 16})
    plain = Launch(
        rewritten_kernels.plain_attention_backward, arguments, (length, heads),
        {**sizes, "LENGTH": 32},
    )  # fmt: skip
    return Rewrite("flash attention backward", flash, plain, ("delta", "scale", "diagonal"))


def _split_k() -> Rewrite:
    m, n, k = 35, 27, 90
    a, b = filled(m, k, dtype=np.float16), filled(k, n, dtype=np.float16)
    c, parts = filled(m, n), filled(3, m, n)
    block = {"BM": 16, "BN": 16, "BK": 16}
    whole = Launch(kernels.matmul_tiled, (a, b, c, m, n, k), (6,), block)
    split = Launch(_in_parts, (a, b, c, m, n, k, parts), (), {})
    return Rewrite("split-K", whole, split, ("lost part", "overlap", "stride"))


def _in_parts(a: Any, b: Any, c: Any, m: int, n: int, k: int, parts: Any, **constants: str) -> None:
    bug = constants.get("BUG", "")
    step = 2 if bug == "overlap" else 3
    kernels.matmul_parts[(tw.cdiv(m, 16), tw.cdiv(n, 16), 3)](
        a, b, parts, m, n, k, SPLIT=step, BLOCK=16, ATOMIC=False
    )
    size, added = m * n, 2 if bug == "lost part" else 3
    between = size - 1 if bug == "stride" else size
    kernels.add_parts[(tw.cdiv(size, 256),)](parts, c, between, SPLIT=added, BLOCK=256)


def _welford() -> Rewrite:
    rows, n = 6, 300
    x, w, b = filled(rows, n, dtype=np.float16), filled(n), filled(n)
    arguments = (x, filled(rows, n), w, b, filled(rows), filled(rows), n, 1e-5)
    plain = Launch(kernels.layer_norm, arguments, (rows,), {"BLOCK": 128})
    welford = Launch(kernels.layer_norm_welford, arguments, (rows,), {"BLOCK": 64})
    return Rewrite("layer norm by Welford", plain, welford, ("tail", "delta", "n - 1"))


def _cross_entropy() -> Rewrite:
    rows, n = 6, 301
    target = np.arange(0, rows * 50, 50, dtype=np.int32)
    arguments = (filled(rows, n), target, filled(rows), n)
    plain = Launch(kernels.cross_entropy, arguments, (rows,), {"BLOCK": 512})
    online = Launch(kernels.cross_entropy_online, arguments, (rows,), {"BLOCK": 64})
    bugs = ("rescaling", "padding", "target")
    return Rewrite("online cross entropy", plain, online, bugs)


def _rms_norm() -> Rewrite:
    rows, n = 5, 100
    x, dy, y, dx = (filled(rows, n) for _ in range(4))
    arguments = (x, filled(n), y, dy, dx, n, 1e-6, 1.0)
    plain = Launch(rewritten_kernels.plain_rms_norm, arguments, (rows,), {})
    fused = Launch(rewritten_kernels.fused_rms_norm, arguments, (rows,), {"BLOCK": 128})
    return Rewrite("RMS norm and its derivative", plain, fused, ("mean", "offset", "square"))
