"""``s_waitcnt`` ahead of a barrier: the accesses that a wave waits for before it arrives.

A fence says which accesses must be done, and the code generator puts the waits for it where it finds accesses under way. It looks at a loop from above first,
takes out what is not needed then, and does not put it back for the accesses that the loop's end leaves under way: so the waits are written out here, by
instructions that it keeps. The fence says what may not be moved past the barrier.
"""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_amd.architectures import MFMA, Architecture

#: The operand of ``s_waitcnt`` that waits for LDS alone, of MFMA's generations and of RDNA 3, and for memory alone.
MFMA_SHARED: Final = 0xC07F
_RDNA3_SHARED: Final = 0xFC07
MFMA_MEMORY: Final = 0x0F70


def wait_for_shared(w: FunctionWriter, row: Architecture) -> None:
    """Wait until the wave's accesses of LDS are done."""
    if row.matrix == MFMA or row.generation == 3:
        w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(MFMA_SHARED if row.matrix == MFMA else _RDNA3_SHARED))])
    else:
        w.call("llvm.amdgcn.s.wait.dscnt", "void", [("i16", "0")])


def wait_for_memory(w: FunctionWriter) -> None:
    """Wait until the wave's accesses of global memory are done, on MFMA's generations."""
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(MFMA_MEMORY))])
