"""Random tile programs: lowered without a GPU, and on one equal to the reference."""

from __future__ import annotations

import os

import numpy as np
import pytest
from gpu_support import gpu_is_there, run_on_gpu
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import LoweringError
from tilewright.passes import pipeline
from tilewright.passes.clone import clone_module
from tilewright.plugins.manifest import PORTABLE_OPTIONS
from tilewright.reference.interpreter import run
from tilewright_conformance.random_programs import Program, mismatch, programs
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.toolchain.linking import assemble

_QUIET = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=20, **_QUIET)  # type: ignore[arg-type]
@given(
    programs(),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from(("sm_75", "sm_80", "sm_90a", "sm_100a")),
)
def test_random_programs_assemble(program: Program, num_warps: int, arch: str) -> None:
    try:
        code = lower(
            program.module,
            target_of(ARCHITECTURES[arch]),
            {**PORTABLE_OPTIONS, **OPTIONS, "num_warps": num_warps},
        )
    except LoweringError as error:
        assert "powers of two" in str(error)
        return
    assemble(code.stages["ptx"], arch)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here")
@settings(max_examples=int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "1000")) // 4, **_QUIET)
@given(programs(), st.sampled_from((1, 2, 4, 8)))
def test_gpu_agrees_with_the_reference_before_and_after_the_passes(
    program: Program, num_warps: int
) -> None:
    expected = program.arguments()
    with np.errstate(all="ignore"):
        run(program.module, expected, program.grid)
    optimised = clone_module(program.module)
    pipeline.run(optimised, pipeline.STANDARD)
    for module in (program.module, optimised):
        found = program.arguments()
        try:
            run_on_gpu(module, found, program.grid, num_warps=num_warps, math="strict")
        except LoweringError as error:
            assert "powers of two" in str(error)
            continue
        for output in program.outputs:
            wrong = mismatch(output, expected[output.index], found[output.index])
            assert not wrong, (
                f"num_warps={num_warps}, output {output.index} of {output.element}: {wrong}\n"
                f"{program.module}\nas lowered:\n{module}"
            )
