"""Structures, variables and system functions that the parts of the native pool share.

A *kernel record* belongs to one loaded kernel:

    function: its code; cost: cycles of a program, times 16, 0 while unknown; launches: how many
    there were; limit: threads, 0 for all; polls: 1 where its programs have cancellation checks;
    memory: bytes that a thread that takes part in a launch yields to its programs; cleared: how
    many of them are zero at first

A *job* is one launch:

    chunk: programs that a thread takes at a time; entered: threads that have a lane; cycles, done:
    totals over its threads; lanes: how many there are; lane: the first; pace: programs at a time
    where it is throttled, else 0; asleep: 1 while the listener sleeps until all are done; polls,
    memory, cleared: the kernel's

The *pool* has the state of its workers:

    state: an epoch in the upper half, odd while a job is open, and below it how many workers are
    inside; sleepers: workers that may be in a futex wait; lock: 1 while a launch has the workers;
    down: 1 where they are to end; started, wanted: workers; guests: how many of them the job takes;
    ended: when the last shared launch did
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright_cpu.threading.typed_writer import (
    Code,
    Global,
    NativeModule,
    Signature,
    Struct,
    Value,
)

#: Most workers a pool can have, and lanes.
MAX_WORKERS: Final = 1023
LANES: Final = MAX_WORKERS + 1

KERNEL: Final = Struct(
    "Kernel",
    function="ptr",
    cost="i64",
    launches="i64",
    limit="i32",
    polls="i32",
    memory="i64",
    cleared="i64",
)
JOB: Final = Struct(
    "Job",
    function="ptr",
    arguments="ptr",
    programs="i64",
    chunk="i64",
    entered="i64",
    cycles="i64",
    done="i64",
    lanes="i64",
    lane="ptr",
    pace="i64",
    asleep="i64",
    polls="i64",
    memory="i64",
    cleared="i64",
)
POOL: Final = Struct(
    "Pool",
    state="i64",
    apart="[7 x i64]",
    sleepers="i32",
    lock="i32",
    down="i32",
    started="i32",
    wanted="i32",
    guests="i32",
    ended="i64",
    rest="[4 x i64]",
)
#: A lane: the next program and the lane's end, in a cache line of their own.
LANE: Final = "[8 x i64]"

#: Type, value and traceback of the exception that stopped a launch.
RAISED: Final = Global("raised", "[3 x ptr]")
#: The interpreter's main thread, which handles signals; 0: none.
LISTENER: Final = Global("listener", "i64", 0)
#: Whether a launch had more threads than there are processors.
CROWDED: Final = Global("crowded", "i64", 0)
#: Cycles of programs that a throttled launch's thread takes at a time, about.
PACE: Final = Global("pace", "i64", 0)
#: Cycles of work worth sharing with threads that are awake, and with threads that sleep.
HOT: Final = Global("hot", "i64", 0)
COLD: Final = Global("cold", "i64", 0)

THE_POOL: Final = Global("pool", POOL.name, align=64)
THE_JOB: Final = Global("job", JOB.name, align=64)
THE_LANES: Final = Global("lanes", f"[{LANES} x {LANE}]", internal=True, align=64)

#: GOMP_parallel, omp_get_max_threads and omp_get_thread_num of another library's OpenMP, or null.
OPENMP: Final = Global("openmp", "ptr", "null")
OPENMP_THREADS: Final = Global("openmp_threads", "ptr", "null")
OPENMP_NUMBER: Final = Global("openmp_number", "ptr", "null")


@dataclass(frozen=True)
class NativeTarget:
    """Properties of the processor and the system, and bounds of spins.

    Attributes:
        cycles: the counter that costs are measured with.
        pause: a spin's pause, and its argument, if it has one.
        futex: the number of that system call.
        spin: how often a worker looks for a job before it sleeps.
        spin_caller: how often the caller looks whether the workers have left before it sleeps.
    """

    cycles: Signature
    pause: Signature
    pause_arguments: tuple[int, ...]
    futex: int
    spin: int
    spin_caller: int

    def now(self, f: Code) -> Value:
        """Read the cycle counter."""
        return f.call(self.cycles)

    def rest(self, f: Code) -> None:
        """Pause in a spin."""
        f.call(self.pause, *self.pause_arguments)


def define_state(module: NativeModule, *, threads: bool) -> None:
    """Define the structures and variables; those of workers and OpenMP with ``threads`` only."""
    module.add(KERNEL, JOB, RAISED, LISTENER, CROWDED, PACE, HOT, COLD)
    if threads:
        module.add(POOL, THE_POOL, THE_JOB, THE_LANES, OPENMP, OPENMP_THREADS, OPENMP_NUMBER)
