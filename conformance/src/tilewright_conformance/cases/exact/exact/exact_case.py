"""A case of exact mode: forms of one algebra, on one draw of payloads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType
from tilewright.passes.exact.ring import PRIME, ring_of
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.runtime.arguments.mock_tensors import reinterpret
from tilewright.testing.exact import exact_mode
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

Array = np.ndarray[Any, Any]
#: Elements of drawn payloads before and behind an array.
_MARGIN = 64
#: text of the Tile IR type -> signature text
_SIGNATURE_TEXT = {ir: text for text, ir in IR_TEXT.items()}
#: Digits of f32 that are compared between forms where one takes a logarithm, which loses a digit.
_DIGITS_OF_LOGARITHM = 3


@dataclass(frozen=True)
class Operand:
    """An array of floats.

    Attributes:
        type: the element type as Tile IR text.
        contents: drawn payloads; NaN, where kernels write; zeros, where they accumulate.
    """

    type: str
    shape: tuple[int, ...]
    contents: Literal["drawn", "nan", "zeros"] = "drawn"


#: The arrays of a case by name; those of integers are given.
Operands = Mapping[str, Operand | Array]


def drawn(type_: str, *shape: int) -> Operand:
    return Operand(type_, shape)


def result(type_: str, *shape: int) -> Operand:
    return Operand(type_, shape, "nan")


def zeros(type_: str, *shape: int) -> Operand:
    return Operand(type_, shape, "zeros")


class _Memory:
    """An array in the middle of memory whose other elements are random."""

    def __init__(self, operand: Operand | Array, rng: np.random.Generator) -> None:
        self.type = operand.type if isinstance(operand, Operand) else ""
        self.shape = operand.shape
        size = int(np.prod(self.shape))
        if isinstance(operand, Operand):
            ring = ring_of(_float(self.type))
            bits = rng.integers(0, ring.modulus, size + 2 * _MARGIN, dtype=np.uint64)
            self.flat: Array = bits.astype(f"u{ring.bits // 8}")
            if operand.contents != "drawn":
                filling = ring.nan if operand.contents == "nan" else 0
                self.flat[_MARGIN : _MARGIN + size] = filling
        else:
            self.flat = rng.choice(operand.reshape(-1), size + 2 * _MARGIN)
            self.flat[_MARGIN : _MARGIN + size] = operand.reshape(-1)

    def copy(self) -> _Memory:
        found = object.__new__(_Memory)
        found.type, found.shape, found.flat = self.type, self.shape, self.flat.copy()
        return found

    @property
    def array(self) -> Array:
        """The array's bits, which share the memory."""
        return self.flat[_MARGIN:-_MARGIN].reshape(self.shape)

    @property
    def given(self) -> Any:
        """The kernel's argument."""
        if not self.type:
            return self.array
        return reinterpret(self.array, _SIGNATURE_TEXT[self.type])


def _float(text: str) -> FloatType:
    return cast(FloatType, parse_type(text))


class Launcher:
    """``launch(kernel, grid, *arguments, **constants)`` in exact mode, on copies of the arrays."""

    def __init__(self, session: Session, operands: Mapping[str, _Memory], dot: str) -> None:
        self._session, self._dot, self._rng = session, dot, np.random.default_rng(0)
        self.memories = {name: memory.copy() for name, memory in operands.items()}
        self.loses_digit = False

    def scratch(self, operand: Operand | Array) -> Any:
        """An argument for memory that is not compared."""
        return _Memory(operand, self._rng).given

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any
    ) -> None:
        """Launch a kernel; an argument that is text names an array."""
        place = self._session.placement()
        placed = [
            place(self.memories[value].given if isinstance(value, str) else value)
            for value in arguments
        ]
        dot = cast(Literal["native", "i8"], self._dot)
        with exact_mode(self._session.backend, dot=dot) as reports:
            kernel[grid](*placed, **constants)
        place.fetch()
        self.loses_digit |= any(report.loses_digit for report in reports)


#: A launch of a kernel, or several, that reads and writes the case's arrays.
Form = Callable[[Launcher], None]


def form(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> Form:
    """A form that is a single launch."""
    return lambda launch: launch(kernel, grid, *arguments, **constants)


def exact_case(
    id_: str,
    operands: Operands,
    *forms: Form,
    quick: bool = False,
    dot: Literal["", "i8", "native"] = "",
    **needs: Any,
) -> Case:
    """A case of the family ``exact``; its subject is the first word of ``id_``.

    Args:
        operands: the arrays by name.
        forms: launches of the same algebra. The reference interpreter runs the first.
        dot: how the kernels' dots are computed, where they have any.
        needs: as ``elements`` takes them.
    """
    types = {operand.type for operand in operands.values() if isinstance(operand, Operand)}
    if dot:
        own = {(type_, "f32") for type_ in types - {"f32"} or types}
        pairs = own if dot == "native" else {("i8", "i32")}
        needs = {"dot": pairs, "dot_shape": (16, 16, 16), **needs}
    source = "the reference interpreter, in the same ring"
    table = Table("exact", "exact", source, narrow="exact")
    body = functools.partial(_compared, operands, forms, dot or "i8")
    integers = ("i1", "i8", "i16", "i32", "u32", "i64", "u64", "u16", "u8")
    return table.case(
        id_,
        id_.partition("/")[0],
        body,
        *sorted(types | {"f32"}),
        *integers,
        quick=quick,
        **{"tile": 1 << 15, **needs},
    )


def _compared(
    operands: Operands,
    forms: tuple[Form, ...],
    dot: str,
    session: Session,
) -> None:
    """Run all forms on the backend, the first on the reference, and compare all bits."""
    memories = {name: _Memory(operand, session.rng) for name, operand in operands.items()}
    expected = Launcher(session.reference, memories, dot)
    forms[0](expected)
    for name, operand in operands.items():
        if isinstance(operand, Operand) and operand.contents != "drawn":
            ring, bits = ring_of(_float(operand.type)), expected.memories[name].array
            session.require(
                (bits < ring.modulus).mean() > 0.5,
                f"{name}: most results are no numbers of the ring: the case is of no use",
            )
    first = Launcher(session, memories, dot)
    forms[0](first)
    _check(session, "the reference", expected, first, every_bit=True)
    for number, run in enumerate(forms[1:], 2):
        found = Launcher(session, memories, dot)
        run(found)
        _check(session, f"form {number} of {len(forms)}", found, first, every_bit=False)


def _check(session: Session, name: str, a: Launcher, b: Launcher, every_bit: bool) -> None:
    """Demand that arrays and the memory around them have the same bits after both launches.

    Args:
        every_bit: of undefined payloads, and of the digit that a logarithm loses, too.
    """
    for argument, left in a.memories.items():
        right = b.memories[argument]
        same = left.flat == right.flat
        if not every_bit and left.type:
            ring = ring_of(_float(left.type))
            same |= (left.flat == ring.undefined) | (right.flat == ring.undefined)
            if (a.loses_digit or b.loses_digit) and ring.digits > _DIGITS_OF_LOGARITHM:
                modulus = left.flat.dtype.type(PRIME**_DIGITS_OF_LOGARITHM)
                numbers = (left.flat < ring.modulus) & (right.flat < ring.modulus)
                same |= numbers & (left.flat % modulus == right.flat % modulus)
        wrong = np.flatnonzero(~same)
        session.require(
            not wrong.size,
            f"{argument}: {wrong.size} of {same.size} elements differ from those of {name}, the "
            f"first at {wrong[0] - _MARGIN if wrong.size else 0}, counted from the array's start",
        )
        session.note(compared=session.numbers.get("compared", 0) + same.size)
