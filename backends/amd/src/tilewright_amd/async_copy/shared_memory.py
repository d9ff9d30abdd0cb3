"""The LDS of a workgroup, whose size the launch sets."""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.shared_memory import SharedMemory
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.codegen.kernel_state import kernel_state

#: The symbol of a program's LDS; the launch sets its size.
SHARED_SYMBOL: Final = "tilewright_shared_memory"


class GcnShared(SharedMemory):
    """LDS."""

    pointer = "ptr addrspace(3)"

    def base(self, w: FunctionWriter) -> str:
        return f"@{SHARED_SYMBOL}"

    def metadata(self, w: FunctionWriter) -> str:
        return global_load_lds.aside(w) if kernel_state(w).copies else ""

    def atomic_add(
        self, w: FunctionWriter, pointer: str, value: str, predicate: str | None
    ) -> None:
        with w.when(predicate or "true"):
            w.emit(
                f'atomicrmw add {self.pointer} {pointer}, i32 {value} syncscope("workgroup") '
                "monotonic, align 4"
            )
