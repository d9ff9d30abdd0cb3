"""Kernels that read and write each element once, for the sweep: RMS norm, GELU, dropout and cross entropy."""

from __future__ import annotations

from typing import Any

import tilewright as tw
import tilewright.language as tl

_BLOCK = 1024


@tw.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    x = tl.load(x_ptr + row * columns + places, mask=inside, other=0.0)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + places, mask=inside)
    tl.store(out_ptr + row * columns + places, x * rstd * weight, mask=inside)


@tw.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside)
    tl.store(out_ptr + places, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=inside)


@tw.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside)
    keep = tl.rand(seed, places) > p
    tl.store(out_ptr + places, tl.where(keep, x / (1 - p), 0.0), mask=inside)


@tw.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + places, mask=places < columns, other=-float("inf"))
    most = tl.max(x, axis=0)
    total = tl.log(tl.sum(tl.exp(x - most), axis=0)) + most
    target = tl.load(target_ptr + row)
    tl.store(loss_ptr + row, total - tl.load(x_ptr + row * columns + target))


def rms_norm(x: Any, weight: Any, out: Any, eps: float = 1e-5) -> Any:
    """``out[i] = x[i] / sqrt(mean(x[i]**2) + eps) * weight`` for C-contiguous matrices."""
    rows, columns = x.shape
    rms_norm_kernel[(rows,)](x, weight, out, columns, eps, BLOCK=tw.next_power_of_2(columns))
    return out


def gelu(x: Any, out: Any) -> Any:
    """``out = x * Phi(x)``, Phi the normal distribution's, of a contiguous array."""
    gelu_kernel[(tw.cdiv(x.size, _BLOCK),)](x, out, x.size, BLOCK=_BLOCK)
    return out


def dropout(x: Any, out: Any, p: float = 0.1, seed: int = 1) -> Any:
    """``out = x / (1 - p)``, and 0 for a share ``p`` of the elements, which follow from ``seed``."""
    dropout_kernel[(tw.cdiv(x.size, _BLOCK),)](x, out, x.size, p, seed, BLOCK=_BLOCK)
    return out


def cross_entropy(x: Any, target: Any, loss: Any) -> Any:
    """``loss[i] = log(sum(exp(x[i]))) - x[i, target[i]]`` for a C-contiguous matrix."""
    rows, columns = x.shape
    cross_entropy_kernel[(rows,)](x, target, loss, columns, BLOCK=tw.next_power_of_2(columns))
    return loss
