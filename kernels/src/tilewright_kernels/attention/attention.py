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
    """Compute ``softmax(q @ k.T * softmax_scale) @ v`` of each head.

    Row i of the queries stands at row ``i + rows of k - rows of q`` of the keys: windows and
    causal masks are aligned to the last rows.

    Args:
        q: of (batch, rows, heads, dims), of float16, bfloat16 or float32, of any strides.
        k: of (batch, rows of k, heads of k, dims). Heads of k divide those of q, of which each
            group shares one.
        v: of (batch, rows of k, heads of k, dims of v).
        softmax_scale: positive; by default ``dims ** -0.5``.
        causal: let queries see the keys up to their own row.
        window_size: how many keys before and after its row a query sees; -1 is all of them.
        softcap: replace scores by ``softcap * tanh(scores / softcap)``, unless it is 0.
        alibi_slopes: of (heads,) or (batch, heads): subtract ``slope * distance`` from scores.
        sinks: of (heads,), of float32: a score of each head that joins the sum of its weights.
        bias: added to scores, of (batch, heads, rows, rows of k), where 1 stands for all.
        mask: a function of ``tilewright.jit``: ``mask(batch, head, row, column)`` tells whether
            a query sees a key, for indices that are broadcast against each other.
        return_lse: return the logarithms of the sums of exponentials too.
        deterministic: give gradients the same bits in each launch; None is the library's default.
            Otherwise the gradient of q is summed in any order where that is faster.
        out: the array for the result; with ``return_lse`` the pair.

    Returns:
        An array of (batch, rows, heads, dims of v) and the type of q; with ``return_lse`` also one
        of (batch, heads, rows) and float32. Rows that see no key are 0, with the logarithm -inf.

    Raises:
        ValueError: shapes do not fit, or the scale is not positive.

    The backward pass has kernels of its own; with ``deterministic``, none adds atomically. The
    gradients of ``bias``, ``alibi_slopes`` and ``sinks`` are sums in float32, with the same bits in
    each launch in any case.

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
