"""Loads, stores, bit casts and gathers of the formats of 8 bits."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.fp8.fp8.fp8_case import BLOCK, BYTES, COMMON, check_bits, fp8_case
from tilewright_conformance.oracles.dtypes import given
from tilewright_conformance.oracles.formats import FORMATS
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


@tw.jit
def copy_rows(
    x_ptr, y_ptr, rows, columns, x_row, y_row, OTHER: tl.constexpr, R: tl.constexpr, C: tl.constexpr
):
    row, column = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * x_row + column, mask=inside, other=OTHER)
    tl.store(y_ptr + row * y_row + column, x, mask=(row < rows) & (column < C))


def _copied(name: str, session: Session) -> None:
    """Copy rows of odd lengths out of a larger array; masked-off lanes load ``other``, rounded."""
    x = session.rng.permutation(np.tile(BYTES, 4)).reshape(16, 64)
    rows, columns = 13, 45
    found = np.full((rows + 2, 67), 0x11, np.uint8)
    expected = FORMATS[name].worth(found)
    expected[:rows, :64] = FORMATS[name].rounded(np.array([1.3]))[0]
    expected[:rows, :columns] = FORMATS[name].worth(x[:rows, 3 : 3 + columns])
    session.launch(
        copy_rows,
        (4,),
        given(x.reshape(-1)[3:], name),
        given(found, name),
        rows,
        columns,
        64,
        67,
        OTHER=1.3,
        R=4,
        C=64,
    )
    check_bits(session, found, expected, name)


@tw.jit
def as_bytes(x_ptr, signed_ptr, back_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(signed_ptr + at, x.to(tl.int8, bitcast=True))
    tl.store(back_ptr + at, (x.to(tl.uint8, bitcast=True) ^ 0x80).to(x.dtype, bitcast=True))


def _bits(name: str, session: Session) -> None:
    """Bits of numbers are what they are; a NaN's may change where it is moved as a float."""
    bits = BYTES[~np.isnan(FORMATS[name].worth(BYTES))]
    bits = np.resize(bits, BLOCK)
    signed, back = np.zeros(BLOCK, np.int8), np.zeros(BLOCK, np.uint8)
    session.launch(as_bytes, (1,), given(bits, name), signed, given(back, name), BLOCK=BLOCK)
    session.check(signed.view(np.uint8), bits)
    check_bits(session, back, FORMATS[name].worth(bits ^ np.uint8(0x80)), name)


@tw.jit
def gathered(x_ptr, index_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at)
    tl.store(
        y_ptr + index,
        tl.where(
            at % 3 == 0, tl.load(x_ptr + index), tl.full((BLOCK,), 0.5, x_ptr.dtype.element_ty)
        ),
    )


def _gathered(name: str, session: Session) -> None:
    """Loads and stores at addresses in any order, a choice, and a constant of the type."""
    index = session.rng.permutation(BLOCK).astype(np.int32)
    found = np.zeros(BLOCK, np.uint8)
    session.launch(
        gathered, (1,), given(BYTES.copy(), name), index, given(found, name), BLOCK=BLOCK
    )
    expected = np.full(BLOCK, 0.5)
    expected[index[::3]] = FORMATS[name].worth(BYTES)[index[::3]]
    check_bits(session, found, expected, name)


def memory_cases(name: str) -> Iterator[Case]:
    yield fp8_case(
        name,
        "memory/rows",
        "tl.load",
        functools.partial(_copied, name),
        "f32",
        quick=name == "float8e4nv",
    )
    yield fp8_case(
        name,
        "memory/bits",
        "tl.cast(bitcast)",
        functools.partial(_bits, name),
        "i8",
        "u8",
        quick=name in COMMON,
    )
    yield fp8_case(
        name,
        "memory/gathered",
        "tl.load",
        functools.partial(_gathered, name),
        quick=name == "float8e5",
    )
