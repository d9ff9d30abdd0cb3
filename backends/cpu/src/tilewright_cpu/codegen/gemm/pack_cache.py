"""The packed-operand cache, which a thread keeps from one program to the next.

Programs that follow each other mostly multiply by the same columns of B, those of a column of
blocks, and programs of the next column by the same rows of A again. Each would pack all of its
operands' tiles along K, which takes about as long as the matmul. So a tile that an iteration of the
loop along K packs has an entry in a cache that outlives the program; the key is the address that it
was read at, and its strides where they are not known now. A later program that hits need not pack.
Keys are cleared when a thread's part of a launch ends
(:meth:`~tilewright_cpu.codegen.state.stack_slots.StackSlots.cleared`).

An entry holds what memory held when it was packed. No program may see that: another program's store
to the same memory in the same launch is a race unless atomics order the two, and a kernel that has
any, or that stores before or in the loop, caches nothing (:func:`can_be_cached`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.ir.core import Operation
from tilewright.ir.ops.control import Call
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import ATOMICS
from tilewright.ir.table import Effect, Trait
from tilewright.llvm.emission.writer import FunctionWriter, vector
from tilewright_cpu.codegen.analysis.tiles import Analysis
from tilewright_cpu.codegen.gemm.pack import Matrix, scaled

#: Iterations whose tiles are kept at most.
_MAX_ITERATIONS: Final = 256
#: Tiles of A that an iteration keeps: kernels take rows in groups of eight blocks mostly, for each
#: column of blocks again.
WAYS: Final = 8

#: A set holds what was packed in one iteration of the loop: WAYS keys of FACTS numbers each, the
#: places of what they stand for, and the number of the key that is replaced next. Places are
#: allocated one by one, from a common count on, until there are no more; then a set replaces an
#: entry. The function returns the place of a key, and whether it is new there.
_SETS: Final = """
%memo.NAME = type { [FACTS x KEYS], [WAYS x ptr], i64 }

define internal { ptr, i1 } @memo.NAME(ptr %set, PARAMETERS, ptr %count, ptr %room, \
i64 %size, i64 %most, ptr %otherwise) #0 noinline {
COMPARISONS
  br i1 %none, label %missing, label %there
there:
  %found.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %found
  %known = load ptr, ptr %found.at, align 8
  %old = insertvalue { ptr, i1 } { ptr poison, i1 false }, ptr %known, 0
  ret { ptr, i1 } %old
missing:
  %next.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 2
  %next = load i64, ptr %next.at, align 8
  %own.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %next
  %own = load ptr, ptr %own.at, align 8
  %used = load i64, ptr %count, align 8
  %unused = icmp eq ptr %own, null
  %left = icmp ult i64 %used, %most
  %take = and i1 %unused, %left
  %full = xor i1 %left, true
  %back = and i1 %unused, %full
  %way = select i1 %back, i64 0, i64 %next
  %one = zext i1 %take to i64
  %more = add i64 %used, %one
  store i64 %more, ptr %count, align 8
  %offset = mul i64 %used, %size
  %fresh = getelementptr i8, ptr %room, i64 %offset
  %place.at = getelementptr %memo.NAME, ptr %set, i64 0, i32 1, i64 %way
  %replaced = load ptr, ptr %place.at, align 8
  %place = select i1 %take, ptr %fresh, ptr %replaced
  %nowhere = icmp eq ptr %place, null
  br i1 %nowhere, label %out, label %keep
keep:
  store ptr %place, ptr %place.at, align 8
STORES
  %following = add i64 %way, 1
  %around = urem i64 %following, WAYS
  store i64 %around, ptr %next.at, align 8
  br label %out
