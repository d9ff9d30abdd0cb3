"""Batched accumulation: the dots of several iterations of a loop are added up in one go.

A loop whose only use of a loop-carried tile is an accumulation, ``c = dot(a, b, c)``, loads all
accumulators into registers and stores them again in every iteration: with few steps along K that
takes as long as the multiplication. Nothing reads the accumulator before the loop ends, so an
iteration need only queue the addresses of its operands, B packed in memory of its own and A where
the kernel's data is, until there are as many steps along K as a panel of B may have. Then, and in
the last iteration, the matmuls of all queued iterations are computed in one go. Each element's
terms are added in the same order as before.

Operand A stays where it is until then: nothing in such a loop writes memory. Where a mask cuts a
tile of A, so that it was copied, its iteration is the last of a batch. The remainder of rows and
columns is the same for all iterations: a limit holds only where the accumulator is stored under it,
after the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.table import Effect
from tilewright.ir.types import F16, Type, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.analysis.tiles import Analysis
from tilewright_cpu.codegen.gemm.operand import KGroupsA, KGroupsB
from tilewright_cpu.codegen.gemm.plan import Extent

#: What the operations of such a loop may do.
_HARMLESS: Final = Effect.NONE | Effect.READ | Effect.REGION
#: Iterations that are taken together at most.
_MAX_ITERATIONS: Final = 16
#: Numbers that are noted of an iteration.
_FIELDS: Final = 9


@dataclass(frozen=True)
class BatchedAccumulation:
    """Conditions under which the iterations of a loop are batched.

    Attributes:
        last: an i1: the loop ends after the iteration at hand.
        stays, b_stays: i1s: operand A, or B, of this iteration stays in memory while the loop runs.
        room: returns the address of so many bytes, aligned to 64, that nothing else uses before the
            loop ends.
    """

    last: str
    stays: str
    b_stays: str
    room: Callable[[int], str]


def can_be_batched(analysis: Analysis, dot: Dot) -> bool:
    """Return whether a dot only adds to a loop-carried tile, at no particular time.

    An accumulator in f16 is rounded in every iteration.
    """
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
    inside = (
        operation
        for operation, position in analysis.start.items()
        if analysis.start[loop] < position <= analysis.end[loop]
    )
    return all(not operation.spec.effects & ~_HARMLESS for operation in inside)


class IterationQueue:
    """Queue of a loop's iterations: the addresses of their operands, in the kernel's memory."""

    def __init__(self, w: FunctionWriter, batching: BatchedAccumulation, depth: int) -> None:
        """Open the queue at the writer's position, the dot's; ``depth`` iterations fill it."""
        self._w, self._batching, self._depth = w, batching, depth
        self._list = w.alloca("i64", _FIELDS * depth)
        self._waiting = w.alloca("i64", 1)
        w.allocations.append(f"  store i64 0, ptr {self._waiting}, align 8")
        self._number = w.load("i64", self._waiting, 8)

    def room(self, count: int, element: Type) -> str:
        """Address of memory for a number of elements, for as long as this iteration is queued."""
        size = (count * storage_size(element) + 63) & ~63
        return self._w.gep(
            "i8",
            self._batching.room(self._depth * size),
            self._w.emit(f"mul nuw nsw i64 {self._number}, {size}"),
        )

    def add(self, a: KGroupsA, b: KGroupsB, steps: Extent) -> QueuedIterations:
        """Queue this iteration's operands, and return the iterations queued so far.

        The queue is emptied where ``QueuedIterations.due`` holds.
        """
        w = self._w
        entry = w.gep("i64", self._list, w.emit(f"mul nuw nsw i64 {self._number}, {_FIELDS}"))
        for position, (type_, value) in enumerate(_fields(a, b, steps)):
            if isinstance(value, str):
                w.store(type_, value, w.gep("i64", entry, position), 8)
        count = w.emit(f"add nuw nsw i64 {self._number}, 1")
        due = w.emit(
            f"or i1 {w.emit(f'icmp eq i64 {count}, {self._depth}')}, {self._batching.last}"
        )
        if self._batching.stays != "true":
            due = w.emit(f"or i1 {due}, {w.emit(f'xor i1 {self._batching.stays}, true')}")
        w.store("i64", w.emit(f"select i1 {due}, i64 0, i64 {count}"), self._waiting, 8)
        return QueuedIterations(self._list, count, due, a, b, steps)


@dataclass(frozen=True)
class QueuedIterations:
    """Iterations to be added up, ``count`` of them, where ``due`` holds.

    Fields that all iterations share are in ``a``, ``b`` and ``steps``.
    """

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
        a_pointer, row_stride, k_stride, infinite_a, *of_b, steps = values
        b_pointer, b_stride, k_groups, infinite_b = of_b
        a = replace(
            self.a,
            pointer=str(a_pointer),
            row_stride=row_stride,
            k_stride=k_stride,
            infinite=infinite_a,
        )
        return (
            a,
            replace(
                self.b,
                pointer=str(b_pointer),
                row_stride=b_stride,
                k_groups=k_groups,
                infinite=infinite_b,
            ),
            steps,
        )


def _fields(a: KGroupsA, b: KGroupsB, steps: Extent) -> tuple[tuple[str, Extent], ...]:
    """(LLVM type, value) of each field of an iteration; numbers known now are ints."""
    of_a = ("ptr", a.pointer), ("i64", a.row_stride), ("i64", a.k_stride), ("i64", a.infinite)
    of_b = ("ptr", b.pointer), ("i64", b.row_stride), ("i64", b.k_groups), ("i64", b.infinite)
    return *of_a, *of_b, ("i64", steps)


def batch_depth(steps: int, panel_k_groups: int, bytes_each: int, max_bytes: int) -> int:
    """Number of iterations of ``steps`` K-groups that a batch has.

    Args:
        panel_k_groups: K-groups that a panel of B should have.
        bytes_each: packed operands of an iteration, of which ``max_bytes`` may be queued.
    """
    return max(1, min(_MAX_ITERATIONS, panel_k_groups // steps, max_bytes // max(1, bytes_each)))
