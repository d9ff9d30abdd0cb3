"""Functions that all kernels of the emulated machine need: waits, barriers, queues of copies, the
threads' main function, and the one that schedules the threads. They are a module of their
own, compiled once a process.

Threads of the machine take turns on one thread of the operating system, each with a stack of its
own (POSIX's ucontext): one runs until it waits or calls the engine, then the next one does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt.emulator import layout

#: Turns of a wait between two looks whether all threads wait.
_LOOK: Final = 4
#: Bytes of a ``ucontext_t`` where one has a stack's address, its size, and the context to go on
#: with at the end; its own are fewer than :data:`~.layout.CONTEXT_BYTES` everywhere.
_STACK, _SIZE, _LINK = (8, 16, 32) if sys.platform == "darwin" else (16, 32, 8)


def word(w: FunctionWriter, base: str, index: int | str, type_: str = "i64") -> str:
    """A word of the block or of a thread."""
    return w.load(type_, w.gep("i64", base, index), 8)


def set_fault(w: FunctionWriter, fault: int) -> None:
    """Note what went wrong, if nothing did before."""
    w.emit(
        f"cmpxchg ptr {w.gep('i64', '%block', layout.FAULT)}, i64 0, i64 {fault} "
        "monotonic monotonic"
    )


def call_engine(w: FunctionWriter, code: int, arguments: Sequence[str] = ()) -> None:
    """Call the engine with i64 arguments; the thread ends if the engine finds an error."""
    place = w.alloca("i64", max(1, len(arguments)), 8)
    for i, argument in enumerate(arguments):
        w.store("i64", argument, w.gep("i64", place, i), 8)
    w.do(
        f"call void @emulated_call(ptr %block, ptr %own, i64 {code}, ptr {place}, i64 "
        f"{len(arguments)})"
    )


@functools.cache
def helpers() -> ModuleWriter:
    """The module of these functions, of which ``start`` begins it all."""
    module = ModuleWriter()
    for name, result, parameters in (
        ("swapcontext", "i32", ("ptr", "ptr")),
        ("setcontext", "i32", ("ptr",)),
        ("getcontext", "i32", ("ptr",)),
        ("makecontext", "void", ("ptr", "ptr", "i32", "...")),
        ("memcpy", "ptr", ("ptr", "ptr", "i64")),
        ("memmove", "ptr", ("ptr", "ptr", "i64")),
        ("memset", "ptr", ("ptr", "i32", "i64")),
    ):
        module.declare(name, result, parameters)
    for write in (
        _call,
        _rest,
        _wait_word,
        _barrier,
        _await,
        _settle,
        _touch,
        _perform,
        _copy,
        _wait,
        _thread_main,
        _start,
        _turn,
    ):
        write(module)
    return module


def called() -> list[FunctionWriter]:
    """Functions of :func:`helpers` that a kernel may call."""
    return [function for function in helpers().functions if function.name.startswith("emulated_")]


def declare_helpers(module: ModuleWriter) -> None:
    """Declare these functions in a kernel's module."""
    for function in called():
        module.declare(function.name, "void", [type_ for type_, _ in function.parameters])


def let_others_go_on(w: FunctionWriter) -> None:
    """The thread, which may wait for what others write, goes on at its next turn, unless something
    went wrong meanwhile."""
    w.do("call void @emulated_rest(ptr %block, ptr %own)")


def _switch(w: FunctionWriter) -> None:
    """The thread goes on at its next turn."""
    w.call(
        "swapcontext",
        "i32",
        [
            ("ptr", word(w, "%own", layout.CONTEXT, "ptr")),
            ("ptr", word(w, "%own", layout.HOME, "ptr")),
        ],
    )


def _end_thread(w: FunctionWriter) -> None:
    w.store("i64", "1", w.gep("i64", "%own", layout.ENDED), 8)
    w.call("setcontext", "i32", [("ptr", word(w, "%own", layout.HOME, "ptr"))])
    w.unreachable()


