"""The formats of 8 bits in the language: conversions, moves, comparison and arithmetic.

Every number of each format takes part. Samples of the operations are in the family of each (casts,
dots, elementwise). Expected values come from the formats' definition.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.fp8.fp8.fp8_case import KINDS
from tilewright_conformance.cases.fp8.fp8.fp8_conversions import conversion_cases
from tilewright_conformance.cases.fp8.fp8.fp8_matmuls import matmul_cases, scaled_cases
from tilewright_conformance.cases.fp8.fp8.fp8_memory import memory_cases
from tilewright_conformance.cases.fp8.fp8.fp8_operators import operator_cases
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    for name in KINDS:
        yield from conversion_cases(name)
        yield from memory_cases(name)
        yield from operator_cases(name)
        yield from matmul_cases(name)
    yield from scaled_cases()
