"""The pool's workers: threads that sleep on a futex, and sharing a launch with them.

The state word of the pool has an epoch in its upper half, odd while a job is open, and in its lower
half how many workers are inside the job. A worker joins by a compare-and-swap that fails once the
job is closed, so the caller waits for those only that joined. Every spin is bounded and ends in a
futex wait: where threads outnumber processors, a thread that spins keeps the one it waits for from
running.

``tests/threading/test_interleavings.py`` executes these functions in all orders in which the
accesses of a few threads can happen.
"""

from __future__ import annotations

from typing import Final

from tilewright_cpu.threading.interrupts import HEED, LISTENS
from tilewright_cpu.threading.pool_state import (
    MAX_WORKERS,
    OPENMP,
    POOL,
    THE_JOB,
    THE_LANES,
    THE_POOL,
    NativeTarget,
)
from tilewright_cpu.threading.typed_writer import (
    Code,
    Global,
    NativeModule,
    Order,
    Place,
    Record,
    Signature,
    Value,
)
from tilewright_cpu.threading.work_distribution import PREPARE, SHARE, SHARE_LEARNING

LINGER: Final = Signature(
    "linger",
    "i64",
    turns="i64",
    word="ptr",
    value="i32",
    arguments="ptr",
    internal=True,
    inlined=False,
)
WAKE: Final = Signature("wake", word="ptr", count="i32", internal=True)
START: Final = Signature("start", internal=True)
WITH_WORKERS: Final = Signature(
    "with_workers",
    kernel="ptr",
    arguments="ptr",
    programs="i64",
    threads="i32",
    internal=True,
)
HELPED: Final = Signature("helped", programs="i64", done="i64", internal=True)
_WAIT: Final = Signature("wait", word="ptr", value="i32", internal=True)
_WAIT_SHORTLY: Final = Signature("wait_shortly", "i1", word="ptr", value="i32", internal=True)
_ADMITS: Final = Signature("admits", "i1", state="i64", seen="i64", internal=True)
_WORKER: Final = Signature("worker", "ptr", self="ptr", internal=True)
_STOP: Final = Signature("stop")
_FORGET: Final = Signature("forget")
_SET_WORKERS: Final = Signature("set_workers", wanted="i32")

_SYSCALL: Final = Signature("syscall", "i64", number="i64", variadic=True)
_CREATE: Final = Signature(
    "pthread_create",
    "i32",
    thread="ptr",
    attributes="ptr",
    start="ptr",
    argument="ptr",
)
_JOIN: Final = Signature("pthread_join", "i32", thread="i64", result="ptr")
_ATTRIBUTES: Final = Signature("pthread_attr_init", "i32", attributes="ptr")
_STACK_SIZE: Final = Signature("pthread_attr_setstacksize", "i32", attributes="ptr", size="i64")
_DESTROY: Final = Signature("pthread_attr_destroy", "i32", attributes="ptr")
_MASK: Final = Signature("pthread_sigmask", "i32", how="i32", set="ptr", old="ptr")
_FILL: Final = Signature("sigfillset", "i32", set="ptr")
_DELETE: Final = Signature("sigdelset", "i32", set="ptr", number="i32")

#: Cycles owed that are worth waking threads for; the cold threshold is the minimum.
PRICE: Final = Global("price", "i64", 0)
_THREADS: Final = Global("workers", f"[{MAX_WORKERS} x i64]", internal=True)
#: Seconds and nanoseconds.
_SHORTLY: Final = Global(
    "shortly",
    "[2 x i64]",
    "[i64 0, i64 50000000]",
    internal=True,
    constant=True,
)

#: Operations of the system call, on a futex of this process alone.
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
#: Of the state word: the unit of the epoch, whose lowest bit says that a job is open; and its bits.
_EPOCH: Final = 1 << 32
_EPOCH_BITS: Final = -(1 << 32)
#: Bytes of a worker's stack.
_STACK: Final = 8 << 20
#: A set of signals, or the attributes of a thread, with room to spare.
_OPAQUE: Final = "[128 x i8]"
_SIG_SETMASK: Final = 2
#: Signals of faults: where one is blocked, the fault ends the process before any handler can tell.
_FAULTS: Final = (4, 7, 8, 11)


