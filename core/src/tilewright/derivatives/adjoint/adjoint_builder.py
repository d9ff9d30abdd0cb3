"""The adjoint of a kernel while it is built: the kernel's values again, and their cotangents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tilewright.derivatives.adjoint.rules import applied
from tilewright.derivatives.analysis.activity import Activity
from tilewright.derivatives.analysis.finiteness import Finiteness
from tilewright.derivatives.analysis.logistic import logistic_argument
from tilewright.derivatives.analysis.memory_effects import MemoryEffects
from tilewright.derivatives.cotangent_types import cotangent_type, is_float
from tilewright.derivatives.partials import PARTIALS, times
from tilewright.derivatives.primal_replay import PrimalReplay
from tilewright.derivatives.refusals import REWRITE, DerivativeError, refusal
from tilewright.derivatives.shadow_addresses import ShadowAddresses, add_argument
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Div
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Assume
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Broadcast, Splat
from tilewright.ir.table import Effect
from tilewright.ir.types import TileType, element_type
from tilewright.passes.effects import effects_of
from tilewright.passes.rewriter import constant_of

#: In place of a loop's number: the value has no meaning in the gauge that was chosen.
UNDEFINED = -1


@dataclass(frozen=True)
class AdjointAnalysis:
    """Facts of the kernel that is transposed.

    Attributes:
        wrt: arguments whose cotangents are wanted: pointers, descriptors, float scalars.
        outputs: arguments whose writes have cotangents.
        scalars: scalars of ``wrt`` -> the pointer to which their cotangent is added.
        modes: how the cotangent of an argument is written: ``atomic``, ``add`` or ``store``.
        consumed: outputs whose elements may be stored more than once by a program. Only the last
            store has a cotangent: it is set to zero where it is read.
        taped: numbers of the loops that are walked backward.
        known: values that are not computed -> others that equal them, such as loaded ones.
        undefined: values that have no meaning in the gauge that was chosen.
        loops: the loops of the kernel before its gauges were fixed, which have the first numbers.
        functions: those that have a derivative of their own, and their rules.
    """

    activity: Activity
    memory: MemoryEffects
    shadows: ShadowAddresses
    finiteness: Finiteness
    wrt: frozenset[Value]
    outputs: frozenset[Value]
    scalars: Mapping[Value, Value]
    modes: Mapping[str, str] = field(default_factory=dict)
    consumed: frozenset[str] = frozenset()
    taped: frozenset[int] = frozenset()
    known: Mapping[Value, Value] = field(default_factory=dict)
    undefined: AbstractSet[Value] = frozenset()
    loops: Sequence[For] = ()
    functions: Mapping[str, Function] = field(default_factory=dict)


class AdjointBuilder(PrimalReplay):
    """The adjoint of a kernel while it is built.

    Attributes:
        cotangents: values of the kernel -> their cotangents so far, in the adjoint.
        loops: the loops of the kernel -> their numbers.
        replays: loops of the kernel -> the last replay of each.
        placeholders: parameters that stand for values which the adjoint does not have -> the number
            of the loop that carries the value, :data:`UNDEFINED`, or the error where something
            reads them.
        tape_barriers: barriers that order the accesses of tapes -> the loop's number.
    """

    def __init__(self, source: Function, analysis: AdjointAnalysis) -> None:
        super().__init__(source, f"{source.name}_vjp")
        self.analysis, self.varied = analysis, analysis.activity.varied
        self.cotangents: dict[Value, Value] = {}
        loops = (operation for operation in source.walk() if isinstance(operation, For))
        ordered = dict.fromkeys((*analysis.loops, *loops))
        self.loops = {loop: number for number, loop in enumerate(ordered)}
        self.replays: dict[For, For] = {}
        self.placeholders: dict[Value, int | DerivativeError] = {}
        self.tape_barriers: dict[Operation, int] = {}

    def build(self) -> Function:
        """Build the adjoint, once."""
        self.replay(self.source.body)
        self.transpose(self.source.body)
        for scalar, pointer in self.analysis.scalars.items():
            cotangent = self.cotangents.get(scalar)
            if cotangent is not None:
                self.b.location = self.source.location
                narrow = self.to(cotangent, scalar.type)
                self.b.atomic_rmw(self.primal[pointer], narrow, kind="add", order="relaxed")
        self.b.return_([])
        return self.function

    # ---- the kernel's values

    def replay(self, region: Region) -> None:
        """Append what a region computes, without its effects."""
        for operation in region:
            if not operation.spec.terminator:
                self._replay(operation)

    def _replay(self, operation: Operation) -> None:
        self.b.location = operation.location
        if _is_dropped(operation):
            error = refusal(
                operation, "its result is needed again, and it cannot be repeated", REWRITE
            )
            for result in operation.results:
                self.primal[result] = self.placeholder(result, error)
            return
        regions = []
        for region in operation.regions:
            made = self.region_like(region)
            with self.b.at_region(made):
                self.replay(region)
                if region.last is not None:
                    self.copy(region.last)
            regions.append(made)
        copy = self.copy(operation, regions)
        if isinstance(operation, For) and isinstance(copy, For):
            self.replays[operation] = copy
        for result in operation.results:
            known = self.analysis.known.get(result)
            if known is not None:
                self.primal[result] = self.primal[known]
            elif result in self.analysis.undefined:
                self.primal[result] = self.placeholder(result, UNDEFINED)

    def placeholder(self, value: Value, cause: int | DerivativeError) -> Value:
        """Return what stands for a value that the adjoint does not have; nothing may read it.

        Args:
            cause: the number of the loop that carries the value, or the error of its readers.
        """
        element = element_type(value.type)
        known = (v for v, why in self.placeholders.items() if why == cause and v.type is element)
        scalar = next(known, None)
        if scalar is None:
            name = f"missing_{len(self.placeholders)}"
            scalar = add_argument(self.function, element, name)
            self.placeholders[scalar] = cause
        if not isinstance(value.type, TileType):
            return scalar
        tile: Value = self.b.splat(scalar, result=value.type)
        return tile

    # ---- cotangents

    def add_cotangent(self, value: Value, cotangent: Value | None, *, fresh: bool = False) -> None:
        """Add to the cotangent of a value of the kernel, if it varies.

        Args:
            fresh: whether the cotangent was made for this value alone.
        """
        if cotangent is None or value not in self.varied:
            return
        dot = cotangent.definition
        cotangent = self.to(cotangent, cotangent_type(value.type))
        known = self.cotangents.get(value)
        if known is None:
            self.cotangents[value] = cotangent
        elif (
            fresh
            and isinstance(dot, Dot)
            and constant_of(dot.c) == 0.0
            and (dot.result is cotangent)
        ):
            dot.set_operand(2, known)  # accumulated by the dot itself
            self.cotangents[value] = cotangent
        else:
            self.cotangents[value] = self.b.add(known, cotangent)

    def take_cotangent(self, value: Value) -> Value:
        """Remove and return the cotangent of a value; zero where there is none."""
        known = self.cotangents.pop(value, None)
        return self.zero(value.type) if known is None else known

    def or_zero(self, cotangent: Value | None, value: Value) -> Value:
        """Return the cotangent of a value; zero where it is None."""
        return self.zero(value.type) if cotangent is None else cotangent

    def closure(self, operation: Operation) -> list[Value]:
        """Return what varies, is made outside of an operation, and is read in its regions."""
        inner = [nested for nested in operation.walk() if nested is not operation]
        inside = {value for nested in inner for value in nested.results}
        regions = (region for nested in operation.walk() for region in nested.regions)
        inside.update(value for region in regions for value in region.arguments)
        read = dict.fromkeys(value for nested in inner for value in nested.operands)
        return [value for value in read if value in self.varied and value not in inside]

    def transpose(self, region: Region) -> None:
        """Append the adjoint of a region's operations, the last first."""
        for operation in reversed(list(region)):
            if operation.spec.terminator:
                continue
            cotangents = [self.cotangents.pop(result, None) for result in operation.results]
            if any(cotangents) or operation in self.analysis.memory.storing:
                self.b.location = operation.location
                self._transpose(operation, cotangents)

    def _transpose(self, operation: Operation, cotangents: list[Value | None]) -> None:
        rule = applied(operation.name)
        if rule is not None:
            rule(self, operation, *cotangents)
        elif operation.name in PARTIALS:
            (dy,) = cotangents
            assert dy is not None
            self._elementwise(operation, dy)
        else:
            raise refusal(operation, "has no derivative", REWRITE)

    def _elementwise(self, operation: Operation, dy: Value) -> None:
        if isinstance(operation, Div) and isinstance(operation.b.definition, Splat | Broadcast):
            self._quotient(operation, operation.b.definition, dy)
            return
        argument = logistic_argument(operation)
        if argument is not None:
            y = self.wide(operation.result)
            slope = self.b.neg(self.b.mul(y, self.b.sub(self.b.constant_like(y.type, 1.0), y)))
            strict = argument in self.analysis.finiteness.unsafe
            self.add_cotangent(argument, times(slope).times(self.b, dy, strict=strict))
            return
        operands = [self.wide(value) for value in operation.operands]
        row = PARTIALS[operation.name]
        factors = row.factors(self.b, operands, self.wide(operation.result), operation)
        strict = self.analysis.finiteness.needs_strict(operation)
        for operand, factor in zip(operation.operands, factors, strict=True):
            if factor is not None and operand in self.varied:
                self.add_cotangent(operand, factor.times(self.b, dy, strict=strict))

    def _quotient(self, operation: Div, spread: Splat | Broadcast, dy: Value) -> None:
        """Transpose a division by what is the same in many lanes.

        The reciprocal is taken of the narrow divisor, whose cotangent is divided after the sum.
        """
        b, narrow = self.b, self.wide(spread.x)
        inverse = b.div(b.constant_like(narrow.type, 1.0), narrow)
        wide = b.splat if isinstance(spread, Splat) else b.broadcast
        strict = self.analysis.finiteness.needs_strict(operation)
        dividend = times(wide(inverse, result=dy.type))
        self.add_cotangent(operation.a, dividend.times(b, dy, strict=strict))
        if operation.b not in self.varied:
            return
        quotient = times(b.neg(self.wide(operation.result)))
        outer, self.cotangents = self.cotangents, {}
        self._transpose(spread, [quotient.times(b, dy, strict=strict)])
        total = self.cotangents.pop(spread.x)
        self.cotangents = outer
        self.add_cotangent(spread.x, times(inverse).times(b, total, strict=strict))


def _is_dropped(operation: Operation) -> bool:
    """Return whether an operation is not repeated, because it has an effect."""
    if operation.regions:
        return False
    if isinstance(operation, Assume):
        return not _is_of_integers(operation.condition)
    return bool(effects_of(operation) & (Effect.WRITE | Effect.ORDER))


def _is_of_integers(value: Value, depth: int = 8) -> bool:
    """Return whether a value is computed from integers alone, as far as it is followed."""
    operation = value.definition
    if is_float(value):
        return False
    if operation is None:
        return True
    return depth > 0 and all(_is_of_integers(v, depth - 1) for v in operation.operands)
