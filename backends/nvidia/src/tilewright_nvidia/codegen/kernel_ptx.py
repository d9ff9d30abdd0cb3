"""Inline PTX that a kernel's source brings."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.assembly.assembly_sites import site
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.kernel_assembly import InlineAssembly
from tilewright_nvidia.codegen.inline_ptx import ASSEMBLY_REGISTERS
from tilewright_nvidia.codegen.uniform_ptx import is_uniform


class PtxAssembly(InlineAssembly):
    """Inline PTX of kernels."""

    def emit(
        self,
        context: SimtContext,
        text: str,
        constraints: str,
        results: Sequence[AssemblyOperand],
        operands: Sequence[AssemblyOperand],
    ) -> list[str]:
        marks = site(
            context.writer.module,
            context.operation.location if context.operation is not None else None,
        )
        return emit_inline_asm(
            context.writer, ASSEMBLY_REGISTERS, text, constraints, results, operands, marks
        )

    def is_uniform(self, text: str) -> bool:
        return is_uniform(text)
