"""Packed operands that a thread keeps from one program to the next.

Programs that follow each other mostly multiply by the same columns of B: those of a column of blocks. Each would pack all of B's tiles along K again, which
takes about as long as the products. So the tile that an iteration of the loop along K packs has a place and a key of its own, which outlive the program: the
address that B was read at, and its strides where they are not known now. A later program that finds its own there need not pack. Keys are forgotten when a call
of the kernel's function ends, which runs a number of programs one after the other.

What is kept is what memory held when it was packed. Nobody may see that: another program's store to the same memory in the same launch is a race unless atomics
order the two, and a kernel that has any, or that stores before or in the loop, keeps nothing (:func:`can_be_kept`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Operation
from tilewright.ir.ops.linear import Dot
from tilewright.ir.table import Effect
from tilewright.llvm.writer import FunctionWriter
from tilewright_cpu.lowering.analysis import Analysis
from tilewright_cpu.lowering.dot_pack import Matrix, plus, scaled

#: What may stand in a kernel with order of its own: it does not order memory.
_HARMLESS: Final = ("print", "assert", "assume")
#: Programs that a thread should run one after the other where they have something kept for each other: the first of them packs for all.
RUN: Final = 4
#: Iterations whose tiles are kept at most.
_MOST: Final = 256


@dataclass(frozen=True)
class Memo:
    """Where the packed tiles of a dot's operand B are kept.

    Attributes:
        turns: the numbers of the loop's iteration at hand, and of its last one, from 0 on, i64s.
        stays: an i1: B lies in memory of the kernel's arguments, not in a copy.
        most_bytes: what all its tiles may take.
        room: gives the address of so many bytes, aligned to 64, that nothing else uses while the kernel's function runs.
    """

    turns: tuple[str, str]
    stays: str
    most_bytes: int
    room: Callable[[int], str]

    def packed(self, w: FunctionWriter, b: Matrix, size: int, otherwise: str, pack: Callable[[str], None]) -> str:
        """The address of B's packed tile of ``size`` bytes, which ``pack`` fills at an address where it is not there yet.

        The tiles of all iterations are kept or, at ``otherwise``, none: where they take more than they may, those that are kept would only drive out of the
        caches what is read beside them.
        """
        size = (size + 63) & ~63
        count = min(_MOST, self.most_bytes // size)
        if not count:
            pack(otherwise)
            return otherwise
        facts = [("ptr", b.pointer), *(("i64", stride) for stride in (b.row_stride, b.column_stride) if isinstance(stride, str))]
        keys = w.alloca("i64", (count + 1) * len(facts))
        w.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        w.allocations.append(f"  call void @llvm.memset.p0.i64(ptr align 64 {keys}, i8 0, i64 {8 * (count + 1) * len(facts)}, i1 false)")
        turn, last = self.turns
        kept = w.emit(f"icmp ult i64 {last}, {count}")
        # those that are not kept share the last key
        number = w.emit(f"select i1 {kept}, i64 {turn}, i64 {count}")
        place = w.gep("i8", self.room(count * size), scaled(w, number, size))
        place = w.emit(f"select i1 {kept}, ptr {place}, ptr {otherwise}")
        kept = w.emit(f"and i1 {kept}, {self.stays}")
        first = scaled(w, number, len(facts))
        entries = [w.gep("i64", keys, plus(w, first, position)) for position in range(len(facts))]
        there = kept
        for entry, (type_, fact) in zip(entries, facts, strict=True):
            there = w.emit(f"and i1 {there}, {w.emit(f'icmp eq {type_} {w.load(type_, entry, 8)}, {fact}')}")
        with w.when(w.emit(f"xor i1 {there}, true")):
            pack(place)
            w.store("ptr", w.emit(f"select i1 {kept}, ptr {b.pointer}, ptr null"), entries[0], 8)
            for entry, (type_, fact) in zip(entries[1:], facts[1:], strict=True):
                w.store(type_, str(fact), entry, 8)
        return place


def can_be_kept(analysis: Analysis, dot: Dot) -> bool:
    """Whether what a dot reads is the same for all programs that read it."""
    outermost: Operation = dot
    while outermost.parent is not None and isinstance(outermost.parent.owner, Operation):
        outermost = outermost.parent.owner
    end = analysis.end[outermost]
    for operation, position in analysis.start.items():
        effects = operation.spec.effects
        if operation.name == "call" or operation.name.startswith("atomic"):
            return False
        if effects & Effect.ORDER and operation.name not in _HARMLESS:
            return False
        if effects & Effect.WRITE and position <= end:
            return False
    return True
