"""The launch decision: whether a launch is shared among threads, and which.

A launch that is worth sharing with threads that are awake, and too short to wake them for, runs
alone. Where such launches follow one another, closer than threads take to fall asleep, their costs
are added up, and once the sum is worth waking threads for they are woken: the next launches find
them awake. Where they do not, since other processes keep the threads from running, the price of
waking grows each time, and falls with each launch that others took part in.
"""

from __future__ import annotations

from typing import Final

from tilewright_cpu.threading.openmp import WITH_OPENMP
from tilewright_cpu.threading.pool_state import (
    COLD,
    HOT,
    KERNEL,
    OPENMP,
    OPENMP_THREADS,
    POOL,
    THE_POOL,
    NativeTarget,
)
from tilewright_cpu.threading.typed_writer import (
    Global,
    NativeModule,
    Order,
    Place,
    Signature,
    Value,
)
from tilewright_cpu.threading.work_distribution import ESTIMATE, SERIAL
from tilewright_cpu.threading.workers import PRICE, START, WITH_WORKERS

LAUNCH: Final = Signature("launch", kernel="ptr", arguments="ptr", programs="i64")
_MEET: Final = Signature("meet", place="ptr", first="i64", last="i64", memory="ptr", internal=True)
_MEASURE: Final = Signature("measure", threads="i64", asked="i32", internal=True)

#: Cycles of launches one after another that sleeping threads were not woken for, and when the last
#: of these ended.
_OWED: Final = Global("owed", "i64", 0)
_OWED_UNTIL: Final = Global("owed_until", "i64", 0, internal=True)
#: 1 once the hand-off has been measured.
_MEASURED: Final = Global("measured", "i32", 0)
#: Threads asked for by the user; 0: as many as OpenMP would use.
_FORCED: Final = Global("forced", "i32", 0)

#: Rendezvous of threads that the hand-off is measured by.
_ROUNDS: Final = 8


def write_launch_decision(module: NativeModule, target: NativeTarget) -> None:
    """Write the functions of this module."""
    module.add(_OWED, _OWED_UNTIL, _MEASURED, _FORCED)
    _write_meet(module, target)
    _write_measure(module, target)
    _write_launch(module, target)


def _write_meet(module: NativeModule, target: NativeTarget) -> None:
    """A kernel in which threads meet: each program waits, but not for long, until all have begun.

    How long that takes is what handing work over costs.
    """
    f = module.define(_MEET)
    place, first, last, _ = f.parameters
    look, again, out = f.label("look", "i64"), f.label("again"), f.label("out")
    of_arrived = f.word(place)
    of_arrived.fetch_add(last - first, Order.SEQ_CST)
    wanted = f.word(place, 1).load()
    f.jump(look(0))
    (turn,) = f.place(look)
    all_ = of_arrived.atomic_load(Order.ACQUIRE) >= wanted
    enough = turn >= target.spin_caller
    f.branch(all_ | enough, out, again)
    f.place(again)
    target.rest(f)
    f.jump(look(turn + 1))
    f.place(out)
    f.ret()


def _write_measure(module: NativeModule, target: NativeTarget) -> None:
    """Measure the hand-off to threads that are awake: the minimum over some rendezvous.

    Work of three times that is worth sharing; two threads break even at twice.
    """
    f = module.define(_MEASURE)
    threads, asked = f.parameters
    rendezvous, theirs, ours = (
        f.label("rendezvous", "i64", "i64"),
        f.label("theirs"),
        f.label("ours"),
    )
    met, out = f.label("met"), f.label("out")
    kernel = f.stack(KERNEL.name, 8)
    # where a kernel's slots are: the third word is a status block, the fourth its address
    slots = f.stack("[4 x i64]", 64)
    f.do(f"store {KERNEL.name} zeroinitializer, {kernel}")
    Place(f, kernel.text, "ptr").store(Value(f, "ptr", f"@{_MEET.name}"))
    f.word(slots, 1).store(threads)
    status = f.word(slots, 2)
    status.store(0)
    Place(f, f.word(slots, 3).pointer, "ptr").store(status.address)
    foreign = OPENMP.place(f).load().differs(None)
    narrow = threads.narrowed("i32")
    f.jump(rendezvous(0, -1))

    index, minimum = f.place(rendezvous)
    Place(f, slots.text, "i64", 64).atomic_store(0, Order.RELAXED)
    start = target.now(f)
    f.branch(foreign, theirs, ours)

    f.place(theirs)
    f.call(WITH_OPENMP, kernel, slots, threads, threads, asked)
    f.jump(met)

    f.place(ours)
    f.call(WITH_WORKERS, kernel, slots, threads, narrow)
    f.jump(met)

    f.place(met)
    took = target.now(f) - start
    less = f.minimum(minimum, took)
    following = index + 1
    f.branch(following < _ROUNDS, rendezvous(following, less), out)

    f.place(out)
    three = less * 3
    hot = HOT.place(f)
    usual = hot.load()
    raised = f.maximum(three, usual >> 3)
    hot.store(f.minimum(raised, usual))
    f.ret()


