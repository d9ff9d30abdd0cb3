"""Dots of a loop that are added up several iterations at a time.

A loop that does no more with a carried tile than to add products to it, ``sums = dot(a, b, sums)``, loads all sums into registers and stores them again in
every iteration: with few steps along K that takes as long as the products. Nobody reads the sums before the loop ends, so an iteration need only note where its
operands lie, B packed in memory of its own and A where the kernel's data is, until there are as many steps along K as a panel of B may have. Then, and in the
last iteration, the products of all noted iterations are added up in one go. Each element's products are added in the same order as before.

Operand A stays where it is until then: nothing in such a loop writes memory. Where a mask cuts a tile of A, so that it was copied, its iteration is the last of
those that are taken together. How many rows and columns count is the same for all: a limit holds only where the sums are stored under it, after the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.table import Effect
from tilewright.ir.types import F16, Type, element_type
from tilewright.llvm.registers import storage_size
from tilewright.llvm.writer import FunctionWriter
from tilewright_cpu.codegen.analysis.tiles import Analysis
from tilewright_cpu.codegen.gemm.microkernel import KGroupsA, KGroupsB
from tilewright_cpu.codegen.gemm.plan import Extent

#: What the operations of such a loop may do.
_HARMLESS: Final = Effect.NONE | Effect.READ | Effect.REGION
#: Iterations that are taken together at most.
_MOST: Final = 16
#: Numbers that are noted of an iteration.
_FIELDS: Final = 8


@dataclass(frozen=True)
class BatchedAccumulation:
    """How the iterations of a loop are taken together.

    Attributes:
        last: an i1: the loop ends after the iteration at hand.
        stays: an i1: operand A of this iteration stays in memory while the loop runs.
        room: gives the address of so many bytes, aligned to 64, that nothing else uses before the loop ends.
    """

    last: str
    stays: str
    room: Callable[[int], str]


def can_be_batched(analysis: Analysis, dot: Dot) -> bool:
    """Whether a dot only adds to a tile that its loop carries, and nothing in the loop minds when. Sums in f16 are rounded in every iteration."""
    loop = dot.parent.owner if dot.parent is not None else None
    if not isinstance(loop, For):
        return False
    body = loop.body
    accumulator, result, terminator = dot.c, dot.result, body.terminator
    if (
        element_type(accumulator.type) is F16
        or accumulator.owner is not body
        or list(accumulator.uses) != [dot]
        or list(result.uses) != [terminator]
        or terminator is None
    ):
        return False
    number = body.arguments.index(accumulator) - 1
    if number < 0 or terminator.operands[number] is not result:
        return False
    inside = (operation for operation, position in analysis.start.items() if analysis.start[loop] < position <= analysis.end[loop])
    return all(not operation.spec.effects & ~_HARMLESS for operation in inside)


class IterationQueue:
    """The iterations of a loop that wait to be added up: in the running kernel's memory, where their operands lie."""

    def __init__(self, w: FunctionWriter, batching: BatchedAccumulation, depth: int) -> None:
        """``depth``: how many iterations are taken together. The writer is at the dot."""
        self._w, self._batching, self._depth = w, batching, depth
        self._list = w.alloca("i64", _FIELDS * depth)
        self._waiting = w.alloca("i64", 1)
        w.allocations.append(f"  store i64 0, ptr {self._waiting}, align 8")
        self._number = w.load("i64", self._waiting, 8)

    def room(self, count: int, element: Type) -> str:
        """The address of memory for a number of elements, as long as this iteration waits."""
        size = (count * storage_size(element) + 63) & ~63
        return self._w.gep("i8", self._batching.room(self._depth * size), self._w.emit(f"mul nuw nsw i64 {self._number}, {size}"))

    def add(self, a: KGroupsA, b: KGroupsB, steps: Extent) -> QueuedIterations:
        """Note this iteration's operands. Those noted so far, with it; they are forgotten where ``QueuedIterations.due`` holds."""
        w = self._w
        entry = w.gep("i64", self._list, w.emit(f"mul nuw nsw i64 {self._number}, {_FIELDS}"))
        for position, (type_, value) in enumerate(_fields(a, b, steps)):
            if isinstance(value, str):
                w.store(type_, value, w.gep("i64", entry, position), 8)
        count = w.emit(f"add nuw nsw i64 {self._number}, 1")
        due = w.emit(f"or i1 {w.emit(f'icmp eq i64 {count}, {self._depth}')}, {self._batching.last}")
        if self._batching.stays != "true":
            due = w.emit(f"or i1 {due}, {w.emit(f'xor i1 {self._batching.stays}, true')}")
        w.store("i64", w.emit(f"select i1 {due}, i64 0, i64 {count}"), self._waiting, 8)
        return QueuedIterations(self._list, count, due, a, b, steps)


@dataclass(frozen=True)
class QueuedIterations:
    """Iterations to be added up, ``count`` of them, where ``due`` holds. What is the same for all is in ``a``, ``b`` and ``steps``."""

    entries: str
    count: str
    due: str
    a: KGroupsA
    b: KGroupsB
    steps: Extent

    def operands(self, w: FunctionWriter, index: str) -> tuple[KGroupsA, KGroupsB, Extent]:
        """The operands of an iteration, and its steps along K."""
        entry = w.gep("i64", self.entries, w.emit(f"mul nuw nsw i64 {index}, {_FIELDS}"))
        values = [
            w.load(type_, w.gep("i64", entry, position), 8) if isinstance(value, str) else value
            for position, (type_, value) in enumerate(_fields(self.a, self.b, self.steps))
        ]
        a_pointer, row_stride, k_stride, infinite_a, b_pointer, k_groups, infinite_b, steps = values
        a = replace(self.a, pointer=str(a_pointer), row_stride=row_stride, k_stride=k_stride, infinite=infinite_a)
        return a, replace(self.b, pointer=str(b_pointer), k_groups=k_groups, infinite=infinite_b), steps


def _fields(a: KGroupsA, b: KGroupsB, steps: Extent) -> tuple[tuple[str, Extent], ...]:
    """(LLVM type, value) of what an iteration has of its own, where it is not a number known now."""
    of_a = ("ptr", a.pointer), ("i64", a.row_stride), ("i64", a.k_stride), ("i64", a.infinite)
    return *of_a, ("ptr", b.pointer), ("i64", b.k_groups), ("i64", b.infinite), ("i64", steps)


def batch_depth(steps: int, panel_k_groups: int, bytes_each: int, max_bytes: int) -> int:
    """How many iterations of ``steps`` units along K to take together.

    Args:
        panel_units: units along K that a panel of B should have.
        bytes_each: packed operands of an iteration, of which ``max_bytes`` may wait.
    """
    return max(1, min(_MOST, panel_k_groups // steps, max_bytes // max(1, bytes_each)))
