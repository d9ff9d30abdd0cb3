"""``s_waitcnt`` before a barrier: waits for a wave's memory accesses before it arrives.

A fence states which accesses must be complete, and LLVM inserts waits where it finds accesses in
flight. Its analysis first visits a loop from above, deletes waits that look unnecessary then, and
does not restore them for accesses still in flight on the back edge. So this module emits the waits
as instructions that LLVM keeps. The fence only limits which accesses LLVM may move past the
barrier.
"""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_amd.architectures import MFMA, Architecture

#: The operands of ``s_waitcnt`` for LDS alone, on MFMA generations and on RDNA 3, and for global
#: memory alone.
MFMA_SHARED: Final = 0xC07F
_RDNA3_SHARED: Final = 0xFC07
MFMA_MEMORY: Final = 0x0F70


def wait_for_shared(w: FunctionWriter, row: Architecture) -> None:
    """Wait for the LDS accesses of a wave."""
    if row.matrix == MFMA or row.generation == 3:
        w.call(
            "llvm.amdgcn.s.waitcnt",
            "void",
            [("i32", str(MFMA_SHARED if row.matrix == MFMA else _RDNA3_SHARED))],
        )
    else:
        w.call("llvm.amdgcn.s.wait.dscnt", "void", [("i16", "0")])


def wait_for_memory(w: FunctionWriter) -> None:
    """Wait for the global memory accesses of a wave, on MFMA generations."""
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(MFMA_MEMORY))])
