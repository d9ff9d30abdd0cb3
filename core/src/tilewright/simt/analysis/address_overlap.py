"""Overlap of two global memory accesses, by their affine addresses.

Addresses are affine forms (:mod:`tilewright.passes.analysis.affine`). Two tiles in one argument's
memory overlap if an equation has an integer solution:

    start + i * step_i + j * step_j + ...  =  start' + i' * step'_i + j' * step'_j + ...

with coordinates within the tiles. For example, ``p + 64 * i + j`` and ``p + 64 * i + j + 32`` do
not overlap for 32 columns j, but do for 64. For accesses in different iterations of a loop, the
iteration numbers differ by any number but 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import For
from tilewright.ir.types import shape_of
from tilewright.passes.analysis.affine import Affine, is_inside
from tilewright.passes.analysis.affine_forms import ONE, ZERO, Form
from tilewright.passes.analysis.polynomials import Polynomial, total

#: Maximum number of candidate solutions; beyond it two tiles are assumed to overlap.
_TRIALS: Final = 512

#: A term of an equation: its factor, and the minimum and the maximum number that it is multiplied
#: with.
Term = tuple[int, float, float]


class AddressOverlap:
    """Overlap queries on the addresses of a function with layouts.

    ``loop`` is given where one of two accesses was in an iteration of it before, and the other is
    in a later one. Index arithmetic is taken not to overflow.
    """

    def __init__(self, function: Function) -> None:
        self._affine = Affine(function)
        self._apart: dict[
            tuple[Value, Value | None, Value, Value | None, Operation | None], bool
        ] = {}
        self._elementwise: dict[tuple[Value, Value, Operation | None], bool] = {}

    def are_elementwise(self, a: Value, b: Value, loop: Operation | None) -> bool:
        """Return whether two tiles of pointers have common addresses at equal coordinates only.

        Addresses that occur twice within one tile do not matter.
        """
        if a is b and loop is None:
            return True
        key = a, b, loop
        if key not in self._elementwise:
            self._elementwise[key] = self._find_elementwise(a, b, loop)
        return self._elementwise[key]

    def are_apart(
        self,
        a: Value,
        mask: Value | None,
        b: Value,
        other_mask: Value | None,
        loop: Operation | None,
    ) -> bool:
        """Return whether two masked tiles of pointers have no address in common."""
        key = a, mask, b, other_mask, loop
        if key not in self._apart:
            self._apart[key] = self._find_apart(a, b, loop) or (
                loop is None and self._are_apart_by_masks(a, mask, b, other_mask)
            )
        return self._apart[key]

    def _find_elementwise(self, a: Value, b: Value, loop: Operation | None) -> bool:
        form, other, shape = self._affine.form(a), self._affine.form(b), shape_of(a.type)
        if (
            form is None
            or other is None
            or shape != shape_of(b.type)
            or form.steps != other.steps
            or not self._have_one_base(form, other, loop)
        ):
            return False
        if loop is None and form.start == other.start:
            return True
        axes, (starts, target) = _terms(form, a, 1), self._starts(form, other, loop)
        if len(axes) < sum(extent > 1 for extent in shape):
            return False
        apart = [(factor, -most, most) for factor, _, most in axes]
        for place, (factor, _, most) in enumerate(axes):
            rest = [*starts, *apart[:place], *apart[place + 1 :]]
            if any(has_solution([*rest, (sign * factor, 1, most)], target) for sign in (1, -1)):
                return False
        return True

    def _find_apart(self, a: Value, b: Value, loop: Operation | None) -> bool:
        form, other = self._affine.form(a), self._affine.form(b)
        if form is None or other is None or not self._have_one_base(form, other, loop):
            return False
        if loop is None:
            form, other = _without_common_factor(form, other)
        terms = [*_terms(form, a, 1), *_terms(other, b, -1)]
        if len(terms) < len(form.steps) + len(other.steps):
            return False
        step = self._step(form, other, loop) if loop is not None else None
        if loop is None or step is None:
            starts, target = self._starts(form, other, loop)
            return not has_solution([*terms, *starts], target)
        difference = other.start.minus(form.start).constant
        assert difference is not None
        return not any(
            has_solution([*terms, (step, *range_)], difference)
            for range_ in ((1, math.inf), (-math.inf, -1))
        )

    def _step(self, form: Form, other: Form, loop: Operation) -> int | None:
        """Return the step per iteration of two forms that differ by a constant; None otherwise."""
        if not isinstance(loop, For):
            return None
        iteration = self._affine.unknown("iteration", loop)
        ((monomial, _),) = iteration.terms
        step = dict(form.start.terms).get(monomial, 0)
        fixed = form.start.plus(iteration, -step)
        return (
            None
            if self._affine.varies(fixed, loop) or other.start.minus(form.start).constant is None
            else step
        )

    def _starts(self, form: Form, other: Form, loop: Operation | None) -> tuple[list[Term], int]:
        """Return the difference of two starts as terms of any value, and the constant remainder."""
        first, second = dict(form.start.terms), dict(other.start.terms)
        factors = []
        for monomial in {**first, **second}:
            pieces = [first.get(monomial, 0), -second.get(monomial, 0)]
            if loop is None or not self._affine.varies(Polynomial(((monomial, 1),)), loop):
                pieces = [sum(pieces)]
            factors += [(monomial, factor) for factor in pieces if factor]
        target = -sum(factor for monomial, factor in factors if monomial == ())
        of = self._affine.divisor
        return [
            (math.lcm(factor, of(Polynomial(((monomial, factor),)))), -math.inf, math.inf)
            for monomial, factor in factors
            if monomial != ()
        ], target

    def _have_one_base(self, form: Form, other: Form, loop: Operation | None) -> bool:
        return form.base is other.base and not (
            loop is not None and form.base is not None and is_inside(form.base, loop)
        )

    def _are_apart_by_masks(
        self, a: Value, mask: Value | None, b: Value, other_mask: Value | None
    ) -> bool:
        """Return whether one tile begins where the other one's mask ends, or later: ``p + i`` for i
        < n, and ``p + n + i``."""
        form, other = self._affine.form(a), self._affine.form(b)
        if (
            form is None
            or other is None
            or not self._have_one_base(form, other, None)
            or form.steps != other.steps
            or len(form.steps) != 1
        ):
            return False
        ((key, step),) = form.steps
        if not isinstance(key, int) or step != ONE:
            return False
        distance = other.start.minus(form.start)
        return self._is_past(distance, key, a, mask) or self._is_past(
            distance.scaled(-1), key, b, other_mask
        )

    def _is_past(self, distance: Polynomial, axis: int, pointer: Value, mask: Value | None) -> bool:
        """Return whether coordinates of a tile are less than a distance."""
        bounds = self._affine.mask_bounds(mask) if mask is not None else []
        ends = [
            bound.upper
            for bound in bounds
            if bound is not None and bound.axis == axis and bound.upper is not None
        ]
        ends.append(Polynomial.number(shape_of(pointer.type)[axis]))
        return any(self._affine.is_nonnegative(distance.minus(end)) for end in ends)


def _terms(form: Form, pointer: Value, sign: int) -> list[Term]:
    """Terms of a form with constant steps."""
    shape = shape_of(pointer.type)
    return [
        (sign * factor, 0, shape[key] - 1)
        for key, step in form.steps
        if isinstance(key, int) and (factor := step.constant) is not None
    ]


def _without_common_factor(form: Form, other: Form) -> tuple[Form, Form]:
    """Divide two one-dimensional forms by their common unknown stride.

    Applies if the stride divides the difference of their starts. The stride is not 0, because then
    all stored elements would be at one address.
    """
    if len(form.steps) != 1 or len(other.steps) != 1 or form.steps[0][1] != other.steps[0][1]:
        return form, other
    ((key, step),), ((other_key, _),) = form.steps, other.steps
    quotients = [piece.divided(step) for piece in other.start.minus(form.start).pieces()]
    if step.constant is not None or None in quotients:
        return form, other
    divided = total(quotient for quotient in quotients if quotient is not None)
    return Form(form.base, ZERO, ((key, ONE),)), Form(other.base, divided, ((other_key, ONE),))


def has_solution(terms: Iterable[Term], target: int) -> bool:
    """Return whether a sum of terms may be ``target``; True if the search exceeds its limit.

    The search tries larger factors first, because the range of the remaining terms then leaves few
    candidates.
    """
    ordered = sorted(_merged([_positive(term) for term in terms if term[0]]), reverse=True)
    rests = [_Rest(ordered[place:]) for place in range(len(ordered) + 1)]
    pending, trials = [(0, target)], 0
    while pending:
        place, left = pending.pop()
        if not rests[place].may_be(left):
            continue
        if place == len(ordered):
            return True
        factor, minimum, most = ordered[place]
        rest = rests[place + 1]
        first = (
            minimum
            if rest.most == math.inf
            else max(minimum, math.ceil((left - rest.most) / factor))
        )
        last = (
            most
            if rest.minimum == -math.inf
            else min(most, math.floor((left - rest.minimum) / factor))
        )
        trials += 1
        if last - first + trials > _TRIALS:
            return True
        pending += (
            [(place + 1, left - factor * number) for number in range(int(first), int(last) + 1)]
            if first <= last
            else []
        )
        trials += max(0, int(last - first))
    return False


def _positive(term: Term) -> Term:
    """Return an equivalent term with a positive factor."""
    factor, minimum, most = term
    return term if factor > 0 else (-factor, -most, -minimum)


def _merged(terms: Sequence[Term]) -> list[Term]:
    """Merge unbounded terms into one: their sums are the multiples of their gcd."""
    free = math.gcd(
        *(factor for factor, minimum, most in terms if minimum == -math.inf and most == math.inf)
    )
    found = [(free, -math.inf, math.inf)] if free else []
    return [*found, *(term for term in terms if term[1:] != (-math.inf, math.inf))]


class _Rest:
    """Range and divisor of a sum of terms with positive factors."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.minimum = sum(factor * minimum for factor, minimum, _ in terms)
        self.most = sum(factor * most for factor, _, most in terms)
        self._divisor = math.gcd(*(factor for factor, _, _ in terms))

    def may_be(self, number: int) -> bool:
        divides = number % self._divisor == 0 if self._divisor else number == 0
        return divides and self.minimum <= number <= self.most


__all__ = ["AddressOverlap", "has_solution"]
