"""Branches, waits, barriers, and what has no effect here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import Decoder, builds

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

_WITHOUT_EFFECT = (
    "s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_setprio_inc_wg", "s_wait_alu",
    "s_wait_idle", "s_waitcnt_depctr", "s_wait_event", "s_inst_prefetch",
    "s_set_inst_prefetch_distance", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_sendmsg",
    "s_code_end", "s_ttracedata", "s_ttracedata_imm",
    "s_prefetch_data", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data_pc_rel",
    "s_buffer_prefetch_data", "s_round_mode",
    "s_incperflevel", "s_decperflevel", "s_wait_xcnt", "s_wait_expcnt", "s_version",
    "buffer_gl0_inv", "buffer_gl1_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_inv",
    "buffer_wbl2", "buffer_invl2",
)  # fmt: skip


@builds(*_WITHOUT_EFFECT)
def _nothing(d: Decoder) -> Step:
    if d.instruction.name == "s_round_mode" and d.operands[0].value != 0:
        raise d.fail("only rounding to nearest, ties to even, is emulated")
    return lambda m: None


@builds("s_denorm_mode", "s_setreg_imm32_b32", "s_setreg_b32")
def _modes(d: Decoder) -> Step:
    """Build an instruction that sets modes; refuse a rounding mode that is not emulated.

    The loader has read the denormal modes from the text. Of the other modes only rounding changes
    results.
    """
    if d.instruction.name != "s_denorm_mode":
        place = re.match(
            r"hwreg\((?:HW_REG_)?(WAVE_|SHADER_)?(SCHED_)?MODE,\s*(\d+),\s*(\d+)\)",
            d.operands[0].text,
        )
        offset, width = (int(place.group(3)), int(place.group(4))) if place is not None else (0, 4)
        if (
            d.instruction.name == "s_setreg_imm32_b32"
            and offset + width <= 4
            and int(d.operands[1].text, 0) == 0
        ):
            return lambda m: None  # rounding to nearest, as it is
        if place is None or offset < 4:
            raise d.fail(
                "only the modes of denormals, and modes that have no effect on results, may be set"
            )
        if d.instruction.name == "s_setreg_imm32_b32" and 4 < int(place.group(3)) < 8:
            raise d.fail("modes of denormals must be set from the first of their bits on")
        if d.instruction.name == "s_setreg_b32" and int(place.group(3)) < 8:
            raise d.fail("modes of denormals that are only known at run time are not supported")
    return lambda m: None


@builds("s_getreg_b32")
def _hardware(d: Decoder) -> Step:
    """Registers of the hardware: a counter for clocks, 0 for numbers of units."""
    clock = "CYCLES" in d.operands[1].text or "TIME" in d.operands[1].text
    write = d.uniform_result(0)

    def step(m: Machine) -> None:
        m.clock += 1
        write(m, np.array([m.clock if clock else 0], np.uint32))

    return step


@builds("s_sleep", "s_sleep_var", "s_monitor_sleep")
def _sleep(d: Decoder) -> Step:
    d.role = "yield"
    return lambda m: None


@builds("global_inv", "global_wb", "global_wbinv")
def _caches(d: Decoder) -> Step:
    """Nothing but an event of a counter."""
    counter = "load" if d.instruction.name == "global_inv" else "store"
    return lambda m: m.pending.start(counter, d.instruction, lambda rows: None)


@builds("s_waitcnt")
def _wait(d: Decoder) -> Step:
    """``vmcnt(n) lgkmcnt(n) expcnt(n)``, or all for 0."""
    text = d.operands[0].text
    names = {"vmcnt": "load", "lgkmcnt": "ds", "expcnt": ""}
    waits: list[tuple[str, int]] = []
    if re.fullmatch(r"0x0|0", text):
        waits = [("load", 0), ("ds", 0)]
    else:
        for part in re.split(r"[\s&,]+", text.strip()):
            match = re.fullmatch(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)", part)
            if match is None:
                raise d.fail(f"{part!r} is not a counter")
            if names[match.group(1)]:
                waits.append((names[match.group(1)], int(match.group(2))))

    def step(m: Machine) -> None:
        for counter, outstanding in waits:
            m.pending.wait(counter, outstanding)

    return step


@builds("s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt")
def _wait_one(d: Decoder) -> Step:
    """``null, n``."""
    counter = {"vscnt": "store", "vmcnt": "load", "lgkmcnt": "ds", "expcnt": ""}[
        d.instruction.name.removeprefix("s_waitcnt_")
    ]
    outstanding = int(d.operands[0].text.split(",")[1], 0)
    return (lambda m: m.pending.wait(counter, outstanding)) if counter else (lambda m: None)


_GFX12 = {
    "s_wait_loadcnt": ("load",),
    "s_wait_storecnt": ("store",),
    "s_wait_dscnt": ("ds",),
    "s_wait_kmcnt": ("km",),
    "s_wait_loadcnt_dscnt": ("load", "ds"),
    "s_wait_storecnt_dscnt": ("store", "ds"),
    "s_wait_samplecnt": (),
    "s_wait_bvhcnt": (),
}


@builds(*_GFX12)
def _wait_gfx12(d: Decoder) -> Step:
    number, counters = int(d.operands[0].text, 0), _GFX12[d.instruction.name]
    counts = (
        [(counters[0], number)]
        if len(counters) == 1
        else list(zip(counters, (number >> 8 & 63, number & 63), strict=False))
    )

    def step(m: Machine) -> None:
        for counter, outstanding in counts:
            m.pending.wait(counter, outstanding)

    return step


@builds("s_barrier")
def _barrier(d: Decoder) -> Step:
    d.allow()
    d.role = "barrier"
    return lambda m: None


@builds("s_barrier_signal", "s_barrier_wait")
def _split_barrier(d: Decoder) -> Step:
    if d.operands[0].value not in (-1, 0xFFFF):
        raise d.fail("only the workgroup's barrier, -1, is supported")
    d.role = d.instruction.name.removeprefix("s_barrier_")
    return lambda m: None


@builds("s_endpgm", "s_endpgm_saved")
def _end(d: Decoder) -> Step:
    d.role = "end"
    return lambda m: m.pending.finish()


@builds("s_trap")
def _trap(d: Decoder) -> Step:
    def step(m: Machine) -> None:
        raise d.fail(
            "the kernel traps: an assertion of it failed, or what it takes for unreachable "
            "was reached"
        )

    return step


@builds("s_sethalt")
def _halt(d: Decoder) -> Step:
    """The end of a wave at a trap without a handler."""

    def step(m: Machine) -> None:
        raise d.fail("the kernel halts")

    return step


@builds(
    "s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz",
    "s_cbranch_execz", "s_cbranch_execnz",
)  # fmt: skip
def _branch(d: Decoder) -> Step:
    """Sets ``m.taken``: bool [waves]; the schedule does the rest."""
    d.expect(1)
    d.role = "branch"
    how = d.instruction.name.removeprefix("s_").removeprefix("cbranch_")
    if how == "branch":

        def always(m: Machine) -> None:
            m.taken = np.ones(m.count, np.bool_)

        return always
    name, wanted = {
        "scc0": ("scc", False), "scc1": ("scc", True), "vccz": ("vccz", True),
        "vccnz": ("vccz", False), "execz": ("execz", True), "execnz": ("execz", False),
    }[how]  # fmt: skip
    if name == "vccz":
        d.note_vcc(False)

    def step(m: Machine) -> None:
        m.taken = m.condition(name) == wanted

    return step
