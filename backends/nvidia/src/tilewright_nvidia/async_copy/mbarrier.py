"""``mbarrier`` objects, named barriers, proxy fences and ``setmaxnreg``, from sm_90 on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.simt_target import Threads
from tilewright_nvidia.codegen.inline_ptx import call_asm

#: Bytes of an mbarrier.
BYTES: Final = 8
#: The number of named barriers of a CTA; number 0 synchronizes all its threads.
NAMED_BARRIERS: Final = 16
_SHARED = "ptr addrspace(3)"
#: Registers of an SM, lanes of a warp, warps of a ``setmaxnreg`` group, and the granularity and
#: maximum of a thread's registers.
_FILE, _LANES, _GROUP, _STEP, _MOST = 65536, 32, 4, 8, 240
#: Registers of a producer thread, and the number from which on redistribution does not pay.
_FEW, _ENOUGH = 24, 232


def initialize(w: FunctionWriter, address: str, count: int) -> None:
    """Initialize an mbarrier that expects ``count`` arrivals per phase."""
    call_asm(w, "mbarrier.init.shared::cta.b64 [$0], $1;", (), [(_SHARED, address), ("i32", str(count))], memory=True)


def show(w: FunctionWriter) -> None:
    """Make this thread's mbarrier initializations visible to TMA."""
    call_asm(w, "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", (), (), memory=True)


def expect(w: FunctionWriter, address: str, size: int) -> None:
    """Arrive, and add ``size`` bytes to the expected transaction count."""
    text = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], $1;"
    call_asm(w, text, (), [(_SHARED, address), ("i32", str(size))], memory=True)


def arrive(w: FunctionWriter, address: str) -> None:
    call_asm(w, "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];", (), [(_SHARED, address)], memory=True)


def arrive_at_all(w: FunctionWriter, address: str, blocks: int) -> None:
    """Arrive at the mbarriers of all CTAs of a cluster that have this address.

    The release has CTA scope: the thread has already waited for its reads, and a release to the
    cluster would flush more than necessary.
    """
    for block in range(blocks):
        text = f"{{\n.reg .b32 %there;\nmapa.shared::cluster.u32 %there, $0, {block};\nmbarrier.arrive.release.cta.shared::cluster.b64 _, [%there];\n}}"
        call_asm(w, text, (), [(_SHARED, address)], memory=True)


def meet(w: FunctionWriter) -> None:
    """Synchronize all threads of a cluster."""
    call_asm(w, "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", (), (), memory=True, convergent=True)


def wait(w: FunctionWriter, address: str, phase: str) -> None:
    """Wait until the phase of parity ``phase`` (i1) completes.

    ``try_wait`` suspends the thread for a limited time before it returns.
    """
    text = "{\n.reg .pred %ended;\nagain:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %ended, [$0], $1;\n@!%ended bra again;\n}"
    parity = {"true": "1", "false": "0"}.get(phase) or w.emit(f"zext i1 {phase} to i32")
    call_asm(w, text, (), [(_SHARED, address), ("i32", parity)], memory=True, convergent=True)


def part_barrier(w: FunctionWriter, threads: Threads) -> None:
    """Synchronize the threads of one warp-specialized partition."""
    assert threads.number + 1 < NAMED_BARRIERS, "a program has no more barriers than the hardware"
    call_asm(w, f"barrier.cta.sync.aligned {threads.number + 1}, {32 * threads.count};", (), (), memory=True, convergent=True)


def proxy_fence(w: FunctionWriter, *, everywhere: bool = False) -> None:
    """Order this thread's accesses before later async-proxy accesses (``fence.proxy.async``).

    The async-proxy accesses follow a barrier. The fence covers shared memory, or all memory with
    ``everywhere``. Without it, MMAs and bulk copies would not see this thread's writes. This
    thread's reads need it too, since the write of a bulk copy could overtake them: loads are
    queued, and a barrier does not wait for them.
    """
    call_asm(w, "fence.proxy.async;" if everywhere else "fence.proxy.async.shared::cta;", (), (), memory=True)


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


def set_registers(w: FunctionWriter, count: int, before: int) -> None:
    """Set the registers per thread of a warpgroup from ``before`` to ``count`` (``setmaxnreg``)."""
    if count == before:
        return
    direction = "dec" if count < before else "inc"
    call_asm(w, f"setmaxnreg.{direction}.sync.aligned.u32 {count};", (), (), memory=True, convergent=True)