def write_workers(module: NativeModule, target: NativeTarget) -> None:
    """Write the functions of this module."""
    module.add(PRICE, _THREADS, _SHORTLY)
    module.declare(_SYSCALL)
    _write_futex(module, target)
    _write_linger(module, target)
    _write_admits(module)
    _write_worker(module, target)
    _write_start(module)
    _write_stop(module)
    _write_forget(module)
    _write_helped(module)
    _write_with_workers(module)


def _pool(f: Code) -> Record:
    return POOL.at(THE_POOL.address(f))


def _state(f: Code) -> Place:
    return Place(f, THE_POOL.name, "i64", THE_POOL.align)


def _epoch_word(f: Code) -> Value:
    """The futex that workers sleep on: the upper half of the state word."""
    return Value(f, "ptr", f"getelementptr (i8, ptr {THE_POOL.name}, i64 4)")


def _write_futex(module: NativeModule, target: NativeTarget) -> None:
    """Wait until a word is no longer a value and somebody wakes; wait for 50 milliseconds at most,
    and return whether somebody woke; wake some that wait."""
    number = target.futex

    f = module.define(_WAIT)
    word, value = f.parameters
    operation = f.operand("i32", _FUTEX_WAIT)
    f.call(_SYSCALL, number, word, operation, value, None, None, f.operand("i32", 0))
    f.ret()

    f = module.define(_WAIT_SHORTLY)
    word, value = f.parameters
    operation, span = f.operand("i32", _FUTEX_WAIT), _SHORTLY.address(f)
    found = f.call(_SYSCALL, number, word, operation, value, span, None, f.operand("i32", 0))
    f.ret(found.equals(0))

    f = module.define(WAKE)
    word, count = f.parameters
    operation = f.operand("i32", _FUTEX_WAKE)
    f.call(_SYSCALL, number, word, operation, count, None, None, f.operand("i32", 0))
    f.ret()


def _write_linger(module: NativeModule, target: NativeTarget) -> None:
    """One turn of waiting for a word to change; return the turns from then on.

    The thread pauses while the turns are few, else sleeps; signals are handled by whom they
    concern.
    """
    f = module.define(LINGER)
    turns, word, value, arguments = f.parameters
    pause, sleep, unwoken = f.label("pause"), f.label("sleep"), f.label("unwoken")
    heed, out = f.label("heed"), f.label("out")
    f.branch(turns < target.spin_caller, pause, sleep)
    f.place(pause)
    target.rest(f)
    f.ret(turns + 1)
    f.place(sleep)
    f.branch(f.call(_WAIT_SHORTLY, word, value), out, unwoken)
    f.place(unwoken)
    f.branch(f.call(LISTENS), heed, out)
    f.place(heed)
    f.call(HEED, arguments)
    f.jump(out)
    f.place(out)
    f.ret(turns)


def _write_admits(module: NativeModule) -> None:
    """Return whether the pool in a state has an open job that a worker was not in, whose last job
    has the epoch ``seen``, and that has room for it."""
    f = module.define(_ADMITS)
    state, seen = f.parameters
    epoch = state & _EPOCH_BITS
    open_, new = (state & _EPOCH).differs(0), epoch.differs(seen)
    inside = state.narrowed("i32")
    room = inside < _pool(f)["guests"].atomic_load(Order.RELAXED)
    f.ret((open_ & new) & room)


