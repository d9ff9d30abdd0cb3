"""Memory of the emulated machine: shuffles, shared and global memory, and copies in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.types import F16, F32, FloatType, IntType, Type
from tilewright.llvm.emission.atomics import (
    atomic_read,
    atomic_update,
    atomic_write,
    compare_and_swap,
)
from tilewright.llvm.emission.registers import constant, register_type, storage_size, storage_type
from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.code import call_engine, let_others_go_on, own_word, set_fault, word
from tilewright.simt.emulator.record import EmissionRecord
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.async_copy import AsyncCopies
from tilewright.simt.target.capabilities.cross_lane import CrossLane
from tilewright.simt.target.capabilities.global_memory import Access, GlobalMemory, Update
from tilewright.simt.target.capabilities.shared_memory import SharedMemory
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy
from tilewright.simt.target.copy_mechanism import CopyMechanism

#: Bytes of the widest atomic update.
_ATOMIC_BYTES = 16
#: The queues that the engine has.
_QUEUES = {STORES.queue: layout.STORE_QUEUE, MATMULS.queue: layout.MATMUL_QUEUE}


class EmulatedLanes(CrossLane):
    """Shuffles through memory of the program's own."""

    def __init__(self, record: EmissionRecord, threads: ThreadHierarchy) -> None:
        self._record, self._threads = record, threads

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        exchange = word(w, "%block", own_word(w, layout.EXCHANGE), "ptr")
        base = w.emit(f"mul i32 %warp, {self._record.warp_size}")

        def place(which: str) -> str:
            return w.emit(
                f"getelementptr i32, ptr {exchange}, i32 {w.emit(f'add i32 {base}, {which}')}"
            )

        w.do(f"store i32 {value}, ptr {place('%lane')}, align 4")
        self._threads.warp_barrier(w)
        result = w.load("i32", place(w.emit(f"and i32 {lane}, {self._record.warp_size - 1}")), 4)
        self._threads.warp_barrier(w)
        return result

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        return self.shuffle(w, value, w.emit(f"xor i32 {self._threads.lane(w)}, {mask}"))


