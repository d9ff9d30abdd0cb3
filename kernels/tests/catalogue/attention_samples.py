"""Samples of attention."""

from __future__ import annotations

import functools

import numpy as np

import tilewright as tw
import tilewright_kernels as tk
from catalogue.sample import Sample, normal


@tw.jit
def prefix(batch, head, row, column):
    return (column <= row) | (column < 5)


def _mask_of(rows: int) -> np.ndarray:
    row, column = np.ogrid[:rows, :rows]
    return (column <= row) | (column < 5)


def _heads(rows: int, columns: int, heads: int = 2, key_heads: int = 1, dims: int = 16) -> dict:
    return {
        "q": normal(1, rows, heads, dims), "k": normal(1, columns, key_heads, dims, seed=1),
        "v": normal(1, columns, key_heads, dims, seed=2),
    }  # fmt: skip


def _masked(**given):
    return tk.attention(**given, mask=prefix)


def _masked_reference(**given):
    mask = _mask_of(given["q"].shape[1])
    if not isinstance(given["q"], np.ndarray):
        import torch

        mask = torch.from_numpy(mask)
    return tk.attention_reference(**given, mask=mask)


def _whole() -> list[Sample]:
    attention = (tk.attention, tk.attention_reference)
    qkv = ("q", "k", "v")
    added = {
        **_heads(21, 33), "sinks": normal(2), "alibi_slopes": np.abs(normal(2)),
        "bias": normal(1, 2, 21, 33),
    }  # fmt: skip
    return [
        Sample(
            "attention", *attention, _heads(37, 37), {"return_lse": True}, wrt=qkv, tolerance=10,
        ),
        Sample(
            "attention causal", *attention, _heads(37, 50, 4, 2),
            {"causal": True, "softcap": 3.0}, wrt=qkv, tolerance=10,
        ),
        Sample(
            "attention wide", *attention, _heads(300, 300, 4, 2, 64), {"causal": True}, wrt=qkv,
            tolerance=10, is_wide=True,
        ),
        Sample(
            "attention window", *attention, _heads(70, 70, 1),
            {"window_size": (20, 9), "softmax_scale": 0.5}, wrt=qkv, tolerance=10,
        ),
        Sample(
            "attention added", *attention, added, {"causal": True},
            wrt=(*qkv, "sinks", "alibi_slopes", "bias"), tolerance=10,
        ),
        Sample(
            "attention shared bias", *attention,
            {**_heads(21, 33), "bias": normal(1, 1, 1, 33, seed=3)}, {"window_size": (20, 3)},
            wrt=(*qkv, "bias"), tolerance=20,
        ),
        Sample(
            "attention mask", _masked, _masked_reference, _heads(37, 37), wrt=qkv, tolerance=10,
        ),
    ]  # fmt: skip


def _packed() -> list[Sample]:
    arrays = {
        "q": normal(50, 2, 16), "k": normal(60, 1, 16, seed=1), "v": normal(60, 1, 16, seed=2),
        "cu_seqlens_q": np.array([0, 5, 5, 50], np.int32),
        "cu_seqlens_k": np.array([0, 7, 20, 60], np.int32),
    }  # fmt: skip
    lengths = {"max_seqlen_q": 45, "max_seqlen_k": 40}
    return [
        Sample(
            f"attention_varlen{suffix}", tk.attention_varlen, tk.attention_varlen_reference,
            arrays, {**lengths, **settings}, wrt=("q", "k", "v"), tolerance=10,
        )
        for suffix, settings in (("", {"window_size": (20, 3)}), (" causal", {"causal": True}))
    ]  # fmt: skip


def _caches() -> list[Sample]:
    rng = np.random.default_rng(3)
    paged = {
        "q": normal(2, 3, 4, 16), "k_cache": normal(8, 16, 2, 16, seed=1),
        "v_cache": normal(8, 16, 2, 24, seed=2), "cache_seqlens": np.array([33, 50], np.int32),
        "page_table": rng.permutation(8).reshape(2, 4).astype(np.int32),
    }  # fmt: skip
    whole = {
        **paged, "k_cache": normal(2, 50, 2, 16, seed=1), "v_cache": normal(2, 50, 2, 24, seed=2),
        "page_table": None,
    }  # fmt: skip
    latent = {
        "q": normal(2, 1, 16, 48), "kv_cache": normal(6, 16, 48, seed=1),
        "cache_seqlens": np.array([41, 13], np.int32),
        "page_table": rng.permutation(6).reshape(2, 3).astype(np.int32),
    }  # fmt: skip
    cached = (tk.attention_with_kv_cache, tk.attention_with_kv_cache_reference)
    parts = {"parts": normal(3, 2, 5, 4, 20), "part_lse": normal(3, 2, 4, 5, seed=1)}
    parts["part_lse"][:2, 0, 0] = -np.inf
    return [
        Sample(
            "attention_with_kv_cache", *cached, paged, {"causal": True}, own={"num_splits": 1},
            tolerance=10,
        ),
        Sample(
            "attention_with_kv_cache parts", *cached, paged,
            {"causal": True, "return_lse": True}, own={"num_splits": 3}, tolerance=10,
        ),
        Sample("attention_with_kv_cache whole", *cached, whole, tolerance=10),
        Sample(
            "mla_decode", tk.mla_decode, tk.mla_decode_reference, latent, {"value_dims": 32},
            own={"num_splits": 2}, tolerance=10,
        ),
        Sample(
            "merge_attention_parts", tk.merge_attention_parts, tk.merge_attention_parts_reference,
            parts, dtypes=("float32",), tolerance=10,
        ),
    ]  # fmt: skip


@functools.cache
def attention_samples() -> list[Sample]:
    """Return samples of attention of whole batches, packed sequences and caches."""
    return [*_whole(), *_packed(), *_caches()]
