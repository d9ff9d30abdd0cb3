"""Performance model of launches with matmuls: cycles, estimated before compilation.

A CTA alternates between iterations of its pipelined loops and the code around them. An iteration
takes as long as the longest of its tensor core work, its other arithmetic, and its copies into
shared memory. The CTAs of an SM share those units and hide each other's stalls; a launch takes as
long as the SM with the most CTAs. A pipeline stage is filled, waits, is read and is released: the
fewer stages, the longer an iteration takes.

The figures come from an H100 SXM (f16, random data, each in one process with cuBLAS). The tensor
cores are busy for 262,144 of 284,576 cycles of four 128x256x4096 matmuls. Epilogues are bound by
memory (14 bytes per cycle and SM are 3 TB/s). Tiles of 128 columns starve at about 50 bytes per
cycle by TMA; ``cp.async`` reaches 37 to 40. ``mma.sync`` reaches 421 TFLOP/s with 128x128 tiles and
452 with 128x256, and ``wgmma`` 703. The rates of other GPUs are those of their data sheets.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import FloatType, IntType, Type, bit_width
from tilewright.ir.work import Body, MatmulWork, Work
from tilewright.plugins.manifest import Target
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.mma import wgmma

#: Latency of a copy to shared memory in cycles, and a CTA's cycles before its first and after its
#: last copy.
_TRIP: Final = 1000
_START: Final = 1500
_END: Final = 500
#: Bytes per cycle of an SM: by TMA, by cp.async, and by stores while all SMs store.
_ENGINE, _COPIES, _WRITES = 50.0, 39.0, 14.0
#: Bytes per cycle of shared memory.
_SHARED: Final = 128.0
#: Elements per cycle of fast and of slow operations.
_PLAIN, _SLOW = 96.0, 16.0
#: Registers that a thread needs besides its accumulators.
_OTHER_REGISTERS: Final = 36
#: The fraction of the shorter of two kinds of work that does not overlap the longer, since a warp
#: issues one at a time.
_ALONE: Final = 0.3
#: The exponent that combines two concurrent kinds of work: the larger, the more the longer one
#: dominates.
_CROWD: Final = 8
#: How long a matmul occupies its stage, relative to its own duration: the next one starts before
#: its completion is observed.
_HELD: Final = 1.5
#: Warps that keep the four tensor cores of an SM busy.
_UNITS: Final = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a GPU that the model uses.

    Attributes:
        processors: SMs of the device.
        matrix: f16 operations per cycle of an SM by ``mma.sync``.
        warpgroup: f16 operations per cycle of an SM by ``wgmma``; 0 if there is none.
        shared: bytes of shared memory of a CTA; shared_total: of an SM; threads: of an SM.
    """

    processors: int
    matrix: float
    warpgroup: float
    shared: int
    shared_total: int
    threads: int


#: Architecture -> (SMs of its reference GPU, f16 operations per cycle of an SM by mma.sync, by
#: wgmma).
_RATES: Final[dict[str, tuple[int, float, float]]] = {
    "sm_75": (40, 1024, 0),
    "sm_80": (108, 2048, 0),
    "sm_86": (84, 1024, 0),
    "sm_89": (128, 1024, 0),
    "sm_90a": (132, 2660, 4096),
    "sm_100a": (148, 2048, 0),
    "sm_103a": (148, 2048, 0),
    "sm_120a": (170, 1024, 0),
    "sm_121a": (48, 1024, 0),
}


def machine_of(target: Target) -> Machine:
    """Return the model of a target, with the SM count of the local GPU if there is one."""
    usual, matrix, warpgroup = _RATES[target.arch]
    row = ARCHITECTURES[target.arch]
    shared = int(target.limits.get("shared_memory", row.shared_memory))
    return Machine(
        _processors(target.arch) or usual, matrix, warpgroup, shared, row.shared_total, row.threads
    )


