"""Each stage of the toolkit, printed, reads back to the same: every kernel of the benchmarks and
examples, compiled for GPUs that need not be there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernel_case import Case
from known_kernels import BENCHMARKED, OTHERS, built, forget
from triton_kernels import TRITON_EXAMPLES

from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify
from tilewright.simt.compile import STAGES
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.target import PtxTarget

#: Each kernel of the benchmarks and examples, in the first of the forms that it is launched in.
KERNELS = list(
    {
        (case.file, case.kernel): case
        for case in reversed((*BENCHMARKED, *OTHERS, *TRITON_EXAMPLES))
        if "tests" not in case.file
    }.values()
)


@pytest.fixture(scope="module", autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    forget()


@pytest.mark.sampled(26)
@pytest.mark.parametrize("case", KERNELS, ids=str)
def test_every_stage_reads_back(case: Case) -> None:
    target = target_of(ARCHITECTURES["sm_90a"])
    module, options = built(case, target)
    machine = PtxTarget(target, options)
    for stage in machine.stages(STAGES):
        stage.run(module, machine, options)
        text = print_module(module, locations=False)
        found = parse_module(text, machine.dialect.table)
        verify(found)
        assert print_module(found, locations=False) == text, stage.name
        assert structural_hash(found) == structural_hash(module), stage.name
