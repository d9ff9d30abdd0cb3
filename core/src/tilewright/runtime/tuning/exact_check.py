"""Exclusion of configurations that compute something else than the first one, in exact mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright import logs
from tilewright.errors import AutotunerError, LaunchError
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.report import ExactReport
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.exact.argument_copies import EmbeddedArguments
from tilewright.runtime.exact.differences import Difference, difference
from tilewright.runtime.exact.exact_mode import exact_mode, in_exact_mode
from tilewright.runtime.exact.stored_origins import LaunchReports
from tilewright.runtime.exact.surroundings import Surrounded
from tilewright.runtime.storage.files import warn_user

#: Differing arguments that a message lists.
_LISTED = 4


class ExactCheck:
    """The check of one tuning's configurations: each is launched on embedded copies."""

    def __init__(
        self,
        kernel: str,
        positional: Mapping[str, Any],
        keywords: Mapping[str, Any],
        launch: Callable[[Config, dict[str, Any], dict[str, Any]], None],
        *,
        disqualifying: tuple[type[Exception], ...],
        is_required: bool,
    ) -> None:
        """Begin.

        Args:
            kernel: its name, for messages.
            positional, keywords: the launch's arguments by name.
            launch: launches a configuration with other positional arguments and keywords.
            disqualifying: errors of configurations that cannot be launched.
            is_required: whether a kernel that exact mode does not model is an error.
        """
        self._kernel, self._positional, self._keywords = kernel, positional, keywords
        self._launch, self._disqualifying = launch, disqualifying
        self._is_required = is_required
        self._embedded = EmbeddedArguments(holds_payloads=in_exact_mode())

    def failures(self, configs: Sequence[Config]) -> list[tuple[Config, Exception]]:
        """Return the configurations that compute something else than the first, with errors.

        Raises:
            AutotunerError: all other configurations, of three or more, differ from the first; exact
                mode does not model the kernel, and the check is required.
        """
        first: tuple[Config, dict[str, Surrounded], ExactReport, LaunchReports] | None = None
        found: list[tuple[Config, str]] = []
        n_equal = 0
        for config in configs:
            try:
                arrays, report, origins = self._results(config)
            except (ExactModeError, LaunchError) as error:
                return self._unchecked(error)
            except self._disqualifying as failure:  # an exact kernel needs more shared memory
                warn_user(f"{self._name(config)} could not be checked in exact mode: {failure}")
                continue
            if first is None:
                first = config, arrays, report, origins
                continue
            both = first[2] | report
            digits = 3 if both.loses_digit else 4
            differences = [
                one
                for name, array in arrays.items()
                if (
                    one := difference(
                        name,
                        first[1][name],
                        array,
                        digits,
                        first[3].behind(first[1][name].array) | origins.behind(array.array),
                    )
                )
                is not None
            ]
            text = _text(first[0], differences)
            if not differences:
                n_equal += 1
            elif all(one.behind for one in differences):
                n_equal += 1
                behind = dict.fromkeys(each for one in differences for each in one.behind)
                operations = "; ".join(map(str, [*behind][:_LISTED]))
                warn_user(
                    f"{self._name(config)} is kept, and may compute something else: {text}, behind "
                    f"operations that exact mode does not interpret: {operations}"
                )
            else:
                found.append((config, f"it computes something else: {text}"))
        if len(found) > 1 and not n_equal:
            reasons = "".join(f"\n  [{config}] {reason}" for config, reason in found)
            assert first is not None
            raise AutotunerError(
                f"no configuration of {self._kernel} computes what the first, "
                f"[{first[0]}], does:{reasons}"
            )
        for config, reason in found:
            self._tell(f"{self._name(config)} is excluded: {reason}")
        return [(config, AutotunerError(reason)) for config, reason in found]

    def _results(self, config: Config) -> tuple[dict[str, Surrounded], ExactReport, LaunchReports]:
        """Launch a configuration on copies, and return their arrays afterwards."""
        copied, arrays = self._embedded.copies({**self._positional, **self._keywords})
        positional = {name: copied[name] for name in self._positional}
        keywords = {name: copied[name] for name in self._keywords}
        with exact_mode() as reports:
            reports.begin_with([array.array for array in arrays.values()])
            self._launch(config, positional, keywords)
        found = ExactReport()
        for report in reports:
            found |= report
        return arrays, found, reports

    def _unchecked(self, error: Exception) -> list[tuple[Config, Exception]]:
        """Refuse, or warn, that the configurations cannot be checked."""
        message = f"the configurations of {self._kernel} cannot be checked: {error}"
        if self._is_required:
            raise AutotunerError(message) from error
        self._tell(message)
        return []

    def _name(self, config: Config) -> str:
        return f"configuration [{config}] of {self._kernel}"

    def _tell(self, message: str) -> None:
        if logs.TUNING.on(logging.INFO):
            logs.TUNING.tell(message, logging.INFO)
        warn_user(message)


def _text(first: Config, differences: Sequence[Difference]) -> str:
    return "; ".join(
        f"{one.place} is {one.b}, and {one.a} with [{first}] ({one.counts})"
        for one in differences[:_LISTED]
    )
