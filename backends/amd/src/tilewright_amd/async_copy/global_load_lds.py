"""``global_load_lds``: asynchronous copies from global memory straight to LDS.

A wave's copy writes one run of LDS, lane after lane, that begins where M0 says. All lanes take part: those whose predicate does not hold read zeros that lie
beside the code. The counter of loads tells when copies are over, in the order in which they began.

LLVM (22) counts a copy as an access of LDS too, as the machine does not: a wait for an access of LDS behind which copies began would be too short. So accesses
of LDS are waited for before copies begin, and none may come between. Permutes of lanes through LDS (``ds_bpermute``, ``ds_swizzle``) count as accesses, but
for LLVM they have no side effects, and nothing that is written here would hold them: in kernels with copies each stays where it is written, and is waited for
there (:func:`~tilewright_amd.codegen.cross_lane.pinned`).

LLVM would have every access of LDS wait for all copies that are under way, since it may be of what they write; and every fence. The accesses are told apart by
names of memory here (scopes of aliases), and barriers of kernels with copies wait for the accesses of LDS by
themselves (:mod:`tilewright_amd.target`): what copies write is waited for where the kernel says so.
"""

from __future__ import annotations

from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright_amd.codegen import memory_access, waitcnt

#: The mechanism's name.
NAME: Final = "global_load_lds"
#: LLVM type of a pointer to LDS.
_LOCAL: Final = "ptr addrspace(3)"
#: Most copies that a wait can leave under way.
_MOST_PENDING: Final = 63
#: What may be moved across: arithmetic of all kinds, and no access of memory.
_ARITHMETIC: Final = 0x40F


def mechanism(widths: tuple[int, ...]) -> CopyMechanism:
    """Copies of so many bytes a lane."""
    return CopyMechanism(NAME, GROUPS, widths, start=_start, lanes_side_by_side=True, counted=True, drains=True, around=_around)


def lds_done(w: FunctionWriter) -> None:
    """Wait for the accesses of LDS of a wave."""
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(waitcnt.MFMA_SHARED))])


def wait(w: FunctionWriter, pending: int) -> None:
    """Wait until at most so many loads and copies of a wave are under way, and for its accesses of LDS, as the barrier does that comes next: LLVM would take a
    wait for none of them for one until 15 are under way."""
    count = min(pending, _MOST_PENDING)
    # the low four bits of the counter of loads come first, its high two last
    w.call("llvm.amdgcn.s.waitcnt", "void", [("i32", str(count & 15 | 0x70 | count >> 4 << 14))])


def aside(w: FunctionWriter) -> str:
    """The metadata of accesses of LDS that are not to wait for copies."""
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
    operands = ", ".join(f"{type_} {value}" for type_, value in zip(parameters, (place, to, str(size), "0", "0"), strict=True))
    w.do(f"call void @llvm.amdgcn.global.load.lds({operands}), !alias.scope {_scope(w, 'copies')}, !noalias {_scope(w, 'accesses')}")


def _scope(w: FunctionWriter, name: str) -> str:
    metadata = w.module.metadata
    domain = metadata('!{!"local memory"}')
    scope = metadata(f'!{{!"{name}", {domain}}}')
    return metadata(f"!{{{scope}}}")
