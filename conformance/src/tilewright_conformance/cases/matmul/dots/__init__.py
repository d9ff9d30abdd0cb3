"""Matmuls: samples of the operations as Tile IR, and ``tl.dot`` and ``tl.dot_scaled`` in kernels.

Matmuls in float64 are the oracle. Numbers of few bits accumulate exactly in any order; numbers that
use all bits are held to the accumulation-length bound of ``oracles.matrix``.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.cases.matmul.dots.dot_case import in_profile
from tilewright_conformance.cases.matmul.dots.fused_matmuls import conversion_cases, fusion_cases
from tilewright_conformance.cases.matmul.dots.input_precisions import precision_cases
from tilewright_conformance.cases.matmul.dots.matmul_loops import gather_cases, loop_cases
from tilewright_conformance.cases.matmul.dots.scaled_matmuls import scaled_cases
from tilewright_conformance.cases.matmul.dots.single_matmuls import matmul_cases
from tilewright_conformance.cases.matmul.dots.special_operands import special_cases
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    for case in sampled("dots", "matmul", {"dot": True, "dot_scaled": True}):
        yield in_profile(case)
    for make in (
        matmul_cases,
        precision_cases,
        special_cases,
        loop_cases,
        gather_cases,
        fusion_cases,
        conversion_cases,
        scaled_cases,
    ):
        yield from make()