def _write_worker(module: NativeModule, target: NativeTarget) -> None:
    """The life of a worker: look for a job, sleep where there is none, join it, share it.

    The futex word is the epoch: a job opened after its load changes it, so that the wait returns at
    once. The caller wakes where it sees sleepers. Both sides are sequentially consistent, so one of
    them sees the other.
    """
    f = module.define(_WORKER)
    number = f.parameters[0].as_integer()
    pool, state_word = _pool(f), _state(f)
    # the epoch, in the upper half, of the job that this worker was in last
    idle, spin, again = f.label("idle", "i64"), f.label("spin", "i64"), f.label("again")
    sleep, check, block = f.label("sleep"), f.label("check"), f.label("block")
    awake, join, run = f.label("awake"), f.label("join"), f.label("run")
    left, last, leave = f.label("left"), f.label("last"), f.label("exit")
    f.jump(idle(0))

    (seen,) = f.place(idle)
    f.jump(spin(0))

    (turn,) = f.place(spin)
    state = state_word.atomic_load(Order.ACQUIRE)
    f.branch(f.call(_ADMITS, state, seen), join, again)

    f.place(again)
    target.rest(f)
    following = turn + 1
    f.branch(following < target.spin, spin(following), sleep)

    f.place(sleep)
    pool["sleepers"].fetch_add(1, Order.SEQ_CST)
    f.jump(check)

    f.place(check)
    found = state_word.atomic_load(Order.SEQ_CST)
    word = (found >> 32).narrowed("i32")
    mine = f.call(_ADMITS, found, seen)
    down = pool["down"].atomic_load(Order.ACQUIRE).differs(0)
    f.branch(mine | down, awake, block)

    f.place(block)
    f.call(_WAIT, _epoch_word(f), word)
    f.jump(check)

    f.place(awake)
    pool["sleepers"].fetch_sub(1, Order.SEQ_CST)
    f.branch(down, leave, idle(seen))

    f.place(join)
    joined = state_word.compare_exchange(state, state + 1, Order.ACQ_REL, Order.RELAXED)
    f.branch(joined, run, idle(seen))

    f.place(run)
    epoch = state & _EPOCH_BITS
    f.call(SHARE, THE_JOB.address(f), number)
    old = state_word.fetch_sub(1, Order.ACQ_REL)
    alone = old.narrowed("i32").equals(1)
    closed = (old & _EPOCH).equals(0)
    f.branch(alone & closed, last, left)

    f.place(left)
    f.jump(idle(epoch))

    f.place(last)
    f.call(WAKE, THE_POOL.address(f), 1)
    f.jump(idle(epoch))

    f.place(leave)
    f.ret(None)


def _write_start(module: NativeModule) -> None:
    """Start the wanted workers, signals blocked: they are the interpreter's business."""
    f = module.define(START)
    pool = _pool(f)
    following, make, made = f.label("next", "i32"), f.label("make"), f.label("made")
    out = f.label("out")
    attributes, all_, saved = (f.stack(_OPAQUE, 16) for _ in range(3))
    wanted = pool["wanted"].load()
    f.call(_ATTRIBUTES, attributes)
    f.call(_STACK_SIZE, attributes, _STACK)
    f.call(_FILL, all_)
    for fault in _FAULTS:
        f.call(_DELETE, all_, fault)
    f.call(_MASK, _SIG_SETMASK, all_, saved)
    f.jump(following(0))

    (index,) = f.place(following)
    f.branch(index.less_signed(wanted), make, out)

    f.place(make)
    slot = _slot(f, index)
    # the caller's lane is the first
    own = (index + 1).widened("i64").as_pointer()
    start = Value(f, "ptr", f"@{_WORKER.name}")
    fine = f.call(_CREATE, slot, attributes, start, own).equals(0)
    more = index + 1
    f.branch(fine, made, out)

    f.place(made)
    f.jump(following(more))

    f.place(out)
    f.call(_MASK, _SIG_SETMASK, saved, None)
    f.call(_DESTROY, attributes)
    pool["started"].atomic_store(index, Order.RELAXED)
    # a system that refuses threads is not asked again
    pool["wanted"].store(index)
    f.ret()


