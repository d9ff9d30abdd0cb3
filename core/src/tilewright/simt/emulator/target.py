"""The emulated machine as the toolkit sees it: what
:class:`~tilewright.simt.target.simt_target.SimtTarget` asks, written as LLVM IR for the host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Function
from tilewright.ir.ops.control import While
from tilewright.ir.types import F16, F32, FloatType, IntType, Type
from tilewright.llvm.emission.atomics import (
    atomic_read,
    atomic_update,
    atomic_write,
    compare_and_swap,
)
from tilewright.llvm.emission.registers import constant, register_type, storage_size, storage_type
from tilewright.llvm.emission.writer import Block, FunctionWriter, ModuleWriter
from tilewright.simt.dialect.attributes import CLUSTER
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.ops.tensor_maps import Descriptors, FreeDescriptors, MakeDescriptor, ShowDescriptor, Tensor
from tilewright.simt.dialect.ops.tma import BlockCopy as BlockMove
from tilewright.simt.dialect.ops.tma import RowCopy
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.async_matmul import Matmuls
from tilewright.simt.emulator.blocks import BlockSite
from tilewright.simt.emulator.code import begin_kernel, call_engine, declare_helpers, let_others_go_on, set_fault, word
from tilewright.simt.emulator.multiply import MatmulSite, SumsSite
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import BARRIER, GROUPS, BlockCopy, CopyMechanism
from tilewright.simt.target.cost_model import MachineCosts
from tilewright.simt.target.simt_target import Access, MadeDescriptor, SimtTarget, Threads, Update


class EmulatedTarget(SimtTarget):
    """The emulated machine.

    Function parameters before the kernel's own: block, own, lane, warp, and the program's position.

    Attributes:
        completion, seed: when what is started happens, one of :data:`~.layout.MODES`, and how coins
            fall where it is ``random``.
        messages: of assertions, by fault number less that of the first.
        sites: the TMA copies and matmuls written so far, by which kernels call them.
        places: names of parts, by which kernels call them; the first is all of the program.
        matmuls_in_flight: what is known of asynchronous matmuls.
    """

    name = "emulator"

    max_threads, banks, max_access = 1024, 32, 16
    registers, register_file = 255, 65536
    costs = MachineCosts(
        operations={**dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt"), 4.0), **dict.fromkeys(("div", "rem"), 8.0)},
        sector=32, line=128, line_turn=1.6, access=2.0, trip=40.0, shuffle=12.0, shuffled_word=2.0, stored_word=1.5, selected_word=0.5,
        barrier=16, selects_per_shuffle=2, scratch=32 * 1024, other_registers=36,
    )  # fmt: skip

    barrier_bytes, part_warps = layout.OBJECT_BYTES, 1

    def __init__(
        self,
        warp_size: int = 32,
        shared_memory: int = 64 * 1024,
        copy_widths: tuple[int, ...] = (4, 8, 16),
        *,
        completion: str = "late",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.warp_size, self.shared_memory = warp_size, shared_memory
        self.mechanisms = (CopyMechanism("queue", GROUPS, copy_widths, start=start_copy),) if copy_widths else ()
        self.completion, self.seed = completion, seed
        self.messages: list[str] = []
        self.sites: list[BlockSite | MatmulSite | SumsSite] = []
        self.places = ["program"]
        self.matmuls_in_flight = Matmuls(self)
        self._part_places: dict[int, int] = {}
        self._cluster = 1
        #: whether threads may read memory until others have written it
        self._polls = False
        #: whether threads mark what they do to shared memory, for what goes through the async proxy
        self._marks = False
        #: how much memory for descriptors was met so far
        self._memories = 0

    def prepare(self, function: Function) -> None:
        self.matmuls_in_flight.begin(function)
        self._cluster = function.attributes.get(CLUSTER, 1)
        self._polls = any(isinstance(operation, While) for operation in function.walk())
        async_proxy = BlockMove | RowCopy | Multiplication
        self._marks = self.published and any(isinstance(one, async_proxy) for one in function.walk())
        names: dict[int, list[str]] = {}
        for partition in function.walk():
            if isinstance(partition, Partition):
                for number, part in enumerate(part for part in partition.parts if isinstance(part, Part)):
                    names.setdefault(number, []).append(part.name_)
        self._part_places = {number: len(self.places) + i for i, number in enumerate(names)}
        self.places += [f"part {' or '.join(dict.fromkeys(found))}" for found in names.values()]

    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        declare_helpers(module)
        kernel = begin_kernel(module, name, parameters)
        self.everyone = Threads(0, 0, num_warps)
        return kernel

    def add_site(self, site: BlockSite | MatmulSite | SumsSite) -> int:
        """The number by which kernels call a TMA copy or a matmul."""
        self.sites.append(site)
        return len(self.sites) - 1

    def shared_base(self, w: FunctionWriter) -> str:
        return word(w, "%block", _own_word(w, layout.SHARED_BASE), "ptr")

    def lane(self, w: FunctionWriter) -> str:
        return "%lane"

    def warp(self, w: FunctionWriter) -> str:
        return "%warp"

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        return f"%p{'xyz'[axis]}"

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        return w.emit(f"trunc i64 {word(w, '%block', layout.GRID + axis)} to i32")

    def rank(self, w: FunctionWriter) -> str:
        return w.emit(f"trunc i64 {word(w, '%own', layout.RANK)} to i32")

    # ---- threads together

    def _is_everyone(self, threads: Threads) -> bool:
        return threads.parts == 1 and threads.count == self.everyone.count

    def _place(self, threads: Threads) -> int:
        """The number of the part, or of the program, in :attr:`places`."""
        return 0 if self._is_everyone(threads) else self._part_places[threads.number]

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.number >= layout.MAX_PARTS:
            raise LoweringError(f"{self.name} runs {layout.MAX_PARTS} parts at most")
        which = layout.BARRIER if self._is_everyone(threads) else layout.PART_BARRIERS + threads.number
        self._barrier(w, layout.AT_BARRIER, self._place(threads), str(which), threads.count * self.warp_size)

    def _barrier(self, w: FunctionWriter, kind: int, place: int, which: str, threads: int) -> None:
        which = _own_word(w, which)
        w.do(f"call void @emulated_barrier(ptr %block, ptr %own, i64 {kind}, i64 {place}, i64 {which}, i32 {threads})")

    def meet(self, context: SimtContext) -> None:
        threads = self._cluster * self.everyone.count * self.warp_size
        record = f"i64 {layout.AT_BARRIER}, i64 0, i64 {layout.MEETING}, i32 {threads}"
        context.writer.do(f"call void @emulated_barrier(ptr %block, ptr %own, {record})")

    def warp_barrier(self, w: FunctionWriter) -> None:
        which = w.emit(f"add i64 {w.emit('zext i32 %warp to i64')}, {layout.WARP_BARRIERS}")
        self._barrier(w, layout.AT_WARP_BARRIER, 0, which, self.warp_size)

    def publish(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """A proxy fence: what the thread did before is in order with copies and matmuls."""
        if self._marks:
            fences = w.gep("i64", "%own", layout.FENCES)
            w.store("i64", w.emit(f"add i64 {w.load('i64', fences, 8)}, 1"), fences, 8)

    def touch_shared(self, w: FunctionWriter, address: str, *, writes: bool) -> None:
        if self._marks:
            marks = layout.WRITE_MARKS if writes else layout.READ_MARKS
            w.do(f"call void @emulated_touch(ptr %own, ptr {address}, i64 {marks})")

    def barrier_init(self, context: SimtContext, address: str, count: int) -> None:
        call_engine(context.writer, layout.INIT, [_number(context.writer, address), str(count)])

    def barrier_expect(self, context: SimtContext, address: str, size: int) -> None:
        call_engine(context.writer, layout.EXPECT, [_number(context.writer, address), str(size)])

    def barrier_arrive(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE, [_number(context.writer, address), "0"])

    def barrier_arrive_at_all(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE, [_number(context.writer, address), "1"])

    def barrier_arrive_after(self, context: SimtContext, address: str) -> None:
        call_engine(context.writer, layout.ARRIVE_AFTER, [_number(context.writer, address)])

    def take_accumulators(self, context: SimtContext, units: int, scratch: str) -> str:
        """The first unit is told in shared memory."""
        w = context.writer
        with w.when(context.is_first_thread()):
            call_engine(w, layout.TAKE_SUMS, [str(units), _number(w, scratch)])
        context.barrier()
        return w.load("i32", scratch, 4)

    def free_accumulators(self, context: SimtContext, units: int, memory: str) -> None:
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.FREE_SUMS)

    def barrier_wait(self, context: SimtContext, address: str, phase: str) -> None:
        w = context.writer
        parity = w.emit(f"zext i1 {phase} to i64")
        w.do(f"call void @emulated_await(ptr %block, ptr %own, i64 {self._place(context.threads)}, ptr {address}, i64 {parity})")

    def turn_wait(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        if order >= layout.MAX_ORDERS:
            raise LoweringError(f"{self.name} has {layout.MAX_ORDERS} orders of turns at most")
        w = context.writer
        turn = w.gep("i64", "%block", _own_word(w, layout.TURNS + order))
        record = f"i64 {layout.AT_TURN}, i64 {self._place(threads)}, ptr {turn}, i64 {0xFFFFFFFF}, i64 {place}, i64 1, ptr null"
        w.do(f"call void @emulated_wait_word(ptr %block, ptr %own, {record})")

    def turn_pass(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Once all threads of the part are where they pass it on."""
        self.barrier(context.writer, threads)
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.PASS_TURN, [str(order), str(place), str(of)])

    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        """The words of a descriptor, in memory of the thread's own."""
        with context.at_entry() as w:
            words = w.alloca("i64", len(operation.operands))
        for i, operand in enumerate(operation.operands):
            name = context.scalar(operand)
            context.writer.store("i64", _number(context.writer, name) if i == 0 else name, context.writer.gep("i64", words, i), 8)
        return words

    def descriptors(self, context: SimtContext, operation: Descriptors) -> str:
        number = str(self._memories)
        self._memories += 1
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.TAKE_MEMORY, [number])
        return number

    def make_descriptor(self, context: SimtContext, operation: MakeDescriptor, made: MadeDescriptor) -> str:
        """The words are put together in shared memory, and brought to memory of the thread's own."""
        with context.at_entry() as w:
            place = w.alloca("i64", 1 + 2 * len(made.extents))
        w = context.writer
        with w.when(context.is_first_thread()):
            words = [_number(w, made.base), *made.extents, *made.strides]
            for i, name in enumerate(words):
                w.store("i64", name, w.gep("i64", made.shared, i), 8)
            memory = w.emit(f"zext i32 {made.memory} to i64")
            call_engine(w, layout.MAKE_DESCRIPTOR, [memory, _number(w, made.shared), _number(w, place), str(len(words))])
        return place

    def show_descriptor(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.SHOW_DESCRIPTOR, [_number(context.writer, descriptor)])

    def free_descriptors(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        w = context.writer
        with w.when(context.is_first_thread()):
            call_engine(w, layout.FREE_MEMORY, [w.emit(f"zext i32 {memory} to i64")])

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        exchange = word(w, "%block", _own_word(w, layout.EXCHANGE), "ptr")
        base = w.emit(f"mul i32 %warp, {self.warp_size}")

        def place(which: str) -> str:
            return w.emit(f"getelementptr i32, ptr {exchange}, i32 {w.emit(f'add i32 {base}, {which}')}")

        w.do(f"store i32 {value}, ptr {place('%lane')}, align 4")
        self.warp_barrier(w)
        result = w.load("i32", place(w.emit(f"and i32 {lane}, {self.warp_size - 1}")), 4)
        self.warp_barrier(w)
        return result

    # ---- memory

    def _let_others_write(self, w: FunctionWriter) -> None:
        """Before a read: a thread that reads until it finds what others write has them go on."""
        if self._polls:
            let_others_go_on(w)

    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
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
        return [w.phi(type_, ((name, after), (rest, before))) for name, rest in zip(names, others, strict=True)]

    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        stored, size = storage_type(element), storage_size(element)
        _check_aligned(w, pointer, size * len(values), predicate)
        with w.when(predicate or "true"):
            for i, value in enumerate(values):
                if register_type(element) == "i1":
                    value = w.emit(f"zext i1 {value} to i8")
                w.do(f"store {stored} {value}, ptr {w.gep(stored, pointer, i)}, align {size}")

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        return self.max_access // storage_size(element) if kind == "add" and element in (F32, F16) else 1

    def atomic_rmw(self, context: SimtContext, update: Update, pointer: str, values: Sequence[str], predicate: str | None) -> list[str]:
        w = context.writer
        self._let_others_write(w)
        _check_aligned(w, pointer, storage_size(update.element) * len(values), predicate)

        def each(i: int, value: str) -> str:
            place = w.gep(storage_type(update.element), pointer, i) if i else pointer
            one = lambda: atomic_update(context, update.kind, update.element, place, value, update.order)  # noqa: E731
            return _when_else_garbage(w, predicate, update.element, one)

        return [each(i, value) for i, value in enumerate(values)]

    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str:
        self._let_others_write(context.writer)
        return _when_else_garbage(context.writer, predicate, element, lambda: compare_and_swap(context, element, pointer, compare, value, order))

    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        self._let_others_write(context.writer)
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        return _when_else_garbage(context.writer, predicate, element, lambda: atomic_read(context, element, pointer, order))

    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        with context.writer.when(predicate or "true"):
            atomic_write(context, element, pointer, value, order)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        w.do(f"fence {order}")

    def clock(self, w: FunctionWriter) -> str:
        now = w.alloca("i64", 2)
        w.call("clock_gettime", "i32", [("i32", str(time.CLOCK_MONOTONIC)), ("ptr", now)])
        seconds, rest = (w.load("i64", w.gep("i64", now, i), 8) for i in range(2))
        return w.emit(f"add i64 {w.emit(f'mul i64 {seconds}, 1000000000')}, {rest}")

    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        with w.when(predicate or "true"):
            self.touch_shared(w, pointer, writes=True)
            w.emit(f"atomicrmw add ptr {pointer}, i32 {value} seq_cst, align 4")

    # ---- what is in flight

    def commit(self, context: SimtContext, queue: str) -> None:
        w = context.writer
        if queue == COPIES.queue:
            place = w.gep("i64", word(w, "%own", layout.QUEUE, "ptr"), layout.QUEUE_GROUPS)
            w.store("i64", w.emit(f"add i64 {w.load('i64', place, 8)}, 1"), place, 8)
        elif queue in _QUEUES:
            call_engine(w, layout.COMMIT, [str(_QUEUES[queue])])
        else:
            super().commit(context, queue)

    def wait(self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]) -> list[list[str]]:
        if queue == COPIES.queue:
            context.writer.do(f"call void @emulated_wait(ptr %block, ptr %own, i64 {pending})")
        elif queue == STORES.queue:
            assert isinstance(context.operation, Wait)
            self._settle(context, queue, pending, written=context.operation.written)
        elif queue == MATMULS.queue:
            self._settle(context, queue, pending)
            return self.matmuls_in_flight.brought_back(context, names)
        else:
            return super().wait(context, queue, pending, names)
        return [list(tile) for tile in names]

    def _settle(self, context: SimtContext, queue: str, pending: int, *, written: bool = False) -> None:
        given = (self._place(context.threads), _QUEUES[queue], pending, int(written))
        context.writer.do(f"call void @emulated_settle(ptr %block, ptr %own, {', '.join(f'i64 {number}' for number in given)})")

    # ---- reports

    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        w = context.writer
        w.module.declare("printf", "i32", ("ptr", "..."))
        text = w.module.string(form.encode())
        with w.when(predicate or "true"):
            listed = "".join(f", {type_} {name}" for type_, name in operands)
            w.emit(f"call i32 (ptr, ...) @printf(ptr {text}{listed})")

    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        self.messages.append(f"{message} ({file}:{line} in {function})")
        with context.writer.when(predicate):
            set_fault(context.writer, layout.ASSERTION + len(self.messages) - 1)


