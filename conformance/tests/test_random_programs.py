"""Random tile programs give the same results on the reference interpreter and on the CPU backend."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes import pipeline
from tilewright.reference.interpreter import run
from tilewright_conformance.programs import Program, mismatch, programs
from tilewright_conformance.running import run_on_backend

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "400"))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_cpu_agrees_with_the_reference_before_and_after_the_passes(program: Program) -> None:
    expected = program.arguments()
    with np.errstate(all="ignore"):
        run(program.module, expected, program.grid)
    optimised = parse_module(print_module(program.module))
    pipeline.run(optimised, pipeline.STANDARD, verify_each=True)
    for module in (program.module, optimised):
        found = program.arguments()
        run_on_backend("cpu", module, found, program.grid)
        for output in program.outputs:
            wrong = mismatch(output, expected[output.index], found[output.index])
            assert not wrong, f"output {output.index} of {output.element}: {wrong}\n{program.module}\nas lowered:\n{module}"


def test_a_wrong_result_is_noticed() -> None:
    found: list[str] = []

    @settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def flip(program: Program) -> None:
        expected, wrong = program.arguments(), program.arguments()
        with np.errstate(all="ignore"):
            run(program.module, expected, program.grid)
            run(program.module, wrong, program.grid)
        output = program.outputs[0]
        assert not mismatch(output, expected[output.index], wrong[output.index])
        wrong[output.index].view(np.uint8)[output.element.bits // 8 - 1] ^= 0x41
        found.append(mismatch(output, expected[output.index], wrong[output.index]))

    flip()
    assert sum(map(bool, found)) >= 15
