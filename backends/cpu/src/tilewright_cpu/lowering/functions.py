"""What every function that is written has: its context, the way out in the middle, and heap memory for tiles that the stack should not hold.

A function that has become long is cut when it ends, so that generating its code takes time in proportion to its length: see
:mod:`tilewright.llvm.outline`. Of the others not a letter changes.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.core import Function
from tilewright.llvm.outline import cut_function
from tilewright.llvm.writer import Block, FunctionWriter
from tilewright_cpu.lowering.analysis import Analysis
from tilewright_cpu.lowering.bounds import stop_where_told
from tilewright_cpu.lowering.context import Context, KernelState
from tilewright_cpu.status import OUT_OF_MEMORY

#: Of heap memory.
_ALIGNMENT = 64


class Frame(NamedTuple):
    """A function that is being written: its context, the entry, where only stack memory is set up, and the block after it."""

    context: Context
    entry: Block
    start: Block


def begin_function(state: KernelState, writer: FunctionWriter, function: Function) -> Frame:
    """Analyse a function and open its first block."""
    context = Context(state, writer, function, Analysis(function, state.machine.vector_bytes))
    entry, start = writer.current, writer.new_block("start")
    entry.terminator = f"  br label %{start.label}"
    writer.place(start)
    context.stop_block = writer.new_block("stop")
    return Frame(context, entry, start)


#: A kernel's heap memory is what an earlier call has left at %kept; else it is allocated, of which the first bytes are cleared, and left there. Where nothing
#: can be left, it is freed at the end of the call.
_ARENA = """
define internal ptr @arena.begin(ptr %kept, i64 %size, i64 %cleared) #0 {
  %alone = icmp eq ptr %kept, null
  br i1 %alone, label %allocate, label %look
look:
  %left = load ptr, ptr %kept, align 8
  %none = icmp eq ptr %left, null
  br i1 %none, label %allocate, label %found
found:
  ret ptr %left
allocate:
  %new = call ptr @malloc(i64 %size)
  %missing = icmp eq ptr %new, null
  br i1 %missing, label %fail, label %clear
fail:
  ret ptr null
clear:
  call void @llvm.memset.p0.i64(ptr %new, i8 0, i64 %cleared, i1 false)
  br i1 %alone, label %out, label %leave
leave:
  store ptr %new, ptr %kept, align 8
  br label %out
out:
  ret ptr %new
}

define internal void @arena.end(ptr %kept, ptr %memory) #0 {
  %alone = icmp eq ptr %kept, null
  br i1 %alone, label %drop, label %out
drop:
  call void @free(ptr %memory)
  br label %out
out:
  ret void
}
"""


def end_function(frame: Frame, result: str, stopped: str, *, keeps: bool = False) -> None:
    """Write the ends of a function, which gives ``result``, or ``stopped`` where the kernel must stop; and in its entry the allocation of its heap
    memory, which it ``keeps`` from call to call where it is a kernel's."""
    context, entry, start = frame
    writer = context.writer
    before = context.cleared_bytes
    size = before + context.arena_bytes
    parts = [*context.cleared_parts, *((name, before + offset) for name, offset in context.arena_parts)]
    assert context.stop_block is not None

    def leave(text: str) -> None:
        if size and keeps:
            writer.do("call void @arena.end(ptr %kept, ptr %arena.raw)")
        elif size:
            writer.call("free", "void", [("ptr", "%arena.raw")])
        writer.ret(text)

    stop_where_told(context)
    leave(result)
    writer.place(context.stop_block)
    leave(stopped)
    if size:
        writer.module.declare("malloc", "ptr", ["i64"])
        room, clear = size + _ALIGNMENT, before and before + _ALIGNMENT
        if keeps:
            writer.module.declare("free", "void", ["ptr"])
            writer.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
            writer.module.add_global(_ARENA)
        entry.lines += [
            f"  %arena.raw = call ptr @arena.begin(ptr %kept, i64 {room}, i64 {clear})" if keeps else f"  %arena.raw = call ptr @malloc(i64 {room})",
            "  %arena.missing = icmp eq ptr %arena.raw, null",
            "  %arena.number = ptrtoint ptr %arena.raw to i64",
            f"  %arena.up = add i64 %arena.number, {_ALIGNMENT - 1}",
            f"  %arena.aligned = and i64 %arena.up, {-_ALIGNMENT}",
            "  %arena = inttoptr i64 %arena.aligned to ptr",
            *(f"  {name} = getelementptr i8, ptr %arena, i64 {offset}" for name, offset in parts),
        ]
        entry.terminator = f"  br i1 %arena.missing, label %arena.fail, label %{start.label}"
        fail = Block("arena.fail")
        fail.lines = [
            "  %fail.slot = getelementptr i64, ptr %args, i64 3",
            "  %fail.status = load ptr, ptr %fail.slot, align 8",
            f"  %fail.old = cmpxchg ptr %fail.status, i32 0, i32 {OUT_OF_MEMORY} monotonic monotonic, align 4",
        ]
        fail.terminator = f"  ret {stopped}"
        writer.blocks.append(fail)
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
