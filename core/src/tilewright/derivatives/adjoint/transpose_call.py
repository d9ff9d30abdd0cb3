"""The rule of calls: functions that have a derivative of their own."""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.masked_off_rules import apply_masked_rule
from tilewright.derivatives.rule_calls import VJP, required_rule
from tilewright.ir.core import Value
from tilewright.ir.ops.control import Call


@transposes(Call, "by the function's own rule, if it has one; other calls are inlined first")
def call(builder: AdjointBuilder, operation: Call, *cotangents: Value | None) -> None:
    functions = builder.analysis.functions
    rule = required_rule(operation, VJP, functions)
    values = (*operation.arguments, *operation.results)
    given = [
        builder.or_zero(cotangent, result)
        for cotangent, result in zip(cotangents, operation.results, strict=True)
        if is_float(result)
    ]
    found = apply_masked_rule(
        builder.b,
        functions[operation.callee],
        rule,
        [builder.primal[value] for value in values],
        given,
        [value in builder.analysis.finiteness.unsafe for value in values],
    )
    for place, cotangent in found:
        builder.add_cotangent(operation.arguments[place], cotangent)
