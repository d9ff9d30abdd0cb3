"""Prologue and epilogue of functions: the context, the early exit, heap memory for large tiles.

A function that has become long is cut when it ends, so that generating its code takes time in
proportion to its length: see :mod:`tilewright.llvm.emission.outline`. The text of others is not
changed.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Function
from tilewright.llvm.emission.outline import cut_function
from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter
from tilewright_cpu.codegen.analysis.tiles import Analysis
from tilewright_cpu.codegen.context import Context, KernelState
from tilewright_cpu.codegen.sanitizer.bounds import stop_on_violation
from tilewright_cpu.status import ALIGNMENT, OUT_OF_MEMORY


class Frame(NamedTuple):
    """A function that is being written.

    It has its context, the entry block, where only stack memory is set up, and the block after it.
    """

    context: Context
    entry: BasicBlock
    start: BasicBlock


def begin_function(state: KernelState, writer: FunctionWriter, function: Function) -> Frame:
    """Analyse a function and open its first block."""
    grouped = not state.checks.accesses
    analysis = Analysis(function, state.hardware.vector_bytes, group_stores=grouped)
    context = Context(state, writer, function, analysis)
    entry, start = writer.current, writer.new_block("start")
    entry.terminator = f"  br label %{start.label}"
    writer.place(start)
    context.stop_block = writer.new_block("stop")
    return Frame(context, entry, start)


def end_function(frame: Frame, result: str, stopped: str, *, memory: str | None = None) -> None:
    """Write the ends of a function, and the address of its heap memory in its entry.

    The function returns ``result``, or ``stopped`` where the kernel must stop. Heap memory lies at
    ``memory``, else where the function allocates it.
    """
    context, entry, start = frame
    writer = context.writer
    cleared = context.cleared_bytes
    size = cleared + context.arena_bytes
    parts = [
        *context.cleared_parts,
        *((name, cleared + offset) for name, offset in context.arena_parts),
    ]
    assert context.stop_block is not None and (memory or not cleared)
    allocates = size and memory is None

    def leave(text: str) -> None:
        if allocates:
            writer.call("free", "void", [("ptr", "%arena.raw")])
        writer.ret(text)

    stop_on_violation(context)
    leave(result)
    writer.place(context.stop_block)
    leave(stopped)
    if allocates:
        memory = "%arena"
        writer.module.declare("malloc", "ptr", ["i64"])
        entry.lines += [
            f"  %arena.raw = call ptr @malloc(i64 {size + ALIGNMENT})",
            "  %arena.missing = icmp eq ptr %arena.raw, null",
            "  %arena.number = ptrtoint ptr %arena.raw to i64",
            f"  %arena.up = add i64 %arena.number, {ALIGNMENT - 1}",
            f"  %arena.aligned = and i64 %arena.up, {-ALIGNMENT}",
            "  %arena = inttoptr i64 %arena.aligned to ptr",
        ]
        entry.terminator = f"  br i1 %arena.missing, label %arena.fail, label %{start.label}"
        fail = BasicBlock("arena.fail")
        fail.lines = [
            "  %fail.slot = getelementptr i64, ptr %args, i64 3",
            "  %fail.status = load ptr, ptr %fail.slot, align 8",
            (
                f"  %fail.old = cmpxchg ptr %fail.status, i32 0, i32 {OUT_OF_MEMORY} monotonic "
                "monotonic, align 4"
            ),
        ]
        fail.terminator = f"  ret {stopped}"
        writer.blocks.append(fail)
    entry.lines += [
        f"  {name} = getelementptr i8, ptr {memory}, i64 {offset}" for name, offset in parts
    ]
    cut_function(writer, context.stop_block)
    context.state.arena_bytes += size
    context.analysis.detach()


def load_grid(context: Context) -> list[str]:
    """Read the grid and the status block's address for the context; the grid's extents as i64."""
    writer = context.writer
    grid = [writer.load("i64", writer.gep("i64", "%args", axis), 8) for axis in range(3)]
    x, y, z = (writer.emit(f"trunc i64 {name} to i32") for name in grid)
    context.grid = (x, y, z)
    context.status = writer.load("ptr", writer.gep("i64", "%args", 3), 8)
    return grid
