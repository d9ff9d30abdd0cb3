"""Signals during launches, and cancellation of programs that may never end.

A launch that is not known to be short is throttled: its threads take as many
programs at a time as run for about a millisecond, one at first where their cost is unknown. Between
them, a few times a second, the interpreter's main thread takes the interpreter lock and lets
pending signals be handled. Where a handler raises, the exception is kept in ``raised`` and the
launch's status block says :data:`~tilewright_cpu.status.INTERRUPTED`, which the job's threads see
before they take more programs; the thread that started the launch raises the exception.

Programs with ``while`` loops, which may never end, have cancellation checks: they call ``poll`` now
and then, which lets signals be handled as above and makes a program stop where the launch was
cancelled, or where another program has failed, for which this one may wait. A thread that runs out
of programs and waits for others that still run theirs handles signals meanwhile.
"""

from __future__ import annotations

from typing import Final

from tilewright_cpu.status import INTERRUPTED
from tilewright_cpu.threading.pool_state import CROWDED, LISTENER, PACE, RAISED, NativeTarget
from tilewright_cpu.threading.typed_writer import NativeModule, Order, Place, Signature

#: Iterations of a loop between two calls of ``poll`` at most: a loop whose iterations get slow all
#: of a sudden must still ask soon.
MOST_TURNS: Final = 4096

STATUS_OF: Final = Signature("status_of", "ptr", arguments="ptr", internal=True)
HALT: Final = Signature("halt", arguments="ptr", internal=True)
HALTED: Final = Signature("halted", "i1", arguments="ptr", internal=True)
POLL: Final = Signature("poll", "i64", arguments="ptr", heeded="ptr", loop="ptr", inlined=False)
LISTENS: Final = Signature("listens", "i1", internal=True)
HEED: Final = Signature("heed", arguments="ptr", internal=True, inlined=False)
_FAILED: Final = Signature("failed", "i1", arguments="ptr", internal=True)
_GIVE_WAY: Final = Signature("give_way", internal=True, inlined=False)

_PTHREAD_SELF: Final = Signature("pthread_self", "i64")
_SCHED_YIELD: Final = Signature("sched_yield", "i32")
_ENSURE: Final = Signature("PyGILState_Ensure", "i32")
_RELEASE: Final = Signature("PyGILState_Release", lock="i32")
_CHECK_SIGNALS: Final = Signature("PyErr_CheckSignals", "i32")
_FETCH: Final = Signature("PyErr_Fetch", type="ptr", value="ptr", traceback="ptr")


def write_interrupts(module: NativeModule, target: NativeTarget, *, listening: bool) -> None:
    """Write the functions of this module.

    Args:
        listening: whether an interpreter with CPython's interface runs in a POSIX system, and
            signals are handled; elsewhere launches run to their end.
    """
    _write_status(module)
    _write_poll(module, target)
    _write_listening(module) if listening else _write_deaf(module)


def _write_status(module: NativeModule) -> None:
    """The status block of a launch: where it is, what stops a launch, and how it stands.

    The threads of a launch that is halted take no more programs, and those that poll end. A program
    that waits for one that failed would wait for ever.
    """
    f = module.define(STATUS_OF)
    (arguments,) = f.parameters
    f.ret(Place(f, f.element("ptr", arguments, 3).text, "ptr").load())

    f = module.define(HALT)
    Place(f, f.call(STATUS_OF, *f.parameters).text, "i32").atomic_store(INTERRUPTED, Order.RELAXED)
    f.ret()

    f = module.define(HALTED)
    said = Place(f, f.call(STATUS_OF, *f.parameters).text, "i32").atomic_load(Order.RELAXED)
    f.ret(said.equals(INTERRUPTED))

    f = module.define(_FAILED)
    said = Place(f, f.call(STATUS_OF, *f.parameters).text, "i32").atomic_load(Order.RELAXED)
    f.ret(said.differs(0))


def _write_poll(module: NativeModule, target: NativeTarget) -> None:
    """The cancellation check that a program calls in a loop that may never end.

    It returns after how many turns of the loop to call again, about a quarter of ``pace`` later; 0
    to stop at once. ``heeded`` is a word of the program's, 0 at first: when it last let signals be
    handled. ``loop`` is two of the loop's: the turns, and 0 at first: the last call.
    """
    f = module.define(POLL)
    arguments, heeded, loop = f.parameters
    look, give, time, begin = f.label("look"), f.label("yield"), f.label("time"), f.label("begin")
    wait, due, listen = f.label("wait"), f.label("due"), f.label("listen")
    go, stop = f.label("go"), f.label("stop")
    f.branch(f.call(_FAILED, arguments), stop, look)

    f.place(look)
    f.branch(CROWDED.place(f).atomic_load(Order.RELAXED).equals(0), time, give)

    f.place(give)
    # what it waits for may not run before this thread lets it
    f.call(_GIVE_WAY)
    f.jump(time)

    f.place(time)
    now = target.now(f)
    of_turns, of_heeded = f.word(loop), f.word(heeded)
    turns = of_turns.load()
    of_call = f.word(loop, 1)
    last = of_call.load()
    of_call.store(now)
    took = now - last
    budget = PACE.place(f).load()
    quarter = budget >> 2
    quick, late = took < quarter, took > budget
    instant = took < (budget >> 6)
    more = turns << f.choose(instant, f.operand("i64", 3), 1)
    twice = f.minimum(more, MOST_TURNS)
    half = f.maximum(turns >> 1, 1)
    sized = f.choose(quick, twice, f.choose(late, half, turns))
    resized = f.choose(last.equals(0), turns, sized)
    of_turns.store(resized)
    before = of_heeded.load()
    f.branch(before.equals(0), begin, wait)

    f.place(begin)
    of_heeded.store(now)
    f.jump(go)

    f.place(wait)
    interval = budget << 6
    f.branch((now - before) >= interval, due, go)

    f.place(due)
    f.branch(f.call(LISTENS), listen, go)

    f.place(listen)
    f.call(HEED, arguments)
    of_heeded.store(target.now(f))
    f.branch(f.call(HALTED, arguments), stop, go)

    f.place(go)
    f.ret(resized)

    f.place(stop)
    f.ret(0)


def _write_listening(module: NativeModule) -> None:
    """Handling signals by the thread whose business they are."""
    f = module.define(_GIVE_WAY)
    f.call(_SCHED_YIELD)
    f.ret()

    f = module.define(LISTENS)
    self = f.call(_PTHREAD_SELF)
    f.ret(self.equals(LISTENER.place(f).load()))

    # pending signals are handled, and the launch stops where a handler raises
    f = module.define(HEED)
    (arguments,) = f.parameters
    keep, out = f.label("keep"), f.label("out")
    lock = f.call(_ENSURE)
    f.branch(f.call(_CHECK_SIGNALS).differs(0), keep, out)
    f.place(keep)
    raised = RAISED.address(f)
    f.call(_FETCH, raised, f.element("ptr", raised, 1), f.element("ptr", raised, 2))
    f.call(HALT, arguments)
    f.jump(out)
    f.place(out)
    f.call(_RELEASE, lock)
    f.ret()


def _write_deaf(module: NativeModule) -> None:
    """No signals are handled."""
    module.define(LISTENS).ret(False)
    module.define(HEED).ret()
    module.define(_GIVE_WAY).ret()
