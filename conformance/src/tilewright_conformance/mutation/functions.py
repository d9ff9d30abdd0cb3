"""Bugs of mathematical functions and of random numbers."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import Builder, Operation, Value
from tilewright.ir.types import F32
from tilewright.passes.rewriter import constant_of
from tilewright_conformance.mutation.mutant import Switch, rewriting
from tilewright_conformance.mutation.rewriting import again, element, like


def _64_ulp_off(operation: Operation, b: Builder) -> Any:
    value = again(operation, b).result
    return b.mul(
        value, like(b, value, 1.0 + 64 * (2.0**-23 if element(value) is F32 else 2.0**-52))
    )


def _poorly_reduced(operation: Operation, b: Builder) -> Any:
    """The argument less a multiple of 2 pi, in the precision at hand."""
    (x,) = operation.operands
    turns = b.round_even(b.mul(x, like(b, x, 1 / (2 * math.pi))))
    return getattr(b, operation.name)(b.sub(x, b.mul(turns, like(b, x, 2 * math.pi))))


def _saturating_early(operation: Operation, b: Builder) -> Any:
    (x,) = operation.operands
    one = b.copysign(like(b, x, 1.0), x)
    return b.select(
        b.cmp(b.abs(x), like(b, x, 3.5 if operation.name == "erf" else 7.0), predicate="gt"),
        one,
        again(operation, b).result,
    )


def _from_reciprocal_root(operation: Operation, b: Builder) -> Any:
    (x,) = operation.operands
    return b.select(b.cmp(x, like(b, x, 0.0), predicate="eq"), x, b.mul(x, b.rsqrt(x)))


def _halves_away(operation: Operation, b: Builder) -> Any:
    (x,) = operation.operands
    return b.copysign(b.floor(b.add(b.abs(x), like(b, x, 0.5))), x)


def _towards_zero(operation: Operation, b: Builder) -> Any:
    return b.trunc(operation.operands[0])


#: The multipliers of Philox-4x, which tell its rounds from other multiplications.
_MULTIPLIERS = frozenset({0xD2511F53, 0xCD9E8D57, 0xD2E7470EE14C6C93, 0xCA5A826395121157})


def _factor(operation: Operation) -> Value | None:
    """Return the operand that a Philox round multiplies by its constant, else None."""
    if operation.name in ("mul", "mulhi"):
        for multiplier, factor in (operation.operands, reversed(operation.operands)):
            number = constant_of(multiplier)
            if isinstance(number, int) and number in _MULTIPLIERS:
                return factor
    return None


def _leads_to_round(operation: Operation) -> bool:
    """Return whether another round reads the operation's result, directly or not."""
    pending, seen = list(operation.result.uses), set()
    while pending:
        reader = pending.pop()
        if reader in seen:
            continue
        seen.add(reader)
        if _factor(reader) is not None:
            return True
        for result in reader.results:
            pending.extend(result.uses)
    return False


def _last_round_missing(operation: Operation, b: Builder) -> Any:
    factor = _factor(operation)
    return factor if factor is not None and not _leads_to_round(operation) else None


SWITCHES: tuple[Switch, ...] = (
    rewriting(
        "exponential-inaccurate",
        "inaccurate function",
        "exp exp2",
        _64_ulp_off,
        "exp and exp2 are 64 ULP too large",
    ),
    rewriting(
        "logarithm-inaccurate",
        "inaccurate function",
        "log log2",
        _64_ulp_off,
        "log and log2 are 64 ULP too large",
    ),
    rewriting(
        "sine-poorly-reduced",
        "inaccurate function",
        "sin cos",
        _poorly_reduced,
        "sin and cos reduce their argument in working precision",
    ),
    rewriting(
        "tanh-saturates-early",
        "inaccurate function",
        "tanh erf",
        _saturating_early,
        "tanh and erf are 1 from 7 and 3.5 on",
    ),
    rewriting(
        "root-approximate",
        "wrong rounding",
        "sqrt",
        _from_reciprocal_root,
        "sqrt(x) computed as x * rsqrt(x)",
    ),
    rewriting(
        "round-half-away",
        "wrong rounding",
        "round_even",
        _halves_away,
        "halves are rounded away from zero",
    ),
    rewriting(
        "floor-truncates", "wrong rounding", "floor", _towards_zero, "floor rounds towards zero"
    ),
    rewriting(
        "philox-round-missing",
        "random numbers",
        "mul mulhi",
        _last_round_missing,
        "the last round of Philox does not multiply",
    ),
)
