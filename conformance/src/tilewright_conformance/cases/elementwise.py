"""Elementwise arithmetic: every operation over its dtypes and shapes, as Tile IR, against the reference interpreter.

The samples are those of ``tilewright.testing.op_samples``; math functions, whose results are not exact, have a family of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.ir.types import FloatType
from tilewright.testing.op_samples import Sample, samples
from tilewright_conformance.case import Case
from tilewright_conformance.needs import needs_of
from tilewright_conformance.session import Session

#: The operations, and whether the sign of a zero result is settled: of two zeros of different signs, min and max may give either.
OPERATIONS: dict[str, bool] = {
    **dict.fromkeys(("constant", "arange", "program_id", "num_programs"), True),
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "neg", "abs", "fma"), True),
    **dict.fromkeys(("and", "or", "xor", "shl", "shr", "mulhi", "clz", "popcount"), True),
    **dict.fromkeys(("min", "max"), False),
    **dict.fromkeys(("cmp", "select", "floor", "ceil", "round_even", "trunc", "sqrt", "copysign", "ldexp"), True),
}


def cases() -> Iterator[Case]:
    for operation, zero_sign in OPERATIONS.items():
        for index, sample in enumerate(samples(operation)):
            yield Case(
                f"elementwise/{sample.name}",
                profile="core",
                subject=operation,
                run=functools.partial(_run, sample, zero_sign),
                needs=needs_of(sample.module),
                quick=index % 4 == 0,
                source="the reference interpreter",
            )


def _run(sample: Sample, zero_sign: bool, session: Session) -> None:
    seed = int(session.rng.integers(1 << 62))
    expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(2))
    session.run_reference(sample.module, expected, sample.grid)
    session.run_module(sample.module, found, sample.grid)
    for position in sample.outputs:
        argument = sample.arguments[position]
        first, second = (_array(values[position]) for values in (expected, found))
        signed = zero_sign and isinstance(argument.type, FloatType)
        session.check(second, first, ulp=sample.ulp, type_=argument.type, zero_sign=signed, name=f"argument {position}")


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value if isinstance(value, np.ndarray) else value.base