class EmulatedShared(SharedMemory):
    """Shared memory, whose accesses are marked where the async proxy matters."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def base(self, w: FunctionWriter) -> str:
        return word(w, "%block", own_word(w, layout.SHARED_BASE), "ptr")

    def touch(self, w: FunctionWriter, address: str, *, writes: bool) -> None:
        if self._record.marks:
            marks = layout.WRITE_MARKS if writes else layout.READ_MARKS
            w.do(f"call void @emulated_touch(ptr %own, ptr {address}, i64 {marks})")

    def atomic_add(
        self, w: FunctionWriter, pointer: str, value: str, predicate: str | None
    ) -> None:
        with w.when(predicate or "true"):
            self.touch(w, pointer, writes=True)
            w.emit(f"atomicrmw add ptr {pointer}, i32 {value} seq_cst, align 4")


class EmulatedMemory(GlobalMemory):
    """Global memory: accesses must be aligned to their size."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def _let_others_write(self, w: FunctionWriter) -> None:
        """Before a read: a thread that reads until it finds what others write has them go on."""
        if self._record.polls:
            let_others_go_on(w)

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
        type_, stored, size = register_type(element), storage_type(element), storage_size(element)
        self._let_others_write(w)
        _check_aligned(w, pointer, size * count, predicate)

        def read() -> list[str]:
            names = []
            for i in range(count):
                name = w.emit(f"load {stored}, ptr {w.gep(stored, pointer, i)}, align {size}")
                names.append(w.emit(f"icmp ne i8 {name}, 0") if type_ == "i1" else name)
            return names

        if predicate is None:
            return read()
        before, then, join = w.current, w.new_block("then"), w.new_block("join")
        w.branch_if(predicate, then, join)
        w.place(then)
        names = read()
        after = w.current
        w.branch(join)
        w.place(join)
        others = other if other is not None else [_garbage(element)] * count
        return [
            w.phi(type_, ((name, after), (rest, before)))
            for name, rest in zip(names, others, strict=True)
        ]

    def store(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        values: Sequence[str],
        predicate: str | None,
        access: Access,
    ) -> None:
        stored, size = storage_type(element), storage_size(element)
        _check_aligned(w, pointer, size * len(values), predicate)
        with w.when(predicate or "true"):
            for i, value in enumerate(values):
                if register_type(element) == "i1":
                    value = w.emit(f"zext i1 {value} to i8")
                w.do(f"store {stored} {value}, ptr {w.gep(stored, pointer, i)}, align {size}")

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        return (
            _ATOMIC_BYTES // storage_size(element) if kind == "add" and element in (F32, F16) else 1
        )

    def atomic_rmw(
        self,
        context: SimtContext,
        update: Update,
        pointer: str,
        values: Sequence[str],
        predicate: str | None,
    ) -> list[str]:
        w = context.writer
        self._let_others_write(w)
        _check_aligned(w, pointer, storage_size(update.element) * len(values), predicate)

        def each(i: int, value: str) -> str:
            place = w.gep(storage_type(update.element), pointer, i) if i else pointer
            one = lambda: atomic_update(  # noqa: E731
                context, update.kind, update.element, place, value, update.order
            )
            return _when_else_garbage(w, predicate, update.element, one)

        return [each(i, value) for i, value in enumerate(values)]

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
        self._let_others_write(context.writer)
        return _when_else_garbage(
            context.writer,
            predicate,
            element,
            lambda: compare_and_swap(context, element, pointer, compare, value, order),
        )

    def atomic_load(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        self._let_others_write(context.writer)
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        return _when_else_garbage(
            context.writer,
            predicate,
            element,
            lambda: atomic_read(context, element, pointer, order),
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
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        with context.writer.when(predicate or "true"):
            atomic_write(context, element, pointer, value, order)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        w.do(f"fence {order}")


class EmulatedCopies(AsyncCopies):
    """Copies, bulk stores and matmuls in flight."""

    def __init__(self, record: EmissionRecord, mechanisms: Sequence[CopyMechanism] = ()) -> None:
        super().__init__(mechanisms)
        self._record = record

    def commit(self, context: SimtContext, queue: str) -> None:
        w = context.writer
        if queue == COPIES.queue:
            place = w.gep("i64", word(w, "%own", layout.QUEUE, "ptr"), layout.QUEUE_GROUPS)
            w.store("i64", w.emit(f"add i64 {w.load('i64', place, 8)}, 1"), place, 8)
        elif queue in _QUEUES:
            call_engine(w, layout.COMMIT, [str(_QUEUES[queue])])
        else:
            super().commit(context, queue)

    def wait(
        self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        if queue == COPIES.queue:
            context.writer.do(f"call void @emulated_wait(ptr %block, ptr %own, i64 {pending})")
        elif queue == STORES.queue:
            assert isinstance(context.operation, Wait)
            self._settle(context, queue, pending, written=context.operation.written)
        elif queue == MATMULS.queue:
            self._settle(context, queue, pending)
            return self._record.matmuls_in_flight.brought_back(context, names)
        else:
            return super().wait(context, queue, pending, names)
        return [list(tile) for tile in names]

    def _settle(
        self, context: SimtContext, queue: str, pending: int, *, written: bool = False
    ) -> None:
        given = (self._record.place(context.threads), _QUEUES[queue], pending, int(written))
        context.writer.do(
            "call void @emulated_settle(ptr %block, ptr %own, "
            f"{', '.join(f'i64 {number}' for number in given)})"
        )


def start_copy(
    context: SimtContext, shared: str, pointer: str, size: int, predicate: str | None
) -> None:
    """Start a copy of one thread; zeros where the predicate does not hold."""
    w = context.writer
    for address in (shared, pointer):
        _check_aligned(w, address, size, predicate)
    source = (
        pointer if predicate is None else w.emit(f"select i1 {predicate}, ptr {pointer}, ptr null")
    )
    w.do(f"call void @emulated_copy(ptr %block, ptr %own, ptr {shared}, ptr {source}, i64 {size})")


def _check_aligned(w: FunctionWriter, pointer: str, size: int, predicate: str | None) -> None:
    if size == 1:
        return
    address = w.emit(f"ptrtoint ptr {pointer} to i64")
    wrong = w.emit(f"icmp ne i64 {w.emit(f'and i64 {address}, {size - 1}')}, 0")
    if predicate is not None:
        wrong = w.emit(f"and i1 {wrong}, {predicate}")
    with w.when(wrong, likely=False):
        set_fault(w, layout.MISALIGNED)


def _garbage(element: Type) -> str:
    """Return a conspicuous value for masked-off lanes that must not be observed."""
    if isinstance(element, FloatType):
        return constant(element, float("nan"))
    if isinstance(element, IntType) and element.bits > 1:
        return constant(element, 77)
    return constant(element, 0)


def _when_else_garbage(w: FunctionWriter, predicate: str | None, element: Type, body: Any) -> str:
    if predicate is None:
        return str(body())
    before, then, join = w.current, w.new_block("then"), w.new_block("join")
    w.branch_if(predicate, then, join)
    w.place(then)
    value = body()
    after: BasicBlock = w.current
    w.branch(join)
    w.place(join)
    return w.phi(register_type(element), ((value, after), (_garbage(element), before)))
