"""Launches of autotuners that native code makes: the same as through Python, and everything that a
program may set in between is seen."""

import gc
import os
import pickle
import sys
import threading

import llvmlite.binding  # noqa: F401  (the native dispatcher is used where LLVM is loaded)
import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError, TuningArgumentError
from tilewright.llvm.native import native_functions
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.tuning.autotune import Autotuner, Config
from tilewright.testing.threads import side_by_side

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)

CONFIGS = (8, 16, 32, 64)


def many(
    x, y, n, m, flag, scale, maybe=None, BLOCK: tl.constexpr = 8, MODE: tl.constexpr = "plain"
):
    tl.store(x, n)


def described(d, x, n, BLOCK: tl.constexpr):
    tl.store(x, n)


def best_of(number):
    """A do_bench by which the configuration at a position is the best."""
    timed = []

    def bench(call, quantiles):
        call()
        timed.append(call)
        return [0.5 if (len(timed) - 1) % len(CONFIGS) == number else 1.0] * 3

    return bench


def by_turns():
    """A do_bench by which each tuning has another best configuration."""
    timed = []

    def bench(call, quantiles):
        call()
        turn, position = divmod(len(timed), len(CONFIGS))
        timed.append(call)
        return [0.5 if position == turn % len(CONFIGS) else 1.0] * 3

    return bench


def tuned(
    function=many,
    key=("n", "MODE"),
    bench=None,
    hook=None,
    configs=CONFIGS,
    kind=Autotuner,
    **options,
):
    kernel = tw.jit(function)
    listed = [Config({"BLOCK": block}, pre_hook=hook) for block in configs]
    return kind(
        kernel,
        kernel.arg_names,
        listed,
        list(key),
        do_bench=bench or by_turns(),
        cache_results=False,
        **options,
    )


def in_python(tuner):
    """Count the launches that went through Python."""
    return tuner._dispatcher._launches


def frames_of(call):
    """The names of Tilewright's Python functions that a call enters."""
    entered, package = [], os.path.dirname(tw.__file__)

    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            entered.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def block_of(kernel):
    return dict(kernel.src.constants)["BLOCK"]


# ---- the path


