"""Functions of integers: the upper half of a multiplication, and magnitudes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.math.math.fused_arithmetic import binary
from tilewright_conformance.cases.math.math.math_case import BLOCK, math_case
from tilewright_conformance.oracles.dtypes import language
from tilewright_conformance.oracles.formats import format_of
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


def _high_half(name: str, session: Session) -> None:
    """The upper half of the unsigned multiplication."""
    dtype = np.dtype(name)
    bits = 8 * dtype.itemsize
    few = np.array(
        [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], f"u{dtype.itemsize}"
    )
    x, y = (
        session.rng.integers(0, 1 << bits, 500, dtype=f"u{dtype.itemsize}", endpoint=False)
        for _ in range(2)
    )
    x, y = (
        np.concatenate([x, np.repeat(few, len(few))]),
        np.concatenate([y, np.tile(few, len(few))]),
    )
    found = np.zeros(len(x), dtype)
    session.launch(
        binary,
        (-(-len(x) // 128),),
        x.view(dtype),
        y.view(dtype),
        found,
        len(x),
        FUNCTION=tl.umulhi,
        RESULT=getattr(tl, name),
        BLOCK=128,
    )
    session.check(
        found.view(x.dtype),
        np.array([(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)], x.dtype),
    )


def _magnitude(name: str, session: Session) -> None:
    """The minimum of a signed type stays as it is; unsigned integers are their own magnitude."""
    limits = np.iinfo(name)
    x = np.concatenate(
        [
            session.rng.integers(limits.min, limits.max, 300, dtype=name, endpoint=True),
            np.array([limits.min, limits.max, 0, 1], name),
        ]
    )
    found = np.zeros_like(x)
    session.launch(
        integer_unary, (-(-len(x) // 128),), x, found, len(x), FUNCTION=tl.abs, BLOCK=128
    )
    session.check(found, np.abs(x))


@tw.jit
def integer_unary(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(out_ptr + at, FUNCTION(x), mask=at < n)


def _half_magnitude(type_: str, session: Session) -> None:
    """Every number of 16 bits without its sign."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    found = np.zeros_like(bits)
    arrays = [tw.reinterpret(array, language(type_)) for array in (bits, found)]
    session.launch(integer_unary, (64,), *arrays, len(bits), FUNCTION=tl.abs, BLOCK=BLOCK)
    result = found.view(np.float16) if type_ == "f16" else found
    session.check(result, np.abs(format_of(type_).worth(bits)), type_=type_)


def integer_cases() -> Iterator[Case]:
    for name in ("int32", "uint32", "int64", "uint64"):
        type_ = name.replace("uint", "u").replace("int", "i")
        others = (type_.replace("i", "u"),)
        yield math_case(
            "umulhi",
            type_,
            "values",
            functools.partial(_high_half, name),
            *others,
            quick=name in ("int32", "uint64"),
            tile=128,
        )
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint32"):
        type_ = name.replace("uint", "u").replace("int", "i")
        yield math_case(
            "abs",
            type_,
            "values",
            functools.partial(_magnitude, name),
            quick=name == "int8",
            tile=128,
            source="NumPy",
        )
    for type_ in ("f16", "bf16"):
        yield math_case(
            "abs",
            type_,
            "every-number",
            functools.partial(_half_magnitude, type_),
            quick=type_ == "bf16",
            source="the definition of the format",
        )
