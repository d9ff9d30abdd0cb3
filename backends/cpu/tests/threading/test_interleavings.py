"""The protocol of the native pool, in all orders in which its threads' accesses can happen."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from interleavings import SYSTEM, Location, Machine, Messages, State, Word, WrongError, explore
from llvm_program import Program

from tilewright_cpu.threading.native_pool import pool_ir
from tilewright_cpu.threading.pool_state import JOB

#: A thread that starts workers, shares launches with them, reads what they wrote, and ends them.
_CALLER = """
define void @caller(ptr %kernel, ptr %args) {{
entry:
  call void @set_workers(i32 {workers})
  call void @start()
{launches}  call void @stop()
  ret void
}}
"""
_LAUNCH = """  call void @with_workers(ptr %kernel, ptr %args, i64 {programs}, i32 {threads})
  call void @verify()
"""
#: A kernel of two programs, each of which waits until both have begun.
_MEETING = """
define void @rendezvous(ptr %args, i64 %first, i64 %last, ptr %memory) nounwind {
entry:
  %old = atomicrmw add ptr @met, i32 1 seq_cst
  %both = icmp eq i32 %old, 1
  br i1 %both, label %all, label %look
look:
  %now = load atomic i32, ptr @met seq_cst, align 4
  %done = icmp eq i32 %now, 2
  br i1 %done, label %out, label %sleep
sleep:
  call void @wait(ptr @met, i32 %now)
  br label %look
all:
  call void @wake(ptr @met, i32 1)
  br label %out
out:
  ret void
}
"""
#: One of the threads of a team of OpenMP's, which shares a job whose programs poll.
_MEMBER = """
define void @member(ptr %job, ptr %kernel, ptr %args) {
entry:
  call void @share_openmp(ptr %job)
  ret void
}
"""


def module(extra: str) -> str:
    return pool_ir("x86_64", threads=True, listening=True, spin=1, spin_caller=1) + extra


def mutated(text: str, function: str, before: str, after: str) -> str:
    """The module with the first place of a function replaced that matches ``before``."""
    found = re.search(rf"^define [^\n]*@{function}\(.*?^\}}$", text, re.M | re.S)
    assert found is not None
    changed, count = re.subn(before, after, found[0], count=1)
    assert count == 1
    return text.replace(found[0], changed)


# ---- what the threads call


def run_programs(machine: Machine, state: State, number: int, arguments: list[Word]) -> Word:
    """A kernel, whose programs write a word each; or OpenMP's number of the calling thread."""
    address, *rest = arguments
    if address == ("number_of_thread", 0):
        return number
    _, first, last, _ = rest
    for program in range(first, last):
        machine.plain_write(state, number, ("out", 8 * program), 1)
        state.counted[program] = state.counted.get(program, 0) + 1
    return 0


def verifier(programs: int) -> Mapping[str, object]:
    """The caller's look at the results: all programs ran once more, and it sees what they wrote."""

    def verify(machine: Machine, state: State, number: int, arguments: list[Word]) -> Word:
        state.counted["launches"] = state.counted.get("launches", 0) + 1
        for program in range(programs):
            if state.counted.get(program, 0) != state.counted["launches"]:
                raise WrongError(f"program {program} ran {state.counted.get(program, 0)} times")
            machine.plain_read(state, number, ("out", 8 * program))
        return 0

    return {"verify": verify}


#: A kernel whose cost is known and small, so that no launch is throttled, and its arguments.
_MEMORY: dict[Location, Word] = {
    ("kernel", 0): ("function", 0),
    ("kernel", 8): 1,
    ("args", 24): ("status", 0),
    ("pace", 0): 1 << 40,
    ("openmp_number", 0): ("number_of_thread", 0),
    ("listener", 0): 1,
}
#: What one thread alone uses, or nobody writes; the pool's number of started workers among it.
_PRIVATE = {"kernel", "price", "status", ("pool", 76)}


def launches(text: str, workers: int, programs: int, count: int, **options: int) -> int:
    """Explore a caller and workers that share some launches."""
    one = _LAUNCH.format(programs=programs, threads=workers + 1)
    program = Program(text + _CALLER.format(workers=workers, launches=count * one))
    machine = Machine(program, {**SYSTEM, "%": run_programs, **verifier(programs)}, _PRIVATE)
    memory = {where: Messages([(value, {})]) for where, value in _MEMORY.items()}
    caller = machine.start("caller", [("kernel", 0), ("args", 0)], {})
    state = State([caller], memory, {}, {}, {})

    def finished(state: State) -> None:
        assert state.counted["launches"] == count

    return explore(machine, state, finished, **options)


def rendezvous(text: str, **options: int) -> int:
    """Explore a launch whose programs wait for each other, so that a worker has to take part."""
    one = "  call void @with_workers(ptr %kernel, ptr %args, i64 2, i32 2)\n"
    program = Program(text + _MEETING + _CALLER.format(workers=1, launches=one))
    memory = {**_MEMORY, ("kernel", 0): ("rendezvous", 0)}
    machine = Machine(program, SYSTEM, _PRIVATE)
    caller = machine.start("caller", [("kernel", 0), ("args", 0)], {})
    messages = {where: Messages([(value, {})]) for where, value in memory.items()}
    return explore(machine, State([caller], messages, {}, {}, {}), lambda state: None, **options)