out:
  %target = phi ptr [ %otherwise, %missing ], [ %place, %keep ]
  %new = insertvalue { ptr, i1 } { ptr poison, i1 true }, ptr %target, 0
  ret { ptr, i1 } %new
}
"""


def _sets(ways: int, facts: int) -> tuple[str, str, int]:
    """(the name of sets of so many keys and numbers each, their function's text, bytes of one)."""
    name = f"{ways}x{facts}"
    keys, bools = vector("i64", ways if ways > 1 else 0), vector("i1", ways if ways > 1 else 0)
    equal, comparisons, stores = "", list[str](), list[str]()
    for number in range(facts):
        comparisons += [
            f"%keys.{number} = getelementptr %memo.NAME, ptr %set, i64 0, i32 0, i64 {number}",
            f"%kept.{number} = load {keys}, ptr %keys.{number}, align 8",
        ]
        fact = f"%fact.{number}"
        if ways > 1:
            comparisons += [
                f"%first.{number} = insertelement {keys} poison, i64 {fact}, i64 0",
                (
                    f"%all.{number} = shufflevector {keys} %first.{number}, {keys} poison, <{ways} "
                    "x i32> zeroinitializer"
                ),
            ]
            fact = f"%all.{number}"
        comparisons.append(f"%same.{number} = icmp eq {keys} %kept.{number}, {fact}")
        if equal:
            comparisons.append(f"%equal.{number} = and {bools} {equal}, %same.{number}")
        equal = f"%equal.{number}" if equal else f"%same.{number}"
        stores += [
            f"%key.{number} = getelementptr i64, ptr %keys.{number}, i64 %way",
            f"store i64 %fact.{number}, ptr %key.{number}, align 8",
        ]
    if ways > 1:
        comparisons += [
            f"%mask = bitcast {bools} {equal} to iWAYS",
            "%none = icmp eq iWAYS %mask, 0",
            "%lane = call iWAYS @llvm.cttz.iWAYS(iWAYS %mask, i1 false)",
            "%found = zext iWAYS %lane to i64",
        ]
    else:
        comparisons += [f"%none = xor i1 {equal}, true", "%found = add i64 0, 0"]
    text = _SETS.replace("COMPARISONS", "\n".join(f"  {line}" for line in comparisons)).replace(
        "STORES", "\n".join(f"  {line}" for line in stores)
    )
    parameters = ", ".join(f"i64 %fact.{number}" for number in range(facts))
    for word, replacement in (
        ("PARAMETERS", parameters),
        ("FACTS", str(facts)),
        ("KEYS", keys),
        ("WAYS", str(ways)),
        ("NAME", name),
    ):
        text = text.replace(word, replacement)
    key = 8 * ways
    return name, text, -(-(facts * key + key + 8) // key) * key


@dataclass(frozen=True)
class PackCache:
    """The packed-operand cache of one operand of a dot.

    Attributes:
        iterations: the numbers of the loop's iteration at hand, and of its last one, from 0 on,
        i64s. stays: an i1: the operand lies in memory of the kernel's arguments, not in a copy.
        ways: maximum of the tiles that an iteration keeps, of different addresses: a power of two.
        max_bytes: the size of the cache.
        room: returns the address of so many bytes, aligned to 64, that nothing else uses while a
            thread takes part in a launch.
        cleared: returns such memory that is zero at first.
    """

    iterations: tuple[str, str]
    stays: str
    ways: int
    max_bytes: int
    room: Callable[[int], str]
    cleared: Callable[[int], str]

    def packed(
        self,
        w: FunctionWriter,
        source: Matrix,
        size: int,
        otherwise: str,
        pack: Callable[[str], None],
    ) -> str:
        """Address of an operand's packed tile of ``size`` bytes, which ``pack`` fills after a miss.

        The tiles of all iterations are cached or, at ``otherwise``, none: where they take more than
        they may, cached tiles would only drive out of the hardware's caches what is read beside
        them.
        """
        size = (size + 63) & ~63
        most = self.max_bytes // size
        count = min(_MAX_ITERATIONS, most)
        if not count:
            pack(otherwise)
            return otherwise
        pointer = w.emit(f"ptrtoint ptr {source.pointer} to i64")
        facts = [
            pointer,
            *(
                stride
                for stride in (source.row_stride, source.column_stride)
                if isinstance(stride, str)
            ),
        ]
        name, text, bytes_each = _sets(self.ways, len(facts))
        if self.ways > 1:
            w.module.declare(f"llvm.cttz.i{self.ways}", f"i{self.ways}", [f"i{self.ways}", "i1"])
        w.module.add_global(text)
        sets, used, room = self.cleared(count * bytes_each), self.cleared(8), self.room(most * size)
        iteration, last = self.iterations
        kept = w.emit(f"and i1 {w.emit(f'icmp ult i64 {last}, {count}')}, {self.stays}")
        look, packing, done = w.new_block("look"), w.new_block("pack"), w.new_block("kept")
        before = w.current
        w.branch_if(kept, look, packing)
        w.place(look)
        given = ", ".join(f"i64 {fact}" for fact in facts)
        set_ = w.gep("i8", sets, scaled(w, iteration, bytes_each))
        found = w.emit(
            f"call {{ ptr, i1 }} @memo.{name}(ptr {set_}, {given}, ptr {used}, ptr {room}, i64 "
            f"{size}, i64 {most}, ptr {otherwise})"
        )
        there = w.emit(f"extractvalue {{ ptr, i1 }} {found}, 0")
        looked = w.current
        w.branch_if(w.emit(f"extractvalue {{ ptr, i1 }} {found}, 1"), packing, done)
        w.place(packing)
        place = w.phi("ptr", ((otherwise, before), (there, looked)))
        pack(place)
        packed = w.current
        w.branch(done)
        w.place(done)
        return w.phi("ptr", ((there, looked), (place, packed)))


def can_be_cached(analysis: Analysis, dot: Dot) -> bool:
    """Return whether the operands of a dot are the same for all programs that read them."""
    outermost: Operation = dot
    while outermost.parent is not None and isinstance(outermost.parent.owner, Operation):
        outermost = outermost.parent.owner
    end = analysis.end[outermost]
    for operation, position in analysis.start.items():
        effects = operation.spec.effects
        if isinstance(operation, (Call, *ATOMICS)):
            return False
        if effects & Effect.ORDER and Trait.NO_MEMORY not in operation.spec.traits:
            return False
        if effects & Effect.WRITE and position <= end:
            return False
    return True
