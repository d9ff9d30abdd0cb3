"""The rule of calls: functions that have a derivative of their own."""

from __future__ import annotations

from tilewright.derivatives.adjoint.adjoint_builder import AdjointBuilder
from tilewright.derivatives.adjoint.rules import transposes
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.rule_calls import VJP, apply_rule, required_rule
from tilewright.ir.core import Value
from tilewright.ir.ops.control import Call


@transposes(Call, "by the function's own rule, where it has one; other calls are inlined first")
def call(builder: AdjointBuilder, operation: Call, *cotangents: Value | None) -> None:
    rule = required_rule(operation, VJP, builder.analysis.functions)
    operands = [builder.primal[value] for value in (*operation.arguments, *operation.results)]
    operands += [
        builder.or_zero(cotangent, result)
        for cotangent, result in zip(cotangents, operation.results, strict=True)
        if is_float(result)
    ]
    for place, cotangent in apply_rule(builder.b, rule, operands):
        builder.add_cotangent(operation.arguments[place], cotangent)
