"""Threads of the emulated machine: coordinates, clusters, barriers, mbarriers, named barriers."""

from __future__ import annotations

from tilewright.errors import LoweringError
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.code import call_engine, number_of, own_word, word
from tilewright.simt.emulator.record import EmissionRecord
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.async_proxy import AsyncProxy
from tilewright.simt.target.capabilities.clusters import Clusters
from tilewright.simt.target.capabilities.mbarriers import Mbarriers
from tilewright.simt.target.capabilities.named_barriers import NamedBarriers
from tilewright.simt.target.capabilities.tensor_memory import TensorMemory
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy, Threads


class EmulatedThreads(ThreadHierarchy):
    """Coordinates from the thread's own memory, and barriers by the engine."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def lane(self, w: FunctionWriter) -> str:
        return "%lane"

    def warp(self, w: FunctionWriter) -> str:
        return "%warp"

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        return f"%p{'xyz'[axis]}"

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        return w.emit(f"trunc i64 {word(w, '%block', layout.GRID + axis)} to i32")

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.number >= layout.MAX_PARTS:
            raise LoweringError(f"{self._record.name} runs {layout.MAX_PARTS} parts at most")
        which = (
            layout.BARRIER
            if self._record.is_everyone(threads)
            else layout.PART_BARRIERS + threads.number
        )
        barrier_of(
            w,
            layout.AT_BARRIER,
            self._record.place(threads),
            str(which),
            threads.count * self._record.warp_size,
        )

    def warp_barrier(self, w: FunctionWriter) -> None:
        which = w.emit(f"add i64 {w.emit('zext i32 %warp to i64')}, {layout.WARP_BARRIERS}")
        barrier_of(w, layout.AT_WARP_BARRIER, 0, which, self._record.warp_size)


def barrier_of(w: FunctionWriter, kind: int, place: int, which: str, threads: int) -> None:
    """Emit a barrier of so many threads, in a word of the program's."""
    which = own_word(w, which)
    w.do(
        f"call void @emulated_barrier(ptr %block, ptr %own, i64 {kind}, i64 {place}, i64 {which}, "
        f"i32 {threads})"
    )


class EmulatedProxy(AsyncProxy):
    """The async proxy: threads count their fences, which marks of accesses compare."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def fence(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """A proxy fence: what the thread did before is in order with copies and matmuls."""
        if self._record.marks:
            fences = w.gep("i64", "%own", layout.FENCES)
            w.store("i64", w.emit(f"add i64 {w.load('i64', fences, 8)}, 1"), fences, 8)


class EmulatedMbarriers(Mbarriers):
    """Mbarriers, which the engine counts for."""

    bytes = layout.OBJECT_BYTES

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def initialize(self, context: SimtContext, address: str, count: int) -> None:
        call_engine(context.writer, layout.INIT, [number_of(context.writer, address), str(count)])

    def expect(self, context: SimtContext, address: str, size: int) -> None:
        call_engine(context.writer, layout.EXPECT, [number_of(context.writer, address), str(size)])

    def arrive(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE, [number_of(context.writer, address), "0"])

    def wait(self, context: SimtContext, address: str, phase: str) -> None:
        w = context.writer
        parity = w.emit(f"zext i1 {phase} to i64")
        w.do(
            "call void @emulated_await(ptr %block, ptr %own, i64 "
            f"{self._record.place(context.threads)}, ptr {address}, i64 {parity})"
        )


class EmulatedClusters(Clusters):
    """Clusters of up to ``max_ctas`` CTAs; kernels that are written for larger ones run as well."""

    def __init__(self, record: EmissionRecord, max_ctas: int = 1) -> None:
        self._record, self.max_ctas = record, max_ctas

    def rank(self, w: FunctionWriter) -> str:
        return w.emit(f"trunc i64 {word(w, '%own', layout.RANK)} to i32")

    def barrier(self, context: SimtContext) -> None:
        threads = self._record.cluster * self._record.everyone.count * self._record.warp_size
        record = f"i64 {layout.AT_BARRIER}, i64 0, i64 {layout.MEETING}, i32 {threads}"
        context.writer.do(f"call void @emulated_barrier(ptr %block, ptr %own, {record})")

    def arrive_at_all(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE, [number_of(context.writer, address), "1"])


class EmulatedTensorMemory(TensorMemory):
    """Tensor memory, which the engine has."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def allocate(self, context: SimtContext, columns: int, scratch: str) -> str:
        """The first unit is written to shared memory."""
        w = context.writer
        with w.when(context.is_first_thread()):
            call_engine(w, layout.TAKE_ACCUMULATORS, [str(columns), number_of(w, scratch)])
        context.barrier()
        return w.load("i32", scratch, 4)

    def free(self, context: SimtContext, columns: int, memory: str) -> None:
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.FREE_ACCUMULATORS)

    def arrive_after(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE_AFTER, [number_of(context.writer, address)])


class EmulatedNamedBarriers(NamedBarriers):
    """Named barriers as ordered hand-offs; the engine keeps track of whose turn it is."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def wait(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        if order >= layout.MAX_ORDERS:
            raise LoweringError(
                f"{self._record.name} has {layout.MAX_ORDERS} orders of turns at most"
            )
        w = context.writer
        turn = w.gep("i64", "%block", own_word(w, layout.TURNS + order))
        record = (
            f"i64 {layout.AT_TURN}, i64 {self._record.place(threads)}, ptr {turn}, i64 "
            f"{0xFFFFFFFF}, i64 {place}, i64 1, ptr null"
        )
        w.do(f"call void @emulated_wait_word(ptr %block, ptr %own, {record})")

    def hand_over(
        self, context: SimtContext, order: int, place: int, of: int, threads: Threads
    ) -> None:
        """Once all threads of the part are where they pass it on."""
        context.target.threads.barrier(context.writer, threads)
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.PASS_TURN, [str(order), str(place), str(of)])
