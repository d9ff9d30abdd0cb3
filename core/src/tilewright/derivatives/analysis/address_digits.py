"""Addresses as numbers in a mixed radix: which accesses never meet at one element.

An address is a sum of coefficients times variables: places in the grid, iterations of loops, and
coordinates of the tile. It is different for different variables where these are the digits of a
number: sorted by coefficient, each coefficient is at least the one below times what that digit
reaches. A digit's reach follows from the tile's extent, the mask (``column < n`` of ``row * stride
+ column``), or the grid. What is no identity of polynomials is a condition on the scalar arguments
(``stride >= n``), for the launch to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from tilewright.derivatives.analysis.addresses import is_argument
from tilewright.derivatives.analysis.loop_bounds import (
    is_uniform,
    trip_limit,
    without_exact_quotients,
)
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import AtomicRmw, Load, Store
from tilewright.ir.types import shape_of
from tilewright.passes.analysis.affine import Affine, Atom
from tilewright.passes.analysis.affine_forms import ONE, ZERO, Form
from tilewright.passes.analysis.polynomials import Polynomial

#: Digits beyond which no order is tried.
_MOST_DIGITS = 5

#: A variable: a place in the grid by axis, an iteration by loop, or a coordinate by axis.
Variable = tuple[str, int | For]


class NotDigitsError(Exception):
    """An address is no sum of variables, or they may not be its digits; says why."""


@dataclass(frozen=True)
class ScalarCondition:
    """A condition on scalar arguments: the sum of its terms is not negative.

    Attributes:
        terms: factors and the names of the numbers that are multiplied: arguments, and
            ``num_programs(axis)``.
        text: the condition in words.
    """

    terms: tuple[tuple[int, tuple[str, ...]], ...]
    text: str

    def holds(self, numbers: Mapping[str, int]) -> bool:
        """Return whether it holds for the arguments of a launch; False if one is not a number."""
        total = 0
        for factor, names in self.terms:
            for name in names:
                number = numbers.get(name)
                if not isinstance(number, int):
                    return False
                factor *= number
            total += factor
        return total >= 0


@dataclass(frozen=True)
class Digit:
    """A group of variables with one coefficient.

    Attributes:
        step: the coefficient.
        reach: exclusive limit of the digit; None where it is not known.
        variables: a coordinate, maybe with one variable whose coefficient is a multiple of its, or
            a variable alone.
    """

    step: Polynomial
    reach: Polynomial | None
    variables: tuple[Variable, ...]


@dataclass(frozen=True)
class DigitAddress:
    """The address of an access.

    Attributes:
        rest: the part that is the same in all programs and iterations.
        programs: the places in the grid -> their coefficients.
        digits: the digits.
    """

    rest: Polynomial
    programs: frozenset[tuple[int, Polynomial]]
    digits: tuple[Digit, ...]

    @property
    def structure(self) -> list[tuple[object, ...]]:
        """The digits, in which it does not matter which loop an iteration is of.

        Addresses with the same ones are the same numbers.
        """
        return [
            (
                digit.step,
                digit.reach,
                [kind if kind == "iteration" else (kind, of) for kind, of in digit.variables],
            )
            for digit in self.digits
        ]

    @property
    def variables(self) -> set[Variable]:
        return {variable for digit in self.digits for variable in digit.variables}


class AddressDigits:
    """Addresses of a function's accesses."""

    def __init__(self, function: Function) -> None:
        self._affine = Affine(function)

    def of(self, access: Load | Store | AtomicRmw, *, one_program: bool = False) -> DigitAddress:
        """Return the address of an access.

        Args:
            one_program: whether accesses of one program are compared, for which its place in the
                grid is a constant.

        Raises:
            NotDigitsError: it is no sum of variables.
        """
        form = self._affine.form(access.pointer)
        if form is None or any(not isinstance(key, int) for key, _ in form.steps):
            raise NotDigitsError("its address is not affine")
        rest, coefficients = self._split(form)
        programs = tuple(
            (axis, coefficients[kind, axis])
            for kind, axis in coefficients
            if kind == "program_id" and isinstance(axis, int)
        )
        if one_program:
            coefficients = {k: c for k, c in coefficients.items() if k[0] != "program_id"}
        shape = shape_of(access.pointer.type)
        steps = {key: step for key, step in form.steps if isinstance(key, int)}
        for axis, extent in enumerate(shape):
            if extent > 1 and axis not in steps:
                raise NotDigitsError(f"lanes along axis {axis} of the tile access one element")
        digits = []
        for axis, step in steps.items():
            digits.append(self._lane_digit(access, axis, shape[axis], step, coefficients))
        for (kind, of), coefficient in coefficients.items():
            digits.append(Digit(coefficient, self._reach((kind, of)), ((kind, of),)))
        return DigitAddress(rest, frozenset(programs), tuple(digits))

    def of_offset(self, offset: Value, axis: int, extent: int) -> DigitAddress:
        """Return the coordinates of a block along an axis of a tensor.

        Args:
            offset: the first.
            extent: the number of them.

        Raises:
            NotDigitsError: the offset is no sum of variables.
        """
        form = self._affine.form(offset)
        if form is None:
            raise NotDigitsError("an offset of its block is not affine")
        rest, coefficients = self._split(form)
        programs = [(of, c) for (_, of), c in coefficients.items() if isinstance(of, int)]
        digits = [
            Digit(coefficient, self._reach(variable), (variable,))
            for variable, coefficient in coefficients.items()
        ]
        if extent > 1:
            digits.insert(0, Digit(ONE, Polynomial.number(extent), (("lane", axis),)))
        return DigitAddress(rest, frozenset(programs), tuple(digits))

    def row_major(
        self, shape: Sequence[Value], strides: Sequence[Value]
    ) -> tuple[ScalarCondition, ...]:
        """Return the conditions under which the elements of a tensor do not overlap, as rows.

        Raises:
            NotDigitsError: they do, or its sizes are no numbers that a launch knows.
        """
        extents, steps = ([self._scalar(value) for value in values] for values in (shape, strides))
        needs = [ONE, *(extents[k].times(steps[k]) for k in range(len(steps) - 1, 0, -1))]
        found = []
        for step, needed in zip(reversed(steps), needs, strict=True):
            difference = step.minus(needed).constant
            if difference is None:
                found.append(self._condition(step, needed))
            elif difference < 0:
                raise NotDigitsError("elements of its descriptor overlap")
        return tuple(found)

    def _scalar(self, value: Value) -> Polynomial:
        form = self._affine.form(value)
        if form is None:
            raise NotDigitsError("its address depends on what was computed or loaded")
        for number in form.start.unknowns():
            self._require_scalar(self._affine.atom(number))
        return form.start

    def _reach(self, variable: Variable) -> Polynomial | None:
        """Return the exclusive limit of a place or an iteration; None where it is not known."""
        kind, of = variable
        if not isinstance(of, For):
            return self._affine.unknown(kind.replace("program_id", "num_programs"), of)
        limit = trip_limit(self._affine, of)
        return None if limit is None else Polynomial.number(limit)

    def _split(self, form: Form) -> tuple[Polynomial, dict[Variable, Polynomial]]:
        """Split the uniform part of an address by variable."""
        coefficients: dict[Variable, Polynomial] = {}
        rest = ZERO
        for monomial, factor in without_exact_quotients(self._affine, form.start).terms:
            moving = [n for n in monomial if self._affine.atom(n).kind in _VARIABLES]
            if len(moving) > 1:
                raise NotDigitsError("its address multiplies places in the grid")
            others = tuple(n for n in monomial if n not in moving)
            if moving or not all(is_uniform(self._affine, number) for number in others):
                for number in others:
                    self._require_scalar(self._affine.atom(number))
            term = Polynomial.of({others: factor})
            if moving:
                atom = self._affine.atom(moving[0])
                key = (atom.kind, atom.of[0])
                coefficients[key] = coefficients.get(key, ZERO).plus(term)
            else:
                rest = rest.plus(term)
        return rest, {key: c for key, c in coefficients.items() if c.terms}

    def _require_scalar(self, atom: Atom) -> None:
        """Check that an unknown is an argument of the kernel, or the size of the grid."""
        if atom.kind == "num_programs":
            return
        if atom.kind == "value":
            if is_argument(atom.of[0]):
                return
            raise NotDigitsError("its address depends on what was computed or loaded")
        raise NotDigitsError("its address takes a number apart by a division, minimum or maximum")

    def _lane_digit(
        self,
        access: Load | Store | AtomicRmw,
        axis: int,
        extent: int,
        step: Polynomial,
        coefficients: dict[Variable, Polynomial],
    ) -> Digit:
        """Return the digit of a tile's axis.

        Where the mask limits the sum of the coordinate and a variable, ``pid * BLOCK + arange <
        n``, they are one digit, and the variable is removed from the coefficients.
        """
        for number in step.unknowns():
            self._require_scalar(self._affine.atom(number))
        ratios: list[tuple[int, Variable]] = []
        for key, coefficient in coefficients.items():
            ratio = _ratio(coefficient, step)
            if ratio is not None and ratio >= extent:
                ratios.append((ratio, key))
        for ratio, key in sorted(ratios, key=lambda entry: entry[0]):
            limit = self._masked(access, axis, self._affine.unknown(*key).scaled(ratio))
            if limit is not None:
                del coefficients[key]
                return Digit(step, limit, (("lane", axis), key))
        limit = self._masked(access, axis, ZERO)
        return Digit(step, limit or Polynomial.number(extent), (("lane", axis),))

    def _masked(
        self, access: Load | Store | AtomicRmw, axis: int, total: Polynomial
    ) -> Polynomial | None:
        """Return the scalar limit that the mask sets to a coordinate plus other variables."""
        if access.mask is None:
            return None
        for bound in self._affine.mask_bounds(access.mask):
            if bound is None or bound.axis != axis or bound.upper is None:
                continue
            limit = bound.upper.plus(total)
            try:
                for number in limit.unknowns():
                    self._require_scalar(self._affine.atom(number))
            except NotDigitsError:
                continue
            return limit
        return None

    # ---- orders

    def alternatives(self, found: Sequence[DigitAddress]) -> list[tuple[ScalarCondition, ...]]:
        """Return the conditions under which no two programs access one element."""
        first = found[0]
        rests = [address.rest.minus(first.rest).constant for address in found]
        if any(rest is None for rest in rests) or any(
            address.structure != first.structure for address in found
        ):
            return []
        constants = [rest for rest in rests if rest is not None]
        return self.orders(first.digits, max(constants) - min(constants), "program_id")

    def orders(
        self, digits: Sequence[Digit], spread: int = 0, moving: str = ""
    ) -> list[tuple[ScalarCondition, ...]]:
        """Return the conditions of each order in which the digits are those of a number.

        Args:
            spread: by how much constants are added to the address in several accesses.
            moving: kind of variables that must be above what ``spread`` blurs.

        Returns:
            alternatives, those with the fewest conditions first; empty where there is none.
        """
        if len(digits) > _MOST_DIGITS:
            return []
        found: list[tuple[ScalarCondition, ...]] = []
        ascending = sorted(digits, key=lambda digit: (digit.step.constant is None, _size(digit)))
        for order in permutations(ascending):
            conditions = self._conditions(order, spread, moving)
            if conditions is not None and conditions not in found:
                found.append(conditions)
        return sorted(found, key=len)

    def _conditions(
        self, order: Sequence[Digit], spread: int, moving: str
    ) -> tuple[ScalarCondition, ...] | None:
        needed: dict[ScalarCondition, None] = {}
        if not order:
            return None if spread else ()
        lowest = order[0]
        if spread and (lowest.step != ONE or any(kind == moving for kind, _ in lowest.variables)):
            return None
        if lowest.step.constant is None:
            needed[self._condition(lowest.step, ONE)] = None
        elif lowest.step.constant < 1:
            return None
        for place, (low, high) in enumerate(pairwise(order)):
            if low.reach is None:
                return None
            needs = low.step.times(low.reach)
            if place == 0:
                needs = needs.plus(Polynomial.number(spread))
            difference = high.step.minus(needs)
            if difference.constant is None:
                needed[self._condition(high.step, needs)] = None
            elif difference.constant < 0:
                return None
        return tuple(needed)

    def _condition(self, high: Polynomial, low: Polynomial) -> ScalarCondition:
        terms = tuple(
            (factor, tuple(self._name(number) for number in monomial))
            for monomial, factor in high.minus(low).terms
        )
        return ScalarCondition(terms, f"{self._text(high)} >= {self._text(low)}")

    def _name(self, number: int) -> str:
        atom = self._affine.atom(number)
        of = atom.of[0]
        return of.name if isinstance(of, Value) else f"{atom.kind}({of})"

    def _text(self, polynomial: Polynomial) -> str:
        texts = []
        for monomial, factor in polynomial.terms:
            number = [] if factor == 1 and monomial else [str(factor)]
            texts.append(" * ".join([*number, *map(self._name, monomial)]))
        return " + ".join(texts) or "0"


_VARIABLES = frozenset(("program_id", "iteration"))


def _ratio(a: Polynomial, b: Polynomial) -> int | None:
    """Return ``a / b`` where that is a number."""
    quotient = a.divided(b)
    return None if quotient is None else quotient.constant


def _size(digit: Digit) -> int:
    return digit.step.constant or 0


def loops_around(operation: Operation) -> list[For]:
    """Return the ``for`` loops around an operation."""
    return [around for around in operation.ancestors() if isinstance(around, For)]
