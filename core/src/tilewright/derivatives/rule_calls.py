"""Calls of functions that have a derivative of their own.

The frontend leaves them in modules that are made for derivation, with the rules as functions: see
:mod:`tilewright.frontend.callees.differentiable_calls`. They are inlined after the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.derivatives.refusals import DerivativeError, refusal
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.control import Call
from tilewright.ir.table import Effect, Trait
from tilewright.passes.effects import effects_of
from tilewright.passes.inline import inline

#: Attributes of functions; see the frontend.
_VARIES_WITH, _RETURNS = "varies_with", "returns"
#: The kinds of rules, which are attributes of functions, too.
VJP, JVP = "vjp", "jvp"


def has_rule(function: Function) -> bool:
    """Return whether a function has a derivative of its own."""
    return _VARIES_WITH in function.attributes


def inline_but_rules(module: Module) -> None:
    """Inline the calls in a kernel but those of functions that have a derivative of their own.

    Raises:
        DerivativeError: such a function reads or writes memory.
    """
    inline(module, keep=has_rule)
    _drop_unreached(module)
    for function in module.functions.values():
        if not function.kernel:
            _require_values(function)


def callees(module: Module) -> dict[str, Function]:
    """Return the functions of a module beside its kernel, by name."""
    return {name: function for name, function in module.functions.items() if not function.kernel}


def _drop_unreached(module: Module) -> None:
    pending, reached = [module.kernel], {module.kernel.name}
    while pending:
        function = pending.pop()
        names = [op.callee for op in function.walk() if isinstance(op, Call)]
        names += [str(function.attributes[k]) for k in (VJP, JVP) if k in function.attributes]
        for name in names:
            if name not in reached:
                reached.add(name)
                pending.append(module.functions[name])
    for name in list(module.functions):
        if name not in reached:
            del module.functions[name]


def _require_values(function: Function) -> None:
    """Check that a function computes values from values; drop its assertions and prints."""
    for operation in list(function.walk()):
        effects = effects_of(operation)
        if operation.regions or operation.spec.terminator or effects is Effect.NONE:
            continue
        if effects is Effect.ORDER and Trait.NO_MEMORY in operation.spec.traits:
            operation.erase()
            continue
        raise DerivativeError(
            f"{operation.name}: {function.name}, which has a derivative of its own, reads or "
            "writes memory",
            "load outside of the function, and pass it what was loaded",
            operation.location,
        )


def varying_operands(call: Call, functions: Mapping[str, Function]) -> list[Value]:
    """Return the operands by which a call has a derivative."""
    places: Sequence[int] = functions[call.callee].attributes[_VARIES_WITH]
    return [call.arguments[place] for place in places]


def required_rule(call: Call, kind: str, functions: Mapping[str, Function]) -> Function:
    """Return the rule of a call.

    Raises:
        DerivativeError: the function has none of this kind.
    """
    rule = functions[call.callee].attributes.get(kind)
    if rule is None:
        mode = "reverse" if kind == VJP else "forward"
        name = call.callee
        raise refusal(call, f"{name} has no rule of {mode} mode", f"give it one by @{name}.{kind}")
    return functions[str(rule)]


def result_positions(rule: Function) -> Sequence[int]:
    """Return the positions of the operands or results whose derivatives a rule returns."""
    found: Sequence[int] = rule.attributes[_RETURNS]
    return found


def apply_rule(b: Builder, rule: Function, operands: Sequence[Value]) -> list[tuple[int, Value]]:
    """Append the call of a rule.

    Returns:
        the derivatives, each with the number of what it is of.
    """
    made: Operation = b.create(
        TABLE["call"], [list(operands)], {"callee": rule.name, "pure": True}, rule.result_types
    )
    return list(zip(result_positions(rule), made.results, strict=True))
