"""Asynchronous groups in flight: counts for ``wait_group`` instructions from waits for tokens.

The groups of one thread and queue complete in order. A wait for a token therefore waits until at
most as many groups are in flight as were committed after the token's own group: the minimum over
all paths.

Targets whose waits count single copies instead of groups get a lower bound of the copies issued
after the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import If
from tilewright.simt.dialect.loop_carried import CARRIERS, Carried, carried_values
from tilewright.simt.dialect.ops.async_copy import Commit, CopyStart, Wait
from tilewright.simt.dialect.types import COPIES, MATMULS, TokenType

#: Ages of the known tokens: the number of groups of their queue committed after their own (or
#: copies issued, if waits count those).
_Ages = dict[Value, int]


class Tokens:
    """Tokens of one function.

    Args:
        copies: minimum number of copies per thread that a ``simt.copy_start`` issues, if waits
            count copies; None if they count groups.
    """

    def __init__(
        self, function: Function, copies: Callable[[CopyStart], int] | None = None
    ) -> None:
        self._copies = copies
        self._pending: dict[Operation, dict[str, int]] = {}
        self._region(function.body, {})

    def pending(self, wait: Operation) -> list[tuple[str, int]]:
        """Return (queue, groups or copies that may stay in flight) per queue of a ``simt.wait``."""
        return list(self._pending.get(wait, {}).items())

    def _region(self, region: Region, ages: _Ages) -> None:
        """Visit a region; update ``ages`` to the ages at its end."""
        for operation in region:
            if isinstance(operation, Wait):
                self._wait(operation, ages)
            elif isinstance(operation, CARRIERS):
                self._structured(operation, ages)
            elif operation.regions:
                for inner in operation.regions:
                    self._region(inner, dict(ages))
            else:
                self._start(operation, ages)

    def _wait(self, operation: Wait, ages: _Ages) -> None:
        found = self._pending.setdefault(operation, {})
        for token in operation.tokens:
            queue = _queue(token)
            assert queue is not None
            found[queue] = min(found.get(queue, ages.get(token, 0)), ages.get(token, 0))

    def _start(self, operation: Operation, ages: _Ages) -> None:
        if self._copies is not None and isinstance(operation, CopyStart):
            _follow(ages, COPIES.queue, self._copies(operation))
        for result in operation.results:
            queue = _queue(result)
            if queue is not None:
                # each matmul is a group of its own: a commit of matmuls closes no group, and its
                # token stands for nothing
                if (not isinstance(operation, Commit) or queue != MATMULS.queue) and (
                    self._copies is None or queue != COPIES.queue
                ):
                    _follow(ages, queue, 1)
                ages[result] = 0

    def _structured(self, operation: Operation, ages: _Ages) -> None:
        carried = [one for one in carried_values(operation) if _queue(one.values[0]) is not None]
        if isinstance(operation, If):
            branches = [dict(ages) for _ in operation.regions]
            for region, branch in zip(operation.regions, branches, strict=True):
                self._region(region, branch)
            # in the order of the branches, as the sources are
            results = [
                (
                    one,
                    [
                        branch.get(token, 0)
                        for token, branch in zip(one.incoming(), branches, strict=True)
                    ],
                )
                for one in carried
            ]
            after = {token: min(branch[token] for branch in branches) for token in ages}
        else:
            results, after = self._loop(operation, carried, ages)
        ages.clear()
        ages.update(after)
        for one, arriving in results:
            _set(ages, one.values, arriving)

    def _loop(
        self, operation: Operation, carried: list[Carried], ages: _Ages
    ) -> tuple[list[tuple[Carried, list[int]]], _Ages]:
        """Iterate until the ages at the loop's entry reach a fixed point.

        Return the loop-carried tokens with the ages at the loop's exit, and the ages of all other
        tokens: as before the loop, which may run zero times.
        """
        arriving: dict[Carried, list[int]] = {one: [] for one in carried}
        while True:
            state = dict(ages)
            for one in carried:
                # in the first iteration, only tokens from outside are known
                _set(
                    state,
                    one.values,
                    arriving[one] or [ages[token] for token in one.incoming() if token in ages],
                )
            at_end: dict[Region, _Ages] = {}
            for region in operation.regions:
                self._region(region, state)
                at_end[region] = dict(state)
                for one in carried:
                    # the values of a condition enter the next region, or leave the loop
                    if region is not operation.regions[-1] and one.sources[0][0].parent is region:
                        _set(state, one.values, [state.get(one.incoming()[0], 0)])
            ended = {
                one: [_of_source(source, ages, at_end) for source in one.sources] for one in carried
            }
            if ended == arriving:
                return list(ended.items()), dict(ages)
            arriving = ended


def _of_source(source: tuple[Operation, int], ages: _Ages, at_end: Mapping[Region, _Ages]) -> int:
    """Return the age of an incoming token: before the loop, or at the end of one of its regions.

    An unknown token has age 0, so that a wait for it waits for all groups.
    """
    operation, position = source
    assert operation.parent is not None
    return at_end.get(operation.parent, ages).get(operation.operands[position], 0)


def _follow(ages: _Ages, queue: str, count: int) -> None:
    """Record ``count`` more groups of a queue."""
    for token in ages:
        if _queue(token) == queue:
            ages[token] += count


def _set(ages: _Ages, values: Iterable[Value], arriving: Sequence[int]) -> None:
    """Set the age of carried tokens to the minimum of the incoming ages, if any is known."""
    for value in values if arriving else ():
        ages[value] = min(arriving)


def _queue(value: Value) -> str | None:
    return value.type.queue if isinstance(value.type, TokenType) else None
