"""Launches of decoding over caches of latent rows by TMA."""

from __future__ import annotations

from typing import Any

import tilewright as tw
from tilewright_kernels.attention.blocks import AttentionBlocks
from tilewright_kernels.attention.latent_kernel import latent_attention_kernel
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.operations.devices import Device


def reads_latent_blocks(
    q: Any, cache: Any, value_dims: int, is_paged: bool, device: Device
) -> bool:
    """Return whether TMA copies blocks of the cache, for one query of each sequence.

    Args:
        q: of (batch, rows, heads, dims).
        cache: of (pages, rows, 1, dims). A block of rows lies in one page.
    """
    page, dims, size = cache.shape[1], cache.shape[-1], q.dtype.itemsize
    page_stride, row_stride, _, step = strides(cache)
    pointer = getattr(cache, "data_ptr", None)
    return (
        device.family == "hopper"
        and q.dtype == cache.dtype
        and size == 2
        and q.shape[1] == 1
        and cache.shape[2] == 1
        and 0 not in cache.shape
        # smaller heads leave room for several programs
        and value_dims == 512
        and dims - value_dims <= 64
        and (not is_paged or page % 32 == 0)
        # TMA takes addresses and strides that are multiples of 16 bytes
        and step == 1
        and row_stride >= dims
        and not any(each * size % 16 for each in (page_stride, row_stride))
        and (pointer is None or pointer() % 16 == 0)
    )


def launch_latent(
    run: Launcher, target: Any, sums: Any, q: Any, cache: Any, page_table: Any,
    cache_seqlens: Any, value_dims: int, scale: float, parts: int,
    blocks: AttentionBlocks,
) -> None:  # fmt: skip
    """Launch attention over ``parts`` parts of the rows.

    Args:
        target: for the results, of (parts, batch, 1, heads, value_dims), or of one part.
        sums: for the logarithms of sums, the same of (parts, batch, heads, 1).
    """
    batch, _, heads, dims = q.shape
    page = cache.shape[1]
    n_k = page if page_table is None else page_table.shape[1] * page
    target_strides = strides(target) if parts > 1 else (0, *strides(target))
    run(
        latent_attention_kernel,
        (tw.cdiv(heads, blocks.m) * parts, batch),
        q, cache, target, sums, page_table, cache_seqlens,
        strides(q)[0], strides(q)[2], *strides(cache)[:2],
        target_strides[0], target_strides[1], target_strides[3], batch * heads, heads, 1,
        0 if page_table is None else strides(page_table)[0],
        cache.shape[0], page, parts, heads, n_k, scale,
        PAGE=0 if page_table is None else page,
        EVEN=cache_seqlens is None and n_k % blocks.n == 0,
        D=value_dims, ROPE=dims - value_dims, **blocks.constants,
    )  # fmt: skip