def test_known_launches_enter_two_frames(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    first = tuner[(1,)](x, x, 7, 8, True, 0.5)
    launch = tuner[(3,)]
    assert frames_of(lambda: tuner[(1,)](x, x, 7, 8, True, 0.5)) == [
        "__getitem__",
        "launch_function",
    ]  # of the autotuner, of the kernel
    assert frames_of(lambda: launch(x, x, 7, 8, True, 0.5)) == ["launch_function"]
    assert launch(x, x, 7, 8, True, 0.5) is first and recorder.launches[-1][0] == (3, 1, 1)
    tuner[(1,)](x, x, 9, 8, True, 0.5)
    assert frames_of(lambda: tuner[(1,)](x, x, 9, 8, True, 0.5)) == [
        "__getitem__",
        "launch_function",
    ]
    assert frames_of(lambda: tuner.run(x, x, 9, 8, True, 0.5, grid=(1,))) == [
        "run",
        "launch_function",
    ]


def test_a_launcher_bound_before_the_tuning_is_native(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    launch = tuner[(3,)]
    launch(x, x, 7, 8, True, 0.5)
    assert launch.func is tuner._dispatcher.native
    assert frames_of(lambda: launch(x, x, 7, 8, True, 0.5)) == ["launch_function"]


def test_many_keys_need_no_entry_of_their_own(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    for n in range(2, 60):
        tuner[(1,)](x, x, n, 8, True, 0.5)
    before = in_python(tuner)
    for n in range(2, 60):
        kernel = tuner[(1,)](x, x, n, 8, True, 0.5)
        assert (
            block_of(kernel) == tuner.best_config.kwargs["BLOCK"] == CONFIGS[(n - 2) % len(CONFIGS)]
        )
    assert in_python(tuner) == before and len(tuner._dispatcher._entries[0]) == 1


def test_one_configuration_is_launched_natively(recorder):
    tuner, x = tuned(configs=(16,)), np.zeros(64, np.float32)
    for n in range(2, 9):
        assert block_of(tuner[(1,)](x, x, n, 8, True, 0.5)) == 16
    assert in_python(tuner) == 1
    tuner.measures_one = True
    tuner[(1,)](x, x, 7, 8, True, 0.5)
    assert in_python(tuner) == 2 and len(tuner.cache) == 1
    tuner.measures_one = False
    tuner.configs = [Config({"BLOCK": 32})]
    assert block_of(tuner[(1,)](x, x, 7, 8, True, 0.5)) == 32
    tuner.configs.append(Config({"BLOCK": 64}))
    assert block_of(tuner[(1,)](x, x, 11, 8, True, 0.5)) in (32, 64) and len(tuner.cache) == 2


# ---- equal to Python


def any_call(rng):
    """(positional arguments, keywords) of a launch of ``many``."""
    kinds = (np.float32, np.float16, np.int32)

    def array():
        base = np.zeros(64, kinds[rng.integers(3)])[int(rng.integers(2)) :]
        return base if rng.integers(2) else torch.from_numpy(base)

    values = {
        "x": array(),
        "y": array(),
        "n": (1, 2, 16, 2**40, True, 7)[rng.integers(6)],
        "m": (1, 16, 5, None)[rng.integers(4)],
        "flag": (True, False, 3)[rng.integers(3)],
        "scale": (0.5, 2.0, 1)[rng.integers(3)],
        "maybe": (None, (1, 2), 4)[rng.integers(3)],
        "MODE": ("plain", "other", ("a", 1))[rng.integers(3)],
        "num_warps": (2, 4)[rng.integers(2)],
    }
    if rng.integers(2):
        del values["maybe"]
    for name in ("MODE", "num_warps"):
        if rng.integers(2):
            del values[name]
    count = int(rng.integers(0, 7 if "maybe" not in values else 8))
    names = list(values)
    by_name = names[count:]
    rng.shuffle(by_name)
    return [values[name] for name in names[:count]], {name: values[name] for name in by_name}


def test_random_launches_are_those_that_python_makes(recorder):
    rng = np.random.default_rng(0)
    tuner, native_launches = tuned(key=("n", "m", "scale", "MODE")), 0
    asked = []

    def grid(meta):
        asked.append(dict(meta))
        return (meta["BLOCK"], 2)

    for _ in range(80):
        args, keywords = any_call(rng)
        tuner._dispatcher._launches = 0  # let it learn again at each launch
        for _ in range(3):
            outcomes = []
            before = tuner._dispatcher._launches
            for launch in (
                tuner[grid],
                lambda *args, **keywords: tuner.launch_best(grid, *args, **keywords),
            ):
                asked.clear()
                kernel = launch(*args, **keywords)
                sizes, stream, values = recorder.launches[-1]
                meta = [
                    (name, id(value) if hasattr(value, "dtype") else repr(value))
                    for name, value in sorted(asked[-1].items())
                ]
                outcomes.append(
                    (
                        id(kernel),
                        sizes,
                        stream,
                        [id(v) if hasattr(v, "dtype") else repr(v) for v in values],
                        meta,
                        tuner.best_config,
                    )
                )
            assert outcomes[0] == outcomes[1], (args, keywords)
            native_launches += tuner._dispatcher._launches == before
    assert native_launches >= 80


def test_arrays_of_other_types_are_other_keys(recorder):
    tuner, x = tuned(key=()), np.zeros(64, np.float32)
    arrays = [x, x.astype(np.float16), torch.zeros(64), torch.zeros(64, dtype=torch.float16)]
    found = [block_of(tuner[(1,)](array, x, 7, 8, True, 0.5)) for array in arrays]
    assert found == list(CONFIGS) and len(tuner.cache) == 4
    before = in_python(tuner)
    for array, block in zip(arrays * 3, found * 3, strict=True):
        assert block_of(tuner[(1,)](array, x, 7, 8, True, 0.5)) == block
    assert in_python(tuner) == before
    described_tuner = tuned(described, key=(), configs=CONFIGS)
    made = [
        TensorDescriptor.from_tensor(torch.zeros(64, 64, dtype=kind), [8, 8])
        for kind in (torch.float32, torch.float16)
    ]
    found = [block_of(described_tuner[(1,)](each, x, 7)) for each in made]
    assert (
        found == list(CONFIGS[:2])
        and [block_of(described_tuner[(1,)](each, x, 7)) for each in made] == found
    )
    assert in_python(described_tuner) == 2


def test_each_backend_has_keys_of_its_own(install_recorder):
    install_recorder(), install_recorder(name="second", priority=10)
    tuner, x = tuned(), np.zeros(64, np.float32)
    for _ in range(3):
        assert block_of(tuner[(1,)](x, x, 7, 8, True, 0.5)) == CONFIGS[0]
        with tw.backend("second"):
            assert block_of(tuner[(1,)](x, x, 7, 8, True, 0.5)) == CONFIGS[1]
    assert in_python(tuner) == 2


def test_errors_are_those_of_python(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    for _ in range(2):
        tuner[(1,)](x, x, 7, 8, True, 0.5)
    with pytest.raises(LaunchError, match="must be hashable"):
        tuner[(1,)](x, x, [7], 8, True, 0.5)
    with pytest.raises(TuningArgumentError, match="Conflicting meta-parameters: BLOCK"):
        tuner[(1,)](x, x, 7, 8, True, 0.5, BLOCK=8)
    with pytest.raises(TypeError):
        tuner[(1,)](x, x, 7, 8, True)
    with pytest.raises(KeyError, match="nothing"):
        tuner[lambda meta: (meta["nothing"],)](x, x, 7, 8, True, 0.5)
    with pytest.raises(LaunchError):
        tuner[(-1,)](x, x, 7, 8, True, 0.5)

    def fail(grid, values):
        raise OSError("the device is gone")

    recorder.on_launch = fail
    with pytest.raises(OSError, match="the device is gone"):
        tuner[(1,)](x, x, 7, 8, True, 0.5)


# ---- what a program sets between two launches


def test_what_programs_set_is_seen_at_the_next_launch(recorder):
    tuner, x = tuned(bench=best_of(1)), np.zeros(64, np.float32)

    def launched():
        return block_of(tuner[(1,)](x, x, 7, 8, True, 0.5))

    assert launched() == launched() == 16
    ((key, best),) = tuner.cache.items()
    tuner.cache[key] = tuner.configs[3]
    assert launched() == launched() == 64 and tuner.best_config is tuner.configs[3]
    tuner.cache = {key: tuner.configs[2]}
    assert launched() == launched() == 32
    tuner.configs[2].kwargs["BLOCK"] = 128
    assert launched() == launched() == 128
    tuner.configs[2].num_warps = 8
    tuner[lambda meta: (meta["num_warps"],)](x, x, 7, 8, True, 0.5)
    assert recorder.launches[-1][0] == (8, 1, 1)
    called = []
    tuner.configs[2].pre_hook = called.append
    assert launched() == launched() == 128 and len(called) == 2
    tuner.configs[2].pre_hook = None
    seen = []
    tuner.fn = type(
        "Around",
        (),
        {
            "__getitem__": lambda self, grid: (
                lambda *args, **keywords: seen.append((grid, len(args), keywords))
            )
        },
    )()
    for _ in range(2):
        tuner[(5,)](x, x, 7, 8, True, 0.5)
    assert [(grid, count) for grid, count, _ in seen] == [((5,), 6)] * 2 and seen[1][2][
        "BLOCK"
    ] == 128
    tuner.fn = tuner.base_kernel
    tuner.cache.clear()
    assert launched() == launched() == 16 and key in tuner.cache and best is tuner.cache[key]
    tuner.cache = dict_of_its_own = type("Mapping", (dict,), {})(tuner.cache)
    assert launched() == 16 and tuner.cache is dict_of_its_own


def test_the_hooks_of_a_configuration_are_called_with_all_arguments(recorder):
    seen = []

    def hook(arguments):
        seen.append((recorder.launches[-1:], dict(arguments)))
        if arguments["n"] == 13:
            raise ZeroDivisionError("no launch")

    tuner, x = tuned(hook=hook, bench=best_of(1)), np.zeros(64, np.float32)
    tuner[(1,)](x, x, 7, 8, True, scale=0.5)
    seen.clear()
    kernel = tuner[(2,)](x, x, 7, 8, True, scale=0.5)
    assert in_python(tuner) == 1 and len(seen) == 1 and block_of(kernel) == 16
    expected = {
        "x": x,
        "y": x,
        "n": 7,
        "m": 8,
        "flag": True,
        "scale": 0.5,
        **tuner.best_config.all_kwargs(),
    }
    assert list(seen[0][1]) == list(expected) and all(
        seen[0][1][name] is value for name, value in expected.items()
    )
    (key,) = tuner.cache
    tuner.cache[13, *key[1:]] = tuner.best_config
    launches = len(recorder.launches)
    with pytest.raises(ZeroDivisionError, match="no launch"):
        tuner[(2,)](x, x, 13, 8, True, scale=0.5)
    assert len(recorder.launches) == launches and in_python(tuner) == 1


def test_the_hook_of_a_configuration_sets_the_blocks_of_descriptors(recorder):
    def hook(arguments):
        arguments["d"].block_shape = [arguments["BLOCK"], arguments["BLOCK"]]

    tuner, x, tensor = (
        tuned(described, key=("n",), hook=hook),
        np.zeros(1, np.int32),
        torch.zeros(64, 64),
    )
    for n in (2, 3, 4):
        for _ in range(3):
            given = TensorDescriptor.from_tensor(tensor, [1, 4])
            kernel = tuner[(1,)](given, x, n)
            assert (
                given.block_shape == [CONFIGS[n - 2]] * 2
                and kernel.src.signature["d"]
                == f"tensordesc<fp32[{CONFIGS[n - 2]},{CONFIGS[n - 2]}]>"
            )
    assert in_python(tuner) == 3


@pytest.mark.parametrize("where", ["class", "subclass", "instance"])
def test_launches_go_through_a_run_of_the_programs(recorder, monkeypatch, where):
    seen, old = [], Autotuner.run

    def run(self, *args, grid, warmup=False, **keywords):
        seen.append(warmup)
        return old(self, *args, grid=grid, warmup=warmup, **keywords)

    kind = type("Mine", (Autotuner,), {"run": run}) if where == "subclass" else Autotuner
    tuner, x = tuned(kind=kind), np.zeros(64, np.float32)
    if where != "subclass":
        tuner[(1,)](x, x, 7, 8, True, 0.5)
    if where == "class":
        monkeypatch.setattr(Autotuner, "run", run)
    elif where == "instance":
        tuner.run = lambda *args, **keywords: run(tuner, *args, **keywords)
    for _ in range(3):
        tuner[(1,)](x, x, 7, 8, True, 0.5)
    assert seen == [False] * 3 and in_python(tuner) == 1  # and what they call is native


def test_the_kernel_inside_sees_its_own_hooks(recorder):
    tuner, x = tuned(bench=best_of(0)), np.zeros(64, np.float32)
    for _ in range(2):
        tuner[(1,)](x, x, 7, 8, True, 0.5)
    seen = []
    tuner.fn.add_pre_run_hook(lambda *args, **keywords: seen.append(keywords["BLOCK"]))
    tuner[(1,)](x, x, 7, 8, True, 0.5)
    assert seen == [8]
    tuner.fn.pre_run_hooks.clear()
    tuner.fn.clear_cache()
    found = [tuner[(1,)](x, x, 7, 8, True, 0.5) for _ in range(3)]
    assert len(set(map(id, found))) == 1 and seen == [8] and tuner.fn._dispatcher._launches == 1


@pytest.mark.parametrize("where", ["class", "subclass"])
def test_brackets_of_the_programs_are_asked(recorder, monkeypatch, where):
    tuner, x, asked = tuned(bench=best_of(0)), np.zeros(64, np.float32), []
    kind = type(tuner.fn)
    old = kind.__getitem__

    def brackets(self, grid):
        asked.append(grid)
        return old(self, grid)

    if where == "subclass":
        tuner.fn = type("Mine", (kind,), {"__getitem__": brackets})(many)
    tuner[(1,)](x, x, 7, 8, True, 0.5)
    if where == "class":
        monkeypatch.setattr(kind, "__getitem__", brackets)
    asked.clear()
    for _ in range(3):
        tuner[(2,)](x, x, 7, 8, True, 0.5)
    assert asked == [(2,)] * 3 and in_python(tuner) == 1


# ---- processes, threads, memory


def test_a_pickled_tuner_keeps_what_it_found(recorder):
    tuner = tuned(bench=None)
    x = np.zeros(64, np.float32)
    tuner[(1,)](x, torch.zeros(4), 7, 8, True, 0.5)
    tuner._given_bench = None
    found = pickle.loads(pickle.dumps(tuner.cache))
    assert found == tuner.cache and next(iter(found))[-1] is next(iter(tuner.cache))[-1]


def test_threads_launch_their_own_configurations(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    expected = {n: block_of(tuner[(1,)](x, x, n, 8, True, 0.5)) for n in range(2, 10)}

    def launch(number):
        for n, block in expected.items():
            for _ in range(50):
                assert block_of(tuner[(1,)](x, x, n, 8, True, 0.5)) == block

    side_by_side(4, launch)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_launches_natively(recorder):
    tuner, x = tuned(), np.zeros(64, np.float32)
    tuner[(1,)](x, x, 7, 8, True, 0.5)
    child = os.fork()
    if child == 0:
        fine = False
        try:
            tuner[(1,)](x, x, 7, 8, True, 0.5)
            tuner[(1,)](x, x, 9, 8, True, 0.5)
            fine = (
                in_python(tuner) == 2
                and tuner[(1,)](x, x, 9, 8, True, 0.5) is not None
                and in_python(tuner) == 2
            )
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_nothing_is_lost_or_kept(recorder):
    recorder.on_launch = lambda *args: recorder.launches.clear()
    called = []
    hooked, single = (
        tuned(hook=lambda arguments: called.clear(), bench=best_of(1)),
        tuned(configs=(16,)),
    )
    plain, x, tensor, big = (
        tuned(bench=best_of(1)),
        np.zeros(64, np.float32),
        torch.zeros(64),
        10**15 + 1,
    )
    function = lambda meta: (10**9,)  # noqa: E731  (counted)

    def fail(meta):
        raise ZeroDivisionError

    def launch():
        for tuner in (plain, hooked, single):
            tuner[function](x, tensor, big, 8, True, scale=0.5)
            with pytest.raises(ZeroDivisionError):
                tuner[fail](x, tensor, big, 8, True, scale=0.5)

    for _ in range(3):
        launch()
    configs = [tuner.best_config for tuner in (plain, hooked, single)]
    entries = [tuner._dispatcher._entries[0][0] for tuner in (plain, hooked, single)]
    keys = [next(iter(tuner.cache)) for tuner in (plain, hooked)]
    chosen = [entry[1][0][0] for entry in entries]
    watched = (
        x,
        tensor,
        big,
        function,
        *configs,
        *entries,
        *keys,
        keys[0][-1],
        *chosen,
        *(value for each in chosen for value in each),
        plain.fn,
        None,
        False,
    )
    while gc.collect():
        pass
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(500):
        launch()
    recorder.launches.clear()
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    assert [b - a for a, b in zip(before, after, strict=True) if abs(b - a) > 50] == []
    assert threading.active_count() < 100


# ---- heuristics


def guessed(fn):
    def even(arguments):
        asked.append(dict(arguments))
        arguments.clear()  # it is the function's own
        return asked[-1]["n"] % 2 == 0

    asked = []
    return tw.heuristics(
        {"flag": even, "MODE": lambda arguments: "even" if arguments["flag"] else "odd"}
    )(fn), asked


def test_launches_with_heuristics_enter_few_frames(recorder):
    kernel, asked = guessed(tw.jit(many))
    x = np.zeros(64, np.float32)
    call = {"x": x, "y": x, "n": 8, "m": 8, "scale": 0.5}
    for n in (8, 7, 8, 7):
        found = kernel[(1,)](**{**call, "n": n}, BLOCK=16)
        assert dict(found.src.constants)["MODE"] == (
            "even" if n == 8 else "odd"
        ) and recorder.launches[-1][2][4] is (n == 8)
    assert list(asked[-1]) == ["x", "y", "n", "m", "scale", "BLOCK"]
    assert frames_of(lambda: kernel[(1,)](**call, BLOCK=16)) == [
        "__getitem__",
        "_launch",
        "_compute",
        "__getitem__",
    ]
    around, asked = guessed(tuned(key=("n", "MODE")))
    for n in (8, 7, 9):
        assert block_of(around[(1,)](**{**call, "n": n})) == CONFIGS[len(around.fn.cache) - 1]
    before = in_python(around.fn)
    assert frames_of(lambda: around[(1,)](**call)) == [
        "__getitem__",
        "_launch",
        "_compute",
        "__getitem__",
        "launch_function",
    ]
    assert in_python(around.fn) == before
    inside = Autotuner(
        guessed(tw.jit(many))[0],
        many.__code__.co_varnames[:9],
        [Config({"BLOCK": block}) for block in CONFIGS],
        ["n"],
        do_bench=by_turns(),
    )
    for _ in range(3):
        assert block_of(inside[(1,)](x, x, 8, 8, scale=0.5)) == 8
    assert in_python(inside) == 1


@pytest.mark.parametrize(
    "where", ["class", "subclass", "instance", "inside", "inside the class", "any object"]
)
def test_heuristics_ask_a_run_of_the_programs(recorder, monkeypatch, where):
    seen, x = [], np.zeros(64, np.float32)
    kernel, _ = guessed(tw.jit(many))
    kind = type(kernel) if where in ("class", "subclass", "instance") else type(kernel.fn)
    old = kind.run

    def run(self, *args, grid, warmup=False, **keywords):
        seen.append((grid, warmup))
        return old(self, *args, grid=grid, warmup=warmup, **keywords)

    if where in ("class", "inside the class"):
        monkeypatch.setattr(kind, "run", run)
    elif where == "subclass":
        kernel = type("Mine", (kind,), {"run": run})(kernel.fn, kernel.arg_names, kernel.values)
    elif where == "instance":
        kernel.run = lambda *args, **keywords: run(kernel, *args, **keywords)
    elif where == "inside":
        fn = kernel.fn
        fn.run = lambda *args, **keywords: run(fn, *args, **keywords)
    else:
        fn, old = kernel.fn, lambda self, *args, **keywords: type(fn).run(fn, *args, **keywords)
        kernel.fn = type("Any", (), {"run": run, "arg_names": fn.arg_names})()
    for _ in range(2):
        kernel[(2,)](x=x, y=x, n=8, m=8, scale=0.5, maybe=None, BLOCK=16)
    assert seen == [((2,), False)] * 2 and len(recorder.launches) == 2
