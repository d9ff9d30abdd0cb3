"""``mbarrier`` objects and proxy fences, from sm_90 on."""

from __future__ import annotations

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.async_proxy import AsyncProxy
from tilewright.simt.target.capabilities.mbarriers import Mbarriers
from tilewright_nvidia.codegen.inline_ptx import call_asm

_SHARED = "ptr addrspace(3)"


class PtxMbarriers(Mbarriers):
    """Transaction barriers of 8 bytes."""

    bytes = 8

    def initialize(self, context: SimtContext, address: str, count: int) -> None:
        """Initialize an mbarrier that expects ``count`` arrivals per phase."""
        call_asm(
            context.writer,
            "mbarrier.init.shared::cta.b64 [$0], $1;",
            (),
            [(_SHARED, address), ("i32", str(count))],
            memory=True,
        )

    def fence_initialization(self, context: SimtContext) -> None:
        """Make this thread's mbarrier initializations visible to TMA."""
        call_asm(
            context.writer,
            "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;",
            (),
            (),
            memory=True,
        )

    def expect(self, context: SimtContext, address: str, size: int) -> None:
        """Arrive, and add ``size`` bytes to the expected transaction count."""
        text = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;"
        call_asm(context.writer, text, (), [(_SHARED, address), ("i32", str(size))], memory=True)

    def arrive(self, context: SimtContext, address: str) -> None:
        call_asm(
            context.writer,
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];",
            (),
            [(_SHARED, address)],
            memory=True,
        )

    def wait(self, context: SimtContext, address: str, phase: str) -> None:
        """Wait until the phase of parity ``phase`` (i1) completes.

        ``try_wait`` suspends the thread for a limited time before it returns.
        """
        text = (
            "{\n.reg .pred %ended;\nagain:\n"
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %ended, [$0], $1;\n@!%ended "
            "bra again;\n}"
        )
        parity = {"true": "1", "false": "0"}.get(phase) or context.writer.emit(
            f"zext i1 {phase} to i32"
        )
        call_asm(
            context.writer,
            text,
            (),
            [(_SHARED, address), ("i32", parity)],
            memory=True,
            convergent=True,
        )


class PtxAsyncProxy(AsyncProxy):
    """Fences between the generic and the async proxy."""

    def fence(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """Order this thread's accesses before later async-proxy accesses (``fence.proxy.async``).

        The async-proxy accesses follow a barrier. The fence covers shared memory, or all memory
        with ``everywhere``. Without it, MMAs and bulk copies would not see this thread's writes.
        This thread's reads need it too, since the write of a bulk copy could overtake them: loads
        are queued, and a barrier does not wait for them.
        """
        call_asm(
            w,
            "fence.proxy.async;" if everywhere else "fence.proxy.async.shared::cta;",
            (),
            (),
            memory=True,
        )
