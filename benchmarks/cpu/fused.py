"""Fused kernels for the sweep: RMS norm, GELU, dropout, cross entropy.

Each reads and writes every element once.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.kernels import portable_kernels

_BLOCK = 1024


@tw.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside)
    tl.store(out_ptr + places, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=inside)


def rms_norm(x: Any, weight: Any, out: Any, eps: float = 1e-5) -> Any:
    """Compute ``out[i] = x[i] / sqrt(mean(x[i]**2) + eps) * weight`` for C-contiguous matrices."""
    rows, columns = x.shape
    portable_kernels.rms_norm[(rows,)](
        x, weight, out, columns, eps, BLOCK=tw.next_power_of_2(columns)
    )
    return out


def gelu(x: Any, out: Any) -> Any:
    """Compute ``out = x * Phi(x)`` of a contiguous array; Phi is the normal distribution's CDF."""
    gelu_kernel[(tw.cdiv(x.size, _BLOCK),)](x, out, x.size, BLOCK=_BLOCK)
    return out


def dropout(x: Any, out: Any, p: float = 0.1, seed: int = 1) -> Any:
    """Compute ``out = x / (1 - p)``, and 0 for a fraction ``p`` of elements, chosen by ``seed``."""
    portable_kernels.dropout[(tw.cdiv(x.size, _BLOCK),)](x, out, x.size, p, seed, BLOCK=_BLOCK)
    return out


def cross_entropy(x: Any, target: Any, loss: Any) -> Any:
    """Compute ``loss[i] = log(sum(exp(x[i]))) - x[i, target[i]]`` for a C-contiguous matrix."""
    rows, columns = x.shape
    portable_kernels.cross_entropy[(rows,)](
        x, target, loss, columns, BLOCK=tw.next_power_of_2(columns)
    )
    return loss
