"""Loads and stores of global memory: one instruction for up to 16 bytes, run by the lanes whose predicate holds."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import Type
from tilewright.llvm.registers import register_type, storage_size, storage_type
from tilewright.llvm.writer import FunctionWriter
from tilewright.simt.target import Access

#: LLVM type of a pointer to global memory, which the instructions for it take.
GLOBAL = "ptr addrspace(1)"


def global_pointer(w: FunctionWriter, pointer: str) -> str:
    """A pointer of the toolkit's as one to global memory."""
    return w.emit(f"addrspacecast ptr {pointer} to {GLOBAL}")


def load(w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
    """See :meth:`tilewright.simt.target.SimtTarget.load`."""
    stored, size = storage_type(element), storage_size(element) * count
    whole = f"<{count} x {stored}>" if count > 1 else stored
    place = global_pointer(w, pointer)

    def read() -> str:
        return w.emit(f"load {_volatile(access)}{whole}, {GLOBAL} {place}, align {size}{_kept(w, access)}")

    if predicate is None:
        value = read()
    else:
        given = _vector(w, stored, [_stored(w, element, name) for name in other]) if other is not None else "zeroinitializer"
        if given == "zeroinitializer" and count == 1:
            given = "null" if stored == "ptr" else "0" if stored[0] == "i" else "0.0"
        before, then, join = w.current, w.new_block("then"), w.new_block("join")
        w.branch_if(predicate, then, join)
        w.place(then)
        found = read()
        w.branch(join)
        w.place(join)
        value = w.phi(whole, ((found, then), (given, before)))
    names = [value] if count == 1 else [w.emit(f"extractelement {whole} {value}, i32 {i}") for i in range(count)]
    return [w.emit(f"icmp ne i8 {name}, 0") for name in names] if register_type(element) == "i1" else names


def store(w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
    """See :meth:`tilewright.simt.target.SimtTarget.store`."""
    stored, count = storage_type(element), len(values)
    whole = f"<{count} x {stored}>" if count > 1 else stored
    place = global_pointer(w, pointer)
    value = _vector(w, stored, [_stored(w, element, name) for name in values])
    text = f"store {_volatile(access)}{whole} {value}, {GLOBAL} {place}, align {storage_size(element) * count}{_kept(w, access)}"
    if predicate is None:
        w.do(text)
        return
    with w.when(predicate):
        w.do(text)


def _volatile(access: Access) -> str:
    return "volatile " if access.volatile else ""


def _kept(w: FunctionWriter, access: Access) -> str:
    """Lines that are not wanted again leave the cache first; other hints have no instruction."""
    streamed = access.cache in ("cs", "cv") or access.eviction == "first"
    return f", !nontemporal {w.module.metadata('!{i32 1}')}" if streamed and not access.volatile else ""


def _stored(w: FunctionWriter, element: Type, name: str) -> str:
    return w.emit(f"zext i1 {name} to i8") if register_type(element) == "i1" else name


def _vector(w: FunctionWriter, type_: str, names: Sequence[str]) -> str:
    """One value of several; of one that element itself."""
    if len(names) == 1:
        return names[0]
    if all(name[0] != "%" for name in names):
        return f"<{', '.join(f'{type_} {name}' for name in names)}>"
    vector = "poison"
    for i, name in enumerate(names):
        vector = w.emit(f"insertelement <{len(names)} x {type_}> {vector}, {type_} {name}, i32 {i}")
    return vector
