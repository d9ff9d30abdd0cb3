"""Accesses of global memory: loads and stores of up to 16 bytes, and atomics.

Masked-off lanes of a load read zeros (:mod:`.memory_access`). Only the lanes whose predicate holds
execute a store or an atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.ir.types import BF16, Type
from tilewright.llvm.emission.atomics import (
    AtomicAccess,
    atomic_read,
    atomic_sum,
    atomic_update,
    atomic_write,
    compare_and_swap,
)
from tilewright.llvm.emission.registers import register_type, storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter, float_constant
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.global_memory import Access, GlobalMemory, Update
from tilewright_amd.architectures import Architecture
from tilewright_amd.codegen.memory_access import GLOBAL, global_pointer, readable
from tilewright_amd.codegen.vectors import elements, join

#: Atomic scope -> LLVM's ``syncscope``.
_SCOPES: Final = {"program": "workgroup", "device": "agent", "system": ""}
_ZERO_CONSTANTS: Final = frozenset(
    {"0", "0.0", "false", "null", float_constant("half", 0.0), float_constant("float", 0.0)}
)


class GcnGlobalMemory(GlobalMemory):
    """Accesses of global memory by a lane."""

    def __init__(self, row: Architecture) -> None:
        self._row = row

    def load(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        count: int,
        predicate: str | None,
        other: Sequence[str] | None,
        access: Access,
    ) -> list[str]:
        stored, size = storage_type(element), storage_size(element) * count
        whole = f"<{count} x {stored}>" if count > 1 else stored
        place = readable(w, pointer, predicate)
        value = w.emit(
            f"load {_volatile(access)}{whole}, {GLOBAL} {place}, align {size}{_kept(w, access)}"
        )
        if predicate is not None and other is not None and not _ZERO_CONSTANTS.issuperset(other):
            given = join(w, stored, [_stored(w, element, name) for name in other])
            value = w.emit(f"select i1 {predicate}, {whole} {value}, {whole} {given}")
        names = elements(w, stored, value, count)
        return (
            [w.emit(f"icmp ne i8 {name}, 0") for name in names]
            if register_type(element) == "i1"
            else names
        )

    def store(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        values: Sequence[str],
        predicate: str | None,
        access: Access,
    ) -> None:
        stored, count = storage_type(element), len(values)
        whole = f"<{count} x {stored}>" if count > 1 else stored
        place = global_pointer(w, pointer)
        value = join(w, stored, [_stored(w, element, name) for name in values])
        text = (
            f"store {_volatile(access)}{whole} {value}, {GLOBAL} {place}, align "
            f"{storage_size(element) * count}{_kept(w, access)}"
        )
        if predicate is None:
            w.do(text)
            return
        with w.when(predicate):
            w.do(text)

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        # as for all float atomics, packed adds are only valid in memory that is not fine-grained
        return 2 if kind == "add" and scope != "system" and element in self._row.packed_adds else 1

    def atomic_rmw(
        self,
        context: SimtContext,
        update: Update,
        pointer: str,
        values: Sequence[str],
        predicate: str | None,
    ) -> list[str]:
        w, element, order = context.writer, update.element, update.order
        if len(values) == 1:

            def one(place: str, reach: AtomicAccess) -> str:
                return atomic_update(context, update.kind, element, place, values[0], order, reach)

            return [_where(context, pointer, register_type(element), predicate, update.scope, one)]
        register, kept = (
            register_type(element),
            "bfloat" if element is BF16 else register_type(element),
        )
        pair = (
            w.emit(f"bitcast <2 x {register}> {join(w, register, values)} to <2 x {kept}>")
            if kept != register
            else join(w, register, values)
        )

        def both(place: str, reach: AtomicAccess) -> str:
            return atomic_sum(w, f"<2 x {kept}>", 4, place, pair, order, reach)

        old = _where(context, pointer, f"<2 x {kept}>", predicate, update.scope, both)
        if kept != register:
            old = w.emit(f"bitcast <2 x {kept}> {old} to <2 x {register}>")
        return [w.emit(f"extractelement <2 x {register}> {old}, i32 {i}") for i in range(2)]

    def atomic_cas(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        compare: str,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        def swap(place: str, reach: AtomicAccess) -> str:
            return compare_and_swap(context, element, place, compare, value, order, reach)

        return _where(context, pointer, register_type(element), predicate, scope, swap)

    def atomic_load(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        return _where(
            context,
            pointer,
            register_type(element),
            predicate,
            scope,
            lambda place, reach: atomic_read(context, element, place, order, reach),
        )

    def atomic_store(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> None:
        def write(place: str, reach: AtomicAccess) -> str:
            atomic_write(context, element, place, value, order, reach)
            return ""

        _where(context, pointer, register_type(element), predicate, scope, write)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        w.do(f"fence {AtomicAccess(scope=_SCOPES[scope]).order(order)}")


def _volatile(access: Access) -> str:
    return "volatile " if access.volatile else ""


def _kept(w: FunctionWriter, access: Access) -> str:
    """Return the metadata that makes an access nontemporal if its cache hint asks for streaming.

    Other hints have no instruction.
    """
    streamed = access.cache in ("cs", "cv") or access.eviction == "first"
    return (
        f", !nontemporal {w.module.metadata('!{i32 1}')}"
        if streamed and not access.volatile
        else ""
    )


def _stored(w: FunctionWriter, element: Type, name: str) -> str:
    return w.emit(f"zext i1 {name} to i8") if register_type(element) == "i1" else name


def _where(
    context: SimtContext,
    pointer: str,
    type_: str,
    predicate: str | None,
    scope: str,
    access: Callable[[str, AtomicAccess], str],
) -> str:
    """Access global memory where the predicate holds; yield zeros elsewhere."""
    w = context.writer
    place = global_pointer(w, pointer)
    # float atomics are only valid in memory that is not fine-grained; memory is fine-grained only
    # if its allocation requests it
    packed = (
        "" if scope == "system" else f", !amdgpu.no.fine.grained.memory {w.module.metadata('!{}')}"
    )
    reach = AtomicAccess(GLOBAL, _SCOPES[scope], packed)
    if predicate is None:
        return access(place, reach)
    before, then, join = w.current, w.new_block("then"), w.new_block("join")
    w.branch_if(predicate, then, join)
    w.place(then)
    found = access(place, reach)
    after = w.current
    w.branch(join)
    w.place(join)
    return (
        w.phi(type_, ((found, after), ("null" if type_ == "ptr" else "zeroinitializer", before)))
        if found
        else ""
    )