def _switch_and_end(w: FunctionWriter, predicate: str, base: str, index: int) -> None:
    """The thread goes on at its next turn, and has ended then if a number at ``base`` is below zero
    (``slt``), or is not zero (``ne``)."""
    _switch(w)
    over, go_on = w.new_block("over"), w.new_block("on")
    w.branch_if(w.emit(f"icmp {predicate} i64 {word(w, base, index)}, 0"), over, go_on)
    w.place(over)
    _end_thread(w)
    w.place(go_on)
    w.ret()


def _call(module: ModuleWriter) -> None:
    """A call is made by the scheduler, so that the engine runs on the stack of its own
    thread; then the thread goes on at once."""
    parameters = [
        ("ptr", "block"),
        ("ptr", "own"),
        ("i64", "code"),
        ("ptr", "arguments"),
        ("i64", "count"),
    ]
    w = module.function("emulated_call", parameters)
    for index, type_, value in (
        (layout.CODE, "i64", "%code"),
        (layout.ARGUMENTS, "ptr", "%arguments"),
        (layout.COUNT, "i64", "%count"),
    ):
        w.store(type_, value, w.gep("i64", "%own", index), 8)
    _switch_and_end(w, "slt", "%own", layout.ANSWER)


def _rest(module: ModuleWriter) -> None:
    w = module.function("emulated_rest", [("ptr", "block"), ("ptr", "own")])
    _switch_and_end(w, "ne", "%block", layout.STOP)


def _wait_word(module: ModuleWriter) -> None:
    """Wait until ``word & mask`` is ``value``, or, where ``equal`` is 0, is not.

    Copies that ``object`` waits for are forced meanwhile.
    """
    parameters = [
        ("ptr", "block"),
        ("ptr", "own"),
        ("i64", "kind"),
        ("i64", "part"),
        ("ptr", "word"),
        ("i64", "mask"),
        ("i64", "value"),
        ("i64", "equal"),
    ]
    w = module.function("emulated_wait_word", [*parameters, ("ptr", "object")])

    def holds() -> str:
        found = w.emit(f"zext i32 {w.emit('load atomic i32, ptr %word seq_cst, align 4')} to i64")
        same = w.emit(f"icmp eq i64 {w.emit(f'and i64 {found}, %mask')}, %value")
        return w.emit(f"xor i1 {same}, {w.emit('icmp eq i64 %equal, 0')}")

    def add(index: int, number: int) -> None:
        w.emit(f"atomicrmw add ptr {w.gep('i64', '%block', index)}, i64 {number} seq_cst")

    begin, again, idle, look, force, rest, leave, over, done = (
        w.new_block(name)
        for name in ("begin", "again", "idle", "look", "force", "rest", "leave", "over", "done")
    )
    w.branch_if(holds(), done, begin)
    w.place(begin)
    for index, name in (
        (layout.PART, "part"),
        (layout.MASK, "mask"),
        (layout.VALUE, "value"),
        (layout.EQUAL, "equal"),
    ):
        w.store("i64", f"%{name}", w.gep("i64", "%own", index), 8)
    for index, name in ((layout.WORD, "word"), (layout.OBJECT, "object")):
        w.store("ptr", f"%{name}", w.gep("i64", "%own", index), 8)
    w.do(f"store atomic i64 %kind, ptr {w.gep('i64', '%own', layout.KIND)} seq_cst, align 8")
    add(layout.WAITING, 1)
    w.branch(again)
    start = w.current
    w.place(again)
    turns, next_turn = w.fresh("turns"), w.fresh("next")
    w.do(f"{turns} = phi i64 [ 0, %{start.label} ], [ {next_turn}, %{rest.label} ]")
    w.branch_if(holds(), leave, idle)
    w.place(idle)
    w.do(f"{next_turn} = add i64 {turns}, 1")
    stop = w.emit(f"load atomic i64, ptr {w.gep('i64', '%block', layout.STOP)} seq_cst, align 8")
    check = w.new_block("check")
    w.branch_if(w.emit(f"icmp ne i64 {stop}, 0"), over, check)
    w.place(check)
    has_object = w.new_block("object")
    w.branch_if(w.emit("icmp eq ptr %object, null"), look, has_object)
    w.place(has_object)
    copies = w.emit(f"getelementptr i8, ptr %object, i64 {layout.OBJECT_COPIES}")
    pending = w.emit(f"load atomic i32, ptr {copies} seq_cst, align 4")
    w.branch_if(w.emit(f"icmp sgt i32 {pending}, 0"), force, look)
    w.place(force)
    call_engine(w, layout.FORCE, [w.emit("ptrtoint ptr %object to i64")])
    w.branch(rest)
    w.place(look)
    _switch(w)
    waiting, live = (
        w.emit(f"load atomic i64, ptr {w.gep('i64', '%block', index)} seq_cst, align 8")
        for index in (layout.WAITING, layout.LIVE)
    )
    due = w.emit(f"icmp eq i64 {w.emit(f'and i64 {turns}, {_LOOK - 1}')}, {_LOOK - 1}")
    all_wait = w.new_block("all")
    w.branch_if(w.emit(f"and i1 {due}, {w.emit(f'icmp eq i64 {waiting}, {live}')}"), all_wait, rest)
    w.place(all_wait)
    call_engine(w, layout.IS_STUCK)
    w.branch(rest)
    w.place(rest)
    w.branch(again)
    w.place(over)
    _end_thread(w)
    w.place(leave)
    # in this order: who sees all threads wait, and the same number of ended waits before and after,
    # saw them stand still
    add(layout.WAITING, -1)
    add(layout.PROGRESS, 1)
    w.do(f"store atomic i64 0, ptr {w.gep('i64', '%own', layout.KIND)} seq_cst, align 8")
    w.branch(done)
    w.place(done)
    w.ret()


