"""Errors of tuning and heuristics, each of which names its cause."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import AutotunerError, CompilationError, DefinitionError, LaunchError


@tw.jit
def fill(y, n, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), n)


def configs(*blocks, **options):
    return [tw.Config({"BLOCK": block}, **options) for block in blocks]


def bench(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


def launch(given=None, n=3, **options):
    tuner = tw.autotune(
        configs(8, 16) if given is None else given, **{"key": ["n"], "do_bench": bench, **options}
    )(fill)
    tuner[(1,)](np.zeros(64), n)
    return tuner.best_config


def prune(**functions):
    return {"prune_configs_by": functions}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            prune(early_prune=list),
            ValueError,
            "takes early_config_prune, perf_model and top_k, not early_prune",
        ),
        (prune(perf_model=lambda **_: 1, top_k=0), ValueError, "top_k must be"),
        (prune(perf_model=lambda **_: 1, top_k="1"), ValueError, "top_k must be"),
        (
            prune(early_config_prune=lambda *_, **__: None),
            TypeError,
            "the result of early_config_prune must be several Config objects, not None",
        ),
        (prune(early_config_prune=lambda *_, **__: [5]), TypeError, "one is a int: 5"),
        (prune(early_config_prune=lambda *_, **__: 1 / 0), ZeroDivisionError, "division"),
        (
            prune(perf_model=lambda **_: None, top_k=1),
            TypeError,
            "perf_model must return numbers, and it returned None, None",
        ),
        (
            {"do_bench": lambda call, quantiles: None},
            TypeError,
            "do_bench must return a number of milliseconds",
        ),
        (
            {"do_bench": lambda call, quantiles: []},
            TypeError,
            "do_bench must return a number of milliseconds",
        ),
        (
            {"do_bench": lambda call, quantiles: float("nan")},
            AutotunerError,
            "no configuration of fill works: do_bench measured no finite time",
        ),
        (
            {"reset_to_zero": ["n"]},
            TypeError,
            "reset_to_zero of autotune names arrays, and one of its arguments is a int",
        ),
        ({"restore_value": ["n"]}, TypeError, "restore_value of autotune names arrays"),
        (
            {"given": [{"BLOCK": 8}]},
            TypeError,
            "configs of autotune must be Config objects, and one is a dict",
        ),
        ({"given": 5}, TypeError, "configs of autotune must be several Config objects, not 5"),
        (
            {"n": [3]},
            LaunchError,
            "fill: argument 'n' is in the tuning key, so it must be hashable, and a list is not",
        ),
        (
            {"given": configs(8, 16, pre_hook=lambda arguments: 1 / 0)},
            ZeroDivisionError,
            "division",
        ),
    ],
)
def test_each_mistake_is_told(recorder, options, error, message):
    with pytest.raises(error, match=message):
        launch(**options)


def test_times_that_are_no_numbers_do_not_win(recorder):
    times = iter([float("nan"), 5.0])
    assert launch(do_bench=lambda call, quantiles: next(times)) == configs(16)[0]


def test_a_kernels_own_error_names_the_configuration(recorder):
    with pytest.raises(CompilationError, match="arange") as raised:
        launch(configs(8, 0))
    assert any("in the configuration [BLOCK: 0" in note for note in raised.value.__notes__)


def test_configurations_with_lists_compare(recorder):
    assert tw.Config({"SHAPE": [1, 2]}) == tw.Config({"SHAPE": [1, 2]})
    assert (
        len(
            {
                tw.Config({"SHAPE": [1, 2]}),
                tw.Config({"SHAPE": [1, 2]}),
                tw.Config({"SHAPE": [1, 3]}),
            }
        )
        == 2
    )


@pytest.mark.parametrize("kwargs", [5, [("BLOCK", 8)], {8: "BLOCK"}])
def test_what_is_no_configuration(kwargs):
    with pytest.raises(TypeError, match=r"by name, Config\(\{'BLOCK': 64\}\), not"):
        tw.Config(kwargs)


@pytest.mark.parametrize(
    "decorator", [tw.autotune(configs(8)), tw.heuristics({})], ids=["autotune", "heuristics"]
)
def test_what_is_no_kernel(decorator):
    with pytest.raises(
        DefinitionError, match=r"decorates a kernel, not a function: put @tilewright\.jit below it"
    ):
        decorator(lambda x: x)
    with pytest.raises(
        RuntimeError,
        match=r"Cannot call @jit'd outside of the scope of a kernel: launch fill on a grid",
    ):
        decorator(fill)(1)


def test_heuristics_that_are_none():
    with pytest.raises(TypeError, match="the one of 'BLOCK' is a int: 8"):
        tw.heuristics({"BLOCK": 8})(fill)
    with pytest.raises(TypeError, match="a dict from parameter to function, not a list"):
        tw.heuristics([8])


def test_a_heuristic_that_raises_is_named(recorder):
    with pytest.raises(KeyError, match="m") as raised:
        tw.heuristics({"BLOCK": lambda arguments: arguments["m"]})(fill)[(1,)](np.zeros(64), 3)
    assert raised.value.__notes__ == [
        "in the heuristic of 'BLOCK' of fill; it is given a dict of y, n"
    ]
