"""Coordinates of threads and CTAs (special registers), and CTA barriers."""

from __future__ import annotations

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy, Threads
from tilewright_nvidia.codegen.cross_lane import ALL_LANES, shuffle
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import kernel_state

#: The number of named barriers of a CTA; number 0 synchronizes all its threads.
NAMED_BARRIERS = 16


class PtxThreads(ThreadHierarchy):
    """Threads of a CTA; where a cluster runs a program, programs are clusters."""

    def lane(self, w: FunctionWriter) -> str:
        return w.emit(f"and i32 {special_register(w, 'tid.x')}, 31")

    def warp(self, w: FunctionWriter) -> str:
        state = kernel_state(w)
        if state.num_warps == 1:
            return "0"
        number = w.emit(f"lshr i32 {special_register(w, 'tid.x')}, 5")
        # a shuffle shows ptxas that the warp index is uniform
        return shuffle(w, number, "0") if state.uniform_warps else number

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        return special_register(
            w, f"{'cluster' if kernel_state(w).cluster > 1 else 'cta'}id.{'xyz'[axis]}"
        )

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        return special_register(
            w, f"n{'cluster' if kernel_state(w).cluster > 1 else 'cta'}id.{'xyz'[axis]}"
        )

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.count == 1:
            self.warp_barrier(w)
        elif threads.parts > 1:
            assert threads.number + 1 < NAMED_BARRIERS, (
                "a program has no more barriers than the hardware"
            )
            call_asm(
                w,
                f"barrier.cta.sync.aligned {threads.number + 1}, {32 * threads.count};",
                (),
                (),
                memory=True,
                convergent=True,
            )
        else:
            w.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])

    def warp_barrier(self, w: FunctionWriter) -> None:
        w.call("llvm.nvvm.bar.warp.sync", "void", [("i32", ALL_LANES)])


def special_register(w: FunctionWriter, name: str) -> str:
    """Read a special register."""
    return w.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [])
