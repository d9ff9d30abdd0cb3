"""The oracles of functions: forty digits against mpmath, roundings against the machine's own,
Philox against its authors' vectors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from tilewright_conformance.cases.math.libdevice.values import DOMAINS
from tilewright_conformance.oracles.functions import FUNCTIONS, exact
from tilewright_conformance.oracles.philox import uniform, words
from tilewright_conformance.oracles.rounding import rounded
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
    double_nearest,
    large_angles,
    random_arguments,
)

RNG = np.random.default_rng(5)
#: What longdouble itself may be off.
CLOSE = 2 * float(np.finfo(np.longdouble).eps)


def _spread(count: int, low: float, high: float) -> Any:
    return RNG.choice([-1.0, 1.0], count) * np.exp(
        RNG.uniform(math.log(low), math.log(high), count)
    )


def _arguments(name: str) -> list[Any]:
    rng = np.random.default_rng(6)
    if name in ARGUMENTS:
        x = random_arguments(rng, name, np.float64, 15)
        return [x[(np.abs(x) < 1e4) | (name not in ("exp", "exp2"))]]
    if name in DOMAINS:
        operands = DOMAINS[name](rng, 700)
        return (
            [np.abs(operands[0][::5]), operands[1][::5]]
            if name == "pow"
            else [operand[::5] for operand in operands]
        )
    if name == "div":
        return [_spread(20, 1e-200, 1e200), _spread(20, 1e-100, 1e100)]
    if "length" in name:
        return [_spread(20, 1e-200, 1e200) for _ in range(3)]
    if name in ("jn", "yn"):
        return [rng.integers(0, 20, 40), np.abs(_spread(40, 0.1, 60))]
    return [np.abs(_spread(40, 1e-3, 1e5))]


_MPMATH: dict[str, Any] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "pow": mpmath.power,
    "div": lambda x, y: x / y,
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)),
    "length": lambda *parts: mpmath.sqrt(sum(part * part for part in parts)),
    "reciprocal_length": lambda *parts: 1 / mpmath.sqrt(sum(part * part for part in parts)),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "normcdf": mpmath.ncdf,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))) if x < 100 else mpmath.loggamma(x),
    "tgamma": mpmath.gamma,
    **{
        f"{kind}{order}": (lambda x, f=function, n=order: f(n, x))
        for kind, function in (("j", mpmath.besselj), ("y", mpmath.bessely))
        for order in (0, 1)
    },
    "jn": mpmath.besselj,
    "yn": mpmath.bessely,
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x),
    "cyl_bessel_i1": lambda x: mpmath.besseli(1, x),
}
_INVERSES = {"erfcinv": mpmath.erfc, "normcdfinv": mpmath.ncdf}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_mpmath(name: str) -> None:
    operands = _arguments(name)
    with mpmath.workdps(
        400 if name in ("sin", "cos", "tan", "sinh", "tanh", "erfcx", "expm1") else 60
    ):
        for *numbers, found in zip(*operands, exact(name, *operands), strict=True):
            given = [mpmath.mpf(float(number)) for number in numbers]
            value = mpmath.mpf(np.format_float_scientific(found, precision=30))
            if name in _INVERSES:
                # The error of the argument that the value belongs to, by the slope.
                forth = _INVERSES[name]
                assert (
                    abs(forth(value) - given[0]) <= abs(mpmath.diff(forth, value) * value) * CLOSE
                ), numbers
                continue
            wanted = (_MPMATH.get(name) or getattr(mpmath, name))(*given)
            assert abs(value - wanted) <= abs(wanted) * CLOSE, numbers


def test_angles_are_reduced_however_large() -> None:
    x = large_angles(np.float64)
    with mpmath.workdps(400):
        for name in ("sin", "cos"):
            for angle, found in zip(x[::7], exact(name, x[::7]), strict=True):
                wanted = getattr(mpmath, name)(mpmath.mpf(float(angle)))
                assert (
                    abs(mpmath.mpf(np.format_float_scientific(found, precision=30)) - wanted)
                    <= abs(wanted) * CLOSE
                ), angle


def test_what_no_format_holds_is_infinite_or_zero() -> None:
    found = exact("exp", np.array([1e300, -1e300, 800.0]))
    assert found[0] == np.inf and found[1] == 0 and found[2] > 1e307


@pytest.mark.parametrize("name", ARGUMENTS)
def test_double_precision_agrees(name: str) -> None:
    x = random_arguments(np.random.default_rng(1), name, np.float32, 30)
    found, wanted = double_nearest(name, x), exact(name, x)
    ordinary = (np.abs(wanted) > 1e-300) & (np.abs(wanted) < 1e300)
    assert (np.abs(found[ordinary] - wanted[ordinary]) <= np.abs(wanted[ordinary]) * 1e-15).all()
    settled, results = (np.array(side) for side in zip(*ARGUMENTS[name].settled, strict=True))
    np.testing.assert_allclose(double_nearest(name, settled), results, rtol=1e-15)


@pytest.mark.parametrize(
    ("text", "dtype"), [("f16", np.float16), ("f32", np.float32), ("f64", np.float64)]
)
def test_rounding_to_nearest_is_the_machines(text: str, dtype: Any) -> None:
    x, y = _spread(400, 1e-7, 6e4).astype(dtype), _spread(400, 1e-7, 6e4).astype(dtype)
    with np.errstate(all="ignore"):
        for operation, exactly in (
            (np.add, Fraction.__add__),
            (np.multiply, Fraction.__mul__),
            (np.divide, Fraction.__truediv__),
        ):
            for a, b, found in zip(x.tolist(), y.tolist(), operation(x, y).tolist(), strict=True):
                if b:
                    exact_value = {
                        np.add: Fraction.__add__,
                        np.multiply: Fraction.__mul__,
                        np.divide: Fraction.__truediv__,
                    }[operation](Fraction(a), Fraction(b))
                    assert rounded(exact_value, "rn", text) == found, (operation, a, b)


@pytest.mark.parametrize(
    ("exact_value", "text", "expected"),
    [
        (
            Fraction(1, 3),
            "f32",
            {
                "rn": 0.3333333432674408,
                "rz": 0.3333333134651184,
                "rd": 0.3333333134651184,
                "ru": 0.3333333432674408,
            },
        ),
        (
            Fraction(-1, 3),
            "f32",
            {
                "rn": -0.3333333432674408,
                "rz": -0.3333333134651184,
                "rd": -0.3333333432674408,
                "ru": -0.3333333134651184,
            },
        ),
        (
            Fraction(2) ** 128,
            "f32",
            {"rn": math.inf, "rz": 2.0**128 - 2.0**104, "rd": 2.0**128 - 2.0**104, "ru": math.inf},
        ),
        (
            -(Fraction(2) ** 16),
            "f16",
            {"rn": -math.inf, "rz": -65504.0, "rd": -math.inf, "ru": -65504.0},
        ),
        (Fraction(65519), "f16", {"rn": 65504.0, "ru": math.inf}),
        (Fraction(65520), "f16", {"rn": math.inf, "rz": 65504.0}),
        (Fraction(1, 2**25), "f16", {"rn": 0.0, "ru": 2.0**-24, "rd": 0.0}),
        (Fraction(3, 2**150), "f32", {"rn": 2 * 2.0**-149, "rz": 2.0**-149}),
        (Fraction(257, 256), "bf16", {"rn": 1.0, "ru": 1.0078125}),
        (Fraction(259, 256), "bf16", {"rn": 1.015625}),
        (Fraction(5, 4), "f64", {"rn": 1.25, "rz": 1.25, "rd": 1.25, "ru": 1.25}),
    ],
)
def test_directions_and_ends_of_formats(
    exact_value: Fraction, text: str, expected: dict[str, float]
) -> None:
    assert {mode: rounded(exact_value, mode, text) for mode in expected} == expected


def test_offsets_of_32_and_64_bits() -> None:
    low, wide = np.array([5, -1], np.int32), np.array([5, -1, 2**40], np.int64)
    assert (words(7, low)[:, 0] == words(7, wide)[:, 0]).all()
    assert (words(7, low)[:, 1] != words(7, wide)[:, 1]).any()  # 32 bits have no upper half
    assert (words(7, wide)[:, 2] != words(7, wide)[:, 0]).any()


def test_uniform_numbers_are_below_one() -> None:
    for dtype, bits in ((np.uint32, 32), (np.uint64, 64)):
        ends = np.array([0, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1], dtype)
        found = uniform(ends)
        assert found.dtype == np.float32 and found.min() == 0 and 0.999 < found.max() < 1
