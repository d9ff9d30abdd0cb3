"""Transfer functions of axis analysis: attributes of sums, quotients, comparisons and casts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from tilewright.ir.core import Operation, Value
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
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import (
    Moved,
)
from tilewright.ir.table import Trait
from tilewright.ir.types import I1, IntType, PointerType, element_type
from tilewright.passes.analysis.axis_info import (
    UNBOUNDED,
    AxisInfo,
    common_constancy,
    join,
    power_of_two_in,
    unit_of,
    unknown,
)
from tilewright.passes.analysis.axis_moves import MOVED, concatenated, joined, picked
from tilewright.passes.analysis.transfer_functions import TRANSFER, Domain, Rule


class AxisArithmetic(Domain[AxisInfo]):
    """Attributes of results; ``known`` holds those of the values before."""

    known: dict[Value, AxisInfo]

    def transfer(self, operation: Operation, facts: Sequence[AxisInfo]) -> AxisInfo:
        """Apply a transfer function; operations on addresses keep the assumption on addresses."""
        if not any(info.addressing for info in facts):
            return super().transfer(operation, facts)
        if _leads_to_addresses(operation):
            return replace(super().transfer(operation, facts), addressing=True)
        return super().transfer(
            operation,
            [
                info.apart_from_addresses(unit_of(operand.type))
                for info, operand in zip(facts, operation.operands, strict=True)
            ],
        )

    def opaque(self, operation: Operation, facts: Sequence[AxisInfo]) -> AxisInfo:
        """Equal operands give equal results; nothing else is known."""
        return replace(unknown(operation.result.type), constancy=common_constancy(facts))

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
        scale = unit_of(operation.result.type)
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
            tuple(contiguity), tuple(divisibility), common_constancy((a, b)), None, nonnegative
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
        numbers not below zero, that no multiple of b divides yields one quotient, as by a constant
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
            common_constancy((a, b)),
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
        found = join(a, b, 1)
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
        unit = unit_of(operation.result.type)
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
            common_constancy((condition, a, b)),
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
        if unit_of(source) == unit_of(target):
            return replace(x, constant=None, nonnegative=known.nonnegative)
        return replace(
            known,
            divisibility=tuple(
                [x.divisibility_at(axis, 1, unit_of(source)) for axis in range(x.rank)]
            ),
        )

    def moved(self, operation: Moved, x: AxisInfo) -> AxisInfo:
        return MOVED[operation.name](operation, x)

    def hinted(self, operation: Hint, x: AxisInfo) -> AxisInfo:
        """The kernel author's promises, where they say more than was known."""
        unit = unit_of(operation.result.type)
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
        "join": lambda analysis, operation, facts: joined(operation, *facts),
        "cat": lambda analysis, operation, facts: concatenated(operation, *facts),
        "gather": lambda analysis, operation, facts: picked(operation, *facts),
    }


def _leads_to_addresses(operation: Operation) -> bool:
    """Return whether addresses go through an operation on their way."""
    return bool(operation.spec.traits & (Trait.ADDRESSING | Trait.SHAPE))


__all__ = ["AxisArithmetic"]
