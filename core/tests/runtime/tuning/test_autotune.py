"""Choosing configurations by measuring them; heuristics."""

import concurrent.futures
import math
import multiprocessing
import threading

import fork_server
import numpy as np
import pytest
from optional_torch import torch
from tuning_support import CONFIGS, TIMES, Bench, grid, tuned

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import (
    AutotunerError,
    BackendError,
    CompileTimeAssertionFailure,
    LoweringError,
    OutOfResources,
)
from tilewright.runtime.hooks import hooks
from tilewright.runtime.tuning.autotune import Config

#: Seconds after which a test that waits for what does not come fails.
GUARD = 900


def test_the_fastest_configuration_is_found_once_per_key(recorder):
    bench = Bench(recorder)
    kernel = tuned(bench)
    x = np.zeros(64, np.float32)
    compiled = kernel[grid](x, 64)
    assert compiled.src.constants["BLOCK"] == 16
    assert kernel.best_config == CONFIGS[1]
    assert bench.calls == 4
    assert {config.kwargs["BLOCK"]: times for config, times in kernel.configs_timings.items()} == {
        block: [time_] * 3 for block, time_ in TIMES.items()
    }
    assert kernel.bench_time > 0
    assert kernel.nargs is None
    kernel[grid](x, 64)
    assert bench.calls == 4
    assert len(kernel.cache) == 1
    kernel[grid](x, 128)
    kernel[grid](np.zeros(64, np.float64), 64)
    assert len(kernel.cache) == 3
    assert bench.calls == 12
    assert kernel.base_kernel.arg_names == kernel.arg_names == ["x", "n", "BLOCK"]
    assert kernel.keys == ["n"]


def test_one_configuration_is_not_measured(recorder):
    bench = Bench(recorder)
    kernel = tuned(bench, [Config({"BLOCK": 32}, num_warps=2)])
    compiled = kernel[grid](np.zeros(64, np.float32), 64)
    assert bench.calls == 0
    assert compiled.metadata.num_warps == 2
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_launch_options_of_a_configuration(recorder):
    kernel = tuned(
        Bench(recorder),
        [
            Config({"BLOCK": 16}, num_warps=2, num_stages=5),
            Config({"BLOCK": 32}, num_ctas=2, maxnreg=64),
        ],
    )
    kernel[grid](np.zeros(64, np.float32), 64)
    assert {
        (lowered["num_warps"], lowered["num_stages"], lowered["num_ctas"], lowered["maxnreg"])
        for lowered in recorder.lowered
    } == {
        (2, 5, 1, None),
        (4, 3, 2, 64),
    }


def test_conflicting_meta_parameters(recorder):
    with pytest.raises(
        ValueError, match=r"Conflicting meta-parameters: BLOCK(.|\n)*help: leave them out"
    ):
        tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64, BLOCK=8)


@pytest.mark.parametrize("field", ["key", "reset_to_zero", "restore_value"])
def test_names_of_no_parameter(recorder, field):
    options = {"key": ["n"], field: ["nothing"]}
    with pytest.raises(ValueError, match=f"{field} of autotune names 'nothing'"):
        tuned(Bench(recorder), **options)


def test_deprecated_arguments_warn(recorder):
    with pytest.warns(DeprecationWarning, match="do_bench"):
        tuned(Bench(recorder), rep=10)


@pytest.mark.parametrize(
    "error",
    [OutOfResources(2, 1, "shared memory"), LoweringError("no"), CompileTimeAssertionFailure("no")],
)
def test_failing_configurations_are_skipped(recorder, error):
    def refuse_best(module, options):
        if "0, 16" in str(module) or "end = 16" in str(module):
            raise error

    recorder.on_lower = refuse_best
    kernel = tuned(Bench(recorder))
    kernel[grid](np.zeros(64, np.float32), 64)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert kernel.configs_timings[CONFIGS[1]] == [math.inf] * 3


def test_configurations_that_fail_at_launch_are_skipped(recorder):
    def refuse(grid, values):
        if grid == (4, 1, 1):
            raise OutOfResources(2, 1, "registers")

    recorder.on_launch = refuse
    kernel = tuned(Bench(recorder))
    kernel[grid](np.zeros(64, np.float32), 64)
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_when_none_is_left(recorder):
    def refuse(*_):
        raise OutOfResources(300, 200, "shared memory")

    recorder.on_lower = refuse
    with pytest.raises(
        AutotunerError,
        match=(
            r"no configuration of add_one works: \[BLOCK: 8.*OutOfResources: out of resource: "
            r"shared memory, Required: 300"
        ),
    ) as raised:
        tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64)
    assert isinstance(raised.value.__cause__, OutOfResources)


def test_other_errors_are_not_swallowed(recorder):
    recorder.on_lower = lambda *_: {}["defect"]
    with pytest.raises(BackendError, match="defect of the backend"):
        tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64)


