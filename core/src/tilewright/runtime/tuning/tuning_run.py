"""One tuning of an autotuner's kernel: from the records, by estimates, or by measurement."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.errors import AutotunerError
from tilewright.runtime import tuning_records
from tilewright.runtime.compiler.config import Config, config_text
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning import tuning_keys
from tilewright.runtime.tuning.admission import Admission, Admissions, Timings
from tilewright.runtime.tuning.candidates import proposed
from tilewright.runtime.tuning.measurement import Measurement
from tilewright.runtime.tuning.tuned_launch import TunedLaunch
from tilewright.runtime.tuning.tuning_log import log_choice

if TYPE_CHECKING:
    from tilewright.runtime.tuning.autotune import Autotuner


class TuningReport(NamedTuple):
    """The report of a tuning that found times.

    Attributes:
        seconds: the time that it took.
        is_recorded: whether an earlier tuning had recorded them.
    """

    seconds: float
    is_recorded: bool
    timings: Timings


class TuningRun:
    """One tuning."""

    def __init__(
        self,
        tuner: Autotuner,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        grid: Any,
        keywords: dict[str, Any],
    ) -> None:
        self._started = time.perf_counter()
        named = {**(tuner.nargs or {}), **keywords}
        named_backend = keywords.get("backend") if "backend" not in tuner.arg_names else None
        policy = getattr(tuner.base_kernel, "policy", None)
        place = tuning_keys.place_of(
            named,
            named_backend if isinstance(named_backend, str) else None,
            backend_choice.first_place if policy is None else policy.place_among,
        )
        configs = tuner.configs
        if not tuner._given_configs:  # the backend's proposals, if it has any
            warm_up = partial(tuner.fn.run, *args, grid=grid, warmup=True, **keywords)
            configs = tuner._made_invariant(proposed(place, warm_up) or configs)
        self._tuner, self._mode = tuner, tuner.mode or tuning_records.mode()
        self._budget = tuner.budget if tuner.budget is not None else tuning_records.budget()
        self._launch = TunedLaunch(
            kernel=tuner,
            key=key,
            args=args,
            grid=grid,
            keywords=keywords,
            place=place,
            mode=self._mode,
            configs=configs,
        )
        self._admissions = Admissions(_admissions(tuner, self._launch))
        found = tuner._record_identity(key, keywords, configs, place)
        if found is not None:
            text = ";".join((found.key, *self._admissions.marks))
            self._launch.record_key = found._replace(key=text)

    def run(self) -> tuple[Config, TuningReport | None]:
        """Return the best configuration, and the report if times were found.

        Raises:
            AutotunerError: no configuration works, or none may be chosen.
        """
        tuner, launch = self._tuner, self._launch
        recorded = self._recorded()
        if recorded is not None:
            return recorded
        candidates = tuner._pruned(launch.configs, launch.keywords)
        is_only_one = len(candidates) == 1 and tuner._given_configs and not tuner.measures_one
        if is_only_one and not self._admissions.examines_one:
            why = f"the only one of {len(launch.configs)} that pruning left"
            return self._log(candidates[0], why), None
        tuner.failures = []
        trials = tuner._trials(candidates, launch.args, launch.grid, launch.keywords)
        if self._mode in ("off", "deterministic", "model"):
            return self._estimate(trials), None
        deadline = None if self._budget is None else self._started + self._budget
        ordered = tuner._ordered(trials, launch.place, launch.grid, launch.keywords)
        admitted = self._admissions.admit(ordered, trials)
        if is_only_one:
            return self._admissions.settle(admitted[0].config, admitted)[0].config, None
        return self._measure(admitted, deadline)

    def _recorded(self) -> tuple[Config, TuningReport] | None:
        """Return the recorded result of an earlier tuning, if one may be chosen."""
        tuner, launch, mode = self._tuner, self._launch, self._mode
        if mode in ("refresh", "memory", "model") or launch.record_key is None:
            return None
        recorded = tuning_records.find(
            launch.record_key.identity,
            own=mode != "deterministic" and tuner.cache_results is not False,
            source_file=tuner._source_file(),
        )
        if recorded is None:
            return None
        by_text = {config_text(config): config for config in launch.configs}
        if (
            recorded.best not in by_text
            or not (recorded.complete or self._budget is not None or mode != "on")
            or not self._admissions.take(recorded)
        ):
            return None
        timings = {
            by_text[text]: list(times)
            for text, times in recorded.timings.items()
            if text in by_text
        }
        tuner.configs_timings = timings
        return by_text[recorded.best], TuningReport(0.0, True, timings)

    def _estimate(self, trials: list[Trial]) -> Config:
        """Return the configuration that the backend estimates to be the fastest."""
        launch = self._launch
        estimated = self._tuner._estimated(trials, launch.place, launch.grid, launch.keywords)
        admitted = self._admissions.admit(estimated, trials)
        first = next(trial for trial in trials if trial in admitted)
        best = self._admissions.settle(first.config, admitted)[0].config
        return self._log(best, f"estimated, for the mode of tuning is {self._mode}")

    def _measure(
        self, admitted: list[Trial], deadline: float | None
    ) -> tuple[Config, TuningReport]:
        """Measure the trials, keep the record, and return the fastest configuration."""
        tuner, launch = self._tuner, self._launch
        measurement = Measurement(tuner, admitted, launch.place, launch.keywords, deadline)
        measurement.run(launch.args, launch.grid)
        timings = self._admissions.settle_measured(measurement.timings)
        best = min(timings, key=lambda config: timings[config][0], default=launch.configs[0])
        if not timings or math.isinf(timings[best][0]):
            why = tuner._failure_text() or "do_bench measured no finite time"
            raise AutotunerError(f"no configuration of {tuner.__name__} works: {why}") from (
                tuner.failures[-1][1] if tuner.failures else None
            )
        tuner.configs_timings = timings
        tuner.pre_hook({**launch.named, **best.all_kwargs()}, reset_only=True)
        tuner.bench_time = time.perf_counter() - self._started
        self._keep(best, timings, measurement.is_complete)
        return best, TuningReport(tuner.bench_time, False, timings)

    def _keep(self, best: Config, timings: Timings, is_complete: bool) -> None:
        """Make the record of the result, and store it where results are stored."""
        tuner, launch = self._tuner, self._launch
        tuner.record = None
        if launch.record_key is None:
            return
        finite = {
            config_text(config): list(times)
            for config, times in timings.items()
            if math.isfinite(times[0])
        }
        tuner.record = Record(
            tuner.__name__,
            *launch.record_key,
            config_text(best),
            finite,
            is_complete,
            signature=tuner.signature,
        )
        if self._mode != "memory" and tuner.cache_results is not False:
            tuning_records.keep(tuner.record)

    def _log(self, best: Config, why: str) -> Config:
        log_choice(self._tuner.__name__, self._launch.key[: len(self._tuner.keys)], best, why)
        return best


def _admissions(tuner: Autotuner, launch: TunedLaunch) -> list[Admission]:
    """Return the admissions that the autotuner's settings ask for."""
    found: list[Admission] = []
    if (tuner.check or tuning_records.check_of_environment()) == "exact":
        from tilewright.runtime.tuning.exact_admission import ExactAdmission

        found.append(ExactAdmission(launch, is_required=tuner.check is not None))
    if tuner.invariant:
        from tilewright.runtime.tuning.invariant_admission import InvariantAdmission

        found.append(InvariantAdmission(launch))
    return found
