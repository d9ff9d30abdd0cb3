"""Attention over caches of keys and values: decoding, prefill, and latent heads."""

from __future__ import annotations

from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.attention.blocks import (
    decode_blocks,
    decode_parts,
    latent_blocks,
    latent_parts,
    padded_head,
)
from tilewright_kernels.attention.decode_kernels import cached_attention_kernel
from tilewright_kernels.attention.heads import head_strides, rows_of
from tilewright_kernels.attention.latent_decode import launch_latent, reads_latent_blocks
from tilewright_kernels.attention.merge import merge_parts
from tilewright_kernels.attention.reference import attention_reference
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of

_NO_WINDOW = (-1, -1)


def _shapes(
    make: Any, q: Any, k_cache: Any, v_cache: Any, cache_seqlens: Any, page_table: Any,
    sinks: Any, k_descale: Any, v_descale: Any, value_dims: int, scale: float, softcap: float,
    left: int, right: int, num_splits: int, invariant: bool | None,
) -> tuple[Any, ...]:  # fmt: skip
    shape = (*q.shape[:-1], value_dims)
    return make(shape, q.dtype), make((q.shape[0], q.shape[2], q.shape[1]), "float32")


def _launch(
    run: Launcher, out: Any, lse: Any, q: Array, k_cache: Array, v_cache: Array | None,
    cache_seqlens: Array | None, page_table: Array | None, sinks: Array | None,
    k_descale: Array | None, v_descale: Array | None, value_dims: int, scale: float,
    softcap: float, left: int, right: int, num_splits: int, invariant: bool | None = None,
) -> None:  # fmt: skip
    batch, n_q, heads, dims = q.shape
    if 0 in (batch, n_q, heads):
        return
    key_heads, page = k_cache.shape[2], k_cache.shape[1]
    n_k = page if page_table is None else page_table.shape[1] * page
    group = heads // key_heads
    rope = dims - value_dims if v_cache is None else 0
    d = dims - rope
    q, k_cache = rows_of(q), rows_of(k_cache)
    v_cache = None if v_cache is None else rows_of(v_cache)
    padded, padded_v = padded_head(d), padded_head(value_dims)
    device = device_of(q)
    largest = max(padded, padded_v)
    is_paged = page_table is not None
    by_tma = v_cache is None and reads_latent_blocks(q, k_cache, value_dims, is_paged, device)
    if by_tma:
        blocks = latent_blocks(page if is_paged else 0, device)
    else:
        blocks = decode_blocks(n_q * group, n_k, largest, q.dtype.itemsize, page, device, rope)
    across = tw.cdiv(n_q * group, blocks.m)
    parts = num_splits
    if not parts:
        work = across * key_heads * batch
        if invariant:
            parts = 1
        elif by_tma:
            parts = latent_parts(work, n_k, blocks.n, device)
        else:
            parts = decode_parts(work, n_k, blocks.n, largest, device)
    target, sums = (out, lse)
    if parts > 1:
        target = run.empty((parts, *out.shape), "float32")
        sums = run.empty((parts, batch, heads, n_q), "float32")
    if by_tma:
        launch_latent(
            run, target, sums, q, k_cache, page_table, cache_seqlens, value_dims, scale, parts,
            blocks,
        )  # fmt: skip
    else:
        target_strides = strides(target) if parts > 1 else (0, *strides(target))
        sums_strides = (batch * heads * n_q, heads * n_q, n_q)
        run(
            cached_attention_kernel,
            (across * parts, key_heads, batch),
            q, k_cache, v_cache, target, sums, page_table, cache_seqlens, sinks,
            k_descale, v_descale,
            *head_strides(q), *head_strides(k_cache),
            *((0, 0, 0) if v_cache is None else head_strides(v_cache)),
            *target_strides[:4], *sums_strides,
            0 if page_table is None else strides(page_table)[0],
            n_q, n_k, scale, softcap, left, right,
            LEFT=left >= 0, RIGHT=right >= 0, SOFTCAP=softcap > 0, GROUP=group, PAGE=page,
            PARTS=parts, D=d, D_V=value_dims, ROPE=rope, PADDED=padded, PADDED_V=padded_v,
            **blocks.constants,
        )  # fmt: skip
    if parts > 1:
        merge_parts(run, out, lse, target, sums)


