"""Samples of reductions, sorts, draws and sequences."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilewright_kernels as tk
from catalogue.sample import Sample, distribution, integers, normal


def _sorted_by_key(keys: Any, values: Any) -> Any:
    return tk.sort_by_key(keys, values)[1]


def _sorted_by_key_reference(keys: Any, values: Any) -> Any:
    return tk.sort_by_key_reference(keys, values)[1]


def _reductions() -> list[Sample]:
    x = normal(3, 5, 70)
    found = [
        Sample(
            f"{name} {axis}", getattr(tk, name), getattr(tk, f"{name}_reference"), {"x": x},
            {"axis": axis}, wrt=("x",), tolerance=20,
        )
        for name in ("sum", "mean", "var", "max", "min")
        for axis in (None, 1, 2)
    ] + [
        Sample(
            f"{name} {axis}", getattr(tk, name), getattr(tk, f"{name}_reference"), {"x": x},
            {"axis": axis},
        )
        for name in ("argmax", "argmin")
        for axis in (None, 1, 2)
    ]  # fmt: skip
    bounds = np.array([2, 2, 10, 11, 50], np.int32)
    return [
        *found,
        Sample(
            "sum axes", tk.sum, tk.sum_reference, {"x": normal(2, 3, 2, 3, 2)},
            {"axis": (0, 2, 4)}, wrt=("x",), tolerance=20,
        ),
        Sample(
            "var wide", tk.var, tk.var_reference, {"x": normal(70000, 2)}, {"axis": 0}, wrt=("x",),
            is_wide=True, tolerance=20,
        ),
        Sample(
            "cumsum", tk.cumsum, tk.cumsum_reference, {"x": x}, {"axis": 1}, wrt=("x",),
            tolerance=20,
        ),
        Sample(
            "cumsum reverse", tk.cumsum, tk.cumsum_reference, {"x": normal(2, 300)},
            {"reverse": True}, wrt=("x",), dtypes=("float32",), tolerance=100,
        ),
        Sample(
            "segment_sum", tk.segment_sum, tk.segment_sum_reference,
            {"x": normal(60, 5), "bounds": bounds}, wrt=("x",), tolerance=20,
        ),
        Sample(
            "histogram", tk.histogram, tk.histogram_reference, {"x": integers(-2, 40, 50, 11)},
            {"n_bins": 37}, takes_out=False,
        ),
    ]  # fmt: skip


def _sorts() -> list[Sample]:
    x = integers(-50, 50, 3, 70).astype(np.float64)
    return [
        Sample("sort", tk.sort, tk.sort_reference, {"x": x}, wrt=("x",), takes_out=False),
        Sample(
            "argsort", tk.argsort, tk.argsort_reference, {"x": x}, {"descending": True},
            takes_out=False,
        ),
        Sample(
            "sort_by_key", _sorted_by_key, _sorted_by_key_reference,
            {"keys": x, "values": normal(3, 70)}, wrt=("values",), takes_out=False, tolerance=2,
        ),
        Sample(
            "topk", tk.topk, tk.topk_reference, {"x": x}, {"k": 7}, wrt=("x",), takes_out=False,
        ),
        Sample(
            "topk payload", tk.topk, tk.topk_reference, {"x": x, "payload": normal(3, 70, seed=1)},
            {"k": 7, "largest": False}, wrt=("x", "payload"), takes_out=False, tolerance=2,
        ),
        Sample(
            "topk wide", tk.topk, tk.topk_reference,
            {"x": integers(-50, 50, 2, 9001).astype(np.float64)}, {"k": 20}, takes_out=False,
            is_wide=True,
        ),
        Sample("sort wide", tk.sort, tk.sort_reference,
               {"x": integers(-50, 50, 1, 9001).astype(np.float64)}, takes_out=False, is_wide=True),
    ]  # fmt: skip


def _where_the_mass_is(probabilities: Any, n_samples: int, seed: int) -> Any:
    """Return the draws of rows that have one positive element."""
    positions = np.argmax(np.asarray(probabilities), axis=-1)
    return np.repeat(positions[:, None], n_samples, 1)


def _draws() -> list[Sample]:
    one = np.zeros((3, 70))
    one[[0, 1, 2], [0, 35, 69]] = 2
    return [
        Sample(
            "top_p", tk.top_p, tk.top_p_reference, {"probabilities": distribution(3, 70)},
            {"p": 0.6}, dtypes=("float32",), tolerance=2,
        ),
        Sample(
            "multinomial", tk.multinomial, _where_the_mass_is, {"probabilities": one},
            {"n_samples": 3, "seed": 5},
        ),
    ]  # fmt: skip


def _sequences() -> list[Sample]:
    convolution = (tk.causal_conv1d, tk.causal_conv1d_reference)
    channels = {"x": normal(2, 5, 33), "weight": normal(5, 4, seed=1)}
    state = {**channels, "bias": normal(5, seed=2), "state": normal(2, 5, 3, seed=3)}
    packed = {**state, "seq_idx": np.sort(integers(0, 9, 2, 33), axis=1)}
    recurrence = {
        "a": 1 / (1 + np.exp(-normal(2, 33, 5))), "x": normal(2, 33, 5, seed=1),
        "initial": normal(2, 5, seed=2),
    }  # fmt: skip
    return [
        Sample("causal_conv1d", *convolution, channels, wrt=tuple(channels), tolerance=10),
        Sample(
            "causal_conv1d state", *convolution, state, {"activation": "silu"}, wrt=tuple(state),
            tolerance=20,
        ),
        Sample(
            "causal_conv1d sequences", *convolution, packed, wrt=tuple(state), tolerance=20,
        ),
        Sample(
            "linear_recurrence", tk.linear_recurrence, tk.linear_recurrence_reference, recurrence,
            wrt=tuple(recurrence), tolerance=20,
        ),
    ]  # fmt: skip


@functools.cache
def array_samples() -> list[Sample]:
    """Return samples of reductions over axes, sorts, draws and sequences."""
    return [*_reductions(), *_sorts(), *_draws(), *_sequences()]
