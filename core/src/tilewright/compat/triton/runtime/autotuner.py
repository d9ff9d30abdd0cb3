"""``triton.runtime.autotuner``: Tilewright's autotuner with Triton's defaults.

Results are kept on disk only where that is asked for.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.compat.triton import knobs
from tilewright.compat.triton.runtime.errors import OutOfResources, PTXASError
from tilewright.compat.triton.runtime.interpreter import InterpretedFunction
from tilewright.compat.triton.runtime.jit import JITFunction, KernelInterface
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.launch.heuristics import Heuristics, heuristics
from tilewright.runtime.tuning import autotune as own
from tilewright.runtime.tuning.candidates import TuningTarget
from tilewright.runtime.tuning.successive_elimination import QUANTILES


class _Runnable:
    """An object with ``run``, as Triton's autotuner takes it, where Tilewright's takes a kernel."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        if not warmup:
            return self.fn.run(*args, **({} if grid is None else {"grid": grid}), **kwargs)
        return None

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)


class Autotuner(own.Autotuner):
    """See :class:`tilewright.runtime.tuning.autotune.Autotuner`."""

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config] | None,
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
    ) -> None:
        unknown = [name for name in key if name not in arg_names]
        if unknown:
            warnings.warn(
                f"key of autotune names {', '.join(map(repr, unknown))}, which is no parameter of "
                "the kernel, and is left out",
                stacklevel=3,
            )
        super().__init__(
            fn if hasattr(fn, "__getitem__") else _Runnable(fn),
            arg_names,
            configs or [Config({})],
            [name for name in key if name in arg_names],
            reset_to_zero,
            restore_value,
            pre_hook,
            post_hook,
            prune_configs_by,
            warmup,
            rep,
            use_cuda_graph,
            do_bench,
            bool(cache_results) or knobs.autotuning.cache,
            time_limit=None,
        )

    def _keeps_bits(self) -> bool:
        """Return True: invariant kernels have the same bits in every process."""
        return True

    @functools.cached_property
    def base_fn(self) -> Callable[..., Any]:
        """The Python function of the innermost kernel.

        Raises:
            AttributeError: what is inside is made of no function.
        """
        found = self.fn
        while not inspect.isfunction(found):
            found = found.fn
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "base_fn"}

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)

    _own_run = run

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """Return the configurations that ``prune_configs_by`` leaves for the current launch.

        Raises:
            AutotunerError: it leaves none.
        """
        return self._pruned(self.configs, kwargs)

    def check_disk_cache(
        self, tuning_key: Any, configs: Sequence[Config], bench_fn: Callable[[], Any]
    ) -> bool:
        """Return whether the result of a tuning is in memory; else measure it by ``bench_fn``.

        Results on disk are found by the tuning itself.
        """
        if tuning_key in self.cache:
            return True
        bench_fn()
        return False

    @property
    def _do_bench(self) -> Callable[..., Any] | None:
        """Return the argument ``do_bench``."""
        return self._given_bench

    @_do_bench.setter
    def _do_bench(self, function: Callable[..., Any] | None) -> None:
        self._given_bench = function

    @property
    def restore_copies(self) -> dict[str, Any]:
        """Copies of the arguments in ``restore_value``, by name, while a configuration runs."""
        return self._restored

    @restore_copies.setter
    def restore_copies(self, copies: dict[str, Any]) -> None:
        self._restored = copies

    @property
    def do_bench(self) -> Callable[..., Any]:
        if self._given_bench is None and self.use_cuda_graph:
            from tilewright.compat.triton.timing import do_bench_cudagraph

            rep = self.num_reps if self.num_reps is not None else 100
            return lambda kernel_call, quantiles: do_bench_cudagraph(
                kernel_call, rep=rep, quantiles=quantiles
            )
        return super().do_bench

    @do_bench.setter
    def do_bench(self, function: Callable[..., Any]) -> None:
        self._given_bench = function

    def _is_compiled(self) -> bool:
        return isinstance(self.base_kernel, JITFunction) and not isinstance(
            self.base_kernel, InterpretedFunction
        )

    def _record_identity(
        self,
        key: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        configs: Sequence[Config],
        place: TuningTarget,
    ) -> Any:
        if not self._is_compiled() or any(config.pre_hook is not None for config in configs):
            return None
        return super()._record_identity(key, kwargs, configs, place)

    def _trials(
        self, configs: Sequence[Config], args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]
    ) -> list[Trial]:
        if self._is_compiled():
            return super()._trials(configs, args, grid, kwargs)
        for config in configs:
            self._refuse_conflicts(config, kwargs)
        return [Trial(config, []) for config in configs]  # nothing to compile ahead

    def _ordered(
        self, found: list[Trial], place: TuningTarget, grid: Any, kwargs: dict[str, Any]
    ) -> list[Trial]:
        """Return all of the trials, in the given order.

        Programs count on every one being tried, and on ``post_hook`` for those that do not fit.
        """
        return found

    def _races(self) -> bool:
        return super()._races() and not self.use_cuda_graph

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        """Return [median, 20 % quantile, 80 % quantile] in ms of a configuration for a launch.

        ``grid`` is among ``meta``; the times are infinite where it fails.

        Tuning asks this method where a subclass or a program has put another in its place.

        Raises:
            ValueError: the launch sets what the configuration sets.
        """
        grid = meta.pop("grid", None)
        meta.pop("warmup", None)
        self._refuse_conflicts(config, meta)
        return self._timed(
            args, grid, config, meta, lambda call: self.do_bench(call, quantiles=QUANTILES)
        )

    def _measured(
        self,
        args: tuple[Any, ...],
        grid: Any,
        config: Config,
        kwargs: dict[str, Any],
        clock: Callable[[Callable[[], None]], Any],
    ) -> list[float]:
        if getattr(self._bench, "__func__", None) is _BENCH:
            return self._timed(args, grid, config, kwargs, clock)
        return list(self._bench(*args, config=config, grid=grid, warmup=False, **kwargs))

    def _timed(
        self,
        args: tuple[Any, ...],
        grid: Any,
        config: Config,
        kwargs: dict[str, Any],
        clock: Callable[[Callable[[], None]], Any],
    ) -> list[float]:
        if not knobs.autotuning.print:
            return super()._measured(args, grid, config, kwargs, clock)
        print(f"Autotuning kernel {self.__name__} with config {config}")
        found = super()._measured(args, grid, config, kwargs, clock)
        if math.isinf(found[0]) and self.failures:
            print(f"Autotuning failed with {self.failures[-1][1]}")
        return found

    def _tell(self, key: tuple[Any, ...], best: Config, seconds: float, *, cache_hit: bool) -> None:
        super()._tell(key, best, seconds, cache_hit=cache_hit)
        if knobs.autotuning.print and not cache_hit:
            shown = key[: len(self.keys)]
            print(
                f"Triton autotuning for function {self.__name__},\nwith key as {shown},\nfinished "
                f"after {seconds:.2f}s,\nbest config selected: {best};"
            )
        if knobs.autotuning.listener is not None:
            knobs.autotuning.listener(
                fn=self.base_kernel,
                key=key,
                best_config=best,
                configs_timings=self.configs_timings,
                duration=None if cache_hit else seconds,
                cache_hit=cache_hit,
            )


_BENCH = Autotuner._bench


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Run the fastest of ``configs``, found by measuring; see :func:`tilewright.autotune`.

    Results are kept on disk only with ``cache_results``.
    """

    def decorate(fn: Any) -> Autotuner:
        others = (
            reset_to_zero,
            restore_value,
            pre_hook,
            post_hook,
            prune_configs_by,
            warmup,
            rep,
            use_cuda_graph,
            do_bench,
            cache_results,
        )
        return Autotuner(fn, fn.arg_names, configs, key, *others)

    return decorate


__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "autotune",
    "heuristics",
]
