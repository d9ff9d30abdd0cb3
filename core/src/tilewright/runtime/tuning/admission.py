"""The configurations that one tuning may choose, and the interface of what restricts them.

A tuning asks its admissions in turn: before it measures, which trials are left, and once it has
measured, which of them it may choose. Plain tuning has none, and chooses among all trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.storage.tuning_record import Record

#: Configuration -> [median, 20 % quantile, 80 % quantile] in ms.
Timings = dict[Config, list[float]]


class Admission:
    """A restriction of the configurations that one tuning may choose; this one has none.

    Attributes:
        mark: text that the key of the tuning's record has; empty where its choices are those of
            plain tuning.
        examines_one: whether a configuration that is the only one is examined as well.
    """

    mark = ""
    examines_one = False

    def take(self, record: Record) -> bool:
        """Return whether the result of an earlier tuning may be chosen, which then counts."""
        return True

    def admit(self, trials: Sequence[Trial], all_trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that may be chosen.

        Args:
            trials: those that are left, in the order to measure.
            all_trials: those of all configurations, in the order of the configurations.

        Raises:
            AutotunerError: none may be.
        """
        return list(trials)

    def settle(self, preferred: Config, trials: Sequence[Trial]) -> list[Trial]:
        """Decide without measuring, for an admitted configuration; return the trials left."""
        return list(trials)

    def settle_measured(self, timings: Timings) -> Timings:
        """Decide by the times; return those of what may be chosen, and infinite ones of others.

        Raises:
            AutotunerError: nothing that was measured may be chosen.
        """
        return timings


class Admissions:
    """All admissions of one tuning, in the order in which they are asked."""

    def __init__(self, members: Sequence[Admission]) -> None:
        self._members = tuple(members)

    @property
    def marks(self) -> list[str]:
        return [one.mark for one in self._members if one.mark]

    @property
    def examines_one(self) -> bool:
        return any(one.examines_one for one in self._members)

    def take(self, record: Record) -> bool:
        """Return whether the result of an earlier tuning may be chosen; see :class:`Admission`."""
        return all(one.take(record) for one in self._members)

    def admit(self, trials: Sequence[Trial], all_trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that every admission admits.

        Raises:
            AutotunerError: there are none.
        """
        left = list(trials)
        for one in self._members:
            left = one.admit(left, all_trials)
        return left

    def settle(self, preferred: Config, trials: Sequence[Trial]) -> list[Trial]:
        """Decide without measuring; return the trials that may still be chosen."""
        left = list(trials)
        for one in self._members:
            left = one.settle(preferred, left)
        return left

    def settle_measured(self, timings: Mapping[Config, list[float]]) -> Timings:
        """Decide by the times; return them, infinite for what may not be chosen.

        Raises:
            AutotunerError: nothing that was measured may be chosen.
        """
        found = dict(timings)
        for one in self._members:
            found = one.settle_measured(found)
        return found
