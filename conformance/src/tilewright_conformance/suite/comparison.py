"""Comparison of a kernel's results with the expected values.

It measures errors in units in the last place, and has rules for NaN, infinity and signed zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType, Type
from tilewright.reference.numerics import decode, encode, is_raw, numpy_dtype

Array = np.ndarray[Any, Any]


class MismatchError(AssertionError):
    """Found and expected values differ; says where, by how much, and what was allowed."""


@dataclass(frozen=True)
class Rules:
    """The rules of equality. NaN equals NaN alone, whatever its bits; an infinity equals itself.

    Attributes:
        ulp: units in the last place (of the expected value, in the type of the result) that a float
            may be off.
        rtol, atol: further allowance, ``atol + rtol * |expected|``; ``atol`` may be an array: the
            bound of each element.
        zero_sign: the sign of a zero counts.
        flush: a result below the normal numbers may come out as zero.
    """

    ulp: float = 0.0
    rtol: float = 0.0
    atol: Any = 0.0
    zero_sign: bool = True
    flush: bool = False


def compare(
    found: Array,
    expected: ArrayLike,
    type_: Type | str | None = None,
    rules: Rules = Rules(),
    name: str = "result",
) -> float:
    """Compare element by element and return the maximum error in ULP (0 for integers).

    Args:
        found: values as the reference keeps them: bf16 and fp8 as raw bits.
        expected: an array of the same shape (or one that is broadcast to it): either kept like
            ``found``, of its dtype, or float64 (or longdouble) numbers, which need not be numbers
            of the type: errors are measured from them, and equality is with the nearest number of
            the type.
        type_: the Tile IR type of the elements; None: derived from the dtype of ``found``.

    Raises:
        MismatchError: they differ.
    """
    type_ = _type_of(found, type_)
    wanted = np.asarray(expected)
    wanted = np.broadcast_to(wanted, found.shape)
    if found.dtype != numpy_dtype(type_):
        raise TypeError(
            f"{name}: elements of {type_} are kept as {numpy_dtype(type_)}, not as {found.dtype}"
        )
    if not isinstance(type_, FloatType):
        wrong = np.asarray(found != wanted)
        if wrong.any():
            _refuse(name, type_, wrong, found, wanted, None, "")
        return 0.0
    if is_raw(type_) and wanted.dtype == found.dtype:
        wanted = np.asarray(decode(wanted, type_))
    with np.errstate(all="ignore"):
        error, wrong, distance = _float_errors(found, wanted, type_, rules)
    if wrong.any():
        allowed = [f"{rules.ulp:g} ULP"] * (rules.ulp > 0 or not (rules.rtol or np.any(rules.atol)))
        allowed += [f"{rules.rtol:g} of the value"] * bool(rules.rtol) + [
            "the case's bound"
        ] * bool(np.any(rules.atol))
        _refuse(
            name,
            type_,
            wrong,
            np.asarray(decode(found, type_)),
            wanted,
            distance,
            " or ".join(allowed),
        )
    return error


def _float_errors(
    found: Array, wanted: Array, type_: FloatType, rules: Rules
) -> tuple[float, Array, Array]:
    """(maximum error of finite results in ULP, which are wrong, all errors in ULP)."""
    wide = np.longdouble if type_.bits == 64 else np.float64
    numbers = np.asarray(decode(found, type_)).astype(wide)
    exact = wanted.astype(wide)
    rounded = np.asarray(decode(encode(wanted.astype(np.float64), type_), type_)).astype(wide)
    low, most = 1 - type_.bias, _max_exponent(type_)
    exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))[1] - 1
    unit = np.ldexp(
        wide(1), np.where(exact == 0, low, np.clip(exponent, low, most)) - type_.mantissa
    )
    beyond = np.ldexp(wide(1), most + 1)
    # An infinity that should be a number is as far off as the number that would follow the maximum,
    # and the other way round.
    found_number = np.where(np.isinf(numbers), np.copysign(beyond, numbers), numbers)
    distance = np.abs(found_number - exact) / unit
    settled = np.isnan(rounded) | np.isinf(exact)
    same = (numbers == rounded) | (np.isnan(numbers) & np.isnan(rounded))
    if rules.zero_sign and type_.has_negative_zero:
        same &= (numbers != 0) | (rounded != 0) | (np.signbit(numbers) == np.signbit(rounded))
    bound = np.maximum(
        rules.ulp * unit,
        np.asarray(rules.atol) + rules.rtol * np.abs(np.where(np.isfinite(exact), exact, 0)),
    )
    near = ~settled & (np.abs(found_number - exact) <= bound)
    if rules.zero_sign and type_.has_negative_zero:
        near &= (numbers != 0) | (exact != 0) | (np.signbit(numbers) == np.signbit(exact))
    good = same | near
    if rules.flush:
        good |= (numbers == 0) & (np.abs(rounded) < np.ldexp(wide(1), low))
    measured = distance[np.isfinite(exact) & np.isfinite(numbers) & good]
    return float(measured.max(initial=0.0)), np.asarray(~good), np.where(settled, np.nan, distance)


def _max_exponent(type_: FloatType) -> int:
    return (1 << type_.exponent) - (2 if type_.has_infinity else 1) - type_.bias


def _type_of(found: Array, type_: Type | str | None) -> Type:
    if isinstance(type_, str):
        return parse_type(type_)
    if type_ is not None:
        return type_
    names = {
        "b": "i1",
        "i": f"i{8 * found.itemsize}",
        "u": f"u{8 * found.itemsize}",
        "f": f"f{8 * found.itemsize}",
    }
    return parse_type(names[found.dtype.kind])


def _refuse(
    name: str,
    type_: Type,
    wrong: Array,
    found: Array,
    wanted: Array,
    distance: Array | None,
    allowed: str,
) -> None:
    places = np.argwhere(wrong)
    first = tuple(int(index) for index in places[0]) if found.ndim else ()
    text = (
        f"{name} ({type_}): {len(places)} of {wrong.size} elements are wrong; first at "
        f"{list(first)}: expected {wanted[first].item()!r}, found {found[first].item()!r}"
    )
    if distance is not None:
        errors = distance[wrong]
        errors = errors[np.isfinite(errors)]
        text += (
            f"; off by up to {float(errors.max()):.4g} ULP, allowed {allowed}"
            if errors.size
            else f"; allowed {allowed}"
        )
    raise MismatchError(text)
