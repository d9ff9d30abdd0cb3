"""Merge of attention over parts of the keys."""

from __future__ import annotations

from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.attention.blocks import padded_head
from tilewright_kernels.attention.decode_kernels import merge_kernel
from tilewright_kernels.attention.heads import rows_of
from tilewright_kernels.operations import Array, Launcher, Operation, strides


def merge_parts(run: Launcher, out: Any, lse: Any, parts: Any, part_lse: Any) -> None:
    """Launch the merge of parts of (parts, batch, rows, heads, dims)."""
    count, batch, n_q, heads, dims = parts.shape
    padded, number = padded_head(dims), int(tw.next_power_of_2(count))
    run(
        merge_kernel,
        (n_q, heads, batch),
        parts, part_lse, out, lse, *strides(parts)[:4], *strides(part_lse)[:3],
        *strides(out)[:3], heads * n_q, n_q, count,
        PARTS=number, D=dims, PADDED=padded,
        num_warps=min(max(number * padded // 2048, 1), 8),
    )  # fmt: skip


def _shapes(make: Any, parts: Any, part_lse: Any) -> tuple[Any, ...]:
    return make(parts.shape[1:], parts.dtype), make(part_lse.shape[1:], "float32")


def _launch(run: Launcher, out: Any, lse: Any, parts: Array, part_lse: Array) -> None:
    if 0 not in parts.shape[1:]:
        merge_parts(run, out, lse, rows_of(parts), rows_of(part_lse))


def merge_attention_parts_reference(parts: Any, part_lse: Any) -> Any:
    """Return the plain formula of :func:`merge_attention_parts`."""
    xp = array_api_compat.array_namespace(parts, part_lse)
    highest = xp.max(part_lse, axis=0, keepdims=True)
    highest = xp.where(xp.isinf(highest), xp.zeros_like(highest), highest)
    weights = xp.exp(part_lse - highest)
    total = xp.sum(weights, axis=0)
    shares = weights / xp.where(total == 0, xp.ones_like(total), total)
    shares = xp.permute_dims(shares, (0, 1, 3, 2))[..., None]
    return xp.sum(parts * shares, axis=0), highest[0, ...] + xp.log(total)


MERGE = Operation(
    "merge_attention_parts",
    ("out", "lse"),
    _shapes,
    _launch,
    reference=merge_attention_parts_reference,
)


def merge_attention_parts(parts: Any, part_lse: Any, *, out: Any = None) -> Any:
    """Merge attention results of the same queries, each computed over one part of the keys.

    Args:
        parts: the results, of shape (parts, batch, rows, heads, dims).
        part_lse: of shape (parts, batch, heads, rows), of float32: the logarithm of each row's sum
            of exponentials, which is -inf if the query attends to no key of the part.
        out: the pair of arrays for the results.

    Returns:
        A pair: the attention over all keys, of shape (batch, rows, heads, dims), and the
        log-sum-exp of each row of scores over all keys, of shape (batch, heads, rows). The function
        has no gradient.
    """
    if len(parts.shape) != 5 or part_lse.shape != (
        *parts.shape[:2],
        parts.shape[3],
        parts.shape[2],
    ):
        raise ValueError(
            f"merge_attention_parts: parts are of {tuple(parts.shape)}, and their logarithms of "
            f"{tuple(part_lse.shape)}"
        )
    return MERGE(parts, part_lse, out=out)
