"""Elements of every type as the bits that memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import numbers
from tilewright_conformance.testlib.numbers import IR

Array = NDArray[Any]

#: element type in Tile IR -> its name in the language: the table of
#: :mod:`tilewright_conformance.testlib.numbers` the other way round
ELEMENTS: dict[str, str] = {text: name for name, text in IR.items()}
#: What every backend of a profile has.
PORTABLE = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32")
FP8 = tuple(name for name in ELEMENTS if name.startswith("f8"))


def storage(element: str) -> np.dtype[Any]:
    """The dtype of arrays that hold elements of a type: of floats that NumPy lacks, their bits."""
    return np.dtype("uint16" if element == "bf16" else "uint8" if element in FP8 else ELEMENTS[element])


def language(element: str) -> Any:
    """The type in the language."""
    return numbers.language(ELEMENTS[element])


def given(array: Array, element: str) -> Any:
    """An array of bits as an argument of the type that they are of."""
    return tw.reinterpret(array, language(element)) if element in ("bf16", *FP8) else array


def random_bits(rng: np.random.Generator, element: str, shape: int | tuple[int, ...]) -> Array:
    """Any bits at all: of floats NaN, infinities and subnormals among them."""
    dtype = storage(element)
    count = int(np.prod(shape))
    data = np.frombuffer(rng.bytes(count * dtype.itemsize), f"u{dtype.itemsize}")
    return (data & 1 if element == "i1" else data).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)


def bits(array: Array) -> Array:
    """The bits of an array's elements, to be compared as they are."""
    return array.view(f"u{array.itemsize}") if array.flags.c_contiguous else np.ascontiguousarray(array).view(f"u{array.itemsize}")


def same_bits(session: Session, found: Array, expected: Array, name: str = "result") -> None:
    """Demand that two arrays of one dtype hold the same bits."""
    session.check(bits(found), bits(np.asarray(expected, found.dtype)), name=name)


def poison(element: str, shape: int | tuple[int, ...]) -> Array:
    """An array whose every byte is 0x5A (booleans: true), for results to be written, or not."""
    dtype = storage(element)
    if element == "i1":
        return np.ones(shape, dtype)
    return np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8).view(dtype).reshape(shape)
