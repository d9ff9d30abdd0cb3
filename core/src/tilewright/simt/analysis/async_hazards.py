"""Hazards of asynchronous matmuls, loads and copies: uses of a result before the wait for it.

A matmul or load is in flight from its start to a wait for it. Until then its result may only be the
accumulator of a matmul that continues in the same registers, be carried by control flow, and be
waited for. Any other operation would read registers that an asynchronous operation still writes.
Matmuls that accumulate in the same registers form a chain: values connected through accumulators
and control flow.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import TileType
from tilewright.passes.rewriter import constant_of
from tilewright.simt.dialect.layout_rules import LayoutError
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried, carried_values
from tilewright.simt.dialect.ops.async_copy import Commit, CopyStart, Wait
from tilewright.simt.dialect.ops.buffers import SharedLoad, SharedView, Slot
from tilewright.simt.dialect.ops.dot import DotFragment, DotStart, PlannedDot
from tilewright.simt.dialect.ops.tensor_memory import DotInto
from tilewright.simt.dialect.types import COPIES, LOADS, MATMULS, TokenType

#: Operations that start a tile, and the queue in which the tile is waited for.
_STARTS = {"simt.dot_start": MATMULS.queue, "simt.load_start": LOADS.queue}
#: Operations that read slots synchronously.
_READERS = (SharedLoad, PlannedDot, DotInto, DotFragment)


class FlightError(LayoutError):
    """Read of a tile in flight, or of a slot that an asynchronous copy is writing."""


class InFlight:
    """Values of a function that may be in flight."""

    def __init__(self, function: Function) -> None:
        self._leaders: dict[Value, Value] = {}
        #: value -> operations that may have started it most recently
        self._starts: dict[Value, set[Operation]] = {}
        self.carried: dict[Value, Carried] = {}
        operations = list(function.walk())
        for operation in operations:
            if isinstance(operation, CARRIERS):
                for one in carried_values(operation):
                    self.carried.update(dict.fromkeys(one.values, one))
        for operation in operations:
            if operation.name in _STARTS:
                self._starts[operation.results[0]] = {operation}
        while self._spread():
            pass
        for operation in operations:
            if isinstance(operation, DotStart) and operation.c in self._starts:
                self._join(operation.results[0], operation.c)
        leaders = dict.fromkeys(
            self._leader(value) for value in self._starts if self.queue(value) == MATMULS.queue
        )
        self._numbers = {leader: number for number, leader in enumerate(leaders)}

    def _spread(self) -> bool:
        """Propagate through loop-carried values once; return whether that found anything new."""
        changed = False
        for one in dict.fromkeys(self.carried.values()):
            sources = [value for value in one.incoming() if value in self._starts]
            found: set[Operation] = set().union(*(self._starts[value] for value in sources))
            for value in one.values if found else ():
                known = self._starts.setdefault(value, set())
                if not found <= known:
                    known |= found
                    changed = True
                for source in sources:
                    self._join(value, source)
        return changed

    def _leader(self, value: Value) -> Value:
        while (above := self._leaders.get(value, value)) is not value:
            value = above
        return value

    def _join(self, a: Value, b: Value) -> None:
        self._leaders[self._leader(a)] = self._leader(b)

    @property
    def values(self) -> Iterator[Value]:
        """Values that may be in flight."""
        return iter(self._starts)

    def may_be(self, value: Value) -> bool:
        """Return whether a value may be in flight.

        For a loop-carried value, that does not mean that it always is.
        """
        return value in self._starts

    def starts(self, value: Value) -> set[Operation]:
        """Operations that may have started a value most recently."""
        return self._starts[value]

    def queue(self, value: Value) -> str:
        """Queue in which a value is waited for."""
        return _STARTS[next(iter(self._starts[value])).name]

    def chain(self, value: Value) -> int | None:
        """Return the number of a value's chain of accumulators, counted from 0.

        None if no matmul in flight defines the value.
        """
        return self._numbers.get(self._leader(value)) if value in self._starts else None


def check_in_flight(function: Function) -> None:
    """Check a function for hazards of asynchronous operations.

    Only waits and matmuls that continue in the same registers may read tiles in flight. Operands in
    registers must stay live until the wait for their matmul. As far as program order shows, no slot
    may be read while a group of copies into it is in flight.

    Raises:
        FlightError: naming the operation, its location and the rule.
    """
    flights = InFlight(function)
    for value in flights.values:
        plans = {start.plan for start in flights.starts(value) if isinstance(start, DotStart)}
        for user in value.uses:
            for position, operand in enumerate(user.operands):
                if operand is value:
                    _check_use(flights, value, user, position, plans)
    for operation in function.walk():
        if isinstance(operation, DotStart):
            _check_held(operation)
    _check_slots(function.body, [])


def _check_held(start: DotStart) -> None:
    """Check that a matmul's operands in registers stay live until a wait for it, which holds them.

    A loop that carries the matmul's token must carry the operands as well.
    """
    _check_kept(
        start,
        start.results[1],
        [operand for operand in (start.a, start.b) if isinstance(operand.type, TileType)],
        set(),
    )


def _check_kept(start: Operation, token: Value, read: list[Value], seen: set[Value]) -> None:
    """Check the users of a matmul's token; ``read`` are the matmul's operands in registers."""
    if not read or token in seen:
        return
    seen.add(token)
    for user in token.uses:
        if isinstance(user, Wait) and all(operand in user.held for operand in read):
            continue
        loop = user.parent.owner if user.spec.terminator and user.parent is not None else None
        if not isinstance(loop, For) or any(operand not in user.operands for operand in read):
            raise _error(
                start,
                f"reads {', '.join(map(_named, read))} in registers, which the {user.name} for it "
                "does not hold",
            )
        yielded = list(user.operands)
        for place in (loop.body.arguments[1:], loop.results):
            _check_kept(
                start,
                place[yielded.index(token)],
                [place[yielded.index(operand)] for operand in read],
                seen,
            )


def _check_use(
    flights: InFlight, value: Value, user: Operation, position: int, plans: set[str]
) -> None:
    if isinstance(user, Wait):
        _check_wait(flights, value, user)
    elif isinstance(user, DotStart) and position == 2 and flights.queue(value) == MATMULS.queue:
        if plans != {user.plan}:
            raise _error(
                user,
                f"goes on by {user.plan} with {_named(value)}, which is in flight by "
                f"{', '.join(sorted(plans))}",
            )
    elif not isinstance(user, CARRIERS) and not (user.spec.terminator and _carries(user)):
        raise _error(
            user,
            f"reads {_named(value)}, which is in flight: a simt.wait with its token makes "
            "it readable",
        )


def _carries(terminator: Operation) -> bool:
    region = terminator.parent
    return (
        region is not None
        and isinstance(region.owner, Operation)
        and isinstance(region.owner, CARRIERS)
    )


def _check_wait(flights: InFlight, value: Value, wait: Wait) -> None:
    """Check that a tile's token, or a later token of its queue, is waited for."""
    queue = flights.queue(value)
    tokens = [
        token
        for token in wait.tokens
        if isinstance(token.type, TokenType) and token.type.queue == queue
    ]
    if not tokens:
        raise _error(wait, f"waits for {_named(value)} without a token of {queue}")
    start = value.definition
    if (
        start is not None
        and start.name in _STARTS
        and all(_is_before(token.definition, start) for token in tokens)
    ):
        raise _error(wait, f"waits for {_named(value)} with tokens of earlier operations only")


