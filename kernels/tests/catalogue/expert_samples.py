"""Samples of mixtures of experts, and of steps of optimizers."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

import tilewright_kernels as tk
from catalogue.sample import Sample, integers, normal

TOKENS, K, EXPERTS, COLUMNS, HIDDEN = 11, 3, 6, 20, 12


def _permuted(x: Any, experts: Any) -> Any:
    return tk.permute(x, tk.expert_order(experts, EXPERTS))


def _permuted_reference(x: Any, experts: Any) -> Any:
    return tk.permute_reference(x, tk.expert_order_reference(experts, EXPERTS))


def _combined(y: Any, weights: Any, experts: Any) -> Any:
    return tk.combine(y, weights, tk.expert_order(experts, EXPERTS))


def _combined_reference(y: Any, weights: Any, experts: Any) -> Any:
    return tk.combine_reference(y, weights, tk.expert_order_reference(experts, EXPERTS))


def _experts() -> list[Sample]:
    rng = np.random.default_rng(0)
    experts = np.stack([rng.permutation(EXPERTS)[:K] for _ in range(TOKENS)]).astype(np.int32)
    x, weights = normal(TOKENS, COLUMNS), rng.random((TOKENS, K))
    layers = {
        "gate_up": normal(EXPERTS, COLUMNS, 2 * HIDDEN, seed=1) / 6,
        "down": normal(EXPERTS, HIDDEN, COLUMNS, seed=2) / 5,
    }
    mixture = {"x": x, "weights": weights, "experts": experts, **layers}
    logits = normal(9, 12)
    return [
        Sample(
            "route", tk.route, tk.route_reference, {"logits": logits},
            {"k": 4, "renormalize": False}, wrt=("logits",), dtypes=("float32",), tolerance=10,
            takes_out=False,
        ),
        Sample(
            "expert_order", tk.expert_order, tk.expert_order_reference,
            {"experts": integers(0, 5, 70, 3)}, {"n_experts": 5}, takes_out=False,
        ),
        Sample(
            "permute", _permuted, _permuted_reference, {"x": x, "experts": experts}, wrt=("x",),
            tolerance=10, takes_out=False,
        ),
        Sample(
            "combine", _combined, _combined_reference,
            {"y": normal(TOKENS * K, COLUMNS), "weights": weights, "experts": experts},
            wrt=("y", "weights"), tolerance=10, takes_out=False,
        ),
        Sample(
            "expert_swiglu", tk.expert_swiglu, tk.expert_swiglu_reference, mixture,
            wrt=("x", "weights", *layers), dtypes=("float32", "bfloat16"), tolerance=20,
            takes_out=False,
        ),
    ]  # fmt: skip


def _stepped(parameters: Any, gradients: Any, first: Any, second: Any) -> Any:
    changed = copy.deepcopy([parameters, first, second])
    tk.adamw(changed[0], gradients, changed[1], changed[2], 3, lr=0.1, weight_decay=0.1)
    return tuple(each for group in changed for each in group)


def _stepped_reference(parameters: Any, gradients: Any, first: Any, second: Any) -> Any:
    groups = zip(parameters, gradients, first, second, strict=True)
    found = [tk.adamw_reference(*each, 3, lr=0.1, weight_decay=0.1) for each in groups]
    return tuple(each for group in zip(*found, strict=True) for each in group)


def _stepped_in_8_bits(parameters: Any, gradients: Any) -> Any:
    changed = copy.deepcopy(parameters)
    states = [tk.adamw_8bit_state(each) for each in changed]
    tk.adamw_8bit(changed, gradients, states, 1, lr=0.1)
    return tuple(changed)


def _first_step_reference(parameters: Any, gradients: Any) -> Any:
    groups = zip(parameters, gradients, strict=True)
    return tuple(
        tk.adamw_reference(each, slope, 0 * each, 0 * each, 1, lr=0.1)[0] for each, slope in groups
    )


def _optimizers() -> list[Sample]:
    shapes = [(3,), (30, 31), (300,)]
    drawn = [[normal(*shape, seed=seed) for shape in shapes] for seed in range(4)]
    parameters, gradients, first, second = drawn
    lists = {
        "parameters": parameters, "gradients": gradients, "first": first,
        "second": [np.abs(each) for each in second],
    }  # fmt: skip
    return [
        Sample(
            "adamw", _stepped, _stepped_reference, lists, dtypes=("float32",), tolerance=10,
            takes_out=False, any_strides=False,
        ),
        Sample(
            "adamw_8bit", _stepped_in_8_bits, _first_step_reference,
            {"parameters": parameters, "gradients": gradients}, dtypes=("float32",), tolerance=20,
            takes_out=False, any_strides=False,
        ),
    ]  # fmt: skip


@functools.cache
def expert_samples() -> list[Sample]:
    """Return samples of routing, of experts, and of steps of optimizers."""
    return [*_experts(), *_optimizers()]
