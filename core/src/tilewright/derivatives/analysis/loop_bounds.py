"""Bounds of loops as polynomials, for addresses and the numbers of iterations."""

from __future__ import annotations

from tilewright.derivatives.analysis.addresses import is_argument
from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Extremum
from tilewright.ir.ops.control import For
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.affine_forms import ZERO
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.rewriter import constant_of


def trip_limit(affine: Affine, loop: For) -> int | None:
    """Return a number of iterations that a loop never exceeds; None where none is known.

    Bounds that move together, as those of ``range(start, min(start + 64, n), 16)``, have a known
    distance.
    """
    step = constant_of(loop.step)
    if not isinstance(step, int) or step <= 0:
        return None
    lower = without_exact_quotients(affine, affine.number(loop.lower))
    limits = []
    for upper in map(affine.number, _minima(loop.upper)):
        distance = without_exact_quotients(affine, upper).minus(lower).constant
        if distance is not None:
            limits.append(max(0, -(-distance // step)))
    return min(limits, default=None)


def _minima(value: Value) -> list[Value]:
    """Return the values of which a value is the minimum."""
    operation = value.definition
    if isinstance(operation, Extremum) and operation.name == "min":
        return [part for operand in operation.operands for part in _minima(operand)]
    return [value]


def without_exact_quotients(affine: Affine, polynomial: Polynomial) -> Polynomial:
    """Return a polynomial with ``64 * p // 16`` written as ``4 * p``."""
    found = ZERO
    for monomial, factor in polynomial.terms:
        term = Polynomial.number(factor)
        for number in monomial:
            term = term.times(_expanded(affine, number))
        found = found.plus(term)
    return found


def _expanded(affine: Affine, number: int) -> Polynomial:
    atom = affine.atom(number)
    if atom.kind == "div":
        divided, divisor = (without_exact_quotients(affine, part) for part in atom.of)
        by = divisor.constant
        if by and all(factor % by == 0 for _, factor in divided.terms):
            return Polynomial.of({monomial: factor // by for monomial, factor in divided.terms})
    return Polynomial.of({(number,): 1})


def is_uniform(affine: Affine, number: int) -> bool:
    """Return whether an unknown is the same in all programs and iterations.

    That is, it is computed from scalar arguments of the kernel and the size of the grid.
    """
    atom = affine.atom(number)
    if atom.kind == "value":
        return is_argument(atom.of[0])
    return atom.kind == "num_programs" or (
        atom.kind in ("div", "rem", "min", "max")
        and all(is_uniform(affine, inner) for part in atom.of for inner in part.unknowns())
    )


__all__ = ["is_uniform", "trip_limit", "without_exact_quotients"]
