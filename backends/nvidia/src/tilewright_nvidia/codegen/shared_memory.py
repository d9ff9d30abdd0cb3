"""Shared memory of a CTA, whose size the launch sets."""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.shared_memory import SharedMemory
from tilewright_nvidia.codegen.inline_ptx import call_asm

#: The symbol of a CTA's shared memory; the launch sets its size.
SHARED_SYMBOL: Final = "tilewright_shared_memory"


class PtxShared(SharedMemory):
    """Dynamic shared memory."""

    pointer = "ptr addrspace(3)"

    def base(self, w: FunctionWriter) -> str:
        return f"@{SHARED_SYMBOL}"

    def atomic_add(
        self, w: FunctionWriter, pointer: str, value: str, predicate: str | None
    ) -> None:
        operands = [(self.pointer, pointer), ("i32", value)]
        guard = ""
        if predicate is not None:
            guard = "@$2 "
            operands.append(("i1", predicate))
        call_asm(w, f"{guard}red.shared.add.u32 [$0], $1;", (), operands, memory=True)