def test_a_configuration_that_compiles_too_long_is_given_up(recorder):
    go = threading.Event()

    def slow(module, options):
        if "end = 16" in str(module):
            go.wait(GUARD)

    recorder.on_lower = slow
    with concurrent.futures.ThreadPoolExecutor(
        len(CONFIGS)
    ) as pool:  # which waits for the thread that was given up: the backend is still there then
        kernel = tuned(
            Bench(recorder), time_limit=2.0, executor=pool
        )  # seconds: the others take some milliseconds
        try:
            kernel[grid](np.zeros(64, np.float32), 64)
        finally:
            go.set()
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_trials_compile_in_parallel(recorder):
    together = threading.Barrier(len(CONFIGS))
    recorder.on_lower = lambda *_: together.wait(
        GUARD
    )  # where one comes after the other, the first waits in vain
    with concurrent.futures.ThreadPoolExecutor(len(CONFIGS)) as pool:
        kernel = tuned(Bench(recorder), executor=pool)
        kernel[grid](np.zeros(64, np.float32), 64)
    assert len(recorder.lowered) == len(CONFIGS)


def test_early_pruning_and_a_performance_model(recorder):
    seen = {}

    def early(configs, named_args, **kwargs):
        seen.update(named_args, **kwargs)
        return [config for config in configs if config.kwargs["BLOCK"] != 16]

    def model(n, x, BLOCK, num_warps, **others):
        return -BLOCK

    bench = Bench(recorder)
    kernel = tuned(
        bench, prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 2}
    )
    x = np.zeros(64, np.float32)
    kernel[grid](x, 64, num_stages=3)
    assert seen == {"x": x, "n": 64, "num_stages": 3}
    assert bench.calls == 2
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    half = tuned(Bench(recorder), prune_configs_by={"perf_model": model, "top_k": 0.5})
    half[grid](x, 64)
    assert {config.kwargs["BLOCK"] for config in half.configs_timings} == {32, 64}


def test_early_pruning_that_leaves_none(recorder):
    kernel = tuned(
        Bench(recorder),
        prune_configs_by={"early_config_prune": lambda configs, named_args, **kwargs: []},
    )
    with pytest.raises(AutotunerError, match="early_config_prune"):
        kernel[grid](np.zeros(64, np.float32), 64)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arguments_are_reset_and_restored(recorder, library):
    def make(value):
        array = np.full(64, value, np.float32)
        return array if library == "numpy" else torch.from_numpy(array)

    seen = []

    def change(grid, values):
        seen.append((float(values[0][0]), float(values[1][0])))
        values[0][0] += 5
        values[1][0] += 7

    recorder.on_launch = change

    def two(x, y, none, n, BLOCK: tl.constexpr):
        tl.store(x, n + BLOCK)
        tl.store(y, n)

    two = tw.autotune(
        configs=CONFIGS,
        key=["n"],
        reset_to_zero=["x", "none"],
        restore_value=["y", "none"],
        do_bench=Bench(recorder),
    )(tw.jit(two))
    x, y = make(9.0), make(3.0)
    two[grid](x, y, None, 64)
    assert (
        seen == [(0.0, 3.0)] * 5
    )  # four trials and the launch itself, after which nothing is put back
    assert (float(x[0]), float(y[0])) == (5.0, 10.0)
    two[grid](x, y, None, 64)
    assert seen[-1] == (5.0, 10.0)


def test_hooks_of_the_tuner_and_of_configurations(recorder):
    events = []
    configs = [
        Config(
            {"BLOCK": 16},
            pre_hook=lambda arguments: events.append(
                ("config", arguments["BLOCK"], arguments["n"])
            ),
        ),
        Config({"BLOCK": 32}),
    ]
    kernel = tuned(
        Bench(recorder),
        configs,
        pre_hook=lambda arguments, reset_only=False: events.append(
            ("pre", arguments["BLOCK"], reset_only)
        ),
        post_hook=lambda arguments, exception=None: events.append(
            ("post", arguments["BLOCK"], exception)
        ),
    )
    x = np.zeros(64, np.float32)
    kernel[grid](x, 64)
    trial = [
        ("config", 16, 64),
        ("pre", 16, False),
        ("post", 16, None),
        ("pre", 32, False),
        ("post", 32, None),
    ]
    assert events == [*trial, ("pre", 16, True), ("config", 16, 64)]
    events.clear()
    kernel[grid](x, 64)
    assert events == [("config", 16, 64)]


def read_block(x, n, BLOCK: tl.constexpr):
    tl.static_assert(x.block_shape[0] == BLOCK)
    x.store([tl.program_id(0) * BLOCK], x.load([tl.program_id(0) * BLOCK]) + 1)


def test_a_configuration_decides_the_blocks_of_a_descriptor_before_it_is_compiled(recorder):
    def set_block(arguments):
        arguments["x"].block_shape = [arguments["BLOCK"]]

    configs = [Config({"BLOCK": block}, pre_hook=set_block) for block in TIMES]
    kernel = tw.autotune(configs=configs, key=["n"], do_bench=Bench(recorder))(tw.jit(read_block))
    described = tw.TensorDescriptor(np.zeros(64, np.float32), [64], [1], [4])
    compiled = kernel[grid](described, 64)
    assert {
        config.kwargs["BLOCK"]: times[0] for config, times in kernel.configs_timings.items()
    } == TIMES
    assert compiled.src.constants["BLOCK"] == 16 and described.block_shape == [16]


