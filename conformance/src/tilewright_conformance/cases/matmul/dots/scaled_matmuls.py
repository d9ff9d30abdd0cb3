"""``tl.dot_scaled``: formats, scales and their ranges."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.cases.matmul.dots.dot_case import dot_case
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.matrix import Operand
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

_FORMATS = ("e2m1", "e4m3", "e5m2", "bf16", "fp16")
#: Rows, columns and depth of a matmul by default.
_SCALED_SHAPE = 16, 32, 64
_FORMAT_TYPES = {"e2m1": "u8", "e4m3": "u8", "e5m2": "u8", "bf16": "bf16", "fp16": "f16"}


def scaled_cases() -> Iterator[Case]:
    for left in _FORMATS:
        for right in _FORMATS:
            with_scales = (left not in ("bf16", "fp16"), right not in ("bf16", "fp16"))
            yield _scaled_case(
                f"{left}_{right}", left, right, quick=left == right, with_scales=with_scales
            )
    for pack in ((True, False), (False, True), (False, False)):
        yield _scaled_case(
            f"e2m1_e2m1/pack_{pack[0]}_{pack[1]}",
            "e2m1",
            "e2m1",
            pack=pack,
            quick=pack == (False, True),
        )
    yield _scaled_case("e2m1_e5m2/batches", "e2m1", "e5m2", batches=(2,))
    yield _scaled_case("e4m3_bf16/batches", "e4m3", "bf16", batches=(2,), with_scales=(True, False))
    yield _scaled_case("e2m1_e2m1/groups_of_16", "e2m1", "e2m1", group=16, quick=True)
    yield _scaled_case("e4m3_e4m3/left_scale_alone", "e4m3", "e4m3", with_scales=(True, False))
    yield _scaled_case(
        "e4m3_e4m3/right_scale_alone", "e4m3", "e4m3", with_scales=(False, True), quick=True
    )
    yield _scaled_case("e4m3_e4m3/scale_not_a_number", "e4m3", "e4m3", spoilt=True, quick=True)
    yield _scaled_case("e4m3_e4m3/fast_math", "e4m3", "e4m3", fast=True)
    # as great as instructions that scale by themselves take at once, and greater
    for left in _FORMATS[:3]:
        for right in _FORMATS[:3]:
            yield _scaled_case(
                f"{left}_{right}/32x64x256",
                left,
                right,
                quick=(left, right) == ("e4m3", "e2m1"),
                shape=(32, 64, 256),
            )
    for left, right in (("e2m1", "e4m3"), ("e5m2", "e5m2")):
        yield _scaled_case(
            f"{left}_{right}/64x64x64", left, right, quick=left == "e5m2", shape=(64, 64, 64)
        )
    yield _scaled_case(
        "e5m2_e4m3/64x64x128/scale_not_a_number", "e5m2", "e4m3", spoilt=True, shape=(64, 64, 128)
    )
    yield _scaled_case(
        "e2m1_e4m3/16x32x128/batches", "e2m1", "e4m3", batches=(2,), shape=(16, 32, 128)
    )
    yield _scaled_case(
        "e4m3_e2m1/32x32x128/right_scale_alone",
        "e4m3",
        "e2m1",
        with_scales=(False, True),
        shape=(32, 32, 128),
        quick=True,
    )
    yield _scaled_case(
        "e4m3_e5m2/32x32x128/no_scales",
        "e4m3",
        "e5m2",
        with_scales=(False, False),
        shape=(32, 32, 128),
    )
    yield from _scaled_ranges()


def _scaled_case(id_: str, left: str, right: str, *, quick: bool = False, **own: Any) -> Case:
    types = {_FORMAT_TYPES[left], _FORMAT_TYPES[right], "f32"}
    if any(own.get("with_scales", (True, True))):
        types.add("u8" if own.get("group", 32) == 32 else "f8e4m3fn")
    # the narrow formats are types too, though they come as bytes
    types |= {
        name for kind, name in (("e4m3", "f8e4m3fn"), ("e5m2", "f8e5m2")) if kind in (left, right)
    }
    body = functools.partial(_scaled_matmul, left, right, own)
    m, n, k = own.get("shape", _SCALED_SHAPE)
    elements = 2 * max(m * k, k * n, m * n)  # there are two batches at most
    return dot_case(
        f"scaled/{id_}",
        body,
        tuple(types),
        set(),
        (),
        subject="tl.dot_scaled",
        quick=quick,
        features={"dot_scaled"},
        elements=elements,
    )


def _scaled_matmul(left: str, right: str, own: dict[str, Any], session: Session) -> None:
    (m, n, k), group = own.get("shape", _SCALED_SHAPE), own.get("group", 32)
    batches, pack, with_scales = (
        own.get("batches", ()),
        own.get("pack", (True, True)),
        own.get("with_scales", (True, True)),
    )
    rng = session.rng
    a = matrix.scaled_operand(rng, left, (*batches, m, k), -1 if pack[0] else -2)
    b = matrix.scaled_operand(rng, right, (*batches, k, n), -2 if pack[1] else -1)
    x, y = (
        matrix.scales(rng, (*batches, m, k // group), group),
        matrix.scales(rng, (*batches, n, k // group), group),
    )
    if own.get("spoilt"):
        x.given[..., 3, 1], x.values[..., 3, 1] = 255, np.nan
    a_values = a.values * np.repeat(x.values, group, -1) if with_scales[0] else a.values
    b_values = (
        b.values * np.swapaxes(np.repeat(y.values, group, -1), -1, -2)
        if with_scales[1]
        else b.values
    )
    c, found = matrix.few_bits(rng, "f32", *batches, m, n), np.zeros((*batches, m, n), np.float32)
    shapes = [
        part for size, shape in map(_size_and_shape, (a, b, x, y, c)) for part in (size, shape)
    ]
    given = (
        a.given,
        x.given if with_scales[0] else None,
        b.given,
        y.given if with_scales[1] else None,
        c.given,
    )
    session.launch(
        kernels.scaled_matmul,
        (1,),
        *given,
        found,
        A=left,
        B=right,
        SHAPES=shapes,
        PACK=pack,
        FAST=own.get("fast", False),
    )
    with np.errstate(invalid="ignore"):
        exact = np.matmul(a_values, b_values) + c.values
        # Scaled elements have at most 11 bits and scales none: hardware that brings operands to 16
        # bits loses nothing.
        atol = matrix.bound(a_values, b_values, c.values, "f32", imprecise=True)
    session.check(found, exact, atol=atol, zero_sign=False)


#: Left and right format, the codes of their scales (None: there are none), the power of two that
#: elements of 16 bits are multiplied by besides, and whether the case is quick: elements times
#: scales that are out of the range of every type, whose matmuls are in that of f32.
_RANGES = (
    ("e4m3", "e4m3", (254, 1), 0, True),
    ("e4m3", "e4m3", (0, 253), 0, False),
    ("e4m3", "e4m3", (0, 127), 0, False),
    ("e2m1", "e2m1", (1, 254), 0, False),
    ("e2m1", "e2m1", (254, 0), 0, False),
    ("e5m2", "e5m2", (250, 4), 0, False),
    ("e5m2", "e4m3", (0, 250), 0, True),
    ("e4m3", "e2m1", (10, 245), 0, False),
    ("bf16", "e4m3", (None, 253), -120, False),
    ("bf16", "e5m2", (None, 0), 120, False),
    ("bf16", "bf16", (250, 20), 0, False),
    ("bf16", "e4m3", (20, 240), 0, False),
    ("fp16", "e4m3", (None, 146), 0, True),
    ("fp16", "e5m2", (None, 60), 0, False),
    ("fp16", "e2m1", (None, 230), 0, False),
    ("e4m3", "fp16", (254, 5), 0, False),
    ("fp16", "fp16", (3, 252), 0, False),
)


def _scaled_ranges() -> Iterator[Case]:
    for left, right, codes, power, quick in _RANGES:
        names = "_".join("none" if code is None else str(code) for code in codes)
        # the sum of a loop, and of some a dot alone, or one whose result is used in the loop
        for form in ("summed", *(("once", "maximum") if quick else ())):
            types = {_FORMAT_TYPES[left], _FORMAT_TYPES[right], "f32", "u8"}
            types |= {
                name
                for kind, name in (("e4m3", "f8e4m3fn"), ("e5m2", "f8e5m2"))
                if kind in (left, right)
            }
            body = functools.partial(_scaled_range, left, right, codes, power, form)
            id_, own = (
                f"scaled/{left}_{right}/scales_{names}/{form}",
                {"quick": quick and form == "once", "elements": 1 << 12},
            )
            yield dot_case(
                id_,
                body,
                tuple(types),
                set(),
                (),
                subject="tl.dot_scaled",
                features={"dot_scaled"},
                **own,
            )


def _scaled_range(
    left: str,
    right: str,
    codes: tuple[int | None, int | None],
    power: int,
    form: str,
    session: Session,
) -> None:
    (m, n, k), trips, rng = _SCALED_SHAPE, 1 if form == "once" else 2, session.rng
    a = _moved(matrix.scaled_operand(rng, left, (trips, m, k), -1), left, power)
    b = _moved(matrix.scaled_operand(rng, right, (trips, k, n), -2), right, power)
    scales = [
        _near(rng, code, (trips, rows, k // 32)) for code, rows in zip(codes, (m, n), strict=True)
    ]
    factors = [np.repeat(scale.values, 32, -1) for scale in scales]
    matmuls = [
        (x * p, y * q.T)
        for x, p, y, q in zip(a.values, factors[0], b.values, factors[1], strict=True)
    ]
    exact, atol, found = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n), np.float32)
    for x, y in matmuls:
        exact = np.maximum(exact, x @ y) if form == "maximum" else exact + x @ y
        # beside that, the smallest subnormal of f32 for each sum
        atol += matrix.bound(x, y, 0.0, "f32", imprecise=True) + k * 2.0**-149
    shapes: list[Any] = []
    for own in (a, b, *scales):
        array = matrix.bits_of(own)
        shapes += [array[0].size, list(array.shape[1:])]
    left_scale, right_scale = (
        None if code is None else scale.given for code, scale in zip(codes, scales, strict=True)
    )
    given = (a.given, left_scale, b.given, right_scale)
    session.launch(
        kernels.scaled_range,
        (1,),
        *given,
        found,
        trips,
        A=left,
        B=right,
        SHAPES=[*shapes, m * n, [m, n]],
        MAXIMUM=form == "maximum",
    )
    session.check(found, exact, atol=atol, zero_sign=False)


def _moved(operand: Operand, format_: str, power: int) -> Operand:
    """Elements in bf16 times a power of two."""
    return (
        matrix.encoded("bf16", operand.values * 2.0**power)
        if power and format_ == "bf16"
        else operand
    )


def _near(rng: np.random.Generator, code: int | None, shape: tuple[int, ...]) -> Operand:
    """Scales at most one from a code; 1 where there are none."""
    if code is None:
        return Operand(np.zeros(shape, np.uint8), np.ones(shape))
    codes = np.clip(code + rng.integers(-1, 2, shape), 0, 254).astype(np.uint8)
    return Operand(codes, np.exp2(codes.astype(np.float64) - 127))


def _size_and_shape(operand: Operand) -> tuple[int, list[int]]:
    array = matrix.bits_of(operand)
    return array.size, list(array.shape)
