"""Attention of packed sequences against its formula in float64."""

import numpy as np
import pytest
from checks import check_gradients, check_operation

import tilewright_kernels as tk
from tilewright_kernels.attention import operations

CU_Q = np.array([0, 5, 5, 100, 170], np.int32)
CU_K = np.array([0, 7, 20, 150, 200], np.int32)
LENGTHS = {"max_seqlen_q": 95, "max_seqlen_k": 130}


def arrays():
    rng = np.random.default_rng(0)
    return {
        "q": rng.standard_normal((170, 4, 16)),
        "k": rng.standard_normal((200, 2, 16)),
        "v": rng.standard_normal((200, 2, 16)),
        "cu_seqlens_q": CU_Q,
        "cu_seqlens_k": CU_K,
    }


@pytest.mark.parametrize("settings", [{}, {"causal": True}, {"window_size": (20, 3)}], ids=str)
def test_sequences_equal_the_formula(settings):
    check_operation(
        tk.attention_varlen, tk.attention_varlen_reference, arrays(), {**LENGTHS, **settings},
        layouts=("contiguous",),
    )  # fmt: skip


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("return_lse", [False, True])
def test_gradients_of_sequences_equal_those_of_the_formula(monkeypatch, return_lse, is_fused):
    pytest.importorskip("torch")
    monkeypatch.setattr(operations, "fuses_gradients", lambda *_: is_fused)
    check_gradients(
        tk.attention_varlen, tk.attention_varlen_reference, arrays(),
        {**LENGTHS, "window_size": (40, 9), "return_lse": return_lse},
        wrt=("q", "k", "v"), layouts=("contiguous",), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("extents", [(4,), (4, 4)], ids=str)
def test_gradients_of_slopes_of_sequences(monkeypatch, extents, is_fused):
    pytest.importorskip("torch")
    monkeypatch.setattr(operations, "fuses_gradients", lambda *_: is_fused)
    slopes = {"alibi_slopes": np.random.default_rng(1).random(extents)}
    check_gradients(
        tk.attention_varlen, tk.attention_varlen_reference, {**arrays(), **slopes},
        {**LENGTHS, "causal": True}, layouts=("columns",), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_sequences_do_not_read_their_neighbours():
    given = {
        name: each.astype(np.float32) if each.dtype == np.float64 else each
        for name, each in arrays().items()
    }
    expected = tk.attention_varlen(**given, **LENGTHS, causal=True)
    for name in ("k", "v"):
        given[name][20:150] = np.nan
    found = tk.attention_varlen(**given, **LENGTHS, causal=True)
    np.testing.assert_array_equal(found[100:], expected[100:])
    np.testing.assert_array_equal(found[:5], expected[:5])
    assert np.isnan(found[5:100]).all()


def test_numbers_of_sequences_are_equal():
    given = arrays()
    given["cu_seqlens_k"] = CU_K[:-1]
    with pytest.raises(ValueError, match="4 sequences of queries, and 3 of keys"):
        tk.attention_varlen(**given, **LENGTHS)
