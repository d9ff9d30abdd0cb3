"""Pointers to global memory, and loads that fences keep in place.

Masked-off lanes of a load read zeros from a constant beside the code. Loads thus need no branches,
stay adjacent, and overlap in flight.
"""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter, float_constant

#: LLVM type of a pointer to global memory, which the instructions for it take.
GLOBAL: Final = "ptr addrspace(1)"
#: An empty inline assembly that loads do not cross. LLVM keeps loads ahead of later stores by
#: itself, but moves a load past a fence if only a later block uses its result.
KEEP: Final = 'call void asm sideeffect "", "~{memory}"()'
#: Zeros, as many bytes as the widest access.
_ZEROS: Final = (
    "@tilewright_zeros = internal unnamed_addr addrspace(1) constant [16 x i8] "
    "zeroinitializer, align 16"
)
_ZERO_CONSTANTS: Final = frozenset(
    {"0", "0.0", "false", "null", float_constant("half", 0.0), float_constant("float", 0.0)}
)


def global_pointer(w: FunctionWriter, pointer: str) -> str:
    """Cast a generic pointer to the global address space."""
    return w.emit(f"addrspacecast ptr {pointer} to {GLOBAL}")


def readable(w: FunctionWriter, pointer: str, predicate: str | None) -> str:
    """Cast a generic pointer to the global address space; point masked-off lanes to zeros."""
    place = global_pointer(w, pointer)
    if predicate is None:
        return place
    w.module.add_global(_ZEROS)
    return w.emit(f"select i1 {predicate}, {GLOBAL} {place}, {GLOBAL} @tilewright_zeros")
