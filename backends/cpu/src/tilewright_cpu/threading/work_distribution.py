"""Work distribution among threads, and the measurement of a kernel's cost.

The programs of a job are cut into per-thread queues, called *lanes*. A thread takes ``chunk``
programs at a time from the lane of its own number, so that launches of one grid find their data in
the same core's caches, and then from the lanes of others until none is left. Kernel records, jobs:
:mod:`.pool_state`. Signals and cancelled launches: :mod:`.interrupts`.
"""

from __future__ import annotations

from typing import Final

from tilewright_cpu.status import ALIGNMENT, INTERRUPTED, OUT_OF_MEMORY
from tilewright_cpu.threading.interrupts import HALT, HEED, LISTENS, STATUS_OF
from tilewright_cpu.threading.pool_state import JOB, KERNEL, LANE, PACE, RAISED, NativeTarget
from tilewright_cpu.threading.typed_writer import NativeModule, Order, Place, Signature

SHARE: Final = Signature("share", "i64", job="ptr", number="i64")
SHARE_TIMED: Final = Signature("share_timed", job="ptr")
SHARE_NUMBERED: Final = Signature("share_numbered", job="ptr", number="i64", internal=True)
SHARE_LEARNING: Final = Signature("share_learning", "i64", kernel="ptr", job="ptr", internal=True)
LEARN: Final = Signature("learn", kernel="ptr", cycles="i64", done="i64", internal=True)
ESTIMATE: Final = Signature("estimate", "i64", kernel="ptr", programs="i64")
PREPARE: Final = Signature(
    "prepare",
    job="ptr",
    lanes="ptr",
    kernel="ptr",
    arguments="ptr",
    programs="i64",
    threads="i64",
)
SERIAL: Final = Signature("serial", kernel="ptr", arguments="ptr", programs="i64")
_SERIAL_IN_CHUNKS: Final = Signature(
    "serial_in_chunks",
    kernel="ptr",
    arguments="ptr",
    programs="i64",
    internal=True,
    inlined=False,
)
_ALLOCATE: Final = Signature(
    "allocate",
    "ptr",
    status="ptr",
    size="i64",
    cleared="i64",
    internal=True,
    inlined=False,
)

_MALLOC: Final = Signature("malloc", "ptr", size="i64")
_FREE: Final = Signature("free", memory="ptr")
_MEMSET: Final = Signature("llvm.memset.p0.i64", memory="ptr", byte="i8", size="i64", volatile="i1")


def write_distribution(module: NativeModule, target: NativeTarget) -> None:
    """Write the functions of this module."""
    _write_allocate(module)
    _write_share(module, target)
    _write_share_timed(module)
    _write_share_numbered(module, target)
    _write_learn(module)
    _write_share_learning(module, target)
    _write_estimate(module)
    _write_serial_in_chunks(module)
    _write_serial(module, target)
    _write_prepare(module)


def _write_allocate(module: NativeModule) -> None:
    """Memory for a thread's part of a launch, of a size plus what it takes to align it.

    Where there is none the function returns null, and says so in the launch's status.
    """
    f = module.define(_ALLOCATE)
    status, size, cleared = f.parameters
    fail, clear, zero, out = f.label("fail"), f.label("clear"), f.label("zero"), f.label("out")
    new = f.call(_MALLOC, size + ALIGNMENT)
    f.branch(new.equals(None), fail, clear)
    f.place(fail)
    word = Place(f, status.text, "i32")
    word.compare_exchange(0, OUT_OF_MEMORY, Order.RELAXED, Order.RELAXED)
    f.ret(None)
    f.place(clear)
    f.branch(cleared.differs(0), zero, out)
    f.place(zero)
    f.call(_MEMSET, new, 0, cleared + ALIGNMENT, False)
    f.jump(out)
    f.place(out)
    f.ret(new)


