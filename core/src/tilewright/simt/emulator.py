"""A machine for tests: programs of warps run on the host, each thread of a program as a thread of the operating system.

What :mod:`tilewright.simt` makes for a GPU is thus run anywhere, slowly, and stricter than hardware: shared memory is filled with a pattern before each
program, an asynchronous copy happens only when it is waited for, accesses must be aligned to their size, and threads that wait for a barrier the others do
not reach are reported instead of hanging.

    emulator.run(module, [x, y, out, n], (4, 1, 1), num_warps=2, warp_size=8)
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.errors import KernelError
from tilewright.ir.core import Module
from tilewright.ir.types import FloatType, IntType, PointerType, Type
from tilewright.llvm.atomics import atomic_read, atomic_update, atomic_write, compare_and_swap
from tilewright.llvm.compile import compile_to_object, host_target
from tilewright.llvm.link import load_object
from tilewright.llvm.registers import constant, register_type, storage_size, storage_type
from tilewright.llvm.writer import Block, FunctionWriter, ModuleWriter
from tilewright.simt.context import SimtContext
from tilewright.simt.target import Access, SimtTarget

#: Words of the block that all threads share; see :class:`_Words`.
_SHARED_BASE: Final = 0
_EXCHANGE: Final = 1
_FAULT: Final = 2
_GRID: Final = 3
_BARRIER: Final = 6
_WARP_BARRIERS: Final = 7
_BLOCK_WORDS: Final = _WARP_BARRIERS + 64

#: Words of a thread's queue of copies: committed groups, copies in the queue, then (group, to, from, bytes) each.
_QUEUE_ENTRIES: Final = 4096
_QUEUE_WORDS: Final = 2 + 4 * _QUEUE_ENTRIES

#: What went wrong, in the block's fault word. Assertions follow.
_MISALIGNED, _STUCK, _QUEUE_FULL, _ASSERTION = 1, 2, 3, 16
_FAULTS: Final = {
    _MISALIGNED: "an access is not aligned to its size",
    _STUCK: "threads wait for a barrier that others of the program do not reach",
    _QUEUE_FULL: "too many asynchronous copies are under way",
}

#: Turns a thread gives up the processor while it waits for the others, before it says it is stuck.
_PATIENCE: Final = 20_000_000


class EmulatedTarget(SimtTarget):
    """The emulated machine. Function parameters before the kernel's own: block, queue, lane, warp, and the program's position."""

    name = "emulator"

    def __init__(self, warp_size: int = 32, shared_memory: int = 64 * 1024, copy_widths: tuple[int, ...] = (4, 8, 16)) -> None:
        self.warp_size, self.shared_memory, self.copy_widths = warp_size, shared_memory, copy_widths
        #: messages of assertions, by fault number less ``_ASSERTION``
        self.messages: list[str] = []

    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        _write_helpers(module)
        own = [("ptr", "block"), ("ptr", "queue"), ("i32", "lane"), ("i32", "warp"), ("i32", "px"), ("i32", "py"), ("i32", "pz")]
        kernel = module.function(f"{name}.thread", [*own, *parameters])
        _write_thread_loop(module, kernel.name, [type_ for type_, _ in parameters], num_warps * self.warp_size)
        self._threads = num_warps * self.warp_size
        return kernel

    def shared_base(self, w: FunctionWriter) -> str:
        return _word(w, "%block", _SHARED_BASE, "ptr")

    def lane(self, w: FunctionWriter) -> str:
        return "%lane"

    def warp(self, w: FunctionWriter) -> str:
        return "%warp"

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        return f"%p{'xyz'[axis]}"

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        return w.emit(f"trunc i64 {_word(w, '%block', _GRID + axis, 'i64')} to i32")

    def barrier(self, w: FunctionWriter) -> None:
        w.do(f"call void @emulated_barrier(ptr %block, i64 {_BARRIER}, i32 {self._threads})")

    def _warp_barrier(self, w: FunctionWriter) -> None:
        which = w.emit(f"add i64 {w.emit('zext i32 %warp to i64')}, {_WARP_BARRIERS}")
        w.do(f"call void @emulated_barrier(ptr %block, i64 {which}, i32 {self.warp_size})")

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        exchange = _word(w, "%block", _EXCHANGE, "ptr")
        base = w.emit(f"mul i32 %warp, {self.warp_size}")

        def place(which: str) -> str:
            return w.emit(f"getelementptr i32, ptr {exchange}, i32 {w.emit(f'add i32 {base}, {which}')}")

        w.do(f"store i32 {value}, ptr {place('%lane')}, align 4")
        self._warp_barrier(w)
        result = w.load("i32", place(w.emit(f"and i32 {lane}, {self.warp_size - 1}")), 4)
        self._warp_barrier(w)
        return result

    # ---- memory

    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        type_, stored, size = register_type(element), storage_type(element), storage_size(element)
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

    def atomic_rmw(self, context: SimtContext, kind: str, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> str:
        return _when_else_garbage(context.writer, predicate, element, lambda: atomic_update(context, kind, element, pointer, value, order))

    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str:
        return _when_else_garbage(context.writer, predicate, element, lambda: compare_and_swap(context, element, pointer, compare, value, order))

    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        return _when_else_garbage(context.writer, predicate, element, lambda: atomic_read(context, element, pointer, order))

    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        _check_aligned(context.writer, pointer, storage_size(element), predicate)
        with context.writer.when(predicate or "true"):
            atomic_write(context, element, pointer, value, order)

    def clock(self, w: FunctionWriter) -> str:
        now = w.alloca("i64", 2)
        w.call("clock_gettime", "i32", [("i32", str(time.CLOCK_MONOTONIC)), ("ptr", now)])
        seconds, rest = (w.load("i64", w.gep("i64", now, i), 8) for i in range(2))
        return w.emit(f"add i64 {w.emit(f'mul i64 {seconds}, 1000000000')}, {rest}")

    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        with w.when(predicate or "true"):
            w.emit(f"atomicrmw add ptr {pointer}, i32 {value} seq_cst, align 4")

    def async_copy(self, w: FunctionWriter, shared: str, pointer: str, size: int, predicate: str | None) -> None:
        for address in (shared, pointer):
            _check_aligned(w, address, size, predicate)
        source = pointer if predicate is None else w.emit(f"select i1 {predicate}, ptr {pointer}, ptr null")
        w.do(f"call void @emulated_copy(ptr %block, ptr %queue, ptr {shared}, ptr {source}, i64 {size})")

    def async_commit(self, w: FunctionWriter) -> None:
        groups = w.load("i64", "%queue", 8)
        w.store("i64", w.emit(f"add i64 {groups}, 1"), "%queue", 8)

    def async_wait(self, w: FunctionWriter, pending: int) -> None:
        w.do(f"call void @emulated_wait(ptr %queue, i64 {pending})")

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
            _set_fault(context.writer, _ASSERTION + len(self.messages) - 1)


# ---- pieces of code


def _word(w: FunctionWriter, base: str, index: int, type_: str) -> str:
    return w.load(type_, w.gep("i64", base, index), 8)


def _set_fault(w: FunctionWriter, fault: int) -> None:
    w.do(f"store atomic i64 {fault}, ptr {w.gep('i64', '%block', _FAULT)} monotonic, align 8")


def _check_aligned(w: FunctionWriter, pointer: str, size: int, predicate: str | None) -> None:
    if size == 1:
        return
    address = w.emit(f"ptrtoint ptr {pointer} to i64")
    wrong = w.emit(f"icmp ne i64 {w.emit(f'and i64 {address}, {size - 1}')}, 0")
    if predicate is not None:
        wrong = w.emit(f"and i1 {wrong}, {predicate}")
    with w.when(wrong, likely=False):
        _set_fault(w, _MISALIGNED)


def _garbage(element: Type) -> str:
    """What a masked-off lane reads: something that shows."""
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


def _write_helpers(module: ModuleWriter) -> None:
    """Barriers and queues of copies."""
    w = module.function("emulated_barrier", [("ptr", "block"), ("i64", "which"), ("i32", "threads")], linkage="internal")
    module.declare("sched_yield", "i32", ())
    module.declare("pthread_exit", "void", ("ptr",))
    count = w.gep("i64", "%block", "%which")
    generation_place = w.emit(f"getelementptr i32, ptr {count}, i64 1")
    generation = w.emit(f"load atomic i32, ptr {generation_place} acquire, align 4")
    arrived = w.emit(f"atomicrmw add ptr {count}, i32 1 acq_rel, align 4")
    last, wait, check, stuck, done = (w.new_block(name) for name in ("last", "wait", "check", "stuck", "done"))
    w.branch_if(w.emit(f"icmp eq i32 {arrived}, {w.emit('sub i32 %threads, 1')}"), last, wait)
    start = w.current
    w.place(last)
    w.do(f"store atomic i32 0, ptr {count} monotonic, align 4")
    w.emit(f"atomicrmw add ptr {generation_place}, i32 1 release, align 4")
    w.branch(done)
    w.place(wait)
    turns = w.fresh("turns")
    next_turn = w.fresh("next")
    w.do(f"{turns} = phi i64 [ 0, %{start.label} ], [ {next_turn}, %{check.label} ]")
    now = w.emit(f"load atomic i32, ptr {generation_place} acquire, align 4")
    w.branch_if(w.emit(f"icmp eq i32 {now}, {generation}"), check, done)
    w.place(check)
    w.call("sched_yield", "i32", [])
    w.do(f"{next_turn} = add i64 {turns}, 1")
    fault = w.emit(f"load atomic i64, ptr {w.gep('i64', '%block', _FAULT)} monotonic, align 8")
    over = w.emit(f"icmp ugt i64 {next_turn}, {_PATIENCE}")
    gone = w.emit(f"icmp eq i64 {fault}, {_STUCK}")
    w.branch_if(w.emit(f"or i1 {over}, {gone}"), stuck, wait)
    w.place(stuck)
    _set_fault(w, _STUCK)
    w.call("pthread_exit", "void", [("ptr", "null")])
    w.unreachable()
    w.place(done)
    w.ret()

    w = module.function("emulated_copy", [("ptr", "block"), ("ptr", "queue"), ("ptr", "to"), ("ptr", "from"), ("i64", "size")], linkage="internal")
    group, length = _word(w, "%queue", 0, "i64"), _word(w, "%queue", 1, "i64")
    full, room, end = w.new_block("full"), w.new_block("room"), w.new_block("end")
    w.branch_if(w.emit(f"icmp uge i64 {length}, {_QUEUE_ENTRIES}"), full, room)
    w.place(full)
    _set_fault(w, _QUEUE_FULL)
    w.branch(end)
    w.place(room)
    entry = w.gep("i64", "%queue", w.emit(f"add i64 {w.emit(f'mul i64 {length}, 4')}, 2"))
    for i, (type_, name) in enumerate((("i64", group), ("ptr", "%to"), ("ptr", "%from"), ("i64", "%size"))):
        w.store(type_, name, w.gep("i64", entry, i), 8)
    w.store("i64", w.emit(f"add i64 {length}, 1"), w.gep("i64", "%queue", 1), 8)
    w.branch(end)
    w.place(end)
    w.ret()

    w = module.function("emulated_wait", [("ptr", "queue"), ("i64", "pending")], linkage="internal")
    module.declare("memcpy", "ptr", ("ptr", "ptr", "i64"))
    module.declare("memset", "ptr", ("ptr", "i32", "i64"))
    groups, length = _word(w, "%queue", 0, "i64"), _word(w, "%queue", 1, "i64")
    limit = w.emit(f"sub i64 {groups}, %pending")
    with w.loop("0", length, 1, [("i64", "0")]) as loop:
        entry = w.gep("i64", "%queue", w.emit(f"add i64 {w.emit(f'mul i64 {loop.index}, 4')}, 2"))
        group, to, source, size = (w.load(type_, w.gep("i64", entry, i), 8) for i, type_ in enumerate(("i64", "ptr", "ptr", "i64")))
        kept = loop.values[0]
        due = w.emit(f"icmp slt i64 {group}, {limit}")
        finish, keep, next_ = w.new_block("finish"), w.new_block("keep"), w.new_block("next")
        w.branch_if(due, finish, keep)
        w.place(finish)
        copy, clear = w.new_block("copy"), w.new_block("clear")
        w.branch_if(w.emit(f"icmp ne ptr {source}, null"), copy, clear)
        w.place(copy)
        w.call("memcpy", "ptr", [("ptr", to), ("ptr", source), ("i64", size)])
        w.branch(next_)
        w.place(clear)
        w.call("memset", "ptr", [("ptr", to), ("i32", "0"), ("i64", size)])
        w.branch(next_)
        w.place(keep)
        place = w.gep("i64", "%queue", w.emit(f"add i64 {w.emit(f'mul i64 {kept}, 4')}, 2"))
        for i, (type_, name) in enumerate((("i64", group), ("ptr", to), ("ptr", source), ("i64", size))):
            w.store(type_, name, w.gep("i64", place, i), 8)
        more = w.emit(f"add i64 {kept}, 1")
        w.branch(next_)
        w.place(next_)
        loop.next_values = [w.phi("i64", ((kept, copy), (kept, clear), (more, keep)))]
    w.store("i64", loop.results[0], w.gep("i64", "%queue", 1), 8)
    w.ret()


def _write_thread_loop(module: ModuleWriter, kernel: str, types: Sequence[str], threads: int) -> None:
    """``thread_main``: one thread goes through all programs. Its argument is words: block, queue, lane, warp, shared bytes, slots of arguments."""
    w = module.function("thread_main", [("ptr", "own")], "ptr")
    block, queue, slots = (_word(w, "%own", i, "ptr") for i in (0, 1, 5))
    lane, warp = (w.emit(f"trunc i64 {_word(w, '%own', i, 'i64')} to i32") for i in (2, 3))
    size = _word(w, "%own", 4, "i64")
    module.declare("memset", "ptr", ("ptr", "i32", "i64"))
    extents = [w.load("i64", w.gep("i64", block, _GRID + axis), 8) for axis in range(3)]
    arguments = [(type_, w.load("i8" if type_ == "i1" else type_, w.gep("i64", slots, i), 8)) for i, type_ in enumerate(types)]
    arguments = [(type_, w.emit(f"trunc i8 {name} to i1") if type_ == "i1" else name) for type_, name in arguments]
    first = w.emit(f"icmp eq i32 {w.emit(f'or i32 {lane}, {warp}')}, 0")

    def barrier() -> None:
        w.do(f"call void @emulated_barrier(ptr {block}, i64 {_BARRIER}, i32 {threads})")

    with w.loop("0", extents[2]) as z, w.loop("0", extents[1]) as y, w.loop("0", extents[0]) as x:
        barrier()
        with w.when(first):
            w.call("memset", "ptr", [("ptr", w.load("ptr", w.gep("i64", block, _SHARED_BASE), 8)), ("i32", "165"), ("i64", size)])
        w.store("i64", "0", queue, 8)
        w.store("i64", "0", w.gep("i64", queue, 1), 8)
        barrier()
        position = [("i32", w.emit(f"trunc i64 {loop.index} to i32")) for loop in (x, y, z)]
        given = [("ptr", block), ("ptr", queue), ("i32", lane), ("i32", warp), *position, *arguments]
        listed = ", ".join(f"{type_} {name}" for type_, name in given)
        w.do(f"call void @{kernel}({listed})")
    w.ret("ptr null")

    # start(threads' words, count): run them all
    w = module.function("start", [("ptr", "words"), ("i64", "count")])
    module.declare("pthread_create", "i32", ("ptr", "ptr", "ptr", "ptr"))
    module.declare("pthread_join", "i32", ("i64", "ptr"))
    with w.loop("0", "%count") as loop:
        own = w.gep("i64", "%words", w.emit(f"mul i64 {loop.index}, 8"))
        w.call("pthread_create", "i32", [("ptr", w.gep("i64", own, 7)), ("ptr", "null"), ("ptr", "@thread_main"), ("ptr", own)])
    with w.loop("0", "%count") as loop:
        own = w.gep("i64", "%words", w.emit(f"mul i64 {loop.index}, 8"))
        w.call("pthread_join", "i32", [("i64", w.load("i64", w.gep("i64", own, 7), 8)), ("ptr", "null")])
    w.ret()


# ---- running


@functools.cache
def _host() -> tuple[str, str, str]:
    return host_target()


def run_text(text: str, target: EmulatedTarget, types: Sequence[Type], arguments: Sequence[Any], grid: Sequence[int], num_warps: int) -> None:
    """Run LLVM IR that :func:`~tilewright.simt.lower.lower_function` wrote for ``target``. Arguments are NumPy arrays, addresses, and numbers.

    Raises:
        KernelError: an assertion of the kernel failed, an access is misaligned, or threads are stuck at a barrier.
    """
    triple, cpu, features = _host()
    loaded = load_object(compile_to_object(text, triple=triple, cpu=cpu, features=features, opt=1), ("start",))
    threads = num_warps * target.warp_size
    shared = np.zeros(target.shared_memory + 256, np.uint8)
    base = -(-shared.ctypes.data // 128) * 128
    exchange, queues = np.zeros(threads, np.int32), np.zeros((threads, _QUEUE_WORDS), np.int64)
    block = np.zeros(_BLOCK_WORDS, np.int64)
    block[_SHARED_BASE], block[_EXCHANGE] = base, exchange.ctypes.data
    block[_GRID : _GRID + 3] = grid
    slots = np.zeros(max(1, len(arguments)), np.int64)
    for i, (argument, type_) in enumerate(zip(arguments, types, strict=True)):
        _fill_slot(slots[i : i + 1], argument, type_)
    words = np.zeros((threads, 8), np.int64)
    for thread in range(threads):
        own = (block.ctypes.data, queues[thread].ctypes.data, thread % target.warp_size, thread // target.warp_size, target.shared_memory, slots.ctypes.data)
        words[thread, :6] = own
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address("start"))(words.ctypes.data, threads)
    fault = int(block[_FAULT])
    if fault >= _ASSERTION:
        raise KernelError(target.messages[fault - _ASSERTION])
    if fault:
        raise KernelError(_FAULTS[fault])


def _fill_slot(slot: Any, argument: Any, type_: Type) -> None:
    if isinstance(type_, PointerType):
        slot[0] = argument.ctypes.data if isinstance(argument, np.ndarray) else int(argument)
    elif isinstance(type_, IntType):
        slot[0] = np.uint64(int(argument) & (2**64 - 1)).astype(np.int64)
    else:
        assert isinstance(type_, FloatType)
        text = constant(type_, float(argument))
        kind = {"half": np.uint16, "float": np.float32, "double": np.float64}
        storage = register_type(type_)
        if storage == "half":
            slot.view(np.float16)[0] = argument
        elif storage in kind:
            slot.view(kind[storage])[0] = argument
        else:
            slot[0] = int(text)


def run(
    module: Module,
    arguments: Sequence[Any],
    grid: Sequence[int] = (1, 1, 1),
    *,
    num_warps: int = 4,
    warp_size: int = 32,
    target: EmulatedTarget | None = None,
    **options: Any,
) -> None:
    """Compile a module of Tile IR for the emulated machine and run it; arrays are changed in place. The module is changed.

    Args:
        arguments: in the order of the kernel's parameters after descriptors were expanded.
    """
    from tilewright.simt.compile import compile_kernel, kernel_of

    target = target or EmulatedTarget(warp_size)
    text, _ = compile_kernel(module, target, {"num_warps": num_warps, "num_stages": 2, "enable_fp_fusion": False, **options})
    types = [argument.type for argument in kernel_of(module).arguments]
    run_text(text, target, types, arguments, grid, num_warps)
