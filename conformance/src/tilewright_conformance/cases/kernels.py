"""Whole kernels, as people write them, on odd shapes, against float64: each in the profile it mostly needs.

The kernels are in ``_row_kernels``, ``_tile_kernels`` and ``_matrix_kernels``; what is done with them, in the modules ``_..._cases`` beside.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.case import Case
from tilewright_conformance.cases import _matrix_cases, _row_cases, _tile_cases


def cases() -> Iterator[Case]:
    for module in (_tile_cases, _row_cases, _matrix_cases):
        yield from module.cases()
