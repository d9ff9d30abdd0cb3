"""Launch of a kernel: initial registers by its descriptor, and batches of workgroups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilewright_amd_emulator.code.operands import ACCUMULATION, TTMP
from tilewright_amd_emulator.code.program import Decoded, Kernel, Program
from tilewright_amd_emulator.decode.decoder import Decoder
from tilewright_amd_emulator.engine.coverage import Coverage
from tilewright_amd_emulator.engine.schedule import Schedule
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.instructions import cross_lane, table
from tilewright_amd_emulator.instructions.global_memory import ADD_THREAD
from tilewright_amd_emulator.instructions.lds import lds_limit
from tilewright_amd_emulator.state.machine import Machine, Modes
from tilewright_amd_emulator.state.outstanding import Pending

if TYPE_CHECKING:
    from tilewright_amd_emulator.memory.arena import Arena

Array = np.ndarray[Any, np.dtype[Any]]

#: waves that run together at most, where a workgroup does not have more
WAVES_AT_ONCE = 64


def run(
    program: Program,
    kernel: str,
    *,
    grid: tuple[int, int, int],
    threads: int,
    arguments: bytes,
    arena: Arena,
    dynamic_lds: int = 0,
    schedule: Literal["lockstep", "random"] = "lockstep",
    seed: int = 0,
    limit: int = 1 << 28,
    together: bool = False,
) -> Coverage:
    """Run ``grid`` workgroups of ``threads`` work-items (in x) of a kernel.

    ``arguments`` are the bytes of the kernarg segment, ``dynamic_lds`` bytes of local memory behind
    the static ones. ``lockstep`` executes all waves that are at the lowest place together;
    ``random`` runs one wave of each workgroup at a time, in an order that ``seed`` chooses, from
    barrier to barrier. ``limit`` is how many instructions the waves of a batch may execute before
    the kernel counts as one that does not end. ``together`` has all workgroups run in one batch, as
    a cooperative launch asks.
    """
    entry = program.kernel(kernel)
    sizes = entry.directives
    if schedule not in ("lockstep", "random"):
        raise WaveError(f"there is no schedule {schedule!r}; choose lockstep or random")
    if min(grid) < 1 or not 1 <= threads <= 1024:
        raise WaveError(
            f"a grid of {grid} workgroups of {threads} work-items cannot be run; each must be at "
            "least 1, and work-items at most 1024"
        )
    wanted = sizes.get("kernarg_size", 0)
    if len(arguments) < wanted:
        raise WaveError(
            f"the kernel has {wanted} bytes of arguments, but only {len(arguments)} are given"
        )
    lds_bytes = sizes.get("group_segment_fixed_size", 0) + dynamic_lds
    if lds_bytes > lds_limit(program.target):
        raise WaveError(
            f"{lds_bytes} bytes of local memory are more than {program.target} has: "
            f"{lds_limit(program.target)}"
        )
    padded = arguments + bytes(-len(arguments) % 64)
    temporary = [arena.put(np.frombuffer(padded or bytes(64), np.uint8))]
    symbols = {}
    for name, data in program.data.items():
        temporary.append(arena.put(np.frombuffer(data, np.uint8)))
        symbols[name] = temporary[-1]
    covered = Coverage()
    try:
        with np.errstate(all="ignore"):
            code = decoded_kernel(program, entry, symbols)
            groups = np.array(
                [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])],
                np.uint32,
            )
            per_group = -(-threads // program.wave_size)
            batch = len(groups) if together else max(1, WAVES_AT_ONCE // per_group)
            vectors = max((r for item in code for r in item.touches if r >= 0), default=0) + 1
            if any(
                "movrel" in item.instruction.name or "gpr_idx" in item.instruction.name
                for item in code
            ):
                vectors = max(vectors, sizes.get("next_free_vgpr", 0))
            for first in range(0, len(groups), batch):
                some = groups[first : first + batch]
                m = Machine(
                    program,
                    Modes(sizes, program.generation),
                    arena,
                    len(some),
                    threads,
                    lds_bytes,
                    sizes.get("private_segment_fixed_size", 0),
                    vectors,
                    seed + first,
                )
                m.pending = Pending(
                    m, program.generation == 9 or not sizes.get("workgroup_processor_mode", 1)
                )
                _enter(m, entry, some, grid, threads, temporary[0], arena, temporary)
                Schedule(m, code, entry.entry, schedule, limit).run(covered)
    finally:
        for address in temporary:
            arena.release(address)
    return covered


def decoded_kernel(program: Program, kernel: Kernel, symbols: dict[str, int]) -> list[Decoded]:
    """Return the instructions of a program from the kernel's entry to its end, by position."""
    key = (kernel.name, tuple(sorted(symbols.items())))
    if key in program.decoded:
        return program.decoded[key]
    later = [k.entry for k in program.kernels.values() if k.entry > kernel.entry]
    end = min(later, default=len(program.instructions))
    modes = Modes(kernel.directives, program.generation)
    initial = modes.denormals32, modes.denormals16
    indexed: frozenset[str] = frozenset()
    code: list[Decoded] = []
    for place in range(end):
        item = program.instructions[place]
        if place < kernel.entry:
            code.append(
                Decoded(item, _unreachable, frozenset(), frozenset(), frozenset(), None, "end")
            )
            continue
        if place == kernel.entry:
            modes.denormals32, modes.denormals16 = initial
        try:
            decoder = Decoder(item, program, modes.copy(), symbols)
            decoder.indexed = indexed
            code.append(table.decode(decoder))
        except WaveError as error:
            raise error.at(item.line, item.text) from None
        _follow_modes(item.name, item.text, modes)
        indexed = cross_lane.index_mode(item.name, item.text, indexed)
    program.decoded[key] = code
    return code


