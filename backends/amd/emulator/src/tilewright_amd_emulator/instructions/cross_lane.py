"""Cross-lane vector instructions: readlane, writelane, row permutations; indexed registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operands import M0
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import Decoder, builds

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


@builds("v_readfirstlane_b32")
def _first_lane(d: Decoder) -> Step:
    """The first active lane, lane 0 where none is."""
    d.allow_vector()
    d.expect(2)
    read, write = d.source(1, "b32", 0), d.uniform_result(0)

    def step(m: Machine) -> None:
        value = np.broadcast_to(read(m), (m.count, m.lanes))
        write(m, value[np.arange(m.count), np.argmax(m.mask, axis=1)])

    return step


@builds("v_readlane_b32")
def _read_lane(d: Decoder) -> Step:
    d.allow_vector()
    d.expect(3)
    read, lane, write = d.source(1, "b32", 0), d.uniform(2), d.uniform_result(0)

    def step(m: Machine) -> None:
        value = np.broadcast_to(read(m), (m.count, m.lanes))
        write(m, value[np.arange(m.count), lane(m) & np.uint32(m.lanes - 1)])

    return step


@builds("v_writelane_b32")
def _write_lane(d: Decoder) -> Step:
    """One lane, whatever EXEC is."""
    d.allow_vector()
    d.expect(3)
    value, lane = d.uniform(1), d.uniform(2)
    d.note_write(d.operands[0], 1)
    d.note_read(d.operands[0], 1)
    register = d.operands[0].index

    def step(m: Machine) -> None:
        m.vectors[register, m.numbers, lane(m) & np.uint32(m.lanes - 1)] = value(m)

    return step


@builds("v_permlane16_b32", "v_permlanex16_b32")
def _permute_rows(d: Decoder) -> Step:
    """Read, in each lane, the lane that ``chosen`` selects in its row or in the other one.

    The lower 4 bits of ``chosen`` (uint32 [waves, lanes]) are the lane.
    """
    d.expect(4)
    low, high = d.uniform(2), d.uniform(3)
    lane = np.arange(d.lanes)
    shift = ((lane & 7) * 4).astype(np.uint32)
    return _within_rows(
        d, lambda m: np.where((lane & 15) < 8, low(m)[:, None], high(m)[:, None]) >> shift
    )


@builds("v_permlane16_var_b32", "v_permlanex16_var_b32")
def _permute_rows_by_vector(d: Decoder) -> Step:
    """As v_permlane16, with each lane's choice in a vector register."""
    d.expect(3)
    return _within_rows(d, d.source(2, "b32", -1))


def _within_rows(d: Decoder, chosen: Callable[[Machine], Array]) -> Step:
    """Read, in each lane, the lane that ``chosen`` selects in its row or in the other one.

    The lower 4 bits of ``chosen`` (uint32 [waves, lanes]) are the lane.
    """
    d.allow("op_sel")
    inactive, zero = (d.instruction.numbers("op_sel") or (0, 0))[:2]
    cross = 16 if "x16" in d.instruction.name else 0
    read, write = d.source(1, "b32", -1), d.result(0, "b32")
    d.note_read(d.operands[0], 1)
    old = d.operands[0].index
    row = (np.arange(d.lanes) & ~15) ^ cross

    def step(m: Machine) -> None:
        there = np.broadcast_to(
            row + (chosen(m) & np.uint32(15)).astype(np.int64), (m.count, m.lanes)
        )
        value = np.take_along_axis(np.broadcast_to(read(m), there.shape), there, axis=1)
        if not inactive and not m.full:
            value = np.where(
                np.take_along_axis(m.mask, there, axis=1),
                value,
                np.uint32(0) if zero else m.vector(old),
            )
        write(m, value)

    return step


@builds("v_permlane64_b32")
def _swap_halves(d: Decoder) -> Step:
    """The other half of a wave of 64 lanes; the same lane in one of 32."""
    d.expect(2)
    read, write = d.source(1, "b32", 0), d.result(0, "b32")
    there = np.arange(d.lanes) ^ (32 if d.lanes == 64 else 0)
    return lambda m: write(m, np.broadcast_to(read(m), (m.count, m.lanes))[:, there])


@builds("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def _swap_rows(d: Decoder) -> Step:
    """Exchange odd rows (of 16 or 32 lanes) of the first register with even rows of the second."""
    d.allow("bound_ctrl", "fi")
    d.expect(2)
    rows = 16 if "16" in d.instruction.name else 32
    for operand in d.operands:
        d.note_read(operand, 1)
    first, second = d.result(0, "b32"), d.result(1, "b32")
    x, y = d.operands[0].index, d.operands[1].index
    lane = np.arange(d.lanes)
    odd, other = (lane // rows) % 2 == 1, lane ^ rows

    def step(m: Machine) -> None:
        left, right = m.vector(x).copy(), m.vector(y).copy()
        first(m, np.where(odd, right[:, other], left))
        second(m, np.where(odd, right, left[:, other]))

    return step


@builds("s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_set_gpr_idx_off", "s_set_gpr_idx_mode")
def _index_mode(d: Decoder) -> Step:
    """The index goes to M0; which operands it is added to was found when the text was read."""
    if d.instruction.name in ("s_set_gpr_idx_off", "s_set_gpr_idx_mode"):
        return lambda m: None
    read = d.uniform(0)
    d.writes.add(-M0 - 1)
    return lambda m: m.set_scalar(M0, read(m) & np.uint32(0xFF))


def index_mode(name: str, text: str, now: frozenset[str]) -> frozenset[str]:
    """The operands that M0 is added to behind an instruction."""
    if name == "s_set_gpr_idx_off":
        return frozenset()
    if name in ("s_set_gpr_idx_on", "s_set_gpr_idx_mode"):
        found = re.search(r"gpr_idx\(([\w,\s]*)\)", text)
        return frozenset(found.group(1).replace(" ", "").split(",")) - {""} if found else now
    return now


@builds("v_movrels_b32", "v_movreld_b32")
def build_indexed(d: Decoder) -> Step:
    """A register whose number M0 offsets: by the name, or in the mode of s_set_gpr_idx_on."""
    d.allow()
    d.expect(2)
    d.note_m0()
    if d.indexed and (d.instruction.name != "v_mov_b32" or d.indexed not in ({"DST"}, {"SRC0"})):
        raise d.fail("only a move with an index of its source or its result is supported")
    if d.instruction.name == "v_movrels_b32" or d.indexed == {"SRC0"}:
        base, write = d.operands[1].index, d.result(0, "b32")
        return lambda m: write(
            m, m.vectors[np.minimum(base + m.m0().astype(np.int64), len(m.vectors) - 1), m.numbers]
        )
    target, read = d.operands[0].index, d.source(1, "b32", 0)
    d.note_write(d.operands[0], 1)

    def step(m: Machine) -> None:
        index = np.minimum(target + m.m0().astype(np.int64), len(m.vectors) - 1)
        kept = m.vectors[index, m.numbers]
        np.copyto(kept, read(m), where=m.mask)
        m.vectors[index, m.numbers] = kept

    return step
