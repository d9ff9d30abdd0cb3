"""The scan of Mamba-2 in chunks against its formula step by step, and its gradients."""

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
    to_framework,
)

import tilewright_kernels as tk
from tilewright_kernels.sequence import chunk_launches
from tilewright_kernels.sequence.state_space_duality import SSD, SSD_BACKWARD

SETTINGS = {"dt_softplus": True, "return_final_states": True}
#: Bounds of packed sequences: one without rows, one of a row, others that no chunk divides.
BOUNDS = np.array([0, 33, 33, 34, 75], np.int32)
FLOATS = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")


def inputs(
    batch: int = 1, length: int = 75, heads: int = 4, dims: int = 8, groups: int = 2, state: int = 5
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((batch, length, heads, dims)),
        "dt": rng.standard_normal((batch, length, heads)),
        "A": -np.exp(rng.standard_normal(heads)),
        "B": rng.standard_normal((batch, length, groups, state)) / 2,
        "C": rng.standard_normal((batch, length, groups, state)) / 2,
    }


def further(arrays: dict[str, Any], skips: bool = False, sequences: int = 0) -> dict[str, Any]:
    """Return what else a scan may take."""
    rng = np.random.default_rng(1)
    batch, _, heads, dims = arrays["x"].shape
    return {
        **arrays,
        "D": rng.standard_normal((heads, dims) if skips else heads),
        "z": rng.standard_normal(arrays["x"].shape),
        "dt_bias": rng.standard_normal(heads),
        "initial_states": rng.standard_normal(
            (sequences or batch, heads, dims, arrays["B"].shape[3])
        ),
    }


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.full)]
)
def test_scans_equal_their_formula(dtype):
    arrays = inputs(2, 37, 4, 8, 2, 5)
    tolerance = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}[dtype]
    options = {"dtype": dtype, "rtol": tolerance, "atol": tolerance}
    layouts = ("contiguous", "columns")
    check_operation(tk.ssd, tk.ssd_reference, arrays, layouts=layouts, **options)
    settings = {**SETTINGS, "dt_min": 0.1, "dt_max": 1.5}

    def function(dt_min, dt_max, **given):
        return tk.ssd(**given, dt_limit=(dt_min, dt_max))

    more = {**options, "layouts": layouts, "frameworks": ("numpy",)}
    check_operation(function, tk.ssd_reference, further(arrays, skips=True), settings, **more)


def test_packed_sequences_are_those_alone():
    arrays = further(inputs(heads=2, groups=1, dims=33, state=16), sequences=4)
    arrays["cu_seqlens"] = BOUNDS
    options = {"rtol": 1e-4, "atol": 1e-4}
    check_operation(tk.ssd, tk.ssd_reference, arrays, SETTINGS, layouts=("columns",), **options)
    check_gradients(
        tk.ssd, tk.ssd_reference, arrays, SETTINGS, wrt=FLOATS, rtol=1e-3, atol=1e-3,
        layouts=("contiguous",),
    )  # fmt: skip


#: Rows of sequences that end within chunks, with chunks, or after a step.
INDEX = np.repeat([[0, 1, 2, 3, 7, 8], [4, 5, 6, 7, 8, 9]], [5, 27, 1, 1, 30, 11], axis=1)


def test_states_of_other_sequences_are_zero():
    arrays = further(inputs(2, heads=2, groups=1, dims=5, state=3))
    arrays["seq_idx"] = INDEX.astype(np.int32)
    options = {"rtol": 1e-4, "atol": 1e-4}
    check_operation(tk.ssd, tk.ssd_reference, arrays, SETTINGS, layouts=("columns",), **options)
    check_gradients(
        tk.ssd, tk.ssd_reference, arrays, SETTINGS, wrt=FLOATS, rtol=1e-3, atol=1e-3,
        layouts=("contiguous",),
    )  # fmt: skip
    alone = ("A", "D", "dt_bias")
    row = {name: each if name in alone else each[:1] for name, each in arrays.items()}
    row |= {"cu_seqlens": np.array([0, 5, 32, 33, 34, 64, 75], np.int32), "seq_idx": None}
    row["initial_states"] = np.concatenate([row["initial_states"], np.zeros((5, 2, 5, 3))])
    packed, states = tk.ssd_reference(**row, **SETTINGS)
    whole, last = tk.ssd_reference(**arrays, **SETTINGS)
    np.testing.assert_allclose(packed[0], whole[0], rtol=1e-12)
    np.testing.assert_allclose(states[-1], last[0], rtol=1e-12)
    with pytest.raises(ValueError, match="give one"):
        tk.ssd(**inputs(), cu_seqlens=BOUNDS, seq_idx=INDEX[:1])
    with pytest.raises(ValueError, match="seq_idx has the shape"):
        tk.ssd(**inputs(), seq_idx=INDEX)


def test_decays_may_leave_nothing_in_a_part_of_a_chunk():
    """Rows past the end must not count as later ones, whose decays would be infinite."""
    arrays = inputs(length=20)
    arrays |= {"A": 20 * arrays["A"], "dt": np.abs(arrays["dt"])}
    options = {"layouts": ("contiguous",), "rtol": 1e-3, "atol": 1e-3}
    check_operation(tk.ssd, tk.ssd_reference, arrays, **options)
    check_gradients(tk.ssd, tk.ssd_reference, arrays, **options)


