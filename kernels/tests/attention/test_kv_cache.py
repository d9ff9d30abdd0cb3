"""Attention over caches against its formula in float64: pages, parts, 8-bit floats, latents."""

import ml_dtypes
import numpy as np
import pytest
from checks import check_architectures, check_operation, check_operator

import tilewright_kernels as tk
from tilewright_kernels.attention import kv_cache
from tilewright_kernels.attention.blocks import AttentionBlocks, latent_parts
from tilewright_kernels.attention.kv_cache import CACHED_ATTENTION
from tilewright_kernels.attention.latent_decode import reads_latent_blocks
from tilewright_kernels.operations.devices import Device

LENGTHS = np.array([33, 77, 150], np.int32)


def arrays(rows, page, paged=True, dims=16, value_dims=24):
    rng = np.random.default_rng(0)
    count = -(-150 // page)
    pages = 3 * count if paged else 3
    given = {
        "q": rng.standard_normal((3, rows, 8, dims)),
        "k_cache": rng.standard_normal((pages, page, 2, dims)),
        "v_cache": rng.standard_normal((pages, page, 2, value_dims)),
        "cache_seqlens": LENGTHS,
    }
    if paged:
        given["page_table"] = rng.permutation(pages).reshape(3, count).astype(np.int32)
    return given


@pytest.mark.parametrize(
    "rows, page, paged, settings",
    [
        (1, 16, True, {}),
        (3, 16, True, {"causal": True, "softcap": 2.0, "num_splits": 4}),
        (20, 128, True, {"causal": True, "window_size": (40, -1), "num_splits": 2}),
        (2, 150, False, {"causal": True, "num_splits": 3}),
    ],
)
def test_caches_equal_the_formula(rows, page, paged, settings):
    own = {"num_splits": settings.get("num_splits", 0)}
    settings = {name: each for name, each in settings.items() if name != "num_splits"}
    check_operation(
        tk.attention_with_kv_cache, tk.attention_with_kv_cache_reference,
        arrays(rows, page, paged), {**settings, "return_lse": True},
        own=own, layouts=("contiguous", "rows") if rows == 3 else ("contiguous",),
    )  # fmt: skip


def test_caches_of_8_bits_have_factors():
    given = arrays(1, 16)
    rng = np.random.default_rng(1)
    given |= {"k_descale": rng.random((3, 2)), "v_descale": rng.random((3, 2))}
    given["sinks"] = rng.standard_normal(8)
    typed = {
        name: each.astype(ml_dtypes.float8_e4m3fn if "cache" in name else np.float32)
        if each.dtype == np.float64
        else each
        for name, each in given.items()
    }
    exact = {
        name: each.astype(np.float64) if each.dtype.kind != "i" else each
        for name, each in typed.items()
    }
    expected = tk.attention_with_kv_cache_reference(**exact)
    for parts in (1, 4):
        found = tk.attention_with_kv_cache(**typed, num_splits=parts)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 3])
