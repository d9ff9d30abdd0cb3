"""Reductions: samples as Tile IR, and the language's along every axis of tiles of all types.

Tiles have one to four axes. Integers wrap around, and floats of few bits add up exactly; each other
result may be off by the bound of its length, in any order of the terms.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.core.reductions.bitwise_combinations import bitwise_cases
from tilewright_conformance.cases.core.reductions.extreme_cases import (
    extreme_places,
    extreme_values,
)
from tilewright_conformance.cases.core.reductions.several_tiles import kernel_cases, several_cases
from tilewright_conformance.cases.core.reductions.total_cases import sum_cases
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    yield from sampled("reductions", "core", {"reduce": False})
    yield from sum_cases()
    yield from extreme_values()
    yield from extreme_places()
    yield from bitwise_cases()
    yield from several_cases()
    yield from kernel_cases()
