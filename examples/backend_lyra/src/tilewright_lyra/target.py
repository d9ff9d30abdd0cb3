"""Lyra as the toolkit sees it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.emulator.target import EmulatedDebugging
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.simt.target.simt_target import Resources
from tilewright_lyra.copies import COPY
from tilewright_lyra.costs import COSTS
from tilewright_lyra.matrix import plans

WARP_SIZE, SHARED_MEMORY, MAX_THREADS = 16, 48 * 1024, 512


class LyraTarget(EmulatedTarget):
    """A machine of 16-lane warps, asynchronous copies and a four-element dot instruction.

    It has 48 KiB of shared memory in 16 banks, and copies 4 or 8 bytes at a time.
    Ids, barriers, shuffles, accesses and atomics are the emulated machine's; a machine of your own
    writes these as well, as capabilities of a ``SimtTarget``.
    """

    name = "lyra"
    costs = COSTS

    def __init__(self) -> None:
        super().__init__(WARP_SIZE, SHARED_MEMORY)
        self.resources = Resources(
            WARP_SIZE,
            MAX_THREADS,
            SHARED_MEMORY,
            banks=16,
            max_access=16,
            registers=128,
            register_file=32 * 1024,
        )
        self.async_copy.mechanisms = (COPY,)
        self.matrix = LyraMatrix()
        self.debugging = LyraDebugging(self.record)
        # no mbarriers and clusters, and programs are not divided into partitions
        self.mbarriers = self.clusters = self.named_barriers = self.warp_specialization = None


class LyraMatrix(MatrixInstructions):
    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        return plans(matmul, WARP_SIZE)


class LyraDebugging(EmulatedDebugging):
    def fail(
        self,
        context: SimtContext,
        message: str,
        file: str,
        line: int,
        function: str,
        predicate: str,
    ) -> None:
        super().fail(context, f"device_assert failed: {message}", file, line, function, predicate)
