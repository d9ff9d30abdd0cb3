"""Whole kernels, as people write them, on odd shapes, against float64.

Each is in the profile it mostly needs. The kernels are those of ``tilewright_conformance.kernels``;
their launches are in the modules beside.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.mixed.kernels import matrices, rowwise_cases, tiles
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    for module in (tiles, rowwise_cases, matrices):
        yield from module.cases()
