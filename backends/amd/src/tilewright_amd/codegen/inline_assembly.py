"""Inline assembly that a kernel's source brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.types import TileType
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.assembly.assembly_sites import site
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.kernel_assembly import InlineAssembly

#: Letters of inline assembly constraints: any, vector, scalar and accumulator registers, of any
#: width.
_LETTERS: Final = {"r": "", "v": "", "s": "", "a": ""}


class GcnAssembly(InlineAssembly):
    """Inline assembly of kernels."""

    def emit(
        self,
        context: SimtContext,
        text: str,
        constraints: str,
        results: Sequence[AssemblyOperand],
        operands: Sequence[AssemblyOperand],
    ) -> list[str]:
        """Emit inline assembly, with ``r`` as a vector register.

        On other targets ``r`` is a general register of each thread. The call is convergent, since
        the assembly may exchange values between lanes.

        Raises:
            LoweringError: the constraints do not fit, or put an element of a tile into a scalar
                register, although each lane has its own.
        """
        operation = context.operation
        tiles = operation is not None and any(
            isinstance(value.type, TileType) for value in (*operation.operands, *operation.results)
        )
        listed = [part.strip() for part in constraints.split(",")]
        scalars = [part for part in listed if part == "s" or part.startswith("{s")]
        if scalars and tiles:
            raise LoweringError(
                f"constraint {scalars[0]!r} in {constraints!r} takes what all lanes share, and "
                "elements of tiles are a lane's own: take 'v'"
            )
        own = ",".join(
            "v".join(part.rsplit("r", 1)) if part.lstrip("=&") == "r" else part for part in listed
        )
        location = operation.location if operation is not None else None
        marks = f" convergent{site(context.writer.module, location)}"
        return emit_inline_asm(context.writer, _LETTERS, text, own, results, operands, marks)
