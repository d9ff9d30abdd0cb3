"""Stored tuning results, for this process and for others."""

import json
import textwrap

import fork_server
import numpy as np
import pytest
from tuning_support import CONFIGS, TIMES, Bench, grid, tuned

from tilewright.runtime import tuning_records
from tilewright.runtime.compiler.config import config_text


def test_results_are_kept(recorder):
    first = Bench(recorder)
    tuned(first)[grid](np.zeros(64, np.float32), 64)
    (record,) = tuning_records.own_records()
    assert record.best == config_text(CONFIGS[1])
    assert record.kernel == "add_one"
    assert record.device == "sheet 0"
    second = Bench(recorder)
    kernel = tuned(second)
    kernel[grid](np.zeros(64, np.float32), 64)
    assert second.calls == 0
    assert kernel.best_config == CONFIGS[1]
    assert kernel.configs_timings[CONFIGS[0]] == [3.0] * 3
    kernel[grid](np.zeros(64, np.float32), 128)
    assert second.calls == 4


def test_records_are_found_by_source_key_space_and_device(recorder, install_recorder):
    x = np.zeros(64, np.float32)
    tuned(Bench(recorder))[grid](x, 64)
    fewer = Bench(recorder)
    tuned(fewer, CONFIGS[:3])[grid](x, 64)
    assert fewer.calls == 3
    changed = tuned(Bench(recorder))
    changed.base_kernel._unsafe_update_src(changed.base_kernel.src.replace("+ 1", "+ 2"))
    changed[grid](x, 64)
    assert changed._given_bench.calls == 4
    other = install_recorder(name="other", priority=2000)
    elsewhere = Bench(other)
    tuned(elsewhere)[grid](x, 64)
    assert elsewhere.calls == 4


def test_a_damaged_record_tunes_again(recorder):
    x = np.zeros(64, np.float32)
    tuned(Bench(recorder))[grid](x, 64)
    (path,) = tuning_records.directory().glob("*.json")
    for damage in (
        "",
        "[1, 2]",
        '{"version": 1}',
        json.dumps({**json.loads(path.read_text()), "version": 99}),
    ):
        path.write_text(damage)
        bench = Bench(recorder)
        tuned(bench)[grid](x, 64)
        assert bench.calls == 4


@pytest.mark.parametrize(
    ("mode", "measured", "block", "kept"),
    [
        ("on", 4, 16, 1),
        ("off", 0, 8, 0),
        ("deterministic", 0, 8, 0),
        ("refresh", 4, 16, 1),
        ("memory", 4, 16, 0),
        ("model", 0, 8, 0),
    ],
)
def test_modes(recorder, monkeypatch, mode, measured, block, kept):
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", mode)
    bench = Bench(recorder)
    kernel = tuned(bench)
    kernel[grid](np.zeros(64, np.float32), 64)
    assert (
        bench.calls,
        kernel.best_config.kwargs["BLOCK"],
        len(list(tuning_records.own_records())),
    ) == (measured, block, kept)


@pytest.mark.parametrize(
    ("mode", "measured", "block"),
    [("on", 0, 16), ("off", 0, 16), ("deterministic", 0, 8), ("refresh", 4, 32), ("memory", 4, 32)],
)
def test_modes_with_a_record_of_this_machine(recorder, monkeypatch, mode, measured, block):
    x = np.zeros(64, np.float32)
    tuned(Bench(recorder))[grid](x, 64)
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", mode)
    bench = Bench(recorder, {**TIMES, 32: 0.5})
    kernel = tuned(bench)
    kernel[grid](x, 64)
    assert (bench.calls, kernel.best_config.kwargs["BLOCK"]) == (measured, block)


def test_an_unknown_mode(recorder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", "sometimes")
    with pytest.raises(ValueError, match="TILEWRIGHT_AUTOTUNE must be one of"):
        tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64)


def test_cache_results_false_keeps_nothing(recorder):
    for _ in range(2):
        bench = Bench(recorder)
        tuned(bench, cache_results=False)[grid](np.zeros(64, np.float32), 64)
        assert bench.calls == 4
    assert list(tuning_records.own_records()) == []


def test_records_ship_in_a_file(recorder, tmp_path, monkeypatch):
    x = np.zeros(64, np.float32)
    tuned(Bench(recorder))[grid](x, 64)
    shipped = tmp_path / "shipped.json"
    assert tuning_records.export(shipped) == 1
    assert tuning_records.export(tmp_path / "none.json", kernels=["other"]) == 0
    assert tuning_records.clear() == 1
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", "deterministic")
    unaware = tuned(Bench(recorder))
    unaware[grid](x, 64)
    assert unaware.best_config.kwargs["BLOCK"] == 8
    assert tuning_records.load(shipped) == 1
    aware = tuned(Bench(recorder))
    aware[grid](x, 64)
    assert aware.best_config.kwargs["BLOCK"] == 16
    (tmp_path / "junk.json").write_text("{}")
    with pytest.raises(ValueError, match="no file of tuning records"):
        tuning_records.load(tmp_path / "junk.json")


def test_the_source_key_does_not_depend_on_where_the_file_lies(tmp_path):
    source = textwrap.dedent("""
        import tilewright as tw, tilewright.language as tl
        from tilewright.runtime.tuning_records import source_key

        SIZE = tl.constexpr({size})

        @tw.jit
        def callee(a):
            return a + {addend}

        @tw.jit
        def kernel(x):
            tl.store(x, callee(tl.load(x)) + SIZE)

        print(source_key(kernel))
    """)
    keys = []
    for number, (prefix, size, addend) in enumerate(
        [("", 4, 1), ("\n\n# moved\n", 4, 1), ("", 8, 1), ("", 4, 2)]
    ):
        file = tmp_path / f"place{number}" / "kernels.py"
        file.parent.mkdir()
        file.write_text(prefix + source.format(size=size, addend=addend))
        keys.append(fork_server.run([str(file)], timeout=900, check=True).stdout)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
