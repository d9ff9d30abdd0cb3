"""Attention over caches against its formula in float64: pages, parts, 8-bit floats, latents."""

import ml_dtypes
import numpy as np
import pytest
from checks import check_architectures, check_operation, check_operator

import tilewright_kernels as tk
from tilewright_kernels.attention.kv_cache import CACHED_ATTENTION

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
@pytest.mark.parametrize("heads", [16, 128])
def test_kernels_of_latent_heads_compile_for_hopper(heads):
    q = np.ones((2, 1, heads, 576), np.float16)
    cache = np.ones((8, 64, 1, 576), np.float16)
    lengths, table = np.full(2, 256, np.int32), np.zeros((2, 4), np.int32)
    check_architectures(
        CACHED_ATTENTION, q, cache, None, lengths, table, None, None, None, 512, 0.1, 0.0, -1, -1,
        0, architectures=("sm_90a",),
    )  # fmt: skip
