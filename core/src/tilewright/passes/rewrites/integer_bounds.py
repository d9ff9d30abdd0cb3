"""Laws of integers that are known to lie between bounds
(:mod:`tilewright.passes.analysis.intervals`), as counters of loops do."""

from __future__ import annotations

from typing import Any

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Binary, Cmp
from tilewright.passes.analysis.intervals import interval_of
from tilewright.passes.rewriter import Rewrite, Rewriter

#: predicate -> whether it holds for all, or for no, x of [a, b] and y of [c, d]; None where that
#: depends
_ORDERS = {
    "lt": lambda a, b, c, d: True if b < c else False if a >= d else None,
    "le": lambda a, b, c, d: True if b <= c else False if a > d else None,
    "gt": lambda a, b, c, d: True if a > d else False if b <= c else None,
    "ge": lambda a, b, c, d: True if a >= d else False if b < c else None,
    "eq": lambda a, b, c, d: False if b < c or d < a else True if a == b == c == d else None,
    "ne": lambda a, b, c, d: True if b < c or d < a else False if a == b == c == d else None,
}


def _compared(operation: Cmp, rewriter: Rewriter) -> Any:
    first, second = interval_of(operation.a), interval_of(operation.b)
    if first is None or second is None:
        return None
    answer = _ORDERS[operation.predicate](*first, *second)
    return None if answer is None else rewriter.constant_like(operation.result.type, answer)


def _divides_less(operation: Binary) -> bool:
    """Return whether what is divided is not negative, and less than the divisor."""
    divided, divisor = interval_of(operation.a), interval_of(operation.b)
    return (
        divided is not None and divisor is not None and divided[0] >= 0 and divided[1] < divisor[0]
    )


def _remainder(operation: Binary, rewriter: Rewriter) -> Value | None:
    return operation.a if _divides_less(operation) else None


def _quotient(operation: Binary, rewriter: Rewriter) -> Any:
    return rewriter.constant_like(operation.result.type, 0) if _divides_less(operation) else None


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(("rem",), "x % n = x where 0 <= x < n", _remainder),
    Rewrite(("div",), "x / n = 0 where 0 <= x < n", _quotient),
    Rewrite(("cmp",), "x < y where x <= a < b <= y, and so on", _compared),
)
