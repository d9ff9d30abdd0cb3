"""The combination of a reduction or scan at whole tiles, and its partial derivatives there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.derivatives.partials import PARTIALS, times
from tilewright.derivatives.refusals import REWRITE, refusal
from tilewright.derivatives.rule_calls import VJP, required_rule, result_positions
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast, Constant
from tilewright.ir.ops.control import Call, Reduce, Scan
from tilewright.ir.types import Type, element_type, shape_of, tile_or_scalar


def combination_of(operation: Reduce | Scan) -> str:
    """Return the name of the one operation that combines; empty where there are others."""
    first, last = operation.combine.first, operation.combine.last
    assert first is not None
    assert last is not None
    is_plain = (
        first.next is last
        and set(first.operands) == set(operation.combine.arguments)
        and last.operands == first.results
    )
    return first.name if is_plain else ""


class Combination:
    """The combination of a reduction or scan, for operands in the types of cotangents.

    Attributes:
        results: the combined values.
    """

    def __init__(
        self,
        b: Builder,
        operation: Reduce | Scan,
        left: Sequence[Value],
        right: Sequence[Value],
        functions: Mapping[str, Function],
    ) -> None:
        """Append the combination.

        Args:
            left, right: the arguments, a scalar or tile for each input.
            functions: those that have a derivative of their own, and their rules.

        Raises:
            DerivativeError: it holds control flow, or reads values from outside.
        """
        self._b, self._region, self._functions = b, operation.combine, functions
        self._shape = shape_of(left[0].type)
        arguments = operation.combine.arguments
        self._values = dict(zip(arguments, (*left, *right), strict=True))
        assert operation.combine.last is not None
        self._yields = operation.combine.last.operands
        for inner in operation.combine:
            if not inner.spec.terminator:
                self._append(inner, self._values)
        self.results = [_known(operation, value, self._values) for value in self._yields]

    def _type(self, element: Type) -> Type:
        return cotangent_type(tile_or_scalar(self._shape, element))

    def _append(self, operation: Operation, values: dict[Value, Value]) -> None:
        """Append an operation on elements, for all elements.

        Args:
            values: values of the operation's region -> the same for all elements.
        """
        if operation.regions:
            raise refusal(operation, "control flow in a combination has no derivative", REWRITE)
        if isinstance(operation, Constant):
            type_ = self._type(operation.result.type)
            values[operation.result] = self._b.constant_like(type_, operation.value)
            return
        operands = [_known(operation, value, values) for value in operation.operands]
        if isinstance(operation, Call):
            found = self._applied(self._functions[operation.callee], operands)
            values.update(zip(operation.results, found, strict=True))
            return
        copy = Operation(
            operation.spec,
            operands,
            operation.segments,
            operation.attributes,
            [self._type(result.type) for result in operation.results],
            (),
            operation.location,
        )
        values.update(zip(operation.results, self._b.insert(copy).results, strict=True))

    def _applied(self, function: Function, arguments: Sequence[Value]) -> list[Value]:
        """Append the body of a function of elements, for all elements; return its results."""
        values = dict(zip(function.arguments, arguments, strict=True))
        for operation in function.body:
            if not operation.spec.terminator:
                self._append(operation, values)
        assert function.body.last is not None
        return [values[value] for value in function.body.last.operands]

    def slopes(self) -> list[list[Value | None]]:
        """Append the derivatives of each result by each argument; None where one is zero."""
        return [self._slopes_of(value) for value in self._yields]

    def _slopes_of(self, result: Value) -> list[Value | None]:
        if not is_float(result):
            return [None] * len(self._region.arguments)
        b = self._b
        cotangents = {result: b.constant_like(self._values[result].type, 1.0)}

        def add(value: Value, part: Value) -> None:
            known = cotangents.get(value)
            cotangents[value] = part if known is None else b.add(known, part)

        for operation in reversed(list(self._region)):
            if operation.spec.terminator or not operation.operands:
                continue
            dys = [cotangents.pop(result, None) for result in operation.results]
            dy = dys[0]
            if isinstance(operation, Call) and any(dys):
                for value, part in self._by_rule(operation, dys):
                    add(value, part)
                continue
            if dy is None:
                continue
            if isinstance(operation, Cast):
                if is_float(operation.x):
                    wanted = self._values[operation.x].type
                    add(operation.x, dy if dy.type is wanted else b.cast(dy, result=wanted))
                continue
            row = PARTIALS.get(operation.name)
            if row is None:
                raise refusal(operation, "has no derivative in a combination", REWRITE)
            operands = [self._values[value] for value in operation.operands]
            factors = row.factors(b, operands, self._values[operation.result], operation)
            for operand, factor in zip(operation.operands, factors, strict=True):
                if factor is not None and is_float(operand):
                    add(operand, factor.times(b, dy))
        return [cotangents.get(value) for value in self._region.arguments]

    def _by_rule(self, call: Call, dys: Sequence[Value | None]) -> list[tuple[Value, Value]]:
        """Append the rule of a call, for all elements; return the cotangents of its operands."""
        rule = required_rule(call, VJP, self._functions)
        operands = [self._values[value] for value in (*call.arguments, *call.results)]
        for result, dy in zip(call.results, dys, strict=True):
            if is_float(result):
                operands.append(dy or self._b.constant_like(self._values[result].type, 0.0))
        found = self._applied(rule, operands)
        return [
            (call.arguments[place], value)
            for place, value in zip(result_positions(rule), found, strict=True)
        ]


def _known(operation: Operation, value: Value, values: Mapping[Value, Value]) -> Value:
    found = values.get(value)
    if found is None:
        raise refusal(
            operation,
            "its combination reads a value from outside of it",
            "pass the value as one more tile",
        )
    return found


def scan_by(
    b: Builder,
    operation: Reduce | Scan,
    inputs: Sequence[Value],
    axis: int,
    functions: Mapping[str, Function],
    *,
    reverse: bool,
) -> list[Value]:
    """Append the combinations of all elements before each, or after each, with itself.

    The left argument of each combination has the lower index, also where ``reverse`` is set.
    """
    elements = [element_type(value.type) for value in inputs]
    region = Region(elements * 2)
    earlier, later = region.arguments[: len(inputs)], region.arguments[len(inputs) :]
    left, right = (later, earlier) if reverse else (earlier, later)
    with b.at_region(region):
        b.yield_(Combination(b, operation, left, right, functions).results)
    return b.region_op("scan", list(inputs), regions=[region], axis=axis, reverse=reverse).results


def edge_slope(
    b: Builder, slope: Value | None, is_edge: Value, is_own: bool, like: Value
) -> Value | None:
    """Return a slope that is the identity's at the edge, where nothing is combined.

    Args:
        is_own: whether the result and the argument are of one input.
        like: a tile of the slope's type.
    """
    if slope is None and not is_own:
        return None
    zero = b.constant_like(like.type, 0.0)
    at_edge = b.constant_like(like.type, 1.0) if is_own else zero
    found: Value = b.select(is_edge, at_edge, zero if slope is None else slope)
    return found


def total(
    b: Builder,
    cotangents: Mapping[int, Value],
    slopes: Mapping[int, Value | None],
    *,
    strict: bool,
) -> Value | None:
    """Return the sum of cotangents times slopes; None where it is zero.

    Args:
        strict: whether a cotangent of zero stays zero, whatever the slope.
    """
    found: Value | None = None
    for k, cotangent in cotangents.items():
        slope = slopes[k]
        if slope is not None:
            part = times(slope).times(b, cotangent, strict=strict)
            found = part if found is None else b.add(found, part)
    return found