def _is_before(operation: Operation | None, other: Operation) -> bool:
    """Return whether an operation precedes another operation of its region."""
    if (
        operation is None
        or operation.parent is None
        or operation.parent is not other.parent
        or operation is other
    ):
        return False
    return any(one is operation for one in _until(operation.parent, other))


def _until(region: Region, end: Operation) -> Iterator[Operation]:
    for operation in region:
        if operation is end:
            return
        yield operation


# ---- slots

#: A copy in flight: the slot, and the token of its group once that has ended.
_Copies = list[tuple[tuple[Value, object], Value | None]]


def _check_slots(region: Region, copies: _Copies) -> None:
    """Check a region in program order; update ``copies`` to the copies in flight at its end."""
    ended: dict[Value, int] = {}
    for number, operation in enumerate(region):
        for result in operation.results:
            ended[result] = number
        if isinstance(operation, _READERS):
            for operand in operation.operands:
                if any(slot == _slot(operand) for slot, _ in copies):
                    raise _error(
                        operation,
                        f"reads {_named(operand)} while a copy into it is in flight: a simt.wait "
                        "for its group comes before",
                    )
        elif isinstance(operation, CopyStart):
            copies.append((_slot(operation.slot), None))
        elif isinstance(operation, Commit) and operation.results[0].type is COPIES:
            copies[:] = [(slot, token or operation.results[0]) for slot, token in copies]
        elif isinstance(operation, Wait):
            _end_waited(operation, copies, ended)
        elif operation.regions:
            _enter(operation, copies)


def _end_waited(wait: Wait, copies: _Copies, ended: dict[Value, int]) -> None:
    """Remove copies that a wait completes.

    Groups committed before the youngest token of the wait are complete. A token from outside of the
    region is older than all groups of the region.
    """
    for token in wait.tokens:
        if token.type is COPIES:
            youngest = ended.get(token, -1)
            copies[:] = [
                (slot, group)
                for slot, group in copies
                if group is None or (ended.get(group, -1) > youngest and group is not token)
            ]


def _enter(operation: Operation, copies: _Copies) -> None:
    """Check nested regions, with the copies in flight before them.

    Their waits may be for any copies, so all of these are assumed to have completed.
    """
    waits = False
    for inner in operation.regions:
        _check_slots(inner, list(copies))
        waits = waits or any(isinstance(one, Wait) for one in inner.walk())
    if waits:
        copies.clear()


def _slot(value: Value) -> tuple[Value, object]:
    """Return a key that identifies a slot: its buffer and index if known, or else the value."""
    definition = value.definition
    while isinstance(definition, SharedView):
        value = definition.x
        definition = value.definition
    if isinstance(definition, Slot):
        index = constant_of(definition.index)
        return definition.buffer, index if index is not None else definition.index
    return value, None


def _named(value: Value) -> str:
    return f"%{value.name}" if value.name else f"a {value.type}"


def _error(operation: Operation, text: str) -> FlightError:
    return FlightError(f"{operation.name} at {operation.location}: {text}")