def _barrier(module: ModuleWriter) -> None:
    parameters = [
        ("ptr", "block"),
        ("ptr", "own"),
        ("i64", "kind"),
        ("i64", "part"),
        ("i64", "which"),
        ("i32", "threads"),
    ]
    w = module.function("emulated_barrier", parameters)
    count = w.gep("i64", "%block", "%which")
    place = w.emit(f"getelementptr i32, ptr {count}, i64 1")
    generation = w.emit(f"load atomic i32, ptr {place} seq_cst, align 4")
    arrived = w.emit(f"atomicrmw add ptr {count}, i32 1 seq_cst, align 4")
    last, wait, done = (w.new_block(name) for name in ("last", "wait", "done"))
    w.branch_if(w.emit(f"icmp eq i32 {arrived}, {w.emit('sub i32 %threads, 1')}"), last, wait)
    w.place(last)
    w.do(f"store atomic i32 0, ptr {count} seq_cst, align 4")
    w.emit(f"atomicrmw add ptr {place}, i32 1 seq_cst, align 4")
    w.branch(done)
    w.place(wait)
    before = w.emit(f"zext i32 {generation} to i64")
    w.do(
        f"call void @emulated_wait_word(ptr %block, ptr %own, i64 %kind, i64 %part, ptr {place}, "
        f"i64 {0xFFFFFFFF}, i64 {before}, i64 0, ptr null)"
    )
    w.branch(done)
    w.place(done)
    w.ret()


def _await(module: ModuleWriter) -> None:
    """Wait until the phase of a parity of an mbarrier has ended: until the one it is in has the
    other parity."""
    w = module.function(
        "emulated_await",
        [("ptr", "block"), ("ptr", "own"), ("i64", "part"), ("ptr", "object"), ("i64", "parity")],
    )
    mark = w.load("i32", w.emit(f"getelementptr i8, ptr %object, i64 {layout.OBJECT_MARK}"), 4)
    with w.when(w.emit(f"icmp ne i32 {mark}, {layout.MARK}"), likely=False):
        call_engine(w, layout.NO_OBJECT, [w.emit("ptrtoint ptr %object to i64")])
    w.do(
        f"call void @emulated_wait_word(ptr %block, ptr %own, i64 {layout.AT_OBJECT}, i64 %part, "
        "ptr %object, i64 1, i64 %parity, i64 0, ptr %object)"
    )
    w.ret()


