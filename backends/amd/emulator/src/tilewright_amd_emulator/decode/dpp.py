"""Where the lanes of a data-parallel primitive (DPP) read their first source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.program import Instruction
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]


def lane_map(instruction: Instruction, lanes: int) -> tuple[Array, Array]:
    """int64 [lanes] where each lane reads, and bool [lanes] whether there is such a lane."""
    lane = np.arange(lanes)
    row, place = lane & ~15, lane & 15
    modifiers = instruction.modifiers
    valid = np.ones(lanes, np.bool_)

    def distance(name: str) -> int:
        return instruction.number(name)

    if "dpp8" in modifiers:
        chosen = np.array(instruction.numbers("dpp8"))
        return (lane & ~7) + chosen[lane & 7], valid
    if "quad_perm" in modifiers:
        chosen = np.array(instruction.numbers("quad_perm"))
        return (lane & ~3) + chosen[lane & 3], valid
    if "row_shl" in modifiers:
        there = place + distance("row_shl")
        return np.where(there < 16, row + there, lane), there < 16
    if "row_shr" in modifiers:
        there = place - distance("row_shr")
        return np.where(there >= 0, row + there, lane), there >= 0
    if "row_ror" in modifiers:
        return row + ((place - distance("row_ror")) & 15), valid
    if "row_mirror" in modifiers:
        return row + (15 - place), valid
    if "row_half_mirror" in modifiers:
        return (lane & ~7) + (7 - (lane & 7)), valid
    if "row_share" in modifiers or "row_newbcast" in modifiers:
        return row + distance("row_share" if "row_share" in modifiers else "row_newbcast"), valid
    if "row_xmask" in modifiers:
        return row + (place ^ distance("row_xmask")), valid
    if "row_bcast" in modifiers:
        width = (
            distance("row_bcast") + 1
        )  # 15: the last lane of a row to the next row; 31: lane 31 to rows 2 and 3
        there = lane // width * width - 1
        return np.where(there >= 0, there, lane), there >= 0
    if "wave_shr" in modifiers:
        return np.maximum(lane - 1, 0), lane >= 1
    if "wave_shl" in modifiers:
        return np.minimum(lane + 1, lanes - 1), lane < lanes - 1
    if "wave_ror" in modifiers:
        return (lane - 1) % lanes, valid
    if "wave_rol" in modifiers:
        return (lane + 1) % lanes, valid
    raise instruction.error("the instruction has no control of where lanes read")


class Lanes:
    """Return the DPP control of an instruction: the lane that each lane reads.

    Where there is no such lane, the lane reads 0 or keeps its value.
    """

    def __init__(self, instruction: Instruction, lanes: int) -> None:
        self.index, self.valid = lane_map(instruction, lanes)
        modifiers = instruction.modifiers
        self.zero = "bound_ctrl" in modifiers or "dpp8" in modifiers
        self.inactive = instruction.number("fi") == 1
        rows, banks = instruction.number("row_mask", 15), instruction.number("bank_mask", 15)
        lane = np.arange(lanes)
        self.written = ((rows >> (lane // 16)) & 1 & (banks >> (lane // 4 % 4))).astype(np.bool_)

    def readable(self, execute: Array) -> Array:
        """bool [waves or 1, lanes]: which lanes have one to read, where EXEC is ``execute``."""
        return self.valid[None] if self.inactive else self.valid & execute[:, self.index]

    def permuted(self, m: Machine, source: Array) -> Array:
        """``source`` [waves, lanes] as the lanes read it; 0 where they cannot."""
        if source.shape[1] == 1:
            return source
        readable = self.readable(m.execute[m.selected])
        return np.where(readable, source[:, self.index], source.dtype.type(0))

    def around(self, step: Callable[[Machine], None]) -> Callable[[Machine], None]:
        """``step`` for the lanes that are written."""

        def masked(m: Machine) -> None:
            mask, full = m.mask, m.full
            written = mask & self.written
            if not self.zero:
                written &= self.readable(mask)
            m.mask, m.full = written, bool(written.all())
            try:
                step(m)
            finally:
                m.mask, m.full = mask, full

        return masked
