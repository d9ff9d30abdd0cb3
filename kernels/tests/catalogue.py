"""Small inputs of every exported operation, for tests that walk over all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from checks import Value, dtype_of, to_framework

import tilewright_kernels as tk

#: Public names that compute nothing by kernels: types, settings, and conversions of layouts.
NO_OPERATIONS = frozenset(
    {
        "ExpertOrder",
        "Plan",
        "PlanError",
        "adamw_8bit_state",
        "apply_to",
        "pack_weights",
        "plan",
        "set_defaults",
        "unpack_weights",
        "use_defaults",
        "use_references",
        "weights_from_awq",
        "weights_from_gptq",
        "weights_from_hqq",
    }
)


@dataclass(frozen=True)
class Case:
    """Arguments of a public function.

    Attributes:
        name: that of the function, and after a space that of the variant.
        arrays: argument -> array of NumPy, of float64 where it is of floats of any type; a list
            of arrays; or None.
        settings: arguments that are no arrays, of the function and its twin.
        own: those that the function alone takes.
        wrt: arguments that gradients are taken of.
        mutated: arguments that the function changes, in place of results.
        is_exact: whether results are integers or moved elements, which have no rounding.
        call: calls the function, where its arguments are other structures than ``arrays``.
    """

    name: str
    arrays: Mapping[str, Value]
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    wrt: Sequence[str] = ()
    mutated: Sequence[str] = ()
    is_exact: bool = False
    call: Callable[..., Any] | None = None

    @property
    def function_name(self) -> str:
        """The name of the public function."""
        return self.name.partition(" ")[0]

    def given(self, framework: str, dtype: str = "float32") -> dict[str, Any]:
        """Return the arrays in a framework, those of float64 rounded to an element type."""
        return {
            name: to_framework(_typed(each, dtype), framework) for name, each in self.arrays.items()
        }

    def function(self, **arguments: Any) -> Any:
        """Call the function on arguments by name: ``arrays``, and any of the settings."""
        call = getattr(tk, self.function_name) if self.call is None else self.call
        return call(**arguments, **self.settings, **self.own)


def _typed(value: Value, dtype: str) -> Value:
    if isinstance(value, list):
        return [_typed(each, dtype) for each in value]
    is_rounded = value is not None and value.dtype == np.float64
    return value.astype(dtype_of(dtype)) if is_rounded else value


def exported_operations() -> list[str]:
    """Return the public functions that compute by kernels."""
    return [
        name
        for name in tk.__all__
        if inspect.isfunction(getattr(tk, name))
        and not name.endswith("_reference")
        and name not in NO_OPERATIONS
    ]


_RNG = np.random.default_rng(0)


def _draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape)


def _integers(high: int, *shape: int) -> Any:
    return _RNG.integers(0, high, shape).astype(np.int32)


def _distributions(*shape: int) -> Any:
    found = np.exp(2 * _draw(*shape))
    return found / found.sum(-1, keepdims=True)


def _float8(*shape: int) -> Any:
    return _draw(*shape).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)


def _scales(*shape: int) -> Any:
    return _RNG.uniform(0.5, 2.0, shape).astype(np.float32)


# -- rows

_ANGLES = _draw(7, 4)
_LABELS = np.array([3, 0, -100, 12, 6], np.int64)

ROWS = (
    Case("rms_norm", {"x": _draw(3, 5, 37), "weight": _draw(37)}, wrt=("x", "weight")),
    Case("rms_norm wide", {"x": _draw(2, 9001), "weight": _draw(9001)}, wrt=("x", "weight")),
    Case(
        "add_rms_norm",
        {"x": _draw(5, 37), "residual": _draw(5, 37), "weight": _draw(37)},
        {"offset": 1.0},
        wrt=("x", "residual", "weight"),
    ),
    Case(
        "rms_norm_quantized",
        {"x": _draw(5, 37), "weight": _draw(37)},
        {"dtype": "int8"},
    ),
    Case("rms_norm_quantized float8", {"x": _draw(5, 37)}),
    Case(
        "layer_norm",
        {"x": _draw(5, 37), "weight": _draw(37), "bias": _draw(37)},
        wrt=("x", "weight", "bias"),
    ),
    Case(
        "group_norm",
        {"x": _draw(2, 6, 5, 3), "weight": _draw(6), "bias": _draw(6)},
        {"groups": 3},
        wrt=("x", "weight", "bias"),
    ),
    Case("softmax", {"x": _draw(5, 37)}, wrt=("x",)),
    Case("softmax wide", {"x": _draw(2, 9001)}, wrt=("x",)),
    Case("log_softmax", {"x": _draw(5, 37)}, wrt=("x",)),
    Case(
        "cross_entropy",
        {"logits": _draw(5, 37), "target": _LABELS},
        {"label_smoothing": 0.1, "z_loss": 1e-3},
        wrt=("logits",),
    ),
    Case(
        "cross_entropy_shard",
        {"logits": _draw(5, 11), "target": _LABELS},
        {"first_class": 3},
        wrt=("logits",),
    ),
    Case(
        "kl_div", {"x": np.log(_distributions(5, 37)), "target": _distributions(5, 37)}, wrt=("x",)
    ),
    Case(
        "jsd",
        {"x": np.log(_distributions(5, 37)), "target": np.log(_distributions(5, 37))},
        {"beta": 0.3},
        wrt=("x",),
    ),
    Case("swiglu", {"gate": _draw(5, 37), "up": _draw(5, 37)}, wrt=("gate", "up")),
    Case("geglu", {"gate": _draw(5, 37), "up": _draw(5, 37)}, wrt=("gate", "up")),
    Case(
        "geglu exact",
        {"gate": _draw(5, 37), "up": _draw(5, 37)},
        {"approximate": "none"},
        wrt=("gate", "up"),
    ),
    Case(
        "rotary",
        {"x": _draw(2, 7, 3, 8), "cos": np.cos(_ANGLES), "sin": np.sin(_ANGLES)},
        wrt=("x",),
    ),
    Case("embedding", {"index": _integers(9, 4, 5), "table": _draw(9, 13)}, wrt=("table",)),
    Case("dropout", {"x": _draw(5, 37)}, {"rate": 0.3, "seed": 1234}, wrt=("x",)),
)

# -- linear

_ROWS_OF_GROUPS = np.array([0, 5, 5, 19], np.int32)

LINEAR = (
    Case("matmul", {"a": _draw(17, 40), "b": _draw(40, 9)}, wrt=("a", "b")),
    Case(
        "matmul batched",
        {
            "a": _draw(3, 17, 40),
            "b": _draw(3, 40, 9),
            "bias": _draw(9),
            "residual": _draw(3, 17, 9),
        },
        wrt=("a", "b", "bias", "residual"),
    ),
    Case(
        "lora_matmul",
        {
            "x": _draw(17, 40),
            "weight": _draw(40, 9),
            "a": _draw(40, 4),
            "b": _draw(4, 9),
            "bias": _draw(9),
        },
        {"scale": 0.5},
        wrt=("x", "weight", "a", "b", "bias"),
    ),
    Case(
        "grouped_matmul",
        {"a": _draw(19, 12), "b": _draw(3, 12, 9), "rows": _ROWS_OF_GROUPS},
        wrt=("a", "b"),
    ),
    Case(
        "k_grouped_matmul",
        {"a": _draw(19, 12), "b": _draw(19, 9), "rows": _ROWS_OF_GROUPS},
        wrt=("a", "b"),
    ),
    Case(
        "quantized_matmul",
        {
            "a": _draw(5, 64),
            "words": tk.pack_weights(_integers(16, 21, 64), 4),
            "scales": _RNG.uniform(0.5, 1.5, (21, 2)),
            "zeros": _integers(16, 21, 2).astype(np.float64),
        },
        wrt=("a",),
    ),
    Case(
        "scaled_matmul",
        {
            "a": _float8(9, 256),
            "b": _float8(256, 33),
            "a_scale": _scales(9, 2),
            "b_scale": _scales(2, 1),
            "bias": _draw(33),
        },
        own={"out_dtype": "float32"},
    ),
    Case("quantize", {"x": _draw(21, 150)}, {"block": (1, 128), "dtype": "int8"}),
    Case("quantize float8", {"x": _draw(21, 150)}, {"block": (21, 150), "dtype": "float8_e4m3fn"}),
    Case(
        "conv2d",
        {"x": _draw(2, 3, 7, 6), "weight": _draw(5, 3, 3, 2), "bias": _draw(5)},
        {"stride": 2, "padding": 1},
        wrt=("x", "weight", "bias"),
    ),
    Case(
        "linear_cross_entropy",
        {"x": _draw(5, 16), "weight": _draw(37, 16), "target": _LABELS},
        wrt=("x", "weight"),
    ),
)

# -- attention

_LATENT_PAGES = _RNG.permutation(6).reshape(2, 3).astype(np.int32)

ATTENTION = (
    Case(
        "attention",
        {"q": _draw(2, 19, 4, 16), "k": _draw(2, 23, 2, 16), "v": _draw(2, 23, 2, 24)},
        {"causal": True},
        wrt=("q", "k", "v"),
    ),
    Case(
        "attention lse",
        {
            "q": _draw(2, 19, 4, 16),
            "k": _draw(2, 23, 2, 16),
            "v": _draw(2, 23, 2, 16),
            "alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625]),
            "sinks": _draw(4),
        },
        {"window_size": (9, 3), "softcap": 2.0, "return_lse": True},
        wrt=("q", "k", "v", "sinks"),
    ),
    Case(
        "attention_varlen",
        {
            "q": _draw(23, 4, 16),
            "k": _draw(31, 2, 16),
            "v": _draw(31, 2, 16),
            "cu_seqlens_q": np.array([0, 3, 3, 23], np.int32),
            "cu_seqlens_k": np.array([0, 6, 10, 31], np.int32),
        },
        {"max_seqlen_q": 20, "max_seqlen_k": 21, "causal": True},
        wrt=("q", "k", "v"),
    ),
    Case(
        "attention_with_kv_cache",
        {
            "q": _draw(2, 1, 4, 16),
            "k_cache": _draw(6, 8, 2, 16),
            "v_cache": _draw(6, 8, 2, 16),
            "cache_seqlens": np.array([20, 7], np.int32),
            "page_table": _RNG.permutation(6).reshape(2, 3).astype(np.int32),
        },
        {"return_lse": True},
        {"num_splits": 2},
    ),
    Case(
        "mla_decode",
        {
            "q": _draw(2, 1, 16, 48),
            "kv_cache": _draw(6, 8, 48),
            "cache_seqlens": np.array([20, 7], np.int32),
            "page_table": _LATENT_PAGES,
        },
        {"value_dims": 32},
    ),
    Case("merge_attention_parts", {"parts": _draw(3, 2, 5, 4, 24), "part_lse": _draw(3, 2, 4, 5)}),
)

# -- experts

_EXPERTS = np.stack([_RNG.permutation(5)[:2] for _ in range(13)]).astype(np.int32)
_ORDER = dict(
    zip(
        ("order", "slots", "starts"),
        (each.astype(np.int32) for each in tk.expert_order_reference(_EXPERTS, 5)),
        strict=True,
    )
)


def _with_order(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(order: Any, slots: Any, starts: Any, **arguments: Any) -> Any:
        return function(**arguments, order=tk.ExpertOrder(order, slots, starts))

    return called


EXPERTS = (
    Case("route", {"logits": _draw(13, 5)}, {"k": 2}, wrt=("logits",)),
    Case("expert_order", {"experts": _EXPERTS}, {"n_experts": 5}, is_exact=True),
    Case(
        "permute",
        {"x": _draw(13, 24), **_ORDER},
        wrt=("x",),
        is_exact=True,
        call=_with_order(tk.permute),
    ),
    Case(
        "combine",
        {"y": _draw(26, 24), "weights": _distributions(13, 2), **_ORDER},
        wrt=("y", "weights"),
        call=_with_order(tk.combine),
    ),
    Case(
        "grouped_swiglu",
        {
            "x": _draw(26, 24),
            "gate_up": _draw(5, 24, 36),
            "down": _draw(5, 18, 24),
            "starts": _ORDER["starts"],
        },
        wrt=("x", "gate_up", "down"),
    ),
    Case(
        "expert_swiglu",
        {
            "x": _draw(13, 24),
            "weights": _distributions(13, 2),
            "experts": _EXPERTS,
            "gate_up": _draw(5, 24, 36),
            "down": _draw(5, 18, 24),
        },
        wrt=("x", "weights", "gate_up", "down"),
    ),
)

# -- sampling and sequences

SAMPLING = (
    Case("sort", {"x": _draw(3, 37)}, {"descending": True}, wrt=("x",), is_exact=True),
    Case("argsort", {"x": _integers(9, 3, 37)}, is_exact=True),
    Case(
        "sort_by_key",
        {"keys": _integers(9, 3, 37), "values": _draw(3, 37)},
        wrt=("values",),
        is_exact=True,
    ),
    Case("topk", {"x": _draw(3, 37)}, {"k": 5}, wrt=("x",), is_exact=True),
    Case(
        "topk payload",
        {"x": _draw(3, 37), "payload": _draw(3, 37)},
        {"k": 5, "largest": False},
        wrt=("x", "payload"),
        is_exact=True,
    ),
    Case("top_p", {"probabilities": _distributions(3, 37)}, {"p": 0.7}),
    Case(
        "multinomial",
        {"probabilities": _distributions(3, 37)},
        {"n_samples": 5, "seed": 1234},
        is_exact=True,
    ),
)

SEQUENCE = (
    Case(
        "linear_recurrence",
        {"a": 1 / (1 + np.exp(-_draw(2, 11, 5))), "x": _draw(2, 11, 5), "initial": _draw(2, 5)},
        wrt=("a", "x", "initial"),
    ),
    Case(
        "causal_conv1d",
        {
            "x": _draw(2, 5, 11),
            "weight": _draw(5, 4),
            "bias": _draw(5),
            "state": _draw(2, 5, 3),
        },
        {"activation": "silu"},
        wrt=("x", "weight", "bias", "state"),
    ),
)

# -- reductions and optimizers

REDUCTIONS = (
    Case("sum", {"x": _draw(3, 5, 37)}, {"axis": (0, 2)}, wrt=("x",)),
    Case("sum integers", {"x": _integers(9, 3, 37)}, {"axis": 1, "keepdims": True}, is_exact=True),
    Case("mean", {"x": _draw(3, 5, 37)}, {"axis": 1}, wrt=("x",)),
    Case("var", {"x": _draw(3, 5, 37)}, {"axis": (1, 2), "correction": 1}, wrt=("x",)),
    Case("max", {"x": _draw(3, 5, 37)}, {"axis": 1}, wrt=("x",), is_exact=True),
    Case("min", {"x": _draw(3, 5, 37)}, {"axis": (0, 1)}, wrt=("x",), is_exact=True),
    Case("argmax", {"x": _draw(3, 5, 37)}, {"axis": 1}, is_exact=True),
    Case("argmin", {"x": _draw(3, 5, 37)}, {"keepdims": True}, is_exact=True),
    Case("cumsum", {"x": _draw(3, 37)}, {"axis": 0, "reverse": True}, wrt=("x",)),
    Case(
        "segment_sum",
        {"x": _draw(11, 5), "bounds": np.array([1, 4, 4, 9], np.int32)},
        wrt=("x",),
    ),
    Case("histogram", {"x": _integers(9, 3, 37)}, {"n_bins": 7}, is_exact=True),
    Case(
        "histogram floats",
        {"x": _draw(3, 37)},
        {"n_bins": 7, "minimum": -1.0, "maximum": 1.5},
        is_exact=True,
    ),
)


def _adamw_8bit(**arguments: Any) -> None:
    names = ("first_codes", "first_scales", "second_codes", "second_scales")
    states = list(zip(*(arguments.pop(name) for name in names), strict=True))
    tk.adamw_8bit(**arguments, states=states)


_SHAPES = ((5, 37), (300,))
_STATES = [tk.adamw_8bit_state(np.zeros(shape, np.float32)) for shape in _SHAPES]

OPTIMIZERS = (
    Case(
        "adamw",
        {
            "parameters": [_draw(*each) for each in _SHAPES],
            "gradients": [_draw(*each) for each in _SHAPES],
            "first": [_draw(*each) for each in _SHAPES],
            "second": [np.abs(_draw(*each)) for each in _SHAPES],
        },
        {"step": 3, "lr": 0.01},
        mutated=("parameters", "first", "second"),
    ),
    Case(
        "adamw_8bit",
        {
            "parameters": [_draw(*each) for each in _SHAPES],
            "gradients": [_draw(*each) for each in _SHAPES],
            "first_codes": [each[0] for each in _STATES],
            "first_scales": [each[1] for each in _STATES],
            "second_codes": [each[2] for each in _STATES],
            "second_scales": [each[3] for each in _STATES],
        },
        {"step": 1, "lr": 0.01},
        mutated=("parameters", "first_codes", "first_scales", "second_codes", "second_scales"),
        call=_adamw_8bit,
    ),
)

CASES = (
    *ROWS, *LINEAR, *ATTENTION, *EXPERTS, *SAMPLING, *SEQUENCE, *REDUCTIONS, *OPTIMIZERS,
)  # fmt: skip
