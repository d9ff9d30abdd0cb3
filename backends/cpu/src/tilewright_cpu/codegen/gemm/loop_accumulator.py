"""State of accumulators of loops that dots add up from zero.

:mod:`~tilewright_cpu.codegen.control.direct_store` finds them. Between the iterations of a loop, or
batches of them, the partial sums are in memory. The first matmul need not read it, so that nothing
clears it before, and the last one may write the sums to the kernel's data.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.types import byte_size
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter, vector
from tilewright_cpu.codegen.gemm.operand import Accumulator
from tilewright_cpu.codegen.gemm.pack import Matrix, scaled
from tilewright_cpu.codegen.gemm.plan import Extent


@dataclass(frozen=True, slots=True)
class Destination:
    """Rows of the kernel's data that the sums are stored to.

    Attributes:
        pointer: the address of the first element.
        row_stride: elements from a row to the next, an i64.
        whole: an i1: all of the tile is stored.
        start, end: i64s, the addresses of the first byte of all rows and behind the last one.
        overlapped: the address of an i8, other than 0 once an operand in place overlaps them.
        stored: the address of an i8, other than 0 once the sums are there.
    """

    pointer: str
    row_stride: str
    whole: str
    start: str
    end: str
    overlapped: str
    stored: str

    def note_overlap(self, w: FunctionWriter, operand: Matrix) -> None:
        """Remember whether an operand that is read in place overlaps the rows."""
        size = byte_size(operand.element)
        first = last = w.emit(f"ptrtoint ptr {operand.pointer} to i64")
        for extent, stride in (
            (operand.rows, operand.row_stride),
            (operand.columns, operand.column_stride),
        ):
            low, high = reach(w, extent, scaled(w, stride, size))
            first, last = w.emit(f"add i64 {first}, {low}"), w.emit(f"add i64 {last}, {high}")
        end = w.emit(f"add i64 {last}, {size}")
        before = w.emit(f"icmp ult i64 {first}, {self.end}")
        meets = w.emit(f"and i1 {before}, {w.emit(f'icmp ult i64 {self.start}, {end}')}")
        with w.when(meets):
            w.store("i8", "1", self.overlapped)


@dataclass(frozen=True, slots=True)
class LoopAccumulator:
    """State of an accumulator while its loop runs.

    Attributes:
        started: the address of an i8, other than 0 once memory holds partial sums.
        last: an i1: the iteration at hand is the last one; "" before the loop is open.
        destination: where the sums are stored to; None where nothing stores them as they are.
    """

    started: str
    destination: Destination | None
    last: str = ""

    def begin(self, w: FunctionWriter) -> str:
        """Return an i1, whether memory holds no sums yet; from here on it does."""
        fresh = w.emit(f"icmp eq i8 {w.load('i8', self.started)}, 0")
        w.store("i8", "1", self.started)
        return fresh

    def clear(
        self, w: FunctionWriter, lanes: int, c: Accumulator, rows: Extent, columns: Extent
    ) -> None:
        """Clear these rows and columns of the accumulator if memory holds no sums yet."""
        while c.row_stride % lanes:
            lanes //= 2
        stored = storage_type(c.element)
        with w.when(self.begin(w)), w.loop("0", str(rows), 1) as each:
            row = w.gep(stored, c.pointer, scaled(w, each.index, c.row_stride))
            with w.loop("0", str(columns), lanes) as loop:
                place = w.gep(stored, row, loop.index)
                w.store(vector(stored, lanes), "zeroinitializer", place, c.align)


def reach(w: FunctionWriter, extent: int, step: Extent) -> tuple[str, str]:
    """The minimum and the maximum offset of ``extent`` elements that are ``step`` bytes apart."""
    last = [("i64", str(scaled(w, extent - 1, step))), ("i64", "0")]
    return w.intrinsic("llvm.smin", "i64", last), w.intrinsic("llvm.smax", "i64", last)