def _write_share(module: NativeModule, target: NativeTarget) -> None:
    """Take chunks of a job, from the lane of a number on, until none is left; return how many
    programs ran.

    Without memory that they need they count, but do not run.
    """
    f = module.define(SHARE)
    at, number = f.parameters
    job = JOB.at(at)
    allocate, begin, attend = f.label("allocate"), f.label("begin", "ptr"), f.label("attend")
    carried = ("i64", "i64", "i1", "i64", "i64")
    lane, take = f.label("lane", "i64", *carried), f.label("take", "i64", "i64", "i64", "i64")
    look, grab, run, call = f.label("look"), f.label("grab"), f.label("run"), f.label("call")
    ran, timed, heed = f.label("ran"), f.label("timed"), f.label("heed")
    empty, none, drop, out = f.label("empty"), f.label("none"), f.label("drop"), f.label("out")

    function, arguments = job["function"].load(), job["arguments"].load()
    chunk, count = job["chunk"].load(), job["lanes"].load()
    lanes, slow = job["lane"].load(), job["pace"].load()
    throttled = slow.differs(0)
    size0 = f.choose(throttled, slow, chunk)
    stop = Place(f, f.call(STATUS_OF, arguments).text, "i32")
    budget = PACE.place(f).load()
    quarter, interval = budget >> 2, budget << 6
    needed = job["memory"].load()
    large = needed.differs(0)
    f.branch(large, allocate, begin(None))

    f.place(allocate)
    cleared = job["cleared"].load()
    f.jump(begin(f.call(_ALLOCATE, stop.address, needed, cleared)))

    (raw,) = f.place(begin)
    memory = ((raw.as_integer() + (ALIGNMENT - 1)) & -ALIGNMENT).as_pointer()
    unable = large & raw.equals(None)
    f.branch(throttled, attend, lane(0, 0, size0, False, 0, 0))

    f.place(attend)
    attends, start = f.call(LISTENS), target.now(f)
    f.jump(lane(0, 0, size0, attends, start, start))

    turn, so_far, size1, listens, since1, heeded1 = f.place(lane)
    own = f.element(LANE, lanes, (number + turn) % count)
    following, bound = f.word(own), f.word(own, 1)
    end = bound.load()
    f.jump(take(so_far, size1, since1, heeded1))

    done, size, since, heeded = f.place(take)
    f.branch(stop.atomic_load(Order.RELAXED).equals(INTERRUPTED), none, look)

    # a lane that is empty is only looked at: adding to it would take its cache line from its thread
    f.place(look)
    f.branch(following.atomic_load(Order.RELAXED) < end, grab, empty)

    f.place(grab)
    first = following.fetch_add(size, Order.RELAXED)
    f.branch(first < end, run, empty)

    f.place(run)
    last = f.minimum(first + size, end)
    f.branch(unable, ran, call)

    f.place(call)
    f.call_address(function, "void", arguments, first, last, memory)
    f.jump(ran)

    f.place(ran)
    total = done + (last - first)
    f.branch(throttled, timed, take(total, size, since, heeded))

    f.place(timed)
    now = target.now(f)
    took = now - since
    quick, late = took < quarter, took > budget
    twice, half = size << 1, f.maximum(size >> 1, 1)
    fewer = f.choose(late, half, size)
    resized = f.choose(quick, f.minimum(twice, chunk), fewer)
    due = listens & ((now - heeded) >= interval)
    f.branch(due, heed, take(total, resized, now, heeded))

    f.place(heed)
    f.call(HEED, arguments)
    # handlers took their time, and so did the interpreter lock
    after = target.now(f)
    f.jump(take(total, resized, after, after))

    f.place(empty)
    next_turn = turn + 1
    f.branch(next_turn < count, lane(next_turn, done, size, listens, since, heeded), none)

    f.place(none)
    f.branch(large, drop, out)

    f.place(drop)
    f.call(_FREE, raw)
    f.jump(out)

    f.place(out)
    f.ret(done)


def _write_share_timed(module: NativeModule) -> None:
    """Take chunks in the next free lane, and add the cycles and programs to the job's totals."""
    f = module.define(SHARE_TIMED)
    (job,) = f.parameters
    f.call(SHARE_NUMBERED, job, JOB.at(job)["entered"].fetch_add(1, Order.RELAXED))
    f.ret()


def _write_share_numbered(module: NativeModule, target: NativeTarget) -> None:
    f = module.define(SHARE_NUMBERED)
    job, number = f.parameters
    add, out = f.label("add"), f.label("out")
    start = target.now(f)
    done = f.call(SHARE, job, number)
    cycles = target.now(f) - start
    f.branch(done.differs(0), add, out)
    f.place(add)
    of_cycles, of_done = JOB.at(job)["cycles"], JOB.at(job)["done"]
    of_cycles.fetch_add(cycles, Order.RELAXED)
    of_done.fetch_add(done, Order.RELAXED)
    f.jump(out)
    f.place(out)
    f.ret()