def team(text: str) -> int:
    """Explore the listener and a second thread of OpenMP's, which share a job."""
    machine = Machine(Program(text + _MEMBER), {**SYSTEM, "%": run_programs}, _PRIVATE)
    memory = dict(_MEMORY)
    job = {
        "function": ("function", 0),
        "arguments": ("args", 0),
        "programs": 2,
        "chunk": 1,
        "lanes": 2,
        "lane": ("lane", 0),
        "polls": 1,
    }
    fields = list(JOB.fields)
    memory.update({("job", 8 * fields.index(name)): value for name, value in job.items()})
    # the next program and the end of each lane
    memory.update({("lane", 0): 0, ("lane", 8): 1, ("lane", 64): 1, ("lane", 72): 2})
    given = [("job", 0), ("kernel", 0), ("args", 0)]
    threads = [machine.start("member", given, {}) for _ in range(2)]
    state = State(threads, {where: Messages([(v, {})]) for where, v in memory.items()}, {}, {}, {})

    def finished(state: State) -> None:
        assert state.counted == {0: 1, 1: 1}

    return explore(machine, state, finished)


def test_a_worker_shares_a_launch_in_every_order() -> None:
    assert launches(module(""), workers=1, programs=2, count=1) > 1000


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(("workers", "count"), [(1, 2), (2, 1)])
def test_workers_share_launches_where_few_threads_are_stopped(workers: int, count: int) -> None:
    stops = 2 if workers == 1 else 1
    assert launches(module(""), workers, workers + 1, count, preemptions=stops) > 1000


def test_a_worker_takes_part_in_every_launch() -> None:
    assert rendezvous(module(""), preemptions=2) > 100


def test_the_listener_of_a_team_sleeps_until_all_is_done_in_every_order() -> None:
    assert team(module("")) > 100


_CLAIM = r"(%\w+) = atomicrmw add ptr (%\w+), i64 (%\w+) monotonic"
_BY_A_STORE = r"""\1 = load atomic i64, ptr \2 monotonic, align 8
  %claimed = add i64 \1, \3
  store atomic i64 %claimed, ptr \2 monotonic, align 8"""
_JOIN = r"(%\w+) = cmpxchg ptr @pool, i64 (\S+), i64 (\S+) .*\n  (%\w+) = extractvalue .*"
_UNCONDITIONALLY = r"""\1 = atomicrmw xchg ptr @pool, i64 \3 acq_rel
  \4 = icmp eq i64 \3, \3"""
_WAKE, _NOTHING = r"  call void @wake\(.*", ""


@pytest.mark.parametrize(
    ("function", "before", "after", "wrong"),
    [
        ("worker", _WAKE, _NOTHING, "deadlock"),
        ("stop", _WAKE, _NOTHING, "deadlock"),
        ("share", _CLAIM, _BY_A_STORE, "data race|ran 2 times"),
        ("worker", _JOIN, _UNCONDITIONALLY, "data race|deadlock|times"),
        ("worker", r"(atomicrmw sub ptr @pool, i64 1) acq_rel", r"\1 monotonic", "data race"),
        ("with_workers", r"(load atomic i64, ptr @pool) acquire", r"\1 monotonic", "data race"),
        ("with_workers", r"(atomicrmw add ptr @pool, .*) seq_cst", r"\1 monotonic", "data race"),
    ],
)
def test_a_mutant_of_the_workers_protocol_is_found(
    function: str,
    before: str,
    after: str,
    wrong: str,
) -> None:
    text = mutated(module(""), function, before, after)
    with pytest.raises(WrongError, match=wrong):
        launches(text, workers=1, programs=2, count=1)


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        ("with_workers", _WAKE, _NOTHING),
        ("worker", r"(atomicrmw add ptr getelementptr .*) seq_cst", r"\1 monotonic"),
        ("with_workers", r"(load atomic i32, .*) seq_cst", r"\1 monotonic"),
    ],
)
def test_a_mutant_that_loses_a_wake_up_is_found(function: str, before: str, after: str) -> None:
    with pytest.raises(WrongError, match="deadlock"):
        rendezvous(mutated(module(""), function, before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_WAKE, _NOTHING),
        (r"  fence seq_cst", _NOTHING),
        (r"(store atomic i64 1, .*) seq_cst", r"\1 monotonic"),
    ],
)
def test_a_mutant_of_the_listeners_protocol_is_found(before: str, after: str) -> None:
    with pytest.raises(WrongError, match="deadlock"):
        team(mutated(module(""), "attend", before, after))


def test_executions_under_the_memory_model() -> None:
    """Message passing is a data race unless what is stored is released and acquired."""
    text = """define void @writer() nounwind {
entry:
  store i64 1, ptr @data, align 8
  store atomic i64 1, ptr @flag ORDER, align 8
  ret void
}
define void @reader() nounwind {
entry:
  %f = load atomic i64, ptr @flag acquire, align 8
  %c = icmp eq i64 %f, 1
  br i1 %c, label %look, label %out
look:
  %d = load i64, ptr @data, align 8
  br label %out
out:
  ret void
}
"""

    def run(order: str) -> int:
        machine = Machine(Program(text.replace("ORDER", order)), SYSTEM, set())
        threads = [machine.start(name, [], {}) for name in ("writer", "reader")]
        return explore(machine, State(threads, {}, {}, {}, {}), lambda state: None)

    assert run("release") > 3
    with pytest.raises(WrongError, match="data race"):
        run("monotonic")
