"""Results of kernels that work row by row, in float64; the rows of ``x`` are its first axis."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def softmax(x: Array) -> Array:
    wide = x.astype(np.float64)
    weights = np.exp(wide - wide.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def logsumexp(x: Array) -> Array:
    wide = x.astype(np.float64)
    top = wide.max(-1)
    return np.asarray(top + np.log(np.exp(wide - top[..., None]).sum(-1)))


def rms_norm(x: Array, w: Array, eps: float) -> tuple[Array, Array]:
    """(the rows, each over its root mean square, times ``w``; one over the root mean squares)."""
    wide = x.astype(np.float64)
    rstd = 1 / np.sqrt((wide**2).mean(1) + eps)
    return wide * rstd[:, None] * w, rstd


def rms_norm_gradient(x: Array, w: Array, dy: Array, eps: float) -> tuple[Array, Array]:
    """(of x, of w)."""
    hat, rstd = rms_norm(x, np.ones(x.shape[1]), eps)
    grads = dy.astype(np.float64)
    return rstd[:, None] * (w * grads - hat * (hat * w * grads).mean(1, keepdims=True)), (
        grads * hat
    ).sum(0)


def layer_norm(x: Array, w: Array, b: Array, eps: float) -> tuple[Array, Array, Array]:
    """(normalised rows, their means, one over their deviations)."""
    wide = x.astype(np.float64)
    mean, rstd = wide.mean(1), 1 / np.sqrt(wide.var(1) + eps)
    return (wide - mean[:, None]) * rstd[:, None] * w + b, mean, rstd


def layer_norm_gradient(
    x: Array, w: Array, dy: Array, mean: Array, rstd: Array
) -> tuple[Array, Array, Array]:
    """(of x, of the weights, of the bias)."""
    grads = dy.astype(np.float64)
    hat = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    scaled = w * grads
    dx = (
        scaled - hat * (hat * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)
    ) * rstd[:, None]
    return dx, (grads * hat).sum(0), grads.sum(0)


def rotated(q: Array, angle: Array) -> Array:
    """Apply the rotary embedding to ``q`` [positions, heads, 2 * half].

    The halves of the last axis are complex numbers, rotated by ``angle`` [positions, half].
    """
    half = q.shape[-1] // 2
    pairs = (q[..., :half] + 1j * q[..., half:].astype(np.float64)) * np.exp(1j * angle)[:, None, :]
    return np.concatenate([pairs.real, pairs.imag], -1)


def cross_entropy(
    x: Array, target: Array, ignored: int, smoothing: float = 0.0, cap: float | None = None
) -> tuple[Array, Array]:
    """(loss of each row, gradient of the logits).

    Logits above ``cap`` are squashed by tanh; rows whose target is ``ignored`` count for nothing.
    """
    wide = x.astype(np.float64)
    rows, classes = x.shape
    z = wide if cap is None else cap * np.tanh(wide / cap)
    logp = z - logsumexp(z)[:, None]
    wanted = np.full((rows, classes), smoothing / classes)
    wanted[np.arange(rows), target % classes] += 1 - smoothing
    keep = target != ignored
    gradient = (np.exp(logp) - wanted) * (1 if cap is None else 1 - np.tanh(wide / cap) ** 2)
    return np.where(keep, -(wanted * logp).sum(1), 0), gradient * keep[:, None]


def selective_scan(x: Array, delta: Array, a: Array, b: Array, c: Array, reverse: bool) -> Array:
    """Run a state-space scan with a state of [channels, states].

    The state decays by 1 / (1 - delta a), an implicit step of length delta, is driven by delta x b,
    and is read out through c.
    """
    length, channels = x.shape
    state, out = np.zeros((channels, a.shape[1])), np.empty((length, channels))
    for t in reversed(range(length)) if reverse else range(length):
        state = (
            state / (1 - delta[t, :, None].astype(np.float64) * a)
            + (delta[t].astype(np.float64) * x[t])[:, None] * b[t]
        )
        out[t] = state @ c[t]
    return out


def gelu(x: Array) -> Array:
    from math import erf

    return np.asarray(
        [value * 0.5 * (1 + erf(value / 2**0.5)) for value in x.astype(np.float64).ravel()]
    ).reshape(x.shape)


def silu(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(wide / (1 + np.exp(-wide)))
