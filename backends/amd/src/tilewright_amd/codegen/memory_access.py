"""Loads and stores of global memory: one instruction for up to 16 bytes.

Masked-off lanes of a load read zeros from a constant beside the code. Loads thus need no branches,
stay adjacent, and overlap in flight. Only the lanes whose predicate holds execute a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.emission.registers import register_type, storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright.simt.target.simt_target import Access
from tilewright_amd.codegen.vectors import elements, join

#: LLVM type of a pointer to global memory, which the instructions for it take.
GLOBAL: Final = "ptr addrspace(1)"
#: An empty inline assembly that loads do not cross. LLVM keeps loads ahead of later stores by
#: itself, but moves a load past a fence if only a later block uses its result.
KEEP: Final = 'call void asm sideeffect "", "~{memory}"()'
#: Zeros, as many bytes as the widest access.
_ZEROS: Final = "@tilewright_zeros = internal unnamed_addr addrspace(1) constant [16 x i8] zeroinitializer, align 16"
_ZERO_CONSTANTS: Final = frozenset({"0", "0.0", "false", "null", float_constant("half", 0.0), float_constant("float", 0.0)})


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


def load(w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
    """See :meth:`tilewright.simt.target.simt_target.SimtTarget.load`."""
    stored, size = storage_type(element), storage_size(element) * count
    whole = f"<{count} x {stored}>" if count > 1 else stored
    place = readable(w, pointer, predicate)
    value = w.emit(f"load {_volatile(access)}{whole}, {GLOBAL} {place}, align {size}{_kept(w, access)}")
    if predicate is not None and other is not None and not _ZERO_CONSTANTS.issuperset(other):
        given = join(w, stored, [_stored(w, element, name) for name in other])
        value = w.emit(f"select i1 {predicate}, {whole} {value}, {whole} {given}")
    names = elements(w, stored, value, count)
    return [w.emit(f"icmp ne i8 {name}, 0") for name in names] if register_type(element) == "i1" else names


def store(w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
    """See :meth:`tilewright.simt.target.simt_target.SimtTarget.store`."""
    stored, count = storage_type(element), len(values)
    whole = f"<{count} x {stored}>" if count > 1 else stored
    place = global_pointer(w, pointer)
    value = join(w, stored, [_stored(w, element, name) for name in values])
    text = f"store {_volatile(access)}{whole} {value}, {GLOBAL} {place}, align {storage_size(element) * count}{_kept(w, access)}"
    if predicate is None:
        w.do(text)
        return
    with w.when(predicate):
        w.do(text)


def _volatile(access: Access) -> str:
    return "volatile " if access.volatile else ""


def _kept(w: FunctionWriter, access: Access) -> str:
    """Return the metadata that makes an access nontemporal if its cache hint asks for streaming.

    Other hints have no instruction.
    """
    streamed = access.cache in ("cs", "cv") or access.eviction == "first"
    return f", !nontemporal {w.module.metadata('!{i32 1}')}" if streamed and not access.volatile else ""


def _stored(w: FunctionWriter, element: Type, name: str) -> str:
    return w.emit(f"zext i1 {name} to i8") if register_type(element) == "i1" else name
