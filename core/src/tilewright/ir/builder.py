"""Making operations: one method an operation of the table.

    b = Builder.at_end(function.body)
    x = b.add(a, c)                                   # operands by position or name
    m = b.cmp(x, n, predicate="lt")                   # attributes by name
    v = b.load(p, mask=m)                             # optional operands by name; None is absent
    d = b.make_descriptor(p, shape=[m, n], strides=[s, t], result=DescriptorType(...))
    y = b.cast(x, result=F32)  # explicit_results in the table: ``result=`` or ``results=``

A method returns the result, a tuple of results, or None. Types are checked by the op's rule as
it is built. Operations with regions are made with :meth:`Builder.region_op`, region first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.ir.core import Location, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Kind, OpSpec, RuleError, Shape
from tilewright.ir.types import I1, FloatType, IntType, TileType, Type


class Builder:
    """Appends operations at a point: the end of a region, or before an operation.

    ``location`` is given to each.
    """

    __slots__ = ("before", "location", "region")

    def __init__(
        self,
        region: Region | None = None,
        before: Operation | None = None,
        location: Location | None = None,
    ) -> None:
        self.region = region
        self.before = before
        self.location = location

    @classmethod
    def at_end(cls, region: Region, location: Location | None = None) -> Builder:
        return cls(region, None, location)

    @classmethod
    def at(cls, operation: Operation) -> Builder:
        """Insert before ``operation``, with its location."""
        return cls(operation.parent, operation, operation.location)

    @contextlib.contextmanager
    def at_region(self, region: Region) -> Iterator[Region]:
        """Append to ``region`` for the length of a ``with`` block."""
        saved = self.region, self.before
        self.region, self.before = region, None
        try:
            yield region
        finally:
            self.region, self.before = saved

    def insert(self, operation: Operation) -> Operation:
        """Put an operation in at the current point."""
        assert self.region is not None
        if self.before is not None:
            self.region.insert_before(operation, self.before)
        else:
            self.region.append(operation)
        return operation

    def create(
        self,
        spec: OpSpec,
        groups: Sequence[Sequence[Value]],
        attributes: Mapping[str, Any],
        results: Sequence[Type] = (),
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Make and insert an operation from its operand groups.

        Raises:
            RuleError: the operand types or attributes break the op's rule.
        """
        types = infer_types(
            spec, [[value.type for value in group] for group in groups], attributes, results
        )
        operands = [value for group in groups for value in group]
        segments = tuple([len(group) for group in groups])
        kept = (
            {
                name: value
                for name, value in attributes.items()
                if "." in name or value != spec.attribute(name).default
            }
            if attributes
            else attributes
        )
        return self.insert(Operation(spec, operands, segments, kept, types, regions, self.location))

    def region_op(
        self,
        name: str,
        *operands: Value | Sequence[Value] | None,
        regions: Sequence[Region],
        results: Sequence[Type] = (),
        **attributes: Any,
    ) -> Operation:
        """Make an operation with regions; operands by group, in the table's order."""
        spec = TABLE[name]
        return self.create(
            spec, [_as_group(operand) for operand in operands], attributes, results, regions
        )

    def constant_like(self, type_: Type, value: float | bool) -> Value:
        """A constant of a scalar type, or a splat of one over a tile type."""
        element = type_.element if isinstance(type_, TileType) else type_
        if element is I1:
            value = bool(value)
        elif isinstance(element, IntType):
            value = int(value)
        elif isinstance(element, FloatType):
            value = float(value)
        scalar: Value = self.constant(value=value, result=element)
        return self.splat(scalar, result=type_) if isinstance(type_, TileType) else scalar

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        spec = _BY_PYTHON_NAME.get(name)
        if spec is None:
            raise AttributeError(f"no operation {name!r} in the op table")
        method = _make_method(spec)
        setattr(Builder, name, method)
        bound: Callable[..., Any] = method.__get__(self, Builder)
        return bound


def _as_group(operand: Value | Sequence[Value] | None) -> Sequence[Value]:
    if operand is None:
        return ()
    return (operand,) if isinstance(operand, Value) else operand


