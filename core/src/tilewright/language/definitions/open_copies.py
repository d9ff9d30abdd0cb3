"""Mutable copies of aggregates, while a host function runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.language.definitions.aggregate import aggregate_value
from tilewright.language.value_types.tuples import tuple as tl_tuple


class OpenCopies:
    """The copies that one call of a host function works on.

    Args:
        semantic: makes tensors of numbers that are assigned to fields of tensors.
    """

    def __init__(self, semantic: Any) -> None:
        self._semantic = semantic
        #: by identity of the original; each once, however often the arguments hold it
        self._pairs: dict[int, tuple[aggregate_value, aggregate_value]] = {}

    def of(self, value: Any) -> Any:
        """Return ``value`` with its aggregates copied, also those in fields and in tuples."""
        if isinstance(value, aggregate_value):
            known = self._pairs.get(id(value))
            return known[1] if known is not None else self._copy(value)
        if isinstance(value, tl_tuple):
            return _with_items(value, [self.of(item) for item in value.values])
        return value

    def _copy(self, original: aggregate_value) -> aggregate_value:
        copy: aggregate_value = type(original)._blank(self._semantic)
        copy._values.update({name: self.of(field) for name, field in original._values.items()})
        self._pairs[id(original)] = original, copy
        return copy

    def close(self) -> list[tuple[aggregate_value, aggregate_value]]:
        """Make the copies immutable; return (original, copy) of those with assigned fields."""
        # The fields of an aggregate are copied before it, so that they are settled here before it
        # is compared.
        for _, copy in self._pairs.values():
            copy._values.update({name: self.settled(field) for name, field in copy._values.items()})
            object.__setattr__(copy, "_frozen", True)
            object.__setattr__(copy, "_semantic", None)
        return [
            (original, copy)
            for original, copy in self._pairs.values()
            if is_changed(original, copy)
        ]

    def settled(self, value: Any) -> Any:
        """Return the value to use after the call: for an unassigned copy its original."""
        if isinstance(value, aggregate_value):
            for original, copy in self._pairs.values():
                if copy is value:
                    return copy if is_changed(original, copy) else original
        elif isinstance(value, tl_tuple):
            return _with_items(value, [self.settled(item) for item in value.values])
        return value


def is_changed(original: aggregate_value, copy: aggregate_value) -> bool:
    """Return whether a copy has a field that the original has not."""
    return any(copy._values[name] is not field for name, field in original._values.items())


def replaced(value: Any, original: aggregate_value, copy: aggregate_value) -> Any:
    """Return ``value`` with ``copy`` in the place of ``original``, or unchanged without it."""
    if value is original:
        return copy
    if isinstance(value, tl_tuple):
        return _with_items(value, [replaced(item, original, copy) for item in value.values])
    if isinstance(value, aggregate_value):
        fields = {name: replaced(field, original, copy) for name, field in value._values.items()}
        return (
            value
            if all(fields[name] is field for name, field in value._values.items())
            else type(value)._from_fields(fields)
        )
    return value


def holds_aggregate(value: Any) -> bool:
    """Return whether ``value`` is an aggregate, or a tuple with one."""
    return isinstance(value, aggregate_value) or (
        isinstance(value, tl_tuple) and any(map(holds_aggregate, value.values))
    )


def classes_of(values: Iterable[Any]) -> frozenset[type]:
    """Return the classes of all aggregates that ``values`` hold."""
    found: set[type] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, aggregate_value):
            found.add(type(value))
            pending.extend(value._values.values())
        elif isinstance(value, tl_tuple):
            pending.extend(value.values)
    return frozenset(found)


def _with_items(value: tl_tuple, items: list[Any]) -> tl_tuple:
    return (
        value
        if all(new is old for new, old in zip(items, value.values, strict=True))
        else value._with_fields(items)
    )