def test_latent_caches_equal_the_formula(parts):
    rng = np.random.default_rng(2)
    given = {
        "q": rng.standard_normal((2, 1, 16, 80)),
        "kv_cache": rng.standard_normal((10, 16, 80)),
        "cache_seqlens": np.array([70, 13], np.int32),
        "page_table": rng.permutation(10).reshape(2, 5).astype(np.int32),
    }
    check_operation(
        tk.mla_decode, tk.mla_decode_reference, given, {"value_dims": 64},
        own={"num_splits": parts}, layouts=("contiguous",),
    )  # fmt: skip


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("paged", [True, False])
def test_blocks_of_latent_caches_equal_the_formula(monkeypatch, paged, parts):
    """Rows behind the end of a sequence may be NaN."""
    monkeypatch.setattr(kv_cache, "reads_latent_blocks", lambda *_: True)
    monkeypatch.setattr(kv_cache, "latent_blocks", lambda *_: AttentionBlocks(16, 32, 1, 1))
    rng = np.random.default_rng(2)
    lengths = [1, 32, 100, 160] if paged else [7, 64, 33, 150]
    cache = np.full((20, 32, 80) if paged else (4, 150, 80), np.nan, np.float32)
    pages = rng.permutation(20).reshape(4, 5).astype(np.int32)
    exact = np.zeros((4, 160 if paged else 150, 80))
    for batch, length in enumerate(lengths):
        exact[batch, :length] = rng.standard_normal((length, 80))
        for row in range(length):
            place = (pages[batch, row // 32], row % 32) if paged else (batch, row)
            cache[place] = exact[batch, row]
    q = rng.standard_normal((4, 1, 20, 80)).astype(np.float32)
    given = {"cache_seqlens": np.array(lengths, np.int32), "return_lse": True}
    expected = tk.mla_decode_reference(q.astype(np.float64), exact, 64, **given)
    out = np.full((4, 1, 20, 64), np.nan, np.float32), np.full((4, 20, 1), np.nan, np.float32)
    found = tk.mla_decode(
        q, cache, 64, page_table=pages if paged else None, num_splits=parts, out=out, **given
    )
    for one, exactly in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, exactly, rtol=1e-5, atol=1e-5)


def test_tma_copies_one_page_of_aligned_rows():
    def reads(*, rows=1, page=64, pitch=576, element=np.float16, is_paged=True, family="hopper"):
        q = np.ones((2, rows, 16, 576), np.float16)
        cache = np.ones((8, page, 1, pitch), element)[..., :576]
        return reads_latent_blocks(q, cache, 512, is_paged, Device(family, 132))

    assert reads() and reads(page=32) and reads(page=50, is_paged=False) and reads(pitch=584)
    assert not any(
        [
            reads(rows=2), reads(page=48), reads(pitch=577), reads(element=np.float32),
            reads(family="ampere"), reads(page=0),
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    "programs, n_k, parts",
    [
        (16, 8192, 8),
        (32, 8192, 4),
        (128, 4096, 1),
        (256, 4096, 1),
        (70, 4096, 3),  # one part leaves half of the processors idle
        (1, 100, 1),
        (1, 0, 1),
    ],
)
def test_parts_of_latent_rows_fill_processors(programs, n_k, parts):
    assert latent_parts(programs, n_k, 64, Device("hopper", 132)) == parts


def test_bits_of_a_sequence_do_not_depend_on_the_batch():
    given = {
        name: each.astype(np.float32) if each.dtype == np.float64 else each
        for name, each in arrays(1, 16).items()
    }
    whole = tk.attention_with_kv_cache(**given, invariant=True)
    for name in ("q", "cache_seqlens", "page_table"):
        given[name] = given[name][1:2]
    alone = tk.attention_with_kv_cache(**given, invariant=True)
    np.testing.assert_array_equal(whole[1:2], alone)


def test_references_take_the_place_of_kernels():
    given = arrays(1, 16)
    found = tk.attention_with_kv_cache_reference(**given)
    with tk.use_references():
        np.testing.assert_array_equal(tk.attention_with_kv_cache(**given), found)


def test_parts_are_merged():
    rng = np.random.default_rng(3)
    given = {
        "parts": rng.standard_normal((3, 2, 5, 4, 40)),
        "part_lse": rng.standard_normal((3, 2, 4, 5)),
    }
    given["part_lse"][:2, 0, 0] = -np.inf
    check_operation(tk.merge_attention_parts, tk.merge_attention_parts_reference, given)


def test_caches_have_an_operator_of_torch():
    pytest.importorskip("torch")
    given = {
        name: each.astype(np.float32) if each.dtype == np.float64 else each
        for name, each in arrays(1, 16).items()
    }
    check_operator(CACHED_ATTENTION, *given.values(), None, None, None, 24, 0.25, 0.0, -1, -1, 2)


@pytest.mark.full
def test_kernels_of_caches_compile_for_gpus():
    given = {
        name: each.astype(np.float16) if each.dtype == np.float64 else each
        for name, each in arrays(1, 16, dims=64, value_dims=64).items()
    }
    check_architectures(
        CACHED_ATTENTION, *given.values(), None, None, None, 64, 0.25, 0.0, -1, -1, 2
    )


@pytest.mark.full
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("heads", [16, 128])
def test_kernels_of_latent_heads_compile_for_hopper(heads, rows):
    """One row of queries for each sequence has a kernel of its own."""
    q = np.ones((2, rows, heads, 576), np.float16)
    cache = np.ones((8, 64, 1, 576), np.float16)
    lengths, table = np.full(2, 256, np.int32), np.zeros((2, 4), np.int32)
    check_architectures(
        CACHED_ATTENTION, q, cache, None, lengths, table, None, None, None, 512, 0.1, 0.0, -1, -1,
        0, architectures=("sm_90a",),
    )  # fmt: skip
