"""Samples of every operation of the op table: valid kernels with arguments.

    for sample in samples("add"):
        arguments = sample.make_arguments(np.random.default_rng(0))
        run(sample.module, arguments, sample.grid)

Round-trip, verifier, reference and backend tests run them. The values avoid undefined behavior as
the table defines it. :func:`check_outputs` compares two runs of one sample. Each family of
operations has a file, whose ``SAMPLES`` map operations to generators of samples. ``tilewright ops``
derives an operation's types and examples from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import TABLE
from tilewright.ir.table import merged
from tilewright.ir.types import FloatType, Type
from tilewright.reference.numerics import decode, is_raw
from tilewright_conformance.op_samples import (
    arithmetic,
    by_trait,
    casts,
    control,
    debug,
    descriptors,
    linear,
    memory,
    shape,
)
from tilewright_conformance.op_samples.kernel import Argument, Sample, SampleKernel

#: operation -> a function that yields its samples; an operation's own family overrides its trait's
FAMILIES: dict[str, Callable[[], Iterator[Sample]]] = by_trait.SAMPLES | merged(
    *(
        module.SAMPLES
        for module in (arithmetic, casts, shape, memory, descriptors, linear, control, debug)
    )
)


def samples(op_name: str) -> Iterator[Sample]:
    """The samples of one operation.

    Raises:
        KeyError: the table has no such operation.
    """
    TABLE[op_name]
    yield from FAMILIES[op_name]()


def all_samples() -> Iterator[Sample]:
    """The samples of every operation, in the table's order."""
    for spec in TABLE:
        yield from samples(spec.name)


def check_outputs(sample: Sample, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Compare the output arguments of two launches.

    Raises:
        AssertionError: naming the argument, the first element that differs, and both values.
    """
    for position in sample.outputs:
        argument = sample.arguments[position]
        first, second = (_array(arguments[position]) for arguments in (expected, found))
        wrong = np.flatnonzero(~_agree(first.ravel(), second.ravel(), argument.type, sample.ulp))
        if len(wrong):
            at = int(wrong[0])
            values = [
                _numbers(array.ravel(), argument.type)[at].item() for array in (first, second)
            ]
            place = tuple(map(int, np.unravel_index(at, first.shape)))
            raise AssertionError(
                f"{sample.name}: argument {position} ({argument.type}) differs in {len(wrong)} of "
                f"{first.size} elements; first at {place}: expected {values[0]!r}, found "
                f"{values[1]!r}"
            )


def _array(value: Any) -> NDArray[Any]:
    return np.asarray(getattr(value, "base", None) if not isinstance(value, np.ndarray) else value)


def _numbers(array: NDArray[Any], type_: Type) -> NDArray[Any]:
    return (
        np.asarray(decode(array, type_))
        if isinstance(type_, FloatType) and is_raw(type_)
        else array
    )


def _agree(a: NDArray[Any], b: NDArray[Any], type_: Type, ulp: float) -> NDArray[np.bool_]:
    """Compare element by element: integers equal; floats equal, NaN, or within ``ulp`` units."""
    if not isinstance(type_, FloatType):
        return np.asarray(a == b)
    numbers = [_numbers(array, type_) for array in (a, b)]
    equal = (numbers[0] == numbers[1]) | (np.isnan(numbers[0]) & np.isnan(numbers[1]))
    if ulp == 0:
        return np.asarray(equal)
    bits = [array.view(f"u{type_.bits // 8}") for array in (a, b)]
    top = np.array(1 << (type_.bits - 1), bits[0].dtype)
    magnitudes = [array & ~top for array in bits]
    same_sign = (bits[0] & top) == (bits[1] & top)
    greater, smaller = np.maximum(*magnitudes), np.minimum(*magnitudes)
    with np.errstate(over="ignore"):
        apart = np.where(same_sign, greater - smaller, magnitudes[0] + magnitudes[1])
    overflowed = ~same_sign & (apart < greater)
    return np.asarray(
        equal | ((apart <= ulp) & ~overflowed & np.isfinite(numbers[0]) & np.isfinite(numbers[1]))
    )


__all__ = [
    "FAMILIES",
    "Argument",
    "Sample",
    "SampleKernel",
    "all_samples",
    "check_outputs",
    "samples",
]
