"""The modulo expander: prologue, steady state and epilogue of every pipelined loop.

A loop of n iterations with prefetch distance D (:mod:`.pipelined_loop` explains stages and slots)
becomes

    allocate slots, and what their copies complete on
    for s in 0 .. D-1:                          prologue
        issue the copies of iteration s, where s < n
    for each iteration i:                       steady state
        wait for the copies of iteration i
        issue the copies of iteration i+D, where i+D < n
        ... the body, which reads slot i mod S
        release the slot
    wait for what is still in flight            epilogue

A *copy mechanism* (:class:`Copies`) supplies each of these lines, and the order of those of the
steady state. Copies past the end are masked off, so that the state of the mechanism advances in
each iteration in the same way, whatever n is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tilewright.errors import LoweringError
from tilewright.ir.builder import Builder
from tilewright.ir.core import Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import I32
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.dialect.pipeline_attributes import Ahead
from tilewright.simt.pipeline.pipelined_loop import LoopSchedule, PipelinedLoop
from tilewright.simt.pipeline.slot_reads import read_slots
from tilewright.simt.target.copy_mechanism import CopyMechanism
from tilewright.simt.target.simt_target import SimtTarget

_Kind = TypeVar("_Kind", bound="Copies")


class Copies(ABC):
    """A kind of completion: its part of selection and scheduling, and the copies of one loop.

    A subclass is registered by :func:`completes`; class methods are asked before there is a loop to
    expand.

    Attributes:
        distance: the prefetch distance, in iterations.
    """

    distance: int

    def __init__(self, loop: ModuloExpander) -> None:
        self.loop = loop
        self.distance = loop.slots - 1

    # ---- selection and scheduling

    @classmethod
    @abstractmethod
    def attributes_of(
        cls,
        load: Ahead,
        mechanism: CopyMechanism,
        target: SimtTarget,
        axes: Mapping[Value, AxisInfo],
    ) -> dict[str, Any] | None:
        """Return the attributes of a load that a mechanism prefetches; None if it cannot copy it.

        The shared layout is one of them.
        """

    @classmethod
    def slots(cls, stages: int) -> int:
        """Return the number of slots of each load in a loop of ``stages`` stages."""
        return stages

    @classmethod
    def extra_bytes(cls, slots: int, target: SimtTarget) -> int:
        """Return the bytes of shared memory of a loop beside its slots."""
        return 0

    @classmethod  # noqa: B027
    def decide(
        cls, loop: For, found: LoopSchedule, target: SimtTarget, options: Mapping[str, Any]
    ) -> None:
        """Write further decisions on a scheduled loop and its matmuls to attributes."""

    @classmethod  # noqa: B027
    def decide_spare(cls, loop: For, target: SimtTarget, options: Mapping[str, Any]) -> None:
        """Write decisions that cost registers, in a kernel that has registers to spare."""

    # ---- expansion

    @abstractmethod
    def allocate(self, before: Builder) -> None:
        """Create slots, and what their copies complete on, in front of the loop."""

    @abstractmethod
    def issue(self, builder: Builder, which: Value, mapping: Mapping[Value, Value]) -> None:
        """Start the copies of an iteration of the prologue into slot ``which``.

        ``mapping`` has the iteration's addresses; ``loop.live`` says whether it will run.
        """

    def after_prologue(self, before: Builder) -> None:  # noqa: B027
        """Complete what the first iteration expects."""

    @abstractmethod
    def carry(self, before: Builder) -> None:
        """Add the mechanism's state, such as tokens in flight, to the loop-carried values."""

    @abstractmethod
    def write_iteration(self, top: Builder) -> None:
        """Write an iteration of the steady state: wait, issue, read slots, release them."""

    @abstractmethod
    def following(self) -> list[Value]:
        """Return the next values of the loop-carried values that the mechanism has added."""

    def write_epilogue(self) -> None:  # noqa: B027
        """Wait, behind the loop, for what is in flight."""


_KINDS: Final[dict[str, type[Copies]]] = {}


