"""Each stage of the toolkit, printed, reads back to the same: every kernel of the benchmarks and examples, compiled for GPUs that need not be there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from known_kernels import BENCHMARKED, OTHERS, TRITON_EXAMPLES, Case, built, forget

from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verifier import verify
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.lowering.lower_function import lower_function
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
#: Kernels that are also compiled on from each stage's text.
SAMPLE = [
    next(case for case in BENCHMARKED if case.kernel == name)
    for name in ("softmax", "matmul", "attention")
]


@pytest.fixture(scope="module", autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    forget()


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


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_what_follows_a_stage_does_the_same_with_its_text(case: Case, arch: str) -> None:
    """Nothing that a stage decides is kept beside the module."""
    target = target_of(ARCHITECTURES[arch])
    module, options = built(case, target)

    def rest(text: str, first: int) -> str:
        machine = PtxTarget(target, options)
        module = parse_module(text, machine.dialect.table)
        for stage in machine.stages(STAGES)[first:]:
            stage.run(module, machine, options)
        return lower_function(kernel_of(module), machine, options)

    expected = rest(print_module(module), 0)
    machine = PtxTarget(target, options)
    for number, stage in enumerate(machine.stages(STAGES), 1):
        stage.run(module, machine, options)
        assert rest(print_module(module), number) == expected, stage.name
