"""The autotuner under Triton's contract, on the CPU."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402
from tilewright.compat.triton.runtime.autotuner import Autotuner  # noqa: E402
from tilewright.compat.triton.runtime.jit import JITFunction  # noqa: E402

CONFIGS = [triton.Config({"BLOCK": block}) for block in (32, 128)]


def kernel_with(**options):
    @triton.autotune(
        configs=options.pop("configs", CONFIGS), key=options.pop("key", ["n"]), **options
    )
    @triton.jit
    def copy(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, i < n), i < n)

    return copy


def run(kernel, n=500):
    x = torch.from_numpy(np.random.default_rng(n).standard_normal(n).astype(np.float32))
    out = torch.empty_like(x)
    compiled = kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    assert torch.equal(out, x)
    return compiled


def count_benches(calls):
    def bench(call, quantiles):
        call()
        calls.append(1)
        return [float(len(calls))] * 3

    return bench


@pytest.fixture
def heard():
    found = []
    triton.knobs.autotuning.listener = lambda **told: found.append(told)
    return found


def test_listeners_hear_of_each_tuning_once(heard):
    calls = []
    kernel = kernel_with(do_bench=count_benches(calls))
    run(kernel)
    run(kernel)
    (told,) = heard
    assert told.keys() == {"fn", "key", "best_config", "configs_timings", "duration", "cache_hit"}
    assert (
        isinstance(told["fn"], JITFunction)
        and told["best_config"] == CONFIGS[0]
        and len(told["configs_timings"]) == 2
    )
    assert told["duration"] > 0 and told["cache_hit"] is False and len(calls) == 2
    run(kernel, 501)
    assert len(heard) == 2 and len(kernel.cache) == 2


def test_results_are_kept_on_disk_only_where_that_is_asked_for(heard):
    for options, hits in (({}, [False, False]), ({"cache_results": True}, [False, True])):
        kernel = kernel_with(**options)
        heard.clear()
        run(kernel)
        kernel.cache.clear()
        run(kernel)
        assert [told["cache_hit"] for told in heard] == hits
    assert heard[1]["duration"] is None
    triton.knobs.autotuning.cache = True
    assert kernel_with().cache_results


def test_one_configuration_is_neither_measured_nor_told(heard):
    run(kernel_with(configs=CONFIGS[:1], do_bench=lambda *args, **kwargs: pytest.fail("measured")))
    pruned = kernel_with(
        prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[1:]},
        do_bench=lambda *a, **k: pytest.fail("measured"),
    )
    run(pruned)
    assert heard == [] and pruned.best_config == CONFIGS[1]


def test_unknown_names_in_the_key_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="'M', which is no parameter"):
        kernel = kernel_with(key=["n", "M"], do_bench=count_benches([]))
    run(kernel)
    assert kernel.keys == ["n"]


def test_objects_with_a_run_method_can_be_tuned():
    launched, measured = [], []

    class Kernel:
        def run(self, **kwargs):
            launched.append(kwargs["BLOCK"])

    def bench(call, quantiles):
        call()
        measured.append(launched[-1])
        return [float(launched[-1])] * 3

    configs = [triton.Config({"BLOCK": block}) for block in (3, 1, 2, 5)]
    tuner = Autotuner(
        Kernel(),
        [],
        configs,
        [],
        None,
        None,
        do_bench=bench,
        prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[:3]},
    )
    tuner.run()
    assert measured == [3, 1, 2] and launched == [3, 1, 2, 1] and tuner.best_config == configs[1]


def test_interpreted_kernels_can_be_tuned():
    triton.knobs.runtime.interpret = True
    calls = []
    assert run(kernel_with(do_bench=count_benches(calls)), 100) is None
    assert len(calls) == 2


def test_tuning_is_printed_where_that_is_asked_for(capsys):
    triton.knobs.autotuning.print = True
    run(kernel_with(do_bench=count_benches([])))
    said = capsys.readouterr().out
    assert (
        "Autotuning kernel copy with config BLOCK: 32" in said
        and "best config selected: BLOCK: 32" in said
    )


def test_failing_configurations_are_passed_over():
    @triton.autotune(configs=CONFIGS, key=[], do_bench=count_benches([]))
    @triton.jit
    def only_wide(out, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK == 128)
        tl.store(out + tl.arange(0, BLOCK), 1.0)

    out = torch.zeros(128)
    only_wide[(1,)](out)
    assert out.all() and only_wide.best_config == CONFIGS[1]


def test_all_configurations_are_warmed_up():
    kernel = kernel_with()
    assert len(kernel.warmup(torch.float32, torch.float32, 7, grid=(1,))) == 2


def test_hooks_are_called_around_each_run_with_the_exception():
    balance, failures = [0], []

    def before(arguments, reset_only=False):
        balance[0] += not reset_only

    def after(arguments, exception):
        balance[0] -= 1
        failures.append(exception)

    def bench(call, quantiles):
        call()
        return [1.0] * 3

    run(kernel_with(pre_hook=before, post_hook=after, do_bench=bench))
    assert balance == [0] and failures == [None, None]


def tuned(cls, configs=CONFIGS, **options):
    return cls(kernel_with().fn, ["x", "out", "n", "BLOCK"], configs, ["n"], None, None, **options)


class Recording(Autotuner):
    """As in FlagGems.

    Its own run, which measures by ``_bench`` with the launch's keyword arguments.
    """

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        self.seen = {
            config: self._bench(*args, config=config, **kwargs)
            for config in self.prune_configs(kwargs)
        }
        best = min(self.seen, key=self.seen.get)
        self.pre_hook({**self.nargs, **kwargs, **best.all_kwargs()}, reset_only=True)
        return self.fn.run(*args, **kwargs, **best.all_kwargs())


def test_a_subclass_measures_by_itself():
    calls = []
    kernel = tuned(Recording, do_bench=count_benches(calls))
    assert run(kernel) is not None
    assert (
        list(kernel.seen) == CONFIGS
        and [times[0] for times in kernel.seen.values()] == [1.0, 2.0]
        and len(calls) == 2
    )
    with pytest.raises(ValueError, match="Conflicting meta-parameters: BLOCK"):
        kernel[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=32)


def test_a_subclass_says_how_long_a_configuration_takes():
    class Backwards(Autotuner):
        def _bench(self, *args, config, **meta):
            assert meta.keys() == {"grid", "warmup"} and len(args) == 3
            return [1000.0 - config.kwargs["BLOCK"]] * 3

    kernel = tuned(Backwards)
    run(kernel)
    assert kernel.best_config is CONFIGS[1] and kernel.configs_timings[CONFIGS[0]] == [968.0] * 3


@pytest.mark.parametrize("on", ["class", "instance"])
def test_a_program_puts_another_way_of_measuring_in_place(on, monkeypatch):
    kernel = tuned(Autotuner)
    if on == "class":
        monkeypatch.setattr(
            Autotuner, "_bench", lambda self, *args, config, **meta: [-config.kwargs["BLOCK"]] * 3
        )
    else:
        kernel._bench = lambda *args, config, **meta: [-config.kwargs["BLOCK"]] * 3
    run(kernel)
    assert kernel.best_config is CONFIGS[1]


def test_a_program_takes_the_first_configuration_for_all(monkeypatch):
    """As vLLM has it."""

    def run_first(self, *args, **kwargs):
        (config, *_) = self.configs
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    monkeypatch.setattr(Autotuner, "run", run_first)
    kernel = kernel_with(do_bench=count_benches(calls := []))
    assert run(kernel) is not None and not calls


def test_what_programs_look_at():
    bench = count_benches([])
    plain, hooked = (
        kernel_with(),
        kernel_with(pre_hook=lambda *args, **kwargs: None, do_bench=bench),
    )
    assert (plain.user_defined_pre_hook, plain.user_defined_post_hook, plain._do_bench) == (
        False,
        False,
        None,
    )
    assert (hooked.user_defined_pre_hook, hooked.user_defined_post_hook, hooked._do_bench) == (
        True,
        False,
        bench,
    )
    restored = kernel_with(restore_value=["out"])
    copies = []

    def looking(call, quantiles):
        call()
        copies.append(restored.restore_copies)
        return [1.0] * 3

    restored._do_bench = looking
    restored.post_hook = lambda arguments, exception=None: None  # which leaves the copies there
    run(restored)
    assert copies and all(copy.keys() == {"out"} for copy in copies)


@pytest.mark.parametrize("where", ["class", "subclass", "instance"])
def test_launches_go_through_run_where_a_program_has_its_own(where, monkeypatch):
    """As tools that trace launches have it: ``run`` is replaced by one that calls the old one."""
    kernel = kernel_with().fn
    seen = []
    old = JITFunction.run

    def traced(self, *args, grid, warmup, **kwargs):
        seen.append((grid, warmup, sorted(kwargs)))
        return old(self, *args, grid=grid, warmup=warmup, **kwargs)

    if where == "class":
        monkeypatch.setattr(JITFunction, "run", traced)
    elif where == "subclass":
        kernel = type("Traced", (JITFunction,), {"run": traced})(kernel.fn)
    else:
        kernel.run = lambda *args, **kwargs: traced(kernel, *args, **kwargs)
    x, out = torch.arange(32.0), torch.zeros(32)
    assert kernel[(1,)](x, out, 32, BLOCK=32) is not None and torch.equal(x, out)
    assert kernel.warmup(x, out, 32, BLOCK=32, grid=(1,)) is not None
    assert seen == [((1,), False, ["BLOCK"]), ((1,), True, ["BLOCK"])]


def test_programs_may_put_a_bench_in_place_of_the_tuners():
    calls = []
    kernel = kernel_with()
    kernel.do_bench = count_benches(calls)
    run(kernel, 100)
    assert len(calls) == len(CONFIGS)


@pytest.mark.parametrize("where", ["class", "instance", "debug", "hook"])
def test_known_launches_see_what_a_program_does_to_the_kernel(where, monkeypatch):
    """Once native code makes the launches of an autotuner."""
    tuner, seen = kernel_with(), []
    first = [run(tuner) for _ in range(3)][-1]
    launches = tuner._dispatcher._launches
    kernel, old = tuner.fn, JITFunction.run

    def traced(self, *args, grid, warmup=False, **kwargs):
        seen.append(kwargs["BLOCK"])
        return old(self, *args, grid=grid, warmup=warmup, **kwargs)

    if where == "class":
        monkeypatch.setattr(JITFunction, "run", traced)
    elif where == "instance":
        kernel.run = lambda *args, **kwargs: traced(kernel, *args, **kwargs)
    elif where == "hook":
        kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(kwargs["BLOCK"]))
    else:
        monkeypatch.setattr(triton.knobs.runtime, "debug", True)
    found = [run(tuner) for _ in range(2)]
    assert tuner._dispatcher._launches == launches
    if where == "debug":
        assert all(each.metadata.debug for each in found) and not first.metadata.debug
    else:
        assert seen == [tuner.best_config.kwargs["BLOCK"]] * 2 and found == [first] * 2


def test_the_variable_makes_kernels_invariant(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_AUTOTUNE_INVARIANT", "1")

    @triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])
    @triton.jit
    def row_sums(x, out, n, BLOCK: tl.constexpr):
        total = 0.0
        for start in range(0, n, BLOCK):
            total += tl.sum(tl.load(x + tl.program_id(0) * n + start + tl.arange(0, BLOCK)))
        tl.store(out + tl.program_id(0), total)

    x, out = torch.randn((3, 512)), torch.empty(3)
    row_sums[(3,)](x, out, 512)
    assert torch.allclose(out, x.sum(1), atol=1e-4)
    assert row_sums.signature
    ((_, error),) = row_sums.failures
    assert "computes other bits than" in str(error)
