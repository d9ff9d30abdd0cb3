"""The contract of launches: arguments, grids, plans, order, errors, caches, hooks."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.case import Case
from tilewright_conformance.cases.launch import arguments, caches, cooperative, grids


def cases() -> Iterator[Case]:
    yield from arguments.CASES
    yield from grids.CASES
    yield from caches.CASES
    yield from cooperative.CASES
