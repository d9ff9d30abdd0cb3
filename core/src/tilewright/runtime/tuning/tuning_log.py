"""Messages of the logger ``tilewright.tuning``: measurements, and the choice with its reason.

``TILEWRIGHT_PRINT_AUTOTUNING=1`` prints the choice as well.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright import logs
from tilewright.environment import flag
from tilewright.runtime.compiler.config import Config


def log_timings(kernel: str, timings: Mapping[Config, Sequence[float]]) -> None:
    """Log the median time of each configuration, in ms."""
    if logs.TUNING.on():
        for config, times in timings.items():
            logs.TUNING.tell(
                f"{kernel}: {times[0]:.4g} ms [{config}]"
                if math.isfinite(times[0])
                else f"{kernel}: failed [{config}]"
            )


def log_choice(kernel: str, values: Sequence[Any], best: Config, why: str) -> None:
    """Log the configuration that launches with these values of the key's arguments run with."""
    if logs.TUNING.on(logging.INFO):
        logs.TUNING.tell(f"{kernel} with key {tuple(values)}: [{best}], {why}", logging.INFO)


def log_tuning(
    kernel: str,
    values: Sequence[Any],
    best: Config,
    timings: Mapping[Config, Sequence[float]],
    seconds: float,
    *,
    recorded: bool,
) -> None:
    """Log the times and the choice of a tuning, which an earlier tuning may have recorded."""
    if not recorded:
        log_timings(kernel, timings)
    measured = f"the best of {len(timings)}, measured in {seconds:.3g} s"
    log_choice(kernel, values, best, "recorded before" if recorded else measured)
    if flag("TILEWRIGHT_PRINT_AUTOTUNING"):
        how = "recorded before" if recorded else f"finished after {seconds:.2f}s"
        print(
            f"Autotuning of {kernel} with key {tuple(values)} {how}; best config selected: {best};"
        )
