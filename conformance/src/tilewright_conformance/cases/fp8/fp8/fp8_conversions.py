"""Conversions from and to the formats of 8 bits, in every pair of types and every rounding."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.fp8.fp8.fp8_case import (
    BLOCK,
    BYTES,
    COMMON,
    KINDS,
    check_bits,
    fp8_case,
)
from tilewright_conformance.oracles.dtypes import FLOATS, FP8, IR, Array, given, storage
from tilewright_conformance.oracles.formats import FORMATS, Format
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


@tw.jit
def convert(x_ptr, y_ptr, n, ROUNDING: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.cast(x, y_ptr.dtype.element_ty, ROUNDING), mask=at < n)


def _wider(name: str, target: str, session: Session) -> None:
    """Every number, exactly; in an order that changes from lane to lane too."""
    bits = np.concatenate([BYTES, session.rng.permutation(BYTES), BYTES[::-1][:77]])
    found = np.zeros(len(bits), storage(target))
    session.launch(
        convert,
        (-(-len(bits) // BLOCK),),
        given(bits, name),
        given(found, target),
        len(bits),
        ROUNDING=None,
        BLOCK=BLOCK,
    )
    session.check(found, FORMATS[name].worth(bits), type_=IR[target])


def _decisive(form: Format, dtype: Any) -> Array:
    """Every number of the format, the ties between neighbors, and numbers of ``dtype`` nearby.

    The tie behind the maximum is among them. Of f64 also those off a tie by less than f32 or f16
    can represent, where rounding by way of these goes wrong.
    """
    known = np.unique(form.worth(np.arange(256)))
    known = known[np.isfinite(known) & (known >= 0)]
    beyond = 2 * known[-1] - known[-2]
    middles = (np.append(known, beyond)[1:] + known) / 2
    exact = np.concatenate([known, middles, [beyond, 2 * beyond, 1e4 * beyond]])
    near = [exact]
    for part in (2.0**-12, 2.0**-14, 2.0**-20, 2.0**-26, 2.0**-30, 2.0**-45):
        near += [middles * (1 + part), middles * (1 - part)]
    with np.errstate(over="ignore"):
        x = np.concatenate(near).astype(dtype)
        return np.concatenate(
            [
                sign * part
                for sign in (1, -1)
                for part in (x, np.nextafter(x, dtype(np.inf)), np.nextafter(x, dtype(0)))
            ]
        ).astype(dtype)


def _arguments(session: Session, name: str, source: str) -> tuple[Array, Array]:
    """(the kernel's argument, float64 values) of a wider type.

    They are all numbers of 16 bits; decisive, random and special ones of the others.
    """
    if source in ("float16", "bfloat16"):
        bits = np.arange(1 << 16, dtype=np.uint16)
        return (bits.view(np.float16) if source == "float16" else bits), FORMATS[source].worth(bits)
    dtype = storage(source).type
    form = FORMATS[name]
    with np.errstate(over="ignore"):
        special = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-40, -1e-38, 3e38, -3e38, 1e300, 5e-324]
        ).astype(dtype)
        scale = np.exp2(
            session.rng.uniform(
                np.log2(form.worth(np.array([1]))[0]) - 3, np.log2(form.maximum) + 2, 4000
            )
        )
        x = np.concatenate(
            [
                _decisive(form, dtype),
                special,
                (session.rng.choice([-1, 1], 4000) * scale).astype(dtype),
            ]
        )
    return x, x.astype(np.float64)


def _narrower(name: str, source: str, rounding: str, session: Session) -> None:
    x, values = _arguments(session, name, source)
    found = np.zeros(len(x), np.uint8)
    session.launch(
        convert,
        (-(-len(x) // 1024),),
        given(x, source),
        given(found, name),
        len(x),
        ROUNDING=rounding,
        BLOCK=1024,
    )
    check_bits(session, found, FORMATS[name].rounded(values, rounding), name)


def _across(name: str, session: Session) -> None:
    """From one format of 8 bits to each other one."""
    for target in KINDS:
        if target != name:
            found = np.zeros(256, np.uint8)
            session.launch(
                convert,
                (1,),
                given(BYTES.copy(), name),
                given(found, target),
                256,
                ROUNDING=None,
                BLOCK=BLOCK,
            )
            check_bits(
                session,
                found,
                FORMATS[target].rounded(FORMATS[name].worth(BYTES)),
                target,
                f"to {target}",
            )


@tw.jit
def there_and_back(x_ptr, y_ptr, MIDDLE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(MIDDLE).to(x_ptr.dtype.element_ty))


def _round_trip(name: str, session: Session) -> None:
    """Widen and narrow again without a change, except for infinity, which saturates.

    A wider number that went through the format is rounded to it.
    """
    worth = FORMATS[name].rounded(FORMATS[name].worth(BYTES))
    for middle in ("float16", "bfloat16", "float32"):
        found = np.zeros(256, np.uint8)
        session.launch(
            there_and_back,
            (1,),
            given(BYTES.copy(), name),
            given(found, name),
            MIDDLE=getattr(tl, middle),
            BLOCK=BLOCK,
        )
        check_bits(session, found, worth, name, f"through {middle}")
    x = (session.rng.standard_normal(BLOCK) * FORMATS[name].maximum / 3).astype(np.float32)
    y = np.zeros_like(x)
    session.launch(there_and_back, (1,), x, y, MIDDLE=getattr(tl, name), BLOCK=BLOCK)
    session.check(y, FORMATS[name].rounded(x.astype(np.float64)), name="fp32 through the format")


def conversion_cases(name: str) -> Iterator[Case]:
    for target in FLOATS:
        text = IR[target]
        body = functools.partial(_wider, name, target)
        yield fp8_case(
            name,
            f"to-{text}/every-number",
            "tl.cast",
            body,
            text,
            quick=target in ("float32", "bfloat16") and name in COMMON,
        )
    for source in FLOATS:
        text = IR[source]
        for rounding in ("rtne", "rtz"):
            body = functools.partial(_narrower, name, source, rounding)
            quick = name in COMMON and (source, rounding) in (
                ("float32", "rtne"),
                ("float64", "rtne"),
                ("float16", "rtz"),
            )
            yield fp8_case(
                name, f"from-{text}/{rounding}", "tl.cast", body, text, quick=quick, tile=1024
            )
    yield fp8_case(
        name,
        "across/every-number",
        "tl.cast",
        functools.partial(_across, name),
        *FP8,
        quick=name == "float8e5",
    )
    yield fp8_case(
        name,
        "round-trip/every-number",
        "tl.cast",
        functools.partial(_round_trip, name),
        "f16",
        "bf16",
        "f32",
        quick=name == "float8e4b8",
    )
