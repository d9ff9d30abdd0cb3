"""Cancellation checks: a loop that may never end asks, now and then, whether to go on.

An iteration of a ``while`` loop takes one from a count. At zero the loop calls the function whose
address the runtime has put into the kernel's variable :func:`~tilewright_cpu.status.poll_symbol`:

    i64 poll(ptr args, ptr heeded, ptr loop)

The function returns the next count, and 0 where the program must stop. ``heeded`` is a word of the
kernel's function, ``loop`` two words of the loop; only the function called reads and writes them
(:mod:`tilewright_cpu.threading.interrupts`). Where the variable is null, as in programs without
Python, a loop asks no more. ``for`` loops end, and do not ask.
"""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.ops.control import Call, For, While
from tilewright.ir.ops.debug import Extern, Print
from tilewright.llvm.emission.writer import BasicBlock
from tilewright_cpu.codegen.analysis.tiles import is_tile
from tilewright_cpu.codegen.context import Context

#: Iterations before the first check: of a loop whose iterations may be long, and one that computes
#: with a few scalars only.
FIRST, FIRST_OF_SCALARS = 8, 1024


class CancellationCheck:
    """The check of one loop: made before it, opened in its header, used at the end of its body."""

    def __init__(self, context: Context, operation: Operation) -> None:
        writer, state = context.writer, context.state
        self._first = str(FIRST_OF_SCALARS if _of_scalars(operation) else FIRST)
        state.polls = True
        state.module.add_global(f"{state.poll} = global ptr null, align 8")
        if not context.heeded:
            context.heeded = writer.alloca("i64", 1, 8)
            writer.entry.lines.append(f"  store i64 0, ptr {context.heeded}, align 8")
        self._loop = writer.alloca("i64", 2, 8)
        writer.store("i64", self._first, self._loop, 8)
        writer.store("i64", "0", writer.gep("i64", self._loop, 1), 8)
        self._count, self._next = writer.fresh("left"), ""

    def open(self, header: BasicBlock) -> None:
        """Keep the place of the count's phi, behind the others of the loop's header."""
        self._header, self._line = header, len(header.lines)
        header.lines.append("")

    def ask(self, context: Context) -> None:
        """Count an iteration, and call the check where the count has run out."""
        writer = context.writer
        due, call, go_on = writer.new_block("due"), writer.new_block("poll"), writer.new_block("on")
        left = writer.emit(f"sub i64 {self._count}, 1")
        turn = writer.current
        writer.branch_if(writer.emit(f"icmp eq i64 {left}, 0"), due, go_on, likely=False)
        writer.place(due)
        function = writer.load("ptr", context.state.poll, 8)
        writer.branch_if(writer.emit(f"icmp eq ptr {function}, null"), go_on, call)
        writer.place(call)
        given = writer.emit(
            f"call i64 {function}(ptr %args, ptr {context.heeded}, ptr {self._loop})"
        )
        assert context.stop_block is not None
        writer.branch_if(
            writer.emit(f"icmp eq i64 {given}, 0"), context.stop_block, go_on, likely=False
        )
        writer.place(go_on)
        self._next = writer.phi("i64", [(left, turn), (left, due), (given, call)])

    def count(self, entry: BasicBlock, latch: BasicBlock) -> None:
        """Write the count's phi, once the loop's last block is known."""
        self._header.lines[self._line] = (
            f"  {self._count} = phi i64 [ {self._first}, %{entry.label} ], [ {self._next}, "
            f"%{latch.label} ]"
        )


def _of_scalars(loop: Operation) -> bool:
    """Return whether a loop's body is a few instructions, without tiles, loops and calls."""
    inner = (operation for region in loop.regions for operation in region.walk())
    return not any(
        isinstance(operation, For | While | Call | Extern | Print)
        or any(map(is_tile, (*operation.operands, *operation.results)))
        for operation in inner
    )
