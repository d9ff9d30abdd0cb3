"""Performance model of launches with matmuls: cycles, estimated before anything is compiled.

A program alternates between *runs* of its pipelined loops and what stands around them. Of a run it takes the longest of: the matrix unit, the arithmetic
beside it, the copies into shared memory. Programs of a multiprocessor share those units and hide each other's waits; a launch takes as long as the
multiprocessor with the most programs. A slot of a ring is filled, waits, is read and is free again: the fewer there are, the longer a run takes.

Where the figures come from (H100 SXM, f16, random data, each in one process with cuBLAS): the matrix unit is busy for 262,144 of 284,576 cycles of four
128x256x4096 products and their epilogues, which are bound by memory (14 bytes a cycle of each multiprocessor are 3 TB/s); tiles of 128 columns starve at
about 50 bytes a cycle by the copy engine; ``cp.async`` brings 37 to 40; ``mma.sync`` reaches 421 TFLOP/s with 128x128 tiles and 452 with 128x256, where
``wgmma`` has 703. The rates of other GPUs are those of their data sheets.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import FloatType, IntType, Type, bit_width
from tilewright.ir.work import Body, Dot, Work
from tilewright.plugins.manifest import Target
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.mma import wgmma

#: Cycles that a copy takes from memory to shared memory, and that a program takes before its first and after its last copy.
_TRIP: Final = 1000
_START: Final = 1500
_END: Final = 500
#: Bytes a cycle that the copy engine and cp.async bring, and that each multiprocessor writes while all do.
_ENGINE, _COPIES, _WRITES = 50.0, 39.0, 14.0
#: Bytes a cycle that shared memory gives.
_SHARED: Final = 128.0
#: Elements a cycle of plain and of slow operations.
_PLAIN, _SLOW = 96.0, 16.0
#: Registers that a thread needs beside its accumulators.
_OTHER_REGISTERS: Final = 36
#: The part of the shorter of two kinds of work that does not overlap the longer: a warp is in one place at a time.
_ALONE: Final = 0.3
#: How sharply the longer of two kinds of work at once decides.
_CROWD: Final = 8
#: How long a product holds its slot, in its own time: the next one begins before it is known to have ended.
_HELD: Final = 1.5
#: Warps of which a multiprocessor needs one to keep each of its four matrix units busy.
_UNITS: Final = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """What of an architecture counts here.

    Attributes:
        processors: multiprocessors.
        matrix: operations a cycle of each, of f16 by ``mma.sync``.
        warpgroup: the same by ``wgmma``; 0 where there is none.
        shared: bytes of shared memory of a program; shared_total: of a multiprocessor; threads: of a multiprocessor.
    """

    processors: int
    matrix: float
    warpgroup: float
    shared: int
    shared_total: int
    threads: int


#: (multiprocessors, operations of f16 a cycle of each by mma.sync, by wgmma) of the usual GPU of an architecture.
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
    """The machine of a target: with the multiprocessors of the GPU that is here, where one is, else of the usual one."""
    usual, matrix, warpgroup = _RATES[target.arch]
    row = ARCHITECTURES[target.arch]
    shared = int(target.limits.get("shared_memory", row.shared_memory))
    return Machine(_processors(target.arch) or usual, matrix, warpgroup, shared, row.shared_total, row.threads)


@functools.cache
def _processors(arch: str) -> int:
    """Multiprocessors of the first GPU of an architecture; 0 where there is none."""
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
    """What is thought of a configuration.

    Attributes:
        cycles: of the launch; of one program for a thousand million operations, where the number of programs is not known.
        registers: that a thread needs at least; spilled: how many of them it does not have.
        shared: bytes of the rings; slots: of the deepest of them.
        resident: programs that a multiprocessor holds.
        by_warpgroups: whether all products are.
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
    """The options that matter."""

    warps: int
    stages: int
    asynchronous: bool
    divided: bool
    registers: int


