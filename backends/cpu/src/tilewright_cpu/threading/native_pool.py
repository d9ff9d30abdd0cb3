"""The native part of the thread pool, as one module of LLVM IR.

The programs of a launch are distributed (:mod:`.work_distribution`) to the pool's workers
(:mod:`.workers`) or to the threads of an OpenMP library (:mod:`.openmp`); whether they are is
decided for each launch (:mod:`.launch_decision`), and signals are handled between programs
(:mod:`.interrupts`).
"""

from __future__ import annotations

from tilewright_cpu.status import ALIGNMENT, INTERRUPTED, OUT_OF_MEMORY
from tilewright_cpu.threading.interrupts import CANCELLATION, DEAF, LISTENING, MOST_TURNS
from tilewright_cpu.threading.launch_decision import LAUNCH
from tilewright_cpu.threading.openmp import OPENMP
from tilewright_cpu.threading.work_distribution import SHARING
from tilewright_cpu.threading.workers import WORKERS

#: Most workers a pool can have.
MAX_WORKERS = 1023
#: Meetings of threads that the hand-off is measured by.
_MEETINGS = 8

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ""), "aarch64": ("llvm.aarch64.hint", "i32 1")}
_CYCLES = {"x86_64": "llvm.readcyclecounter", "aarch64": "llvm.readsteadycounter"}

_ATTRIBUTES = "\nattributes #0 = { nounwind }\nattributes #1 = { nounwind noinline }\n"

#: What the IR defines that Python calls or sets.
COMMON_SYMBOLS = ("prepare", "share_timed", "serial", "estimate", "hot", "cold", "pace", "listener", "raised", "poll", "crowded")
THREAD_SYMBOLS = ("launch", "stop", "forget", "set_workers", "pool", "openmp", "openmp_threads", "openmp_number", "owed", "measured", "forced")


def supports_threads(machine: str, system: str) -> bool:
    """Return whether the native pool runs on a system; names are those of LLVM triples."""
    return system == "linux" and machine in _FUTEX_CALL


def pool_ir(machine: str, *, threads: bool, listening: bool, spin: int, spin_caller: int) -> str:
    """The module's text: with ``threads`` all, else the distribution among Python threads only.

    Args:
        machine: ``x86_64`` or ``aarch64``; others get no measured costs.
        listening: whether the interpreter's signals are handled during launches; else these run to
            their end.
        spin: how often a worker looks for a job before it sleeps.
        spin_caller: how often the caller looks whether the workers have left before it sleeps.
    """
    text = SHARING + CANCELLATION + (LISTENING if listening else DEAF) + (WORKERS + OPENMP + LAUNCH if threads else "") + _ATTRIBUTES
    pause, argument = _PAUSE.get(machine, ("", ""))
    cycles = _CYCLES.get(machine, "llvm.readcyclecounter")
    words = {
        "MAX_WORKERS": str(MAX_WORKERS),
        "LANES": str(MAX_WORKERS + 1),
        "MEETINGS": str(_MEETINGS),
        "PAUSE_TYPE": argument.split(" ")[0],
        "PAUSE_ARG": argument,
        "PAUSE": pause,
        "FUTEX": str(_FUTEX_CALL.get(machine, 0)),
        "SPIN_CALLER": str(spin_caller),
        "SPIN": str(spin),
        "CYCLES": cycles,
        "INTERRUPTED": str(INTERRUPTED),
        "OUT_OF_MEMORY": str(OUT_OF_MEMORY),
        "ALIGNED_UP": str(ALIGNMENT - 1),
        "ALIGNMENT": str(ALIGNMENT),
        "MOST_TURNS": str(MOST_TURNS),
    }
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text
