"""Sharing a launch with the threads of an OpenMP library that the process has loaded."""

from __future__ import annotations

from typing import Final

from tilewright_cpu.threading.interrupts import HALTED, LISTENS
from tilewright_cpu.threading.pool_state import (
    JOB,
    LANE,
    LANES,
    OPENMP,
    OPENMP_NUMBER,
    NativeTarget,
)
from tilewright_cpu.threading.typed_writer import NativeModule, Order, Signature, Value
from tilewright_cpu.threading.work_distribution import LEARN, PREPARE, SHARE_NUMBERED
from tilewright_cpu.threading.workers import HELPED, LINGER, WAKE

WITH_OPENMP: Final = Signature(
    "with_openmp",
    kernel="ptr",
    arguments="ptr",
    programs="i64",
    threads="i64",
    asked="i32",
    internal=True,
)
_SHARE_OPENMP: Final = Signature("share_openmp", job="ptr", internal=True)
_ATTEND: Final = Signature("attend", job="ptr", internal=True, inlined=False)


def write_openmp(module: NativeModule, target: NativeTarget) -> None:
    """Write the functions of this module."""
    _write_share_openmp(module)
    _write_attend(module, target)
    _write_with_openmp(module)


def _write_share_openmp(module: NativeModule) -> None:
    """Share a job as a thread of OpenMP's: in the lane of its number, so that it is the same one at
    every launch."""
    f = module.define(_SHARE_OPENMP)
    (job,) = f.parameters
    waits, out = f.label("waits"), f.label("out")
    number = f.call_address(OPENMP_NUMBER.place(f).load(), "i32").widened("i64")
    f.call(SHARE_NUMBERED, job, number)
    f.branch(JOB.at(job)["polls"].load().differs(0), waits, out)
    f.place(waits)
    f.call(_ATTEND, job)
    f.jump(out)
    f.place(out)
    f.ret()


def _write_attend(module: NativeModule, target: NativeTarget) -> None:
    """Wait as the listener until all programs are done; wake it as the thread that was last.

    OpenMP's threads wait for each other deaf to signals, and programs that poll may never end: the
    listener waits here instead.
    """
    f = module.define(_ATTEND)
    job = JOB.at(f.parameters[0])
    other, rouse, waiting = f.label("other"), f.label("rouse"), f.label("waiting", "i64")
    patience, sleep, linger = f.label("patience"), f.label("sleep"), f.label("linger")
    out = f.label("out")
    f.fence(Order.SEQ_CST)
    arguments, programs = job["arguments"].load(), job["programs"].load()
    done, asleep = job["done"], job["asleep"]
    f.branch(f.call(LISTENS), waiting(0), other)

    f.place(other)
    last = done.atomic_load(Order.SEQ_CST) >= programs
    sleeps = asleep.atomic_load(Order.SEQ_CST).differs(0)
    f.branch(last & sleeps, rouse, out)

    f.place(rouse)
    asleep.atomic_store(0, Order.SEQ_CST)
    f.call(WAKE, asleep.address, 1)
    f.ret()

    (turn,) = f.place(waiting)
    all_ = done.atomic_load(Order.SEQ_CST) >= programs
    f.branch(all_ | f.call(HALTED, arguments), out, patience)

    f.place(patience)
    f.branch(turn < target.spin_caller, linger, sleep)

    f.place(sleep)
    asleep.atomic_store(1, Order.SEQ_CST)
    f.branch(done.atomic_load(Order.SEQ_CST) >= programs, out, linger)

    f.place(linger)
    f.jump(waiting(f.call(LINGER, turn, asleep.address, 1, arguments)))

    f.place(out)
    f.ret()


def _write_with_openmp(module: NativeModule) -> None:
    """Share a launch with a team of OpenMP's threads."""
    f = module.define(WITH_OPENMP)
    kernel, arguments, programs, threads, asked = f.parameters
    job = f.stack(JOB.name, 64)
    count = f.minimum(threads, LANES)
    lanes = f.stack(LANE, 64, count)
    f.call(PREPARE, job, lanes, kernel, arguments, programs, count)
    body = Value(f, "ptr", f"@{_SHARE_OPENMP.name}")
    parallel, flags = OPENMP.place(f).load(), f.operand("i32", 0)
    f.call_address(parallel, "void", body, job, asked, flags)
    # its threads meet at the end, so that all of them have been awake
    f.call(HELPED, programs, 0)
    of_cycles, of_done = JOB.at(job)["cycles"], JOB.at(job)["done"]
    f.call(LEARN, kernel, of_cycles.load(), of_done.load())
    f.ret()
