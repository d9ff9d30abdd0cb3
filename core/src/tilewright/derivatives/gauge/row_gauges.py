"""Maxima of rows that nothing stored depends on: a softmax subtracts one, any number would do.

Where the normalized row was stored, the gauge in which its sum is 1 has the stored numbers as
exponentials: nothing of the forward pass is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tilewright.derivatives.gauge.gauge_weights import (
    LOGARITHMS,
    GaugeWeights,
    NoGaugeError,
    Weight,
    combination_of,
)
from tilewright.derivatives.gauge.stored_normalizers import copies, implies
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Cast, Div, Select
from tilewright.ir.ops.control import Reduce
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import FloatType, element_type, shape_of
from tilewright.passes.rewriter import constant_of


@dataclass(slots=True)
class RowGauges:
    """Facts of a kernel's row maxima, as those of :class:`.fix_gauges.FixedGauges`.

    Attributes:
        remarks: (the reduction, whether its gauge is fixed, how or why not).
    """

    constants: set[Value] = field(default_factory=set)
    values: dict[Value, Value] = field(default_factory=dict)
    undefined: set[Value] = field(default_factory=set)
    remarks: list[tuple[Operation, bool, str]] = field(default_factory=list)


def fix_row_gauges(
    module: Module, stores: Sequence[Store], replaced: Collection[Operation]
) -> RowGauges:
    """Find the row maxima that are gauges, and load normalized rows that were stored.

    Args:
        stores: what may be loaded.
        replaced: loops that nothing reads the sums of any more.
    """
    found = RowGauges()
    for operation in list(module.kernel.walk()):
        if isinstance(operation, Reduce) and not any(
            outer in replaced for outer in operation.ancestors()
        ):
            _fix_row(operation, stores, found)
    return found


def _fix_row(maximum: Reduce, stores: Sequence[Store], found: RowGauges) -> None:
    if len(maximum.results) != 1 or combination_of(maximum) != "max":
        return
    reason = ""
    for base in LOGARITHMS:
        if not _is_subtracted(maximum.result, base):
            continue
        weights = GaugeWeights(base, maximum.result.name)
        axes = tuple(range(len(shape_of(maximum.result.type))))
        weights.set(maximum.result, Weight(0, 1, axes))
        try:
            weights.follow_to_end(maximum.next)
        except NoGaugeError as error:
            reason = reason or error.reason
            continue
        found.constants.add(maximum.result)
        is_loaded = any(_load_row(maximum, store, weights, found) for store in stores)
        text = "a constant; the stored row is loaded" if is_loaded else "a constant"
        found.remarks.append((maximum, True, text))
        return
    if reason:
        found.remarks.append((maximum, False, reason))


def _is_subtracted(maximum: Value, base: str) -> bool:
    """Return whether a maximum is subtracted from what is exponentiated."""
    pending, seen = [maximum], {maximum}
    while pending:
        value = pending.pop()
        for user in value.uses:
            if isinstance(user, Moved | Cast):
                found = [result for result in user.results if result not in seen]
                seen.update(found)
                pending.extend(found)
            elif user.name == "sub" and any(reader.name == base for reader in user.result.uses):
                return True
    return False


def _load_row(maximum: Reduce, store: Store, weights: GaugeWeights, found: RowGauges) -> bool:
    """Replace the exponentials by a stored quotient, where one was stored of this row."""
    stored, quotient = store.value, store.value
    while isinstance(quotient.definition, Cast) and _is_float(quotient.definition.x):
        quotient = quotient.definition.x
    division = quotient.definition
    if not isinstance(division, Div) or division.parent is not maximum.parent:
        return False
    exponential, divisor = division.a, division.b
    while isinstance(divisor.definition, Moved) and len(divisor.definition.results) == 1:
        divisor = divisor.definition.x
    scales = [weights.of.get(value) for value in (exponential, divisor)]
    if any(scale is None or (scale.scale, scale.shift) != (-1, 0) for scale in scales):
        return False
    origins = [value.definition for value in (exponential, divisor)]
    if any(origin is None or origin.parent is not maximum.parent for origin in origins):
        return False
    if store.mask is not None and not _is_zero_outside(exponential, store.mask):
        return False
    origin = origins[0]
    assert origin is not None
    b = Builder.at(origin)
    copied = copies([store.pointer, *([store.mask] if store.mask is not None else [])], b)
    if copied is None:
        return False
    pointer, *mask = copied
    loaded = b.load(pointer, mask=mask[0] if mask else None)
    same = loaded.type is exponential.type
    row = loaded if same else b.cast(loaded, result=exponential.type)
    found.values.update({stored: loaded, exponential: row, quotient: row})
    found.values[divisor] = b.constant_like(divisor.type, 1.0)
    found.undefined.add(maximum.result)
    return True


def _is_float(value: Value) -> bool:
    return isinstance(element_type(value.type), FloatType)


def _is_zero_outside(exponential: Value, mask: Value) -> bool:
    """Return whether an exponential is zero where a mask does not hold."""
    operation = exponential.definition
    if operation is None or operation.name not in LOGARITHMS:
        return False
    value = operation.operands[0]
    while True:  # here: minus infinity
        operation = value.definition
        match operation:
            case Cast():
                value = operation.x
            case Select():
                return constant_of(operation.b) == -float("inf") and implies(
                    operation.condition, mask
                )
            case Load():
                return (
                    operation.mask is not None
                    and operation.other is not None
                    and constant_of(operation.other) == -float("inf")
                    and implies(operation.mask, mask)
                )
            case Operation(name="sub"):
                value = operation.operands[0]
            case Operation(name="mul"):
                value, factor = operation.operands
                number = constant_of(factor)
                if not isinstance(number, float) or number <= 0:
                    return False
            case _:
                return False


__all__ = ["RowGauges", "fix_row_gauges"]
