"""Footprints of strided boxes of addresses: their distinct elements, each of which must move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]

#: Runs of elements beyond which nothing is counted.
MOST_RUNS: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of addresses: box i has ``starts[i] + sum(strides[axis] * k)`` for 0 <= k <
    ``extents[i, axis]``."""

    starts: Integers
    strides: tuple[int, ...]
    extents: Integers


def distinct(groups: Sequence[Boxes]) -> int | None:
    """Return the number of distinct addresses in all boxes; None if there are too many runs."""
    found = [_runs(boxes) for boxes in groups]
    runs = [each for each in found if each is not None]
    if len(runs) < len(found):
        return None
    steps = {step for _, lengths, step in runs if lengths.size and lengths.max() > 1}
    step = steps.pop() if len(steps) == 1 else 1
    if steps:  # runs of several steps: each element is a run
        if sum(int(lengths.sum()) for _, lengths, _ in runs) > MOST_RUNS:
            return None
        runs = [
            (_along(starts, lengths, every), np.ones(int(lengths.sum()), np.int64), 1)
            for starts, lengths, every in runs
        ]
        step = 1
    starts = np.concatenate([starts for starts, _, _ in runs]) if runs else np.zeros(0, np.int64)
    lengths = np.concatenate([lengths for _, lengths, _ in runs]) if runs else starts
    return _union(starts, lengths, step)


def _union(starts: Integers, lengths: Integers, step: int) -> int:
    """The number of different ``starts[i] + step * k`` for 0 <= k < ``lengths[i]``."""
    if not starts.size:
        return 0
    position, residue = np.divmod(starts, step)
    position -= position.min()
    # those of one residue side by side
    begin = residue * int((position + lengths).max() + 1) + position
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], (begin + lengths)[order]
    reached = np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))
    return int(np.maximum(end - np.maximum(begin, reached), 0).sum())


def _runs(boxes: Boxes) -> tuple[Integers, Integers, int] | None:
    """The boxes as runs of one step: starts, lengths, step; None where there are too many."""
    extents = boxes.extents
    kept = (extents > 0).all(axis=1)
    starts, extents = boxes.starts[kept].copy(), extents[kept].copy()
    for axis, stride in enumerate(boxes.strides):
        if stride < 0:
            starts += stride * (extents[:, axis] - 1)
        elif stride == 0:
            extents[:, axis] = 1
    starts, extents = _unique(starts, extents)
    if not starts.size:
        return starts, starts, 1
    axes = sorted(
        (axis for axis in range(len(boxes.strides)) if (extents[:, axis] > 1).any()),
        key=lambda axis: abs(boxes.strides[axis]),
    )
    lengths, step = np.ones_like(starts), abs(boxes.strides[axes[0]]) if axes else 1
    rest = []
    for axis in axes:
        if np.equal(abs(boxes.strides[axis]), step * lengths).all():
            lengths = lengths * extents[:, axis]
        elif axis == axes[0]:
            lengths = extents[:, axis].copy()
        else:
            rest.append(axis)
    for number, axis in enumerate(rest):
        count = extents[:, axis]
        if int(count.sum()) > MOST_RUNS:
            return None
        starts = _along(starts, count, abs(boxes.strides[axis]))
        lengths, extents = np.repeat(lengths, count), np.repeat(extents, count, axis=0)
        if number + 1 < len(rest):
            kept_axes = extents[:, rest[number + 1 :]]
            starts, columns = _unique(starts, np.column_stack((lengths, kept_axes)))
            lengths, extents = (
                columns[:, 0],
                _at(extents.shape[1], rest[number + 1 :], columns[:, 1:]),
            )
    return starts, lengths, step


def _at(width: int, axes: Sequence[int], columns: Integers) -> Integers:
    """Columns at their axes of a table with ones elsewhere."""
    found = np.ones((len(columns), width), np.int64)
    found[:, list(axes)] = columns
    return found


def _along(starts: Integers, counts: Integers, step: int) -> Integers:
    """``starts[i] + step * k`` for 0 <= k < ``counts[i]``, in order."""
    first = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(first, counts)
    return np.repeat(starts, counts) + step * within


def _unique(starts: Integers, columns: Integers) -> tuple[Integers, Integers]:
    """Each row of starts and columns once."""
    varying = [
        columns[:, axis]
        for axis in range(columns.shape[1])
        if columns.size and (columns[:, axis] != columns[0, axis]).any()
    ]
    if not varying:
        found, first = np.unique(starts, return_index=True)
        return found, columns[first]
    order = np.lexsort((*varying, starts))
    rows = np.column_stack((starts, *varying))[order]
    first = np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1)))
    return starts[order][first], columns[order][first]


__all__ = ["MOST_RUNS", "Boxes", "distinct"]
