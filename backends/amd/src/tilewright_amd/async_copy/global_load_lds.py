"""``global_load_lds``: asynchronous copies from global memory straight to LDS.

A wave's copy writes one contiguous run of LDS, lane after lane, starting at the address in M0. All
lanes take part: masked-off lanes read zeros from a constant beside the code. The counter of vector
memory loads (vmcnt) reports copies as complete in the order in which they were issued.

LLVM (22) also counts a copy as an LDS access, but the hardware does not. A wait for an LDS access
that was issued before a copy would therefore be too short. So the emitted code waits for all LDS
accesses before it issues copies, and issues no LDS access between copies. Cross-lane permutes
through LDS (``ds_bpermute``, ``ds_swizzle``) also count as accesses, but LLVM models them without
side effects, so no fence orders them. In kernels with copies,
:func:`~tilewright_amd.codegen.cross_lane.pinned` keeps each permute where it is emitted and waits
for it there.

By default LLVM makes every LDS access, and every fence, wait for all copies in flight, since the
access may alias their destinations. Alias scopes tell LLVM that accesses and copies do not alias,
and barriers of kernels with copies wait for LDS accesses explicitly
(:mod:`tilewright_amd.codegen.thread_hierarchy`). The kernel itself waits for copies at the wait
operations of the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.types import COPIES
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.async_copy import AsyncCopies
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright_amd.codegen import memory_access, waitcnt

#: The name of this copy mechanism.
NAME: Final = "global_load_lds"
#: LLVM type of a pointer to LDS.
_LOCAL: Final = "ptr addrspace(3)"
#: The maximum number of copies that a wait can leave in flight.
_MOST_PENDING: Final = 63
#: The ``sched.barrier`` mask that lets LLVM move arithmetic of all kinds across, but no memory
#: access.
_ARITHMETIC: Final = 0x40F


def mechanism(widths: tuple[int, ...]) -> CopyMechanism:
    """Return the copy mechanism for the given widths in bytes per lane."""
    return CopyMechanism(
        NAME,
        GROUPS,
        widths,
        start=_start,
        lanes_side_by_side=True,
        counted=True,
        drains=True,
        around=_around,
    )


def lds_done(w: FunctionWriter) -> None:
    """Wait for the LDS accesses of a wave."""
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(waitcnt.MFMA_SHARED))])


def wait(w: FunctionWriter, pending: int) -> None:
    """Wait until at most ``pending`` loads and copies of a wave are in flight.

    The wait also covers the wave's LDS accesses, as the following barrier does: LLVM would read an
    operand without a wait for LDS as a wait that leaves 15 LDS accesses in flight.
    """
    count = min(pending, _MOST_PENDING)
    # the low four bits of vmcnt come first in the operand, its high two bits last
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(count & 15 | 0x70 | count >> 4 << 14))])


def aside(w: FunctionWriter) -> str:
    """Return the metadata of LDS accesses that need not wait for copies."""
    return f", !alias.scope {_scope(w, 'accesses')}, !noalias {_scope(w, 'copies')}"


def _around(context: SimtContext, started: bool) -> None:
    w = context.writer
    if started:
        w.call("llvm.amdgcn.sched.barrier", "void", [("i32", str(_ARITHMETIC))])
        w.do(memory_access.KEEP)
    else:
        w.do(memory_access.KEEP)
        lds_done(w)
        w.call("llvm.amdgcn.sched.barrier", "void", [("i32", str(_ARITHMETIC))])


def _start(context: SimtContext, to: str, pointer: str, size: int, predicate: str | None) -> None:
    w = context.writer
    place = memory_access.readable(w, pointer, predicate)
    parameters = [memory_access.GLOBAL, _LOCAL, "i32", "i32", "i32"]
    w.module.declare("llvm.amdgcn.global.load.lds", "void", parameters)
    operands = ", ".join(
        f"{type_} {value}"
        for type_, value in zip(parameters, (place, to, str(size), "0", "0"), strict=True)
    )
    w.do(
        f"call void @llvm.amdgcn.global.load.lds({operands}), !alias.scope {_scope(w, 'copies')}, "
        f"!noalias {_scope(w, 'accesses')}"
    )


def _scope(w: FunctionWriter, name: str) -> str:
    metadata = w.module.metadata
    domain = metadata('!{!"local memory"}')
    scope = metadata(f'!{{!"{name}", {domain}}}')
    return metadata(f"!{{{scope}}}")


class GcnCopies(AsyncCopies):
    """Copies to LDS in flight, which the hardware counts one by one."""

    def keep_order(self, w: FunctionWriter, *, everything: bool) -> None:
        w.do(memory_access.KEEP)
        if everything:
            w.call("llvm.amdgcn.sched.barrier", "void", [("i32", "0")])

    def commit(self, context: SimtContext, queue: str) -> None:
        """Emit nothing: the hardware counts copies one by one."""

    def wait(
        self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        if queue != COPIES.queue:
            return super().wait(context, queue, pending, names)
        context.writer.do(memory_access.KEEP)
        wait(context.writer, pending)
        context.writer.do(memory_access.KEEP)
        return [list(tile) for tile in names]
