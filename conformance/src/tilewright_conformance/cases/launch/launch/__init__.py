"""The contract of launches: arguments, grids, plans, order, errors, caches, hooks."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.launch.launch import arguments, caches, cooperative, grids
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    yield from arguments.CASES
    yield from grids.CASES
    yield from caches.CASES
    yield from cooperative.CASES
