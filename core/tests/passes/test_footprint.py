"""Distinct elements of boxes of addresses, beside sets of all of them."""

import itertools

import numpy as np
import pytest

from tilewright.passes.analysis.footprint import Boxes, distinct


def listed(boxes):
    found = set()
    for start, extents in zip(boxes.starts, boxes.extents, strict=True):
        found |= {
            int(start) + sum(map(int.__mul__, boxes.strides, place))
            for place in itertools.product(*(range(extent) for extent in map(int, extents)))
        }
    return found


def made(starts, strides, extents):
    return Boxes(
        np.array(starts, np.int64),
        strides,
        np.array(extents, np.int64).reshape(len(starts), len(strides)),
    )


@pytest.mark.parametrize("seed", range(60))
def test_boxes_count_as_the_set_of_their_addresses(seed):
    rng = np.random.default_rng(seed)
    groups = []
    for _ in range(rng.integers(1, 4)):
        axes, count = int(rng.integers(0, 4)), int(rng.integers(1, 12))
        strides = tuple(int(rng.choice([0, 1, 1, 2, 3, 4, 8, -1, -8, 12, 64])) for _ in range(axes))
        extents = (
            rng.integers(0, 6, (count, axes))
            if rng.integers(2)
            else np.tile(rng.integers(1, 6, axes), (count, 1))
        )
        groups.append(made(rng.integers(0, 90, count), strides, extents))
    assert distinct(groups) == len(set().union(*map(listed, groups)))


def test_tiles_of_rows_are_runs_and_not_elements():
    rows = np.arange(64).repeat(32) * 128 * 8192 + np.tile(np.arange(32), 64) * 64
    tiles = made(np.concatenate((rows, rows)), (8192, 1), np.tile([128, 64], (2 * rows.size, 1)))
    assert distinct([tiles]) == 64 * 128 * 32 * 64


def test_nothing_is_nothing():
    assert (
        distinct([]) == 0
        and distinct([made([3], (1,), [0])]) == 0
        and distinct([made([3, 3, 4], (), [[], [], []])]) == 2
    )


def test_too_many_runs_are_not_counted(monkeypatch):
    monkeypatch.setattr("tilewright.passes.analysis.footprint.MOST_RUNS", 100)
    assert distinct([made([0], (1000, 1), [[101, 7]])]) is None
    assert distinct([made([0], (1,), [[60]]), made([0], (2,), [[60]])]) is None
    assert distinct([made([0], (1,), [[1 << 40]])]) == 1 << 40
