"""Tuning: what the tuner promises, and what the backend's own hooks say.

Where a choice is tested, times come from a table, so that it is the same on every machine; the
kernels run on the backend all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.autotune.autotune import backend, tuner
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    yield from tuner.CASES
    yield from backend.CASES
