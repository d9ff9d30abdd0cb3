"""Attention and its gradients in float64, with all scores in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def forward(q: Array, k: Array, v: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    """(softmax(q kᵀ scale) v, the natural logarithm of the softmax's denominators).

    The operands are of the shape [heads, length, depth].
    """
    p, lse = _weights(q, k, scale, causal)
    return p @ v.astype(np.float64), lse


def gradients(
    q: Array, k: Array, v: Array, do: Array, scale: float, causal: bool
) -> tuple[Array, Array, Array]:
    """(of q, of k, of v), where ``do`` is the gradient of :func:`forward`'s result."""
    p, _ = _weights(q, k, scale, causal)
    k64, q64, v64, do64 = (array.astype(np.float64) for array in (k, q, v, do))
    ds = p * (do64 @ v64.swapaxes(1, 2) - (p @ v64 * do64).sum(-1, keepdims=True))
    return ds @ k64 * scale, ds.swapaxes(1, 2) @ q64 * scale, p.swapaxes(1, 2) @ do64


def decode(q: Array, keys: Array, values: Array, scale: float) -> Array:
    """One query [heads, depth] against [length, heads, depth]."""
    scores = np.einsum("hd,lhd->hl", q.astype(np.float64), keys.astype(np.float64)) * scale
    p = np.exp(scores - scores.max(1, keepdims=True))
    return np.einsum("hl,lhd->hd", p / p.sum(1, keepdims=True), values.astype(np.float64))


def _weights(q: Array, k: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[1:]) > 0, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    lse = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
    return np.exp(scores - lse), lse[..., 0]