def completes(kind: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Register the copies of mechanisms whose ``completes`` is ``kind``.

    Raises:
        ValueError: the kind has copies already.
    """

    def register(copies: type[_Kind]) -> type[_Kind]:
        if kind in _KINDS:
            raise ValueError(f"copies that complete by {kind!r} are registered already")
        _KINDS[kind] = copies
        return copies

    return register


def kinds() -> Mapping[str, type[Copies]]:
    """Return the kinds of completion, by name."""
    return _KINDS


def kind_of(mechanism: CopyMechanism) -> type[Copies]:
    """Return the kind of completion of a mechanism.

    Raises:
        LoweringError: it is not registered.
    """
    if mechanism.completes not in _KINDS:
        raise LoweringError(
            f"copies by {mechanism.name!r} complete by {mechanism.completes!r}, which is not "
            f"registered; there are {', '.join(sorted(_KINDS))}"
        )
    return _KINDS[mechanism.completes]


class ModuloExpander(PipelinedLoop):
    """The expansion of one loop.

    Attributes:
        slot: the loop-carried index of the slot that an iteration reads.
        previous, next: the indices of the slots before and after it.
        left: the loop-carried number of iterations whose copies are not yet issued; None in a
            warp-specialized partition, where no copies are issued ahead.
        live: whether the iteration whose copies are issued will run; None in such a partition.
        ahead: the loop-carried values that the slice of iteration i+D reads.
        ahead_next: the same for the next iteration.
    """

    slot: Value
    previous: Value
    next: Value
    left: Value | None = None
    left_next: Value
    live: Value | None = None

    def __init__(self, loop: For, target: SimtTarget) -> None:
        super().__init__(loop, target)
        self.ahead: dict[Value, Value] = {}
        self.ahead_next: dict[Value, Value] = {}

    def expand(self, copies: Copies) -> None:
        """Replace the loop by its prologue, steady state and epilogue."""
        before = self.before
        copies.allocate(before)
        count, self.ahead = self.iterations(before), self.first()
        for number in range(copies.distance):
            done = self.number(before, number, self.count_type)
            self.live = before.cmp(count, done, predicate="gt")
            mapping = self.look_ahead(before)
            copies.issue(before, self.number(before, number, I32), mapping)
            self.advance(before, mapping)
            self.ahead = self.ahead_next
        copies.after_prologue(before)
        left = self.left_after(before, count, copies.distance)
        self.ahead = {key: self.carry(self.ahead[key]) for key in self.keys(self.ahead)}
        self.slot, self.left = self.carry(self.number(before, 0, I32)), self.carry(left)
        copies.carry(before)
        self.write_steady_state(copies)

    def write_steady_state(self, copies: Copies) -> None:
        """Write the iterations, whose loop-carried values exist, and what follows the loop."""
        copies.write_iteration(Builder(self.body, self.body.first, self.loop.location))
        counted = [] if self.left is None else [self.left_next]
        self.yield_more([*self.ahead_next.values(), self.next, *counted, *copies.following()])
        copies.write_epilogue()

    # ---- lines of the steady state

    def begin(self, top: Builder) -> None:
        """Compute whether there are copies to issue, and the slots beside the one that is read."""
        if self.left is not None:
            self.live = top.cmp(self.left, self.number(top, 0, self.count_type), predicate="gt")
        self.previous, self.next = self.neighbours(top, self.slot)

    def count_down(self, builder: Builder) -> None:
        """Compute the number of iterations left after the one whose copies are issued."""
        assert self.left is not None and self.live is not None
        self.left_next = builder.sub(self.left, builder.cast(self.live, result=self.count_type))

    def look_ahead(self, builder: Builder) -> dict[Value, Value]:
        """Copy the slice of stage 0 for iteration i+D; return the values of that iteration."""
        assert self.live is not None
        mapping = dict(self.ahead)
        self.repeat(builder, mapping, self.live)
        return mapping

    def advance(self, builder: Builder, mapping: Mapping[Value, Value]) -> None:
        """Compute the values that are D iterations ahead for the next iteration."""
        self.ahead_next = self.advanced(builder, mapping, self.ahead)

    def read(self, slots: Sequence[Value]) -> None:
        """Let the readers of the loads read slots."""
        read_slots(self, slots)

    def buffers(self, builder: Builder, loads: Sequence[Ahead] | None = None) -> list[Value]:
        """Create the multi-buffered shared memory of some loads, or of all."""
        return [self.buffer(builder, load) for load in (self.loads if loads is None else loads)]