def _settle(module: ModuleWriter) -> None:
    """Wait until ``pending`` groups of a queue of the engine are in flight, and where ``written``
    is not 0 nothing of the others is left to be written: threads beside it go on first, if the
    engine wants it so."""
    parameters = [
        ("ptr", "block"),
        ("ptr", "own"),
        ("i64", "part"),
        ("i64", "queue"),
        ("i64", "pending"),
        ("i64", "written"),
    ]
    w = module.function("emulated_settle", parameters)
    released = w.gep("i64", "%own", layout.RELEASED)
    w.store("i64", "1", released, 8)
    call_engine(w, layout.ASK, ["%queue", "%pending"])
    record = (
        f"i64 {layout.AT_QUEUE}, i64 %part, ptr {released}, i64 {0xFFFFFFFF}, i64 1, i64 "
        "1, ptr null"
    )
    w.do(f"call void @emulated_wait_word(ptr %block, ptr %own, {record})")
    call_engine(w, layout.SETTLE, ["%queue", "%pending", "%written"])
    w.ret()


def _touch(module: ModuleWriter) -> None:
    """Mark a generic-proxy access of shared memory with the number of the thread's fences."""
    w = module.function("emulated_touch", [("ptr", "own"), ("ptr", "address"), ("i64", "marks")])
    granule = w.emit(f"udiv i64 {w.emit('ptrtoint ptr %address to i64')}, {layout.GRANULE}")
    first = word(w, "%own", "%marks")
    distance = w.emit(f"mul i64 {granule}, 4")
    place = w.emit(f"inttoptr i64 {w.emit(f'add i64 {first}, {distance}')} to ptr")
    w.store("i32", w.emit(f"trunc i64 {word(w, '%own', layout.FENCES)} to i32"), place, 4)
    w.ret()


# ---- groups of copies


def _toss(w: FunctionWriter, queue: str) -> str:
    """An i1 by a thread's coin, which is a generator of Marsaglia's kind."""
    place = w.gep("i64", queue, layout.QUEUE_COIN)
    state = w.load("i64", place, 8)
    for shift, amount in (("shl", 13), ("lshr", 7), ("shl", 17)):
        state = w.emit(f"xor i64 {state}, {w.emit(f'{shift} i64 {state}, {amount}')}")
    w.store("i64", state, place, 8)
    return w.emit(f"icmp slt i64 {state}, 0")


def _perform(module: ModuleWriter) -> None:
    w = module.function("emulated_perform", [("ptr", "to"), ("ptr", "from"), ("i64", "size")])
    copy, clear, done = (w.new_block(name) for name in ("copy", "clear", "done"))
    w.branch_if(w.emit("icmp ne ptr %from, null"), copy, clear)
    w.place(copy)
    w.call("memcpy", "ptr", [("ptr", "%to"), ("ptr", "%from"), ("i64", "%size")])
    w.branch(done)
    w.place(clear)
    w.call("memset", "ptr", [("ptr", "%to"), ("i32", "0"), ("i64", "%size")])
    w.branch(done)
    w.place(done)
    w.ret()


def _copy(module: ModuleWriter) -> None:
    """Start a copy: it happens at once, or is put into the queue."""
    w = module.function(
        "emulated_copy",
        [("ptr", "block"), ("ptr", "own"), ("ptr", "to"), ("ptr", "from"), ("i64", "size")],
    )
    queue, mode = word(w, "%own", layout.QUEUE, "ptr"), word(w, "%block", layout.MODE)
    heads = w.emit(f"and i1 {_toss(w, queue)}, {w.emit(f'icmp eq i64 {mode}, {layout.RANDOM}')}")
    now, later, full, room, end = (
        w.new_block(name) for name in ("now", "later", "full", "room", "end")
    )
    at_once = [w.emit(f"icmp eq i64 {mode}, {one}") for one in (layout.EARLY, layout.CROSSED)]
    w.branch_if(w.emit(f"or i1 {heads}, {w.emit(f'or i1 {at_once[0]}, {at_once[1]}')}"), now, later)
    w.place(now)
    w.do("call void @emulated_perform(ptr %to, ptr %from, i64 %size)")
    w.branch(end)
    w.place(later)
    group, length = word(w, queue, layout.QUEUE_GROUPS), word(w, queue, layout.QUEUE_LENGTH)
    w.branch_if(w.emit(f"icmp uge i64 {length}, {layout.QUEUE_ENTRIES}"), full, room)
    w.place(full)
    set_fault(w, layout.QUEUE_FULL)
    w.branch(end)
    w.place(room)
    entry = _entry(w, queue, length)
    for i, (type_, name) in enumerate(
        (("i64", group), ("ptr", "%to"), ("ptr", "%from"), ("i64", "%size"))
    ):
        w.store(type_, name, w.gep("i64", entry, i), 8)
    w.store("i64", w.emit(f"add i64 {length}, 1"), w.gep("i64", queue, layout.QUEUE_LENGTH), 8)
    w.branch(end)
    w.place(end)
    w.ret()


