"""Times of one configuration: the median and the 20 % and 80 % quantiles, in ms."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

#: Times of a configuration that failed.
INFINITE = (math.inf, math.inf, math.inf)


def three_quantiles(found: Any) -> list[float]:
    """Convert a ``do_bench`` result to three quantiles in ms; NaN becomes infinite.

    Raises:
        TypeError: it is neither a number nor three of them.
    """
    times = list(found) if isinstance(found, list | tuple) else [found] * 3
    if len(times) != 3 or not all(isinstance(time_, SupportsFloat) for time_ in times):
        raise TypeError(
            "do_bench must return a number of milliseconds, or one for each of 3 quantiles, "
            f"not {found!r}"
        )
    return [math.inf if math.isnan(time_) else float(time_) for time_ in times]
