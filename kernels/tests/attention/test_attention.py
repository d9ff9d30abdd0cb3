"""Attention against its formula in float64: masks, scores, types, strides, gradients."""

import numpy as np
import pytest
from checks import (
    ARCHITECTURES,
    check_architectures,
    check_gradients,
    check_operation,
    check_operator,
)

import tilewright as tw
import tilewright_kernels as tk
from tilewright.testing import exact_mode
from tilewright_kernels.attention import operations
from tilewright_kernels.attention.blocks import AttentionBlocks, forward_programs
from tilewright_kernels.attention.operations import ATTENTION, ATTENTION_BACKWARD, ATTENTION_LSE
from tilewright_kernels.operations.devices import Device
from tilewright_kernels.operations.prepared_calls import PreparedCalls

#: batch, rows, rows of k, heads, heads of k, dims, dims of v -> settings
CASES = [
    ((2, 65, 65, 4, 2, 64, 64), {}),
    ((1, 130, 130, 2, 1, 40, 24), {"causal": True}),
    ((1, 30, 100, 2, 2, 16, 16), {"causal": True, "softcap": 3.0}),
    ((1, 150, 150, 1, 1, 16, 16), {"window_size": (50, 20), "softmax_scale": 0.5}),
    ((2, 40, 70, 4, 2, 16, 16), {"causal": True, "window_size": (17, -1)}),
]
ADDED = ("sinks", "alibi_slopes", "bias")


@tw.jit
def prefix(batch, head, row, column):
    return (column <= row) | (column < 5)


def arrays(shape, added=()):
    batch, rows, columns, heads, key_heads, dims, value_dims = shape
    rng = np.random.default_rng(0)
    given = {
        "q": rng.standard_normal((batch, rows, heads, dims)),
        "k": rng.standard_normal((batch, columns, key_heads, dims)),
        "v": rng.standard_normal((batch, columns, key_heads, value_dims)),
        "sinks": rng.standard_normal(heads),
        "alibi_slopes": rng.random(heads),
        "bias": rng.standard_normal((1, heads, rows, columns)),
    }
    return {name: each for name, each in given.items() if name in added or name not in ADDED}


@pytest.mark.parametrize("shape, settings", CASES, ids=str)
def test_attention_equals_its_formula(shape, settings):
    settings = {**settings, "return_lse": True}
    layouts = ("contiguous", "columns") if settings.get("causal") else ("rows",)
    check_operation(tk.attention, tk.attention_reference, arrays(shape), settings, layouts=layouts)


@pytest.mark.parametrize("shape", [(0, 3, 3, 2, 1, 16, 16), (1, 3, 0, 2, 1, 16, 16)])
def test_nothing_to_attend_to(shape):
    given = {name: each.astype(np.float32) for name, each in arrays(shape).items()}
    batch, rows, _, heads, *_ = shape
    out, lse = tk.attention(**given, return_lse=True)
    np.testing.assert_array_equal(out, np.zeros((batch, rows, heads, 16)))
    np.testing.assert_array_equal(lse, np.full((batch, heads, rows), -np.inf))


def test_rows_without_keys_are_zero():
    given = arrays((1, 100, 30, 2, 1, 16, 16))
    out, lse = tk.attention(
        **{name: each.astype(np.float32) for name, each in given.items()},
        causal=True,
        return_lse=True,
    )
    assert not out[:, :70].any() and np.isneginf(lse[..., :70]).all()
    expected = tk.attention_reference(**given, causal=True)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_of_narrow_types(dtype):
    given = arrays((1, 70, 70, 2, 1, 64, 64))
    check_operation(
        tk.attention, tk.attention_reference, given, {"causal": True},
        dtype=dtype, layouts=("contiguous",),
    )  # fmt: skip


def test_sinks_slopes_and_biases_join_the_scores():
    given = arrays((2, 30, 50, 4, 2, 16, 16), ADDED)
    settings = {"causal": True, "return_lse": True}
    check_operation(
        tk.attention, tk.attention_reference, given, settings, layouts=("contiguous",),
        frameworks=("numpy",),
    )  # fmt: skip


