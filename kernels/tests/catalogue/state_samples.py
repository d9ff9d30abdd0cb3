"""Samples of sequences with matrices as states."""

from __future__ import annotations

import functools

import numpy as np

import tilewright_kernels as tk
from catalogue.sample import Sample, normal

#: Rows that no chunk divides.
LENGTH = 37
#: The sequence of each row.
SEQUENCES = np.repeat(np.array([[0, 2, 3]], np.int32), [9, 1, LENGTH - 10], axis=1)


def _scans() -> list[Sample]:
    given = {
        "x": normal(1, LENGTH, 4, 8), "dt": normal(1, LENGTH, 4, seed=1),
        "A": -np.exp(normal(4, seed=2)), "B": normal(1, LENGTH, 2, 5, seed=3) / 2,
        "C": normal(1, LENGTH, 2, 5, seed=4) / 2,
    }  # fmt: skip
    further = {
        **given, "D": normal(4, seed=5), "z": normal(1, LENGTH, 4, 8, seed=6),
        "dt_bias": normal(4, seed=7), "initial_states": normal(1, 4, 8, 5, seed=8),
    }  # fmt: skip
    step = {name: each[:, 0] for name, each in given.items() if name != "A"}
    return [
        Sample(
            "ssd", tk.ssd, tk.ssd_reference, further,
            {"dt_softplus": True, "return_final_states": True}, wrt=tuple(further),
            dtypes=("float32",), tolerance=100,
        ),
        Sample(
            "ssd packed", tk.ssd, tk.ssd_reference,
            {**given, "dt": np.abs(given["dt"]), "cu_seqlens": np.array([0, 9, 9, LENGTH])},
            wrt=tuple(given), dtypes=("float32",), tolerance=100,
        ),
        Sample(
            "ssd sequences", tk.ssd, tk.ssd_reference,
            {**given, "dt": np.abs(given["dt"]), "seq_idx": SEQUENCES}, wrt=tuple(given),
            dtypes=("float32",), tolerance=100,
        ),
        Sample(
            "ssd_step", tk.ssd_step, tk.ssd_step_reference,
            {"state": normal(1, 4, 8, 5), **step, "A": given["A"]}, {"dt_softplus": True},
            dtypes=("float32",), tolerance=20,
        ),
    ]  # fmt: skip


def _delta_rules() -> list[Sample]:
    given = {
        "q": normal(1, LENGTH, 2, 8), "k": normal(1, LENGTH, 2, 8, seed=1),
        "v": normal(1, LENGTH, 4, 5, seed=2), "g": -np.exp(normal(1, LENGTH, 4, seed=3)),
        "beta": 1 / (1 + np.exp(-normal(1, LENGTH, 4, seed=4))),
    }  # fmt: skip
    whole = {**given, "initial_state": normal(1, 4, 8, 5, seed=5)}
    step = {name: each[:, 0] for name, each in given.items()}
    norms = {"use_qk_l2norm": True}
    return [
        Sample(
            "gated_delta_rule", tk.gated_delta_rule, tk.gated_delta_rule_reference, whole,
            {**norms, "output_final_state": True}, wrt=tuple(whole), dtypes=("float32",),
            tolerance=200,
        ),
        Sample(
            "gated_delta_rule sequences", tk.gated_delta_rule, tk.gated_delta_rule_reference,
            {**given, "seq_idx": SEQUENCES}, norms, wrt=tuple(given), dtypes=("float32",),
            tolerance=200,
        ),
        Sample(
            "gated_delta_rule_step", tk.gated_delta_rule_step, tk.gated_delta_rule_step_reference,
            {"state": normal(1, 4, 8, 5), **step}, norms, dtypes=("float32",), tolerance=20,
        ),
    ]  # fmt: skip


@functools.cache
def state_samples() -> list[Sample]:
    """Return samples of Mamba-2's scan and of the gated delta rule."""
    return [*_scans(), *_delta_rules()]
