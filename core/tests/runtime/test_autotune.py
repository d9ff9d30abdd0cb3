"""Choosing configurations by measuring them; heuristics; what is kept of a tuning."""

import concurrent.futures
import json
import math
import multiprocessing
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, BackendError, CompileTimeAssertionFailure, LaunchError, LoweringError, OutOfResources
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.registry import registry
from tilewright.runtime import tuning_records
from tilewright.runtime.autotune import Config, config_text
from tilewright.runtime.hooks import hooks


def add_one(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + 1, mask=offsets < n)


#: milliseconds of each BLOCK in the tests below
TIMES = {8: 3.0, 16: 1.0, 32: 2.0, 64: 4.0}
CONFIGS = [Config({"BLOCK": block}) for block in TIMES]


#: Seconds after which a test that waits for what does not come fails.
GUARD = 900


class Bench:
    """A stand-in for do_bench: runs the call once, and takes the time from a table by the BLOCK that was launched last."""

    def __init__(self, recorder, times=TIMES):
        self.recorder, self.times, self.calls = recorder, times, 0

    def __call__(self, call, quantiles):
        self.calls += 1
        call()
        launched_grid, _, values = self.recorder.launches[-1]
        block = values[-1] // launched_grid[0]
        return [self.times[block]] * len(quantiles)


def tuned(bench, configs=CONFIGS, key=("n",), **options):
    return tw.autotune(configs=configs, key=list(key), do_bench=bench, **options)(tw.jit(add_one))


def grid(meta):
    return (meta["n"] // meta["BLOCK"],)


def test_the_fastest_configuration_is_found_once_per_key(recorder):
    bench = Bench(recorder)
    kernel = tuned(bench)
    x = np.zeros(64, np.float32)
    compiled = kernel[grid](x, 64)
    assert compiled.src.constants["BLOCK"] == 16
    assert kernel.best_config == CONFIGS[1]
    assert bench.calls == 4
    assert {config.kwargs["BLOCK"]: times for config, times in kernel.configs_timings.items()} == {block: [time_] * 3 for block, time_ in TIMES.items()}
    assert kernel.bench_time > 0
    assert kernel.nargs is None
    kernel[grid](x, 64)
    assert bench.calls == 4
    assert len(kernel.cache) == 1
    kernel[grid](x, 128)
    kernel[grid](np.zeros(64, np.float64), 64)
    assert len(kernel.cache) == 3
    assert bench.calls == 12
    assert kernel.base_fn.arg_names == kernel.arg_names == ["x", "n", "BLOCK"]
    assert kernel.keys == ["n"]


def test_one_configuration_is_not_measured(recorder):
    bench = Bench(recorder)
    kernel = tuned(bench, [Config({"BLOCK": 32}, num_warps=2)])
    compiled = kernel[grid](np.zeros(64, np.float32), 64)
    assert bench.calls == 0
    assert compiled.metadata.num_warps == 2
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_launch_options_of_a_configuration(recorder):
    kernel = tuned(Bench(recorder), [Config({"BLOCK": 16}, num_warps=2, num_stages=5), Config({"BLOCK": 32}, num_ctas=2, maxnreg=64)])
    kernel[grid](np.zeros(64, np.float32), 64)
    assert {(lowered["num_warps"], lowered["num_stages"], lowered["num_ctas"], lowered["maxnreg"]) for lowered in recorder.lowered} == {
        (2, 5, 1, None),
        (4, 3, 2, 64),
    }


def test_conflicting_meta_parameters(recorder):
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        tuned(Bench(recorder))[grid](np.zeros(64, np.float32), 64, BLOCK=8)


@pytest.mark.parametrize("field", ["key", "reset_to_zero", "restore_value"])
def test_names_of_no_parameter(recorder, field):
    options = {"key": ["n"], field: ["nothing"]}
    with pytest.raises(ValueError, match=f"{field} of autotune names 'nothing'"):
        tuned(Bench(recorder), **options)


def test_deprecated_arguments_warn(recorder):
    with pytest.warns(DeprecationWarning, match="do_bench"):
        tuned(Bench(recorder), rep=10)


@pytest.mark.parametrize("error", [OutOfResources(2, 1, "shared memory"), LoweringError("no"), CompileTimeAssertionFailure("no")])
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
        AutotunerError, match=r"no configuration of add_one works: \[BLOCK: 8.*OutOfResources: out of resource: shared memory, Required: 300"
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
    with concurrent.futures.ThreadPoolExecutor(len(CONFIGS)) as pool:  # which waits for the thread that was given up: the backend is still there then
        kernel = tuned(Bench(recorder), time_limit=2.0, executor=pool)  # seconds: the others take some milliseconds
        try:
            kernel[grid](np.zeros(64, np.float32), 64)
        finally:
            go.set()
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_trials_compile_in_parallel(recorder):
    together = threading.Barrier(len(CONFIGS))
    recorder.on_lower = lambda *_: together.wait(GUARD)  # where one comes after the other, the first waits in vain
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
    kernel = tuned(bench, prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 2})
    x = np.zeros(64, np.float32)
    kernel[grid](x, 64, num_stages=3)
    assert seen == {"x": x, "n": 64, "num_stages": 3}
    assert bench.calls == 2
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    half = tuned(Bench(recorder), prune_configs_by={"perf_model": model, "top_k": 0.5})
    half[grid](x, 64)
    assert {config.kwargs["BLOCK"] for config in half.configs_timings} == {32, 64}


