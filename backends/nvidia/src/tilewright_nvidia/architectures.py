"""The GPU architectures code is generated for, and what each has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.plugins.manifest import Target

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver

#: The PTX version that a driver of each CUDA version (as ``cuDriverGetVersion`` numbers it) understands, newest first.
PTX_OF_DRIVER: tuple[tuple[int, int], ...] = (
    (13000, 90),
    (12090, 88),
    (12080, 87),
    (12070, 86),
    (12050, 85),
    (12040, 84),
    (12030, 83),
    (12020, 82),
    (12010, 81),
    (12000, 80),
)
#: The oldest driver there is code for.
OLDEST_DRIVER = 12000


@dataclass(frozen=True, slots=True)
class Architecture:
    """One target.

    Attributes:
        name: as LLVM and ptxas call it; a trailing ``a`` allows instructions of exactly this chip.
        capability: compute capability, 10 * major + minor.
        ptx: the PTX version that is written where the driver understands it.
        least_ptx: the oldest PTX version that knows what is written for it.
        shared_memory: bytes that a program may use.
        threads: threads of a multiprocessor.
        shared_total: bytes of shared memory of a multiprocessor.
        blocks: programs that a multiprocessor holds.
        vector_atomics: whether one atomic instruction adds up to 16 bytes of floats (``.v4.f32``).
    """

    name: str
    capability: int
    ptx: int
    least_ptx: int
    shared_memory: int
    threads: int
    shared_total: int
    blocks: int
    vector_atomics: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    row.name: row
    for row in (
        Architecture("sm_75", 75, 80, 80, 64 << 10, 1024, 64 << 10, 16),
        Architecture("sm_80", 80, 80, 80, 163 << 10, 2048, 164 << 10, 32),
        Architecture("sm_86", 86, 80, 80, 99 << 10, 1536, 100 << 10, 16),
        Architecture("sm_89", 89, 84, 84, 99 << 10, 1536, 100 << 10, 24),
        Architecture("sm_90a", 90, 86, 84, 227 << 10, 2048, 228 << 10, 32, vector_atomics=True),
        Architecture("sm_100a", 100, 87, 86, 227 << 10, 2048, 228 << 10, 32, vector_atomics=True),
        Architecture("sm_103a", 103, 88, 88, 227 << 10, 2048, 228 << 10, 32, vector_atomics=True),
        Architecture("sm_120a", 120, 87, 87, 99 << 10, 1536, 100 << 10, 24, vector_atomics=True),
        Architecture("sm_121a", 121, 88, 88, 99 << 10, 1536, 100 << 10, 24, vector_atomics=True),
    )
}


def ptx_of_driver(version: int) -> int:
    """The newest PTX version of a driver; 0 for one that is too old."""
    return next((ptx for driver, ptx in PTX_OF_DRIVER if version >= driver), 0)


@functools.cache
def capability_of(cuda: Driver, device: int) -> int:
    """Compute capability, 10 * major + minor."""
    return 10 * cuda.attribute(device, "capability_major") + cuda.attribute(device, "capability_minor")


def architecture_of(capability: int) -> Architecture | None:
    """The target of a device: its own, or one whose code it runs (of the same generation, not newer, and not of one chip alone)."""
    exact = next((row for row in ARCHITECTURES.values() if row.capability == capability), None)
    if exact is not None:
        return exact
    fitting = [row for row in ARCHITECTURES.values() if row.capability // 10 == capability // 10 and row.capability < capability and row.name[-1] != "a"]
    return max(fitting, key=lambda row: row.capability, default=None)


def target_of(row: Architecture, driver: int = 0) -> Target:
    """The target for an architecture, in the PTX that a driver of this version understands (any PTX for 0)."""
    ptx = row.ptx if not driver else max(row.least_ptx, min(row.ptx, ptx_of_driver(driver)))
    limits = {"shared_memory": row.shared_memory, "registers": 65536, "max_threads": 1024, "threads": row.threads, "shared_total": row.shared_total}
    return Target("nvidia", row.name, row.name, (f"+ptx{ptx}",), 32, limits, kind="cuda")