def test_the_post_hook_sees_what_went_wrong(recorder):
    seen = []

    def refuse(grid, values):
        raise OutOfResources(2, 1, "registers")

    recorder.on_launch = refuse
    kernel = tuned(
        Bench(recorder), post_hook=lambda arguments, exception=None: seen.append(type(exception))
    )
    with pytest.raises(AutotunerError):
        kernel[grid](np.zeros(64, np.float32), 64)
    assert seen == [OutOfResources] * 4


def test_a_listener_and_the_printed_report(recorder, monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_PRINT_AUTOTUNING", "1")
    told = []
    hooks.autotuning_listener = lambda **facts: told.append(facts)
    try:
        kernel = tuned(Bench(recorder))
        kernel[grid](np.zeros(64, np.float32), 64)
    finally:
        hooks.reset()
    (facts,) = told
    assert (facts["fn"], facts["best_config"], facts["cache_hit"]) == (kernel, CONFIGS[1], False)
    printed = capsys.readouterr().out
    assert "Autotuning kernel add_one with config BLOCK: 8" in printed
    assert (
        "best config selected: BLOCK: 16, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;"
        in printed
    )


def test_warmup_compiles_every_configuration(recorder):
    kernel = tuned(Bench(recorder))
    compiled = kernel.warmup(torch.float32, 64, grid=grid)
    assert [one.src.constants["BLOCK"] for one in compiled] == [8, 16, 32, 64]
    assert recorder.launches == []


def test_configs_compare_hash_and_survive_pickling():
    import pickle

    one, same, other = (
        Config({"A": 1, "B": 2}, num_warps=2),
        Config({"B": 2, "A": 1}, num_warps=2),
        Config({"A": 1, "B": 2}),
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.all_kwargs() == {"A": 1, "B": 2, "num_warps": 2, "num_ctas": 1, "num_stages": 3}
    assert str(one) == "A: 1, B: 2, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: None"
    old = Config.__new__(Config)
    old.__setstate__({"kwargs": {"A": 1}, "num_warps": 2})
    assert (old.num_stages, old.maxnreg, old.pre_hook) == (3, None, None)


POOL_PROGRAM = """
import concurrent.futures, multiprocessing, sys
import numpy as np
import tilewright as tw, tilewright.language as tl

@tw.autotune(configs=[tw.Config({"BLOCK": block}) for block in (16, 32, 64)], key=["n"], time_limit=60)
@tw.jit
def kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)

if __name__ == "__main__":
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool, tw.backend("reference"):
        kernel.executor = pool
        x = np.zeros(100, np.float32)
        compiled = kernel[lambda meta: (tw.cdiv(100, meta["BLOCK"]),)](x, 100)
        assert len(kernel.configs_timings) == 3, kernel.configs_timings
        assert (x >= 1).all() and (x == x[0]).all()
        assert not any("lower" not in one.timings for one in kernel.base_kernel.device_caches["reference:0"][0].values())
        print("compiled elsewhere")
"""


@pytest.mark.skipif(
    "spawn" not in multiprocessing.get_all_start_methods(), reason="needs processes"
)
def test_trials_compile_in_other_processes(tmp_path):
    file = tmp_path / "pool_program.py"
    file.write_text(POOL_PROGRAM)
    result = fork_server.run(
        [str(file)],
        timeout=900,
    )
    assert result.stdout.strip() == "compiled elsewhere", result.stderr


# ---- heuristics


def test_heuristics_compute_arguments_in_order(recorder):
    @tw.heuristics(
        {
            "BLOCK": lambda args: tw.next_power_of_2(args["n"]),
            "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
        }
    )
    @tw.jit
    def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), n)

    compiled = kernel[lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),)](np.zeros(64, np.int32), 24)
    assert compiled.src.constants == {"BLOCK": 32, "EVEN": False}
    assert kernel[(1,)](np.zeros(64, np.int32), 32).src.constants == {"BLOCK": 32, "EVEN": True}
    assert kernel.warmup(torch.int32, 24, grid=(1,)).src.constants == {"BLOCK": 32, "EVEN": False}


@pytest.mark.parametrize("outer", ["heuristics", "autotune"])
def test_heuristics_and_autotune_nest(recorder, outer):
    def kernel(x, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), n)

    tune = tw.autotune(configs=CONFIGS, key=["n"], do_bench=Bench(recorder))
    if outer == "autotune":
        made = tune(tw.heuristics({"TWICE": lambda args: 2 * args["BLOCK"]})(tw.jit(kernel)))
        expected = 32
    else:
        made = tw.heuristics({"TWICE": lambda args: 2 * args["n"]})(tune(tw.jit(kernel)))
        expected = 128
    for _ in range(2):
        compiled = made[grid](np.zeros(64, np.float32), 64)
        assert compiled.src.constants == {"BLOCK": 16, "TWICE": expected}
    assert made.base_kernel.__name__ == "kernel"