def test_early_pruning_that_leaves_none(recorder):
    kernel = tuned(Bench(recorder), prune_configs_by={"early_config_prune": lambda configs, named_args, **kwargs: []})
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

    two = tw.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["x", "none"], restore_value=["y", "none"], do_bench=Bench(recorder))(tw.jit(two))
    x, y = make(9.0), make(3.0)
    two[grid](x, y, None, 64)
    assert seen == [(0.0, 3.0)] * 5  # four trials and the launch itself, after which nothing is put back
    assert (float(x[0]), float(y[0])) == (5.0, 10.0)
    two[grid](x, y, None, 64)
    assert seen[-1] == (5.0, 10.0)


def test_hooks_of_the_tuner_and_of_configurations(recorder):
    events = []
    configs = [Config({"BLOCK": 16}, pre_hook=lambda arguments: events.append(("config", arguments["BLOCK"], arguments["n"]))), Config({"BLOCK": 32})]
    kernel = tuned(
        Bench(recorder),
        configs,
        pre_hook=lambda arguments, reset_only=False: events.append(("pre", arguments["BLOCK"], reset_only)),
        post_hook=lambda arguments, exception=None: events.append(("post", arguments["BLOCK"], exception)),
    )
    x = np.zeros(64, np.float32)
    kernel[grid](x, 64)
    trial = [("config", 16, 64), ("pre", 16, False), ("post", 16, None), ("pre", 32, False), ("post", 32, None)]
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
    assert {config.kwargs["BLOCK"]: times[0] for config, times in kernel.configs_timings.items()} == TIMES
    assert compiled.src.constants["BLOCK"] == 16 and described.block_shape == [16]


def test_the_post_hook_sees_what_went_wrong(recorder):
    seen = []

    def refuse(grid, values):
        raise OutOfResources(2, 1, "registers")

    recorder.on_launch = refuse
    kernel = tuned(Bench(recorder), post_hook=lambda arguments, exception=None: seen.append(type(exception)))
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
    assert "best config selected: BLOCK: 16, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None;" in printed


def test_warmup_compiles_every_configuration(recorder):
    kernel = tuned(Bench(recorder))
    compiled = kernel.warmup(torch.float32, 64, grid=grid)
    assert [one.src.constants["BLOCK"] for one in compiled] == [8, 16, 32, 64]
    assert recorder.launches == []


def test_configs_compare_hash_and_survive_pickling():
    import pickle

    one, same, other = Config({"A": 1, "B": 2}, num_warps=2), Config({"B": 2, "A": 1}, num_warps=2), Config({"A": 1, "B": 2})
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.all_kwargs() == {"A": 1, "B": 2, "num_warps": 2, "num_ctas": 1, "num_stages": 3}
    assert str(one) == "A: 1, B: 2, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: None"
    old = Config.__new__(Config)
    old.__setstate__({"kwargs": {"A": 1}, "num_warps": 2})
    assert (old.num_stages, old.maxnreg, old.pre_hook) == (3, None, None)


# ---- backends' hooks


class Advisor:
    """Adds the tuning hooks to a recorder."""

    def __new__(cls, recorder_class, **answers):
        hooks_of = {
            "prune": ("tilewright_prune", lambda self, configurations, target, arguments: answers["prune"](configurations, arguments)),
            "cost": ("tilewright_cost", lambda self, configuration, target, arguments: answers["cost"](configuration)),
            "space": ("tilewright_tuning_space", lambda self, module, target: answers["space"](module)),
        }
        members = {}
        for name in answers:
            hook, function = hooks_of[name]
            function.__name__ = hook
            members[hook] = hookimpl(function)
        return type("Advisor", (recorder_class,), members)()


@pytest.fixture
def advise(recorder):
    def register(**answers):
        advisor = Advisor(type(recorder), **answers)
        registry().register(advisor, "recorder")
        return advisor

    return register


def test_the_backend_rules_out_configurations(advise):
    seen = {}
    advisor = advise(prune=lambda configurations, arguments: seen.update(arguments) or [one for one in configurations if one["BLOCK"] in (32, 64)])
    bench = Bench(advisor)
    kernel = tuned(bench)
    kernel[grid](np.zeros(64, np.float32), 64)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert bench.calls == 2
    assert seen["n"] == 64


