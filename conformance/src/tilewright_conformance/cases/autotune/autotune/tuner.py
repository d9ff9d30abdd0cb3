"""Choice among configurations, once for each key.

Failing configurations are skipped, arrays are restored; hooks, heuristics, and stored results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import (
    AutotunerError,
    CompilationError,
    CompileTimeAssertionFailure,
    OutOfResources,
)
from tilewright.runtime import tuning_records
from tilewright.runtime.hooks import hooks
from tilewright.testing import do_bench
from tilewright_conformance.cases.autotune.autotune.searched_kernels import (
    CONFIGS,
    TIMES,
    Bench,
    add_block,
    run,
    tuned,
)
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table, elements
from tilewright_conformance.testlib.device_array import DeviceArray
from tilewright_conformance.testlib.environment import environment, own_cache
from tilewright_conformance.testlib.threads import side_by_side

CASES = Table("autotune", "autotune", "Python and NumPy")

# ---- the choice


@CASES("choice", "autotune", needs=elements(tile=64), quick=True)
def the_fastest_is_chosen(session: Session) -> None:
    bench = Bench()
    kernel = tuned(bench)
    compiled = run(session, kernel, bench)
    session.require(bench.calls == 4, f"4 configurations are measured, not {bench.calls}")
    session.require(
        bench.launched[-1] == 16 and bench.measured == set(TIMES),
        f"all are run, and the fastest in the end, not {bench.launched}",
    )
    session.require(
        kernel.best_config is CONFIGS[1], f"the best is BLOCK 16, not {kernel.best_config}"
    )
    session.require(compiled.src.constants["BLOCK"] == 16, "the launch returns the launched kernel")
    timings = {config.kwargs["BLOCK"]: times for config, times in kernel.configs_timings.items()}
    session.require(
        timings == {block: [time] * 3 for block, time in TIMES.items()},
        f"the times are kept, and they are {timings}",
    )


@CASES("key", "autotune", needs=elements("f32", tile=64), quick=True)
def one_choice_for_each_key(session: Session) -> None:
    """A key is new where a value of its arguments is, or the type of an array."""
    bench = Bench()
    kernel = tuned(bench)
    for n, dtype, fastest, measured in (
        (64, np.int32, 16, 4),
        (64, np.int32, 16, 0),
        (100, np.int32, 32, 4),
        (64, np.float32, 8, 4),
        (100, np.int32, 32, 0),
        (64, np.int32, 16, 0),
        (64, np.float32, 8, 0),
    ):
        bench.calls, bench.times = 0, {**TIMES, fastest: 0.5}
        run(session, kernel, bench, n, dtype)
        session.require(
            bench.calls == measured,
            f"n={n} of {dtype.__name__}: {bench.calls} measurements, and {measured} due",
        )
        session.require(
            bench.launched[-1] == fastest,
            f"n={n} of {dtype.__name__}: BLOCK {bench.launched[-1]} ran, and {fastest} is "
            "the fastest",
        )


@tw.jit
def add_scaled(x, n, m, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + m * scale, mask=offsets < n)


@CASES("key/several", "autotune", needs=elements(tile=64), quick=True)
def what_is_in_no_key_changes_nothing(session: Session) -> None:
    """Tune by the keys of two arguments, by position and by name; another argument is no key."""
    bench = Bench()
    kernel = tuned(bench, add_scaled, key=("n", "m"))
    for m, scale, measured in ((2, 3, 4), (2, 5, 0), (3, 5, 4), (2, -7, 0)):
        for named in (False, True):
            bench.calls = 0
            x = np.zeros(64, np.int32)
            session.launch(
                kernel,
                bench.grid,
                x,
                64,
                *(() if named else (m, scale)),
                **({"m": m, "scale": scale} if named else {}),
            )
            session.check(x, np.full(64, m * scale, np.int32))
            due = 0 if named else measured
            session.require(
                bench.calls == due,
                f"m={m}, scale={scale}: {bench.calls} measurements, and {due} due",
            )


@CASES("single", "autotune", needs=elements(tile=64), quick=True)
def a_single_configuration_is_not_measured(session: Session) -> None:
    bench = Bench()
    kernel = tuned(bench, configs=[tw.Config({"BLOCK": 32}, num_warps=2)])
    compiled = run(session, kernel, bench)
    session.require(
        bench.calls == 0 and bench.launched == [32], "one configuration is launched once"
    )
    session.require(
        compiled.metadata.num_warps == 2, "it has the launch options of the configuration"
    )


@CASES("options", "autotune", needs=elements(tile=64), quick=True)
def configurations_have_launch_options(session: Session) -> None:
    options: dict[int, dict[str, Any]] = {
        8: {"num_warps": 1},
        16: {"num_warps": 8, "num_stages": 2},
        32: {"num_warps": 2, "num_stages": 1},
    }
    for best in options:
        bench = Bench({**TIMES, best: 0.5})
        kernel = tuned(
            bench,
            configs=[tw.Config({"BLOCK": block}, **given) for block, given in options.items()],
        )
        compiled = run(session, kernel, bench)
        session.require(
            compiled.metadata.num_warps == options[best]["num_warps"],
            f"BLOCK {best} runs with num_warps {compiled.metadata.num_warps}",
        )


# ---- pruning


@CASES("prune", "autotune", needs=elements(tile=64), quick=True)
def pruned_configurations_are_not_run(session: Session) -> None:
    received: dict[str, Any] = {}

    def early(configs: list[Any], named: Mapping[str, Any], **others: Any) -> list[Any]:
        received.update(named, **others)
        return [config for config in configs if config.kwargs["BLOCK"] != 16]

    def model(n: int, BLOCK: int, num_warps: int, **others: Any) -> float:
        return abs(BLOCK - n / 2 - 1)  # 32, then 64, 16, 8 for n = 64

    for how, blocks in (
        ({"early_config_prune": early}, {8, 32, 64}),
        ({"perf_model": model, "top_k": 2}, {32, 16}),
        ({"perf_model": model, "top_k": 0.25}, {32}),
        ({"early_config_prune": early, "perf_model": model, "top_k": 2}, {32, 8}),
    ):
        bench = Bench()
        run(session, tuned(bench, prune_configs_by=how), bench)
        session.require(bench.measured == blocks, f"{sorted(how)} leave {sorted(blocks)}")
    session.require(
        received["n"] == 64, f"the pruning function receives the arguments by name, not {received}"
    )
    bench = Bench()
    with session.raises(AutotunerError, "prun"):
        session.launch(
            tuned(
                bench, prune_configs_by={"early_config_prune": lambda configs, named, **others: []}
            ),
            bench.grid,
            np.zeros(64, np.int32),
            64,
        )
    session.require(bench.launched == [], "where nothing is left, nothing runs")


# ---- failures


@tw.jit
def add_unless(x, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK != 16 and BLOCK != 64, "not of this size")
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + BLOCK, mask=offsets < n)


@CASES("failures/compile", "autotune", needs=elements(tile=64), quick=True)
def configurations_that_do_not_compile_are_skipped(session: Session) -> None:
    bench = Bench()
    kernel = tuned(bench, add_unless)
    run(session, kernel, bench)
    session.require(
        bench.measured == {8, 32} and kernel.best_config.kwargs == {"BLOCK": 32},
        f"32 is the fastest that compiles, not {kernel.best_config}",
    )
    session.require(
        kernel.configs_timings[CONFIGS[1]] == [math.inf] * 3,
        "the time of one that fails is infinite",
    )
    run(session, kernel, bench)
    session.require(bench.launched == [32], "it is launched from then on")


def _out_of(arguments: Mapping[str, Any]) -> None:
    raise OutOfResources(300, 200, "shared memory")


@CASES("failures/launch", "autotune", needs=elements(tile=64), quick=True)
def configurations_that_do_not_fit_are_skipped(session: Session) -> None:
    """OutOfResources when it is run."""
    bench = Bench()
    configs = [
        tw.Config({"BLOCK": block}, pre_hook=_out_of if block == 16 else None) for block in TIMES
    ]
    kernel = tuned(bench, configs=configs)
    run(session, kernel, bench)
    session.require(
        kernel.best_config is configs[2] and bench.measured == {8, 32, 64},
        f"the best is BLOCK 32, not {kernel.best_config}",
    )


@tw.jit
def never_compiles(x, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 0, "no size is right")
    tl.store(x, n)


@CASES("failures/all", "autotune", needs=elements(tile=64), quick=True)
def an_error_where_none_works(session: Session) -> None:
    """The error names the kernel and the failures; the next launch tunes again.

    No configuration has run.
    """
    bench, x = Bench(), np.zeros(64, np.int32)
    for kernel, cause in (
        (tuned(bench, never_compiles), CompileTimeAssertionFailure),
        (
            tuned(
                bench, configs=[tw.Config({"BLOCK": block}, pre_hook=_out_of) for block in (8, 16)]
            ),
            OutOfResources,
        ),
    ):
        for _ in range(2):
            try:
                with session.raises(
                    AutotunerError, kernel.base_kernel.__name__ + ".*" + cause.__name__
                ):
                    session.launch(kernel, bench.grid, x, 64)
            except CompilationError as error:
                session.require(
                    False,
                    "where no configuration works an AutotunerError is due, not a "
                    f"{type(error).__name__}: {error}",
                )
        session.require(not kernel.cache, "a tuning that failed leaves no choice behind")
    session.check(x, np.zeros(64, np.int32))
    run(session, tuned(bench), bench)


@tw.jit
def has_a_mistake(x, n, BLOCK: tl.constexpr):
    if BLOCK == 32:
        tl.store(x, undefined_name)  # type: ignore[name-defined]  # noqa: F821
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, n, mask=offsets < n)


@CASES("failures/mistake", "autotune", needs=elements(tile=64), quick=True)
def mistakes_of_the_kernel_are_not_swallowed(session: Session) -> None:
    bench = Bench()
    with session.raises(CompilationError, "undefined_name"):
        session.launch(tuned(bench, has_a_mistake), bench.grid, np.zeros(64, np.int32), 64)
    with session.raises(ValueError, "Conflicting meta-parameters: BLOCK"):
        session.launch(tuned(bench), bench.grid, np.zeros(64, np.int32), 64, BLOCK=8)
    for field in ("key", "reset_to_zero", "restore_value"):
        with session.raises(ValueError, field):
            tuned(bench, **{field: ["nothing"]})


# ---- arrays and hooks


@tw.jit
def accumulate(total, x, none, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(total + offsets, tl.load(total + offsets, mask=offsets < n) + value, mask=offsets < n)
    tl.store(x + offsets, value * 2, mask=offsets < n)


@CASES("arrays", "autotune", needs=elements("f32", tile=64), quick=True)
def arrays_are_reset_and_restored(session: Session) -> None:
    """The trials leave arrays as if only the requested launch had been made.

    Later launches leave them as they are.
    """
    for bench in (Bench(), functools.partial(do_bench, warmup=1, rep=2)):
        n, seen = 100, list[int]()

        def grid(meta: Mapping[str, Any], seen: list[int] = seen) -> tuple[int]:
            seen.append(meta["BLOCK"])
            if isinstance(bench, Bench):  # noqa: B023  (called in this round)
                bench.launched.append(meta["BLOCK"])  # noqa: B023
            return (tw.cdiv(meta["n"], meta["BLOCK"]),)

        kernel = tw.autotune(
            list(CONFIGS),
            ["n"],
            reset_to_zero=["total", "none"],
            restore_value=["x", "none"],
            do_bench=bench,
            cache_results=False,
        )(tw.jit(accumulate.fn))
        values = session.rng.integers(-8, 9, n).astype(np.float32)
        total, x = DeviceArray(session, np.full(n, 99, np.float32)), DeviceArray(session, values)
        with session.use():
            kernel[grid](total, x, None, n)
        session.require(len(seen) >= 5, "every configuration is run, and the best once more")
        session.check(total.numpy(), values, name="an array that starts at zero", zero_sign=False)
        session.check(
            x.numpy(), values * 2, name="an array that is given its values back", zero_sign=False
        )
        with session.use():
            kernel[grid](total, x, None, n)
        session.check(total.numpy(), values * 3, name="a sum of two launches", zero_sign=False)
        session.check(x.numpy(), values * 4, zero_sign=False)


@CASES("hooks", "autotune", needs=elements(tile=64), quick=True)
def hooks_run_around_trials_and_launches(session: Session) -> None:
    events: list[tuple[Any, ...]] = []
    configs = [
        tw.Config(
            {"BLOCK": 16},
            pre_hook=lambda arguments: events.append(
                ("config", arguments["BLOCK"], arguments["n"])
            ),
        ),
        tw.Config({"BLOCK": 32}),
    ]
    bench = Bench()
    kernel = tuned(
        bench,
        configs=configs,
        pre_hook=lambda arguments, reset_only=False: events.append(
            ("pre", arguments["BLOCK"], reset_only)
        ),
        post_hook=lambda arguments, exception=None: events.append(
            ("post", arguments["BLOCK"], type(exception))
        ),
    )
    run(session, kernel, bench)
    none = type(None)
    trials = {
        16: [("config", 16, 64), ("pre", 16, False), ("post", 16, none)],
        32: [("pre", 32, False), ("post", 32, none)],
    }
    end = [("pre", 16, True), ("config", 16, 64)]
    orders = [
        trials[16] + trials[32] + end,
        trials[32] + trials[16] + end,
    ]  # the backend's estimate may turn the order round
    session.require(events in orders, f"the hooks were called as {events}")
    events.clear()
    run(session, kernel, bench)
    session.require(
        events == [("config", 16, 64)],
        f"later launches call the configuration's hook alone, not {events}",
    )


@tw.jit
def read_blocks(x, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    tl.store(
        out + start + tl.arange(0, BLOCK),
        x.load([start]) + BLOCK,
        mask=start + tl.arange(0, BLOCK) < n,
    )


@CASES("hooks/descriptor", "autotune", needs=elements("f32", tile=64, features={"descriptors"}))
def a_configuration_sets_the_blocks_of_a_descriptor(session: Session) -> None:
    def set_block(arguments: dict[str, Any]) -> None:
        arguments["x"].block_shape = [arguments["BLOCK"]]

    bench = Bench()
    kernel = tuned(
        bench,
        read_blocks,
        configs=[tw.Config({"BLOCK": block}, pre_hook=set_block) for block in TIMES],
    )
    x, out = session.rng.integers(-8, 9, 100).astype(np.float32), np.zeros(100, np.float32)
    for _ in range(2):
        session.launch(kernel, bench.grid, tw.TensorDescriptor(x, [100], [1], [4]), out, 100)
        session.check(out, x + 16)


@CASES("listener", "autotune", needs=elements(tile=64))
def a_listener_is_called(session: Session) -> None:
    received: list[dict[str, Any]] = []
    bench, before = Bench(), hooks.autotuning_listener
    hooks.autotuning_listener = lambda **facts: received.append(facts)
    try:
        kernel = tuned(bench)
        for _ in range(2):
            run(session, kernel, bench)
    finally:
        hooks.autotuning_listener = before
    session.require(len(received) == 1, f"one tuning calls it once, not {len(received)} times")
    session.require(
        received[0]["fn"] is kernel
        and received[0]["best_config"] is CONFIGS[1]
        and received[0]["cache_hit"] is False,
        f"it received {received[0]}",
    )


@CASES("warmup", "autotune", needs=elements(tile=64))
def warming_up_compiles_every_configuration(session: Session) -> None:
    bench, x = Bench(), np.zeros(64, np.int32)
    kernel, place = tuned(bench), session.placement()
    with session.use():
        compiled = kernel.warmup(place(x), 64, grid=bench.grid)
    place.fetch()
    session.require(
        [one.src.constants["BLOCK"] for one in compiled] == list(TIMES),
        "a warm-up returns a kernel for each configuration",
    )
    session.check(x, np.zeros(64, np.int32))


@CASES("threads", "autotune", needs=elements(tile=64), quick=True)
def threads_tune_once(session: Session) -> None:
    bench, count = Bench(), 4
    kernel = tuned(bench)
    arrays, places = (
        [np.zeros(64, np.int32) for _ in range(count)],
        [session.placement() for _ in range(count)],
    )
    placed = [place(array) for place, array in zip(places, arrays, strict=True)]

    def work(own: int) -> None:
        for _ in range(3):
            kernel[bench.grid](placed[own], 64)

    side_by_side(session, count, work)
    for place in places:
        place.fetch()
    session.require(
        bench.calls == 4, f"4 configurations are measured once, not {bench.calls} times"
    )
    for array in arrays:
        session.check(array, np.full(64, 3 * 16, np.int32), name="what three launches add")
    for array in arrays:
        session.check(array, np.full(64, array[0]))


# ---- heuristics


@tw.jit
def by_heuristics(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + offsets, BLOCK + TWICE)
    else:
        tl.store(x + offsets, -BLOCK - TWICE, mask=offsets < n)


@CASES("heuristics", "heuristics", needs=elements(tile=64), quick=True)
def heuristics_compute_arguments_in_order(session: Session) -> None:
    """Each heuristic sees all arguments and the results of earlier ones; so does the grid."""
    kernel = tw.heuristics(
        {
            "BLOCK": lambda args: tw.next_power_of_2(args["n"]) // 2,
            "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
            "TWICE": lambda args: args["BLOCK"] * 2 + args["EVEN"],
        }
    )(tw.jit(by_heuristics.fn))
    for n in (24, 32, 64, 24, 100):
        x = np.zeros(128, np.int32)
        compiled = session.launch(kernel, lambda meta: (tw.cdiv(meta["n"], meta["BLOCK"]),), x, n)
        block = tw.next_power_of_2(n) // 2
        even = n % block == 0
        value = (3 * block + even) * (1 if even else -1)
        session.check(x, np.where(np.arange(128) < n, value, 0).astype(np.int32))
        session.require(
            dict(compiled.src.constants)
            == {"BLOCK": block, "EVEN": even, "TWICE": 2 * block + even},
            f"n={n} gave {compiled.src.constants}",
        )


@CASES(
    "heuristics/nested",
    "heuristics",
    each={"inside": True, "outside": False},
    needs=elements(tile=64),
    quick=("inside",),
)
def heuristics_and_tuning_nest(session: Session, inside: bool) -> None:
    """A heuristic inside the tuner sees the configuration; one outside is evaluated first."""
    bench = Bench()
    rest = {"EVEN": lambda args: args["n"] % 16 == 0}
    tune = tw.autotune(list(CONFIGS), ["n"], do_bench=bench, cache_results=False)
    if inside:
        kernel = tune(
            tw.heuristics({"TWICE": lambda args: 2 * args["BLOCK"], **rest})(
                tw.jit(by_heuristics.fn)
            )
        )
    else:
        kernel = tw.heuristics({"TWICE": lambda args: 2 * args["n"], **rest})(
            tune(tw.jit(by_heuristics.fn))
        )
    for n in (64, 50, 64):
        x = np.zeros(64, np.int32)
        compiled = session.launch(kernel, bench.grid, x, n)
        value = 16 + (32 if inside else 2 * n)
        session.check(
            x, np.where(np.arange(64) < n, value if n == 64 else -value, 0).astype(np.int32)
        )
        session.require(
            compiled.src.constants["BLOCK"] == 16, f"the fastest ran, not {compiled.src.constants}"
        )


# ---- what is kept


@CASES("records", "autotune", needs=elements(tile=64), quick=True)
def results_are_kept_on_disk(session: Session) -> None:
    """Another tuner of the same source, key, device and configurations uses the stored results.

    A damaged record counts as none.
    """
    with own_cache(), environment(TILEWRIGHT_AUTOTUNE="on"):

        def tune(
            n: int = 64,
            configs: Sequence[Any] = CONFIGS,
            kernel: Any = add_block,
            times: Mapping[int, float] = TIMES,
        ) -> tuple[int, int]:
            bench = Bench(times)
            run(session, tuned(bench, kernel, configs, cache_results=True), bench, n)
            return bench.calls, bench.launched[-1]

        session.require(tune() == (4, 16), "the first tuning measures")
        session.require(
            tune(times={8: 0.1, 16: 9, 32: 9, 64: 9}) == (0, 16), "the second takes its result"
        )
        session.require(tune(n=50) == (4, 16), "another key is another record")
        session.require(tune(configs=CONFIGS[:3]) == (3, 16), "so is another set of configurations")
        session.require(tune(kernel=add_unless) == (2, 32), "so is another kernel")
        with environment(TILEWRIGHT_AUTOTUNE="refresh"):
            session.require(
                tune(times={**TIMES, 64: 0.1}) == (4, 64), "a refreshed tuning measures"
            )
        session.require(tune() == (0, 64), "and its result is kept")
        with environment(TILEWRIGHT_AUTOTUNE="memory"):
            session.require(tune() == (4, 16), "a tuning in memory measures")
        session.require(tune() == (0, 64), "and keeps nothing")
        for path in Path(tuning_records.directory()).glob("*.json"):
            path.write_text(path.read_text()[:20])
        session.require(tune() == (4, 16), "damaged records are measured again")


@CASES("modes", "autotune", each={"off": 0, "deterministic": 0}, needs=elements(tile=64))
def modes_that_measure_nothing(session: Session, measured: int) -> None:
    mode = session.case_id.rpartition("/")[2]
    with own_cache(), environment(TILEWRIGHT_AUTOTUNE=mode):
        bench = Bench()
        kernel = tuned(bench, configs=CONFIGS)
        run(session, kernel, bench)
        run(session, kernel, bench)
        session.require(
            bench.calls == measured and len(set(bench.launched)) == 1,
            f"mode {mode} ran {bench.launched}",
        )