def _entry(w: FunctionWriter, queue: str, index: str) -> str:
    return w.gep(
        "i64", queue, w.emit(f"add i64 {w.emit(f'mul i64 {index}, 4')}, {layout.QUEUE_FIRST}")
    )


def _wait(module: ModuleWriter) -> None:
    """Wait until ``pending`` groups are in flight: the copies of older ones, which the queue begins
    with, happen, the last one first."""
    w = module.function("emulated_wait", [("ptr", "block"), ("ptr", "own"), ("i64", "pending")])
    queue, mode = word(w, "%own", layout.QUEUE, "ptr"), word(w, "%block", layout.MODE)
    groups, length = word(w, queue, layout.QUEUE_GROUPS), word(w, queue, layout.QUEUE_LENGTH)
    limit = w.emit(f"sub i64 {groups}, %pending")
    with w.loop("0", length, 1, [("i64", "0")]) as count:
        due = w.emit(f"icmp slt i64 {w.load('i64', _entry(w, queue, count.index), 8)}, {limit}")
        count.next_values = [
            w.emit(f"add i64 {count.values[0]}, {w.emit(f'zext i1 {due} to i64')}")
        ]
    (due_count,) = count.results
    heads = _toss(w, queue)
    forwards = w.emit(f"and i1 {heads}, {w.emit(f'icmp eq i64 {mode}, {layout.RANDOM}')}")
    with w.loop("0", due_count, 1) as loop:
        last = w.emit(f"sub i64 {w.emit(f'sub i64 {due_count}, 1')}, {loop.index}")
        entry = _entry(w, queue, w.emit(f"select i1 {forwards}, i64 {loop.index}, i64 {last}"))
        to, source, size = (
            w.load(type_, w.gep("i64", entry, i), 8)
            for i, type_ in ((1, "ptr"), (2, "ptr"), (3, "i64"))
        )
        w.do(f"call void @emulated_perform(ptr {to}, ptr {source}, i64 {size})")
    left = w.emit(f"sub i64 {length}, {due_count}")
    w.call(
        "memmove",
        "ptr",
        [
            ("ptr", _entry(w, queue, "0")),
            ("ptr", _entry(w, queue, due_count)),
            ("i64", w.emit(f"mul i64 {left}, 32")),
        ],
    )
    w.store("i64", left, w.gep("i64", queue, layout.QUEUE_LENGTH), 8)
    w.ret()


# ---- threads


#: Where a thread is: its block's words, its row of them, its own words, its lane and warp, and the
#: program's place in the grid.
_PLACE: Final = (
    ("ptr", "block"),
    ("i64", "row"),
    ("ptr", "own"),
    ("i32", "lane"),
    ("i32", "warp"),
    ("i32", "px"),
    ("i32", "py"),
    ("i32", "pz"),
)


def begin_kernel(
    module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]]
) -> FunctionWriter:
    """The function of a kernel, and ``enter``, which calls it with a thread's place and what the
    slots hold for its parameters."""
    kernel = module.function(f"{name}.thread", [*_PLACE, *parameters])
    w = module.function("enter", _PLACE)
    slots = word(w, "%own", layout.SLOTS, "ptr")
    given = [(type_, f"%{name}") for type_, name in _PLACE]
    for i, (type_, _) in enumerate(parameters):
        value = w.load("i8" if type_ == "i1" else type_, w.gep("i64", slots, i), 8)
        given.append((type_, w.emit(f"trunc i8 {value} to i1") if type_ == "i1" else value))
    w.do(f"call void @{kernel.name}({_listed(given)})")
    w.ret()
    return kernel


