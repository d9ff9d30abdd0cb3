"""The kernel of tangents while it is built: the kernel's values, and their tangents beside them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.derivatives.analysis.finiteness import Finiteness
from tilewright.derivatives.analysis.memory_effects import MemoryEffects
from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.derivatives.masked_off_rules import apply_masked_rule
from tilewright.derivatives.partials import PARTIALS
from tilewright.derivatives.primal_replay import PrimalReplay
from tilewright.derivatives.refusals import REWRITE, refusal
from tilewright.derivatives.rule_calls import JVP, required_rule
from tilewright.derivatives.scaled_operands import operands_of
from tilewright.derivatives.shadow_addresses import ShadowAddresses
from tilewright.derivatives.tangent_regions import region_rule
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.control import Call
from tilewright.ir.ops.linear import Dot, DotScaled
from tilewright.ir.ops.shape import Gather, Reshape
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import F32, FloatType, element_type, with_element


class TangentBuilder(PrimalReplay):
    """The kernel of tangents while it is built.

    Attributes:
        varied: values of the kernel that have tangents.
        tangents: values of the kernel that vary -> their tangents, in the new one.
    """

    def __init__(
        self,
        source: Function,
        varied: AbstractSet[Value],
        memory: MemoryEffects,
        shadows: ShadowAddresses,
        finiteness: Finiteness,
        scalars: Mapping[Value, Value],
        functions: Mapping[str, Function],
    ) -> None:
        """Begin.

        Args:
            source: the kernel, with shadows of its addresses.
            scalars: scalars that have tangents -> the parameters that are these.
            functions: those that have a derivative of their own, and their rules.
        """
        super().__init__(source, f"{source.name}_jvp")
        self.varied, self._functions = varied, functions
        self._memory, self._shadows, self._finiteness = memory, shadows, finiteness
        self.tangents: dict[Value, Value] = {
            scalar: self.to(self.primal[tangent], cotangent_type(scalar.type))
            for scalar, tangent in scalars.items()
        }

    def build(self) -> Function:
        """Build the kernel, once."""
        self.fill(self.source.body)
        self.b.return_([])
        return self.function

    def tangent(self, value: Value) -> Value:
        """Return a float's tangent; zero where it does not vary."""
        found = self.tangents.get(value)
        return self.zero(value.type) if found is None else found

    # ---- operations

    def fill(self, region: Region) -> None:
        """Append a region's operations, and the tangents of their results."""
        for operation in region:
            self.b.location = operation.location
            if operation.spec.terminator:
                continue
            rule = region_rule(operation)
            if rule is not None:
                rule(self, operation)
            else:
                self.copy(operation)
                self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        """Append the tangents of an operation's results."""
        if Trait.ACCESS in operation.spec.traits:
            self._access(operation)
            return
        if not any(result in self.varied for result in operation.results):
            return
        if isinstance(operation, Dot):
            self._dot(operation)
        elif isinstance(operation, Call):
            self._call(operation)
        elif isinstance(operation, DotScaled):
            self._dot_scaled(operation)
        elif isinstance(operation, Reshape) and operation.reorder:
            raise refusal(
                operation,
                "can_reorder leaves the elements in no known order",
                "reshape without can_reorder",
            )
        elif Trait.SHAPE in operation.spec.traits or isinstance(operation, Cast | Gather):
            self._linear(operation)
        elif operation.name in PARTIALS:
            self._elementwise(operation)
        else:
            raise refusal(operation, "has no derivative", REWRITE)

    def _linear(self, operation: Operation) -> None:
        operands = [self.tangent(v) if is_float(v) else self.primal[v] for v in operation.operands]
        types = [cotangent_type(result.type) for result in operation.results]
        if isinstance(operation, Cast):
            (tangent,) = operands
            if not is_float(operation.x):
                return
            self.tangents[operation.result] = self.to(tangent, types[0])
            return
        made = Operation(
            operation.spec,
            operands,
            operation.segments,
            operation.attributes,
            types,
            (),
            operation.location,
        )
        self.tangents.update(zip(operation.results, self.b.insert(made).results, strict=True))

    def _elementwise(self, operation: Operation) -> None:
        operands = [self.wide(value) for value in operation.operands]
        row = PARTIALS[operation.name]
        factors = row.factors(self.b, operands, self.wide(operation.result), operation)
        strict = self._finiteness.needs_strict(operation)
        total: Value | None = None
        for value, factor in zip(operation.operands, factors, strict=True):
            if factor is not None and value in self.tangents:
                part = factor.times(self.b, self.tangents[value], strict=strict)
                total = part if total is None else self.b.add(total, part)
        if total is not None:
            self.tangents[operation.result] = total

    def _call(self, operation: Call) -> None:
        rule = required_rule(operation, JVP, self._functions)
        values = (*operation.arguments, *operation.results)
        found = apply_masked_rule(
            self.b,
            self._functions[operation.callee],
            rule,
            [self.primal[value] for value in values],
            [self.tangent(value) for value in operation.arguments if is_float(value)],
            [value in self._finiteness.unsafe for value in values],
        )
        for place, tangent in found:
            self.tangents[operation.results[place]] = tangent

    def _dot(self, operation: Dot) -> None:
        left, right = (self._dot_operand(value) for value in (operation.a, operation.b))
        total = self.tangent(operation.c)
        named: dict[str, Any] = {"precision": operation.precision, "order": operation.order}
        if operation.a in self.tangents:
            tangent = self.to(self.tangents[operation.a], left.type)
            total = self.b.dot(tangent, right, total, **named)
        if operation.b in self.tangents:
            tangent = self.to(self.tangents[operation.b], right.type)
            total = self.b.dot(left, tangent, total, **named)
        self.tangents[operation.result] = total

    def _dot_scaled(self, operation: DotScaled) -> None:
        b, primal = self.b, self.primal.__getitem__
        left, right = operands_of(operation)
        total = self.tangent(operation.c)
        if left.value in self.tangents:
            tangent = left.scaled(b, self.tangents[left.value], primal)
            total = b.dot(tangent, right.elements(b, primal), total)
        if right.value in self.tangents:
            tangent = right.scaled(b, self.tangents[right.value], primal)
            total = b.dot(left.elements(b, primal), tangent, total)
        self.tangents[operation.result] = total

    def _dot_operand(self, value: Value) -> Value:
        """Return an operand in a type that tangents may be cast to: f32 for fp8."""
        found, element = self.primal[value], element_type(value.type)
        is_fp8 = isinstance(element, FloatType) and element.is_fp8
        return self.to(found, with_element(found.type, F32)) if is_fp8 else found

    # ---- memory

    def _access(self, operation: Operation) -> None:
        """Access the tangents as the operation accesses the values."""
        address, *_ = operation.operands
        root = self._memory.addresses.root(address)
        if root not in self._shadows.elements:
            return
        shadow = self._shadows.of.get(address)
        if shadow is None:
            raise refusal(
                operation,
                "its address is carried by a while loop",
                "compute the address from the number of the iteration",
            )
        if Effect.WRITE in operation.spec.effects and (
            getattr(operation, "kind", "add") != "add" or Effect.ORDER in operation.spec.effects
        ):
            return  # of what does not vary, or refused by the analysis
        element = self._shadows.elements[root]
        others = {
            value: self.to(self.tangent(value), with_element(value.type, element))
            for value in operation.operands
            if is_float(value)
        }
        operands = [
            self.primal[shadow] if value is address else others.get(value, self.primal[value])
            for value in operation.operands
        ]
        made = Operation(
            operation.spec,
            operands,
            operation.segments,
            operation.attributes,
            [with_element(result.type, element) for result in operation.results],
            (),
            operation.location,
        )
        self.b.insert(made)
        if Effect.WRITE not in operation.spec.effects:
            wide = cotangent_type(operation.result.type)
            self.tangents[operation.result] = self.to(made.result, wide)
