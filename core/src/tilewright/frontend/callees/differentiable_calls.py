"""Calls of functions that have a derivative of their own, in modules made for derivation.

Such a call stays a ``call``. Beside the function the module has its rules, which are functions too.
Their arguments are the function's arguments, its results, and derivatives: ``f_vjp`` gets the
cotangents of the results and returns those of arguments, ``f_jvp`` gets the tangents of the
arguments and returns those of results. Attributes name them:

- of the function: ``vjp`` and ``jvp``, and ``varies_with``, the arguments by which it has a
  derivative;
- of a rule: ``returns``, the arguments (of ``f_jvp``: the results) whose derivatives it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright import ir
from tilewright.errors import CompilationError
from tilewright.frontend.binding import bind
from tilewright.frontend.callees.separate_functions import emit_call, separate_function
from tilewright.frontend.frame import Scope
from tilewright.frontend.values import name_values, type_of
from tilewright.language.core import base_type, constexpr, constexpr_type, tensor, tuple_type
from tilewright.language.core import tuple as tl_tuple
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.definitions.custom_derivative import (
    JVP,
    VJP,
    CustomDerivative,
    DifferentiableCall,
)
from tilewright.language.value_types.dtypes import block_type, dtype, float32

if TYPE_CHECKING:
    from tilewright.frontend.generator import ModuleGenerator


def call_custom(g: ModuleGenerator, fn: CustomDerivative, scope: Scope) -> Any:
    """Emit a call of a function of the language that has a derivative of its own.

    Raises:
        CompilationError: a rule takes another number of arguments than it gets, or returns
            derivatives of another number or shape than it should.
    """

    def body(values: list[Any]) -> Any:
        arguments = dict(zip(scope, values, strict=True))
        for name, value in arguments.items():
            name_values(value, name)
        return g.visit_separate(fn, arguments)

    rules = {kind: _visited(g, fn, kind, rule) for kind, rule in fn.rules.items()}
    return differentiable_call(
        g, DifferentiableCall(fn, fn.__name__, tuple(scope.items()), body, rules)
    )


def _visited(
    g: ModuleGenerator, fn: CustomDerivative, kind: str, rule: JitCallable
) -> Callable[[list[Any], list[Any], list[Any]], Any]:
    def visit(inputs: list[Any], outputs: list[Any], derivatives: list[Any]) -> Any:
        try:
            scope = bind(rule, [*inputs, *outputs, *derivatives], {})
        except TypeError as error:
            what = "cotangents of the results" if kind == VJP else "tangents of the arguments"
            raise rule.definition_error(
                f"the rule of {fn.__name__} does not fit it: {error}",
                f"a rule takes the arguments of {fn.__name__}, here {len(inputs)}; its results, "
                f"here {len(outputs)}; and the {what} that are floats, here {len(derivatives)}",
            ) from None
        return g.visit_separate(rule, scope)

    return visit


def differentiable_call(g: ModuleGenerator, call: DifferentiableCall) -> Any:
    """Emit a call of a function that has a derivative of its own."""
    inputs = [value for _, value in call.inputs]
    types = [type_of(value) for value in inputs]
    key = (call.key, *types)
    if key not in g.callees:
        g.callees[key] = None
        g.callees[key] = separate_function(g, call.name, types, call.body)
        _add_rules(g, call, types, *g.callees[key])  # type: ignore[misc]
    compiled = g.callees[key]
    if compiled is None:
        message = f"{call.name} calls itself with the same argument types"
        raise _defect(call, message, "use a loop")
    return emit_call(g, *compiled, inputs, pure=True)


def _defect(call: DifferentiableCall, message: str, remedy: str, kind: str = "") -> Exception:
    at = call.key
    if isinstance(at, CustomDerivative):
        at = at.rules.get(kind, at)
    if isinstance(at, JitCallable):
        return at.definition_error(message, remedy)
    return CompilationError(message)


# ---- rules


@dataclass(frozen=True)
class _Returned:
    """A derivative that a rule may return: of a parameter, or of a result."""

    name: str
    type: base_type


def _add_rules(
    g: ModuleGenerator,
    call: DifferentiableCall,
    types: Sequence[base_type],
    function: ir.Function,
    result: base_type,
) -> None:
    inputs = [
        _Returned(name, type_)
        for (name, _), type_ in zip(call.inputs, types, strict=True)
        if not isinstance(type_, constexpr_type)
    ]
    results = list(result.types) if isinstance(result, tuple_type) else [result]
    results = [type_ for type_ in results if type_.flatten()]
    outputs = [_Returned(f"result {number}", type_) for number, type_ in enumerate(results)]
    active = {number for number, type_ in enumerate(function.arguments) if _is_float(type_)}
    for kind in call.rules:
        given, wanted = (outputs, inputs) if kind == VJP else (inputs, outputs)
        rule = _rule(g, call, kind, types, results, given, wanted)
        function.attributes[kind] = rule.name
        returned = rule.attributes["returns"]
        if kind == VJP:
            active &= set(returned)
        elif not returned:
            active = set()
    function.attributes["varies_with"] = tuple(sorted(active))


def _is_float(value: ir.Value) -> bool:
    return isinstance(ir.types.element_type(value.type), ir.types.FloatType)


def _rule(
    g: ModuleGenerator,
    call: DifferentiableCall,
    kind: str,
    types: Sequence[base_type],
    results: Sequence[base_type],
    given: Sequence[_Returned],
    wanted: Sequence[_Returned],
) -> ir.Function:
    """Add the function of a rule to the module."""
    derivatives = [_derivative_type(entry.type) for entry in given]
    known = [type_ for type_ in derivatives if type_ is not None]
    places: list[int] = []

    def visit(values: list[Any]) -> Any:
        first, second = len(types), len(types) + len(results)
        found = call.rules[kind](values[:first], values[first:second], values[second:])
        matched, numbers = _Matched(g, call, kind), 0
        for entry, item in zip(wanted, _items(call, kind, found, wanted), strict=True):
            matched.add(entry.name, entry.type, item, numbers)
            numbers += len(entry.type.flatten())
        places.extend(matched.places)
        return tl_tuple(matched.values)

    function, _ = separate_function(g, f"{call.name}_{kind}", [*types, *results, *known], visit)
    function.attributes["returns"] = tuple(places)
    return function


def _items(
    call: DifferentiableCall, kind: str, found: Any, wanted: Sequence[_Returned]
) -> list[Any]:
    """Return the derivatives that a rule returns, one for each that is wanted.

    Raises:
        CompilationError: it returns another number.
    """
    is_one = len(wanted) == 1 and isinstance(wanted[0].type, tuple_type)
    items = list(found.values) if isinstance(found, tl_tuple) and not is_one else [found]
    if len(items) == len(wanted):
        return items
    what = "cotangents" if kind == VJP else "tangents"
    names = ", ".join(entry.name for entry in wanted)
    raise _defect(
        call,
        f"the {kind} rule of {call.name} returns {len(items)} {what} for {len(wanted)}: {names}",
        "return one for each in order, and None where there is none"
        + (", but none for constexprs" if kind == VJP else ""),
        kind,
    )


class _Matched:
    """Derivatives that a rule returns, matched with what they are of.

    Attributes:
        values: the derivatives that are not zero.
        places: the numbers of the flat values that they are of.
    """

    def __init__(self, g: ModuleGenerator, call: DifferentiableCall, kind: str) -> None:
        self._g, self._call, self._kind = g, call, kind
        self.values: list[tensor] = []
        self.places: list[int] = []

    def add(self, name: str, type_: base_type, found: Any, place: int) -> None:
        """Add what is returned for a value.

        Args:
            place: the number of the value's first flat value.

        Raises:
            CompilationError: it does not fit the value.
        """
        if isinstance(found, constexpr) and found.value is None:
            return
        if isinstance(type_, tuple_type):
            if not isinstance(found, tl_tuple) or len(found.values) != len(type_.types):
                raise self._misfit(name, f"a tuple of {len(type_.types)}", found)
            for number, item in enumerate(type_.types):
                self.add(f"{name}.{number}", item, found.values[number], place)
                place += len(item.flatten())
            return
        wanted = _derivative_type(type_)
        if wanted is None:
            raise self._misfit(name, "None, since it is no float", found)
        assert isinstance(wanted, dtype)
        semantic, is_number = self._g.semantic, isinstance(found, constexpr)
        if not isinstance(found, tensor | constexpr):
            raise self._misfit(name, f"a value of type {wanted}", found)
        value = semantic.to_tensor(found)
        if not is_number and (value.extents or wanted.is_block()):
            shape = list(wanted.shape) if isinstance(wanted, block_type) else []
            if [int(extent) for extent in value.extents] != [int(extent) for extent in shape]:
                raise self._misfit(name, f"a value of type {wanted}", found)
        value = semantic.cast(value, wanted.scalar)
        if isinstance(wanted, block_type) and not value.extents:
            value = semantic.wrap(
                semantic.builder.splat(value.handle, result=wanted.ir_type), wanted.scalar
            )
        self.values.append(value)
        self.places.append(place)

    def _misfit(self, name: str, wanted: str, found: Any) -> Exception:
        kind, what = self._kind, "cotangent" if self._kind == VJP else "tangent"
        return _defect(
            self._call,
            f"the {kind} rule of {self._call.name} returns {_described(found)} as the {what} of "
            f"{name}, which must be {wanted}",
            f"a {what} has the shape of what it belongs to",
            kind,
        )


def _described(value: Any) -> str:
    return f"a value of type {type_of(value)}" if not isinstance(value, constexpr) else repr(value)


def _derivative_type(type_: base_type) -> base_type | None:
    """Return the type of the derivatives of a value; None where it has no float.

    Floats of fewer than 32 bits have derivatives of 32.
    """
    if isinstance(type_, tuple_type):
        items = [_derivative_type(item) for item in type_.types]
        if all(item is None for item in items):
            return None
        return tuple_type(
            [constexpr_type(None) if item is None else item for item in items], type_.fields
        )
    if not isinstance(type_, dtype) or not type_.scalar.is_floating():
        return None
    if type_.scalar.primitive_bitwidth >= 32:
        return type_
    return block_type(float32, type_.shape) if isinstance(type_, block_type) else float32


__all__ = ["JVP", "VJP", "call_custom", "differentiable_call"]