def test_the_backend_may_rule_out_all(advise):
    advisor = advise(prune=lambda configurations, arguments: [])
    with pytest.raises(AutotunerError, match="backend 'recorder' ruled out all 4"):
        tuned(Bench(advisor))[grid](np.zeros(64, np.float32), 64)


def test_the_backends_estimate_orders_the_trials(advise):
    advisor = advise(cost=lambda configuration: -configuration["BLOCK"])
    kernel = tuned(Bench(advisor))
    kernel[grid](np.zeros(64, np.float32), 64)
    assert [config.kwargs["BLOCK"] for config in kernel.configs_timings] == [64, 32, 16, 8]


def test_the_backend_proposes_configurations(advise):
    seen = []
    advisor = advise(space=lambda module: seen.append(module.kernel.name) or [{"num_warps": 1}, {"num_warps": 8, "num_stages": 1}])

    @tw.autotune(do_bench=lambda call, quantiles: [call() or advisor.lowered[-1]["num_warps"]] * 3)
    @tw.jit
    def kernel(x, n):
        tl.store(x, n)

    compiled = kernel[(1,)](np.zeros(1, np.float32), 5)
    assert seen == ["kernel"]
    assert {lowered["num_warps"] for lowered in advisor.lowered} == {1, 8}
    assert compiled.metadata.num_warps in (1, 8)


def test_proposed_options_that_refuse_the_arguments_are_skipped(advise):
    advisor = advise(space=lambda module: [{"num_warps": 1}, {"num_warps": 8}])

    def refuse(grid, values):
        if advisor.refused:
            raise LaunchError("the copy engine cannot read it")

    advisor.on_launch, advisor.refused = refuse, True

    def bench(call, quantiles):
        advisor.refused = not advisor.lowered or len(measured) == 0
        measured.append(1)
        return [call() or 1.0] * 3

    measured = []

    @tw.jit
    def kernel(x, n):
        tl.store(x, n)

    tuned = tw.autotune(do_bench=bench, cache_results=False)(kernel)
    tuned[(1,)](np.zeros(1, np.float32), 5)
    assert tuned.best_config.num_warps == 8 and [type(error) for _, error in tuned.failures] == [LaunchError]
    measured.clear()
    given = tw.autotune([Config({}, num_warps=1), Config({}, num_warps=8)], do_bench=bench, cache_results=False)(kernel)
    with pytest.raises(LaunchError, match="copy engine"):
        given[(1,)](np.zeros(1, np.float32), 5)


# ---- heuristics


def test_heuristics_compute_arguments_in_order(recorder):
    @tw.heuristics({"BLOCK": lambda args: tw.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
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
    assert made.base_fn.__name__ == "kernel"


# ---- what is kept


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
    changed.base_fn._unsafe_update_src(changed.base_fn.src.replace("+ 1", "+ 2"))
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
    for damage in ("", "[1, 2]", '{"version": 1}', json.dumps({**json.loads(path.read_text()), "version": 99})):
        path.write_text(damage)
        bench = Bench(recorder)
        tuned(bench)[grid](x, 64)
        assert bench.calls == 4


@pytest.mark.parametrize(
    ("mode", "measured", "block", "kept"),
    [("on", 4, 16, 1), ("off", 0, 8, 0), ("deterministic", 0, 8, 0), ("refresh", 4, 16, 1), ("memory", 4, 16, 0), ("model", 0, 8, 0)],
)
def test_modes(recorder, monkeypatch, mode, measured, block, kept):
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE", mode)
    bench = Bench(recorder)
    kernel = tuned(bench)
    kernel[grid](np.zeros(64, np.float32), 64)
    assert (bench.calls, kernel.best_config.kwargs["BLOCK"], len(list(tuning_records.own_records()))) == (measured, block, kept)


@pytest.mark.parametrize(("mode", "measured", "block"), [("on", 0, 16), ("off", 0, 16), ("deterministic", 0, 8), ("refresh", 4, 32), ("memory", 4, 32)])
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
    for number, (prefix, size, addend) in enumerate([("", 4, 1), ("\n\n# moved\n", 4, 1), ("", 8, 1), ("", 4, 2)]):
        file = tmp_path / f"place{number}" / "kernels.py"
        file.parent.mkdir()
        file.write_text(prefix + source.format(size=size, addend=addend))
        keys.append(subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=900, check=True).stdout)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


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
        assert not any("lower" not in one.timings for one in kernel.base_fn.device_caches["reference:0"][0].values())
        print("compiled elsewhere")
"""


@pytest.mark.skipif("spawn" not in multiprocessing.get_all_start_methods(), reason="needs processes")
def test_trials_compile_in_other_processes(tmp_path):
    file = tmp_path / "pool_program.py"
    file.write_text(POOL_PROGRAM)
    result = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=900, check=False)
    assert result.stdout.strip() == "compiled elsewhere", result.stderr
