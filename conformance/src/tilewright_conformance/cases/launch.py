"""The contract of launches: arguments, grids, plans, order, errors, caches, hooks."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.case import Case
from tilewright_conformance.cases import _arguments, _caches, _grids


def cases() -> Iterator[Case]:
    yield from _arguments.CASES
    yield from _grids.CASES
    yield from _caches.CASES
