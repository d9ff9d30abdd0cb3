"""Dead code elimination: pure operations with unused results, and dead loop-carried values."""

from __future__ import annotations

from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.control import Condition, For, If, Return, While
from tilewright.ir.table import Effect
from tilewright.passes.effects import effects_of


def dce(module: Module) -> bool:
    """Remove dead operations and dead loop-carried values; return whether anything changed."""
    changed = False
    for function in module.functions.values():
        changed |= dce_function(function)
    return changed


def dce_function(function: Function) -> bool:
    """Remove dead operations and values of one function; return whether anything changed."""
    return _sweep(function.body, _Liveness(function))


class _Liveness:
    """Live operations and values, found backwards from effects and the function's results.

    Each operation and value is visited once.
    """

    __slots__ = ("_pending", "operations", "values")

    def __init__(self, function: Function) -> None:
        self.operations: set[Operation] = set()
        self.values: set[Value] = set()
        self._pending: list[Value] = []
        self._roots(function.body)
        pending = self._pending
        while pending:
            self._value(pending.pop())

    def _roots(self, region: Region) -> None:
        for operation in region:
            spec = operation.spec
            if isinstance(operation, Return):
                self._needed(operation)
                self._read(operation.operands)
            elif spec.effects is not Effect.NONE and not spec.terminator:
                if Effect.REGION in spec.effects:
                    for inner in operation.regions:
                        self._roots(inner)
                elif effects_of(operation) & ~Effect.READ is not Effect.NONE:
                    self._needed(operation)

    def _read(self, values: list[Value]) -> None:
        known, pending = self.values, self._pending
        for value in values:
            if value not in known:
                known.add(value)
                pending.append(value)

    def _needed(self, operation: Operation) -> None:
        """Mark an operation and the operations around it as live."""
        current: Operation | None = operation
        while current is not None and current not in self.operations:
            self.operations.add(current)
            if isinstance(current, For):
                self._read([current.lower, current.upper, current.step])
            elif isinstance(current, If):
                self._read([current.condition])
            elif isinstance(current, While):
                self._read([_condition(current).condition])
            else:
                self._read(current.operands)
                for region in current.regions:  # reduce, scan, map: the whole region is live
                    if region.last is not None:
                        self._read(region.last.operands)
            region_ = current.parent
            current = (
                region_.owner
                if region_ is not None and isinstance(region_.owner, Operation)
                else None
            )

    def _value(self, value: Value) -> None:
        owner = value.owner
        if isinstance(owner, Operation):
            self._needed(owner)
            if isinstance(owner, _CARRIERS):
                self._carried(owner, value, owner)
        elif isinstance(owner.owner, Operation):
            self._needed(owner.owner)
            if isinstance(owner.owner, _CARRIERS):
                self._carried(owner.owner, value, owner)

    def _carried(
        self, operation: For | If | While, value: Value, owner: Operation | Region
    ) -> None:
        """Mark the values that flow into a result or block argument of control flow as live."""
        index = value.index
        if isinstance(operation, If):
            self._read([_last(region).operands[index] for region in operation.regions])
        elif isinstance(operation, For):
            body = operation.body
            if owner is body:
                index -= 1
            if index >= 0:
                self._read(
                    [operation.inits[index], _last(body).operands[index], body.arguments[1 + index]]
                )
        else:
            before, after = operation.before, operation.after
            if owner is before:
                self._read([operation.inits[index], _last(after).operands[index]])
            else:  # a result, or the argument of region after
                self._read([_condition(operation).values[index]])


_CARRIERS = (If, For, While)


def _last(region: Region) -> Operation:
    assert region.last is not None
    return region.last


def _condition(loop: While) -> Condition:
    condition = loop.before.last
    assert isinstance(condition, Condition)
    return condition


def _sweep(region: Region, liveness: _Liveness) -> bool:
    """Erase dead operations, last first, so that users go before definitions."""
    changed = False
    operation = region.last
    while operation is not None:
        previous = operation.previous
        if not operation.spec.terminator and operation not in liveness.operations:
            operation.erase()
            changed = True
        elif operation.regions:
            if isinstance(operation, _CARRIERS):
                changed |= _drop_dead_carried(operation, liveness.values)
            for inner in operation.regions:
                changed |= _sweep(inner, liveness)
        operation = previous
    return changed


def _drop_dead_carried(operation: For | If | While, live: set[Value]) -> bool:
    """Remove dead loop-carried values and results of an operation."""
    if isinstance(operation, If):
        kept = [index for index, value in enumerate(operation.results) if value in live]
        if len(kept) == len(operation.results):
            return False
        for region in operation.regions:
            _keep_operands(_last(region), kept)
        operation.results[:] = [operation.results[index] for index in kept]
        return True
    if isinstance(operation, For):
        body, inits = operation.body, operation.inits
        kept = [
            index
            for index, value in enumerate(operation.results)
            if value in live or body.arguments[1 + index] in live
        ]
        if len(kept) == len(operation.results):
            return False
        _keep_operands(_last(body), kept)
        body.arguments[:] = [body.arguments[0], *(body.arguments[1 + index] for index in kept)]
        operation.results[:] = [operation.results[index] for index in kept]
        operation.replace_operands(
            [operation.lower, operation.upper, operation.step, *(inits[index] for index in kept)],
            (1, 1, 1, len(kept)),
        )
        return True
    before, after, inits = operation.before, operation.after, operation.inits
    carried = [index for index, value in enumerate(before.arguments) if value in live]
    forwarded = [
        index
        for index, value in enumerate(operation.results)
        if value in live or after.arguments[index] in live
    ]
    if len(carried) == len(before.arguments) and len(forwarded) == len(operation.results):
        return False
    condition = _condition(operation)
    values = condition.values
    condition.replace_operands(
        [condition.condition, *(values[index] for index in forwarded)], (1, len(forwarded))
    )
    after.arguments[:] = [after.arguments[index] for index in forwarded]
    operation.results[:] = [operation.results[index] for index in forwarded]
    _keep_operands(_last(after), carried)
    before.arguments[:] = [before.arguments[index] for index in carried]
    operation.replace_operands([inits[index] for index in carried], (len(carried),))
    return True


def _keep_operands(terminator: Operation, kept: list[int]) -> None:
    terminator.replace_operands([terminator.operands[index] for index in kept], (len(kept),))