def test_masks_are_functions():
    given = arrays((1, 70, 70, 2, 1, 16, 16))
    row, column = np.ogrid[:70, :70]
    kept = (column <= row) | (column < 5)
    found = tk.attention(
        **{name: each.astype(np.float32) for name, each in given.items()}, mask=prefix
    )
    expected = tk.attention_reference(**given, mask=kept)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradients_equal_those_of_the_formula(number):
    pytest.importorskip("torch")
    shape, settings = CASES[number]
    settings = {**settings, "return_lse": number % 2 == 0}
    check_gradients(
        tk.attention, tk.attention_reference, arrays(shape), settings, rtol=1e-4, atol=1e-5
    )


def test_gradients_of_sinks_and_with_masks():
    torch = pytest.importorskip("torch")
    given = arrays((2, 30, 50, 4, 2, 16, 16), ADDED)
    check_gradients(
        tk.attention, tk.attention_reference, given, {"causal": True}, wrt=("q", "k", "v", "sinks"),
        layouts=("contiguous",), rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    row, column = np.ogrid[:70, :70]
    kept = torch.from_numpy((column <= row) | (column < 5))
    check_gradients(
        lambda **given: tk.attention(**given, mask=prefix),
        lambda **given: tk.attention_reference(**given, mask=kept),
        arrays((1, 70, 70, 2, 1, 16, 16)),
        layouts=("contiguous",), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_gradients_that_nobody_asks_for_are_not_computed(monkeypatch):
    torch = pytest.importorskip("torch")
    for name in ("sinks", "slopes", "bias", "scores"):
        monkeypatch.setattr(operations, f"{name}_gradient_kernel", None)
    given = {
        name: torch.from_numpy(each).float().requires_grad_(name not in ADDED)
        for name, each in arrays((1, 3, 5, 2, 1, 16, 16), ADDED).items()
    }
    tk.attention(**given).sum().backward()
    assert given["q"].grad is not None
    assert all(given[name].grad is None for name in ADDED)


@pytest.fixture
def fused(monkeypatch):
    """Let one kernel compute all gradients on this device too."""
    monkeypatch.setattr(operations, "fuses_gradients", lambda *_: True)
    blocks = AttentionBlocks(32, 64, 1, 1)
    monkeypatch.setattr(operations, "fused_blocks", lambda *_: blocks)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_gradients_by_one_kernel(fused, number):
    pytest.importorskip("torch")
    shape, settings = CASES[number]
    settings = {**settings, "return_lse": number % 2 == 0}
    check_gradients(
        tk.attention, tk.attention_reference, arrays(shape), settings, layouts=("rows",),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_gradients_of_sinks_and_modified_scores_by_one_kernel(fused):
    pytest.importorskip("torch")
    check_gradients(
        tk.attention, tk.attention_reference, arrays((2, 30, 50, 4, 2, 16, 16), ADDED),
        {"causal": True, "softcap": 4.0}, wrt=("q", "k", "v", "sinks"), layouts=("contiguous",),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_keys_past_the_end_add_nothing_to_gradients(fused):
    """Their scores are 0, of which the exponential overflows beside sums of small ones."""
    torch = pytest.importorskip("torch")
    shape = (1, 20, 20, 1, 1, 16, 16)
    q, k, v = (torch.from_numpy(each).float() for each in arrays(shape).values())
    given = [40 * torch.ones_like(q), k.abs() - 9, v]
    found = [each.requires_grad_() for each in given]
    tk.attention(*found).square().sum().backward()
    exact = [each.detach().double().requires_grad_() for each in given]
    tk.attention_reference(*exact).square().sum().backward()
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("asks", ["call", "library", "torch"])
def test_who_asks_for_the_same_bits(monkeypatch, fused, asks):
    torch = pytest.importorskip("torch")
    launched = []
    monkeypatch.setattr(
        operations, "fused_blocks", lambda *_: launched.append(1) or AttentionBlocks(32, 32, 1, 1)
    )
    q, k, v = (
        torch.from_numpy(each).float().requires_grad_()
        for each in arrays((1, 8, 8, 1, 1, 16, 16)).values()
    )
    tk.attention(q, k, v).sum().backward()
    assert len(launched) == 1
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: asks == "torch")
    with tk.use_defaults(deterministic=asks == "library"):
        asked = {"deterministic": True} if asks == "call" else {}
        tk.attention(q, k, v, **asked).sum().backward()
    assert len(launched) == 1


@pytest.mark.parametrize("shape", [(0, 3, 3, 2, 1, 16, 16), (1, 0, 3, 2, 1, 16, 16)])
def test_nothing_is_fused_where_there_are_no_queries(monkeypatch, fused, shape):
    """There is no descriptor of an empty array; gradients of keys are 0."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(operations, "fused_blocks", lambda *_: pytest.fail("fused"))
    given = [torch.from_numpy(each).float().requires_grad_() for each in arrays(shape).values()]
    tk.attention(*given).sum().backward()
    for each in given:
        torch.testing.assert_close(each.grad, torch.zeros_like(each))


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize(
    "extents", [(2, 4, 30, 50), (1, 4, 30, 50), (2, 1, 30, 1), (1, 1, 1, 50), (1, 4, 1, 1)], ids=str
)
def test_gradients_of_what_is_added_to_scores(monkeypatch, extents, is_fused):
    pytest.importorskip("torch")
    monkeypatch.setattr(operations, "fuses_gradients", lambda *_: is_fused)
    blocks = AttentionBlocks(16, 16, 1, 1)
    for name in ("query_blocks", "fused_blocks", "bias_blocks"):
        monkeypatch.setattr(operations, name, lambda *_: blocks)
    monkeypatch.setattr(operations, "bias_columns", lambda *_: 3)
    given = arrays((2, 30, 50, 4, 2, 16, 16), ADDED)
    rng = np.random.default_rng(1)
    given["bias"] = rng.standard_normal(extents)
    if extents[0] == 2:
        given["alibi_slopes"] = rng.random((2, 4))
    for settings in ({}, {"causal": True, "softcap": 4.0}, {"window_size": (9, 3)}):
        check_gradients(
            tk.attention, tk.attention_reference, given, settings,
            layouts=("columns",), rtol=1e-4, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 3, 3, 2, 1, 16, 16), (1, 3, 0, 2, 1, 16, 16)], ids=str)
def test_what_is_added_to_no_scores_has_the_gradient_zero(shape):
    torch = pytest.importorskip("torch")
    given = {name: torch.from_numpy(each).float() for name, each in arrays(shape, ADDED).items()}
    given["bias"] = torch.ones(1, shape[3], 1, 1)
    for name in ADDED:
        given[name].requires_grad_()
    tk.attention(**given).sum().backward()
    for name in ADDED[1:]:
        torch.testing.assert_close(given[name].grad, torch.zeros_like(given[name]))


def test_attention_is_an_operator_of_torch():
    pytest.importorskip("torch")
    given = [each.astype(np.float32) for each in arrays((1, 20, 20, 2, 1, 16, 16)).values()]
    check_operator(ATTENTION_LSE, *given, scale=0.3, right=0)


def test_references_take_the_place_of_kernels():
    given = arrays((1, 8, 8, 2, 1, 16, 16))
    out, lse = tk.attention_reference(**given, causal=True, return_lse=True)
    with tk.use_references():
        np.testing.assert_array_equal(tk.attention(**given, causal=True), out)
        found = tk.attention(**given, causal=True, return_lse=True)[1]
        np.testing.assert_array_equal(found, lse.astype(np.float32))


@pytest.mark.full
def test_block_sizes_and_caches_are_one_algebra(monkeypatch):
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.integers(0, 2**31, (1, 40, 2, 16)).astype(np.int32).view(np.float32) for _ in range(3)
    )
    settings = {"causal": True, "softmax_scale": 0.25}
    lengths, table = np.array([40], np.int32), np.arange(5, dtype=np.int32)[None]
    found = []
    with exact_mode():
        for m, n in ((16, 16), (64, 32)):
            blocks = AttentionBlocks(m, n, 1, 1)
            monkeypatch.setattr(operations, "forward_blocks", lambda *_, blocks=blocks: blocks)
            found.append(tk.attention(q, k, v, **settings))
        pages = [each.reshape(5, 8, 2, 16) for each in (k, v)]
        found.append(
            tk.attention_with_kv_cache(q, *pages, lengths, table, num_splits=3, **settings)
        )
    for each in found:
        np.testing.assert_array_equal(each.view(np.int32), found[0].view(np.int32))
    assert np.unique(found[0].view(np.int32)).size == q.size


@pytest.mark.parametrize(
    "change, message",
    [
        ({"softmax_scale": 0.0}, "softmax_scale is positive"),
        ({"k": np.ones((1, 8, 3, 16), np.float32)}, "v of"),
        ({"q": np.ones((1, 8, 2, 8), np.float32)}, "heads of q have 8 elements"),
        ({"bias": np.ones((1, 2, 8, 7), np.float32)}, "bias is of"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    given = {
        name: each.astype(np.float32) for name, each in arrays((1, 8, 8, 2, 1, 16, 16)).items()
    }
    with pytest.raises(ValueError, match=message):
        tk.attention(**{**given, **change})


@pytest.mark.parametrize(
    "tiles, n_k, causal, persistent",
    [
        (2048, 2048, True, True),
        (2048, 2048, False, True),
        (2048, 8192, True, True),
        (2048, 8192, False, True),
        (4096, 32768, True, False),  # 16 rounds of pairs, where 31 of single blocks suffice
        (2 * 140, 2048, True, False),  # 140 pairs take as long as 264
    ],
)
def test_programs_are_persistent_where_that_pays(tiles, n_k, causal, persistent):
    hopper = Device("hopper", 132)
    found = forward_programs(tiles, n_k, AttentionBlocks(128, 128, 8, 2), 128, 2, causal, hopper)
    assert found == (132 if persistent else 0)


@pytest.mark.parametrize("shape", [(2, 100, 100, 2, 1, 16, 16), (3, 64, 90, 4, 2, 16, 8)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("programs", [1, 3, 7, 100])
def test_persistent_programs_compute_every_block(monkeypatch, shape, causal, programs):
    monkeypatch.setattr(operations, "forward_programs", lambda *_: programs)
    PreparedCalls.forget()
    given = {name: each.astype(np.float32) for name, each in arrays(shape).items()}
    out = np.full((*given["q"].shape[:3], shape[-1]), np.nan, np.float32)
    tk.attention(**given, causal=causal, out=out)
    exact = {name: each.astype(np.float64) for name, each in given.items()}
    expected = tk.attention_reference(**exact, causal=causal)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 256, 2, 64), (8, 2048, 16, 128)])
def test_the_forward_kernel_compiles_for_a_gpu(shape):
    q = np.zeros(shape, np.float16)
    check_architectures(ATTENTION, q, q, q, scale=0.1, right=0, architectures=("sm_90a",))


@pytest.mark.full
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_attention_compile_for_gpus(architecture):
    q, k, v = (each.astype(np.float16) for each in arrays((1, 256, 256, 2, 1, 64, 64)).values())
    lse, slopes = np.ones((1, 2, 256), np.float32), np.ones(2, np.float32)
    check_architectures(ATTENTION, q, k, v, scale=0.1, right=0, architectures=(architecture,))
    for deterministic in (False, True):
        bias = np.ones((1, 2 if deterministic else 1, 256, 256), np.float16)
        check_architectures(
            ATTENTION_BACKWARD, q, None, q, k, v, q, lse, None, slopes, bias, None, None, 0, 0,
            0.1, 0.0, -1, 0, None, deterministic, True, True, architectures=(architecture,),
        )  # fmt: skip