def _listed(given: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{type_} {value}" for type_, value in given)


def _thread_main(module: ModuleWriter) -> None:
    """One thread goes through all programs."""
    # arguments of a context's function are ints
    w = module.function("thread_main", [("i32", "high"), ("i32", "low")], linkage="internal")
    high, low = (w.emit(f"zext i32 %{name} to i64") for name in ("high", "low"))
    address = w.emit(f"or i64 {w.emit(f'shl i64 {high}, 32')}, {low}")
    w.do(f"%own = inttoptr i64 {address} to ptr")
    block, queue = (word(w, "%own", index, "ptr") for index in (layout.BLOCK, layout.QUEUE))
    w.do(f"%block = getelementptr i8, ptr {block}, i64 0")
    lane, warp = (
        w.emit(f"trunc i64 {word(w, '%own', index)} to i32") for index in (layout.LANE, layout.WARP)
    )
    row = w.emit(f"mul i64 {word(w, '%own', layout.RANK)}, {layout.BLOCK_WORDS}")
    size, kernel = word(w, "%own", layout.SHARED_BYTES), word(w, "%block", layout.KERNEL, "ptr")
    threads = w.emit(f"trunc i64 {word(w, '%block', layout.THREADS)} to i32")
    is_cluster = w.emit(f"icmp sgt i64 {word(w, '%block', layout.BLOCKS)}, 1")
    extents = [word(w, "%block", layout.GRID + axis) for axis in range(3)]
    first = w.emit(f"icmp eq i32 {w.emit(f'or i32 {lane}, {warp}')}, 0")

    def between() -> None:
        """All threads meet, and the first one of each block makes the machine ready for the next
        program."""
        w.do(
            f"call void @emulated_barrier(ptr %block, ptr %own, i64 {layout.AT_BARRIER}, i64 0, "
            f"i64 {layout.BETWEEN}, i32 {threads})"
        )
        with w.when(first):
            w.call(
                "memset",
                "ptr",
                [
                    (
                        "ptr",
                        word(w, "%block", w.emit(f"add i64 {row}, {layout.SHARED_BASE}"), "ptr"),
                    ),
                    ("i32", "165"),
                    ("i64", size),
                ],
            )
            call_engine(w, layout.NEXT_PROGRAM)
        w.store("i64", "0", w.gep("i64", queue, layout.QUEUE_GROUPS), 8)
        w.store("i64", "0", w.gep("i64", queue, layout.QUEUE_LENGTH), 8)
        w.do(
            f"call void @emulated_barrier(ptr %block, ptr %own, i64 {layout.AT_BARRIER}, i64 0, "
            f"i64 {layout.BETWEEN}, i32 {threads})"
        )

    with w.loop("0", extents[2]) as z, w.loop("0", extents[1]) as y, w.loop("0", extents[0]) as x:
        between()
        position = [w.emit(f"trunc i64 {loop.index} to i32") for loop in (x, y, z)]
        given = ["%block", row, "%own", lane, warp, *position]
        place = [(type_, value) for (type_, _), value in zip(_PLACE, given, strict=True)]
        w.do(f"call void {kernel}({_listed(place)})")
        with w.when(is_cluster):
            call_engine(w, layout.LEAVE)
    between()
    w.emit(f"atomicrmw add ptr {w.gep('i64', '%block', layout.LIVE)}, i64 -1 seq_cst")
    w.emit(f"atomicrmw add ptr {w.gep('i64', '%block', layout.PROGRESS)}, i64 1 seq_cst")
    w.store("i64", "1", w.gep("i64", "%own", layout.ENDED), 8)
    w.ret()


def _start(module: ModuleWriter) -> None:
    """``start(threads' words, the order in which they have their turns, how many)``: run them all
    until they have ended."""
    w = module.function("start", [("ptr", "words"), ("ptr", "order"), ("i64", "count")])
    with w.loop("0", "%count") as loop:
        own = w.gep("i64", "%words", w.emit(f"mul i64 {loop.index}, {layout.THREAD_WORDS}"))
        context = word(w, own, layout.CONTEXT, "ptr")
        w.call("getcontext", "i32", [("ptr", context)])
        stack = w.emit(f"getelementptr i8, ptr {context}, i64 {layout.CONTEXT_BYTES}")
        for place, type_, value in (
            (_STACK, "ptr", stack),
            (_SIZE, "i64", str(layout.STACK_BYTES)),
            (_LINK, "ptr", word(w, own, layout.HOME, "ptr")),
        ):
            w.store(type_, value, w.emit(f"getelementptr i8, ptr {context}, i64 {place}"), 8)
        address = w.emit(f"ptrtoint ptr {own} to i64")
        high, low = (
            w.emit(f"trunc i64 {w.emit(f'lshr i64 {address}, 32')} to i32"),
            w.emit(f"trunc i64 {address} to i32"),
        )
        w.do(
            f"call void (ptr, ptr, i32, ...) @makecontext(ptr {context}, ptr @thread_main, i32 2, "
            f"i32 {high}, i32 {low})"
        )
    again, done = w.new_block("again"), w.new_block("done")
    w.branch(again)
    w.place(again)
    with w.loop("0", "%count", 1, [("i64", "0")]) as loop:
        own = w.gep(
            "i64",
            "%words",
            w.emit(f"mul i64 {word(w, '%order', loop.index)}, {layout.THREAD_WORDS}"),
        )
        ended = w.emit(f"icmp ne i64 {word(w, own, layout.ENDED)}, 0")
        mode = word(w, word(w, own, layout.BLOCK, "ptr"), layout.MODE)
        passes = w.emit(
            f"and i1 {_toss(w, word(w, own, layout.QUEUE, 'ptr'))}, "
            f"{w.emit(f'icmp eq i64 {mode}, {layout.RANDOM}')}"
        )
        with w.when(w.emit(f"xor i1 {w.emit(f'or i1 {ended}, {passes}')}, true")):
            w.do(f"call void @emulated_turn(ptr {own})")
        loop.next_values = [w.emit(f"add i64 {loop.values[0]}, {word(w, own, layout.ENDED)}")]
    (ended_count,) = loop.results
    w.branch_if(w.emit(f"icmp slt i64 {ended_count}, %count"), again, done)
    w.place(done)
    w.ret()


def _turn(module: ModuleWriter) -> None:
    """Let a thread go on until it waits, calling the engine for it."""
    w = module.function("emulated_turn", [("ptr", "own")])
    context, home, number = (
        word(w, "%own", layout.CONTEXT, "ptr"),
        word(w, "%own", layout.HOME, "ptr"),
        word(w, "%own", layout.NUMBER),
    )
    engine = word(w, word(w, "%own", layout.BLOCK, "ptr"), layout.ENGINE, "ptr")
    go_on, calls, done = w.new_block("on"), w.new_block("calls"), w.new_block("done")
    w.branch(go_on)
    w.place(go_on)
    w.call("swapcontext", "i32", [("ptr", home), ("ptr", context)])
    code = word(w, "%own", layout.CODE)
    w.branch_if(w.emit(f"icmp slt i64 {code}, 0"), done, calls)
    w.place(calls)
    w.store("i64", "-1", w.gep("i64", "%own", layout.CODE), 8)
    arguments, count = word(w, "%own", layout.ARGUMENTS, "ptr"), word(w, "%own", layout.COUNT)
    w.store(
        "i64",
        w.emit(f"call i64 {engine}(i64 {code}, i64 {number}, ptr {arguments}, i64 {count})"),
        w.gep("i64", "%own", layout.ANSWER),
        8,
    )
    w.branch(go_on)
    w.place(done)
    w.ret()


def own_word(w: FunctionWriter, index: int | str) -> str:
    """Emit the index of a word in the row of this thread's block."""
    return w.emit(f"add i64 %row, {index}")


def number_of(w: FunctionWriter, address: str) -> str:
    """Emit an address as a number."""
    return w.emit(f"ptrtoint ptr {address} to i64")
