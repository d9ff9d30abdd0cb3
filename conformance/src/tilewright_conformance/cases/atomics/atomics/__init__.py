"""Atomic operations: the samples of Tile IR, and in the language what updates leave and give back, contention, locks, order between programs.

No demand is made on which of several programs comes first; sums of floats that are rounded keep to
the bound of a sum in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.atomics.atomics import order, updates
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled

OPERATIONS = ("atomic_rmw", "atomic_cas", "atomic_load", "atomic_store")


def cases() -> Iterator[Case]:
    yield from sampled("atomics", "atomics", dict.fromkeys(OPERATIONS, True))
    yield from updates.case
    yield from order.case
