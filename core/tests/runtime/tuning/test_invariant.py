"""Invariant tuning: one pattern of bits for all configurations, batch sizes and processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, TuningArgumentError
from tilewright.runtime import shipped_records, tuning_records


@tw.jit
def matmul(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    fits = (rows[:, None] < M) & (columns[None, :] < N)
    whole = tl.zeros((BM, BN), tl.float32)
    for part in tl.static_range(PARTS):
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(part * K // PARTS, (part + 1) * K // PARTS, BK):
            k = start + tl.arange(0, BK)
            left = tl.load(a + rows[:, None] * K + k[None, :], rows[:, None] < M, 0.0)
            right = tl.load(b + columns[None, :] * K + k[:, None], columns[None, :] < N, 0.0)
            acc = tl.dot(left, right, acc)
        whole += acc
    tl.store(c + rows[:, None] * N + columns[None, :], whole, fits)


@tw.jit
def row_sums(x, out, M, N, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * N + columns, mask=(columns < N) & (row < M), other=0.0))
    tl.store(out + row, total, mask=row < M)


@tw.jit
def sums_by_batch(x, out, M, BLOCK: tl.constexpr):
    """The elements of large batches in two halves, and of small ones one by one."""
    row, half = tl.program_id(0), tl.arange(0, 64)
    total = 0.0
    if M > 20:
        total += tl.sum(tl.load(x + row * 128 + half))
        total += tl.sum(tl.load(x + row * 128 + 64 + half))
    else:
        for i in range(128):
            total += tl.load(x + row * 128 + i)
    one = tl.full((16, 16), 0.25, tl.float32)
    tl.store(out + row, tl.max(tl.dot(one * total, one)), mask=row < M)


@tw.jit
def added(x, out, M, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.atomic_add(out + places % 4, tl.load(x + tl.program_id(0) * BLOCK + places))


BLOCKS = {"small": (16, 16, 16, 1), "large": (32, 32, 32, 1), "halves": (16, 32, 32, 2)}


def tuned(milliseconds, kernel=matmul, **options):
    """An autotuner of configurations that take as long as a table says."""
    launched: list[str] = []

    def config(name):
        return tw.Config(
            dict(zip(("BM", "BN", "BK", "PARTS"), BLOCKS[name], strict=True)),
            pre_hook=lambda arguments: launched.append(name),
        )

    def bench(call, quantiles):
        call()
        return [milliseconds[launched[-1]]] * 3

    chosen = {"invariant": True, "mode": "memory", "do_bench": bench, **options}
    return tw.autotune([config(name) for name in milliseconds], ["M"], **chosen)(kernel)


def name_of(config) -> str:
    return next(name for name, values in BLOCKS.items() if values == (*config.kwargs.values(),))


def first_row(tuner, rows: int) -> bytes:
    rng = np.random.default_rng(3)
    shapes = (70, 128), (32, 128)
    a, b = (
        (rng.standard_normal(one) * 2.0 ** rng.integers(-6, 6, one)).astype(np.float32)
        for one in shapes
    )
    c = np.zeros((rows, 32), np.float32)

    def grid(meta):
        return tw.cdiv(meta["M"], meta["BM"]), tw.cdiv(meta["N"], meta["BN"])

    tuner[grid](a[:rows], b, c, rows, 32, 128)
    assert np.allclose(c, a[:rows] @ b.T, rtol=1e-3, atol=1e-2 * np.abs(c).max())
    return c[0].tobytes()


@pytest.fixture(autouse=True)
def threads(monkeypatch) -> None:
    """Compile in threads: starting workers takes longer than the tests."""
    monkeypatch.setenv("TILEWRIGHT_WORKERS", "0")


def test_other_batches_have_the_bits_that_the_first_tuning_chose() -> None:
    milliseconds = {"small": 1.0, "large": 2.0, "halves": 3.0}
    tuner = tuned(milliseconds)
    found = {first_row(tuner, 70)}
    assert name_of(tuner.best_config) == "small"
    assert [name_of(config) for config, _ in tuner.failures] == ["halves"]
    assert "it computes other bits than [BM: 16, BN: 16" in str(tuner.failures[0][1])
    signature = tuner.signature
    assert signature
    milliseconds.update(small=3.0, halves=1.0)  # the fastest for few rows has other bits
    for rows in (1, 2):
        found.add(first_row(tuner, rows))
        assert name_of(tuner.best_config) == "large"
        assert np.isinf([tuner.configs_timings[config][0] for config, _ in tuner.failures]).all()
    assert len(found) == 1
    assert tuner.signature == signature


def test_the_fastest_group_is_chosen() -> None:
    tuner = tuned({"small": 2.0, "large": 3.0, "halves": 1.0})
    found = {first_row(tuner, rows) for rows in (3, 70)}
    assert name_of(tuner.best_config) == "halves"
    assert {name_of(config) for config, _ in tuner.failures} == {"small", "large"}
    assert len(found) == 1


def test_a_record_has_the_choice_for_other_processes() -> None:
    first = tuned({"small": 1.0, "halves": 2.0}, mode="on")
    bits = first_row(first, 70)
    assert first.record.signature == first.signature
    later = tuned({"small": 2.0, "halves": 1.0}, mode="on")
    assert first_row(later, 33) == bits  # of another key
    assert (name_of(later.best_config), later.signature) == ("small", first.signature)
    again = tuned({"small": 9.0, "halves": 9.0}, mode="off")
    assert first_row(again, 70) == bits
    assert again.configs_timings
    assert len([one for one in tuning_records.own_records() if not one.timings]) == 1


def test_the_first_of_two_processes_chooses() -> None:
    first = tuned({"small": 1.0, "halves": 2.0}, mode="on")
    second = tuned({"small": 2.0, "halves": 1.0}, mode="on")
    looked_up = tuning_records.find
    bits = []
    with pytest.MonkeyPatch.context() as patch:
        # neither finds a record when it begins
        patch.setattr(tuning_records, "find", lambda *_, **__: None)
        bits += [first_row(first, 70), first_row(second, 70)]
    assert looked_up is tuning_records.find
    assert bits[0] == bits[1]
    assert name_of(second.best_config) == "small"


def test_records_of_other_bits_are_not_merged() -> None:
    first = tuned({"small": 1.0, "halves": 2.0}, mode="on", cache_results=False)
    first_row(first, 70)
    other = replace(first.record, signature="another", best="x", timings={"x": [0.1, 0.1, 0.1]})
    assert shipped_records.merge([first.record, other]) == [first.record]
    assert not list(tuning_records.own_records())


def test_nothing_is_measured_where_a_mode_forbids_it() -> None:
    tuner = tuned({"halves": 1.0, "small": 1.0, "large": 1.0}, mode="model")
    found = {first_row(tuner, rows) for rows in (3, 70)}
    assert name_of(tuner.best_config) == "halves"
    assert len(found) == 1
    assert not tuner.configs_timings


def test_pruning_may_not_leave_other_bits_alone() -> None:
    def prune(configs, named, **keywords):
        kept = "small" if named["M"] > 20 else "halves"
        return [config for config in configs if name_of(config) == kept]

    tuner = tuned({"small": 1.0, "halves": 1.0}, prune_configs_by={"early_config_prune": prune})
    first_row(tuner, 70)
    with pytest.raises(
        AutotunerError, match=r"(?s)launches before it chose.*other bits.*help: kee"
    ):
        first_row(tuner, 2)


def launch(kernel, configs, rows=40, **options):
    tuner = tw.autotune(configs, ["M"], mode="memory", **{"invariant": True, **options})(kernel)
    x = np.random.default_rng(4).standard_normal((rows, 128)).astype(np.float32)
    out = np.zeros(rows, np.float32)
    extents = {"N": 128} if "N" in kernel.arg_names else {}
    tuner[(rows,)](x, out, rows, **extents)
    return tuner, x, out


def test_stated_orders_are_known_without_a_launch(monkeypatch) -> None:
    """Reductions of an invariant launch are trees, and ``num_warps`` is no part of Tile IR."""

    def contents(_, array):
        raise AssertionError("the kernel is launched")

    monkeypatch.setattr("tilewright.runtime.tuning.probe_arrays.ProbeArguments.contents", contents)
    configs = [tw.Config({"BLOCK": 64}, num_warps=warps) for warps in (1, 4)]
    tuner, x, out = launch(row_sums, configs)
    assert not tuner.failures
    assert np.allclose(out, x.sum(1), atol=1e-4)
    with pytest.raises(AssertionError, match="the kernel is launched"):
        launch(row_sums, [*configs, tw.Config({"BLOCK": 32})])


def test_bits_that_depend_on_the_batch_are_refused() -> None:
    configs = [tw.Config({"BLOCK": 16})]
    with (
        pytest.warns(RuntimeWarning, match="is excluded: bits of argument out depend on the"),
        pytest.raises(AutotunerError, match="no configuration of sums_by_batch is invariant") as at,
    ):
        launch(sums_by_batch, configs)
    assert "with M=1 rows that both launches compute differ from those with M=40" in str(at.value)
    tuner, x, out = launch(sums_by_batch, configs, invariant=["BLOCK"])
    assert np.allclose(out, x.sum(1), rtol=1e-4, atol=1e-4)
    assert not tuner.failures


def test_atomic_additions_of_floats_are_refused() -> None:
    with (
        pytest.warns(RuntimeWarning, match="adds floats to memory in the order in which programs"),
        pytest.raises(AutotunerError, match=r"is invariant:\n  \[BLOCK: 64.*atomic_rmw at"),
    ):
        launch(added, [tw.Config({"BLOCK": 64})])


def test_the_variable_makes_tunings_invariant(monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_INVARIANT", "1")
    assert launch(row_sums, [tw.Config({"BLOCK": 64})], invariant=None)[0].signature
    assert not launch(row_sums, [tw.Config({"BLOCK": 64})], invariant=False)[0].signature


def test_batch_sizes_are_parameters() -> None:
    with pytest.raises(TuningArgumentError, match="invariant of autotune names 'ROWS', which is"):
        tw.autotune([tw.Config({"BLOCK": 64})], ["M"], invariant=["ROWS"])(row_sums)


@tw.jit
def multiply_add(a, b, c, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i) * tl.load(b + i) + tl.load(c + i))


def test_an_invariant_launch_rounds_each_product():
    """Fused, the sum would be 2**-24 and not 0, and the option allows that."""
    a = np.full(16, 1 + 2.0**-12, np.float32)
    c = np.full(16, -1 - 2.0**-11, np.float32)
    out = np.full(16, np.nan, np.float32)
    kernel = multiply_add[(1,)](a, a, c, out, BLOCK=16, invariant=True, enable_fp_fusion=True)
    assert not out.any() and kernel.metadata.enable_fp_fusion
    assert "contract = false" in kernel.asm["tileir"]
