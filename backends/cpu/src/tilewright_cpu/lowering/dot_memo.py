"""Packed operands that a thread keeps from one program to the next.

Programs that follow each other mostly multiply by the same columns of B, those of a column of blocks, and programs of the next column by the same rows of A
again. Each would pack all of its operands' tiles along K, which takes about as long as the products. So a tile that an iteration of the loop along K packs has
a place and a key of its own, which outlive the program: the address that it was read at, and its strides where they are not known now. A later program that
finds its own there need not pack. Keys are forgotten when a thread's part of a launch ends (:meth:`.slots.Slots.cleared`).

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
from tilewright_cpu.lowering.dot_pack import Matrix, scaled

#: What may stand in a kernel with order of its own: it does not order memory.
_HARMLESS: Final = ("print", "assert", "assume")
#: Iterations whose tiles are kept at most.
_MOST: Final = 256
#: Tiles of A that an iteration keeps: kernels take rows in groups of eight blocks mostly, for each column of blocks again.
WAYS: Final = 8

#: A set holds what was packed in one iteration of the loop: WAYS keys of FACTS numbers each, the places of what they stand for, and the number of the key that
#: is replaced next. Places are given out one by one, from a common count on, until there are no more; then a set replaces what it has.
_SETS: Final = """
%memo.NAME = type { [FACTS x <WAYS x i64>], [WAYS x ptr], i64 }

define internal ptr @memo.NAME.find(ptr %set, PARAMETERS) #0 noinline {
COMPARISONS
  %mask = bitcast <WAYS x i1> %equal.LAST to iWAYS
  %none = icmp eq iWAYS %mask, 0
  br i1 %none, label %missing, label %there
missing:
  ret ptr null
there:
  %way0 = call iWAYS @llvm.cttz.iWAYS(iWAYS %mask, i1 true)
  %way = zext iWAYS %way0 to i64
  %at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %way
  %place = load ptr, ptr %at, align 8
  ret ptr %place
}

define internal ptr @memo.NAME.add(ptr %set, PARAMETERS, ptr %count, ptr %room, i64 %size, i64 %most) #0 noinline {
  %next.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 2
  %next = load i64, ptr %next.at, align 8
  %own.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %next
  %own = load ptr, ptr %own.at, align 8
  %used = load i64, ptr %count, align 8
  %new = icmp eq ptr %own, null
  %left = icmp ult i64 %used, %most
  %take = and i1 %new, %left
  %end = xor i1 %left, true
  %back = and i1 %new, %end
  %way = select i1 %back, i64 0, i64 %next
  %used1 = zext i1 %take to i64
  %used2 = add i64 %used, %used1
  store i64 %used2, ptr %count, align 8
  %offset = mul i64 %used, %size
  %fresh = getelementptr i8, ptr %room, i64 %offset
  %place.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %way
  %old = load ptr, ptr %place.at, align 8
  %place = select i1 %take, ptr %fresh, ptr %old
  %nowhere = icmp eq ptr %place, null
  br i1 %nowhere, label %out, label %keep
keep:
  store ptr %place, ptr %place.at, align 8
STORES
  %way1 = add i64 %way, 1
  %around = icmp eq i64 %way1, WAYS
  %following = select i1 %around, i64 0, i64 %way1
  store i64 %following, ptr %next.at, align 8
  br label %out
