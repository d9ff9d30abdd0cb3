"""The autotuner: the fastest configuration, searched once per tuning key, device and target."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from tilewright.environment import flag
from tilewright.errors import TuningArgumentError
from tilewright.runtime import tuning_records
from tilewright.runtime.compiler.config import Config as Config
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch.kernel_interface import launchable
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning import tuning_keys
from tilewright.runtime.tuning.candidates import TuningTarget
from tilewright.runtime.tuning.trial_kernel import TrialKernel, check_parameters
from tilewright.runtime.tuning.tuned_dispatch import TunedDispatcher
from tilewright.runtime.tuning.tuning_log import log_tuning
from tilewright.runtime.tuning.tuning_run import TuningRun

#: seconds that one configuration may take to compile, and again to be measured
TIME_LIMIT = 60.0

#: The autotuners of this process.
_tuners: weakref.WeakSet[Autotuner] = weakref.WeakSet()


def _after_fork() -> None:
    """Reset tuning state in a forked child, which lacks the parent's tuning thread."""
    for tuner in list(_tuners):
        tuner._make_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Autotuner(TrialKernel):
    """A kernel that launches with the fastest of several configurations; see :func:`autotune`.

    Attributes:
        keys: the parameters that :func:`autotune` received as ``key``.
        cache: the best configuration of each tuning key. ``best_config`` is that of the last
            launch.
        configs_timings: for each configuration of the last tuning, its times in ms: ``[median, 20 %
            quantile, 80 % quantile]``, or infinity if it failed.
        bench_time: the duration of the last tuning in seconds.
        record: the stored result of the last tuning; None if its key contains a value that has no
            representation that is the same in every process.
        measures_one: whether to measure a configuration even if it is the only one.

    Safe to launch from several threads: one tunes at a time, and launches whose key is known do not
    wait for it.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config] | None,
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool | None = None,
        executor: concurrent.futures.Executor | None = None,
        time_limit: float | None = TIME_LIMIT,
        budget: float | None = None,
        mode: str | None = None,
        check: str | None = None,
        invariant: bool | Sequence[str] | None = None,
    ) -> None:
        if invariant is None:
            invariant = flag("TILEWRIGHT_AUTOTUNE_INVARIANT")
        super().__init__(
            fn,
            arg_names,
            configs,
            reset_to_zero=reset_to_zero or (),
            restore_value=restore_value or (),
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            warmup=warmup,
            rep=rep,
            do_bench=do_bench,
            executor=executor,
            time_limit=time_limit,
            cache_results=cache_results,
            invariant=invariant,
        )
        self.keys = list(key)
        check_parameters(
            self.arg_names,
            key=self.keys,
            reset_to_zero=self.reset_to_zero,
            restore_value=self.restore_value,
            invariant=self.batch_names or (),
        )
        if warmup is not None or rep is not None or use_cuda_graph:
            warnings.warn(
                "warmup, rep and use_cuda_graph of autotune are deprecated; pass do_bench, for "
                "example functools.partial(do_bench, rep=50)",
                DeprecationWarning,
                stacklevel=3,
            )
        self.use_cuda_graph = use_cuda_graph
        self.budget = (
            None if budget is None else tuning_records.check_budget(budget, "budget of autotune")
        )
        self.mode = None if mode is None else tuning_records.check_mode(mode, "mode of autotune")
        if check not in (None, *tuning_records.CHECKS):
            raise TuningArgumentError(
                f"check of autotune must be one of {', '.join(tuning_records.CHECKS)}, "
                f"not {check!r}"
            )
        self.check = check
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, list[float]] = {}
        self.bench_time = 0.0
        self.record: Record | None = None
        self.measures_one = False
        self._make_locks()
        self.__qualname__: str = getattr(fn, "__qualname__", self.__name__)
        self.__module__: str = getattr(fn, "__module__", __name__)
        self.__doc__: str | None = getattr(fn, "__doc__", None)
        self._dispatcher = TunedDispatcher(self)

    def _make_locks(self) -> None:
        self._tuning_lock = threading.RLock()
        self._of_thread = threading.local()
        _tuners.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_tuning_lock", "_of_thread", "_dispatcher")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()
        self._dispatcher = TunedDispatcher(self)

    # -- launching

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        kind = type(self)
        # a subclass's, or one that a program has put in its place
        if kind.run is not kind._own_run or "run" in self.__dict__:
            return partial(self.run, grid=grid, warmup=False)
        dispatcher = self._dispatcher
        return (
            dispatcher.launcher(grid)
            if dispatcher.native is None
            else partial(dispatcher.native, grid)
        )

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch the best configuration, tuning first where the tuning key is new.

        With ``warmup`` compile every configuration and return the list.

        Launches call this method only where a subclass or a program has overridden it.
        """
        if not warmup:
            return self._dispatcher.start(grid, *args, **kwargs)
        with self._arguments(args):
            return [
                self.fn.run(*args, grid=grid, warmup=True, **{**config.all_kwargs(), **kwargs})
                for config in self._pruned(self.configs, kwargs)
            ]

    _own_run = run

    def launch_best(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch the best configuration from Python."""
        with self._arguments(args) as nargs:
            config = self._best(args, grid, kwargs)
            self.best_config = config
            if not config.kwargs.keys().isdisjoint(kwargs):
                self._refuse_conflicts(config, kwargs)
            added = config.all_kwargs()
            if config.pre_hook is not None:
                config.pre_hook({**nargs, **kwargs, **added})
            return self.fn[grid](*args, **{**added, **kwargs})

    def chosen_keywords(
        self, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the keywords of a launch with the best configuration, tuning first where needed.

        What the launch itself sets takes the configuration's place: where it sets all that
        configurations set, nothing is tuned. Arrays are left as they were, also those that tuning
        sets to zero, and hooks of configurations are not called, which may clear results.
        """
        found = dict(keywords)
        choices = {name for config in self.configs for name in config.kwargs}
        if not choices or not choices <= found.keys():
            rest = {name: value for name, value in found.items() if name not in choices}
            found = {**self._best_kept(grid, args, rest).all_kwargs(), **found}
        return super().chosen_keywords(grid, args, found)

    def _best_kept(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        """Return the best configuration, and leave all arrays as they were."""
        with self._arguments(args) as nargs:
            named = {**nargs, **kwargs}
            if self.takes_the_only_one() or self._is_tuned(named):
                return self._best(args, grid, kwargs)
            with self._hooked_arrays_kept(named):
                return self._best(args, grid, kwargs)

    def _is_tuned(self, named: Mapping[str, Any]) -> bool:
        try:
            return self.tuning_key(named) in self.cache
        except TypeError:  # not hashable, which the tuning explains
            return False

    def takes_the_only_one(self) -> bool:
        """Return whether the only configuration is taken unmeasured."""
        return (
            len(self.configs) == 1
            and self._given_configs
            and not self.measures_one
            and not self.invariant
        )

    def _best(self, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> Config:
        if self.takes_the_only_one():
            return self.configs[0]
        assert self.nargs is not None
        try:
            key = self.tuning_key({**self.nargs, **kwargs})
            found = self.cache.get(key)
        except TypeError:
            raise tuning_keys.unhashable(
                self.__name__, self.keys, {**self.nargs, **kwargs}
            ) from None
        if found is None:
            with self._tuning_lock:
                found = self.cache.get(key)
                if found is not None:
                    return found
                found, report = TuningRun(self, key, args, grid, kwargs).run()
                self.cache[key] = found
            if report is not None:  # listeners may launch this kernel, and wait for threads that do
                self.configs_timings = report.timings
                self._tell(key, found, report.seconds, cache_hit=report.is_recorded)
        return found

    def tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the tuning key of a launch with these arguments by name.

        See :func:`~tilewright.runtime.tuning.tuning_keys.tuning_key`.
        """
        return tuning_keys.tuning_key(self.keys, named)

    def _record_identity(
        self,
        key: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        configs: Sequence[Config],
        place: TuningTarget,
    ) -> tuning_keys.RecordKey | None:
        """Return the key of the tuning's record; None where no record is stored."""
        found = tuning_keys.record_key(
            self.base_kernel,
            key[: len(self.keys)],
            {**(self.nargs or {}), **kwargs},
            configs,
            place,
        )
        if found is None or not self.record_mark:
            return found
        return found._replace(key=f"{found.key};{self.record_mark}")

    def _tell(self, key: tuple[Any, ...], best: Config, seconds: float, *, cache_hit: bool) -> None:
        self.bench_time = seconds
        shown = key[: len(self.keys)]
        log_tuning(self.__name__, shown, best, self.configs_timings, seconds, recorded=cache_hit)
        if hooks.autotuning_listener is not None:
            hooks.autotuning_listener(
                fn=self,
                key=key,
                best_config=best,
                configs_timings=self.configs_timings,
                bench_time=seconds,
                cache_hit=cache_hit,
            )


def autotune(
    configs: Sequence[Config] | None = None,
    key: Sequence[str] = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool | None = None,
    *,
    executor: concurrent.futures.Executor | None = None,
    time_limit: float | None = TIME_LIMIT,
    budget: float | None = None,
    mode: str | None = None,
    check: Literal["exact", "off"] | None = None,
    invariant: bool | Sequence[str] | None = None,
) -> Callable[[Any], Autotuner]:
    """Decorate a kernel, so that its launches use the fastest of several configurations.

    If there are several configurations, a launch measures them, unless an earlier launch had the
    same values of the ``key`` parameters and the same types of arrays. Later launches use the
    fastest configuration.

    To measure a configuration, the tuner runs the kernel many times. After each configuration, the
    tuner restores the arrays that the kernel stores to. The tuner does not restore the arrays
    between the runs of one configuration, so each run starts with the results of the previous run.
    If the time of the kernel depends on the values in these arrays, name the arrays in
    ``restore_value``: the tuner then restores the arrays before every run. If an array must contain
    zeros at the start of a run, because the kernel adds to the array, name the array in
    ``reset_to_zero``. The measured time of a run includes the time to restore the arrays or to fill
    them with zeros.

    Args:
        configs: the configurations; if empty, the backend proposes some.
        key: the parameters whose values determine which configuration is best.
        prune_configs_by: a dictionary of ways to drop configurations before the measurement.
            ``early_config_prune(configs, named_args, **kwargs)`` returns the configurations to
            keep. ``perf_model(**all arguments)`` estimates the time of a configuration; the
            ``top_k`` configurations with the lowest estimates are kept (a count, or a fraction up
            to 1.0).
        reset_to_zero: parameters whose arrays are set to zero before each measured run. Arguments
            that are None are ignored.
        restore_value: parameters whose arrays are restored before each measured run.
        pre_hook, post_hook: functions that prepare a measured run and clean up after it, in place
            of ``reset_to_zero`` and ``restore_value``: ``pre_hook(arguments, reset_only=False)``,
            ``post_hook(arguments, exception=None)``.
        warmup, rep, use_cuda_graph: deprecated; see ``do_bench``.
        do_bench: a function ``do_bench(call, quantiles)`` that returns the time of ``call`` in
            milliseconds at each of the quantiles; by default :func:`tilewright.testing.do_bench`.
        cache_results: whether to store the result on disk; if False, only this process keeps it.
        executor: the pool that compiles configurations; by default worker processes, or threads on
            systems that cannot fork processes.
        time_limit: the time limit in seconds for the compilation of a configuration, and separately
            for its measurement; None: no limit.
        budget: the time limit of the whole tuning in seconds; when it is reached, the tuner selects
            the best configuration so far. None: the value of ``TILEWRIGHT_AUTOTUNE_BUDGET``.
        mode: the mode of tuning. ``"model"`` measures nothing; see :doc:`tuning` for all modes.
            None: the value of ``TILEWRIGHT_AUTOTUNE``, or ``"on"`` if it is unset.
        check: with ``"exact"``, the tuner first launches every configuration in exact mode, on
            copies of the arrays. It excludes those whose exact results differ from those of the
            first configuration, and prints a warning. None: the value of
            ``TILEWRIGHT_AUTOTUNE_CHECK``.
        invariant: whether to select only configurations that compute the same bits as each other,
            for every batch size. The tuner launches configurations with the option ``invariant``,
            compares their results on copies of the arrays with random values, and excludes those
            whose bits differ. With True, the compiler finds the parameters that are batch sizes; a
            list names them. None: the value of ``TILEWRIGHT_AUTOTUNE_INVARIANT``.

    Raises:
        TuningArgumentError: ``key``, ``reset_to_zero``, ``restore_value`` or ``invariant`` does not
            name a parameter; at launch: a keyword is also set by the configurations.
        ValueError: ``budget`` or ``mode`` has an invalid value.
        AutotunerError: at launch: no configuration works, or pruning removed all of them; an array
            that the kernel reads and stores to cannot be copied; no configuration is invariant, or
            none computes the same bits as earlier launches; with ``check``, the results of the
            first of three or more configurations differ from those of all others, or exact mode
            does not support the kernel.
    """
    return lambda fn: Autotuner(
        launchable(fn, "autotune"),
        fn.arg_names,
        configs,
        key,
        reset_to_zero=reset_to_zero,
        restore_value=restore_value,
        pre_hook=pre_hook,
        post_hook=post_hook,
        prune_configs_by=prune_configs_by,
        warmup=warmup,
        rep=rep,
        use_cuda_graph=use_cuda_graph,
        do_bench=do_bench,
        cache_results=cache_results,
        executor=executor,
        time_limit=time_limit,
        budget=budget,
        mode=mode,
        check=check,
        invariant=invariant,
    )
