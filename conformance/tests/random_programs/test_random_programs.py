"""Random tile programs give the same results on the reference interpreter and on the CPU backend:
half as they are drawn, half after the passes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes import pipeline
from tilewright_conformance.random_programs import Program, mismatch, programs
from tilewright_conformance.suite.session import Session, Subject

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "400")) // 8
CPU = Session(Subject("cpu"), "random programs")


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs(CPU.capabilities))
def test_cpu_agrees_with_the_reference_before_or_after_the_passes(program: Program) -> None:
    expected, found = program.arguments(), program.arguments()
    CPU.run_reference(program.module, expected, program.grid)
    module = parse_module(print_module(program.module))
    if program.seed % 2:  # the program says it, so that a failure can be repeated
        pipeline.run(module, pipeline.STANDARD, verify_each=True)
    CPU.run_module(module, found, program.grid, with_passes=False)
    for output in program.outputs:
        wrong = mismatch(output, expected[output.index], found[output.index])
        assert not wrong, (
            f"output {output.index} of {output.element}: {wrong}\n{program.module}\n"
            f"as lowered:\n{module}"
        )


def test_a_wrong_result_is_noticed() -> None:
    found: list[str] = []

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def flip(program: Program) -> None:
        expected, wrong = program.arguments(), program.arguments()
        CPU.run_reference(program.module, expected, program.grid)
        CPU.run_reference(program.module, wrong, program.grid)
        output = program.outputs[-1]
        assert not mismatch(output, expected[output.index], wrong[output.index])
        width = np.dtype(wrong[output.index].dtype).itemsize
        wrong[output.index].view(np.uint8)[width - 1] ^= 0x41
        found.append(mismatch(output, expected[output.index], wrong[output.index]))

    flip()
    assert sum(map(bool, found)) >= 15
