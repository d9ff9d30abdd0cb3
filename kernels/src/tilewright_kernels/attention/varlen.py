"""Attention of packed sequences of several lengths."""

from __future__ import annotations

from typing import Any

from tilewright_kernels.attention.heads import checked
from tilewright_kernels.attention.operations import ATTENTION, ATTENTION_LSE

_NO_WINDOW = (-1, -1)


def attention_varlen(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: int, max_seqlen_k: int, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0,
    alibi_slopes: Any = None, *, sinks: Any = None, mask: Any = None, return_lse: bool = False,
    deterministic: bool | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Compute :func:`attention` of sequences of different lengths, packed one after the other.

    Args:
        q: of shape (rows of all sequences, heads, dims).
        k: of shape (rows of k of all sequences, heads of k, dims).
        v: of shape (rows of k of all sequences, heads of k, dims of v).
        cu_seqlens_q: of shape (sequences + 1,), of int32: the first row of each sequence in q, and
            at the end the number of all rows.
        cu_seqlens_k: the same for k and v.
        max_seqlen_q: the largest number of rows of a sequence.
        max_seqlen_k: the largest number of keys of a sequence.
        softmax_scale, softcap, sinks: as in :func:`attention`.
        causal, window_size, mask: as in :func:`attention`, with rows and columns counted from the
            beginning of each sequence.
        alibi_slopes: of shape (heads,) or (sequences, heads); as in :func:`attention`.
        return_lse: whether to also return the logarithm of each row's sum of exponentials.
        deterministic: as in :func:`attention`.
        out: the array for the result; with ``return_lse``, a pair of arrays.

    Returns:
        An array of shape (rows, heads, dims of v) with the element type of q. With ``return_lse``,
        the result is a pair: this array, and the log-sum-exp of each row of scores, a float32 array
        of shape (heads, rows).

    Raises:
        ValueError: the shapes of the arguments do not match, or ``softmax_scale`` is not positive.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    checked("attention_varlen", q, k, v, scale, 3)
    if cu_seqlens_q.shape != cu_seqlens_k.shape:
        raise ValueError(
            f"attention_varlen: there are {cu_seqlens_q.shape[0] - 1} sequences of queries, and "
            f"{cu_seqlens_k.shape[0] - 1} of keys"
        )
    operation = ATTENTION_LSE if return_lse else ATTENTION
    return operation(
        q, k, v, sinks, alibi_slopes, None, cu_seqlens_q, cu_seqlens_k,
        int(max_seqlen_q), int(max_seqlen_k), float(scale), float(softcap),
        window_size[0], 0 if causal else window_size[1], mask, deterministic,
        out=out,
    )  # fmt: skip
