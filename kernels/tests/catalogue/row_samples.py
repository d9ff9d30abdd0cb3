"""Samples of the operations on rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilewright_kernels as tk
from catalogue.sample import Sample, distribution, integers, normal

ROWS, COLUMNS = 5, 70
#: More than a tile of a whole row holds.
WIDE = 131101


def _norms() -> list[Sample]:
    x, weight, bias = normal(ROWS, COLUMNS), normal(COLUMNS, seed=1), normal(COLUMNS, seed=2)
    wide = {"x": normal(2, WIDE), "weight": normal(WIDE, seed=1)}
    image = {"x": normal(2, 6, 3, 5) + 2, "weight": normal(6, seed=1), "bias": normal(6, seed=2)}
    both = {"x": x, "residual": normal(ROWS, COLUMNS, seed=3), "weight": weight}
    quantized = {"function": tk.rms_norm_quantized, "reference": tk.rms_norm_quantized_reference}
    functions = (tk.rms_norm, tk.rms_norm_reference)
    return [
        Sample(
            "rms_norm", *functions, {"x": x, "weight": weight}, {"offset": 1.0},
            wrt=("x", "weight"), tolerance=10,
        ),
        Sample("rms_norm plain", *functions, {"x": x, "weight": None}, wrt=("x",), tolerance=10),
        Sample(
            "rms_norm wide", *functions, wide, wrt=("x", "weight"), is_wide=True, tolerance=10,
        ),
        Sample(
            "add_rms_norm", tk.add_rms_norm, tk.add_rms_norm_reference, both, wrt=tuple(both),
            tolerance=10,
        ),
        Sample(
            "layer_norm", tk.layer_norm, tk.layer_norm_reference,
            {"x": x, "weight": weight, "bias": bias}, wrt=("x", "weight", "bias"), tolerance=10,
        ),
        Sample(
            "layer_norm wide", tk.layer_norm, tk.layer_norm_reference,
            {**wide, "bias": normal(WIDE, seed=2)}, wrt=("x", "weight", "bias"), is_wide=True,
            tolerance=10,
        ),
        Sample("l2_norm", tk.l2_norm, tk.l2_norm_reference, {"x": x}, wrt=("x",), tolerance=10),
        Sample(
            "group_norm", tk.group_norm, tk.group_norm_reference, image, {"groups": 3},
            wrt=tuple(image), tolerance=10,
        ),
        Sample(
            "group_norm wide", tk.group_norm, tk.group_norm_reference,
            {"x": normal(1, 4, 9001), "weight": normal(4), "bias": normal(4)}, {"groups": 2},
            wrt=tuple(image), is_wide=True, tolerance=30,
        ),
        # half a step of int8
        Sample(
            "rms_norm_quantized", **quantized, arrays={"x": x, "weight": weight},
            settings={"dtype": "int8"}, dtypes=("float32",), tolerance=5.1e4,
        ),
    ]  # fmt: skip


def _softmaxes() -> list[Sample]:
    return [
        Sample(
            f"{name}{suffix}", getattr(tk, name), getattr(tk, f"{name}_reference"),
            {"x": 3 * normal(*shape)}, wrt=("x",), is_wide=bool(suffix), tolerance=10,
        )
        for name in ("softmax", "log_softmax")
        for suffix, shape in (("", (ROWS, COLUMNS)), (" wide", (2, WIDE)))
    ]  # fmt: skip


def _losses() -> list[Sample]:
    target = integers(0, COLUMNS, ROWS).astype(np.int64)
    target[1] = 2
    ignored = {"ignore_index": 2, "label_smoothing": 0.1, "z_loss": 1e-2}
    entropy = (tk.cross_entropy, tk.cross_entropy_reference)
    linear = {"x": normal(ROWS, 12), "weight": normal(COLUMNS, 12, seed=1) / 3, "target": target}
    log_p = np.log(distribution(ROWS, COLUMNS))
    shard = {"first_class": 10}
    return [
        Sample(
            "cross_entropy", *entropy, {"logits": 3 * normal(ROWS, COLUMNS), "target": target},
            ignored, wrt=("logits",), tolerance=10,
        ),
        Sample(
            "cross_entropy wide", *entropy,
            {"logits": 3 * normal(2, 9001), "target": integers(0, 9001, 2).astype(np.int64)},
            {"reduction": "none"}, wrt=("logits",), is_wide=True, tolerance=10,
        ),
        Sample(
            "cross_entropy_shard", tk.cross_entropy_shard, tk.cross_entropy_shard_reference,
            {"logits": 3 * normal(ROWS, COLUMNS), "target": target}, shard, wrt=("logits",),
            tolerance=10,
        ),
        Sample(
            "linear_cross_entropy", tk.linear_cross_entropy, tk.linear_cross_entropy_reference,
            linear, ignored, wrt=("x", "weight"), tolerance=10,
        ),
        Sample(
            "kl_div", tk.kl_div, tk.kl_div_reference,
            {"x": log_p, "target": distribution(ROWS, COLUMNS, seed=1)}, wrt=("x", "target"),
            tolerance=20,
        ),
        Sample(
            "jsd", tk.jsd, tk.jsd_reference,
            {"x": log_p, "target": np.log(distribution(ROWS, COLUMNS, seed=1))},
            {"beta": 0.3, "reduction": "none"}, wrt=("x", "target"), tolerance=20,
        ),
    ]  # fmt: skip


def _elementwise() -> list[Sample]:
    gated = {"gate": normal(ROWS, COLUMNS), "up": normal(ROWS, COLUMNS, seed=1)}
    angles = normal(ROWS, 4, seed=1)
    heads = {"x": normal(ROWS, 3, 8), "cos": np.cos(angles), "sin": np.sin(angles)}
    rotary = (tk.rotary, tk.rotary_reference)
    tokens = {"index": integers(0, 7, 3, 9).astype(np.int64), "table": normal(7, 20)}
    return [
        Sample("swiglu", tk.swiglu, tk.swiglu_reference, gated, wrt=tuple(gated), tolerance=10),
        Sample("geglu", tk.geglu, tk.geglu_reference, gated, wrt=tuple(gated), tolerance=10),
        Sample(
            "geglu erf", tk.geglu, tk.geglu_reference, gated, {"approximate": "none"},
            wrt=tuple(gated), tolerance=10,
        ),
        Sample("rotary", *rotary, heads, wrt=("x",), tolerance=10),
        Sample(
            "rotary interleaved", *rotary, heads, {"interleaved": True}, wrt=("x",), tolerance=10,
        ),
        Sample(
            "embedding", tk.embedding, tk.embedding_reference, tokens, wrt=("table",), tolerance=10,
        ),
        Sample(
            "dropout", tk.dropout, tk.dropout_reference, {"x": normal(ROWS, COLUMNS)},
            {"rate": 0.3, "seed": 7}, wrt=("x",), tolerance=2,
        ),
    ]  # fmt: skip


@functools.cache
def row_samples() -> list[Sample]:
    """Return samples of norms, softmaxes, losses, and operations on elements."""
    found: list[Any] = [*_norms(), *_softmaxes(), *_losses(), *_elementwise()]
    return found
