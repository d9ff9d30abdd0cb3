"""Ping-pong of the two waves of a SIMD, which share its matrix unit and its path to LDS."""

from __future__ import annotations

from typing import Final

from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_amd.architectures import MFMA, Architecture

#: The first MFMA generation on which programs of eight waves alternate between matmul and load
#: phases.
_FROM: Final = 3


class GcnPingPong:
    """Phases of matmuls and of loads, by wave priorities."""

    def __init__(self, row: Architecture) -> None:
        self._row = row

    def serves(self, matmul: Matmul) -> bool:
        """Return whether the two waves of a SIMD alternate between matmul and load phases.

        With eight waves, each SIMD of a compute unit runs two, which share its matrix unit and its
        path to LDS.
        """
        return (
            self._row.matrix == MFMA
            and self._row.generation >= _FROM
            and matmul.warps == 8
            and min(matmul.shape[-2:]) >= 128
        )

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:
        """Raise the priority of a wave that multiplies. LLVM moves nothing across ``s_setprio``."""
        context.writer.call("llvm.amdgcn.s.setprio", "void", [("i16", "1" if matmuls else "0")])
