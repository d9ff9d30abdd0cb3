"""Loads and stores of global memory: one instruction for up to 16 bytes.

Lanes whose predicate does not hold read zeros that lie beside the code: without branches around them loads stay together, and under way while others begin.
Stores are run by the lanes whose predicate holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.ir.types import Type
from tilewright.llvm.registers import register_type, storage_size, storage_type
from tilewright.llvm.writer import FunctionWriter, float_constant
from tilewright.simt.target import Access
from tilewright_amd.architectures import MFMA, Architecture
from tilewright_amd.uniform_bases import LIMIT, Place
from tilewright_amd.vectors import elements, join

#: LLVM type of a pointer to global memory, which the instructions for it take.
GLOBAL: Final = "ptr addrspace(1)"
#: Loads of before it stay before it: the code generator knows that no load may pass a store, but moves those past a fence whose result is used in a later
#: block alone.
KEEP: Final = 'call void asm sideeffect "", "~{memory}"()'
#: As many zeros as the widest access has bytes.
_ZEROS: Final = "@tilewright_zeros = internal unnamed_addr addrspace(1) constant [16 x i8] zeroinitializer, align 16"
#: The last word of a buffer's resource: elements of 32 bits without a structure; on RDNA also that offsets are compared with the end as they are.
_RAW: Final = 0x27000
_RAW_RDNA: Final = 0x31027000
#: Bytes that an access of a buffer adds to its offset are fewer.
_INSIDE: Final = 4096
#: Bytes -> the type in registers of what an access of a buffer moves.
_BITS: Final = {1: "i8", 2: "i16", 4: "i32", 8: "<2 x i32>", 16: "<4 x i32>"}
_ZERO_CONSTANTS: Final = frozenset({"0", "0.0", "false", "null", float_constant("half", 0.0), float_constant("float", 0.0)})


def global_pointer(w: FunctionWriter, pointer: str) -> str:
    """A pointer of the toolkit's as one to global memory."""
    return w.emit(f"addrspacecast ptr {pointer} to {GLOBAL}")


def readable(w: FunctionWriter, pointer: str, predicate: str | None) -> str:
    """A pointer of the toolkit's as one to global memory; to zeros where the predicate does not hold."""
    place = global_pointer(w, pointer)
    if predicate is None:
        return place
    w.module.add_global(_ZEROS)
    return w.emit(f"select i1 {predicate}, {GLOBAL} {place}, {GLOBAL} @tilewright_zeros")


def load(w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
    """See :meth:`tilewright.simt.target.SimtTarget.load`."""
    stored, size = storage_type(element), storage_size(element) * count
    whole = f"<{count} x {stored}>" if count > 1 else stored
    place = readable(w, pointer, predicate)
    value = w.emit(f"load {_volatile(access)}{whole}, {GLOBAL} {place}, align {size}{_kept(w, access)}")
    return _read(w, element, value, count, predicate, other)


def store(w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
    """See :meth:`tilewright.simt.target.SimtTarget.store`."""
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


def load_at(w: FunctionWriter, row: Architecture, place: Place, element: Type, count: int, predicate: str | None, other: Sequence[str] | None) -> list[str]:
    """As :func:`load`, by a scalar base and an offset. A buffer gives zeros beyond its end, which is where lanes read whose predicate does not hold."""
    stored, size = storage_type(element), storage_size(element) * count
    whole, bits = f"<{count} x {stored}>" if count > 1 else stored, _BITS[size]
    if predicate is None:
        value = w.emit(f"load {whole}, {GLOBAL} {_global_place(w, place)}, align {size}")
    else:
        operands = _in_buffer(w, row, place, predicate)
        words = w.call(f"llvm.amdgcn.raw.ptr.buffer.load.{_mangled(bits)}", bits, operands)
        value = words if bits == whole else w.emit(f"bitcast {bits} {words} to {whole}")
    return _read(w, element, value, count, predicate, other)


def store_at(w: FunctionWriter, place: Place, element: Type, values: Sequence[str], predicate: str | None) -> None:
    """As :func:`store`, by a scalar base and an offset. Masked ones stay behind branches: without those, LLVM's schedule of the long block that a kernel
    then is takes up to twice the registers."""
    stored, count = storage_type(element), len(values)
    whole = f"<{count} x {stored}>" if count > 1 else stored
    value = join(w, stored, [_stored(w, element, name) for name in values])
    with w.when(predicate or "true"):
        # the address is made where it is used: LLVM selects a scalar base and an offset of 32 bits within a block alone
        w.do(f"store {whole} {value}, {GLOBAL} {_global_place(w, place)}, align {storage_size(element) * count}")


def _global_place(w: FunctionWriter, place: Place) -> str:
    base = global_pointer(w, place.base)
    at = w.emit(f"getelementptr inbounds i8, {GLOBAL} {base}, i64 {w.emit(f'zext i32 {place.thread} to i64')}")
    return w.emit(f"getelementptr i8, {GLOBAL} {at}, i64 {place.more}") if place.more else at


def _in_buffer(w: FunctionWriter, row: Architecture, place: Place, predicate: str) -> list[tuple[str, str]]:
    """The operands of an access: a resource that begins at the base, and the offset; beyond the end where the predicate does not hold."""
    flags = _RAW if row.matrix == MFMA else _RAW_RDNA
    given = [(GLOBAL, global_pointer(w, place.base)), ("i16", "0"), ("i64", str(LIMIT)), ("i32", str(flags))]
    resource = w.call("llvm.amdgcn.make.buffer.rsrc.p8.p1", "ptr addrspace(8)", given)
    within = place.more if place.more < _INSIDE else 0  # the access itself adds as much
    offset = place.thread if within == place.more else w.emit(f"add nuw nsw i32 {place.thread}, {place.more}")
    offset = w.emit(f"select i1 {predicate}, i32 {offset}, i32 {LIMIT - (1 << 32)}")
    offset = w.emit(f"add nuw i32 {offset}, {within}") if within else offset
    return [("ptr addrspace(8)", resource), ("i32", offset), ("i32", "0"), ("i32", "0")]


def _mangled(bits: str) -> str:
    """An integer type, or a vector of such, in the name of an intrinsic."""
    return f"v{bits[1]}i32" if bits[0] == "<" else bits


def _read(w: FunctionWriter, element: Type, value: str, count: int, predicate: str | None, other: Sequence[str] | None) -> list[str]:
    """The elements of what was loaded; ``other`` where the predicate does not hold, if that is not the zeros that were read there."""
    stored = storage_type(element)
    if predicate is not None and other is not None and not _ZERO_CONSTANTS.issuperset(other):
        whole = f"<{count} x {stored}>" if count > 1 else stored
        given = join(w, stored, [_stored(w, element, name) for name in other])
        value = w.emit(f"select i1 {predicate}, {whole} {value}, {whole} {given}")
    names = elements(w, stored, value, count)
    return [w.emit(f"icmp ne i8 {name}, 0") for name in names] if register_type(element) == "i1" else names


def _volatile(access: Access) -> str:
    return "volatile " if access.volatile else ""


def _kept(w: FunctionWriter, access: Access) -> str:
    """Lines that are not wanted again leave the cache first; other hints have no instruction."""
    streamed = access.cache in ("cs", "cv") or access.eviction == "first"
    return f", !nontemporal {w.module.metadata('!{i32 1}')}" if streamed and not access.volatile else ""


def _stored(w: FunctionWriter, element: Type, name: str) -> str:
    return w.emit(f"zext i1 {name} to i8") if register_type(element) == "i1" else name