# ---- pieces of code

#: The queues that the engine has.
_QUEUES = {STORES.queue: layout.STORE_QUEUE, MATMULS.queue: layout.MATMUL_QUEUE}


def _own_word(w: FunctionWriter, index: int | str) -> str:
    """The index of a word in the row of this thread's block."""
    return w.emit(f"add i64 %row, {index}")


def _number(w: FunctionWriter, address: str) -> str:
    """An address as a number."""
    return w.emit(f"ptrtoint ptr {address} to i64")


def bulk_mechanism(*, stores: bool = True) -> CopyMechanism:
    """TMA copies, and of rows, that complete on mbarriers, and back where ``stores`` asks for it."""
    store = _store_block if stores else None
    return CopyMechanism("bulk", BARRIER, start=_load_block, store=store, fills_rows=_any_layout, shares=_shares)


def _any_layout(shared: SharedLayout, element: Type) -> bool:
    return True


def _shares(shared: SharedLayout, element: Type, blocks: int) -> bool:
    return shared.shape[0] % blocks == 0


def _load_block(context: SimtContext, copy: BlockCopy) -> None:
    _call_block(context, layout.LOAD_BLOCK, copy, [copy.barrier])


def _store_block(context: SimtContext, copy: BlockCopy) -> None:
    _call_block(context, layout.STORE_BLOCK, copy, [])


