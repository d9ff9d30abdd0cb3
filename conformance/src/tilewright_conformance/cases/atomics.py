"""Atomic operations: the samples of Tile IR, and in the language what updates leave and give back, contention, locks, order between programs.

No demand is made on which of several programs comes first; sums of floats that are rounded keep to the bound of a sum in any order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tilewright_conformance.case import Case
from tilewright_conformance.cases import _atomic_order, _atomic_updates
from tilewright_conformance.sampling import sampled

OPERATIONS = ("atomic_rmw", "atomic_cas", "atomic_load", "atomic_store", "clock")


def cases() -> Iterator[Case]:
    for case in sampled("atomics", "atomics", dict.fromkeys(OPERATIONS, True)):
        narrow = any(name.startswith("f8") for name in case.needs.dtypes)
        yield dataclasses.replace(case, profile="fp8") if narrow else case
    yield from _atomic_updates.case
    yield from _atomic_order.case
