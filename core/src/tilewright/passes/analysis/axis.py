"""Axis analysis: how the values of integer and pointer tiles run along each axis.

A forward data-flow analysis over structured control flow; loops are iterated to a fixed point,
optimistically from what their carried values begin as. Backends read from it how wide a memory
access may be, how far it is aligned, and where a mask changes.

Index arithmetic is taken not to overflow its type: a run that wrapped around inside would address
memory on both ends of the address space. So are addresses taken not to be made of negative
remainders: ``x % n``, which keeps kernels inside an array of n elements, runs on where x is not
negative, and that is only known of x by what it is for (:attr:`AxisInfo.addressing`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import (
    Addptr,
    Arange,
    Binary,
    Bitcast,
    Cast,
    Cmp,
    Constant,
    Extremum,
    NumPrograms,
    ProgramId,
    Select,
)
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import (
    Broadcast,
    Cat,
    ExpandDims,
    Gather,
    Join,
    Moved,
    Permute,
    Reshape,
    Splat,
    Split,
    Unsplat,
)
from tilewright.ir.table import Trait
from tilewright.ir.types import I1, IntType, PointerType, Type, byte_size, element_type, shape_of
from tilewright.passes.analysis.transfer_functions import TRANSFER, Domain, Rule

#: The divisibility of zero, which everything divides.
UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """Contiguity, divisibility and constancy of a value, with an entry per axis (one for a scalar).

    Attributes:
        contiguity: length of aligned runs along the axis in which each element is one more than the
            previous one (pointers: the next element).
        divisibility: the power of two known to divide the first value of each such run (pointers:
            its address, in bytes).
        constancy: length of aligned runs along the axis of equal elements.
        constant: the value of all elements, or None.
        nonnegative: whether no element is negative.
        addressing: contiguity and divisibility hold for addresses only (see above), and for nothing
            else that is computed from the value.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | float | bool | None = None
    nonnegative: bool = False
    addressing: bool = False

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def divisibility_at(self, axis: int, group: int, unit: int = 1) -> int:
        """Return the divisor of the first value of each aligned group of ``group`` elements.

        Consecutive elements are ``unit`` apart.
        """
        run, known = self.contiguity[axis], self.divisibility[axis]
        if group % run == 0:
            return known
        return min(known, power_of_two_in(math.gcd(group, run) * unit))

    def divisibility_of_all(self, unit: int = 1) -> int:
        """Return the divisor of every element."""
        return max(self.divisibility_at(axis, 1, unit) for axis in range(self.rank))

    def apart_from_addresses(self, unit: int = 1) -> AxisInfo:
        """Return the attributes that hold without the assumption on addresses."""
        if not self.addressing:
            return self
        divisibility = tuple([self.divisibility_at(axis, 1, unit) for axis in range(self.rank)])
        return replace(
            self, contiguity=(1,) * self.rank, divisibility=divisibility, addressing=False
        )


def power_of_two_in(value: int) -> int:
    """Return the largest power of two that divides ``value``."""
    return min(value & -value, UNBOUNDED) if value else UNBOUNDED


def axis_info(function: Function) -> dict[Value, AxisInfo]:
    """Analyze every value of a function."""
    analysis = _Analysis()
    for argument, attributes in zip(function.arguments, function.argument_attributes, strict=True):
        info = unknown(argument.type)
        analysis.known[argument] = replace(
            info, divisibility=(power_of_two_in(attributes.get("divisibility", 1)),) * info.rank
        )
    analysis.region(function.body)
    return analysis.known


def unknown(type_: Type) -> AxisInfo:
    """Return the attributes of an unknown value of a type."""
    ones = (1,) * max(1, len(shape_of(type_)))
    element = element_type(type_)
    return AxisInfo(ones, ones, ones, None, isinstance(element, IntType) and not element.signed)


