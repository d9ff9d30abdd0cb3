"""Check for races between the generic proxy and the async proxy in shared memory.

The check reads a function in its final form, with shared memory allocated and all barriers and
fences in place. For each access through the generic proxy (:mod:`tilewright.simt.analysis.proxies`)
it tracks the ordering still missing before the async proxy may access the same bytes: a proxy
fence, and a barrier or an arrival after the fence. It does not rely on the pass that inserts
fences, so that it also checks functions written by hand or read back from text.

An ordered copy follows a wait that the analysis of byte ranges does not model, and fills another
slot of its multi-buffered allocation than the slots read since the last barrier or arrival. For
such a copy, the check reports an access only if a barrier or an arrival without a fence followed
the access. The same holds for the copies of another warp-specialized partition, which arrivals of
this partition release.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tilewright.ir.core import Function, Operation, Region
from tilewright.ir.ops.control import If
from tilewright.ir.ops.memory import Barrier
from tilewright.ir.table import Effect
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.analysis.pending_accesses import ByteRange
from tilewright.simt.analysis.proxies import ProxyAccesses, proxy_accesses
from tilewright.simt.dialect.loop_carried import CARRIERS
from tilewright.simt.dialect.op_interface import SharedEffects
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.mbarrier import Arrive, Barriers, Publish
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition
from tilewright.simt.dialect.registry import interface_of
from tilewright.simt.dialect.types import COPIES
from tilewright.simt.passes.shared_ranges import SharedRanges, overlap
from tilewright.simt.target.simt_target import SimtTarget

#: Barriers and arrivals: operations that order earlier accesses of a thread for other threads.
_SYNCHRONIZING = (Barrier, Barriers, Arrive)


class ProxyError(FlightError):
    """Async-proxy access that may race with an earlier generic-proxy access."""


class _State(IntEnum):
    """Ordering that an access still lacks before the async proxy may access its bytes.

    An ``ISSUED`` access lacks both a fence and a barrier; a ``KNOWN`` one lacks a fence, although a
    barrier or arrival followed it; a ``FENCED`` one lacks only the barrier or arrival.
    """

    ISSUED = 0
    KNOWN = 1
    FENCED = 2


@dataclass(frozen=True, slots=True)
class _Access:
    """Generic-proxy access that is not yet ordered before accesses of the async proxy."""

    range: ByteRange
    operation: Operation
    writes: bool
    state: _State


_Open = set[_Access]


def check_proxies(function: Function, target: SimtTarget) -> None:
    """Check that a fence and a barrier order generic-proxy before later async-proxy accesses.

    Raises:
        ProxyError: names both operations, their lines, and the remedy.
    """
    if target.async_proxy is not None:
        _Check(function, target).region(function.body, set())


class _Check:
    def __init__(self, function: Function, target: SimtTarget) -> None:
        self.target = target
        self.ranges = SharedRanges(function, target)
        self._effects: dict[Operation, tuple[SharedEffects, ProxyAccesses]] = {}
        self._copies: list[ByteRange] = []
        #: ranges that the async proxy accesses: no other bytes matter
        self._touched: list[ByteRange] = []
        for operation in function.walk():
            if operation.spec.effects is not Effect.NONE:
                found = self._of(operation)[1]
                slots = (*found.async_reads, *found.async_writes)
                self._touched += self.ranges.of_slots(slots)
        #: unordered accesses at the arrivals of the partition being visited
        self._released: _Open | None = None

    def region(self, region: Region, open_: _Open) -> None:
        """Visit a region; update ``open_`` to the accesses that are unordered at its end."""
        for operation in region:
            if isinstance(operation, CARRIERS):
                self._structured(operation, open_)
            elif isinstance(operation, Partition):
                self._parts(operation, open_)
            else:
                self._visit(operation, open_)

    def _structured(self, operation: Operation, open_: _Open) -> None:
        if isinstance(operation, If):
            branches = [set(open_) for _ in operation.regions]
            for region, branch in zip(operation.regions, branches, strict=True):
                self.region(region, branch)
            open_.clear()
            open_.update(*branches)
            return
        entry = set(open_)
        while True:
            state = set(entry)
            for region in operation.regions:
                self.region(region, state)
                if region is operation.regions[0]:
                    left = set(state)
            if state <= entry:
                break
            entry |= state
        # a while ends behind its condition, a for behind its body, if it runs at all
        open_ |= left

    def _parts(self, operation: Operation, open_: _Open) -> None:
        parts = [one for one in operation.regions[0] if isinstance(one, Part)]
        ends, released = [set(open_) for _ in parts], []
        for part, end in zip(parts, ends, strict=True):
            self._released = set()
            self.region(part.regions[0], end)
            released.append(self._released)
        self._released = None
        for mine, part in enumerate(parts):
            for other, left in enumerate(released):
                if other != mine:
                    self._check_part(part, left)
        open_.clear()
        open_.update(*ends)
        self._synchronize(open_)

    def _check_part(self, part: Operation, released: _Open) -> None:
        """Check a partition's async-proxy accesses against the accesses of another partition."""
        for operation in part.walk():
            if operation.spec.effects is not Effect.NONE:
                self._check(operation, released)

    # ---- one operation

    def _visit(self, operation: Operation, open_: _Open) -> None:
        if isinstance(operation, Publish):
            open_ -= (found := {one for one in open_ if one.state is not _State.FENCED})
            open_ |= {_in_state(one, _State.FENCED) for one in found}
            return
        if isinstance(operation, _SYNCHRONIZING):
            self._synchronize(open_)
            if isinstance(operation, Arrive) and self._released is not None:
                self._released |= open_
            return
        scratch = self.ranges.of_scratch(operation)
        if operation.spec.effects is Effect.NONE and not scratch:
            return
        effects, accesses = self._of(operation)
        self._check(
            operation,
            {one for one in open_ if not (effects.ordered and one.state is _State.ISSUED)},
        )
        if scratch:
            self._synchronize(open_)
        reads, writes = accesses.generic_reads, accesses.generic_writes
        if effects.copies:
            self._copies += self.ranges.of_slots(effects.copies)
        for ranges, wrote in (
            (self.ranges.of_slots(reads), False),
            (self.ranges.of_slots(writes), True),
            (scratch, True),
            (self._written_before(operation), True),
        ):
            open_ |= {
                _Access(one, operation, wrote, _State.ISSUED)
                for one in ranges
                if overlap([one], self._touched)
            }

    def _written_before(self, operation: Operation) -> list[ByteRange]:
        """Ranges that cp.async copies have written by the end of a wait for them."""
        if not isinstance(operation, Wait) or not any(
            one.type is COPIES for one in operation.operands
        ):
            return []
        return self._copies

    def _check(self, operation: Operation, open_: _Open) -> None:
        """Check that an operation's async-proxy accesses overlap no unordered access."""
        accesses = self._of(operation)[1]
        reads = self.ranges.of_slots(accesses.async_reads)
        writes = self.ranges.of_slots(accesses.async_writes)
        for one in sorted(open_, key=lambda one: (one.state, one.range)):
            if overlap([one.range], writes) or (one.writes and overlap([one.range], reads)):
                self._refuse(operation, one)

    def _refuse(self, operation: Operation, access: _Access) -> None:
        earlier = access.operation
        what = "wrote" if access.writes else "read"
        missing = {
            _State.ISSUED: "neither a proxy fence nor a barrier",
            _State.KNOWN: "a barrier or an arrival, but no proxy fence before that",
            _State.FENCED: "a proxy fence, but no barrier behind that",
        }[access.state]
        first, last = access.range
        raise ProxyError(
            f"{operation.name} at {operation.location}: accesses bytes {first} to {last} of shared"
            f" memory through the async proxy, which {earlier.name} at {earlier.location} {what}"
            f" through the generic proxy; between them is {missing} (a simt.publish in front of the"
            " barrier or arrival orders them)"
        )

    @staticmethod
    def _synchronize(open_: _Open) -> None:
        """Apply a barrier or an arrival to the unordered accesses."""
        open_ -= {one for one in open_ if one.state is _State.FENCED}
        issued = {one for one in open_ if one.state is _State.ISSUED}
        open_ -= issued
        open_ |= {_in_state(one, _State.KNOWN) for one in issued}

    def _of(self, operation: Operation) -> tuple[SharedEffects, ProxyAccesses]:
        found = self._effects.get(operation)
        if found is None:
            interface = interface_of(self.target, operation.name)
            asked = interface.effects if interface is not None else None
            effects = asked(operation) if asked is not None else SharedEffects()
            found = effects, proxy_accesses(operation, effects, self.target)
            self._effects[operation] = found
        return found


def _in_state(access: _Access, state: _State) -> _Access:
    return _Access(access.range, access.operation, access.writes, state)