def infer_types(
    spec: OpSpec,
    groups: Sequence[Sequence[Type]],
    attributes: Mapping[str, Any],
    results: Sequence[Type] = (),
) -> Sequence[Type]:
    """The result types by the op's rule, after checking operand counts and attribute kinds.

    A rule is a function of what it is given. Its answers are kept for operations without attributes
    and with those that take few values.

    Raises:
        RuleError: naming the operation and the rule that is broken.
    """
    key: tuple[object, ...] | None = None
    if not attributes or all(type(value) in _FEW_VALUES for value in attributes.values()):
        key = (tuple([tuple(group) for group in groups]), tuple(attributes.items()), tuple(results))
        known = spec.inferred.get(key)
        if known is not None:
            return known
    found = _infer_types(spec, groups, attributes, results)
    if key is not None:
        if len(spec.inferred) >= _MOST_INFERRED:
            spec.inferred.clear()
        found = spec.inferred[key] = tuple(found)
    return found


#: The types of attributes that take few values. True is no 1, though the two are equal as keys,
#: since numbers are not among them.
_FEW_VALUES = frozenset({str, bool})
#: The answers of one rule that are kept.
_MOST_INFERRED = 1024


def _infer_types(
    spec: OpSpec,
    groups: Sequence[Sequence[Type]],
    attributes: Mapping[str, Any],
    results: Sequence[Type],
) -> Sequence[Type]:
    try:
        if len(groups) != len(spec.operands):
            raise RuleError(f"takes {len(spec.operands)} operand groups, not {len(groups)}")
        by_name: dict[str, Sequence[Type]] = {}
        for declared, group in zip(spec.operands, groups, strict=True):
            if (declared.kind is Kind.SINGLE and len(group) != 1) or (
                declared.kind is Kind.OPTIONAL and len(group) > 1
            ):
                raise RuleError(f"operand {declared.name} is one value, not {len(group)}")
            by_name[declared.name] = group
        complete = complete_attributes(spec, attributes)
        return spec.rule(Shape(spec, by_name, complete, results))
    except RuleError as error:
        raise RuleError(f"{spec.name}: {error}") from None


def complete_attributes(spec: OpSpec, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes with defaults filled in.

    Raises:
        RuleError: an attribute is unknown, missing or of the wrong kind.
    """
    for name, value in attributes.items():
        if "." in name:
            continue
        if not spec.has_attribute(name):
            raise RuleError(f"has no attribute {name!r}")
        declared = spec.attribute(name)
        if not declared.accepts(value):
            wanted = (
                f"one of {', '.join(map(repr, declared.choices))}"
                if declared.choices
                else declared.kind
            )
            raise RuleError(f"attribute {name} must be {wanted}, not {value!r}")
    complete = {}
    for declared in spec.attributes:
        if declared.name in attributes:
            complete[declared.name] = attributes[declared.name]
        elif declared.required:
            raise RuleError(f"attribute {declared.name} is missing")
        else:
            complete[declared.name] = declared.default
    return complete


def _make_method(spec: OpSpec) -> Callable[..., Any]:
    """The builder's method for an operation without regions."""
    names = [operand.name for operand in spec.operands]

    def method(
        self: Builder,
        *operands: Any,
        result: Type | None = None,
        results: Sequence[Type] = (),
        **named: Any,
    ) -> Any:
        if len(operands) > len(names):
            raise TypeError(f"{spec.name} takes at most {len(names)} operands, not {len(operands)}")
        groups = [_as_group(operand) for operand in operands]
        groups.extend(_as_group(named.pop(name, None)) for name in names[len(operands) :])
        operation = self.create(spec, groups, named, (result,) if result is not None else results)
        if len(operation.results) == 1:
            return operation.results[0]
        return tuple(operation.results) or None

    method.__name__ = spec.python_name
    method.__doc__ = f"{spec.name}: {spec.summary}."
    return method


_BY_PYTHON_NAME = {spec.python_name: spec for spec in TABLE}

__all__ = ["Builder", "complete_attributes", "infer_types"]
