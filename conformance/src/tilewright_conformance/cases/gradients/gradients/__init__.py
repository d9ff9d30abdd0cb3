"""Gradients: forward mode against central differences, and reverse mode against forward mode.

Kernels run in two forms, mostly of other block sizes, in memory whose surroundings are NaN. The
reference interpreter computes the differences in float64. Operations run on their samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.gradients.gradients import (
    line_gradients,
    matmul_gradients,
    op_gradients,
    row_gradients,
)
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    for module in (row_gradients, line_gradients, matmul_gradients, op_gradients):
        yield from module.cases()
