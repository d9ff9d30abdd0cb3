"""A kernel with configurations, each of which a tuning compiles, launches and measures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

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
from tilewright.runtime.arguments.array_copies import clone, copy_into, set_to_zero
from tilewright.runtime.arguments.array_protocols import is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.config import Config, check_configs, made_invariant
from tilewright.runtime.launch.kernel_interface import KernelInterface
from tilewright.runtime.tuning.candidates import (
    Pruning,
    TuningTarget,
    backend_pruned,
    works_of,
)
from tilewright.runtime.tuning.trial_times import INFINITE, three_quantiles

if TYPE_CHECKING:
    from tilewright.runtime.tuning.invariant_tuning import Anchor

#: Errors that disqualify a configuration. Any other exception is an error of the kernel or the
#: caller, and is raised.
FAILURES = (OutOfResources, CompileTimeAssertionFailure, LoweringError, TimeoutError)


class TrialKernel(KernelInterface):
    """A kernel with configurations, and the hooks around its trials.

    Attributes:
        fn, base_kernel: the wrapped object, and the innermost kernel.
        configs, arg_names: as given.
        failures: configurations that failed in the last tuning, each with its error.
        user_defined_pre_hook, user_defined_post_hook: whether ``pre_hook`` or ``post_hook`` was
            given.
        nargs: the positional arguments by name, while this thread tunes it or launches it through
            Python; else None.
        invariant: whether all configurations that are launched compute the same bits, for all batch
            sizes; batch_names: names of the batch sizes, where they are given.
        signature: text that is equal for equal bits, where ``invariant`` holds.
        anchors: the configurations whose bits count, by name; see
            :mod:`~tilewright.runtime.tuning.invariant_tuning`.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config] | None,
        *,
        reset_to_zero: Sequence[str],
        restore_value: Sequence[str],
        pre_hook: Callable[..., Any] | None,
        post_hook: Callable[..., Any] | None,
        prune_configs_by: Mapping[str, Any] | None,
        warmup: float | None,
        rep: float | None,
        do_bench: Callable[..., Any] | None,
        executor: concurrent.futures.Executor | None,
        time_limit: float | None,
        cache_results: bool | None,
        invariant: bool | Sequence[str],
    ) -> None:
        """Take what describes a trial; see :func:`~tilewright.runtime.tuning.autotune.autotune`."""
        self.fn = fn
        self.base_kernel = getattr(fn, "base_kernel", fn)
        self.arg_names = list(arg_names)
        self._given_configs = bool(configs)
        self.invariant = invariant is not False
        self.batch_names = None if isinstance(invariant, bool) else tuple(invariant)
        self.signature = ""
        self.anchors: dict[Any, Anchor] = {}
        self.cache_results = cache_results
        self.configs = self._made_invariant(
            check_configs(configs, "configs of autotune") if configs else [Config({})]
        )
        self.reset_to_zero, self.restore_value = list(reset_to_zero), list(restore_value)
        self.user_defined_pre_hook = pre_hook is not None
        self.user_defined_post_hook = post_hook is not None
        self.pre_hook: Callable[..., Any] = pre_hook or self._save_arguments
        self.post_hook: Callable[..., Any] = post_hook or self._restore_arguments
        self._restored: dict[str, Any] = {}
        self.early_config_prune, self.perf_model, self.configs_top_k = Pruning.of(prune_configs_by)
        self.num_warmups, self.num_reps = warmup, rep
        self._given_bench = do_bench
        self.executor, self.time_limit = executor, time_limit
        self.failures: list[tuple[Config, Exception]] = []
        self.__name__: str = getattr(fn, "__name__", "kernel")
        self._of_thread = threading.local()

    @property
    def nargs(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = getattr(self._of_thread, "nargs", None)
        return found

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        self._of_thread.nargs = value

    @contextlib.contextmanager
    def _arguments(self, args: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """Set ``nargs`` to the positional arguments of a launch for a ``with`` block."""
        before = self.nargs
        self.nargs = named = dict(zip(self.arg_names, args, strict=False))
        try:
            yield named
        finally:
            self.nargs = before

    def _made_invariant(self, configs: Sequence[Config]) -> list[Config]:
        return [made_invariant(config) for config in configs] if self.invariant else list(configs)

    def make_invariant(self) -> None:
        """Launch configurations that compute the same bits from now on."""
        self.invariant = True
        self.configs = self._made_invariant(self.configs)

    def _keeps_bits(self) -> bool:
        """Return whether the choice of bits is kept on disk."""
        return self.cache_results is not False

    def _source_file(self) -> str | None:
        """Return the file that defines the innermost kernel."""
        code = getattr(getattr(self.base_kernel, "fn", None), "__code__", None)
        return None if code is None else code.co_filename

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
                with_help(
                    f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you "
                    "don't re-define auto-tuned symbols: the configurations set them",
                    "leave them out, or launch the kernel without its tuner, kernel.fn",
                )
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

    # -- arguments that a trial changes

    @contextlib.contextmanager
    def _hooked_arrays_kept(self, named: Mapping[str, Any]) -> Iterator[None]:
        """Restore the arrays that hooks before a launch may change, after a ``with`` block."""
        names = named if self.user_defined_pre_hook else self.reset_to_zero
        arrays = [named[name] for name in names if is_array(named.get(name))]
        saved = [clone(array) for array in arrays]
        try:
            yield
        finally:
            for array, values in zip(arrays, saved, strict=True):
                copy_into(array, values)

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


def check_parameters(parameters: Sequence[str], **lists: Sequence[str]) -> None:
    """Check that the named lists have names of parameters alone.

    Raises:
        TuningArgumentError: one has another name.
    """
    for label, names in lists.items():
        unknown = [name for name in names if name not in parameters]
        if unknown:
            message = (
                f"{label} of autotune names {', '.join(map(repr, unknown))}, which is no "
                f"parameter of the kernel ({', '.join(parameters)})"
            )
            raise TuningArgumentError(
                with_help(message, similar(unknown[0], parameters, shortened=True))
            )


def _holds_descriptor(value: Any) -> bool:
    return isinstance(value, TensorDescriptor) or (
        isinstance(value, tuple) and any(map(_holds_descriptor, value))
    )
