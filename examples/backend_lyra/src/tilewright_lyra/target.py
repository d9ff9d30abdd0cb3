"""Lyra as the toolkit sees it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_lyra.copies import COPY
from tilewright_lyra.costs import COSTS
from tilewright_lyra.matrix import plans

WARP_SIZE, SHARED_MEMORY, MAX_THREADS = 16, 48 * 1024, 512


class LyraTarget(EmulatedTarget):
    """Warps of 16 lanes, 48 KiB of shared memory in 16 banks, copies of 4 and 8 bytes beside computation, a dot product of four elements a lane.

    Ids, barriers, shuffles, accesses and atomics are the emulated machine's; a machine of your own writes these as well, as methods of a ``SimtTarget``.
    """

    name = "lyra"
    costs = COSTS
    max_threads, banks, max_access = MAX_THREADS, 16, 16
    registers, register_file = 128, 32 * 1024
    barrier_bytes = part_warps = 0  # no barrier objects, and programs are not divided into parts

    def __init__(self) -> None:
        super().__init__(WARP_SIZE, SHARED_MEMORY)
        self.mechanisms = (COPY,)

    def matmul_plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        return plans(matmul, self.warp_size)

    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        super().fail(context, f"device_assert failed: {message}", file, line, function, predicate)