def estimate(work: Work, target: Target) -> Estimate:
    """The estimate of a launch that multiplies matrices."""
    machine = machine_of(target)
    given = work.options
    warps = int(given.get("num_warps") or 4)
    limit = min(255, 65536 // (32 * warps), int(given.get("maxnreg") or 255))
    asynchronous = bool(given.get("asynchronous")) and machine.warpgroup > 0
    options = _Options(warps, int(given.get("num_stages") or 1), asynchronous, bool(given.get("warp_specialize")) and asynchronous, limit)
    dots = [dot for body in work.bodies[0] for dot in body.dots]
    grouped = [_by_warpgroups(dot, options) for dot in dots]
    needed = max(_registers(dot, options, own) for dot, own in zip(dots, grouped, strict=True)) + _OTHER_REGISTERS
    rings = [_ring(body, options, machine) for body in work.bodies[0] if body.dots]
    shared, slots = max((slots * size for size, slots in rings), default=0), max((slots for _, slots in rings), default=1)
    resident = _resident(machine, options, shared, min(needed, limit))
    times = [_program(bodies, options, machine) for bodies in work.bodies]
    spilled = max(0, needed - limit)
    cycles = _launch(work.programs, times, machine, resident)
    if work.programs is None:
        operations = sum(body.runs * dot.operations for body in work.bodies[0] for dot in body.dots)
        cycles *= 1e9 / max(1.0, operations)
    # what a thread has not registers for goes to memory and back in every run
    cycles *= 1 + spilled / 32
    return Estimate(cycles, needed, spilled, shared, slots, resident, all(grouped))


@dataclass(frozen=True, slots=True)
class _Times:
    """Cycles of one program: of the matrix unit, arithmetic and copies, of what it writes, and alone on its multiprocessor."""

    matrix: float
    arithmetic: float
    copies: float
    writes: float
    alone: float


def _launch(programs: int | None, times: list[_Times], machine: Machine, resident: int) -> float:
    """Cycles of the multiprocessor with the most programs: each of its units serves all of them, and so many at a time go their way."""
    if programs is None:
        programs = machine.processors * resident
    most = math.ceil(programs / machine.processors)
    rounds = math.ceil(most / resident)
    # in a single round the slowest program counts, in many their mean
    weigh = max if rounds == 1 and most == 1 else _mean
    units = [weigh([getattr(each, unit) for each in times]) for unit in ("matrix", "arithmetic", "copies", "writes")]
    return max(most * max(units), rounds * weigh([each.alone for each in times])) + _START


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _program(bodies: tuple[Body, ...], options: _Options, machine: Machine) -> _Times:
    matrix = arithmetic = copies = writes = alone = 0.0
    ahead, hidden = 0.0, 0.5
    for body in bodies:
        products = sum(_product_cycles(dot, options, machine) for dot in body.dots)
        plain = (body.computed / _PLAIN if body.dots or body.stored else 0.0) + body.slow / _SLOW
        written = (_END + body.stored / _WRITES if body.stored else 0.0) * body.runs
        writes += body.stored / _WRITES * body.runs
        matrix += products * body.runs
        arithmetic += plain * body.runs
        if not body.dots:
            alone += written + plain * body.runs
            continue
        size, slots = _ring(body, options, machine)
        copied = size / (_ENGINE if options.asynchronous else _COPIES)
        copies += copied * body.runs
        here = max(products, plain) + _ALONE * min(products, plain)
        if not options.asynchronous:
            # the same warps copy, load fragments and multiply
            here = max(here, copied) + _ALONE * min(here, copied)
            matrix += (here - products) * body.runs
        alone += max(_crowded(here, copied), _turn(here, copied, slots)) * body.runs + written
        divided = options.divided or (options.asynchronous and body.specialized)
        if divided or body.flattened:
            # warps of their own copy for the next entry while the others end this one
            ahead += max(0.0, copied - here) * body.runs
            hidden = 1.0 if divided else hidden
        else:
            alone += _TRIP * body.entries
    if ahead:
        alone -= min(ahead, writes * hidden)
    return _Times(matrix, arithmetic, copies, writes, alone + _TRIP)


def _crowded(here: float, copied: float) -> float:
    """Cycles of two kinds of work at once, which wait for each other now and then where they take about as long."""
    longer, shorter = max(here, copied), min(here, copied)
    return longer * (1 + (shorter / longer) ** _CROWD) ** (1 / _CROWD) if longer else 0.0


def _turn(here: float, copied: float, slots: int) -> float:
    """Cycles of a run that a ring of so many slots allows: each is filled, waits, is read, and is free again only when the next product has begun."""
    return (_TRIP + copied + _HELD * here) / slots if copied else 0.0


def _ring(body: Body, options: _Options, machine: Machine) -> tuple[int, int]:
    """(bytes of a slot, slots) of a body's ring, of as many slots as fit."""
    size = sum(dot.loaded for dot in body.dots)
    wanted = max(1, body.stages or options.stages)
    return size, (max(1, min(wanted, machine.shared // size)) if size else 1)


def _resident(machine: Machine, options: _Options, shared: int, registers: int) -> int:
    """Programs that a multiprocessor holds."""
    threads = 32 * (options.warps + (wgmma.GROUP if options.divided else 0))
    registers = -(-registers // 8) * 8
    found = min(machine.threads // threads, 65536 // (threads * registers), machine.shared_total // (shared + 1024))
    return max(1, min(32, found))


# ---- products


def _by_warpgroups(dot: Dot, options: _Options) -> bool:
    return options.asynchronous and _tiling(dot, options) is not None


def _tiling(dot: Dot, options: _Options) -> wgmma.Tiling | None:
    """How warpgroups share a product; None where they cannot."""
    if dot.batch != 1 or not isinstance(dot.accumulator, FloatType | IntType) or bit_width(dot.a) > 32:
        return None
    if bit_width(dot.a) == 32 and dot.precision != "tf32":
        return None
    return wgmma.tile(Matmul((dot.m, dot.n), dot.k, dot.a, dot.b, dot.accumulator, dot.precision, 0, options.warps))


def _product_cycles(dot: Dot, options: _Options, machine: Machine) -> float:
    """Cycles of one product."""
    tiling = _tiling(dot, options) if options.asynchronous else None
    if tiling is not None:
        # an instruction of 64 rows reads its rows and all its columns from shared memory, 32 bytes of each
        multiplied = 2 * wgmma.ROWS * tiling.columns * tiling.step / (machine.warpgroup * _speed(dot))
        read = wgmma.STEP * (wgmma.ROWS + tiling.columns) / _SHARED
        count = tiling.groups_m * tiling.groups_n * tiling.repeats_m * tiling.repeats_n * tiling.steps
        return count * max(multiplied, read)
    rate = machine.matrix * _speed(dot) * min(1.0, options.warps / _UNITS)
    return max(dot.operations / rate, _fragments(dot, options) / _SHARED)


def _speed(dot: Dot) -> float:
    """The rate of a product of these operands, in that of f16."""
    bits = max(bit_width(dot.a), bit_width(dot.b))
    passes = {"tf32x3": 3, "bf16x3": 3, "bf16x6": 6}.get(dot.precision, 1)
    if bits == 32 and dot.precision == "ieee":
        return 1 / 16
    return {8: 2.0, 16: 1.0, 32: 0.5, 64: 1 / 32}.get(bits, 1.0) / passes


def _fragments(dot: Dot, options: _Options) -> float:
    """Bytes that the warps read of a product's operands: each its rows and columns, in squares as far as may be."""
    across = 2 ** round(math.log2(max(1.0, math.sqrt(options.warps * dot.m / max(1, dot.n)))))
    rows = max(1, min(across, options.warps))
    columns = max(1, options.warps // rows)
    sizes = _bytes_of(dot.a), _bytes_of(dot.b)
    return float(dot.batch * dot.k * (dot.m * sizes[0] * columns + dot.n * sizes[1] * rows))


def _bytes_of(type_: Type) -> float:
    return bit_width(type_) / 8


def _registers(dot: Dot, options: _Options, grouped: bool) -> int:
    """Registers of a thread for a product: its accumulators, and by ``mma.sync`` fragments of both operands."""
    accumulators = dot.batch * dot.m * dot.n * bit_width(dot.accumulator) // (32 * 32 * options.warps)
    if grouped:
        return accumulators
    # a warp's fragments of one step of 32 bytes along K
    step = min(dot.k, 32 // max(1, bit_width(dot.a) // 8))
    return accumulators + int(min(dot.batch, 1) * step * math.sqrt(dot.m * dot.n / options.warps) * 2 * _bytes_of(dot.a)) // (32 * 4)


__all__ = ["Estimate", "Machine", "estimate", "machine_of"]
