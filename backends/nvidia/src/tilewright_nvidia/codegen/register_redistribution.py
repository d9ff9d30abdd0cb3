"""Warp specialization: registers of partitions (``setmaxnreg``), from sm_90 on."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.warp_specialization import WarpSpecialization
from tilewright_nvidia.codegen.cross_lane import shuffle
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import kernel_state

#: Registers of an SM, lanes of a warp, warps of a ``setmaxnreg`` group, and the granularity and
#: maximum of a thread's registers.
_FILE, _LANES, _GROUP, _STEP, _MOST = 65536, 32, 4, 8, 240
#: Registers of a producer thread, and the number from which on redistribution does not pay.
_FEW, _ENOUGH = 24, 232


class PtxWarpSpecialization(WarpSpecialization):
    """Partitions of warpgroups.

    Args:
        redistributes: whether partitions get register counts of their own.
    """

    def __init__(self, *, redistributes: bool) -> None:
        super().__init__(_GROUP)
        self._redistributes = redistributes

    def registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        return divided_registers(warps, programs) if self._redistributes else {}

    def uniform(self, w: FunctionWriter, value: str) -> str:
        # what a lane broadcasts goes on in uniform registers, where wgmma reads its descriptors
        return shuffle(w, value, "0")

    def set_registers(self, w: FunctionWriter, count: int) -> None:
        state = kernel_state(w)
        before = given_registers(state.num_warps, state.programs)
        if count == before:
            return
        direction = "dec" if count < before else "inc"
        call_asm(
            w,
            f"setmaxnreg.{direction}.sync.aligned.u32 {count};",
            (),
            (),
            memory=True,
            convergent=True,
        )


def given_registers(warps: int, programs: int = 1) -> int:
    """Return a thread's registers at launch if ``programs`` CTAs fill the register file."""
    return min(_FILE // (_LANES * warps * programs), _MOST) // _STEP * _STEP


def divided_registers(warps: Mapping[str, int], programs: int = 1) -> dict[str, int]:
    """Distribute a CTA's registers among warp-specialized partitions.

    Producers get few registers, and the largest partition gets the rest. The result is empty if all
    threads have enough registers, or if a partition is not a multiple of four warps, the unit of
    ``setmaxnreg``.
    """
    most = max(warps, key=lambda name: warps[name])
    total = sum(warps.values())
    given = given_registers(total, programs)
    if given >= _ENOUGH or any(count % _GROUP for count in warps.values()):
        return {}
    others = {name: _FEW for name in warps if name != most}
    left = given * total - sum(_FEW * warps[name] for name in others)
    return {**others, most: min(left // warps[most], _MOST) // _STEP * _STEP}