def _write_learn(module: NativeModule) -> None:
    """Move a kernel's cost most of the way down to what was measured, or a quarter of the way up,
    at most to twice what it was.

    A thread that lost its processor for a while measures thousands of times the kernel's cost, and
    one that believes it goes on sharing what is too short for that, with threads that lose theirs.
    """
    f = module.define(LEARN)
    kernel, cycles, done = f.parameters
    go, out = f.label("go"), f.label("out")
    f.branch(done.differs(0), go, out)
    f.place(go)
    cost = KERNEL.at(kernel)["cost"]
    old = cost.atomic_load(Order.RELAXED)
    each = f.maximum((cycles << 4) // done, 1)
    first, less = old.equals(0), each < old
    heavy, light = f.choose(less, each, old), f.choose(less, old, each)
    mean = ((heavy * 3) + light) >> 2
    mean = f.maximum(f.minimum(mean, old << 1), 1)
    cost.atomic_store(f.choose(first, each, mean), Order.RELAXED)
    f.jump(out)
    f.place(out)
    f.ret()


def _write_share_learning(module: NativeModule, target: NativeTarget) -> None:
    """Take chunks of a job in the first lane, and learn from them what the kernel costs; return how
    many programs ran."""
    f = module.define(SHARE_LEARNING)
    kernel, job = f.parameters
    start = target.now(f)
    done = f.call(SHARE, job, 0)
    f.call(LEARN, kernel, target.now(f) - start, done)
    f.ret(done)


def _write_estimate(module: NativeModule) -> None:
    """Cycles that the kernel's cost predicts; all ones while it is unknown."""
    f = module.define(ESTIMATE)
    kernel, programs = f.parameters
    cost = KERNEL.at(kernel)["cost"].atomic_load(Order.RELAXED)
    unknown = cost.equals(0)
    f.ret(f.choose(unknown, -1, (cost * programs) >> 4))


def _write_serial_in_chunks(module: NativeModule) -> None:
    """Run all programs in the calling thread, in chunks."""
    f = module.define(_SERIAL_IN_CHUNKS)
    kernel, arguments, programs = f.parameters
    job, lanes = f.stack(JOB.name, 64), f.stack(LANE, 64)
    f.call(PREPARE, job, lanes, kernel, arguments, programs, 1)
    f.call(SHARE_LEARNING, kernel, job)
    f.ret()


def _write_serial(module: NativeModule, target: NativeTarget) -> None:
    """Run all programs in the calling thread.

    One program alone is timed now and then only: its cost decides nothing but whether to keep the
    interpreter lock.
    """
    f = module.define(SERIAL)
    kernel, arguments, programs = f.parameters
    record = KERNEL.at(kernel)
    slowly, choose, plain = f.label("slowly"), f.label("choose"), f.label("plain")
    measure, once = f.label("measure"), f.label("once")
    function = record["function"].load()
    f.branch(record["memory"].load().differs(0), slowly, choose)

    f.place(choose)
    launches = record["launches"]
    before = launches.atomic_load(Order.RELAXED)
    launches.atomic_store(before + 1, Order.RELAXED)
    due = (before & 15).equals(0)
    several = programs > 1
    f.branch(due | several, measure, plain)

    f.place(plain)
    f.call_address(function, "void", arguments, f.operand("i64", 0), programs, f.null)
    f.ret()

    f.place(measure)
    work = f.call(ESTIMATE, kernel, programs)
    long = work >= PACE.place(f).load()
    f.branch(long & several, slowly, once)

    f.place(slowly)
    f.call(_SERIAL_IN_CHUNKS, kernel, arguments, programs)
    f.ret()

    f.place(once)
    start = target.now(f)
    f.call_address(function, "void", arguments, f.operand("i64", 0), programs, f.null)
    f.call(LEARN, kernel, target.now(f) - start, programs)
    f.ret()


def _write_prepare(module: NativeModule) -> None:
    """Make the job of a launch, with a lane a thread but no more than programs.

    Eight chunks a lane even out what programs differ in. It is throttled where a chunk is not known
    to take less than that time.
    """
    f = module.define(PREPARE)
    at, lanes, kernel, arguments, programs, threads = f.parameters
    job, record = JOB.at(at), KERNEL.at(kernel)
    ask, halt, lane, out = (
        f.label("ask"),
        f.label("halt"),
        f.label("lane", "i64", "i64"),
        f.label("out"),
    )
    function = record["function"].load()
    count = f.minimum(threads, programs)
    parts = count << 3
    share, each = programs // parts, programs // count
    chunk = f.maximum(share, 1)
    rest = programs % count
    job["function"].store(function)
    job["arguments"].store(arguments)
    job["programs"].store(programs)
    job["chunk"].store(chunk)
    job["entered"].store(0)
    job["cycles"].store(0)
    job["done"].store(0)
    job["lanes"].store(count)
    job["lane"].store(lanes)
    expected = f.call(ESTIMATE, kernel, chunk)
    budget = PACE.place(f).load()
    short = expected < budget
    cost = record["cost"].atomic_load(Order.RELAXED)
    known, unknown = f.maximum(cost, 1), cost.equals(0)
    fit = (budget << 4) // known
    some = f.maximum(f.minimum(fit, chunk), 1)
    careful = f.choose(unknown, 1, some)
    size = f.choose(short, 0, careful)
    job["pace"].store(size)
    job["asleep"].store(0)
    polls = record["polls"].load().widened("i64")
    job["polls"].store(polls)
    memory = record["memory"].load()
    job["memory"].store(memory)
    cleared = record["cleared"].load()
    job["cleared"].store(cleared)
    # an exception that waits to be raised, of a launch of the pool's own, stops this one at once
    waiting = f.word(RAISED.address(f), 0, "ptr").load()
    f.branch(waiting.differs(None), ask, lane(0, 0))

    f.place(ask)
    f.branch(f.call(LISTENS), halt, lane(0, 0))

    f.place(halt)
    f.call(HALT, arguments)
    f.jump(lane(0, 0))

    # the first lanes have one program more where they do not come out even
    index, first = f.place(lane)
    longer = (index < rest).widened("i64")
    end = first + (each + longer)
    own = f.element(LANE, lanes, index)
    f.word(own).store(first)
    f.word(own, 1).store(end)
    following = index + 1
    f.branch(following < count, lane(following, end), out)

    f.place(out)
    f.ret()
