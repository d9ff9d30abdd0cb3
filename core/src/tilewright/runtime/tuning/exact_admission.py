"""Admission of the configurations that compute what the first one does, in exact mode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.tuning.admission import Admission
from tilewright.runtime.tuning.tuned_launch import TunedLaunch


class ExactAdmission(Admission):
    """The admission of ``check="exact"``."""

    mark = "check=exact"

    def __init__(self, launch: TunedLaunch, *, is_required: bool) -> None:
        self._launch, self._is_required = launch, is_required

    def admit(self, trials: Sequence[Trial], all_trials: Sequence[Trial]) -> list[Trial]:
        """Exclude the trials that compute something else than the first.

        Raises:
            AutotunerError: see :meth:`ExactCheck.failures`.
        """
        if len(trials) < 2:
            return list(trials)
        from tilewright.runtime.tuning.exact_check import ExactCheck

        launch, kernel = self._launch, self._launch.kernel
        left = {trial.config for trial in trials}
        check = ExactCheck(
            kernel.__name__,
            launch.positional,
            launch.keywords,
            partial(kernel._launch_once, launch.grid),
            disqualifying=kernel._disqualifying(),
            is_required=self._is_required,
        )
        failures = check.failures([trial.config for trial in all_trials if trial.config in left])
        kernel.failures += failures
        excluded = [config for config, _ in failures]
        return [trial for trial in trials if trial.config not in excluded]