def attention_with_kv_cache_reference(
    q: Any, k_cache: Any, v_cache: Any, cache_seqlens: Any = None, page_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0, *, sinks: Any = None,
    k_descale: Any = None, v_descale: Any = None, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Return the plain formula of :func:`attention_with_kv_cache`, in the types of q."""
    xp = array_api_compat.array_namespace(q)
    found = []
    for batch in range(q.shape[0]):
        keys, values = (
            each[batch, ...]
            if page_table is None
            else xp.reshape(each[page_table[batch, ...], ...], (-1, *each.shape[2:]))
            for each in (k_cache, v_cache)
        )
        if cache_seqlens is not None:
            keys, values = (each[: int(cache_seqlens[batch]), ...] for each in (keys, values))
        keys, values = (xp.astype(each, q.dtype) for each in (keys, values))
        if k_descale is not None:
            keys = keys * k_descale[batch, :, None]
        if v_descale is not None:
            values = values * v_descale[batch, :, None]
        found.append(
            attention_reference(
                q[None, batch, ...],
                keys[None, ...],
                values[None, ...],
                softmax_scale,
                causal,
                window_size,
                softcap,
                sinks=sinks,
                return_lse=True,
            )
        )
    out, lse = (xp.concat(each, axis=0) for each in zip(*found, strict=True))
    return (out, lse) if return_lse else out


def mla_decode_reference(
    q: Any, kv_cache: Any, value_dims: int, cache_seqlens: Any = None, page_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False, *, return_lse: bool = False,
) -> Any:  # fmt: skip
    """Return the plain formula of :func:`mla_decode`, in the types of q."""
    keys = kv_cache[:, :, None, :]
    return attention_with_kv_cache_reference(
        q, keys, keys[..., :value_dims], cache_seqlens, page_table, softmax_scale, causal,
        return_lse=return_lse,
    )  # fmt: skip


def _by_formula(
    q: Any, k_cache: Any, v_cache: Any, cache_seqlens: Any, page_table: Any, sinks: Any,
    k_descale: Any, v_descale: Any, value_dims: int, scale: float, softcap: float,
    left: int, right: int,
) -> Any:  # fmt: skip
    return attention_with_kv_cache_reference(
        q, k_cache, k_cache[..., :value_dims] if v_cache is None else v_cache, cache_seqlens,
        page_table, scale, False, (left, right), softcap, sinks=sinks,
        k_descale=k_descale, v_descale=v_descale, return_lse=True,
    )  # fmt: skip


def _out_by_formula(
    q: Any, k_cache: Any, v_cache: Any, cache_seqlens: Any, page_table: Any, sinks: Any,
    k_descale: Any, v_descale: Any, value_dims: int, scale: float, softcap: float,
    left: int, right: int,
) -> Any:  # fmt: skip
    out, _ = _by_formula(
        q, k_cache, v_cache, cache_seqlens, page_table, sinks, k_descale, v_descale, value_dims,
        scale, softcap, left, right,
    )  # fmt: skip
    return out


CACHED_ATTENTION = Operation(
    "cached_attention",
    ("out", "lse"),
    _shapes,
    _launch,
    residuals=("lse",),
    reference=_out_by_formula,
)
CACHED_ATTENTION_LSE = Operation(
    "cached_attention_lse", ("out", "lse"), _shapes, _launch, reference=_by_formula
)


def attention_with_kv_cache(
    q: Any, k_cache: Any, v_cache: Any, cache_seqlens: Any = None, page_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW, softcap: float = 0.0, *, sinks: Any = None,
    k_descale: Any = None, v_descale: Any = None, num_splits: int = 0,
    invariant: bool | None = None, return_lse: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """Compute :func:`attention` over a cache of keys and values, for decoding and prefill.

    If there are too few heads and sequences to keep all processors busy, the keys of a sequence
    are divided among several program instances, and a second kernel merges the results of these
    instances. The function has no gradient.

    Args:
        q: of shape (batch, rows, heads, dims).
        k_cache: of shape (batch, rows of the cache, heads of k, dims) or, with ``page_table``,
            (pages, rows of a page, heads of k, dims). Its type is that of q, or an 8-bit float
            type.
        v_cache: as ``k_cache``, but with the dims of v as its last axis.
        cache_seqlens: of shape (batch,), of int32: the number of keys of each sequence, including
            those that belong to the rows of q; by default all rows of the cache.
        page_table: of shape (batch, pages of a sequence), of int32: the page numbers of each
            sequence.
        softmax_scale, causal, window_size, softcap, sinks: as in :func:`attention`.
        k_descale: of shape (batch, heads of k), of float32: factors by which 8-bit keys are
            multiplied.
        v_descale: the same for 8-bit values.
        num_splits: the number of parts into which the keys of a sequence are divided. 0 means that
            the library chooses this number by the device and the shapes.
        invariant: whether the bits of a sequence's result must not depend on the other sequences.
            If true, the keys of a sequence are not divided, unless you pass ``num_splits``. None
            means the library's default.
        return_lse: whether to also return the logarithm of each row's sum of exponentials.
        out: the array for the result; with ``return_lse``, a pair of arrays.

    Returns:
        An array of shape (batch, rows, heads, dims of v) with the element type of q. With
        ``return_lse``, the result is a pair: this array, and the log-sum-exp of each row of scores,
        a float32 array of shape (batch, heads, rows).

    Raises:
        ValueError: the shapes of the arguments do not match, or ``softmax_scale`` is not positive.

    Sources: Kwon et al., "PagedAttention", 2023; Dao et al., "Flash-Decoding", 2023.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    _checked("attention_with_kv_cache", q, k_cache, page_table, scale)
    if k_cache.shape[:3] != v_cache.shape[:3]:
        raise ValueError(
            f"attention_with_kv_cache: k_cache is of {tuple(k_cache.shape)}, and v_cache of "
            f"{tuple(v_cache.shape)}"
        )
    operation = CACHED_ATTENTION_LSE if return_lse else CACHED_ATTENTION
    return operation(
        q, k_cache, v_cache, cache_seqlens, page_table, sinks, k_descale, v_descale,
        v_cache.shape[-1], float(scale), float(softcap), window_size[0],
        0 if causal else window_size[1], int(num_splits), invariant, out=out,
    )  # fmt: skip


def mla_decode(
    q: Any, kv_cache: Any, value_dims: int, cache_seqlens: Any = None, page_table: Any = None,
    softmax_scale: float | None = None, causal: bool = False, *, num_splits: int = 0,
    invariant: bool | None = None, return_lse: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """Compute attention over a cache of latent vectors that all heads share.

    This is the decoding attention of multi-head latent attention (MLA). Each row of the cache is a
    key. The first ``value_dims`` elements of the row are also the value of this key. The caller
    must already have applied rotary embedding to the other elements of the row. The function has no
    gradient.

    Args:
        q: of shape (batch, rows, heads, dims): the first ``value_dims`` elements of a row are a
            query multiplied by the up-projection of the keys, and the others are the query's
            elements with rotary embedding.
        kv_cache: of shape (batch, rows of the cache, dims) or, with ``page_table``, (pages, rows of
            a page, dims).
        value_dims: the number of elements of a value, such as 512 if dims is 576. The number of the
            other elements, ``dims - value_dims``, must be a power of two, at least 16.
        cache_seqlens, page_table, softmax_scale, causal, num_splits, invariant, return_lse, out: as
            in :func:`attention_with_kv_cache`.

    Returns:
        An array of shape (batch, rows, heads, value_dims) with the element type of q. With
        ``return_lse``, the result is a pair: this array, and the log-sum-exp of each row of scores,
        a float32 array of shape (batch, heads, rows).

    Raises:
        ValueError: the shapes of the arguments do not match, or ``softmax_scale`` is not positive.

    Source: DeepSeek-AI, "DeepSeek-V2", 2024.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rope = q.shape[-1] - value_dims
    if rope < 16 or rope & (rope - 1):
        raise ValueError(
            f"mla_decode: {rope} elements after the value's {value_dims}: they are a power of two, "
            "from 16 on"
        )
    if len(kv_cache.shape) != 3:
        raise ValueError(f"mla_decode: kv_cache has 3 axes, not {len(kv_cache.shape)}")
    keys = kv_cache[:, :, None, :]
    _checked("mla_decode", q, keys, page_table, scale)
    operation = CACHED_ATTENTION_LSE if return_lse else CACHED_ATTENTION
    return operation(
        q, keys, None, cache_seqlens, page_table, None, None, None, value_dims, float(scale),
        0.0, -1, 0 if causal else -1, int(num_splits), invariant, out=out,
    )  # fmt: skip


def _checked(name: str, q: Any, k_cache: Any, page_table: Any, scale: float) -> None:
    if len(q.shape) != 4 or len(k_cache.shape) != 4:
        raise ValueError(f"{name}: q is of {tuple(q.shape)}, and not of four axes")
    if q.shape[-1] != k_cache.shape[-1]:
        raise ValueError(
            f"{name}: heads of q have {q.shape[-1]} elements, of keys {k_cache.shape[-1]}"
        )
    if not k_cache.shape[2] or q.shape[2] % k_cache.shape[2]:
        raise ValueError(
            f"{name}: {q.shape[2]} heads of q are no multiple of {k_cache.shape[2]} of keys"
        )
    batch = k_cache.shape[0] if page_table is None else page_table.shape[0]
    if batch != q.shape[0]:
        raise ValueError(f"{name}: q has {q.shape[0]} batches, and the cache {batch}")
    if not scale > 0:
        raise ValueError(f"{name}: softmax_scale is positive, not {scale}")
