"""Outputs that are read back by the adjoint, in place of computing them again.

The loaded value has zeros where the store was masked off. So it replaces the stored value only
where nothing but that store observes those lanes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilewright.derivatives.adjoint.saved_conditions import condition_on, saved_condition
from tilewright.derivatives.analysis.memory_effects import MemoryEffects
from tilewright.derivatives.cotangent_types import is_float
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast, Select
from tilewright.ir.ops.memory import DescriptorStore, Store
from tilewright.ir.ops.shape import Reshape
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, element_type, shape_of
from tilewright.passes.clone import clone_operation
from tilewright.passes.rewriter import constant_of


def read_saved(
    function: Function, memory: MemoryEffects, saved: Collection[Value]
) -> dict[Value, Value]:
    """Load what the kernel stored to its saved outputs, where it was computed.

    Returns:
        values of the function -> the loaded values.
    """
    found: dict[Value, Value] = {}
    for output in saved:
        writes = memory.written.get(output, [])
        if len(writes) == 1 and writes[0].parent is function.body:
            (write,) = writes
            if isinstance(write, Store | DescriptorStore):
                _read(function.body, write, found)
    return found


def _read(region: Region, store: Store | DescriptorStore, found: dict[Value, Value]) -> None:
    """Load the value of a store, and that of which it is a cast or a reshape."""
    value = store.value
    values = [value]
    while (
        isinstance(value.definition, Cast | Reshape)
        and is_float(value.definition.x)
        and value.definition.parent is region
        and list(value.uses) == [store if value is store.value else values[-2].definition]
    ):
        value = value.definition.x
        values.append(value)
    origin = value.definition
    if origin is None or origin.parent is not region or not _is_observed_as_stored(store, values):
        return
    condition = saved_condition(origin)
    place = origin if condition is None else condition
    b, mapping = Builder.at(place), dict[Value, Value]()
    before = set(_operations_before(place))
    needed = [value for value in store.operands if value is not store.value]
    if not all(_is_copyable(value, before) for value in needed):
        return
    loaded: Value
    if isinstance(store, Store):
        mask = None if store.mask is None else _copied(store.mask, b, mapping, before)
        loaded = b.load(_copied(store.pointer, b, mapping, before), mask=mask)
    else:
        offsets = [_copied(offset, b, mapping, before) for offset in store.offsets]
        descriptor = _copied(store.descriptor, b, mapping, before)
        loaded = b.descriptor_load(descriptor, offsets=offsets)
    for value in values:
        if shape_of(value.type) != shape_of(loaded.type):
            type_ = TileType(shape_of(value.type), element_type(loaded.type))
            loaded = b.reshape(loaded, result=type_)
        found[value] = loaded if loaded.type is value.type else b.cast(loaded, result=value.type)
    if condition is not None:
        result = found[origin.results[0]]
        found[condition.result] = condition_on(b, result, condition.predicate)


def _is_observed_as_stored(store: Store | DescriptorStore, values: list[Value]) -> bool:
    """Return whether masked-off lanes of a stored value have no effect on what is stored.

    Args:
        values: the stored value, and those that it is made of, each by the one before.
    """
    if isinstance(store, Store) and store.mask is None:
        return True
    readers = {store, *(value.definition for value in values[:-1])}
    mask = store.mask if isinstance(store, Store) else None
    pending, seen = list(values), set(values)
    while pending:
        for user in pending.pop().uses:
            if user in readers or _is_under(mask, user):
                continue
            if not user.spec.elementwise or mask is None:
                return False
            pending += [result for result in user.results if result not in seen]
            seen.update(user.results)
    return True


def _is_under(mask: Value | None, user: Operation) -> bool:
    """Return whether an operation observes the lanes of a mask alone."""
    if mask is None:
        return False
    if isinstance(user, Store):
        return user.mask is mask
    return isinstance(user, Select) and user.condition is mask and constant_of(user.b) is not None


def _operations_before(operation: Operation) -> Iterator[Operation]:
    before = operation.previous
    while before is not None:
        yield before
        before = before.previous


def _is_copyable(value: Value, before: set[Operation]) -> bool:
    """Return whether a value is known, or can be computed, before an operation of its region."""
    operation = value.definition
    if operation is None or operation in before:
        return True
    return (
        not operation.regions
        and operation.spec.effects is Effect.NONE
        and all(_is_copyable(operand, before) for operand in operation.operands)
    )


def _copied(value: Value, b: Builder, mapping: dict[Value, Value], before: set[Operation]) -> Value:
    """Append a copy of what a value is computed from, as far as it is not there before."""
    operation = value.definition
    if operation is None or operation in before:
        return value
    if value not in mapping:
        for operand in operation.operands:
            mapping[operand] = _copied(operand, b, mapping, before)
        b.insert(clone_operation(operation, mapping))
    return mapping[value]
