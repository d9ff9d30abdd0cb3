"""Atomic operations: samples of Tile IR, and updates, contention, locks and order in the language.

No case demands which of several programs comes first; float additions that round keep to the bound
of any order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore
from tilewright_conformance.cases.atomics.atomics import order, updates
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    operations = (AtomicRmw, AtomicCas, AtomicLoad, AtomicStore)
    yield from sampled("atomics", "atomics", {one.row.name: True for one in operations})
    yield from updates.case
    yield from order.case