@pytest.mark.each_value
@pytest.mark.parametrize("steps", [32, 64])
@pytest.mark.parametrize("skips", [False, True])
def test_gradients_equal_those_of_the_formula(steps, skips):
    arrays = further(inputs(length=70, dims=5, state=3), skips=skips)
    with patch.object(chunk_launches, "chunk_steps", lambda _: steps):
        check_gradients(tk.ssd, tk.ssd_reference, arrays, SETTINGS, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("members", [2, 4])
def test_programs_of_several_heads_of_a_group(members):
    arrays = further(inputs(length=40, groups=1))
    with patch.object(chunk_launches, "_members", lambda _: members):
        check_gradients(
            tk.ssd, tk.ssd_reference, arrays, SETTINGS, rtol=1e-3, atol=1e-3,
            layouts=("contiguous",),
        )  # fmt: skip
        options = {"frameworks": ("numpy",), "layouts": ("rows",), "rtol": 1e-4, "atol": 1e-4}
        check_operation(tk.ssd, tk.ssd_reference, arrays, SETTINGS, **options)


def test_gradients_of_scans_alone():
    arrays = inputs(2, 20, groups=1)
    check_gradients(tk.ssd, tk.ssd_reference, arrays, rtol=1e-3, atol=1e-3)
    check_gradients(
        tk.ssd, tk.ssd_reference, arrays, dtype="bfloat16", rtol=0.1, atol=0.1,
        layouts=("contiguous",),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_continue_a_scan(dtype):
    arrays = further(inputs(2, 6, heads=4, dims=20, groups=2, state=16), skips=dtype == "float32")
    whole = expected_of(tk.ssd_reference, arrays, SETTINGS, dtype)
    given = {name: to_framework(rounded(each, dtype), "numpy") for name, each in arrays.items()}
    state = given.pop("initial_states").astype(np.float32)
    alone = ("A", "D", "dt_bias")
    for step in range(6):
        row = {name: each if name in alone else each[:, step] for name, each in given.items()}
        y = np.full_like(row["x"], np.nan)
        tk.ssd_step(state, **row, dt_softplus=True, out=(y, state))  # in place
        assert_close(
            y, whole[0][:, step], dtype, rtol=2e-2, atol=1e-4 if dtype == "float32" else 0.1
        )
    assert_close(state, whole[1], dtype, rtol=2e-2, atol=1e-4)
    exact = {name: each[:, 0] if name not in alone else each for name, each in given.items()}
    with tk.use_references():
        tk.ssd_step(state, **exact)
    with pytest.raises(ValueError, match="ssd_step: dt has the shape"):
        tk.ssd_step(state, **{**exact, "dt": exact["dt"][:, 1:]})


def test_a_sequence_comes_in_parts():
    arrays = {name: rounded(each, "float32") for name, each in inputs(2, 50).items()}
    whole, last = tk.ssd(**arrays, return_final_states=True)
    parts = [
        {name: each if name == "A" else each[:, rows] for name, each in arrays.items()}
        for rows in (slice(0, 21), slice(21, 50))
    ]
    first, state = tk.ssd(**parts[0], return_final_states=True)
    second, state = tk.ssd(**parts[1], initial_states=state, return_final_states=True)
    found = np.concatenate([first, second], axis=1)
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(state, last, rtol=1e-4, atol=1e-4)


def test_sequences_without_rows():
    arrays = further(inputs(length=0))
    y, state = tk.ssd(
        **{n: rounded(e, "float32") for n, e in arrays.items()}, return_final_states=True
    )
    assert y.shape == (1, 0, 4, 8)
    np.testing.assert_array_equal(state, rounded(arrays["initial_states"], "float32"))


def test_operator_and_compilation():
    arrays = further(inputs(length=20, heads=2, groups=1))
    typed = {name: rounded(each, "float32") for name, each in arrays.items()}
    check_operator(SSD, **typed, dt_softplus=True, return_final_states=True)
    check_compiled(tk.ssd, arrays, SETTINGS, wrt=("x", "dt", "B", "initial_states"))


@pytest.mark.parametrize("architecture", ["sm_90a", pytest.param("gfx942", marks=pytest.mark.full)])
def test_kernels_compile_for_gpus(architecture):
    x, b = np.zeros((2, 100, 4, 64), np.float16), np.zeros((2, 100, 1, 128), np.float16)
    dt, rate = np.zeros((2, 100, 4), np.float32), np.zeros(4, np.float32)
    architectures = (architecture,)
    check_architectures(SSD, x, dt, rate, b, b, rate, x, architectures=architectures)
    sums, states = np.zeros((4, 200), np.float32), np.zeros((4, 4, 128, 64), np.float16)
    check_architectures(
        SSD_BACKWARD, x, None, x, dt, rate, b, b, rate, rate, None, None, sums, sums, states,
        True, 0.0, 1.0, architectures=architectures,
    )  # fmt: skip


def test_what_does_not_fit_is_refused():
    arrays = {name: rounded(each, "float32") for name, each in inputs().items()}
    for name, change, message in (
        ("x", lambda each: each[0], "are not of"),
        ("x", lambda each: each[:, :, :3], "with heads a multiple of groups"),
        ("dt", lambda each: each[:, 1:], "dt has the shape"),
        ("B", lambda each: each.astype(np.float16), "B is of float16"),
    ):
        with pytest.raises(ValueError, match=message):
            tk.ssd(**{**arrays, name: change(arrays[name])})
