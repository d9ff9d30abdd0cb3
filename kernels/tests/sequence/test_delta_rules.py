"""The gated delta rule in chunks against its formula step by step, and its gradients."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from checks import (
    assert_close,
    check_architectures,
    check_compiled,
    check_gradients,
    check_operation,
    check_operator,
    expected_of,
    rounded,
)

import tilewright as tw
import tilewright.language as tl
import tilewright_kernels as tk
from tilewright_kernels.sequence import chunk_launches
from tilewright_kernels.sequence.delta_rule_kernels import unit_lower_inverse
from tilewright_kernels.sequence.gated_delta_rule import (
    GATED_DELTA_RULE,
    GATED_DELTA_RULE_BACKWARD,
)

SETTINGS = {"use_qk_l2norm": True, "output_final_state": True}
#: Bounds of packed sequences: one without rows, one of a row, others that no chunk divides.
BOUNDS = np.array([0, 33, 33, 34, 75], np.int32)
FLOATS = ("q", "k", "v", "g", "beta", "initial_state")


def inputs(
    batch: int = 1, length: int = 75, key_heads: int = 1, heads: int = 2, keys: int = 9,
    values: int = 5, sequences: int = 0,
) -> dict[str, Any]:  # fmt: skip
    rng = np.random.default_rng(0)
    return {
        "q": rng.standard_normal((batch, length, key_heads, keys)),
        "k": rng.standard_normal((batch, length, key_heads, keys)),
        "v": rng.standard_normal((batch, length, heads, values)),
        "g": -np.exp(rng.standard_normal((batch, length, heads)) - 1),
        "beta": 1 / (1 + np.exp(-rng.standard_normal((batch, length, heads)))),
        "initial_state": rng.standard_normal((sequences or batch, heads, keys, values)),
    }


@tw.jit
def inverse_kernel(a_ptr, out_ptr, T: tl.constexpr):
    at = tl.arange(0, T)[:, None] * T + tl.arange(0, T)[None, :]
    tl.store(out_ptr + at, unit_lower_inverse(tl.load(a_ptr + at), T, "ieee"))


@pytest.mark.parametrize("side", [16, 32, 64])
def test_triangles_are_inverted(side):
    a = np.tril(np.random.default_rng(0).standard_normal((side, side)) / 4, -1).astype(np.float32)
    out = np.full_like(a, np.nan)
    inverse_kernel[(1,)](a, out, T=side)
    expected = np.linalg.inv(np.eye(side) + a.astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.full)]
)
def test_rules_equal_their_formula(dtype):
    tolerance = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}[dtype]
    check_operation(
        tk.gated_delta_rule, tk.gated_delta_rule_reference, inputs(2, 37, 2, 4), SETTINGS,
        dtype=dtype, rtol=tolerance, atol=tolerance, layouts=("contiguous", "columns"),
    )  # fmt: skip


def test_packed_sequences_are_those_alone():
    arrays = {**inputs(keys=16, values=33, sequences=4), "cu_seqlens": BOUNDS}
    twins = tk.gated_delta_rule, tk.gated_delta_rule_reference
    options = {"layouts": ("columns",), "rtol": 1e-3, "atol": 1e-3}
    check_operation(*twins, arrays, SETTINGS, **options)
    check_gradients(*twins, arrays, SETTINGS, wrt=FLOATS, **options)


def test_states_of_other_sequences_are_zero():
    arrays = inputs(2, keys=16, values=33)
    index = np.repeat([[0, 1, 2, 3, 7, 8], [4, 5, 6, 7, 8, 9]], [5, 27, 1, 1, 30, 11], axis=1)
    arrays["seq_idx"] = index.astype(np.int32)
    twins = tk.gated_delta_rule, tk.gated_delta_rule_reference
    options = {"layouts": ("columns",), "rtol": 1e-3, "atol": 1e-3}
    check_operation(*twins, arrays, SETTINGS, **options)
    check_gradients(*twins, arrays, SETTINGS, wrt=FLOATS, **options)


def test_decays_may_leave_nothing_in_a_part_of_a_chunk():
    """Rows past the end must not count as later ones, whose decays would be infinite."""
    arrays = inputs(length=20)
    arrays["g"] *= 100
    twins = tk.gated_delta_rule, tk.gated_delta_rule_reference
    options = {"layouts": ("contiguous",), "rtol": 1e-3, "atol": 1e-3}
    check_operation(*twins, arrays, SETTINGS, **options)
    check_gradients(*twins, arrays, SETTINGS, wrt=FLOATS, **options)


@pytest.mark.each_value
@pytest.mark.parametrize("steps", [32, 64])
@pytest.mark.parametrize("heads", [1, 3])
def test_gradients_equal_those_of_the_formula(steps, heads):
    with patch.object(chunk_launches, "chunk_steps", lambda _: steps):
        check_gradients(
            tk.gated_delta_rule, tk.gated_delta_rule_reference, inputs(2, 70, 1, heads), SETTINGS,
            rtol=1e-3, atol=1e-3, layouts=("rows",),
        )  # fmt: skip


def test_gradients_of_the_rule_alone():
    arrays = inputs(2, 40, 2, 2)
    del arrays["initial_state"]
    arrays["k"] /= np.linalg.norm(arrays["k"], axis=-1, keepdims=True)
    options: Any = {"layouts": ("contiguous",)}
    twins = tk.gated_delta_rule, tk.gated_delta_rule_reference
    check_gradients(*twins, arrays, {"scale": 0.5}, rtol=1e-3, atol=1e-3, **options)
    check_gradients(*twins, arrays, dtype="bfloat16", rtol=0.05, atol=0.1, **options)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_continue_a_sequence(dtype):
    arrays = inputs(2, 6, 2, 4, 16, 20)
    whole = expected_of(tk.gated_delta_rule_reference, arrays, SETTINGS, dtype)
    given = {name: rounded(each, dtype) for name, each in arrays.items()}
    state = given.pop("initial_state").astype(np.float32)
    for step in range(6):
        row = {name: each[:, step] for name, each in given.items()}
        out = np.full_like(row["v"], np.nan)
        tk.gated_delta_rule_step(state, **row, use_qk_l2norm=True, out=(out, state))  # in place
        assert_close(out, whole[0][:, step], dtype, atol=1e-4 if dtype == "float32" else 0.02)
    assert_close(state, whole[1], "float32", atol=1e-4)
    with tk.use_references():
        tk.gated_delta_rule_step(state, **row)
    with pytest.raises(ValueError, match="gated_delta_rule_step: g has the shape"):
        tk.gated_delta_rule_step(state, **{**row, "g": row["g"][:, 1:]})


def test_sequences_without_rows():
    arrays = {name: rounded(each, "float32") for name, each in inputs(length=0).items()}
    out, state = tk.gated_delta_rule(**arrays, output_final_state=True)
    assert out.shape == (1, 0, 2, 5)
    np.testing.assert_array_equal(state, arrays["initial_state"])


def test_operator_and_compilation():
    arrays = inputs(length=20)
    typed = {name: rounded(each, "float32") for name, each in arrays.items()}
    check_operator(GATED_DELTA_RULE, **typed, scale=0.5, output_final_state=True)
    check_compiled(tk.gated_delta_rule, arrays, SETTINGS, wrt=("q", "k", "g", "initial_state"))


@pytest.mark.parametrize("architecture", ["sm_90a", pytest.param("gfx942", marks=pytest.mark.full)])
def test_kernels_compile_for_gpus(architecture):
    k, v = np.zeros((2, 100, 2, 64), np.float16), np.zeros((2, 100, 4, 64), np.float16)
    g, architectures = np.zeros((2, 100, 4), np.float32), (architecture,)
    check_architectures(GATED_DELTA_RULE, k, k, v, g, g, architectures=architectures)
    states = np.zeros((4, 4, 64, 64), np.float16)
    sums = np.zeros((4, 200), np.float32)
    check_architectures(
        GATED_DELTA_RULE_BACKWARD, v, None, k, k, v, g, g, None, None, sums, states, v, v, states,
        1.0, architectures=architectures,
    )  # fmt: skip


def test_what_does_not_fit_is_refused():
    arrays = {name: rounded(each, "float32") for name, each in inputs(heads=4).items()}
    for name, change, message in (
        ("v", lambda each: each[0], "are not of"),
        ("k", lambda each: each.repeat(3, 2), "with heads a multiple of key_heads"),
        ("beta", lambda each: each[:, 1:], "beta has the shape"),
        ("q", lambda each: each.astype(np.float16), "q is of float16"),
    ):
        with pytest.raises(ValueError, match=message):
            tk.gated_delta_rule(**{**arrays, name: change(arrays[name])})