def _slot(f: Code, index: Value) -> Value:
    """Where the handle of a worker's thread is."""
    return f.emit("ptr", f"getelementptr {_THREADS.type}, ptr {_THREADS.name}, i64 0, {index}")


def _write_stop(module: NativeModule) -> None:
    """End the workers and wait for them. No launch may be running."""
    f = module.define(_STOP)
    pool = _pool(f)
    following, join, out = f.label("next", "i32"), f.label("join"), f.label("out")
    pool["down"].atomic_store(1, Order.SEQ_CST)
    Place(f, THE_POOL.name, "i64").fetch_add(2 * _EPOCH, Order.SEQ_CST)
    f.call(WAKE, _epoch_word(f), (1 << 31) - 1)
    started = pool["started"].atomic_load(Order.RELAXED)
    f.jump(following(0))

    (index,) = f.place(following)
    f.branch(index.less_signed(started), join, out)

    f.place(join)
    thread = Place(f, _slot(f, index).text, "i64").load()
    f.call(_JOIN, thread, None)
    f.jump(following(index + 1))

    f.place(out)
    pool["started"].atomic_store(0, Order.RELAXED)
    pool["down"].atomic_store(0, Order.SEQ_CST)
    f.ret()


def _write_forget(module: NativeModule) -> None:
    """Forget the workers: in the child of a fork there are none, nobody holds the lock, and
    OpenMP's threads are gone too. The wanted workers stay, which :data:`_SET_WORKERS` sets."""
    f = module.define(_FORGET)
    wanted = _pool(f)["wanted"]
    before = wanted.load()
    f.do(f"store {POOL.name} zeroinitializer, ptr {THE_POOL.name}")
    wanted.store(before)
    OPENMP.place(f).store(None)
    f.ret()

    f = module.define(_SET_WORKERS)
    _pool(f)["wanted"].store(f.parameters[0])
    f.ret()


def _write_helped(module: NativeModule) -> None:
    """Lower the price of waking threads, where others took part in a launch of which this thread
    did some programs: waking them has paid."""
    f = module.define(HELPED)
    programs, done = f.parameters
    lower, out = f.label("lower"), f.label("out")
    price = PRICE.place(f)
    before = price.atomic_load(Order.RELAXED)
    f.branch(before.differs(0) & (done < programs), lower, out)
    f.place(lower)
    price.atomic_store(before - (before >> 2), Order.RELAXED)
    f.jump(out)
    f.place(out)
    f.ret()


def _write_with_workers(module: NativeModule) -> None:
    """Share a launch with the pool's workers. The lock is held."""
    f = module.define(WITH_WORKERS)
    kernel, arguments, programs, threads = f.parameters
    pool, state_word = _pool(f), _state(f)
    rouse, go, waiting = f.label("rouse"), f.label("go"), f.label("waiting", "i64")
    linger, out = f.label("linger"), f.label("out")
    job, wide = THE_JOB.address(f), threads.widened("i64")
    f.call(PREPARE, job, THE_LANES.address(f), kernel, arguments, programs, wide)
    guests = threads - 1
    pool["guests"].atomic_store(guests, Order.RELAXED)
    state_word.fetch_add(_EPOCH, Order.SEQ_CST)
    sleepers = pool["sleepers"].atomic_load(Order.SEQ_CST)
    f.branch(sleepers.differs(0), rouse, go)

    f.place(rouse)
    f.call(WAKE, _epoch_word(f), guests)
    f.jump(go)

    f.place(go)
    done = f.call(SHARE_LEARNING, kernel, job)
    f.call(HELPED, programs, done)
    state_word.fetch_add(_EPOCH, Order.SEQ_CST)
    f.jump(waiting(0))

    (turn,) = f.place(waiting)
    inside = state_word.atomic_load(Order.ACQUIRE).narrowed("i32")
    f.branch(inside.equals(0), out, linger)

    f.place(linger)
    f.jump(waiting(f.call(LINGER, turn, THE_POOL.address(f), inside, arguments)))

    f.place(out)
    f.ret()
