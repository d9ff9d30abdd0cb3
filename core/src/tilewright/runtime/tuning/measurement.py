"""Measurement of configurations by successive elimination or by ``do_bench``."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.environment import flag
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.devices.timing import timer_of
from tilewright.runtime.tuning.candidates import TuningTarget
from tilewright.runtime.tuning.progress import Progress
from tilewright.runtime.tuning.restored_arrays import KeptValues
from tilewright.runtime.tuning.successive_elimination import QUANTILES, race
from tilewright.runtime.tuning.trial_kernel import TrialKernel
from tilewright.runtime.tuning.trial_times import INFINITE


class Measurement:
    """Measurement of one tuning's trials.

    Attributes:
        timings: configuration -> [median, 20 % quantile, 80 % quantile] in ms, infinite for one
            that failed; in the order of the trials once :meth:`run` ends.
        is_complete: whether every trial was measured before the deadline.
    """

    def __init__(
        self,
        tuner: TrialKernel,
        found: Sequence[Trial],
        place: TuningTarget,
        keywords: dict[str, Any],
        deadline: float | None,
    ) -> None:
        self._tuner, self._found, self._keywords, self._deadline = tuner, found, keywords, deadline
        self.timings: dict[Config, list[float]] = {
            config: list(INFINITE) for config, _ in tuner.failures
        }
        self._best: Config | None = None
        self._tried, self._began = 0, 0.0
        self._progress = Progress(tuner.__name__, len(found))
        by_hooks = not (tuner.user_defined_pre_hook or tuner.user_defined_post_hook)
        given_back = {*tuner.reset_to_zero, *tuner.restore_value} if by_hooks else ()
        self._kept = KeptValues(tuner.__name__, {**(tuner.nargs or {}), **keywords}, given_back)
        self._timer = timer_of(place.backend, place.device) if tuner._races() else None
        self._on_device = place.device.kind != "cpu"

    @property
    def is_complete(self) -> bool:
        return self._tried == len(self._found)

    def run(self, args: tuple[Any, ...], grid: Any) -> None:
        """Compile and measure all trials, or until the deadline has passed and one works."""
        tuner, by_config = self._tuner, {trial.config: trial for trial in self._found}
        if self._timer is not None:
            self._timer.flush_cache()  # allocates the flush buffer, which belongs to no trial
        ready = parallel_compile.compile_trials(
            self._found,
            executor=tuner.executor,
            time_limit=tuner.time_limit,
            deadline=self._deadline,
            beside=self._on_device,  # on a CPU kernels would share it with the compiler
            on_error=self._failed,
        )
        try:
            with contextlib.closing(ready):
                for config in ready:
                    self._began = time.perf_counter()
                    with self._kept.restored(by_config[config]):
                        self._add(
                            config, tuner._measured(args, grid, config, self._keywords, self._clock)
                        )
                    if (
                        self._deadline is not None
                        and self._best is not None
                        and time.perf_counter() > self._deadline
                    ):
                        break
        except KeyboardInterrupt as error:
            tried = f"after {self._tried} of {len(self._found)} configurations"
            error.add_note(
                f"while {tuner.__name__} was tuned, {tried}; the best so far: "
                f"{self._best_text() or 'none'}"
            )
            raise
        finally:
            self._progress.end()
        order = [*(trial.config for trial in self._found), *self.timings]
        self.timings = {config: self.timings[config] for config in order if config in self.timings}

    def _add(self, config: Config, times: list[float]) -> None:
        self.timings[config] = times
        self._tried += 1
        if math.isfinite(times[0]) and (
            self._best is None or times[0] < self.timings[self._best][0]
        ):
            self._best = config
        self._progress.step(self._best_text())
        if flag("TILEWRIGHT_PRINT_AUTOTUNING"):
            print(
                f"Autotuning kernel {self._tuner.__name__} with config {config}: {times[0]:.4f} ms"
            )

    def _failed(self, config: Config, error: Exception) -> None:
        self._tuner._failed(self._keywords, config, error)
        self.timings[config] = list(INFINITE)
        self._tried += 1
        self._progress.step(self._best_text(), failed=True)

    def _best_text(self) -> str:
        return "" if self._best is None else f"{self.timings[self._best][0]:.4g} ms [{self._best}]"

    def _clock(self, call: Callable[[], None]) -> Any:
        """Return the quantiles of a call's time in ms."""
        tuner, best, deadline = self._tuner, self._best, self._deadline
        if self._timer is None:
            return tuner.do_bench(call, quantiles=QUANTILES)
        chosen = {
            name: value
            for name, value in (("warmup", tuner.num_warmups), ("rep", tuner.num_reps))
            if value is not None
        }
        ends = [] if tuner.time_limit is None else [time.perf_counter() + tuner.time_limit]
        ends += [] if deadline is None or best is None else [deadline]
        return race(
            self._timer,
            call,
            None if best is None else self.timings[best],
            deadline=min(ends, default=None),
            runs_ahead=self._on_device,
            began=self._began,
            after=self._kept.seconds * 1e3,
            **chosen,
        )
