"""Kernels in exact mode: the same bits as the reference's, and in every block size.

Arrays of floats hold payloads of a ring (:mod:`tilewright.passes.exact.ring`), in which kernels of
the same algebra have the same results whatever their order of operations. No case has a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.exact.exact import (
    atomics,
    attention,
    line_kernel_cases,
    matmuls,
    row_kernel_cases,
)
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    for module in (matmuls, row_kernel_cases, attention, line_kernel_cases, atomics):
        yield from module.cases()
