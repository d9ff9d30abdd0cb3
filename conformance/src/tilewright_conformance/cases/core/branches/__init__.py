"""Branches and counted loops, the control flow that a new backend needs first.

There are samples of the operations, and kernels of the language.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.core.branches import choices, loops
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    yield from sampled("branches", "core", dict.fromkeys(("if", "for", "yield"), True))
    yield from loops.CASES
    yield from choices.CASES
