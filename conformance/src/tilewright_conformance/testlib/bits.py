"""Elements of every type as the bits that memory holds."""

from __future__ import annotations

import numpy as np

from tilewright_conformance.oracles.dtypes import Array, storage
from tilewright_conformance.suite.session import Session


def random_bits(rng: np.random.Generator, element: str, shape: int | tuple[int, ...]) -> Array:
    """Any bits at all: of floats NaN, infinities and subnormals among them."""
    dtype = storage(element)
    count = int(np.prod(shape))
    data = np.frombuffer(rng.bytes(count * dtype.itemsize), f"u{dtype.itemsize}")
    return (
        (data & 1 if element == "i1" else data)
        .astype(f"u{dtype.itemsize}")
        .view(dtype)
        .reshape(shape)
    )


def bits(array: Array) -> Array:
    """The bits of an array's elements, to be compared as they are."""
    return (
        array.view(f"u{array.itemsize}")
        if array.flags.c_contiguous
        else np.ascontiguousarray(array).view(f"u{array.itemsize}")
    )


def same_bits(session: Session, found: Array, expected: Array, name: str = "result") -> None:
    """Demand that two arrays of one dtype hold the same bits."""
    session.check(bits(found), bits(np.asarray(expected, found.dtype)), name=name)


def poison(element: str, shape: int | tuple[int, ...]) -> Array:
    """An array whose every byte is 0x5A (booleans: true), for results to be written, or not."""
    dtype = storage(element)
    if element == "i1":
        return np.ones(shape, dtype)
    return np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8).view(dtype).reshape(shape)
