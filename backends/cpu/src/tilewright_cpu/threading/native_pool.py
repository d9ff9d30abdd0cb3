"""The native part of the thread pool: one module of LLVM IR, written by :mod:`.typed_writer`.

The programs of a launch are distributed (:mod:`.work_distribution`) to the pool's workers
(:mod:`.workers`) or to the threads of an OpenMP library (:mod:`.openmp`); whether they are is
decided for each launch (:mod:`.launch_decision`), and signals are handled between programs
(:mod:`.interrupts`).
"""

from __future__ import annotations

from typing import Final

from tilewright_cpu.threading.interrupts import write_interrupts
from tilewright_cpu.threading.launch_decision import write_launch_decision
from tilewright_cpu.threading.openmp import write_openmp
from tilewright_cpu.threading.pool_state import MAX_WORKERS, NativeTarget, define_state
from tilewright_cpu.threading.typed_writer import NativeModule, Signature
from tilewright_cpu.threading.work_distribution import write_distribution
from tilewright_cpu.threading.workers import write_workers

_FUTEX_CALL: Final = {"x86_64": 202, "aarch64": 98}
#: The pause of a spin, and its arguments.
_PAUSE: Final[dict[str, tuple[Signature, tuple[int, ...]]]] = {
    "x86_64": (Signature("llvm.x86.sse2.pause"), ()),
    "aarch64": (Signature("llvm.aarch64.hint", number="i32"), (1,)),
}
_NO_PAUSE: Final[tuple[Signature, tuple[int, ...]]] = (Signature("llvm.donothing"), ())
_CYCLES: Final = {"x86_64": "llvm.readcyclecounter", "aarch64": "llvm.readsteadycounter"}

#: What the IR defines that Python calls or sets.
COMMON_SYMBOLS = (
    "prepare",
    "share_timed",
    "serial",
    "estimate",
    "hot",
    "cold",
    "pace",
    "listener",
    "raised",
    "poll",
    "crowded",
)
THREAD_SYMBOLS = (
    "launch",
    "stop",
    "forget",
    "set_workers",
    "pool",
    "openmp",
    "openmp_threads",
    "openmp_number",
    "owed",
    "measured",
    "forced",
)


def supports_threads(machine: str, system: str) -> bool:
    """Return whether the native pool runs on a system; names are those of LLVM triples."""
    return system == "linux" and machine in _FUTEX_CALL


def pool_ir(machine: str, *, threads: bool, listening: bool, spin: int, spin_caller: int) -> str:
    """Write the module: with ``threads`` all, else the distribution among Python threads only.

    Args:
        machine: ``x86_64`` or ``aarch64``; others get no measured costs.
        listening: whether the interpreter's signals are handled during launches; else these run to
            their end.
        spin: how often a worker looks for a job before it sleeps.
        spin_caller: how often the caller looks whether the workers have left before it sleeps.
    """
    cycles = Signature(_CYCLES.get(machine, "llvm.readcyclecounter"), "i64")
    pause, arguments = _PAUSE.get(machine, _NO_PAUSE)
    futex = _FUTEX_CALL.get(machine, 0)
    target = NativeTarget(cycles, pause, arguments, futex, spin, spin_caller)
    module = NativeModule()
    define_state(module, threads=threads)
    write_distribution(module, target)
    write_interrupts(module, target, listening=listening)
    if threads:
        write_workers(module, target)
        write_openmp(module, target)
        write_launch_decision(module, target)
    return module.text()


__all__ = ["COMMON_SYMBOLS", "MAX_WORKERS", "THREAD_SYMBOLS", "pool_ir", "supports_threads"]
