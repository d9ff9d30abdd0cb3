"""Matmuls that accumulate into what spreads to all lanes, which is subtracted afterwards instead.

The adjoint adds the cotangent of a row's sum to that of the row's elements, a matmul, and standard
passes let the matmul accumulate. But one value of many lanes takes as many operations to put into
an accumulator as to subtract from it, takes registers while the matmul runs, and the matmul waits
for it where it is loaded.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Broadcast, ExpandDims


def release_accumulators(module: Module) -> bool:
    """Replace ``dot(a, b, broadcast(x))`` by ``dot(a, b, 0) - broadcast(-x)``.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.walk()):
        if not isinstance(operation, Dot) or not isinstance(operation.c.definition, Broadcast):
            continue
        spread = operation.c
        b = Builder.at(operation)
        operation.set_operand(2, b.constant_like(spread.type, 0.0))
        readers = list(operation.result.uses)
        b = Builder(operation.parent, operation.next, operation.location)
        difference = b.sub(operation.result, _negated(spread))
        difference.name, operation.result.name = operation.result.name, ""
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is operation.result:
                    reader.set_operand(position, difference)
        changed = True
    return changed


def _negated(value: Value) -> Value:
    """Append the negative of a value, negated before it is broadcast."""
    made = value.definition
    if made is None:
        region = value.owner
        assert not isinstance(region, Operation)
        found: Value = Builder(region, region.first).neg(value)
        return found
    b = Builder(made.parent, made.next, made.location)
    if isinstance(made, Broadcast):
        found = b.broadcast(_negated(made.x), result=value.type)
    elif isinstance(made, ExpandDims):
        found = b.expand_dims(_negated(made.x), axis=made.axis)
    else:
        found = b.neg(value)
    return found


__all__ = ["release_accumulators"]
