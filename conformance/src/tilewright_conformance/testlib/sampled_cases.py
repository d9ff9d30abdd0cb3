"""Cases from :mod:`tilewright_conformance.op_samples`, compared with the reference."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.ir.types import FloatType
from tilewright_conformance.op_samples import Sample, samples
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session

#: Of the samples of an operation, one in so many is quick.
_QUICK = 4


def sampled(family: str, profile: str, operations: Mapping[str, bool]) -> Iterator[Case]:
    """A case for every sample of some operations.

    Args:
        operations: name -> whether the sign of a zero result is settled (of two zeros of different
            signs, min and max may give either).
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
    given, expected, found = (sample.make_arguments(np.random.default_rng(seed)) for _ in range(3))
    session.run_reference(sample.module, expected, sample.grid)
    _spoil(sample, given, expected, found)
    session.run_module(sample.module, found, sample.grid, **session.strict)
    for position in sample.outputs:
        argument = sample.arguments[position]
        first, second = (_array(values[position]) for values in (expected, found))
        signed = zero_sign and isinstance(argument.type, FloatType)
        session.check(
            second,
            first,
            ulp=sample.ulp,
            type_=argument.type,
            zero_sign=signed,
            name=f"argument {position}",
        )


def _spoil(
    sample: Sample, given: Sequence[Any], expected: Sequence[Any], found: Sequence[Any]
) -> None:
    """Change the initial bits of output elements that the kernel overwrites with the same value.

    Where ``found`` begins with other bits there, a store that is lost shows. A second run of the
    reference, on outputs with inverted bits, finds the elements that the kernel stores: it yields
    the same value for them whatever was there. Kernels that read their outputs as well are left as
    they are.
    """
    outputs = [
        position
        for position in sample.outputs
        if np.array_equal(_bits(given[position]), _bits(expected[position]))
    ]
    if not outputs:
        return
    for position in outputs:
        _bits(given[position])[:] ^= 0xFF
    again = copy.deepcopy(list(given))
    try:
        Session.run_reference(sample.module, again, sample.grid)
    except TilewrightError:  # it reads them
        return
    if not all(
        np.array_equal(_bits(again[position]), _bits(expected[position]))
        for position in sample.outputs
        if position not in outputs
    ):
        return  # it reads them: what it stores elsewhere depends on them
    for position in outputs:
        stored = (_bits(again[position]) == _bits(expected[position])).all(1)
        _bits(found[position])[stored] ^= 0xFF


def _bits(value: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of each element, a row each."""
    array = _array(value)
    return array.reshape(-1).view(np.uint8).reshape(array.size, array.itemsize)


def _array(value: Any) -> np.ndarray[Any, Any]:
    return value if isinstance(value, np.ndarray) else value.base
