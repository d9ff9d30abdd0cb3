"""Results of a launch on the host, and how far those of two launches lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import BackendError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType
from tilewright.passes.exact.ring import Ring, ring
from tilewright.reference.numerics import decode, numpy_dtype
from tilewright.runtime.arguments.array_copies import copy_into
from tilewright.runtime.arguments.array_protocols import ArrayView, array_kind, is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.device_bytes import SavedBytes, memory_of
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.runtime.exact.payloads import (
    bits_of,
    fraction,
    payloads_agree,
    with_bits,
)
from tilewright.testing.compare import as_array

#: Relative tolerance of floats by the bits of their mantissa, of the largest expected magnitude.
_TOLERANCES = {2: 0.5, 3: 0.25, 7: 2e-2, 10: 4e-3, 23: 2e-5, 52: 1e-13}


@dataclass(frozen=True)
class ResultDifference:
    """The largest difference between two arrays.

    Attributes:
        argument: the kernel's parameter.
        index: of the element that differs most.
        expected, found: its two values; of payloads, what they stand for.
        elements: how many differ at all.
        within: whether all differ by no more than rounding explains.
        behind: the operations, if any, of which exact mode knows nothing but the operands, so that
            the difference proves nothing.
    """

    argument: str
    index: tuple[int, ...]
    expected: float | str
    found: float | str
    elements: int
    within: bool
    behind: tuple[str, ...] = ()

    def __str__(self) -> str:
        some = f"{self.elements} elements of {self.argument} differ"
        if isinstance(self.expected, str):
            return f"{some}, first at {list(self.index)}: {self.found}, expected {self.expected}"
        return f"{some}, most at {list(self.index)}: {self.found:g}, expected {self.expected:g}"


def arrays_of(names: Sequence[str], arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the arrays among a launch's arguments, those in tuples and descriptors included."""
    return dict(
        entry
        for name, value in zip(names, arguments, strict=True)
        for entry in _arrays(name, value)
    )


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, TensorDescriptor):
        yield name, value.base
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from _arrays(f"{name}.{position}", item)
    elif is_array(value):
        yield name, value


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Copy an array's values to the host; floats that NumPy lacks become float32.

    Raises:
        BackendError: no backend copies from the array's device.
    """
    if not isinstance(array, ArrayView):
        return np.array(as_array(array))
    type_ = parse_type(IR_TEXT[array.dtype])
    values = _saved(array).host.view(numpy_dtype(type_)).reshape(array.shape)
    return np.array(decode(values, type_) if isinstance(type_, FloatType) else values)


def _saved(array: ArrayView) -> SavedBytes:
    memory = memory_of(array.device)
    if memory is None:
        raise BackendError(f"no backend copies from {array.device[0]}:{array.device[1]}")
    return SavedBytes(array, memory)


def ring_of_array(array: Any) -> Ring | None:
    """Return the ring of an array's payloads; None for an array of integers."""
    type_ = parse_type(IR_TEXT[array_kind(array).dtype])
    return ring(type_.bits) if isinstance(type_, FloatType) else None


def payloads_on_host(array: Any) -> np.ndarray[Any, Any]:
    """Copy an array's payloads to the host, as unsigned integers; the values of integers.

    Raises:
        BackendError: no backend copies from the array's device.
    """
    own = ring_of_array(array)
    if own is None:
        return on_host(array)
    if not isinstance(array, ArrayView):
        return bits_of(array)
    bits: np.ndarray[Any, Any] = _saved(array).host.view(f"uint{own.bits}").reshape(array.shape)
    return bits


def draw_payloads(array: Any, rng: np.random.Generator) -> None:
    """Fill an array of floats with residues that are drawn; one of zeros alone stays as it is."""
    own = ring_of_array(array)
    bits = payloads_on_host(array)
    if own is None or not bits.any():
        return
    drawn = rng.integers(0, own.modulus, bits.shape, dtype=np.uint64).astype(bits.dtype)
    if isinstance(array, ArrayView):
        saved = _saved(array)
        saved.host[:] = drawn.reshape(-1).view(np.uint8)
        saved.write()
    else:
        copy_into(array, with_bits(array, drawn))


def tolerance(array: Any) -> float:
    """Return the relative tolerance of an array's elements; 0 of integers."""
    type_ = parse_type(IR_TEXT[array_kind(array).dtype])
    return _TOLERANCES[type_.mantissa] if isinstance(type_, FloatType) else 0.0


def difference(
    expected: Mapping[str, np.ndarray[Any, Any]],
    found: Mapping[str, np.ndarray[Any, Any]],
    tolerances: Mapping[str, float],
) -> ResultDifference | None:
    """Return the worst difference of two launches' arrays; None where all are the same."""
    differences = [
        each
        for name in expected
        if (each := _difference(name, expected[name], found[name], tolerances[name])) is not None
    ]
    return min(differences, key=lambda each: each.within, default=None)


def payload_differences(
    expected: Mapping[str, np.ndarray[Any, Any]],
    found: Mapping[str, np.ndarray[Any, Any]],
    rings: Mapping[str, Ring | None],
    digits: int | None,
) -> Iterator[ResultDifference]:
    """Yield the first difference of two launches' payloads in each array that has one.

    Args:
        rings: of the arrays; None of integers.
        digits: the digits to base 251 that are compared; 0 asks for the same bits, undefined
            payloads included, and None for all digits of what is defined.
    """
    for name, own in rings.items():
        one, other = expected[name], found[name]
        same = one == other
        if own is not None and digits != 0:
            same = payloads_agree(own, one, other, digits)
        places = np.argwhere(~same)
        if len(places):
            index = tuple(int(each) for each in places[0])
            expected_text, found_text = (
                str(bits[index] if own is None else fraction(own, int(bits[index])))
                for bits in (one, other)
            )
            yield ResultDifference(name, index, expected_text, found_text, len(places), False)


def _difference(
    name: str, expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any], relative: float
) -> ResultDifference | None:
    same = expected == found
    if expected.dtype.kind == "f":
        same |= np.isnan(expected) & np.isnan(found)
    if same.all():
        return None
    one, other = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(one - other))
    distance[np.isnan(distance)] = np.inf
    finite = np.abs(one[np.isfinite(one)])
    index = np.unravel_index(int(distance.argmax()), distance.shape)
    return ResultDifference(
        name,
        tuple(int(each) for each in index),
        float(one[index]),
        float(other[index]),
        int((~same).sum()),
        bool(distance.max() <= relative * finite.max(initial=0.0)),
    )