def _call_block(context: SimtContext, code: int, copy: BlockCopy, barrier: Sequence[str]) -> None:
    target, w = context.target, context.writer
    assert isinstance(target, EmulatedTarget)
    assert isinstance(context.operation, BlockMove | RowCopy)
    made = isinstance(context.operation.descriptor.definition, MakeDescriptor)
    site = target.add_site(BlockSite(copy.layout, copy.element, copy.padding, copy.bytes, made, copy.parts, bool(copy.rows)))
    places = [_number(w, address) for address in (copy.shared, copy.descriptor, *barrier)]
    numbers = []
    for row in range(copy.layout.shape[0]) if copy.rows else ():
        place = w.gep("i32", copy.rows, row)
        target.touch_shared(w, place, writes=False)
        numbers.append(w.load("i32", place, 4))
    call_engine(w, code, [str(site), *places, *(w.emit(f"sext i32 {offset} to i64") for offset in (*copy.offsets, *numbers))])


def start_copy(context: SimtContext, shared: str, pointer: str, size: int, predicate: str | None) -> None:
    """Start a copy of one thread; zeros where the predicate does not hold."""
    w = context.writer
    for address in (shared, pointer):
        _check_aligned(w, address, size, predicate)
    source = pointer if predicate is None else w.emit(f"select i1 {predicate}, ptr {pointer}, ptr null")
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
    after: Block = w.current
    w.branch(join)
    w.place(join)
    return w.phi(register_type(element), ((value, after), (_garbage(element), before)))
