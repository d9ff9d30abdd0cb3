"""What a backend has to say while configurations are tried: which are ruled out, in which order, which it proposes."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from tuning_support import Bench, grid, tuned

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, LaunchError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.registry import registry
from tilewright.runtime.autotune import Config


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
