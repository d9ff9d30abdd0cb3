"""A launch whose configuration is tuned, as all parts of one tuning see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.compiler.config import Config
from tilewright.runtime.tuning.candidates import TuningTarget
from tilewright.runtime.tuning.trial_kernel import TrialKernel
from tilewright.runtime.tuning.tuning_keys import RecordKey


@dataclass(slots=True, kw_only=True)
class TunedLaunch:
    """A launch that is tuned.

    Attributes:
        kernel: whose.
        key: the tuning key.
        args, grid, keywords: the launch's.
        place: its backend, device and target.
        mode: what the tuning does; see ``tuning_records``.
        configs: the configurations before pruning.
        record_key: key of the result's record; None where no record is stored.
    """

    kernel: TrialKernel
    key: tuple[Any, ...]
    args: tuple[Any, ...]
    grid: Any
    keywords: dict[str, Any]
    place: TuningTarget
    mode: str
    configs: Sequence[Config]
    record_key: RecordKey | None = None

    @property
    def positional(self) -> dict[str, Any]:
        """The positional arguments by name."""
        return dict(zip(self.kernel.arg_names, self.args, strict=False))

    @property
    def named(self) -> Mapping[str, Any]:
        """All arguments by name."""
        return {**self.positional, **self.keywords}
