"""The autotuner: the fastest configuration, searched once per tuning key, device and target."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from tilewright.environment import flag
from tilewright.errors import (
    AutotunerError,
    CompileTimeAssertionFailure,
    LaunchError,
    LoweringError,
    OutOfResources,
    TuningArgumentError,
    similar,
    with_help,
)
from tilewright.runtime import tuning_records
from tilewright.runtime.arguments.array_copies import clone, copy_into, set_to_zero
from tilewright.runtime.arguments.array_protocols import is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.config import Config as Config
from tilewright.runtime.compiler.config import check_configs, config_text, made_invariant
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch.kernel_interface import KernelInterface, launchable
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning import tuning_keys
from tilewright.runtime.tuning.candidates import (
    Pruning,
    TuningTarget,
    backend_pruned,
    proposed,
    works_of,
)
from tilewright.runtime.tuning.measurement import INFINITE, Measurement, three_quantiles
from tilewright.runtime.tuning.tuned_dispatch import TunedDispatcher
from tilewright.runtime.tuning.tuning_log import log_choice, log_timings

if TYPE_CHECKING:
    from tilewright.runtime.tuning.invariant_tuning import Anchor, InvariantTuning

#: Errors that disqualify a configuration. Any other exception is an error of the kernel or the
#: caller, and is raised.
FAILURES = (OutOfResources, CompileTimeAssertionFailure, LoweringError, TimeoutError)
#: seconds that one configuration may take to compile, and again to be measured
TIME_LIMIT = 60.0

#: seconds that a tuning took, whether its result had been recorded before, time of each
#: configuration
_Report = tuple[float, bool, dict[Config, list[float]]]


#: The autotuners of this process.
_tuners: weakref.WeakSet[Autotuner] = weakref.WeakSet()


def _after_fork() -> None:
    """Reset tuning state in a forked child, which lacks the parent's tuning thread."""
    for tuner in list(_tuners):
        tuner._make_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Autotuner(KernelInterface):
    """A kernel whose configuration is chosen by measurement; see :func:`autotune`.

    Attributes:
        fn, base_kernel: the wrapped object, and the innermost kernel.
        configs, keys, arg_names: as given.
        cache: tuning key -> best configuration; best_config: that of the last launch.
        configs_timings: configuration -> [median, 20 % quantile, 80 % quantile] in ms of the last
            tuning; infinite for one that failed.
        failures: configurations that failed in the last tuning, each with its error.
        user_defined_pre_hook, user_defined_post_hook: whether ``pre_hook`` or ``post_hook`` was
            given.
        bench_time: seconds the last tuning took.
        nargs: the positional arguments by name, while this thread tunes it or launches it through
            Python; else None.
        record: the stored result of the last tuning; None where its key has no text that is the
            same in every process.
        measures_one: whether a single configuration is measured instead of taken unmeasured.
        invariant: whether all configurations that are launched compute the same bits, for all batch
            sizes; batch_names: names of the batch sizes, where they are given.
        signature: text that is equal for equal bits, where ``invariant`` holds.
        anchors: the configurations whose bits count, by name; see
            :mod:`~tilewright.runtime.tuning.invariant_tuning`.

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
        self.fn = fn
        self.base_kernel = getattr(fn, "base_kernel", fn)
        self.arg_names = list(arg_names)
        self._given_configs = bool(configs)
        self.configs = check_configs(configs, "configs of autotune") if configs else [Config({})]
        if invariant is None:
            invariant = flag("TILEWRIGHT_AUTOTUNE_INVARIANT")
        self.batch_names = None if isinstance(invariant, bool) else tuple(invariant)
        self.invariant = invariant is not False
        if self.invariant:
            self.configs = [made_invariant(config) for config in self.configs]
        self.keys = list(key)
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        for label, names in (
            ("key", self.keys),
            ("reset_to_zero", self.reset_to_zero),
            ("restore_value", self.restore_value),
            ("invariant", self.batch_names or ()),
        ):
            unknown = [name for name in names if name not in self.arg_names]
            if unknown:
                message = (
                    f"{label} of autotune names {', '.join(map(repr, unknown))}, which is no "
                    f"parameter of the kernel ({', '.join(self.arg_names)})"
                )
                raise TuningArgumentError(
                    with_help(message, similar(unknown[0], self.arg_names, shortened=True))
                )
        self.user_defined_pre_hook, self.user_defined_post_hook = (
            pre_hook is not None,
            post_hook is not None,
        )
        self.pre_hook: Callable[..., Any] = pre_hook or self._save_arguments
        self.post_hook: Callable[..., Any] = post_hook or self._restore_arguments
        self._restored: dict[str, Any] = {}
        self.early_config_prune, self.perf_model, self.configs_top_k = Pruning.of(prune_configs_by)
        if warmup is not None or rep is not None or use_cuda_graph:
            warnings.warn(
                "warmup, rep and use_cuda_graph of autotune are deprecated; pass do_bench, for "
                "example functools.partial(do_bench, rep=50)",
                DeprecationWarning,
                stacklevel=3,
            )
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self._given_bench = do_bench
        self.cache_results = cache_results
        self.executor, self.time_limit = executor, time_limit
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
        self.signature = ""
        self.anchors: dict[Any, Anchor] = {}
        self.failures: list[tuple[Config, Exception]] = []
        self._make_locks()
        self.__name__: str = getattr(fn, "__name__", "kernel")
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

    @property
    def nargs(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = getattr(self._of_thread, "nargs", None)
        return found

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        self._of_thread.nargs = value

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

    @contextlib.contextmanager
    def _arguments(self, args: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """Set ``nargs`` to the positional arguments of a launch for a ``with`` block."""
        before = self.nargs
        self.nargs = named = dict(zip(self.arg_names, args, strict=False))
        try:
            yield named
        finally:
            self.nargs = before

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
            names = named if self.user_defined_pre_hook else self.reset_to_zero
            arrays = [named[name] for name in names if is_array(named.get(name))]
            saved = [clone(array) for array in arrays]
            try:
                return self._best(args, grid, kwargs)
            finally:
                for array, values in zip(arrays, saved, strict=True):
                    copy_into(array, values)

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

    def make_invariant(self) -> None:
        """Make this an invariant autotuner from now on; see :func:`autotune`."""
        self.invariant = True
        self.configs = [made_invariant(config) for config in self.configs]

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
                found, report = self._tune(key, args, grid, kwargs)
                self.cache[key] = found
            if report is not None:  # listeners may launch this kernel, and wait for threads that do
                seconds, cache_hit, self.configs_timings = report
                self._tell(key, found, seconds, cache_hit=cache_hit)
        return found

    def tuning_key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the tuning key of a launch with these arguments by name.

        See :func:`~tilewright.runtime.tuning.tuning_keys.tuning_key`.
        """
        return tuning_keys.tuning_key(self.keys, named)

    # -- tuning

    def _tune(
        self, key: tuple[Any, ...], args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> tuple[Config, _Report | None]:
        """Find the best configuration, and the report of the tuning if there was one."""
        started = time.perf_counter()
        named_backend = kwargs.get("backend") if "backend" not in self.arg_names else None
        policy = getattr(self.base_kernel, "policy", None)
        place = tuning_keys.place_of(
            {**(self.nargs or {}), **kwargs},
            named_backend if isinstance(named_backend, str) else None,
            backend_choice.first_place if policy is None else policy.place_among,
        )
        configs = self.configs
        if not self._given_configs:  # the backend's proposals, if it has any
            configs = self._made_invariant(
                proposed(place, partial(self.fn.run, *args, grid=grid, warmup=True, **kwargs))
                or configs
            )
        mode = self.mode or tuning_records.mode()
        budget = self.budget if self.budget is not None else tuning_records.budget()
        wanted = self._record_identity(key, kwargs, configs, place)
        bits: InvariantTuning | None = None
        if self.invariant:
            from tilewright.runtime.tuning.invariant_launches import begin

            bits = begin(
                self.base_kernel,
                key[-1],
                {**(self.nargs or {}), **kwargs},
                configs,
                place,
                anchors=self.anchors,
                mode=mode,
                keeps=self._keeps_bits(),
                has_identity=wanted is not None,
                source_file=self._source_file(),
            )
        recorded = (
            None
            if mode in ("refresh", "memory", "model") or wanted is None
            else tuning_records.find(
                wanted.identity,
                own=mode != "deterministic" and self.cache_results is not False,
                source_file=self._source_file(),
            )
        )
        by_text = (
            {config_text(config): config for config in configs} if recorded is not None else {}
        )
        if (
            recorded is not None
            and recorded.best in by_text
            and (recorded.complete or budget is not None or mode != "on")
            and (bits is None or bits.fits(recorded))
        ):
            self._keep_bits(bits)
            best = by_text[recorded.best]
            self.configs_timings = {
                by_text[text]: list(times)
                for text, times in recorded.timings.items()
                if text in by_text
            }
            return best, (0.0, True, self.configs_timings)
        candidates = self._pruned(configs, kwargs)
        is_only_one = len(candidates) == 1 and self._given_configs and not self.measures_one
        if is_only_one and bits is None:
            log_choice(
                self.__name__,
                key[: len(self.keys)],
                candidates[0],
                f"the only one of {len(configs)} that pruning left",
            )
            return candidates[0], None
        self.failures = []
        trials = self._trials(candidates, args, grid, kwargs)
        if mode in ("off", "deterministic", "model"):
            estimated = self._estimated(trials, place, grid, kwargs)
            left = self._checked(trials, estimated, args, grid, kwargs)
            if bits is not None:
                left = self._admitted(bits, left, args, grid, kwargs)
                first = next(trial for trial in trials if trial in left)
                bits.settle(first.config)
                self._keep_bits(bits)
                left = [trial for trial in left if bits.may_be_chosen(trial.config)]
            best = left[0].config
            log_choice(
                self.__name__,
                key[: len(self.keys)],
                best,
                f"estimated, for the mode of tuning is {mode}",
            )
            return best, None
        deadline = None if budget is None else started + budget
        ordered = self._ordered(trials, place, grid, kwargs)
        checked = self._checked(trials, ordered, args, grid, kwargs)
        if bits is not None:
            checked = self._admitted(bits, checked, args, grid, kwargs)
            if is_only_one:
                bits.settle(checked[0].config)
                self._keep_bits(bits)
                return checked[0].config, None
        measurement = Measurement(self, checked, place, kwargs, deadline)
        measurement.run(args, grid)
        timings = measurement.timings
        if bits is not None:
            timings = bits.settle_measured(timings)
            self._keep_bits(bits)
        best = min(timings, key=lambda config: timings[config][0], default=configs[0])
        if not timings or math.isinf(timings[best][0]):
            why = self._failure_text() or "do_bench measured no finite time"
            raise AutotunerError(f"no configuration of {self.__name__} works: {why}") from (
                self.failures[-1][1] if self.failures else None
            )
        self.configs_timings = timings
        assert self.nargs is not None
        self.pre_hook({**self.nargs, **kwargs, **best.all_kwargs()}, reset_only=True)
        self.bench_time = time.perf_counter() - started
        self.record = None
        if wanted is not None:
            finite = {
                config_text(config): list(times)
                for config, times in timings.items()
                if math.isfinite(times[0])
            }
            self.record = Record(
                self.__name__,
                *wanted,
                config_text(best),
                finite,
                measurement.is_complete,
                signature=self.signature,
            )
            if mode != "memory" and self.cache_results is not False:
                tuning_records.keep(self.record)
        return best, (self.bench_time, False, timings)

    def _source_file(self) -> str | None:
        """Return the file that defines the innermost kernel."""
        code = getattr(getattr(self.base_kernel, "fn", None), "__code__", None)
        return None if code is None else code.co_filename

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
        if found is None:
            return None
        marks = [tuning_keys.bits_text(place)] if self.invariant else []
        marks += ["check=exact"] if self._is_checked() else []
        marks += [self.record_mark] if self.record_mark else []
        return found._replace(key=";".join((found.key, *marks)))

    # -- invariant tunings

    def _admitted(
        self,
        bits: InvariantTuning,
        trials: list[parallel_compile.Trial],
        args: tuple[Any, ...],
        grid: Any,
        kwargs: dict[str, Any],
    ) -> list[parallel_compile.Trial]:
        """Return the trials that compute the same bits for all batch sizes.

        Raises:
            AutotunerError: see :meth:`InvariantTuning.admit`.
        """
        from tilewright.runtime.tuning.invariant_launches import InvariantLaunch

        on_error = partial(self._failed, kwargs)
        launch = InvariantLaunch(self.fn, self.arg_names, args, grid, kwargs, on_error)
        probed = launch.probed(
            prepare=self._prepare_once,
            launch=self._launch_once,
            compiling={"executor": self.executor, "time_limit": self.time_limit},
            disqualifying=self._disqualifying(),
            batch_names=self.batch_names,
        )
        admitted = bits.admit(probed, trials, launch.trial)
        self._note_excluded(bits)
        return admitted

    def _made_invariant(self, configs: Sequence[Config]) -> list[Config]:
        return [made_invariant(config) for config in configs] if self.invariant else list(configs)

    def _keeps_bits(self) -> bool:
        """Return whether the choice of bits is kept on disk."""
        return self.cache_results is not False

    def _keep_bits(self, bits: InvariantTuning | None) -> None:
        """Note the chosen bits for later tunings, and the configurations with others."""
        if bits is None or bits.anchor is None:
            return
        self.anchors[bits.name] = bits.anchor
        self.signature = bits.signature
        self._note_excluded(bits)

    def _note_excluded(self, bits: InvariantTuning) -> None:
        known = [config for config, _ in self.failures]
        self.failures += [(one, error) for one, error in bits.failures if one not in known]

    def _pruned(self, configs: Sequence[Config], kwargs: dict[str, Any]) -> list[Config]:
        """Apply ``prune_configs_by`` to the configurations.

        Raises:
            AutotunerError: it leaves none.
        """
        assert self.nargs is not None
        return self._made_invariant(
            Pruning(self.early_config_prune, self.perf_model, self.configs_top_k).apply(
                configs, self.nargs, kwargs
            )
        )

    def _trials(
        self, configs: Sequence[Config], args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> list[parallel_compile.Trial]:
        """Pair the configurations with their kernels; record unlaunchable ones as failures."""
        for config in configs:
            self._refuse_conflicts(config, kwargs)
        described = any(_holds_descriptor(value) for value in (*args, *kwargs.values()))

        def warmup(config: Config) -> None:
            # the hook may set a descriptor's block shape
            if described and config.pre_hook is not None:
                config.pre_hook({**(self.nargs or {}), **config.all_kwargs(), **kwargs})
            self.fn.run(*args, grid=grid, warmup=True, **{**config.all_kwargs(), **kwargs})

        return parallel_compile.trials_of(configs, warmup, partial(self._failed, kwargs))

    def _failed(self, kwargs: Mapping[str, Any], config: Config, error: Exception) -> None:
        """Record a configuration that fails to compile as a failure.

        Raises:
            Exception: the error itself, where it is the kernel's or the caller's.
        """
        if self.user_defined_pre_hook or self.user_defined_post_hook:  # as around a run that fails
            everything = {**(self.nargs or {}), **config.all_kwargs(), **kwargs}
            self.pre_hook(everything)
            self.post_hook(everything, exception=error)
        if not isinstance(error, FAILURES):
            error.add_note(f"in the configuration [{config}] of autotune")
            raise error
        self.failures.append((config, error))

    def _ordered(
        self,
        found: list[parallel_compile.Trial],
        place: TuningTarget,
        grid: Any,
        kwargs: dict[str, Any],
    ) -> list[parallel_compile.Trial]:
        """Order the trials to measure, the most promising first."""
        return self._estimated(found, place, grid, kwargs)

    def _estimated(
        self,
        found: list[parallel_compile.Trial],
        place: TuningTarget,
        grid: Any,
        kwargs: dict[str, Any],
    ) -> list[parallel_compile.Trial]:
        """Prune the trials by the backend and order them by its estimate, cheapest first.

        Raises:
            AutotunerError: none are.
        """
        arguments = {**(self.nargs or {}), **kwargs}
        works = works_of(found, place, arguments, grid, partial(self._failed, kwargs))
        broken = [config for config, _ in self.failures]
        by_config = {trial.config: trial for trial in found if trial.config not in broken}
        if not by_config:
            raise AutotunerError(
                f"no configuration of {self.__name__} works: {self._failure_text()}"
            ) from (self.failures[-1][1] if self.failures else None)
        return [
            by_config[config]
            for config in backend_pruned(self.__name__, list(by_config), place, arguments, works)
        ]

    def _is_checked(self) -> bool:
        return (self.check or tuning_records.check_of_environment()) == "exact"

    def _checked(
        self,
        found: list[parallel_compile.Trial],
        ordered: list[parallel_compile.Trial],
        args: tuple[Any, ...],
        grid: Any,
        kwargs: dict[str, Any],
    ) -> list[parallel_compile.Trial]:
        """Exclude trials that compute something else than the first, if they are to be checked.

        Args:
            found: the trials in the order of the configurations.
            ordered: those that are left, in the order to measure.

        Raises:
            AutotunerError: see :meth:`ExactCheck.failures`.
        """
        if len(ordered) < 2 or not self._is_checked():
            return ordered
        from tilewright.runtime.tuning.exact_check import ExactCheck

        left = {trial.config for trial in ordered}
        check = ExactCheck(
            self.__name__,
            dict(zip(self.arg_names, args, strict=False)),
            kwargs,
            partial(self._launch_once, grid),
            disqualifying=self._disqualifying(),
            is_required=self.check is not None,
        )
        failures = check.failures([trial.config for trial in found if trial.config in left])
        self.failures += failures
        excluded = [config for config, _ in failures]
        return [trial for trial in ordered if trial.config not in excluded]

    def _launch_once(
        self, grid: Any, config: Config, positional: dict[str, Any], keywords: dict[str, Any]
    ) -> None:
        """Launch a configuration with other arguments, and leave what it stored."""
        current = self._prepare_once(config, positional, keywords)
        self.fn.run(*positional.values(), grid=grid, **current)

    def _prepare_once(
        self, config: Config, positional: dict[str, Any], keywords: dict[str, Any]
    ) -> dict[str, Any]:
        """Run the hooks before a launch with other arguments, and return its keywords."""
        current = {**config.all_kwargs(), **keywords}
        everything = {**positional, **current}
        if config.pre_hook is not None:
            config.pre_hook(everything)
        self.pre_hook(everything, reset_only=True)
        return current

    def _disqualifying(self) -> tuple[type[Exception], ...]:
        """Return the errors that disqualify a trial.

        Configurations that a backend proposed may not suit these arguments, so launch errors count
        as well.
        """
        return FAILURES if self._given_configs else (*FAILURES, LaunchError)

    def _refuse_conflicts(self, config: Config, kwargs: Mapping[str, Any]) -> None:
        conflicts = sorted(kwargs.keys() & config.kwargs.keys())
        if conflicts:
            raise TuningArgumentError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't "
                "re-define auto-tuned symbols: the configurations set them"
            )

    def _races(self) -> bool:
        """Return whether successive elimination applies; not with the caller's ``do_bench``."""
        return self._given_bench is None

    def _measured(
        self,
        args: tuple[Any, ...],
        grid: Any,
        config: Config,
        kwargs: dict[str, Any],
        clock: Callable[[Callable[[], None]], Any],
    ) -> list[float]:
        """Measure a configuration by ``clock``: [median, 20 %, 80 % quantile] in ms.

        The times are infinite where the configuration fails.
        """
        assert self.nargs is not None
        current = {**config.all_kwargs(), **kwargs}
        everything = {**self.nargs, **current}

        def kernel_call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            self.pre_hook(everything)
            try:
                self.fn.run(*args, grid=grid, **current)
            except Exception as error:
                try:
                    self.post_hook(everything, exception=error)
                finally:
                    raise
            self.post_hook(everything, exception=None)

        try:
            found = clock(kernel_call)
        except self._disqualifying() as error:
            self.failures.append((config, error))
            return list(INFINITE)
        return three_quantiles(found)

    @property
    def do_bench(self) -> Callable[..., Any]:
        """The benchmark function: ``do_bench(call, quantiles=...)`` -> ms at those quantiles."""
        if self._given_bench is not None:
            return self._given_bench
        from tilewright.runtime.devices.timing import do_bench

        chosen: dict[str, Any] = {
            name: value
            for name, value in (("warmup", self.num_warmups), ("rep", self.num_reps))
            if value is not None
        }
        return partial(do_bench, time_limit=self.time_limit, **chosen)

    def _failure_text(self) -> str:
        return "; ".join(
            f"[{config}] {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            for config, error in self.failures
        )

    def _tell(self, key: tuple[Any, ...], best: Config, seconds: float, *, cache_hit: bool) -> None:
        self.bench_time = seconds
        if not cache_hit:
            log_timings(self.__name__, self.configs_timings)
        why = (
            "recorded before"
            if cache_hit
            else f"the best of {len(self.configs_timings)}, measured in {seconds:.3g} s"
        )
        log_choice(self.__name__, key[: len(self.keys)], best, why)
        if flag("TILEWRIGHT_PRINT_AUTOTUNING"):
            how = "recorded before" if cache_hit else f"finished after {seconds:.2f}s"
            print(
                f"Autotuning of {self.__name__} with key {key[: len(self.keys)]} {how}; best "
                f"config selected: {best};"
            )
        if hooks.autotuning_listener is not None:
            hooks.autotuning_listener(
                fn=self,
                key=key,
                best_config=best,
                configs_timings=self.configs_timings,
                bench_time=seconds,
                cache_hit=cache_hit,
            )

    # -- arguments that a trial changes

    def _save_arguments(self, arguments: Mapping[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if arguments.get(name) is not None:
                set_to_zero(arguments[name])
        if not reset_only:
            self._restored = {
                name: clone(arguments[name])
                for name in self.restore_value
                if arguments.get(name) is not None
            }

    def _restore_arguments(
        self, arguments: Mapping[str, Any], exception: Exception | None = None
    ) -> None:
        for name, saved in self._restored.items():
            copy_into(arguments[name], saved)
        self._restored = {}


def _holds_descriptor(value: Any) -> bool:
    return isinstance(value, TensorDescriptor) or (
        isinstance(value, tuple) and any(map(_holds_descriptor, value))
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
    """Decorate a kernel: run the fastest of ``configs``, found by measurement.

    It is measured when the values of ``key`` or the arrays' types are new.

    A kernel that is measured runs many times. What it stores to has its values back after each
    configuration; while one is measured, each run goes on from what the last one left. Name
    arguments in ``restore_value`` whose values decide how long the kernel takes, and ones that have
    to begin as zeros, such as those it adds to, in ``reset_to_zero``: both are seen to around every
    run, which costs time that is measured with it.

    Args:
        configs: the configurations; where there are none, those the backend proposes.
        key: parameters whose values decide which configuration is best.
        prune_configs_by: ``early_config_prune(configs, named_args, **kwargs)`` -> configurations to
            keep; ``perf_model(**all arguments)`` -> estimate, of which the ``top_k`` lowest (a
            count, or a part up to 1.0) are kept.
        reset_to_zero, restore_value: arrays set to zero, or restored, around each measured run.
            None values are left alone.
        pre_hook, post_hook: replace those: ``pre_hook(arguments, reset_only=False)``,
            ``post_hook(arguments, exception=None)``.
        warmup, rep, use_cuda_graph: deprecated; see ``do_bench``.
        do_bench: ``do_bench(call, quantiles)`` -> milliseconds at the quantiles;
            :func:`tilewright.testing.do_bench` by default.
        cache_results: False keeps the result in this process alone; see ``tuning_records`` for the
            default.
        executor: where configurations are compiled; worker processes by default, or threads where
            there can be none.
        time_limit: seconds one configuration may take to compile, and again to be measured; None
            for no limit.
        budget: seconds after which the best configuration found so far is taken;
            ``TILEWRIGHT_AUTOTUNE_BUDGET`` where None.
        mode: what tuning does, as ``TILEWRIGHT_AUTOTUNE`` says where None: see ``tuning_records``.
            ``"model"`` measures nothing.
        check: ``"exact"`` launches every configuration in exact mode first, on copies of the
            arrays, and excludes with a warning those that compute something else than the first;
            ``TILEWRIGHT_AUTOTUNE_CHECK`` where None.
        invariant: whether launches compute the same bits with every configuration that may be
            chosen, for every batch size. Configurations are launched with the option ``invariant``,
            compared on random copies of the arrays, and excluded where their bits differ. Batch
            sizes are found in the kernel, or are the parameters that are named.
            ``TILEWRIGHT_AUTOTUNE_INVARIANT`` where None.

    Raises:
        TuningArgumentError: ``key``, ``reset_to_zero``, ``restore_value`` or ``invariant`` names
            no parameter; at launch: a keyword is set by the configurations too.
        ValueError: ``budget`` or ``mode`` is none.
        AutotunerError: at launch: no configuration works, or pruning left none; an array that the
            kernel reads and stores to cannot be copied; no configuration is invariant, or none has
            the bits of earlier launches; ``check`` has another verdict on the first
            configuration than on all others, or exact mode does not model the kernel.
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
