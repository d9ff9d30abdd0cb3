"""Elements of every type as the bits that memory holds, and families that are collected from functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.case import TIME_LIMIT, Case, Needs
from tilewright_conformance.session import Session

Array = NDArray[Any]

#: element type in Tile IR -> the NumPy dtype that holds its bits, and the type's name in the language
ELEMENTS: dict[str, tuple[str, str]] = {
    "i1": ("bool", "int1"),
    **{f"i{bits}": (f"int{bits}", f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (f"uint{bits}", f"uint{bits}") for bits in (8, 16, 32, 64)},
    "f16": ("float16", "float16"),
    "bf16": ("uint16", "bfloat16"),
    "f32": ("float32", "float32"),
    "f64": ("float64", "float64"),
    "f8e4m3fn": ("uint8", "float8e4nv"),
    "f8e5m2": ("uint8", "float8e5"),
    "f8e4m3fnuz": ("uint8", "float8e4b8"),
    "f8e5m2fnuz": ("uint8", "float8e5b16"),
    "f8e4b15": ("uint8", "float8e4b15"),
}
#: The needs of a case that runs no kernel.
NOTHING = Needs()
#: What every backend of a profile has.
PORTABLE = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32")
FP8 = tuple(name for name in ELEMENTS if name.startswith("f8"))


def storage(element: str) -> np.dtype[Any]:
    """The dtype of arrays that hold elements of a type."""
    return np.dtype(ELEMENTS[element][0])


def language(element: str) -> Any:
    """The type in the language."""
    return getattr(tl, ELEMENTS[element][1])


def given(array: Array, element: str) -> Any:
    """An array of bits as an argument of the type that they are of."""
    plain = ELEMENTS[element][0] == ELEMENTS[element][1] or element == "i1"
    return array if plain else tw.reinterpret(array, language(element))


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
    """An array whose every byte is 0x5A (booleans: true), for results that are to be written, or not."""
    dtype = storage(element)
    if element == "i1":
        return np.ones(shape, dtype)
    return np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8).view(dtype).reshape(shape)


def elements(*names: str, tile: int = 1, **more: Any) -> Needs:
    """The needs of a kernel of some element types; booleans lie in memory as i8."""
    return Needs(frozenset(names) | ({"i8"} if "i1" in names else set()), tile_elements=tile, **more)


class Collected:
    """Cases made of the functions that are their bodies; iterating gives them in the order of the text.

        case = Collected("memory", "memory")

        @case("sizes", "tl.load", each={"i8": "i8", "f32": "f32"}, needs=lambda element: elements(element), quick=("f32",))
        def sizes(session: Session, element: str) -> None: ...     # memory/sizes/i8 and memory/sizes/f32

    Args:
        family: the first word of the ids.
        profile: of the cases; those that need an fp8 type are of profile fp8.
        source: what the expected values come from.
    """

    def __init__(self, family: str, profile: str, source: str = "NumPy") -> None:
        self.family, self.profile, self.source = family, profile, source
        self._cases: list[Case] = []

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def __call__(
        self,
        id_: str,
        subject: str,
        *,
        each: Mapping[str, Any] | Collection[str] | None = None,
        needs: Needs | Callable[[Any], Needs] = NOTHING,
        quick: bool | Collection[str] = False,
        time_limit: float = TIME_LIMIT,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorate the body of a case, or of one for each of some values.

        Args:
            id_: what follows the family; where there are several, each has its name behind a slash.
            each: name -> what the body is given after the session; or names that are given themselves.
            needs: of the case; where there are several, what makes them of each value.
            quick: whether the case is; or the names of those that are.
        """

        def decorate(body: Callable[..., None]) -> Callable[..., None]:
            variants: dict[str, Any] = {"": None} if each is None else dict(each) if isinstance(each, Mapping) else {name: name for name in each}
            for name, value in variants.items():
                own = needs(value) if callable(needs) else needs
                fp8 = any(element.startswith("f8") for element in own.dtypes)
                self._cases.append(
                    Case(
                        f"{self.family}/{id_}/{name}" if name else f"{self.family}/{id_}",
                        profile="fp8" if fp8 else self.profile,
                        subject=subject,
                        run=functools.partial(_call, body, value) if each is not None else body,
                        needs=own,
                        time_limit=time_limit,
                        quick=quick if isinstance(quick, bool) else name in quick,
                        source=self.source,
                    )
                )
            return body

        return decorate


def _call(body: Callable[..., None], value: Any, session: Session) -> None:
    body(session, value)
