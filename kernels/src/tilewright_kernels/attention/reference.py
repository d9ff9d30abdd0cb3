"""The plain formulas of attention, in the array library of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import array_api_compat

from tilewright import JITFunction
from tilewright_kernels.operations.array_functions import evaluated

_NO_WINDOW = (-1, -1)


def attention_reference(
    q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0, alibi_slopes: Any = None,
    *, sinks: Any = None, bias: Any = None, mask: Any = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Return the plain formula of :func:`attention`, in the types of q.

    ``mask`` is a function of ``tilewright.jit`` as there, or an array that is broadcast against
    (batch, heads, rows of q, rows of k).
    """
    xp = array_api_compat.array_namespace(q, k, v)
    if isinstance(mask, JITFunction):
        mask = _seen(mask, q, range(q.shape[0]), k.shape[1])
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    group = q.shape[2] // k.shape[2]
    keys, values = (
        xp.permute_dims(xp.repeat(each, group, axis=2), (0, 2, 1, 3)) for each in (k, v)
    )
    scores = xp.permute_dims(q, (0, 2, 1, 3)) @ xp.permute_dims(keys, (0, 1, 3, 2)) * scale
    if softcap > 0:
        scores = softcap * xp.tanh(scores / softcap)
    device = array_api_compat.device(q)
    rows = xp.arange(q.shape[1], device=device)[:, None] + (k.shape[1] - q.shape[1])
    columns = xp.arange(k.shape[1], device=device)[None, :]
    if alibi_slopes is not None:
        distance = xp.astype(xp.abs(rows - columns), scores.dtype)
        slopes = alibi_slopes if len(alibi_slopes.shape) == 2 else alibi_slopes[None, :]
        scores = scores - slopes[:, :, None, None] * distance
    if bias is not None:
        scores = scores + bias
    left, right = window_size[0], 0 if causal else window_size[1]
    kept = columns == columns + 0 * rows
    if left >= 0:
        kept = kept & (columns >= rows - left)
    if right >= 0:
        kept = kept & (columns <= rows + right)
    if mask is not None:
        kept = kept & mask
    lowest = xp.full((1,), -math.inf, dtype=scores.dtype, device=device)
    scores = xp.where(kept, scores, lowest)
    if sinks is not None:
        sink = xp.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
        scores = xp.concat([scores, sink], axis=3)
    if not scores.shape[3]:
        highest = xp.zeros((*scores.shape[:3], 1), dtype=scores.dtype, device=device)
    else:
        highest = xp.max(scores, axis=3, keepdims=True)
        highest = xp.where(xp.isinf(highest), xp.zeros_like(highest), highest)
    weights = xp.exp(scores - highest)
    total = xp.sum(weights, axis=3, keepdims=True)
    out = weights[..., : k.shape[1]] @ values
    out = xp.permute_dims(out / xp.where(total == 0, xp.ones_like(total), total), (0, 2, 1, 3))
    if not return_lse:
        return out
    # of rows without keys, whose sum is 0
    lse = xp.where(total == 0, lowest, highest + xp.log(xp.where(total == 0, 1, total)))
    return out, lse[..., 0]


def _seen(mask: Any, q: Any, batches: Sequence[int], n_k: int) -> Any:
    """Return whether queries see keys, by a function of indices, for some batches."""
    xp = array_api_compat.array_namespace(q)
    device = array_api_compat.device(q)
    n_q, heads = q.shape[1], q.shape[2]
    batch = xp.asarray(list(batches), device=device)[:, None, None, None]
    head, row, column = (xp.arange(extent, device=device) for extent in (heads, n_q, n_k))
    return evaluated(mask, batch, head[:, None, None], row[:, None], column)


def attention_varlen_reference(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: int, max_seqlen_k: int, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0,
    alibi_slopes: Any = None, *, sinks: Any = None, mask: Any = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Return the plain formula of :func:`attention_varlen`, in the types of q."""
    xp = array_api_compat.array_namespace(q, k, v)
    found = []
    for sequence in range(cu_seqlens_q.shape[0] - 1):
        rows = slice(int(cu_seqlens_q[sequence]), int(cu_seqlens_q[sequence + 1]))
        columns = slice(int(cu_seqlens_k[sequence]), int(cu_seqlens_k[sequence + 1]))
        slopes = alibi_slopes
        if slopes is not None and len(slopes.shape) == 2:
            slopes = slopes[sequence]
        own = q[None, rows]
        seen = None
        if mask is not None:
            seen = _seen(mask, own, (sequence,), columns.stop - columns.start)
        out, lse = attention_reference(
            own, k[None, columns], v[None, columns], softmax_scale, causal,
            window_size, softcap, slopes, sinks=sinks, mask=seen, return_lse=True,
        )  # fmt: skip
        found.append((out[0, ...], lse[0, ...]))
    out = xp.concat([each for each, _ in found], axis=0)
    return (out, xp.concat([each for _, each in found], axis=1)) if return_lse else out


def attention_by_formula(
    q: Any, k: Any, v: Any, sinks: Any, alibi_slopes: Any, bias: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_q: int, max_k: int,
    scale: float, softcap: float, left: int, right: int, mask: Any,
) -> Any:  # fmt: skip
    """Return the attention, and the logarithms of its sums, for arguments of the operation."""
    if cu_seqlens_q is None:
        return attention_reference(
            q, k, v, scale, False, (left, right), softcap, alibi_slopes,
            sinks=sinks, bias=bias, mask=mask, return_lse=True,
        )  # fmt: skip
    return attention_varlen_reference(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, max_k, scale, False, (left, right), softcap,
        alibi_slopes, sinks=sinks, mask=mask, return_lse=True,
    )  # fmt: skip
