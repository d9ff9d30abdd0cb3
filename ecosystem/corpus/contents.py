"""What tensors of whole numbers hold, as a record has it: runs of numbers in equal steps, which may
repeat.

Lengths of sequences, pages of caches and the rows of experts are such, and decide how long a kernel
takes, and whether its programs write the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: (first number, step, how many)
Run = tuple[int, int, int]

#: A tensor of more runs is not told.
_MOST_RUNS = 512


def runs_of(values: Sequence[int]) -> tuple[Run, ...]:
    """The runs of the shortest part that ``values`` repeats; none where there are too many."""
    found = np.asarray(values, dtype=np.int64).ravel()
    part = found[: _period(found)]
    runs: list[Run] = []
    begin = 0
    while begin < len(part):
        if len(runs) == _MOST_RUNS:
            return ()
        rest = part[begin:]
        step = int(rest[1] - rest[0]) if len(rest) > 1 else 0
        breaks = np.flatnonzero(np.diff(rest) != step)
        count = int(breaks[0]) + 1 if len(breaks) else len(rest)
        runs.append((int(rest[0]), step, count))
        begin += count
    return tuple(runs)


def _period(values: np.ndarray[Any, np.dtype[Any]]) -> int:
    """After how many numbers ``values`` begins again: that of the places of its first two numbers
    that does.
    """
    begins = (
        np.flatnonzero((values[1:-1] == values[0]) & (values[2:] == values[1])) + 1
        if len(values) > 2
        else []
    )
    for period in map(int, begins[:_MOST_RUNS]):
        if (values[period:] == values[:-period]).all():
            return period
    return len(values)


def filled(runs: Sequence[Run], count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """``count`` numbers of runs."""
    part = np.concatenate([first + step * np.arange(length) for first, step, length in runs])
    return np.resize(part, count).astype(dtype)