@functools.cache
def _processors(arch: str) -> int:
    """Return the SMs of the first local GPU of an architecture; 0 if there is none."""
    from tilewright.errors import BackendError
    from tilewright_nvidia.architectures import target_of
    from tilewright_nvidia.host.devices import first_of
    from tilewright_nvidia.host.driver import driver
    from tilewright_nvidia.toolchain.installation import why_not

    if why_not():
        return 0
    try:
        device = first_of(driver(), target_of(ARCHITECTURES[arch]))
        return 0 if device is None else int(driver().attribute(device, "processors"))
    except BackendError:
        return 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated performance of a configuration.

    Attributes:
        cycles: cycles of the launch; if the number of programs is not known, those of one CTA per
            10**9 operations.
        registers: minimum registers that a thread needs; spilled: registers that it lacks.
        shared: bytes of the multi-buffered operands; slots: stages of the deepest pipeline.
        resident: CTAs per SM.
        by_warpgroups: whether all matmuls use ``wgmma``.
    """

    cycles: float
    registers: int
    spilled: int
    shared: int
    slots: int
    resident: int
    by_warpgroups: bool


@dataclass(frozen=True, slots=True)
class _Options:
    """The launch options that the model uses."""

    warps: int
    stages: int
    asynchronous: bool
    divided: bool
    registers: int


def estimate(work: Work, target: Target) -> Estimate:
    """Estimate a launch with matmuls."""
    machine = machine_of(target)
    given = work.options
    warps = int(given.get("num_warps") or 4)
    limit = min(255, 65536 // (32 * warps), int(given.get("maxnreg") or 255))
    asynchronous = bool(given.get("asynchronous")) and machine.warpgroup > 0
    options = _Options(
        warps,
        int(given.get("num_stages") or 1),
        asynchronous,
        bool(given.get("warp_specialize")) and asynchronous,
        limit,
    )
    dots = [dot for body in work.bodies[0] for dot in body.dots]
    grouped = [_by_warpgroups(dot, options) for dot in dots]
    needed = (
        max(_registers(dot, options, own) for dot, own in zip(dots, grouped, strict=True))
        + _OTHER_REGISTERS
    )
    rings = [_ring(body, options, machine) for body in work.bodies[0] if body.dots]
    shared, slots = (
        max((slots * size for size, slots in rings), default=0),
        max((slots for _, slots in rings), default=1),
    )
    resident = _resident(machine, options, shared, min(needed, limit))
    times = [_program(bodies, options, machine) for bodies in work.bodies]
    spilled = max(0, needed - limit)
    cycles = _launch(work.programs, times, machine, resident)
    if work.programs is None:
        operations = sum(body.runs * dot.operations for body in work.bodies[0] for dot in body.dots)
        cycles *= 1e9 / max(1.0, operations)
    # spilled registers go to memory and back in every iteration
    cycles *= 1 + spilled / 32
    return Estimate(cycles, needed, spilled, shared, slots, resident, all(grouped))


@dataclass(frozen=True, slots=True)
class _Times:
    """Cycles of one CTA: tensor cores, arithmetic, copies, stores, and the CTA alone on an SM."""

    matrix: float
    arithmetic: float
    copies: float
    writes: float
    alone: float


def _launch(programs: int | None, times: list[_Times], machine: Machine, resident: int) -> float:
    """Return the cycles of the SM with the most CTAs.

    All its CTAs share its units, and ``resident`` of them run at a time.
    """
    if programs is None:
        programs = machine.processors * resident
    most = math.ceil(programs / machine.processors)
    rounds = math.ceil(most / resident)
    # in a single round the slowest CTA counts, in several rounds their mean
    weigh = max if rounds == 1 and most == 1 else _mean
    units = [
        weigh([getattr(each, unit) for each in times])
        for unit in ("matrix", "arithmetic", "copies", "writes")
    ]
    return max(most * max(units), rounds * weigh([each.alone for each in times])) + _START


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _program(bodies: tuple[Body, ...], options: _Options, machine: Machine) -> _Times:
    matrix = arithmetic = copies = writes = alone = 0.0
    ahead, hidden = 0.0, 0.5
    for body in bodies:
        matmuls = sum(_matmul_cycles(dot, options, machine) for dot in body.dots)
        plain = (body.computed / _PLAIN if body.dots or body.stored else 0.0) + body.slow / _SLOW
        written = (_END + body.stored / _WRITES if body.stored else 0.0) * body.runs
        writes += body.stored / _WRITES * body.runs
        matrix += matmuls * body.runs
        arithmetic += plain * body.runs
        if not body.dots:
            alone += written + plain * body.runs
            continue
        size, slots = _ring(body, options, machine)
        copied = size / (_ENGINE if options.asynchronous else _COPIES)
        copies += copied * body.runs
        here = max(matmuls, plain) + _ALONE * min(matmuls, plain)
        if not options.asynchronous:
            # the same warps copy, load fragments and multiply
            here = max(here, copied) + _ALONE * min(here, copied)
            matrix += (here - matmuls) * body.runs
        alone += max(_crowded(here, copied), _turn(here, copied, slots)) * body.runs + written
        divided = options.divided or (options.asynchronous and body.specialized)
        if divided or body.flattened:
            # producer warps copy for the next tile while the others run the epilogue
            ahead += max(0.0, copied - here) * body.runs
            hidden = 1.0 if divided else hidden
        else:
            alone += _TRIP * body.entries
    if ahead:
        alone -= min(ahead, writes * hidden)
    return _Times(matrix, arithmetic, copies, writes, alone + _TRIP)


def _crowded(here: float, copied: float) -> float:
    """Return the cycles of two concurrent kinds of work, which stall each other if balanced."""
    longer, shorter = max(here, copied), min(here, copied)
    return longer * (1 + (shorter / longer) ** _CROWD) ** (1 / _CROWD) if longer else 0.0


def _turn(here: float, copied: float, slots: int) -> float:
    """Return the cycles of an iteration that the pipeline's stages allow.

    A stage is filled, waits, is read, and is released only when the next matmul has started.
    """
    return (_TRIP + copied + _HELD * here) / slots if copied else 0.0


def _ring(body: Body, options: _Options, machine: Machine) -> tuple[int, int]:
    """Return (bytes of a stage, stages that fit) of a loop's multi-buffered operands."""
    size = sum(dot.loaded for dot in body.dots)
    wanted = max(1, body.stages or options.stages)
    return size, (max(1, min(wanted, machine.shared // size)) if size else 1)


def _resident(machine: Machine, options: _Options, shared: int, registers: int) -> int:
    """Return the CTAs per SM."""
    threads = 32 * (options.warps + (wgmma.GROUP if options.divided else 0))
    registers = -(-registers // 8) * 8
    found = min(
        machine.threads // threads,
        65536 // (threads * registers),
        machine.shared_total // (shared + 1024),
    )
    return max(1, min(32, found))


# ---- matmuls


def _by_warpgroups(dot: MatmulWork, options: _Options) -> bool:
    return options.asynchronous and _tiling(dot, options) is not None


def _tiling(dot: MatmulWork, options: _Options) -> wgmma.Tiling | None:
    """Return the distribution of a matmul over warpgroups; None if wgmma does not fit."""
    if (
        dot.batch != 1
        or not isinstance(dot.accumulator, FloatType | IntType)
        or bit_width(dot.a) > 32
    ):
        return None
    if bit_width(dot.a) == 32 and dot.precision != "tf32":
        return None
    return wgmma.tile(
        Matmul(
            (dot.m, dot.n), dot.k, dot.a, dot.b, dot.accumulator, dot.precision, 0, options.warps
        )
    )


def _matmul_cycles(dot: MatmulWork, options: _Options, machine: Machine) -> float:
    """Return the cycles of one matmul."""
    tiling = _tiling(dot, options) if options.asynchronous else None
    if tiling is not None:
        # an instruction reads 32 bytes of each of its 64 rows and its columns from shared memory
        multiplied = (
            2 * wgmma.ROWS * tiling.columns * tiling.step / (machine.warpgroup * _speed(dot))
        )
        read = wgmma.STEP * (wgmma.ROWS + tiling.columns) / _SHARED
        count = (
            tiling.groups_m * tiling.groups_n * tiling.repeats_m * tiling.repeats_n * tiling.steps
        )
        return count * max(multiplied, read)
    rate = machine.matrix * _speed(dot) * min(1.0, options.warps / _UNITS)
    return max(dot.operations / rate, _fragments(dot, options) / _SHARED)


def _speed(dot: MatmulWork) -> float:
    """Return the rate of a matmul with these operands, relative to f16."""
    bits = max(bit_width(dot.a), bit_width(dot.b))
    passes = {"tf32x3": 3, "bf16x3": 3, "bf16x6": 6}.get(dot.precision, 1)
    if bits == 32 and dot.precision == "ieee":
        return 1 / 16
    return {8: 2.0, 16: 1.0, 32: 0.5, 64: 1 / 32}.get(bits, 1.0) / passes


def _fragments(dot: MatmulWork, options: _Options) -> float:
    """Return the bytes of operands that warps load, for nearly square warp tiles."""
    across = 2 ** round(math.log2(max(1.0, math.sqrt(options.warps * dot.m / max(1, dot.n)))))
    rows = max(1, min(across, options.warps))
    columns = max(1, options.warps // rows)
    sizes = _bytes_of(dot.a), _bytes_of(dot.b)
    return float(dot.batch * dot.k * (dot.m * sizes[0] * columns + dot.n * sizes[1] * rows))


def _bytes_of(type_: Type) -> float:
    return bit_width(type_) / 8


def _registers(dot: MatmulWork, options: _Options, grouped: bool) -> int:
    """Return a thread's registers for a matmul: accumulators, and fragments for ``mma.sync``."""
    accumulators = (
        dot.batch * dot.m * dot.n * bit_width(dot.accumulator) // (32 * 32 * options.warps)
    )
    if grouped:
        return accumulators
    # a warp's fragments for 32 bytes along K
    step = min(dot.k, 32 // max(1, bit_width(dot.a) // 8))
    return accumulators + int(
        min(dot.batch, 1) * step * math.sqrt(dot.m * dot.n / options.warps) * 2 * _bytes_of(dot.a)
    ) // (32 * 4)


__all__ = ["Estimate", "Machine", "estimate", "machine_of"]
