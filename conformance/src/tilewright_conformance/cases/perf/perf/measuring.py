"""Measurement of launches in alternating turns, and demands that are tried several times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright_conformance.suite.session import Session

Array = np.ndarray[Any, Any]
Launch = Callable[[], Any]
#: Figures of one try, and what is wrong with them ("" where nothing is).
Verdict = tuple[Mapping[str, float], str]
#: Seconds of work that a figure is taken from, at least; the launch costs nothing beside it.
_MINIMUM_TIME = 2e-3
_ROUNDS, _TRIES = 5, 6
#: Seconds of one launch after which no larger size is tried, and of all tries of a demand after
#: which there is no other.
_PATIENCE, _ENOUGH = 0.1, 20.0
#: Bytes of the largest array: a fast machine takes some ten times a launch's own cost for it.
#: Slower ones stop before.
MAXIMUM_SIZE = 1 << 28


def seconds(session: Session, launch: Launch) -> float:
    """Time of one launch: the minimum over rounds of launches that each take a while.

    Other work of the machine only adds to it.
    """
    return in_turns(session, launch)[0]


def in_turns(session: Session, *launches: Launch) -> list[float]:
    """:func:`seconds` of several launches, measured in alternating rounds."""
    counts = []
    for launch in launches:
        launch()  # which compiles
        session.synchronize()
        once = max(_timed(session, launch, 1), 1e-7)
        counts.append(min(1000, max(1, math.ceil(_MINIMUM_TIME / once))))
    rounds = [
        [
            _timed(session, launch, count) / count
            for launch, count in zip(launches, counts, strict=True)
        ]
        for _ in range(_ROUNDS)
    ]
    return [min(each) for each in zip(*rounds, strict=True)]


def _timed(session: Session, launch: Launch, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        launch()
    session.synchronize()
    return time.perf_counter() - started


def demand(session: Session, attempt: Callable[[], Verdict]) -> None:
    """Try until nothing is wrong; keep the figures, and demand that a try went well.

    A session that does not judge speed measures once, and demands nothing.
    """
    if not session.judges_speed:
        session.note(**attempt()[0])
        return
    started, tries, wrong = time.perf_counter(), 0, "nothing was tried"
    while wrong and tries < _TRIES and (tries < 2 or time.perf_counter() - started < _ENOUGH):
        tries += 1
        figures, wrong = attempt()
        session.note(**figures)
    session.require(not wrong, f"{wrong}, in each of {tries} tries")


def sized_launch(session: Session, make: Callable[[int], Launch], size: int, maximum: int) -> int:
    """Return the first of ``size``, twice that and so on whose launch takes long enough to measure.

    If there is no time to try further sizes, it is the maximum tried.
    """
    compiled = False
    while True:
        launch = make(size)
        # a backend that skips what it has run before is slow the first time alone; the very first
        # launch compiles
        first = _timed(session, launch, 1)
        if (
            min(_timed(session, launch, 1) for _ in range(2)) > _MINIMUM_TIME
            or size >= maximum
            or (compiled and first > _PATIENCE)
        ):
            return size
        size, compiled = 2 * size, True
