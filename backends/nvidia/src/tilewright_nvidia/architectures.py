"""The supported NVIDIA GPU architectures and their properties."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.errors import LoweringError
from tilewright.plugins.complete_target import check_complete
from tilewright.plugins.manifest import Target

if TYPE_CHECKING:
    from tilewright.gpu_host.driver import Driver

#: (CUDA version of a driver, as ``cuDriverGetVersion`` encodes it, newest PTX version that it
#: accepts), newest first.
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
#: The oldest supported driver.
OLDEST_DRIVER = 12000


@dataclass(frozen=True, slots=True)
class Architecture:
    """The properties of one GPU architecture.

    Attributes:
        name: its name, as LLVM and ptxas spell it; a trailing ``a`` enables instructions of exactly
            this chip.
        capability: compute capability, 10 * major + minor.
        ptx: the PTX version to emit if the driver accepts it.
        min_ptx: the oldest PTX version that has all emitted instructions.
        shared_memory: bytes of shared memory that a CTA may use.
        threads: maximum number of threads of an SM.
        shared_total: bytes of shared memory of an SM.
        blocks: maximum number of CTAs of an SM.
        vector_atomics: whether it has vector atomics on up to 16 bytes of floats (``.v4.f32``).
    """

    name: str
    capability: int
    ptx: int
    min_ptx: int
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
    """Return the newest PTX version that a driver accepts; 0 if the driver is too old."""
    return next((ptx for driver, ptx in PTX_OF_DRIVER if version >= driver), 0)


@functools.cache
def capability_of(cuda: Driver, device: int) -> int:
    """Return a device's compute capability, 10 * major + minor."""
    return 10 * cuda.attribute(device, "capability_major") + cuda.attribute(
        device, "capability_minor"
    )


def architecture_of(capability: int) -> Architecture | None:
    """Return the architecture whose code a device runs; None if there is none.

    This is the device's own architecture, or the newest older one of the same generation that is
    not specific to one chip.
    """
    exact = next((row for row in ARCHITECTURES.values() if row.capability == capability), None)
    if exact is not None:
        return exact
    fitting = [
        row
        for row in ARCHITECTURES.values()
        if row.capability // 10 == capability // 10
        and row.capability < capability
        and row.name[-1] != "a"
    ]
    return max(fitting, key=lambda row: row.capability, default=None)


def target_of(row: Architecture, driver: int = 0) -> Target:
    """Return the compilation target for an architecture, in PTX that the driver accepts.

    With ``driver`` 0, the PTX version is not limited.
    """
    return _target(
        row, row.ptx if not driver else max(row.min_ptx, min(row.ptx, ptx_of_driver(driver)))
    )


def check_target(target: Target) -> None:
    """Check that a target is complete, before code is generated for it.

    Raises:
        LoweringError: it is not, or there is no code for its architecture.
    """
    row = ARCHITECTURES.get(target.arch)
    if row is None:
        raise LoweringError(
            f"there is no code for {target.arch!r}; targets are {', '.join(ARCHITECTURES)}"
        )
    check_complete(target, _target(row, row.min_ptx))


def _target(row: Architecture, ptx: int) -> Target:
    limits = {
        "shared_memory": row.shared_memory,
        "registers": 65536,
        "max_threads": 1024,
        "threads": row.threads,
        "shared_total": row.shared_total,
    }
    return Target("nvidia", row.name, row.name, (f"+ptx{ptx}",), 32, limits, kind="cuda")
