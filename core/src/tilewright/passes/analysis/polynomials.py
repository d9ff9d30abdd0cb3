"""Polynomials with integer coefficients over run-time scalars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

#: A product of unknowns, by number and in order, each as often as its power; the empty one is 1.
Monomial = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A sum of monomials times coefficients that are not zero, in the order of monomials: equal
    polynomials are equal objects."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @classmethod
    def of(cls, terms: Mapping[Monomial, int]) -> Polynomial:
        return cls(
            tuple(sorted((monomial, factor) for monomial, factor in terms.items() if factor))
        )

    @classmethod
    def number(cls, value: int) -> Polynomial:
        return cls((((), value),) if value else ())

    @classmethod
    def unknown(cls, number: int) -> Polynomial:
        return cls((((number,), 1),))

    @property
    def constant(self) -> int | None:
        """The number that it is; None where it has unknowns."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms[0][0] == () and len(self.terms) == 1 else None

    def unknowns(self) -> set[int]:
        return {unknown for monomial, _ in self.terms for unknown in monomial}

    def plus(self, other: Polynomial, factor: int = 1) -> Polynomial:
        """The sum with ``factor`` times another."""
        found = dict(self.terms)
        for monomial, coefficient in other.terms:
            found[monomial] = found.get(monomial, 0) + factor * coefficient
        return Polynomial.of(found)

    def minus(self, other: Polynomial) -> Polynomial:
        return self.plus(other, -1)

    def times(self, other: Polynomial) -> Polynomial:
        found: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right))
                found[monomial] = found.get(monomial, 0) + a * b
        return Polynomial.of(found)

    def scaled(self, factor: int) -> Polynomial:
        return Polynomial.of(
            {monomial: factor * coefficient for monomial, coefficient in self.terms}
        )

    def pieces(self) -> Iterator[Polynomial]:
        """Its terms, each alone."""
        return (Polynomial((term,)) for term in self.terms)

    def divided(self, divisor: Polynomial) -> Polynomial | None:
        """The quotient of two single terms, where it has no rest; None elsewhere."""
        if len(self.terms) != 1 or len(divisor.terms) != 1:
            return None
        ((monomial, factor),), ((taken, by),) = self.terms, divisor.terms
        rest = list(monomial)
        for unknown in taken:
            if unknown not in rest:
                return None
            rest.remove(unknown)
        return Polynomial.of({tuple(rest): factor // by}) if factor % by == 0 else None


def total(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum of all."""
    found = Polynomial()
    for polynomial in polynomials:
        found = found.plus(polynomial)
    return found
