"""Each stage of the toolkit, printed, reads back to the same, and what follows does the same with
the text."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.simt.compile import STAGES
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.testing.read_back import check_read_back

OPTIONS = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": False}
SMALL = {
    "matmul": {"BM": 32, "BN": 32, "BK": 16},
    "matmul_f32_out": {"BM": 32, "BN": 32, "BK": 16},
    "attention": {"BLOCK_M": 32, "BLOCK_N": 32, "HEAD": 32},
}


def stages(module: Module, target: SimtTarget) -> list[str]:
    """The text after each stage."""
    found = []
    for stage in target.stages(STAGES):
        stage.run(module, target, OPTIONS)
        found.append(print_module(module))
    return found


def test_every_stage_reads_back(
    kernel: Callable[..., Module], kernel_name: str, matrix_target: SimtTarget
) -> None:
    for text in stages(kernel(kernel_name), matrix_target):
        assert print_module(parse_module(text, matrix_target.dialect.table)) == text


def test_what_follows_a_stage_does_the_same_with_its_text(
    kernel: Callable[..., Module], kernel_name: str
) -> None:
    module = kernel(kernel_name, SMALL.get(kernel_name, {}))
    check_read_back(module, lambda: EmulatedTarget(32), OPTIONS)
