"""Rows have the same bits whatever else is in the batch, and results in each launch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import to_framework, to_numpy

import tilewright_kernels as tk

PAGE = Path(__file__).resolve().parents[3] / "docs" / "site" / "kernels" / "index.md"
#: Rows of the whole batch, and those that are computed alone, too.
COUNT, ALONE = 300, slice(7, 10)


@dataclass(frozen=True)
class Rows:
    """A call whose results have a row for each row of some arguments.

    Attributes:
        function: takes arguments by name.
        batched: arguments that have a row for each of the result.
        shared: the others that are arrays.
        settings: those that are none.
    """

    function: Callable[..., Any]
    batched: Mapping[str, Any]
    shared: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def results(self, framework: str, rows: slice, device: str = "cpu") -> list[Any]:
        """Return the results of the call on some rows."""
        given = {name: each[rows] for name, each in self.batched.items()} | dict(self.shared)
        arrays = {name: to_framework(each, framework) for name, each in given.items()}
        if device != "cpu":
            arrays = {name: each.to(device) for name, each in arrays.items()}
        found = self.function(**arrays, **self.settings)
        return [to_numpy(each) for each in (found if isinstance(found, tuple) else (found,))]


def _draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _tokens(high: int, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int64)


def _probabilities(*shape: int) -> Any:
    found = np.exp(_draw(*shape))
    return found / found.sum(-1, keepdims=True)


def _of_rows(n: int) -> dict[str, Rows]:
    x, other, weight = _draw(COUNT, n), _draw(COUNT, n, seed=1), _draw(n, seed=2)
    logs = np.log(_probabilities(COUNT, n))
    one = {"x": x}
    target = {"target": _tokens(n, COUNT)}
    return {
        "rms_norm": Rows(tk.rms_norm, one, {"weight": weight}),
        "add_rms_norm": Rows(tk.add_rms_norm, {"x": x, "residual": other}, {"weight": weight}),
        "rms_norm_quantized": Rows(tk.rms_norm_quantized, one, {}, {"dtype": "int8"}),
        "l2_norm": Rows(tk.l2_norm, one),
        "layer_norm": Rows(tk.layer_norm, one, {"weight": weight, "bias": weight}),
        "softmax": Rows(tk.softmax, one),
        "log_softmax": Rows(tk.log_softmax, one),
        "cross_entropy": Rows(tk.cross_entropy, {"logits": x, **target}, {}, {"reduction": "none"}),
        "cross_entropy_shard": Rows(tk.cross_entropy_shard, {"logits": x, **target}),
        "kl_div": Rows(
            tk.kl_div, {"x": logs, "target": np.exp(logs[::-1])}, {}, {"reduction": "none"}
        ),
        "jsd": Rows(tk.jsd, {"x": logs, "target": logs[::-1]}, {}, {"reduction": "none"}),
        "swiglu": Rows(tk.swiglu, {"gate": x, "up": other}),
        "geglu": Rows(tk.geglu, {"gate": x, "up": other}),
        "sort": Rows(tk.sort, one),
        "topk": Rows(tk.topk, one, {}, {"k": 5}),
        "top_p": Rows(tk.top_p, {"probabilities": _probabilities(COUNT, n)}, {}, {"p": 0.7}),
    }


def _of_sequences() -> dict[str, Rows]:
    angles = _draw(COUNT, 4, seed=1)
    heads = {
        "q": _draw(COUNT, 9, 4, 16),
        "k": _draw(COUNT, 11, 2, 16),
        "v": _draw(COUNT, 11, 2, 16),
    }
    rng = np.random.default_rng(0)
    lengths = {
        "cache_seqlens": rng.integers(1, 49, COUNT).astype(np.int32),
        "page_table": rng.integers(0, 40, (COUNT, 3)).astype(np.int32),
    }
    caches = {"k_cache": _draw(40, 16, 2, 16, seed=1), "v_cache": _draw(40, 16, 2, 16, seed=2)}
    invariant = {"invariant": True}
    return {
        "group_norm": Rows(tk.group_norm, {"x": _draw(COUNT, 6, 15)}, {}, {"groups": 3}),
        "rotary": Rows(
            tk.rotary, {"x": _draw(COUNT, 3, 8), "cos": np.cos(angles), "sin": np.sin(angles)}
        ),
        "embedding": Rows(tk.embedding, {"index": _tokens(9, COUNT)}, {"table": _draw(9, 70)}),
        "quantize": Rows(tk.quantize, {"x": _draw(COUNT, 300)}, {}, {"block": (1, 128)}),
        "route": Rows(tk.route, {"logits": _draw(COUNT, 20)}, {}, {"k": 3}),
        "linear_recurrence": Rows(
            tk.linear_recurrence, {"a": 0.9 * _draw(COUNT, 33, 5), "x": _draw(COUNT, 33, 5, seed=1)}
        ),
        "causal_conv1d": Rows(
            tk.causal_conv1d, {"x": _draw(COUNT, 5, 33)}, {"weight": _draw(5, 4, seed=1)}
        ),
        "matmul": Rows(
            tk.matmul, {"a": _draw(COUNT, 200)}, {"b": _draw(200, 70, seed=1)}, invariant
        ),
        "rms_norm_matmul": Rows(
            tk.rms_norm_matmul, {"x": _draw(COUNT, 200)}, {"w": _draw(200, 70, seed=1)}, invariant
        ),
        "matmul_quantized": Rows(
            tk.matmul_quantized, {"a": _draw(COUNT, 200)}, {"b": _draw(200, 70, seed=1)},
            {"dtype": "int8", **invariant},
        ),
        "expert_swiglu": Rows(
            _expert_swiglu,
            {
                "x": _draw(COUNT, 40), "weights": _probabilities(COUNT, 3),
                "experts": np.argsort(_draw(COUNT, 6), 1)[:, :3].astype(np.int32),
            },
            {"gate_up": _draw(6, 40, 48), "down": _draw(6, 24, 40)},
        ),
        "ssd": Rows(
            tk.ssd,
            {
                "x": _draw(COUNT, 75, 4, 8), "dt": _draw(COUNT, 75, 4, seed=1),
                "B": _draw(COUNT, 75, 2, 5, seed=2), "C": _draw(COUNT, 75, 2, 5, seed=3),
            },
            {"A": -np.exp(_draw(4))}, {"dt_softplus": True},
        ),
        "gated_delta_rule": Rows(
            tk.gated_delta_rule,
            {
                "q": _draw(COUNT, 75, 2, 8), "k": _draw(COUNT, 75, 2, 8, seed=1),
                "v": _draw(COUNT, 75, 4, 5, seed=2), "g": -np.abs(_draw(COUNT, 75, 4, seed=3)),
                "beta": _probabilities(COUNT, 75, 4),
            },
            {}, {"use_qk_l2norm": True},
        ),
        "attention": Rows(tk.attention, heads, {}, {"causal": True}),
        "attention_with_kv_cache": Rows(
            tk.attention_with_kv_cache, {"q": _draw(COUNT, 1, 4, 16), **lengths}, caches, invariant
        ),
        "mla_decode": Rows(
            tk.mla_decode, {"q": _draw(COUNT, 1, 16, 48), **lengths},
            {"kv_cache": _draw(40, 16, 48, seed=1)}, {"value_dims": 32, **invariant},
        ),
    }  # fmt: skip


def _expert_swiglu(**arguments: Any) -> Any:
    with tk.use_defaults(invariant=True):
        return tk.expert_swiglu(**arguments)


def _varlen(counts: Any, **arrays: Any) -> Any:
    """Return attention of packed sequences of ``counts`` rows, with a batch axis."""
    (n, most), heads, dims = arrays["q"].shape[:2], arrays["q"].shape[2], arrays["q"].shape[3]
    packed = {
        name: np.concatenate([row[:count] for row, count in zip(each, counts, strict=True)])
        for name, each in arrays.items()
    }
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    out = tk.attention_varlen(
        **packed, cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=most, max_seqlen_k=most,
        causal=True,
    )  # fmt: skip
    found = np.zeros((n, most, heads, dims), np.float32)
    for sequence, count in enumerate(counts):
        found[sequence, :count] = out[ends[sequence] : ends[sequence + 1]]
    return found


CASES = {
    **{f"{name} {n}": each for n in (70, 3000) for name, each in _of_rows(n).items()},
    **_of_sequences(),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_do_not_depend_on_the_others(name):
    case = CASES[name]
    whole = case.results("numpy", slice(None))
    for rows in (ALONE, slice(0, 1), slice(COUNT - 1, COUNT), slice(0, 33)):
        for found, expected in zip(case.results("numpy", rows), whole, strict=True):
            np.testing.assert_array_equal(found, expected[rows])
    for found, expected in zip(case.results("numpy", slice(None)), whole, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_page_names_what_takes_invariant():
    """The table of the page names the functions that have the parameter."""
    row = next(each for each in PAGE.read_text().splitlines() if "with `invariant=True` |" in each)
    taking = {name for name in tk.__all__ if "invariant" in _parameters(getattr(tk, name))}
    assert set(re.findall(r"`(\w+)`", row)) == taking - {"set_defaults"}


def _parameters(value: Any) -> Any:
    return inspect.signature(value).parameters if inspect.isfunction(value) else ()


def test_packed_sequences_do_not_depend_on_the_others():
    counts = np.random.default_rng(0).integers(1, 40, COUNT)
    arrays = {
        name: _draw(COUNT, 40, heads, 16, seed=heads)
        for name, heads in (("q", 4), ("k", 2), ("v", 2))
    }
    whole = _varlen(counts, **arrays)
    for rows in (ALONE, slice(0, 1)):
        found = _varlen(counts[rows], **{name: each[rows] for name, each in arrays.items()})
        np.testing.assert_array_equal(found, whole[rows])
