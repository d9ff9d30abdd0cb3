"""Admission of the configurations that compute the same bits, for all batch sizes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial

from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning.admission import Admission, Timings
from tilewright.runtime.tuning.invariant_launches import InvariantLaunch, begin
from tilewright.runtime.tuning.invariant_tuning import InvariantTuning
from tilewright.runtime.tuning.tuned_launch import TunedLaunch
from tilewright.runtime.tuning.tuning_keys import bits_text


class InvariantAdmission(Admission):
    """The admission of ``invariant=True``.

    The autotuner keeps the bits that are chosen for its later tunings.
    """

    examines_one = True

    def __init__(self, launch: TunedLaunch) -> None:
        self._launch = launch
        self.mark = bits_text(launch.place)

    @functools.cached_property
    def _bits(self) -> InvariantTuning:
        """The choice of bits, which an earlier tuning may have made."""
        launch, kernel = self._launch, self._launch.kernel
        return begin(
            kernel.base_kernel,
            launch.key[-1],
            launch.named,
            launch.configs,
            launch.place,
            anchors=kernel.anchors,
            mode=launch.mode,
            keeps=kernel._keeps_bits(),
            has_identity=launch.record_key is not None,
            source_file=kernel._source_file(),
        )

    def take(self, record: Record) -> bool:
        fits = self._bits.fits(record)
        if fits:
            self._keep()
        return fits

    def admit(self, trials: Sequence[Trial], all_trials: Sequence[Trial]) -> list[Trial]:
        """Exclude the trials whose bits differ from those chosen, or depend on the batch size.

        Raises:
            AutotunerError: see :meth:`InvariantTuning.admit`.
        """
        launch, kernel = self._launch, self._launch.kernel
        on_error = partial(kernel._failed, launch.keywords)
        compared = InvariantLaunch(
            kernel.fn, kernel.arg_names, launch.args, launch.grid, launch.keywords, on_error
        )
        probed = compared.probed(
            prepare=kernel._prepare_once,
            launch=kernel._launch_once,
            compiling={"executor": kernel.executor, "time_limit": kernel.time_limit},
            disqualifying=kernel._disqualifying(),
            batch_names=kernel.batch_names,
        )
        admitted = self._bits.admit(probed, trials, compared.trial)
        self._add_failures()
        return admitted

    def settle(self, preferred: Config, trials: Sequence[Trial]) -> list[Trial]:
        self._bits.settle(preferred)
        self._keep()
        return [trial for trial in trials if self._bits.may_be_chosen(trial.config)]

    def settle_measured(self, timings: Timings) -> Timings:
        found = self._bits.settle_measured(timings)
        self._keep()
        return found

    def _keep(self) -> None:
        """Keep the chosen bits for later tunings, and add the configurations with others."""
        bits, kernel = self._bits, self._launch.kernel
        if bits.anchor is None:
            return
        kernel.anchors[bits.name] = bits.anchor
        kernel.signature = bits.signature
        self._add_failures()

    def _add_failures(self) -> None:
        kernel = self._launch.kernel
        known = [config for config, _ in kernel.failures]
        kernel.failures += [(one, error) for one, error in self._bits.failures if one not in known]
