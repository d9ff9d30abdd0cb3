"""Matmul with a low-rank update of the weights (LoRA)."""

from __future__ import annotations

from typing import Any

import array_api_compat

from tilewright_kernels.linear.matmul import matmul


def lora_matmul_reference(
    x: Any, weight: Any, a: Any, b: Any, bias: Any = None, *, scale: float = 1.0
) -> Any:
    """Return ``x @ weight + bias + scale * (x @ a) @ b``."""
    xp = array_api_compat.array_namespace(x)
    y = xp.matmul(x, weight) + scale * xp.matmul(xp.matmul(x, a), b)
    return y if bias is None else y + bias


def lora_matmul(
    x: Any,
    weight: Any,
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    scale: float = 1.0,
    invariant: bool | None = None,
    out: Any = None,
) -> Any:
    """Compute ``x @ weight + bias + scale * (x @ a) @ b`` by three matmuls.

    Args:
        x: of shape (..., K), of at least two axes.
        weight: of shape (K, N).
        a: of shape (K, rank).
        b: of shape (rank, N).
        bias: of shape (N,), or None.
        scale: the factor of the update ``(x @ a) @ b``.
        invariant: for all three matmuls; see :func:`.matmul`.
        out: the array for the result.

    Returns:
        An array of shape (..., N). The function rounds ``x @ weight + bias`` to the type of ``x``,
        and then adds ``(scale * (x @ a)) @ b`` in float32.

    Gradients: those of the matmuls.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
    """
    base = matmul(x, weight, bias, invariant=invariant)
    update = matmul(x, a, invariant=invariant) * scale
    return matmul(update, b, residual=base, invariant=invariant, out=out)
