"""Coordinates of lanes and workgroups, and barriers of a workgroup."""

from __future__ import annotations

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import log2
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy, Threads
from tilewright_amd.architectures import MFMA, Architecture
from tilewright_amd.codegen import memory_access, waitcnt
from tilewright_amd.codegen.kernel_state import kernel_state


class GcnThreads(ThreadHierarchy):
    """Threads of a workgroup; ``chiplets``: the option, over which programs are distributed."""

    def __init__(self, row: Architecture, chiplets: int) -> None:
        self._row, self._chiplets = row, chiplets

    def lane(self, w: FunctionWriter) -> str:
        return w.emit(f"and i32 {_thread(w)}, {self._row.wave - 1}")

    def warp(self, w: FunctionWriter) -> str:
        if kernel_state(w).num_warps == 1:
            return "0"
        # the warp index is uniform, which LLVM cannot derive from the thread index
        return w.intrinsic(
            "llvm.amdgcn.readfirstlane",
            "i32",
            [("i32", w.emit(f"lshr i32 {_thread(w)}, {log2(self._row.wave)}"))],
        )

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        place = w.call(f"llvm.amdgcn.workgroup.id.{'xyz'[axis]}", "i32", [])
        return self._on_chiplets(w, place) if axis == 0 and self._chiplets > 1 else place

    def _on_chiplets(self, w: FunctionWriter, place: str) -> str:
        """Remap a workgroup ID so that each chiplet runs consecutive programs.

        Workgroup IDs with the same remainder modulo the number of chiplets run on one chiplet. If
        the number of chiplets does not divide the grid, the first chiplets get one program more.
        """
        count, chiplets = self.num_programs(w, 0), self._chiplets
        each, more = (
            w.emit(f"udiv i32 {count}, {chiplets}"),
            w.emit(f"urem i32 {count}, {chiplets}"),
        )
        chiplet, own = (
            w.emit(f"urem i32 {place}, {chiplets}"),
            w.emit(f"udiv i32 {place}, {chiplets}"),
        )
        longer = w.intrinsic("llvm.umin", "i32", [("i32", chiplet), ("i32", more)])
        first = w.emit(f"add i32 {w.emit(f'mul i32 {chiplet}, {each}')}, {longer}")
        return w.emit(f"add i32 {first}, {own}")

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        # the implicit arguments of a launch begin with the numbers of workgroups
        hidden = w.call("llvm.amdgcn.implicitarg.ptr", "ptr addrspace(4)", [])
        place = w.emit(f"getelementptr i32, ptr addrspace(4) {hidden}, i64 {axis}")
        return w.emit(
            f"load i32, ptr addrspace(4) {place}, align 4, !invariant.load "
            f"{w.module.metadata('!{}')}"
        )

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.count == 1:
            self.warp_barrier(w)
            return
        w.do(memory_access.KEEP)
        waitcnt.wait_for_shared(w, self._row)
        if kernel_state(w).announces and self._row.matrix == MFMA:
            # a wave's release waits only for its own stores, so each wave waits for its stores here
            waitcnt.wait_for_memory(w)
        if kernel_state(w).copies:
            # a fence would also wait for copies to LDS; of the accesses that it orders, only LDS
            # accesses are not already in order
            w.call("llvm.amdgcn.s.barrier", "void", [])
            w.do(memory_access.KEEP)
            return
        w.do('fence syncscope("workgroup") release')
        w.call("llvm.amdgcn.s.barrier", "void", [])
        w.do('fence syncscope("workgroup") acquire')

    def warp_barrier(self, w: FunctionWriter) -> None:
        """Keep LLVM from reordering a wave's accesses, which the hardware executes in order."""
        w.do(memory_access.KEEP)
        w.do('fence syncscope("wavefront") release')
        w.call("llvm.amdgcn.wave.barrier", "void", [])
        w.do('fence syncscope("wavefront") acquire')
        if kernel_state(w).copies:
            w.do(memory_access.KEEP)


def _thread(w: FunctionWriter) -> str:
    return w.call("llvm.amdgcn.workitem.id.x", "i32", [])
