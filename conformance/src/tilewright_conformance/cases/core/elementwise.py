"""Elementwise arithmetic as Tile IR: every operation over its dtypes and shapes.

The reference interpreter has the expected values. Math functions, whose results are not exact, have
a family of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled

#: The operations, and whether the sign of a zero result is settled: of two zeros of different
#: signs, min and max may give either.
OPERATIONS: dict[str, bool] = {
    **dict.fromkeys(("constant", "arange", "program_id", "num_programs"), True),
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "neg", "abs", "fma"), True),
    **dict.fromkeys(("and", "or", "xor", "shl", "shr", "mulhi", "clz", "popcount"), True),
    **dict.fromkeys(("min", "max"), False),
    **dict.fromkeys(
        ("cmp", "select", "floor", "ceil", "round_even", "trunc", "sqrt", "copysign", "ldexp"), True
    ),
}


def cases() -> Iterator[Case]:
    yield from sampled("elementwise", "core", OPERATIONS)
