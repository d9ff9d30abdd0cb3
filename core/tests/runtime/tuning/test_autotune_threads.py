"""An autotuned kernel launched by several threads, by its own hooks and listeners; configurations
that fail; copies."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import OutOfResources
from tilewright.runtime.hooks import hooks

CONFIGS = [tw.Config({"BLOCK": block}) for block in (16, 32)]


@tw.jit
def add_one(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, offsets < n) + 1, offsets < n)


def tuned(**options):
    return tw.autotune(CONFIGS, ["n"], cache_results=False, **options)(tw.jit(add_one.fn))


def quick(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


def test_one_thread_tunes_and_the_others_wait(recorder):
    benched, started = [], threading.Barrier(4)

    def bench(call, quantiles):
        benched.append(threading.get_ident())
        return quick(call, quantiles)

    kernel = tuned(do_bench=bench)

    def launch(_):
        started.wait(900)
        kernel[(1,)](np.zeros(64, np.float32), 5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, range(4)))
    assert len(benched) == 2 and len(set(benched)) == 1
    assert kernel.nargs is None


def test_each_thread_sees_its_own_arguments(recorder):
    seen, both = {}, threading.Barrier(2)

    def hook(arguments):
        both.wait(900)  # both are in the middle of a launch
        seen[arguments["n"]] = kernel.nargs["n"]
        both.wait(900)

    kernel = tw.autotune([tw.Config({"BLOCK": 16}, pre_hook=hook)], [])(tw.jit(add_one.fn))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: kernel[(1,)](np.zeros(64, np.float32), n), (5, 6)))
    assert seen == {5: 5, 6: 6}


def test_a_tuning_that_fails_is_tried_again(recorder):
    failing = [True]

    def bench(call, quantiles):
        if failing[0]:
            raise ZeroDivisionError
        return quick(call, quantiles)

    kernel = tuned(do_bench=bench)
    with pytest.raises(ZeroDivisionError):
        kernel[(1,)](np.zeros(64, np.float32), 5)
    assert kernel.nargs is None and not kernel.cache
    failing[0] = False
    with ThreadPoolExecutor(1) as pool:  # the lock was let go of
        assert (
            pool.submit(lambda: kernel[(1,)](np.zeros(64, np.float32), 5)).result(900) is not None
        )


def test_who_listens_may_wait_for_another_threads_tuning(recorder, monkeypatch):
    told = []
    kernel = tuned(do_bench=quick)
    pool = ThreadPoolExecutor(1)

    def listener(**info):
        told.append((info["key"][0], set(info["configs_timings"])))
        if info["key"][0] == 5:
            pool.submit(lambda: kernel[(1,)](np.zeros(64, np.float32), 6)).result(900)

    monkeypatch.setattr(hooks, "autotuning_listener", listener)
    kernel[(1,)](np.zeros(64, np.float32), 5)
    pool.shutdown()
    assert told == [(5, set(CONFIGS)), (6, set(CONFIGS))]


def test_hooks_see_configurations_that_do_not_compile(recorder):
    calls = []

    def refuse(module, options):
        if "tile<32x" in str(module):
            raise OutOfResources(300, 200, "shared memory")

    recorder.on_lower = refuse
    kernel = tuned(
        do_bench=quick,
        pre_hook=lambda arguments, reset_only=False: calls.append(
            ("before", arguments["BLOCK"], reset_only)
        ),
        post_hook=lambda arguments, exception=None: calls.append(
            ("after", arguments["BLOCK"], type(exception))
        ),
    )
    kernel[(1,)](np.zeros(64, np.float32), 5)
    assert calls == [
        ("before", 32, False),
        ("after", 32, OutOfResources),
        ("before", 16, False),
        ("after", 16, type(None)),
        ("before", 16, True),
    ]


@pytest.mark.parametrize("configs", [CONFIGS, CONFIGS[:1]])
def test_what_the_configurations_set_cannot_be_given(recorder, configs):
    kernel = tw.autotune(configs, [], do_bench=quick, cache_results=False)(tw.jit(add_one.fn))
    x = np.zeros(64, np.float32)
    kernel[(1,)](x, 5)
    with pytest.raises(
        ValueError, match="Conflicting meta-parameters: BLOCK"
    ):  # with a tuning that is known, too
        kernel[(1,)](x, 5, BLOCK=16)


def test_copies_tune_on_their_own(recorder):
    kernel = tw.autotune(CONFIGS, ["n"], do_bench=quick, cache_results=False)(add_one)
    kernel[(1,)](np.zeros(64, np.float32), 5)
    plain = copy.copy(kernel)
    plain.__dict__.update(_given_bench=None, cache={})  # a function of a test cannot be pickled
    for other in (copy.copy(kernel), pickle.loads(pickle.dumps(plain))):
        other[(1,)](np.zeros(64, np.float32), 6)
        assert other.nargs is None


def test_an_override_is_part_of_a_configurations_text():
    one, other = (str(tw.Config({"BLOCK": 16}, ir_override=path)) for path in ("a.tir", "b.tir"))
    assert (
        one != other
        and str(tw.Config({"BLOCK": 16}))
        == "BLOCK: 16, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    )
