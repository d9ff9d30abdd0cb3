"""Affine analysis: addresses, offsets and bounds of tiles as sums along their axes.

A tile's element at the coordinates (i, j, ...) is ``base + start + i * step_i + j * step_j + ...``.
Base is an argument of the kernel, where the tile is one of pointers; start and steps are the same
for all elements: polynomials over what the program knows of itself, which are arguments, its place
in the grid, iterations of loops, and whatever else is computed on scalars. What loops carry and add
to in each iteration is solved for the iteration.

Index arithmetic is taken not to overflow its type where that is signed. As in :mod:`.axis`,
addresses are taken not to be made of negative remainders, and in the same way the divisors of what
they are made of are taken to be positive.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

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
from tilewright.ir.ops.control import For
from tilewright.ir.ops.debug import Assume, Hint
from tilewright.ir.ops.shape import Moved
from tilewright.ir.types import I1, IntType, PointerType, TileType, element_type
from tilewright.passes.analysis.affine_forms import ONE, ZERO, CoordinateBound, Form, Wrapped
from tilewright.passes.analysis.axis import AxisInfo, axis_info
from tilewright.passes.analysis.axis_info import power_of_two_in
from tilewright.passes.analysis.mask_conjuncts import conjuncts
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.analysis.transfer_functions import Domain, moved_axes
from tilewright.passes.rewriter import constant_of

#: Terms of a polynomial beyond which a value is taken as it is.
_MOST_TERMS: Final = 48


@dataclass(frozen=True, slots=True)
class Atom:
    """Unknown of polynomials.

    Attributes:
        kind: ``value`` of a scalar, ``iteration`` of a loop (counted from 0), ``program_id`` and
            ``num_programs`` of an axis, or ``div``, ``rem``, ``min``, ``max`` of two polynomials.
        of: the scalar, loop, axis or operands.
    """

    kind: str
    of: tuple[Any, ...]


class Affine(Domain[Form | None]):
    """Affine forms of a function's values, computed on demand.

    The function must not change in between.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._atoms: list[Atom] = []
        self._numbers: dict[Atom, int] = {}
        self._forms: dict[Value, Form | None] = {}
        self._solving: set[Value] = set()
        #: polynomial -> scalars that equal it
        self._scalars: dict[Polynomial, list[Value]] = {}
        #: assumed divisors of polynomials, and polynomials assumed to be nonnegative
        self._divisors: dict[Polynomial, int] = {}
        self._assumed: list[Polynomial] | None = None

    @functools.cached_property
    def known(self) -> dict[Value, AxisInfo]:
        """Axis analysis of the function."""
        return axis_info(self.function)

    # ---- unknowns

    def atom(self, number: int) -> Atom:
        """Return the unknown with an index."""
        return self._atoms[number]

    def scalars(self, polynomial: Polynomial) -> Sequence[Value]:
        """Return the scalars of the function that equal a polynomial."""
        return self._scalars.get(polynomial, ())

    def unknown(self, kind: str, *of: Any, value: Value | None = None) -> Polynomial:
        """Return an unknown as a polynomial; record that ``value`` equals it."""
        atom = Atom(kind, of)
        number = self._numbers.get(atom)
        if number is None:
            number = self._numbers[atom] = len(self._atoms)
            self._atoms.append(atom)
        found = Polynomial.unknown(number)
        if value is not None:
            self._is(value, found)
        return found

    def _is(self, value: Value, polynomial: Polynomial) -> None:
        known = self._scalars.setdefault(polynomial, [])
        if value not in known:
            known.append(value)

    def varies(self, polynomial: Polynomial, loop: Operation) -> bool:
        """Return whether a polynomial may vary between iterations of a loop, or is local to it."""
        return any(self._atom_varies(self._atoms[number], loop) for number in polynomial.unknowns())

    def _atom_varies(self, atom: Atom, loop: Operation) -> bool:
        if atom.kind == "value":
            return is_inside(atom.of[0], loop)
        if atom.kind == "iteration":
            return atom.of[0] is loop or loop in atom.of[0].ancestors()
        return any(self.varies(part, loop) for part in atom.of if isinstance(part, Polynomial))

    # ---- what is known of polynomials

    def is_nonnegative(self, polynomial: Polynomial) -> bool:
        """Return whether a polynomial is known, or assumed, to be nonnegative."""
        if all(
            factor > 0 and all(self._atom_nonnegative(self._atoms[number]) for number in monomial)
            for monomial, factor in polynomial.terms
        ):
            return True
        return any(self._is_multiple(polynomial, known) for known in self._hinted())

    def _atom_nonnegative(self, atom: Atom) -> bool:
        if atom.kind == "value":
            (value,) = atom.of
            return value in self.known and self.known[value].nonnegative
        if atom.kind in ("div", "rem"):
            divided, divisor = atom.of
            return self.is_nonnegative(divided) and (
                atom.kind == "rem" or divisor.constant is None or divisor.constant > 0
            )
        if atom.kind == "min":
            return all(map(self.is_nonnegative, atom.of))
        if atom.kind == "max":
            return any(map(self.is_nonnegative, atom.of))
        return True

    def _is_multiple(self, polynomial: Polynomial, known: Polynomial) -> bool:
        """Return whether a polynomial is a positive multiple of ``known`` plus terms >= 0."""
        if not known.terms:
            return False
        monomial, factor = known.terms[-1]
        there = dict(polynomial.terms).get(monomial, 0)
        if there <= 0 or factor <= 0 or there % factor:
            return False
        rest = polynomial.plus(known, -(there // factor))
        return all(
            factor > 0 and all(self._atom_nonnegative(self._atoms[number]) for number in monomial)
            for monomial, factor in rest.terms
        )

    def _hinted(self) -> list[Polynomial]:
        """Polynomials that assumptions state to be nonnegative wherever they are defined."""
        if self._assumed is None:
            self._assumed = []
            for operation in self.function.walk():
                found = self.promise(operation.condition) if isinstance(operation, Assume) else None
                if found is not None and all(
                    isinstance(outer, For) and self.varies(found, outer)
                    for outer in operation.ancestors()
                ):
                    self._assumed.append(found)
        return self._assumed

    def promise(self, condition: Value) -> Polynomial | None:
        """Return the polynomial that a true scalar comparison proves nonnegative, if known."""
        operation = condition.definition
        if not isinstance(operation, Cmp) or isinstance(condition.type, TileType):
            return None
        difference = self._difference(operation)
        if difference is None or not difference.is_uniform:
            return None
        # lt: difference < 0
        sign, add = {"lt": (-1, -1), "le": (-1, 0), "gt": (1, -1), "ge": (1, 0)}.get(
            operation.predicate, (0, 0)
        )
        return difference.start.scaled(sign).plus(Polynomial.number(add)) if sign else None

    def divisor(self, polynomial: Polynomial) -> int:
        """Return a power of two that divides a polynomial."""
        found = power_of_two_in(0)
        for monomial, factor in polynomial.terms:
            divisor = power_of_two_in(factor)
            for number in monomial:
                divisor *= max(
                    (
                        self.known[value].divisibility_of_all()
                        for value in self.scalars(Polynomial.unknown(number))
                        if value in self.known
                    ),
                    default=1,
                )
            found = min(found, divisor)
        return max(found, self._divisors.get(polynomial, 1))

    # ---- forms

    def form(self, value: Value) -> Form | None:
        """Return the form of an integer, pointer, or tile of them; None if it has none.

        Every signed scalar integer has one.
        """
        work = [value]
        while work:  # operands first, for expressions may be deep
            operation = work[-1].definition
            rest = (
                [operand for operand in self._sources(operation) if operand not in self._forms]
                if operation is not None
                else []
            )
            if work[-1] in self._forms or not rest:
                self._note(work.pop())
            else:
                work += rest
        return self._forms[value]

    def _sources(self, operation: Operation) -> Sequence[Value]:
        """Operands from whose forms those of the results are computed."""
        return operation.operands if operation.name in self.rules else operation.forwarded

    def _note(self, value: Value) -> None:
        if value in self._forms:
            return
        found = self._find(value)
        if found is None or any(len(part.terms) > _MOST_TERMS for part in found.polynomials()):
            found = self._itself(value)
        elif isinstance(value.type, TileType):
            # an axis of one element has the coordinate 0 alone
            shape = value.type.shape
            kept = tuple(
                (key, step)
                for key, step in found.steps
                if isinstance(key, Wrapped) or shape[key] > 1
            )
            found = Form(found.base, found.start, kept) if len(kept) < len(found.steps) else found
        elif found.is_uniform:
            self._is(value, found.start)
        self._forms[value] = found

    def number(self, value: Value) -> Polynomial:
        """Return a scalar integer as a polynomial."""
        found = self.form(value)
        return found.start if found is not None else self.unknown("value", value, value=value)

    def _itself(self, value: Value) -> Form | None:
        """Return the form of an opaque scalar: an unknown, or a base of addresses."""
        if isinstance(value.type, PointerType):
            return Form(value, ZERO)
        return (
            Form(None, self.unknown("value", value, value=value))
            if _is_number(value) and not isinstance(value.type, TileType)
            else None
        )

    def _find(self, value: Value) -> Form | None:
        element = element_type(value.type)
        if not isinstance(element, IntType | PointerType) or element is I1:
            return None
        if isinstance(value.owner, Region):
            return self._argument(value, value.owner)
        operation = value.owner
        if (
            isinstance(element, IntType)
            and not element.signed
            and operation.spec.elementwise
            and not isinstance(operation, Hint | Cast | Bitcast)
        ):
            return None  # unsigned arithmetic may wrap around
        if operation.name in self.rules:
            return self.transfer(
                operation, [self._forms[operand] for operand in operation.operands]
            )
        return self._forms[operation.forwarded[value.index]] if operation.spec.forwards else None

    def _argument(self, value: Value, region: Region) -> Form | None:
        loop = region.owner
        if isinstance(loop, Function):
            return Form(value, ZERO) if isinstance(value.type, PointerType) else None
        if not isinstance(loop, For):
            return None
        if value is region.arguments[0]:
            lower, step = self.number(loop.lower), self.number(loop.step)
            return Form(None, lower.plus(self.unknown("iteration", loop).times(step)))
        if value in self._solving:
            return self._itself(value) or Form(value, ZERO)
        return self._carried(value, region, loop)

    def _carried(self, value: Value, region: Region, loop: For) -> Form | None:
        """Return the form of a loop-carried value with a constant increment per iteration."""
        position = value.index - 1
        assert region.last is not None
        saved, self._forms = self._forms, dict(self._forms)
        self._solving.add(value)
        here, following = self.form(value), self.form(region.last.operands[position])
        self._solving.discard(value)
        self._forms = saved
        start = self.form(loop.inits[position])
        if here is None or following is None or start is None or following.base is not here.base:
            return None
        added = Form(None, following.start, following.steps).plus(
            Form(None, here.start, here.steps), Polynomial.number(-1)
        )
        if added is None or any(self.varies(part, loop) for part in added.polynomials()):
            return None
        return start.plus(added, self.unknown("iteration", loop))

    # ---- bounds

    def mask_bounds(self, mask: Value) -> list[CoordinateBound | None]:
        """Return the bounds whose conjunction is a mask; None stands for any other condition."""
        found: list[CoordinateBound | None] = []
        for conjunct in conjuncts(mask):
            comparison = conjunct.condition.definition
            if isinstance(comparison, Cmp):
                bounds = self._compared(comparison)
                found += [_moved_bound(bound, conjunct.moves) for bound in bounds]
            elif constant_of(conjunct.condition) is not True:
                found.append(None)
        return found

    def _difference(self, operation: Cmp) -> Form | None:
        """Return the difference of the operands of a signed integer comparison."""
        a, b = operation.a, operation.b
        element = element_type(a.type)
        if not isinstance(element, IntType) or not element.signed or element is I1:
            return None
        left, right = self.form(a), self.form(b)
        return (
            left.plus(right, Polynomial.number(-1))
            if left is not None and right is not None
            else None
        )

    def _compared(self, operation: Cmp) -> list[CoordinateBound | None]:
        difference, predicate = self._difference(operation), operation.predicate
        if difference is None or predicate not in ("lt", "le", "gt", "ge"):
            return [None]
        start, steps = difference.start, difference.steps
        if predicate in ("gt", "ge"):
            flipped = difference.times(Polynomial.number(-1))
            assert flipped is not None
            start, steps = flipped.start, flipped.steps
        if predicate in ("le", "ge"):
            start = start.minus(ONE)
        # now: start + steps < 0
        if not steps:
            return (
                []
                if start.constant is not None and start.constant < 0
                else [CoordinateBound(None, upper=start.scaled(-1))]
            )
        (key, step), *others = steps
        if others:
            return [None]
        if isinstance(key, Wrapped):
            return (
                [] if key.nonnegative and step == ONE and start == key.extent.scaled(-1) else [None]
            )
        if step == ONE:
            return [CoordinateBound(key, upper=start.scaled(-1))]
        return [CoordinateBound(key, lower=start.plus(ONE))] if step.constant == -1 else [None]

    # ---- operations

    def transfer(self, operation: Operation, facts: Sequence[Form | None]) -> Form | None:
        needed = facts[1:2] if isinstance(operation, Select) else facts
        return None if any(form is None for form in needed) else super().transfer(operation, facts)

    def opaque(self, operation: Operation, facts: Sequence[Form | None]) -> Form | None:
        return None

    def constant(self, operation: Constant) -> Form:
        return Form(None, Polynomial.number(int(operation.value)))

    def arange(self, operation: Arange) -> Form:
        return Form(None, Polynomial.number(operation.start), ((0, ONE),))

    def grid(self, operation: ProgramId | NumPrograms) -> Form:
        return Form(None, self.unknown(operation.name, operation.axis, value=operation.result))

    def sum(
        self, operation: Binary | Addptr, a: Form | None, b: Form | None, sign: int
    ) -> Form | None:
        assert a is not None and b is not None
        return a.plus(b, Polynomial.number(sign))

    def multiple(self, operation: Operation, x: Form | None, factor: int) -> Form | None:
        assert x is not None
        return x.times(Polynomial.number(factor))

    def product(self, operation: Binary, a: Form | None, b: Form | None) -> Form | None:
        assert a is not None and b is not None
        for factor, other in ((a, b), (b, a)):
            if factor.is_uniform:
                return other.times(factor.start)
        return None

    def quotient(self, operation: Binary, a: Form | None, b: Form | None) -> Form | None:
        """Return an unknown for a non-polynomial function of uniform operands.

        Equal operands share the unknown.
        """
        assert a is not None and b is not None
        if not (a.is_uniform and b.is_uniform):
            return None
        scalar = operation.result if not isinstance(operation.result.type, TileType) else None
        return Form(None, self.unknown(operation.name, a.start, b.start, value=scalar))

    def remainder(self, operation: Binary, a: Form | None, b: Form | None) -> Form | None:
        assert a is not None and b is not None
        found = self.quotient(operation, a, b)
        return _wrapped(a, b.start, nonnegative=True) if found is None and b.is_uniform else found

    def extreme(self, operation: Extremum, a: Form | None, b: Form | None) -> Form | None:
        assert a is not None and b is not None
        x, last = (a, b) if b.is_uniform else (b, a)
        found = self.quotient(operation, a, b)
        return (
            _wrapped(x, last.start.plus(ONE))
            if found is None and operation.name == "min" and last.is_uniform
            else found
        )

    def choice(
        self, operation: Select, condition: Form | None, a: Form | None, b: Form | None
    ) -> Form | None:
        """Return a form with modular coordinates for a select at a bound."""
        bounds = self.mask_bounds(operation.condition)
        if (
            a is None
            or len(bounds) != 1
            or bounds[0] is None
            or bounds[0].axis is None
            or bounds[0].upper is None
        ):
            return None
        return _wrapped(a, a.start.plus(bounds[0].upper), axis=bounds[0].axis)

    def cast(self, operation: Cast, x: Form | None) -> Form | None:
        return self._in_type(operation, x)

    def bitcast(self, operation: Bitcast, x: Form | None) -> Form | None:
        return self._in_type(operation, x)

    def _in_type(self, operation: Cast | Bitcast, x: Form | None) -> Form | None:
        """Return a form in another type if that represents the same numbers."""
        source, result = element_type(operation.x.type), element_type(operation.result.type)
        if (
            x is None
            or not isinstance(source, IntType)
            or not isinstance(result, IntType)
            or source is I1
            or result.bits < source.bits
        ):
            return None
        if source.signed:
            # an unsigned type represents nonnegative numbers
            return (
                x
                if result.signed
                or (operation.x in self.known and self.known[operation.x].nonnegative)
                else None
            )
        # an unsigned value with a form has not wrapped around; a signed type of as many bits
        # may not represent it
        return x if result.bits > source.bits or not result.signed else None

    def moved(self, operation: Moved, x: Form | None) -> Form | None:
        axes = moved_axes(operation)
        return x.along(axes) if x is not None and axes is not None else None

    def hinted(self, operation: Hint, x: Form | None) -> Form | None:
        hinted = operation.divisibility
        if x is not None and x.is_uniform and hinted:
            known = self._divisors.get(x.start, 1)
            self._divisors[x.start] = max(known, power_of_two_in(hinted[0]))
        return x


def is_inside(value: Value, loop: Operation) -> bool:
    """Return whether a value is defined in a loop's body."""
    owner = value.owner.owner if isinstance(value.owner, Region) else value.owner
    if not isinstance(owner, Operation):
        return False
    return loop in owner.ancestors() or (owner is loop and isinstance(value.owner, Region))


def _wrapped(
    x: Form, extent: Polynomial, *, axis: int | None = None, nonnegative: bool = False
) -> Form | None:
    if x.base is not None or len(x.steps) != 1:
        return None
    ((key, step),) = x.steps
    if step != ONE or not isinstance(key, int) or axis not in (None, key):
        return None
    return Form(None, ZERO, ((Wrapped(key, x.start, extent, nonnegative), ONE),))


def _moved_bound(bound: CoordinateBound | None, moves: Sequence[Moved]) -> CoordinateBound | None:
    """Return a bound on the coordinates that elements are moved to, the last move first."""
    if bound is None or bound.axis is None:
        return bound
    axis = bound.axis
    for move in reversed(moves):
        axes = moved_axes(move)
        if axes is None:
            return None
        axis = axes(axis)
    return CoordinateBound(axis, bound.upper, bound.lower)


def _is_number(value: Value) -> bool:
    element = element_type(value.type)
    return isinstance(element, IntType) and element is not I1


__all__ = ["Affine", "Atom", "is_inside"]
