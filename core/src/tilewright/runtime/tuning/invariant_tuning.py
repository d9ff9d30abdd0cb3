"""Choice of a kernel's bits, which all launches of an invariant autotuner then have.

The first tuning chooses among groups of configurations with equal bits: the fastest one's group. It
is known by that configuration, the *anchor*. Later tunings of other keys admit what computes the
same bits as the anchor there. Since the anchor's bits do not depend on the batch, launches with
other batch sizes, which may have been tuned to other configurations, have equal bits.

The anchor is kept among the tuning records, one for each kernel, device, target, space of
configurations and types of arrays. The first process that keeps one decides for all.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import logs
from tilewright.errors import AutotunerError
from tilewright.runtime import tuning_records
from tilewright.runtime.compiler.config import Config, config_text
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.storage.cache_keys import UnstableError, digest
from tilewright.runtime.storage.files import warn_user
from tilewright.runtime.storage.tuning_record import Record
from tilewright.runtime.tuning.bit_groups import BitGroups, ProbedLaunch
from tilewright.runtime.tuning.tuning_keys import RecordKey

#: A configuration of a group, and the signature of the group's bits.
Anchor = tuple[Config, str]


class InvariantTuning:
    """The bits that one tuning of an invariant autotuner may choose.

    Attributes:
        anchor: the configuration whose bits count, and their signature; None before the choice.
        name: of the anchor in this process.
        failures: configurations with other bits, each with the reason.
    """

    def __init__(
        self,
        kernel: str,
        configs: Sequence[Config],
        name: Any,
        identity: RecordKey | None,
        known: Anchor | None,
        *,
        keeps: bool,
        find: Callable[[str], Record | None] | None,
    ) -> None:
        """Begin with the anchor of this process, else with the recorded one.

        Args:
            kernel: its name, for messages.
            configs: all configurations.
            name: of the anchor in this process.
            identity: key of the anchor's record; None where it has no text.
            known: the anchor of this process.
            keeps: whether the anchor is kept on disk.
            find: looks a record up; None where none is looked at.
        """
        self._kernel, self._configs, self.name = kernel, configs, name
        self._identity, self._keeps = identity, keeps
        self.anchor = known
        self.failures: list[tuple[Config, Exception]] = []
        self._groups = BitGroups()
        if known is None and identity is not None and find is not None:
            record = find(identity.identity)
            self.anchor = None if record is None else self._anchor_of(record)

    def fits(self, record: Record) -> bool:
        """Return whether a tuning's record has the bits that were chosen."""
        return self.anchor is not None and record.signature == self.anchor[1]

    @property
    def signature(self) -> str:
        """The signature of the chosen bits."""
        assert self.anchor is not None
        return self.anchor[1]

    def admit(
        self,
        probed: ProbedLaunch,
        trials: Sequence[Trial],
        trial_of: Callable[[Config], Trial | None],
    ) -> list[Trial]:
        """Return the trials that may be chosen: those with the anchor's bits, if there is one.

        Args:
            trial_of: makes the trial of a configuration.

        Raises:
            AutotunerError: none may be.
        """
        among = list(trials)
        if self.anchor is not None and self.anchor[0] not in {one.config for one in trials}:
            anchor = trial_of(self.anchor[0])
            among += [] if anchor is None else [anchor]
        self._groups = probed.groups(among)
        offered = {trial.config for trial in trials}
        for config, error in self._groups.failures:
            if config in offered:
                self._exclude(config, error, warns=True)
        if not self._groups.signatures:
            raise AutotunerError(
                f"no configuration of {self._kernel} is invariant:{self._reasons()}"
            )
        if self.anchor is not None:
            self._check_anchor(offered)
        return [trial for trial in trials if self.may_be_chosen(trial.config)]

    def settle(self, preferred: Config) -> None:
        """Choose the bits of a configuration, unless they are chosen.

        Where another process has chosen meanwhile its choice counts.
        """
        if self.anchor is None:
            signature = digest(config_text_or_repr(preferred), self._groups.signatures[preferred])
            self.anchor = preferred, signature[:16]
            if self._identity is not None and self._keeps:
                record = Record(
                    self._kernel,
                    *self._identity,
                    best=config_text(preferred),
                    signature=self.anchor[1],
                )
                kept = self._anchor_of(tuning_records.keep_first(record))
                self.anchor = kept or self.anchor
        others = [config for config in self._groups.signatures if not self.may_be_chosen(config)]
        for config in others:
            self._exclude_other_bits(config)

    def settle_measured(self, timings: dict[Config, list[float]]) -> dict[Config, list[float]]:
        """Choose the bits of the fastest configuration, and return the times of its group.

        Times of other configurations are infinite.

        Raises:
            AutotunerError: another process has chosen bits that no measured configuration has.
        """
        finite = [config for config, times in timings.items() if math.isfinite(times[0])]
        if finite:
            self.settle(min(finite, key=lambda config: timings[config][0]))
            self._check_anchor(set(finite))
        return {
            config: times if self.may_be_chosen(config) else [math.inf] * 3
            for config, times in timings.items()
        }

    # ---- groups

    def may_be_chosen(self, config: Config) -> bool:
        """Return whether a configuration computes the chosen bits, or any before the choice."""
        signatures = self._groups.signatures
        if self.anchor is None:
            return config in signatures
        wanted = signatures.get(self.anchor[0])
        return wanted is not None and signatures.get(config) == wanted

    def _check_anchor(self, offered: set[Config]) -> None:
        """Exclude configurations with other bits than the anchor.

        Raises:
            AutotunerError: the anchor does not work, or all others have other bits.
        """
        assert self.anchor is not None
        anchor = self.anchor[0]
        for config in self._groups.signatures:
            if config in offered and not self.may_be_chosen(config):
                self._exclude_other_bits(config)
        if not any(self.may_be_chosen(config) for config in offered):
            raise AutotunerError(
                f"no configuration of {self._kernel} that fits this launch computes the bits that "
                f"launches before it chose, those of [{anchor}]:{self._reasons()}\n  help: keep a "
                f"configuration with these bits when pruning for this key, or remove "
                f"{self._kernel}'s tuning records, so that the bits are chosen anew"
            )

    def _exclude_other_bits(self, config: Config) -> None:
        assert self.anchor is not None
        reason = f"it computes other bits than [{self.anchor[0]}]"
        self._exclude(config, AutotunerError(reason), warns=False)

    def _exclude(self, config: Config, error: Exception, *, warns: bool) -> None:
        if any(config == other for other, _ in self.failures):
            return
        self.failures.append((config, error))
        message = f"configuration [{config}] of {self._kernel} is excluded: {_reason(error)}"
        if logs.TUNING.on(logging.INFO):
            logs.TUNING.tell(message, logging.INFO)
        if warns:
            warn_user(message)

    def _reasons(self) -> str:
        failures = self.failures or self._groups.failures
        return "".join(f"\n  [{config}] {_reason(error)}" for config, error in failures)

    def _anchor_of(self, record: Record) -> Anchor | None:
        """Return the anchor of a record; None where the configurations lack it."""
        for config in self._configs:
            try:
                if config_text(config) == record.best and record.signature:
                    return config, record.signature
            except UnstableError:
                continue
        return None


def _reason(error: Exception) -> str:
    """Return an error's message; without its heading, where the message stands in another one."""
    return str(error.args[0]) if isinstance(error, AutotunerError) else str(error)


def config_text_or_repr(config: Config) -> str:
    """Return a configuration's stable text, else its text in this process."""
    try:
        return config_text(config)
    except UnstableError:
        return repr(config)