def _unreachable(m: Machine) -> None:
    raise WaveError("the kernel left its code")


def _follow_modes(name: str, text: str, modes: Modes) -> None:
    """The modes of denormals behind an instruction that sets them.

    LLVM sets them before and behind a piece of code without branches.
    """
    value = None
    if name == "s_denorm_mode":
        value = int(text.split()[-1], 0)
    elif name == "s_setreg_imm32_b32" and (
        found := re.search(r"MODE,\s*(\d+),\s*(\d+)\),\s*(\S+)", text)
    ):
        offset, width, bits = (int(g, 0) for g in found.groups())
        if offset == 4:
            value = bits | (modes.denormals16 << 2 if width < 4 else 0)
    if value is not None:
        modes.denormals32, modes.denormals16 = value & 3, value >> 2 & 3


def _enter(
    m: Machine,
    kernel: Kernel,
    groups: Array,
    grid: tuple[int, int, int],
    threads: int,
    kernarg: int,
    arena: Arena,
    temporary: list[int],
) -> None:
    """Registers at entry: user registers, numbers of workgroups, numbers of work-items."""
    sizes, scalars = kernel.directives, m.scalars
    place = 0

    def put(*words: int | Array) -> None:
        nonlocal place
        for word in words:
            scalars[place] = word
            place += 1

    def pair(value: int) -> tuple[int, int]:
        return value & 0xFFFFFFFF, value >> 32

    if sizes.get("user_sgpr_private_segment_buffer"):
        put(0, 0, 0xFFFFFFFF, ADD_THREAD)
    if sizes.get("user_sgpr_dispatch_ptr"):
        packet = np.zeros(32, np.uint16)
        packet[2:5] = threads, 1, 1
        packet.view(np.uint32)[3:6] = grid[0] * threads, grid[1], grid[2]
        temporary.append(arena.put(packet))
        put(*pair(temporary[-1]))
    if sizes.get("user_sgpr_queue_ptr"):
        put(0, 0)
    if sizes.get("user_sgpr_kernarg_segment_ptr"):
        put(*pair(kernarg))
    if sizes.get("user_sgpr_dispatch_id"):
        put(0, 0)
    if sizes.get("user_sgpr_flat_scratch_init"):
        put(0, 0)
    if sizes.get("user_sgpr_private_segment_size"):
        put(sizes.get("private_segment_fixed_size", 0))
    preloaded = sizes.get("user_sgpr_kernarg_preload_length", 0)
    if preloaded:
        first = sizes.get("user_sgpr_kernarg_preload_offset", 0)
        put(*(int(w) for w in arena.get(kernarg, np.uint32, first + preloaded)[first:]))
    place = max(place, sizes.get("user_sgpr_count", 0))
    ids = groups[m.group].T
    wave = np.arange(m.waves) % m.per_group
    if m.generation >= 12:
        scalars[TTMP + 9] = ids[0]
        scalars[TTMP + 7] = ids[1] | ids[2] << np.uint32(16)
        scalars[TTMP + 8] = wave.astype(np.uint32) << np.uint32(25)
    else:
        for i, axis in enumerate("xyz"):
            if sizes.get(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")):
                put(ids[i])
        if sizes.get("system_sgpr_workgroup_info"):
            put(0)
        if m.generation == 9 and sizes.get(
            "enable_private_segment", sizes.get("system_sgpr_private_segment_wavefront_offset", 0)
        ):
            put(0)
    item = (wave[:, None] * m.lanes + np.arange(m.lanes)[None]).astype(np.uint32)
    if len(m.vectors):
        m.vectors[0] = item
    m.execute[:] = item < threads
    assert m.vectors.shape[0] <= 2 * ACCUMULATION
    m.select(slice(None))
