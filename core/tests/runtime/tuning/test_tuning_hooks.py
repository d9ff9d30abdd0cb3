"""Tuning hooks of a backend: pruning, order and proposal of configurations."""

import numpy as np
import pytest
from tuning_support import Bench, grid, tuned

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, LaunchError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.registry import registry
from tilewright.runtime.tuning.autotune import Config


class Advisor:
    """Adds the tuning hooks to a recorder."""

    def __new__(cls, recorder_class, **answers):
        hooks_of = {
            "prune": (
                "tilewright_prune",
                lambda self, configurations, target, arguments: answers["prune"](
                    configurations, arguments
                ),
            ),
            "cost": (
                "tilewright_cost",
                lambda self, configuration, target, arguments: answers["cost"](configuration),
            ),
            "space": (
                "tilewright_tuning_space",
                lambda self, module, target: answers["space"](module),
            ),
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
    advisor = advise(
        prune=lambda configurations, arguments: (
            seen.update(arguments) or [one for one in configurations if one["BLOCK"] in (32, 64)]
        )
    )
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


def raising(*_):
    raise ZeroDivisionError("nobody thought of that")


@pytest.mark.parametrize(
    ("hook", "answer", "said"),
    [
        (
            "prune",
            raising,
            (
                r"tilewright_prune of backend 'recorder' \(.*\) failed: no configuration is "
                r"ruled out\..*ZeroDivisionError: nobody thought of that"
            ),
        ),
        (
            "prune",
            lambda configurations, arguments: 5,
            (
                "must give a sequence of the configurations it was offered, not 5: no "
                "configuration is ruled out"
            ),
        ),
        (
            "prune",
            lambda configurations, arguments: [{"BLOCK": 8192}],
            "gave a configuration that it was not offered, {'BLOCK': 8192}",
        ),
        (
            "prune",
            lambda configurations, arguments: [
                one.update(BLOCK=1) or one for one in configurations
            ],
            "gave a configuration that it was not offered",
        ),
        (
            "cost",
            raising,
            (
                r"tilewright_cost of backend 'recorder' \(.*\) failed: configurations stay in "
                r"their order\..*ZeroDivisionError"
            ),
        ),
        (
            "cost",
            lambda configuration: float("nan"),
            r"must give a number that can be compared, or None, and gave nan for \[BLOCK: 8",
        ),
        (
            "cost",
            lambda configuration: "cheap",
            "must give a number that can be compared, or None, and gave 'cheap'",
        ),
        (
            "cost",
            lambda configuration: -1.0 if configuration["BLOCK"] == 64 else {},
            "and gave {} for",
        ),
    ],
)
def test_a_backend_that_advises_badly_is_named_and_left_out(advise, hook, answer, said):
    advisor = advise(**{hook: answer})
    bench = Bench(advisor)
    kernel = tuned(bench)
    with pytest.warns(RuntimeWarning, match=said) as found:
        kernel[grid](np.zeros(64, np.float32), 64)
    assert len(found) == 1 and "recorder" in str(found[0].message) and found[0].filename == __file__
    assert bench.calls == 4 and [config.kwargs["BLOCK"] for config in kernel.configs_timings] == [
        8,
        16,
        32,
        64,
    ]
    assert kernel.best_config.kwargs == {"BLOCK": 16}


def test_an_estimate_may_be_missing_or_infinite(advise, recwarn):
    advisor = advise(
        cost=lambda configuration: {8: None, 16: float("inf"), 32: np.float32(2), 64: 1}[
            configuration["BLOCK"]
        ]
    )
    kernel = tuned(Bench(advisor))
    kernel[grid](np.zeros(64, np.float32), 64)
    assert [config.kwargs["BLOCK"] for config in kernel.configs_timings] == [64, 32, 8, 16]
    assert not [warning for warning in recwarn if "recorder" in str(warning.message)]


def test_an_interrupt_tells_the_best_so_far(recorder):
    bench = Bench(recorder)

    def interrupted(call, quantiles):
        if bench.calls == 3:
            raise KeyboardInterrupt
        return bench(call, quantiles)

    with pytest.raises(KeyboardInterrupt) as raised:
        tuned(interrupted)[grid](np.zeros(64, np.float32), 64)
    (note,) = raised.value.__notes__
    assert (
        "while add_one was tuned, after 3 of 4 configurations; the best so far: 1 ms [BLOCK: 16"
        in note
    )


def test_an_interrupt_in_a_hook_ends_the_tuning(advise):
    def interrupt(configuration):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(Bench(advise(cost=interrupt)))[grid](np.zeros(64, np.float32), 64)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raising, "tilewright_tuning_space of backend 'recorder' .* failed: it proposes nothing"),
        (
            lambda module: [5],
            r"must give a sequence of option sets, not \[5\]: it proposes nothing",
        ),
        (
            lambda module: [{"num_warps": 8}, {5: 1}],
            "failed: it proposes nothing.*a Config takes meta-parameters by name",
        ),
    ],
)
def test_a_backend_that_proposes_badly_is_named_and_left_out(advise, answer, said):
    advisor = advise(space=answer)

    @tw.autotune(do_bench=lambda call, quantiles: [call() or 1.0] * 3, cache_results=False)
    @tw.jit
    def kernel(x, n):
        tl.store(x, n)

    with pytest.warns(RuntimeWarning, match=said):
        kernel[(1,)](np.zeros(1, np.float32), 5)
    assert {lowered["num_warps"] for lowered in advisor.lowered} == {4}


def test_the_backends_estimate_orders_the_trials(advise):
    advisor = advise(cost=lambda configuration: -configuration["BLOCK"])
    kernel = tuned(Bench(advisor))
    kernel[grid](np.zeros(64, np.float32), 64)
    assert [config.kwargs["BLOCK"] for config in kernel.configs_timings] == [64, 32, 16, 8]


def test_the_backend_proposes_configurations(advise):
    seen = []
    advisor = advise(
        space=lambda module: (
            seen.append(module.kernel.name) or [{"num_warps": 1}, {"num_warps": 8, "num_stages": 1}]
        )
    )

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
    assert tuned.best_config.num_warps == 8 and [type(error) for _, error in tuned.failures] == [
        LaunchError
    ]
    measured.clear()
    given = tw.autotune(
        [Config({}, num_warps=1), Config({}, num_warps=8)], do_bench=bench, cache_results=False
    )(kernel)
    with pytest.raises(LaunchError, match="copy engine"):
        given[(1,)](np.zeros(1, np.float32), 5)
