"""Atomic updates of many lanes, as if one after the other in lane order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.types import FloatType, IntType, Type
from tilewright.reference.memory.memory import ArgumentMemory
from tilewright.reference.numerics import Array, bits_dtype, decode, is_raw, numpy_dtype, rounded

Update = Callable[[Array, Array], Array]


def ordered_bits(values: Array) -> Array:
    """Map floats to signed integers in the total order of IEEE 754.

    -0.0 is below 0.0, a positive NaN above infinity, a negative one below.
    """
    signed = np.dtype(f"int{8 * values.dtype.itemsize}")
    bits = values.view(signed)
    return np.where(bits < 0, bits ^ np.iinfo(signed).max, bits).astype(signed)


def floats_of_ordered_bits(bits: Array, dtype: np.dtype[Any]) -> Array:
    """The inverse of :func:`ordered_bits`."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).astype(bits.dtype).view(dtype)


_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def apply(kind: str, element: Type, old: Array, value: Array) -> Array:
    """The new value that one atomic leaves."""
    if kind == "xchg":
        return value
    if isinstance(element, FloatType):
        if kind in ("min", "max"):
            return floats_of_ordered_bits(
                _UFUNCS[kind](ordered_bits(old), ordered_bits(value)), value.dtype
            )
        if is_raw(element):
            return rounded(decode(old, element) + decode(value, element), element)
    return _UFUNCS[kind](old, value)


def _accumulate(kind: str, element: Type, values: NDArray[Any]) -> NDArray[Any] | None:
    """Return all prefixes of updating the first value by the others in turn.

    None where only updates one by one will do.
    """
    if kind == "xchg":
        return values
    if isinstance(element, FloatType) and kind in ("min", "max"):
        return floats_of_ordered_bits(_UFUNCS[kind].accumulate(ordered_bits(values)), values.dtype)
    if is_raw(element) or not isinstance(element, IntType | FloatType):
        return None
    return _UFUNCS[kind].accumulate(values, dtype=values.dtype)


def read_modify_write(
    memory: ArgumentMemory,
    kind: str,
    element: Type,
    addresses: NDArray[np.int64],
    values: NDArray[Any],
) -> NDArray[Any]:
    """Update ``addresses`` (rank 1) by ``values``; return the old values.

    Each lane sees the results of the lanes before it.
    """
    dtype = numpy_dtype(element)
    old = memory.load(addresses, dtype)
    groups = _groups(addresses)
    if groups is None:
        _store_changes(memory, addresses, old, apply(kind, element, old, values))
        return old
    order, starts, counts = groups
    if len(starts) < counts.max():
        result = old.copy()
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            lanes = order[start : start + count]
            prefixes = _accumulate(kind, element, np.concatenate([old[lanes[:1]], values[lanes]]))
            if prefixes is None:
                break
            result[lanes] = prefixes[:-1]
            memory.store(addresses[lanes[:1]], prefixes[-1:])
        else:
            return result
    return _in_rounds(
        memory,
        dtype,
        addresses,
        groups,
        lambda lanes, found: apply(kind, element, found, values[lanes]),
    )


def compare_and_swap(
    memory: ArgumentMemory,
    element: Type,
    addresses: NDArray[np.int64],
    expected: NDArray[Any],
    values: NDArray[Any],
) -> NDArray[Any]:
    """Replace elements with the bits of ``expected`` by ``values`` (all of rank 1).

    The result is the old values.
    """
    dtype = numpy_dtype(element)
    bits = bits_dtype(8 * dtype.itemsize)

    def swap(lanes: Any, found: NDArray[Any]) -> NDArray[Any]:
        return np.where(found.view(bits) == expected[lanes].view(bits), values[lanes], found)

    groups = _groups(addresses)
    if groups is None:
        old = memory.load(addresses, dtype)
        _store_changes(memory, addresses, old, swap(slice(None), old))
        return old
    return _in_rounds(memory, dtype, addresses, groups, swap)


Groups = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]


def _groups(addresses: NDArray[np.int64]) -> Groups | None:
    """Return lanes sorted by address, in lane order within one.

    Each group has its start and length; None where no address occurs twice.
    """
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    first = (
        np.concatenate([[True], ordered[1:] != ordered[:-1]])
        if len(ordered)
        else np.empty(0, dtype=np.bool_)
    )
    if first.all():
        return None
    starts = np.flatnonzero(first)
    return order, starts, np.diff(np.append(starts, len(ordered)))


def _in_rounds(
    memory: ArgumentMemory,
    dtype: np.dtype[Any],
    addresses: NDArray[np.int64],
    groups: Groups,
    update: Callable[[Any, NDArray[Any]], NDArray[Any]],
) -> NDArray[Any]:
    """The first lane of every address, then the second of every address that has one, and so on."""
    order, starts, counts = groups
    old = np.empty(addresses.shape, dtype)
    for turn in range(int(counts.max())):
        lanes = order[starts[counts > turn] + turn]
        found = memory.load(addresses[lanes], dtype)
        old[lanes] = found
        _store_changes(memory, addresses[lanes], found, update(lanes, found))
    return old


def _store_changes(
    memory: ArgumentMemory, addresses: NDArray[np.int64], old: NDArray[Any], new: NDArray[Any]
) -> None:
    """Store what differs, so that a loop that spins on a lock counts as changing nothing."""
    bits = bits_dtype(8 * new.dtype.itemsize)
    changed = old.view(bits) != new.view(bits)
    if changed.all():
        memory.store(addresses, new)
    elif changed.any():
        memory.store(addresses[changed], new[changed])