out:
  ret ptr %place
}
"""


def _sets(ways: int, facts: int) -> tuple[str, str, int]:
    """(the name of sets of so many keys and numbers each, their functions' text, bytes of one)."""
    name = f"{ways}x{facts}"
    parameters = ", ".join(f"i64 %fact.{number}" for number in range(facts))
    keys, comparisons, stores = f"<{ways} x i64>", list[str](), list[str]()
    for number in range(facts):
        at = f"%keys.{number} = getelementptr %memo.NAME, ptr %set, i64 0, i32 0, i64 {number}"
        comparisons += [
            at,
            f"%known.{number} = load {keys}, ptr %keys.{number}, align 8",
            f"%one.{number} = insertelement {keys} poison, i64 %fact.{number}, i64 0",
            f"%all.{number} = shufflevector {keys} %one.{number}, {keys} poison, <{ways} x i32> zeroinitializer",
            f"%{'same' if number else 'equal'}.{number} = icmp eq {keys} %known.{number}, %all.{number}",
        ]
        if number:
            comparisons.append(f"%equal.{number} = and <{ways} x i1> %equal.{number - 1}, %same.{number}")
        stores += [at, f"%key.{number} = getelementptr i64, ptr %keys.{number}, i64 %way", f"store i64 %fact.{number}, ptr %key.{number}, align 8"]
    text = _SETS.replace("COMPARISONS", "\n".join(f"  {line}" for line in comparisons)).replace("STORES", "\n".join(f"  {line}" for line in stores))
    for word, replacement in (("PARAMETERS", parameters), ("FACTS", str(facts)), ("WAYS", str(ways)), ("LAST", str(facts - 1)), ("NAME", name)):
        text = text.replace(word, replacement)
    key = 8 * ways
    return name, text, -(-(facts * key + key + 8) // key) * key


@dataclass(frozen=True)
class Memo:
    """Where the packed tiles of an operand of a dot are kept.

    Attributes:
        turns: the numbers of the loop's iteration at hand, and of its last one, from 0 on, i64s.
        stays: an i1: the operand lies in memory of the kernel's arguments, not in a copy.
        ways: tiles that an iteration keeps at most, of different places: a power of two.
        most_bytes: what all tiles may take.
        room: gives the address of so many bytes, aligned to 64, that nothing else uses while a thread takes part in a launch.
        cleared: gives such memory that is zero at first.
    """

    turns: tuple[str, str]
    stays: str
    ways: int
    most_bytes: int
    room: Callable[[int], str]
    cleared: Callable[[int], str]

    def packed(self, w: FunctionWriter, source: Matrix, size: int, otherwise: str, pack: Callable[[str], None]) -> str:
        """The address of an operand's packed tile of ``size`` bytes, which ``pack`` fills at an address where it is not there yet.

        The tiles of all iterations are kept or, at ``otherwise``, none: where they take more than they may, those that are kept would only drive out of the
        caches what is read beside them.
        """
        size = (size + 63) & ~63
        most = self.most_bytes // size
        count = min(_MOST, most)
        if not count:
            pack(otherwise)
            return otherwise
        pointer = w.emit(f"ptrtoint ptr {source.pointer} to i64")
        facts = [pointer, *(stride for stride in (source.row_stride, source.column_stride) if isinstance(stride, str))]
        name, text, bytes_each = _sets(self.ways, len(facts))
        w.module.declare(f"llvm.cttz.i{self.ways}", f"i{self.ways}", [f"i{self.ways}", "i1"])
        w.module.add_global(text)
        sets, used, room = self.cleared(count * bytes_each), self.cleared(8), self.room(most * size)
        turn, last = self.turns
        kept = w.emit(f"and i1 {w.emit(f'icmp ult i64 {last}, {count}')}, {self.stays}")
        given = ", ".join(f"i64 {fact}" for fact in facts)
        place = w.alloca("ptr", 1, 8)
        w.store("ptr", otherwise, place, 8)
        found, pack_it, done = w.new_block("look"), w.new_block("pack"), w.new_block("kept")
        w.branch_if(kept, found, pack_it)
        w.place(found)
        set_ = w.gep("i8", sets, scaled(w, turn, bytes_each))
        there = w.emit(f"call ptr @memo.{name}.find(ptr {set_}, {given})")
        w.store("ptr", there, place, 8)
        new = w.new_block("new")
        w.branch_if(w.emit(f"icmp eq ptr {there}, null"), new, done)
        w.place(new)
        target = w.emit(f"call ptr @memo.{name}.add(ptr {set_}, {given}, ptr {used}, ptr {room}, i64 {size}, i64 {most})")
        w.store("ptr", w.emit(f"select i1 {w.emit(f'icmp eq ptr {target}, null')}, ptr {otherwise}, ptr {target}"), place, 8)
        w.branch(pack_it)
        w.place(pack_it)
        pack(w.load("ptr", place, 8))
        w.branch(done)
        w.place(done)
        return w.load("ptr", place, 8)


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