def _join(a: AxisInfo, b: AxisInfo, unit: int) -> AxisInfo:
    """Join the attributes of two values."""
    if a == b:
        return a
    contiguity = tuple(map(math.gcd, a.contiguity, b.contiguity))
    divisibility = tuple(
        [
            min(a.divisibility_at(i, run, unit), b.divisibility_at(i, run, unit))
            for i, run in enumerate(contiguity)
        ]
    )
    same = (
        a.constant is not None and type(a.constant) is type(b.constant) and a.constant == b.constant
    )
    constancy = tuple(map(math.gcd, a.constancy, b.constancy))
    return AxisInfo(
        contiguity,
        divisibility,
        constancy,
        a.constant if same else None,
        a.nonnegative and b.nonnegative,
        a.addressing or b.addressing,
    )


def _unit(type_: Type) -> int:
    """Return the distance of consecutive elements, in units of divisibility (pointers: bytes)."""
    element = element_type(type_)
    return byte_size(element.pointee) if isinstance(element, PointerType) else 1


class _Analysis(Domain[AxisInfo]):
    """Forward analysis in program order; ``known`` holds the attributes found."""

    def __init__(self) -> None:
        self.known: dict[Value, AxisInfo] = {}

    def region(self, region: Region) -> None:
        for operation in region:
            structured = _STRUCTURED.get(operation.name)
            if structured is not None:
                structured(self, operation)
                continue
            if operation.name in self.rules or operation.spec.elementwise:
                found = self.transfer(operation, self._infos(operation.operands))
                self.known.update(dict.fromkeys(operation.results, found))
                continue
            if operation.spec.forwards:
                self.known.update(
                    zip(operation.results, self._infos(operation.forwarded), strict=True)
                )
                continue
            for result in operation.results:
                self.known[result] = unknown(result.type)
            for inner in operation.regions:
                for argument in inner.arguments:
                    self.known[argument] = unknown(argument.type)
                self.region(inner)

    def _infos(self, values: Sequence[Value]) -> list[AxisInfo]:
        return [self.known[value] for value in values]

    def _merge_into(self, values: Sequence[Value], found: Sequence[AxisInfo]) -> bool:
        """Weaken the attributes of ``values`` by ``found``; return whether anything changed."""
        changed = False
        for value, info in zip(values, found, strict=True):
            joined = _join(self.known[value], info, _unit(value.type))
            if joined != self.known[value]:
                self.known[value] = joined
                changed = True
        return changed

    def if_(self, operation: If) -> None:
        for region in operation.regions:
            self.region(region)
        then, otherwise = (self._infos(_last(region).operands) for region in operation.regions)
        for result, a, b in zip(operation.results, then, otherwise, strict=True):
            self.known[result] = _join(a, b, _unit(result.type))

    def for_(self, operation: For) -> None:
        lower, step = self.known[operation.lower], self.known[operation.step]
        inits, body = self._infos(operation.inits), operation.body
        divisibility = (min(lower.divisibility[0], step.divisibility[0]),)
        self.known[body.arguments[0]] = AxisInfo((1,), divisibility, (1,), None, lower.nonnegative)
        carried = body.arguments[1:]
        self.known.update(zip(carried, inits, strict=True))
        while True:
            self.region(body)
            if not self._merge_into(carried, self._infos(_last(body).operands)):
                break
        self.known.update(zip(operation.results, self._infos(carried), strict=True))

    def while_(self, operation: While) -> None:
        before, after = operation.before, operation.after
        condition = _last(before)
        assert isinstance(condition, Condition)
        self.known.update(zip(before.arguments, self._infos(operation.inits), strict=True))
        while True:
            self.region(before)
            forwarded = self._infos(condition.values)
            self.known.update(zip(after.arguments, forwarded, strict=True))
            self.region(after)
            if not self._merge_into(before.arguments, self._infos(_last(after).operands)):
                break
        self.known.update(zip(operation.results, forwarded, strict=True))

    # ---- operations

    def transfer(self, operation: Operation, facts: Sequence[AxisInfo]) -> AxisInfo:
        """Apply a transfer function; operations on addresses keep the assumption on addresses."""
        if not any(info.addressing for info in facts):
            return super().transfer(operation, facts)
        if _leads_to_addresses(operation):
            return replace(super().transfer(operation, facts), addressing=True)
        return super().transfer(
            operation,
            [
                info.apart_from_addresses(_unit(operand.type))
                for info, operand in zip(facts, operation.operands, strict=True)
            ],
        )

    def opaque(self, operation: Operation, facts: Sequence[AxisInfo]) -> AxisInfo:
        """Equal operands give equal results; nothing else is known."""
        return replace(unknown(operation.result.type), constancy=_constancy(facts))

    def constant(self, operation: Constant) -> AxisInfo:
        value = operation.value
        divisibility = power_of_two_in(int(value)) if isinstance(value, int) else 1
        return AxisInfo((1,), (divisibility,), (1,), value, isinstance(value, int) and value >= 0)

    def arange(self, operation: Arange) -> AxisInfo:
        start, end = operation.start, operation.end
        return AxisInfo((end - start,), (power_of_two_in(start),), (1,), None, start >= 0)

    def grid(self, operation: ProgramId | NumPrograms) -> AxisInfo:
        return AxisInfo((1,), (1,), (1,), None, True)

    def sum(self, operation: Binary | Addptr, a: AxisInfo, b: AxisInfo, sign: int) -> AxisInfo:
        scale = _unit(operation.result.type)
        contiguity, divisibility = [], []
        for axis in range(a.rank):
            run = math.gcd(a.contiguity[axis], b.constancy[axis])
            if sign > 0:
                run = max(run, math.gcd(a.constancy[axis], b.contiguity[axis]))
            contiguity.append(run)
            scaled = min(b.divisibility_at(axis, run) * power_of_two_in(scale), UNBOUNDED)
            divisibility.append(min(a.divisibility_at(axis, run, scale), scaled))
        known = unknown(operation.result.type)
        nonnegative = known.nonnegative or (a.nonnegative and b.nonnegative and sign > 0)
        return AxisInfo(
            tuple(contiguity), tuple(divisibility), _constancy((a, b)), None, nonnegative
        )

    def product(self, operation: Binary, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        divisibility = tuple(
            [
                min(a.divisibility_at(axis, 1) * b.divisibility_at(axis, 1), UNBOUNDED)
                for axis in range(a.rank)
            ]
        )
        known = self.opaque(operation, (a, b))
        return replace(
            known,
            divisibility=divisibility,
            nonnegative=known.nonnegative or (a.nonnegative and b.nonnegative),
        )

    def multiple(self, operation: Operation, x: AxisInfo, factor: int) -> AxisInfo:
        known = self.opaque(operation, (x,))
        if not isinstance(element_type(operation.result.type), IntType):
            return known
        divisibility = tuple(
            [
                min(x.divisibility_at(axis, 1) * power_of_two_in(factor), UNBOUNDED)
                for axis in range(x.rank)
            ]
        )
        return replace(
            known,
            divisibility=divisibility,
            nonnegative=known.nonnegative or (x.nonnegative and factor > 0),
        )

    def shift(self, operation: Binary, x: AxisInfo, amount: AxisInfo) -> AxisInfo:
        """The low zeros stay."""
        known = self.opaque(operation, (x, amount))
        divisibility = tuple([x.divisibility_at(axis, 1) for axis in range(x.rank)])
        return replace(
            known,
            divisibility=divisibility,
            nonnegative=known.nonnegative or (x.nonnegative and amount.nonnegative),
        )

    def quotient(self, operation: Binary, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        """a / d, rounded towards zero.

        Where a power of two d divides every a, a = d * q, the quotient is exactly q whatever the
        sign and the rounding, also of a / -d = -q; and what is a multiple of d * e is so with q a
        multiple of e. Only of numbers that are not below zero is rounding towards zero rounding
        down.
        """
        divisor = b.constant
        known = self.opaque(operation, (a, b))
        if not isinstance(element_type(operation.result.type), IntType) or divisor == 0:
            return replace(
                known, nonnegative=known.nonnegative or (a.nonnegative and b.nonnegative)
            )
        if not isinstance(divisor, int):
            return self._quotient_by_variable(known, a, b)
        if a.nonnegative and divisor > 0:
            return self._rounded_down(operation, (a, b), divisor)
        if abs(divisor) != power_of_two_in(divisor):
            return known
        exact = [max(1, a.divisibility_at(axis, 1) // abs(divisor)) for axis in range(a.rank)]
        return replace(known, divisibility=tuple(exact))

    def _quotient_by_variable(self, known: AxisInfo, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        """a / b for a number b that is not known, but what divides it is: a group of a run of a, of
        numbers not below zero, that no multiple of b divides gives one quotient, as by a constant
        (:meth:`_rounded_down`). Its magnitude does not depend on the sign of b."""
        nonnegative = known.nonnegative or (a.nonnegative and b.nonnegative)
        if not a.nonnegative:
            return replace(known, nonnegative=nonnegative)
        constancy = []
        for axis in range(a.rank):
            group = math.gcd(a.contiguity[axis], b.constancy[axis], b.divisibility_at(axis, 1))
            constancy.append(
                max(known.constancy[axis], group if a.divisibility_at(axis, group) >= group else 1)
            )
        return replace(known, constancy=tuple(constancy), nonnegative=nonnegative)

    def shift_right(self, operation: Binary, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        amount = b.constant
        if isinstance(amount, int) and 0 <= amount < 63:
            return self._rounded_down(operation, (a, b), 1 << amount)
        known = self.opaque(operation, (a, b))
        return replace(known, nonnegative=known.nonnegative or a.nonnegative)

    def _rounded_down(self, operation: Binary, infos: Sequence[AxisInfo], divisor: int) -> AxisInfo:
        """a / divisor rounded down.

        Let f be the first of an aligned group of a run, a multiple of the group's length g, and g a
        power of two that divides the divisor. Then f + i for 0 <= i < g is in the same multiple of
        the divisor as f: all of the group give one quotient. Where the divisor is a power of two
        that divides f, this is exactly f / divisor, and a multiple of what is left of the
        divisibility of f.
        """
        a, known = infos[0], self.opaque(operation, infos)
        step = power_of_two_in(divisor)
        constancy, divisibility = [], []
        for axis in range(a.rank):
            group = math.gcd(a.contiguity[axis], step)
            first = a.divisibility_at(axis, group)
            if first < group:
                group, first = 1, a.divisibility_at(axis, 1)
            constancy.append(max(known.constancy[axis], group))
            divisibility.append(max(1, first // divisor) if step == divisor else 1)
        return AxisInfo(
            known.contiguity,
            self._rounded_sum(operation, divisor, divisibility),
            tuple(constancy),
            None,
            known.nonnegative or a.nonnegative,
        )

    def _rounded_sum(
        self, operation: Binary, divisor: int, known: Sequence[int]
    ) -> tuple[int, ...]:
        """The divisibility of (x + c) / d rounded down, for a constant c with 0 <= c < d: that of x
        / d where d is a power of two that divides x. So is it of cdiv(x, d), where c is d - 1."""
        added = operation.a.definition
        if (
            not isinstance(added, Binary)
            or added.name != "add"
            or divisor != power_of_two_in(divisor)
        ):
            return tuple(known)
        for x, c in ((added.a, added.b), (added.b, added.a)):
            info, constant = self.known[x], self.known[c].constant
            if isinstance(constant, int) and 0 <= constant < divisor:
                exact = [info.divisibility_at(axis, 1) // divisor for axis in range(info.rank)]
                return tuple(map(max, known, exact))
        return tuple(known)

    def remainder(self, operation: Binary, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        if not isinstance(element_type(operation.result.type), IntType):
            return self.opaque(operation, (a, b))
        found = self._within(
            operation, a, b, [b.divisibility_at(axis, 1) for axis in range(b.rank)]
        )
        return (
            found
            if a.nonnegative or max(found.contiguity) == 1
            else replace(found, addressing=True)
        )

    def _within(
        self, operation: Binary, a: AxisInfo, b: AxisInfo, steps: Sequence[int]
    ) -> AxisInfo:
        """a modulo multiples of ``steps``: an aligned group that does not straddle a multiple stays
        contiguous."""
        known = unknown(operation.result.type)
        contiguity, divisibility = [], []
        for axis, step in enumerate(steps):
            group = math.gcd(a.contiguity[axis], b.constancy[axis], step)
            if a.divisibility_at(axis, group) < group:
                group = 1
            contiguity.append(group)
            divisibility.append(min(a.divisibility_at(axis, group), step))
        return AxisInfo(
            tuple(contiguity),
            tuple(divisibility),
            _constancy((a, b)),
            None,
            known.nonnegative or a.nonnegative,
        )

    def bit_and(self, operation: Binary, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        if element_type(operation.result.type) is I1:
            return self.opaque(operation, (a, b))
        mask = b.constant
        if (
            isinstance(mask, int) and mask > 0 and mask & (mask + 1) == 0
        ):  # the low bits: a modulo a power of two
            return replace(self._within(operation, a, b, [mask + 1] * a.rank), nonnegative=True)
        known = self.opaque(operation, (a, b))
        divisibility = tuple(
            [max(a.divisibility_at(axis, 1), b.divisibility_at(axis, 1)) for axis in range(a.rank)]
        )
        constancy = known.constancy
        if (
            isinstance(mask, int) and mask < 0 and -mask & (-mask - 1) == 0
        ):  # the low bits cleared: a rounded down
            groups = [math.gcd(run, -mask) for run in a.contiguity]
            cleared = [
                group if a.divisibility_at(axis, group) >= group else 1
                for axis, group in enumerate(groups)
            ]
            constancy = tuple(map(max, constancy, cleared))
        return AxisInfo(
            known.contiguity,
            divisibility,
            constancy,
            None,
            known.nonnegative or a.nonnegative or b.nonnegative,
        )

    def low_zeros(self, operation: Operation, *infos: AxisInfo) -> AxisInfo:
        """Bits that are zero in all operands are zero in the result: or, xor, abs."""
        known = self.opaque(operation, infos)
        if not isinstance(element_type(operation.result.type), IntType):
            return known
        divisibility = tuple(
            [min(info.divisibility_at(axis, 1) for info in infos) for axis in range(known.rank)]
        )
        return replace(
            known,
            divisibility=divisibility,
            nonnegative=known.nonnegative or all(info.nonnegative for info in infos),
        )

    def extreme(self, operation: Extremum, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        """One or the other: all of a group that runs on in both, for their difference is the same
        there."""
        known = self.opaque(operation, (a, b))
        if not isinstance(element_type(operation.result.type), IntType):
            return known
        either = (
            a.nonnegative or b.nonnegative
            if operation.name == "max"
            else a.nonnegative and b.nonnegative
        )
        found = _join(a, b, 1)
        return replace(
            known,
            contiguity=found.contiguity,
            divisibility=found.divisibility,
            nonnegative=known.nonnegative or either,
        )

    def compared(self, operation: Cmp, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        known = self.opaque(operation, (a, b))
        predicate: str = operation.predicate
        if predicate in ("gt", "le"):  # n > a is a < n
            a, b, predicate = b, a, {"gt": "lt", "le": "ge"}[predicate]
        if predicate not in ("lt", "ge") or not isinstance(element_type(operation.a.type), IntType):
            return known
        constancy = list(known.constancy)
        for axis in range(a.rank):
            # Where a group's first value and the bound are multiples of its length, the group lies
            # on one side of the bound.
            group = math.gcd(a.contiguity[axis], b.constancy[axis])
            group = math.gcd(group, b.divisibility_at(axis, group), a.divisibility_at(axis, group))
            constancy[axis] = max(constancy[axis], group)
        return replace(known, constancy=tuple(constancy))

    def choice(self, operation: Select, condition: AxisInfo, a: AxisInfo, b: AxisInfo) -> AxisInfo:
        unit = _unit(operation.result.type)
        contiguity = tuple(
            [
                math.gcd(*runs)
                for runs in zip(condition.constancy, a.contiguity, b.contiguity, strict=True)
            ]
        )
        divisibility = tuple(
            [
                min(a.divisibility_at(axis, run, unit), b.divisibility_at(axis, run, unit))
                for axis, run in enumerate(contiguity)
            ]
        )
        return AxisInfo(
            contiguity,
            divisibility,
            _constancy((condition, a, b)),
            None,
            a.nonnegative and b.nonnegative,
        )

    def cast(self, operation: Cast, x: AxisInfo) -> AxisInfo:
        source, target = element_type(operation.x.type), element_type(operation.result.type)
        known = self.opaque(operation, (x,))
        if (
            not (isinstance(source, IntType) and isinstance(target, IntType))
            or source is I1
            or target is I1
        ):
            return replace(known, nonnegative=known.nonnegative or source is I1)
        if target.bits >= source.bits:
            kept = x.nonnegative and (source.signed or target.bits > source.bits)
            return replace(x, constant=None, nonnegative=known.nonnegative or kept)
        # Made narrower, a group does not wrap inside if its first value is a multiple of its
        # length.
        contiguity = tuple(
            [
                math.gcd(run, x.divisibility[axis], 1 << target.bits)
                for axis, run in enumerate(x.contiguity)
            ]
        )
        divisibility = tuple(
            [
                min(x.divisibility_at(axis, run), 1 << target.bits)
                for axis, run in enumerate(contiguity)
            ]
        )
        return AxisInfo(contiguity, divisibility, x.constancy, None, known.nonnegative)

    def bitcast(self, operation: Bitcast, x: AxisInfo) -> AxisInfo:
        source, target = operation.x.type, operation.result.type
        known = self.opaque(operation, (x,))
        integers = isinstance(element_type(source), IntType | PointerType) and isinstance(
            element_type(target), IntType | PointerType
        )
        if not integers:
            return known
        if _unit(source) == _unit(target):
            return replace(x, constant=None, nonnegative=known.nonnegative)
        return replace(
            known,
            divisibility=tuple(
                [x.divisibility_at(axis, 1, _unit(source)) for axis in range(x.rank)]
            ),
        )

    def moved(self, operation: Moved, x: AxisInfo) -> AxisInfo:
        return _MOVED[operation.name](operation, x)

    def promised(self, operation: Hint, x: AxisInfo) -> AxisInfo:
        """The kernel author's promises, where they say more than was known."""
        unit = _unit(operation.result.type)
        contiguities, divisibilities, constancies = (
            found or (1,) * x.rank
            for found in (operation.contiguity, operation.divisibility, operation.constancy)
        )
        contiguity = tuple(map(max, x.contiguity, contiguities))
        known = [x.divisibility_at(axis, run, unit) for axis, run in enumerate(contiguity)]
        divisibility = tuple(
            [max(old, power_of_two_in(new)) for old, new in zip(known, divisibilities, strict=True)]
        )
        return AxisInfo(
            contiguity,
            divisibility,
            tuple(map(max, x.constancy, constancies)),
            x.constant,
            x.nonnegative,
        )

    rules: ClassVar[Mapping[str, Rule]] = {
        **TRANSFER,
        "shr": lambda analysis, operation, facts: analysis.shift_right(operation, *facts),
        "and": lambda analysis, operation, facts: analysis.bit_and(operation, *facts),
        **dict.fromkeys(
            ("or", "xor", "abs"),
            lambda analysis, operation, facts: analysis.low_zeros(operation, *facts),
        ),
        "cmp": lambda analysis, operation, facts: analysis.compared(operation, *facts),
        "load": lambda analysis, operation, facts: analysis.opaque(operation, facts),
        "split": lambda analysis, operation, facts: analysis.moved(operation, *facts),
        "join": lambda analysis, operation, facts: _joined(operation, *facts),
        "cat": lambda analysis, operation, facts: _concatenated(operation, *facts),
        "gather": lambda analysis, operation, facts: _picked(operation, *facts),
    }


def _leads_to_addresses(operation: Operation) -> bool:
    """Return whether addresses go through an operation on their way."""
    return bool(operation.spec.traits & (Trait.ADDRESSING | Trait.SHAPE))


def _last(region: Region) -> Operation:
    assert region.last is not None
    return region.last


_STRUCTURED: dict[str, Callable[[_Analysis, Any], None]] = {
    "if": _Analysis.if_,
    "for": _Analysis.for_,
    "while": _Analysis.while_,
}


def _constancy(infos: Sequence[AxisInfo]) -> tuple[int, ...]:
    return tuple(
        [math.gcd(*runs) for runs in zip(*[info.constancy for info in infos], strict=True)]
    )


# What moves elements, an operation each.


def _splat(operation: Splat, x: AxisInfo) -> AxisInfo:
    shape = shape_of(operation.result.type)
    return AxisInfo(
        (1,) * len(shape), x.divisibility * len(shape), shape, x.constant, x.nonnegative
    )


def _broadcast(operation: Broadcast, x: AxisInfo) -> AxisInfo:
    before, after = shape_of(operation.x.type), shape_of(operation.result.type)
    constancy = tuple(
        [new if old == 1 else run for old, new, run in zip(before, after, x.constancy, strict=True)]
    )
    return replace(x, constancy=constancy)


def _expand_dims(operation: ExpandDims, x: AxisInfo) -> AxisInfo:
    axis = operation.axis
    all_ = x.divisibility_of_all(_unit(operation.result.type))

    def widened(entries: tuple[int, ...], entry: int) -> tuple[int, ...]:
        return (*entries[:axis], entry, *entries[axis:])

    return AxisInfo(
        widened(x.contiguity, 1),
        widened(x.divisibility, all_),
        widened(x.constancy, 1),
        x.constant,
        x.nonnegative,
    )


def _permute(operation: Permute, x: AxisInfo) -> AxisInfo:
    order = operation.order
    contiguity, divisibility, constancy = (
        tuple([entries[axis] for axis in order])
        for entries in (x.contiguity, x.divisibility, x.constancy)
    )
    return AxisInfo(contiguity, divisibility, constancy, x.constant, x.nonnegative)


def _reshape(operation: Reshape, x: AxisInfo) -> AxisInfo:
    """Row-major order keeps runs along the last of axes that are merged or divided."""
    before, after = shape_of(operation.x.type), shape_of(operation.result.type)
    unit = _unit(operation.result.type)
    contiguity, constancy = [1] * len(after), [1] * len(after)
    divisibility = [x.divisibility_of_all(unit)] * len(after)
    if x.constancy == before:
        constancy = list(after)
    elif not operation.reorder:
        for old, new in _parts_of_reshape(before, after):
            run = math.gcd(x.contiguity[old[-1]], before[old[-1]], after[new[-1]])
            contiguity[new[-1]], divisibility[new[-1]] = run, x.divisibility_at(old[-1], run, unit)
            equal = _equal_in_a_row(
                [before[axis] for axis in old], [x.constancy[axis] for axis in old]
            )
            for axis in reversed(new):
                constancy[axis] = math.gcd(equal, after[axis])
                if constancy[axis] != after[axis]:
                    break
                equal //= after[axis]
    return AxisInfo(
        tuple(contiguity), tuple(divisibility), tuple(constancy), x.constant, x.nonnegative
    )


def _parts_of_reshape(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The axes of more than one element of both shapes, in the least parts that have as many
    elements in both."""
    old, new = (
        [axis for axis, extent in enumerate(shape) if extent > 1] for shape in (before, after)
    )
    found = []
    while old and new:
        mine, theirs = [old.pop()], [new.pop()]
        while (held := math.prod(before[axis] for axis in mine)) != (
            wanted := math.prod(after[axis] for axis in theirs)
        ):
            if held < wanted:
                mine.insert(0, old.pop())
            else:
                theirs.insert(0, new.pop())
        found.append((mine, theirs))
    return found


def _equal_in_a_row(shape: Sequence[int], constancy: Sequence[int]) -> int:
    """The length of aligned runs of equal elements in row-major order."""
    found = 1
    for extent, run in zip(reversed(shape), reversed(constancy), strict=True):
        found *= math.gcd(run, extent)
        if run % extent:
            break
    return found


def _split(operation: Split, x: AxisInfo) -> AxisInfo:
    """Each half has every other element of the last axis, whole runs along the others."""
    if x.rank == 1:
        return _first(x, operation.x.type)
    contiguity, divisibility, constancy = (
        entries[:-1] for entries in (x.contiguity, x.divisibility, x.constancy)
    )
    return AxisInfo(contiguity, divisibility, constancy, x.constant, x.nonnegative)


def _joined(operation: Join, a: AxisInfo, b: AxisInfo) -> AxisInfo:
    """Neighbors along the new axis are elements of a and b at one place, of which nothing is known
    together."""
    unit = _unit(operation.result.type)
    each = _join(a, b, unit)
    return AxisInfo(
        (*each.contiguity, 1),
        (*each.divisibility, each.divisibility_of_all(unit)),
        (*each.constancy, 1 if each.constant is None else 2),
        each.constant,
        each.nonnegative,
    )


def _concatenated(operation: Cat, a: AxisInfo, b: AxisInfo) -> AxisInfo:
    """Runs along the axis stay where b begins at a multiple of their length."""
    unit, axis = _unit(operation.result.type), operation.axis
    begin = shape_of(operation.a.type)[axis]
    each = _join(a, b, unit)
    contiguity, divisibility, constancy = (
        list(entries) for entries in (each.contiguity, each.divisibility, each.constancy)
    )
    contiguity[axis] = math.gcd(contiguity[axis], begin)
    constancy[axis] = math.gcd(constancy[axis], begin)
    divisibility[axis] = each.divisibility_at(axis, contiguity[axis], unit)
    return AxisInfo(
        tuple(contiguity), tuple(divisibility), tuple(constancy), each.constant, each.nonnegative
    )


def _picked(operation: Gather, x: AxisInfo, index: AxisInfo) -> AxisInfo:
    """Elements of x in any order along an axis: equal for equal indices, and for all where x is the
    same along it."""
    known, axis = unknown(operation.result.type), operation.axis
    constancy = list(index.constancy)
    if x.constancy[axis] % shape_of(operation.x.type)[axis] == 0:
        constancy = list(x.constancy)
        constancy[axis] = shape_of(operation.result.type)[axis]
    else:
        constancy = [
            run if along == axis else math.gcd(run, x.constancy[along])
            for along, run in enumerate(constancy)
        ]
    divisibility = (x.divisibility_of_all(_unit(operation.result.type)),) * known.rank
    return AxisInfo(known.contiguity, divisibility, tuple(constancy), x.constant, x.nonnegative)


def _first(x: AxisInfo, type_: Type) -> AxisInfo:
    """Return the attributes of any one element."""
    return AxisInfo((1,), (x.divisibility_of_all(_unit(type_)),), (1,), x.constant, x.nonnegative)


def _unsplat(operation: Unsplat, x: AxisInfo) -> AxisInfo:
    return _first(x, operation.x.type)


_MOVED: dict[str, Callable[[Any, AxisInfo], AxisInfo]] = {
    "splat": _splat,
    "broadcast": _broadcast,
    "expand_dims": _expand_dims,
    "permute": _permute,
    "reshape": _reshape,
    "split": _split,
    "unsplat": _unsplat,
}

__all__ = ["UNBOUNDED", "AxisInfo", "axis_info", "power_of_two_in", "unknown"]
