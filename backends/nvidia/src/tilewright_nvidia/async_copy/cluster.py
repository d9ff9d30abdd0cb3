"""Thread block clusters, from sm_90 on."""

from __future__ import annotations

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.clusters import Clusters
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.thread_hierarchy import special_register


class PtxClusters(Clusters):
    """Clusters of up to 8 CTAs, the portable maximum."""

    max_ctas = 8

    def __init__(self, min_tile: tuple[int, int]) -> None:
        self.min_tile = min_tile

    def rank(self, w: FunctionWriter) -> str:
        return special_register(w, "cluster.ctarank")

    def barrier(self, context: SimtContext) -> None:
        """Synchronize all threads of a cluster."""
        call_asm(
            context.writer,
            "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
            (),
            (),
            memory=True,
            convergent=True,
        )

    def arrive_at_all(self, context: SimtContext, address: str) -> None:
        """Arrive at the mbarriers of all CTAs of a cluster that have this address.

        The release has CTA scope: the thread has already waited for its reads, and a release to the
        cluster would flush more than necessary.
        """
        for block in range(context.cluster):
            text = (
                f"{{\n.reg .b32 %there;\nmapa.shared::cluster.u32 %there, $0, {block};\n"
                "mbarrier.arrive.release.cta.shared::cluster.b64 _, [%there];\n}"
            )
            call_asm(context.writer, text, (), [("ptr addrspace(3)", address)], memory=True)
