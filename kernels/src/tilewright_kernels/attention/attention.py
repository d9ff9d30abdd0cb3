"""Attention of batches of sequences."""

from __future__ import annotations

from typing import Any

from tilewright_kernels.attention.heads import checked
from tilewright_kernels.attention.operations import ATTENTION, ATTENTION_LSE

_NO_WINDOW = (-1, -1)


def attention(
    q: Any, k: Any, v: Any, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0, alibi_slopes: Any = None,
    *, sinks: Any = None, bias: Any = None, mask: Any = None, return_lse: bool = False,
    deterministic: bool | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Compute ``softmax(q @ k.T * softmax_scale) @ v`` for each head.

    If ``q`` has n rows and ``k`` has m rows, the arguments ``causal`` and ``window_size`` count row
    ``i`` of ``q`` as row ``i + m - n`` of ``k``: the last row of ``q`` corresponds to the last row
    of ``k``.

    Args:
        q: of shape (batch, rows, heads, dims), of float16, bfloat16 or float32, of any strides.
        k: of shape (batch, rows of k, heads of k, dims). The number of heads of q is a multiple of
            the number of heads of k: each group of heads of q shares one head of k.
        v: of shape (batch, rows of k, heads of k, dims of v).
        softmax_scale: a positive factor of the scores; by default ``dims ** -0.5``.
        causal: whether each query attends only to the keys up to its own row.
        window_size: how many keys before and after its own row a query attends to; -1 means all of
            them.
        softcap: unless it is 0, scores are replaced by ``softcap * tanh(scores / softcap)``.
        alibi_slopes: of shape (heads,) or (batch, heads). ``slope * distance`` is subtracted from
            the scores.
        sinks: of shape (heads,), of float32: one additional score for each head, whose exponential
            is added to the denominator of the softmax.
        bias: of shape (batch, heads, rows, rows of k): added to the scores. Axes of extent 1 are
            broadcast.
        mask: a function of ``tilewright.jit``: ``mask(batch, head, row, column)`` returns whether a
            query attends to a key. The four arguments of this function are indices that broadcast
            against each other.
        return_lse: whether to also return the logarithm of each row's sum of exponentials.
        deterministic: whether gradients have the same bits in each launch; None means the library's
            default. If it is false, some GPUs add the terms of the gradient of q in an order that
            changes from run to run, which is faster.
        out: the array for the result; with ``return_lse``, a pair of arrays.

    Returns:
        An array of shape (batch, rows, heads, dims of v) with the element type of q. With
        ``return_lse``, the result is a pair: this array, and the log-sum-exp of each row of scores,
        a float32 array of shape (batch, heads, rows). If a query attends to no key, its row of
        the attention is 0, and its log-sum-exp is -inf.

    Raises:
        ValueError: the shapes of the arguments do not match, or ``softmax_scale`` is not positive.

    The backward pass has handwritten kernels. With ``deterministic``, none of them uses atomic
    additions. The gradients of ``bias``, ``alibi_slopes`` and ``sinks`` are sums in float32, and
    always have the same bits in each launch.

    Sources: Dao, "FlashAttention-2", 2023; Shah et al., "FlashAttention-3", 2024.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    checked("attention", q, k, v, scale, 4)
    if bias is not None:
        whole = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        if len(bias.shape) != 4 or any(
            has not in (1, n) for has, n in zip(bias.shape, whole, strict=True)
        ):
            raise ValueError(f"attention: bias is of {tuple(bias.shape)}, and scores of {whole}")
    operation = ATTENTION_LSE if return_lse else ATTENTION
    return operation(
        q, k, v, sinks, alibi_slopes, bias, None, None, 0, 0,
        float(scale), float(softcap), window_size[0], 0 if causal else window_size[1], mask,
        deterministic, out=out,
    )  # fmt: skip
