"""Cases from the samples of Tile IR's operations (``tilewright.testing.op_samples``): each a module of one operation, compared with the reference interpreter."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.ir.types import FloatType
from tilewright.testing.op_samples import Sample, samples
from tilewright_conformance.case import Case
from tilewright_conformance.needs import needs_of
from tilewright_conformance.session import Session

#: Of the samples of an operation, one in so many is quick.
_QUICK = 4


def sampled(family: str, profile: str, operations: Mapping[str, bool]) -> Iterator[Case]:
    """A case for every sample of some operations.

    Args:
        operations: name -> whether the sign of a zero result is settled (of two zeros of different signs, min and max may give either).
    """
    for operation, zero_sign in operations.items():
        for index, sample in enumerate(samples(operation)):
            yield Case(
                f"{family}/{sample.name}",
                profile=profile,
                subject=operation,
                run=functools.partial(_run, sample, zero_sign),
                needs=needs_of(sample.module),
                quick=index % _QUICK == 0,
                source="the reference interpreter",
            )


def _run(sample: Sample, zero_sign: bool, session: Session) -> None:
    seed = int(session.rng.integers(1 << 62))
    expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(2))
    session.run_reference(sample.module, expected, sample.grid)
    session.run_module(sample.module, found, sample.grid, **session.strict)
    for position in sample.outputs:
        argument = sample.arguments[position]
        first, second = (_array(values[position]) for values in (expected, found))
        signed = zero_sign and isinstance(argument.type, FloatType)
        session.check(second, first, ulp=sample.ulp, type_=argument.type, zero_sign=signed, name=f"argument {position}")


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value if isinstance(value, np.ndarray) else value.base
