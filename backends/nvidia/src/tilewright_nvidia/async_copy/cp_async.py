"""``cp.async``: non-bulk asynchronous copies of 4, 8 or 16 bytes to shared memory."""

from __future__ import annotations

from typing import Final

from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright_nvidia.codegen.inline_ptx import call_asm


def _cp_async(
    context: SimtContext, shared: str, pointer: str, size: int, predicate: str | None
) -> None:
    w = context.writer
    operands = [("ptr addrspace(3)", shared), ("ptr", pointer)]
    source = ""
    if predicate is not None:  # the last operand masks the read and writes zeros
        operands.append(("i1", w.emit(f"xor i1 {predicate}, true")))
        source = ", $2"
    kind = "cg" if size == 16 else "ca"
    call_asm(
        w, f"cp.async.{kind}.shared.global [$0], [$1], {size}{source};", (), operands, memory=True
    )


#: Copies of a few elements by each thread, from compute capability 8.0 on.
CP_ASYNC: Final = CopyMechanism("cp.async", GROUPS, (4, 8, 16), start=_cp_async)
