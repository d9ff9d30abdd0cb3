"""Configurations that compute something else than the first are excluded before tuning."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, TuningArgumentError, VariableError
from tilewright.testing.exact import embed, exact_mode, fractions


@tw.jit
def row_sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr, SLACK: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        # SLACK: elements behind the row's end that the mask lets through
        x = tl.load(x_ptr + row * n + columns, mask=columns < n + SLACK, other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(out_ptr + row, total + tl.load(out_ptr + row))


@tw.jit
def floors(x_ptr, out_ptr, FACTOR: tl.constexpr):
    tl.store(out_ptr, tl.floor(tl.load(x_ptr) * FACTOR))


@tw.jit
def reused(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + places, tl.load(x_ptr + places))
    flags = out_ptr.to(tl.pointer_type(tl.int32))
    tl.store(flags + places, tl.load(flags + places) & 0xFF)


def config(block, slack=0):
    return tw.Config({"BLOCK": block, "SLACK": slack})


def bench(call, quantiles):
    call()
    return [1.0] * 3


def tuned(kernel, configs, check="exact", **options):
    return tw.autotune(
        configs, key=[], do_bench=bench, cache_results=False, check=check, mode="memory", **options
    )(kernel)


def arrays():
    rng = np.random.default_rng(5)
    # a row more than the grid's, since the reference refuses reads beyond an array
    return rng.standard_normal((4, 40), dtype=np.float32), np.zeros(3, np.float32)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_configuration_with_another_mask_is_excluded(backend) -> None:
    right, wrong, other = config(32), config(16, slack=1), config(64)
    tuner = tuned(row_sums, [right, wrong, other])
    x, out = arrays()
    before = x.copy()
    with (
        tw.backend(backend),
        pytest.warns(RuntimeWarning, match=r"argument out_ptr\[0\] is \S+, and \S+ with") as seen,
    ):
        tuner[(3,)](x, out, 40)
    (warning,) = seen
    assert f"configuration [{wrong}] of row_sums is excluded: it computes" in str(warning.message)
    assert "(3 of 3 elements differ)" in str(warning.message)
    assert [config for config, _ in tuner.failures] == [wrong]
    assert np.isinf(tuner.configs_timings[wrong][0])
    assert all(np.isfinite(tuner.configs_timings[one][0]) for one in (right, other))
    # each measured run had its values restored, and the check ran on copies
    assert np.array_equal(x, before)
    assert np.allclose(out, x[:3].sum(1), atol=1e-4)


def test_the_first_of_several_is_not_trusted_against_all_others() -> None:
    tuner = tuned(row_sums, [config(32, slack=1), config(32), config(64)])
    with pytest.raises(AutotunerError, match="no configuration of row_sums computes what the firs"):
        tuner[(3,)](*arrays(), 40)


def test_equal_configurations_are_kept_without_a_warning(recwarn) -> None:
    tuner = tuned(row_sums, [config(block) for block in (16, 32, 64)], reset_to_zero=["out_ptr"])
    x, out = arrays()
    tuner[(3,)](x, out, 40)
    assert not tuner.failures
    assert not recwarn.list
    assert np.allclose(out, x[:3].sum(1), atol=1e-4)


def test_the_variable_checks_every_tuning(monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_CHECK", "exact")
    wrong = config(16, slack=1)
    tuner = tuned(row_sums, [config(32), wrong], check=None)
    with pytest.warns(RuntimeWarning, match="is excluded"):
        tuner[(3,)](*arrays(), 40)
    assert tuner.best_config == config(32)
    unchecked = tuned(row_sums, [config(32), wrong], check="off")
    unchecked[(3,)](*arrays(), 40)
    assert not unchecked.failures
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_CHECK", "roughly")
    with pytest.raises(VariableError, match="one of off, exact"):
        tuned(row_sums, [config(32), wrong], check=None)[(3,)](*arrays(), 40)


def test_a_kernel_that_exact_mode_does_not_model_is_named(monkeypatch) -> None:
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    configs = [tw.Config({"BLOCK": block}) for block in (32, 64)]
    with pytest.raises(
        AutotunerError,
        match=r"configurations of reused cannot be checked: .*cast from another type",
    ):
        tuned(reused, configs)[(1,)](x, out)
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_CHECK", "exact")
    tuner = tuned(reused, configs, check=None)
    with pytest.warns(
        RuntimeWarning,
        match=r"configurations of reused cannot be checked: .*cast from another type",
    ):
        tuner[(1,)](x, out)
    assert len(tuner.configs_timings) == 2


def test_a_difference_behind_an_uninterpreted_operation_excludes_nothing() -> None:
    tuner = tuned(floors, [tw.Config({"FACTOR": 1.0}), tw.Config({"FACTOR": 2.0})])
    with pytest.warns(RuntimeWarning, match=r"is kept.*does not interpret: .*floor"):
        tuner[(1,)](np.full(1, 0.3, np.float32), np.zeros(1, np.float32))
    assert not tuner.failures


def test_tuning_within_exact_mode_takes_payloads_as_they_are() -> None:
    tuner = tuned(row_sums, [config(32), config(64)])
    x, out = embed(np.full((1, 3), 1.5, np.float32)), np.zeros(1, np.float32)
    with exact_mode():
        tuner[(1,)](x, out, 3)
    assert not tuner.failures
    assert str(fractions(out)[0]) == "9/2"


def test_records_of_checked_tunings_are_apart(monkeypatch) -> None:
    kept = []
    monkeypatch.setattr("tilewright.runtime.tuning_records.keep", kept.append)
    for check in ("off", "exact"):
        tuner = tw.autotune([config(32), config(64)], do_bench=bench, check=check, mode="refresh")
        tuner(row_sums)[(3,)](*arrays(), 40)
    assert len({record.key for record in kept}) == 2


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(TuningArgumentError, match="one of off, exact, not 'fast'"):
        tuned(row_sums, [config(32)], check="fast")