def _write_launch(module: NativeModule, target: NativeTarget) -> None:
    """Run all programs of a launch: alone where the work is too little to share or the pool is
    busy, else with the threads there are."""
    f = module.define(LAUNCH)
    kernel, arguments, programs = f.parameters
    pool = POOL.at(THE_POOL.address(f))
    several, choose = f.label("several"), f.label("choose")
    openmp, ask, default = f.label("openmp"), f.label("ask"), f.label("default")
    team, both, first_there = f.label("team", "i32"), f.label("both"), f.label("measure")
    shared, own, owing = f.label("shared"), f.label("own"), f.label("owing", "i64")
    rouse, postpone, lock = f.label("rouse"), f.label("postpone"), f.label("lock")
    attempt, ready, begin = f.label("try"), f.label("ready"), f.label("begin")
    share, known, first_here = f.label("share"), f.label("known"), f.label("measure")
    go, alone = f.label("go"), f.label("alone")
    f.branch(programs <= 1, alone, several)

    f.place(several)
    limit = KERNEL.at(kernel)["limit"].load()
    work = f.call(ESTIMATE, kernel, programs)
    f.branch(work < HOT.place(f).load(), alone, choose)

    f.place(choose)
    cold = COLD.place(f).load()
    foreign = OPENMP.place(f).load().differs(None)
    f.branch(foreign, openmp, own)

    f.place(openmp)
    gap = target.now(f) - pool["ended"].atomic_load(Order.RELAXED)
    # OpenMP's threads spin for about a millisecond after their last region; ten times the cold
    # threshold is of that size
    recently = cold * 10
    awake, big = gap < recently, work >= cold
    f.branch(awake | big, ask, owing(recently))

    f.place(ask)
    forced = _FORCED.place(f).load()
    asked = f.choose(limit.differs(0), limit, forced)
    f.branch(asked.equals(0), default, team(asked))

    f.place(default)
    f.jump(team(f.call_address(OPENMP_THREADS.place(f).load(), "i32")))

    (count,) = f.place(team)
    f.branch(count > 1, both, alone)

    f.place(both)
    wide = count.widened("i64")
    f.branch(_MEASURED.place(f).exchange(1, Order.RELAXED).equals(0), first_there, shared)

    f.place(first_there)
    f.call(_MEASURE, wide, asked)
    f.jump(shared)

    f.place(shared)
    f.call(WITH_OPENMP, kernel, arguments, programs, wide, asked)
    pool["ended"].atomic_store(target.now(f), Order.RELAXED)
    f.ret()

    f.place(own)
    asleep = pool["sleepers"].atomic_load(Order.RELAXED).differs(0)
    unfit = asleep & (work < cold)
    # our own spin for about a third of the cold threshold
    shortly = cold >> 2
    f.branch(unfit, owing(shortly), lock)

    (window,) = f.place(owing)
    began = target.now(f)
    pause = began - _OWED_UNTIL.place(f).atomic_load(Order.RELAXED)
    soon = pause < window
    carried = f.choose(soon, _OWED.place(f).atomic_load(Order.RELAXED), 0)
    owed = carried + work
    price = f.maximum(PRICE.place(f).atomic_load(Order.RELAXED), cold)
    due = owed >= price
    _OWED.place(f).atomic_store(f.choose(due, 0, owed), Order.RELAXED)
    f.branch(due, rouse, postpone)

    f.place(rouse)
    dearer, most = price << 2, cold << 8
    PRICE.place(f).atomic_store(f.minimum(dearer, most), Order.RELAXED)
    f.branch(foreign, ask, lock)

    f.place(postpone)
    f.call(SERIAL, kernel, arguments, programs)
    _OWED_UNTIL.place(f).atomic_store(target.now(f), Order.RELAXED)
    f.ret()

    f.place(lock)
    nobody = pool["wanted"].load().equals(0)
    f.branch(nobody | limit.equals(1), alone, attempt)

    f.place(attempt)
    free = pool["lock"].compare_exchange(0, 1, Order.ACQUIRE, Order.RELAXED)
    f.branch(free, ready, alone)

    f.place(ready)
    f.branch(pool["started"].atomic_load(Order.RELAXED).equals(0), begin, share)

    f.place(begin)
    f.call(START)
    f.jump(share)

    f.place(share)
    all_ = pool["started"].atomic_load(Order.RELAXED) + 1
    unlimited = limit.equals(0)
    bounded = f.choose(limit < all_, limit, all_)
    threads = f.choose(unlimited, all_, bounded)
    f.branch(threads > 1, known, go)

    f.place(known)
    f.branch(_MEASURED.place(f).exchange(1, Order.RELAXED).equals(0), first_here, go)

    f.place(first_here)
    f.call(_MEASURE, threads.widened("i64"), 0)
    f.jump(go)

    f.place(go)
    f.call(WITH_WORKERS, kernel, arguments, programs, threads)
    pool["lock"].atomic_store(0, Order.RELEASE)
    f.ret()

    f.place(alone)
    f.call(SERIAL, kernel, arguments, programs)
    f.ret()
