"""``tl.extra.libdevice``: each function against NumPy and the standard library.

Operands are random.
"""

# Functions of NumPy on arrays of many types.
# mypy: ignore-errors

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from tilewright.language import libdevice
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import add_probe
from tilewright_conformance.api_coverage.probes.math_functions import APPLY, check

Draw = Callable[[Any, int], list[Any]]

COUNT = 64

# -- operands
# --------------------------------------------------------------------------------------------------


def reals(low: float, high: float, operands: int = 1, dtype: Any = np.float64) -> Draw:
    """Uniform between ``low`` and ``high``."""
    return lambda rng, n: list(rng.uniform(low, high, (operands, n)).astype(dtype))


def whole(dtype: Any, operands: int = 1, low: int | None = None, high: int | None = None) -> Draw:
    """Uniform integers, of the whole range unless limits are given."""
    info = np.iinfo(dtype)
    limits = (info.min if low is None else low, info.max if high is None else high)
    return lambda rng, n: list(rng.integers(*limits, (operands, n), dtype, endpoint=True))


def mixed(*draws: Draw) -> Draw:
    """One operand of each."""
    return lambda rng, n: [operand for draw in draws for operand in draw(rng, n)]


F32, F64 = np.float32, np.float64

# -- exact functions
# --------------------------------------------------------------------------------------------------

_erf, _erfc, _gamma, _lgamma = (
    np.vectorize(function, otypes=[float])
    for function in (math.erf, math.erfc, math.gamma, math.lgamma)
)
_quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])
_remainder = np.vectorize(math.remainder, otypes=[float])
_GAUSS = np.polynomial.legendre.leggauss(200)
_ANGLES = (np.arange(2000) + 0.5) * (np.pi / 2000)


def bessel_j(order: Any, x: Any) -> Any:
    """Bessel's integral by the midpoint rule, which converges exponentially."""
    return np.cos(np.multiply.outer(order, _ANGLES) - np.multiply.outer(x, np.sin(_ANGLES))).mean(
        -1
    )


def bessel_y(order: int, x: Any) -> Any:
    """Compute the Bessel function of the second kind of an integer order from its integral.

    The periodic part of the integral does not span a full period, so Gauss-Legendre quadrature
    computes both parts.
    """
    nodes, weights = _GAUSS
    theta = (nodes + 1) * np.pi / 2
    first = (np.sin(np.multiply.outer(x, np.sin(theta)) - order * theta) * weights).sum(-1) / 2
    t = (nodes + 1) * 4.0
    grown = np.exp(order * t) + (-1) ** order * np.exp(-order * t)
    return first - (grown * np.exp(-np.multiply.outer(x, np.sinh(t))) * weights).sum(-1) * 4 / np.pi


def bessel_i(order: int, x: Any) -> Any:
    """The modified function of the first kind."""
    return (np.exp(np.multiply.outer(x, np.cos(_ANGLES))) * np.cos(order * _ANGLES)).mean(-1)


def half_away(x: Any) -> Any:
    """To the nearest integer, ties away from zero."""
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def exponent(x: Any) -> Any:
    """floor(log2 |x|)."""
    return np.frexp(x)[1] - 1


def bits_from(x: Any) -> list[str]:
    """The bits of unsigned integers, most significant first."""
    width = x.dtype.itemsize * 8
    return [f"{int(value):0{width}b}" for value in x.view(f"u{x.dtype.itemsize}")]


def leading_zeros(x: Any) -> Any:
    return np.array([len(text) - len(text.lstrip("0")) for text in bits_from(x)])


def permuted_bytes(x: Any, y: Any, s: Any) -> Any:
    """Bytes of the eight of y:x, chosen by the nibbles of s."""
    found = []
    for low, high, choice in zip(
        x.view(np.uint32).tolist(),
        y.view(np.uint32).tolist(),
        s.view(np.uint32).tolist(),
        strict=True,
    ):
        both = (low | high << 32).to_bytes(8, "little")
        found.append(int.from_bytes(bytes(both[choice >> 4 * i & 7] for i in range(4)), "little"))
    return np.array(found, np.uint32).view(np.int32)


def low24(x: Any) -> Any:
    return (x << 8) >> 8


def high_words(x: Any) -> Any:
    return (x.view(np.int64) >> 32).astype(np.int32)


def join_words(high: Any, low: Any) -> Any:
    return ((high.astype(np.int64) << 32) | (low.astype(np.int64) & 0xFFFFFFFF)).view(np.float64)


# -- a directed rounding
# --------------------------------------------------------------------------------------------------


def rounded(exact: Any, dtype: Any, mode: str) -> Any:
    """Round an exact fraction to its neighbor in the direction of ``mode``.

    Where the exact value is a square root, the argument is its square.
    """
    nearest = dtype(float(exact))
    for _ in range(2):  # float() rounds to float64 first, so a step may be needed
        error = exact - Fraction(float(nearest))
        if mode == "rn":
            break
        down = mode == "rd" or (mode == "rz" and exact > 0)
        if down and error < 0:
            nearest = np.nextafter(nearest, dtype(-np.inf))
        elif not down and error > 0:
            nearest = np.nextafter(nearest, dtype(np.inf))
    return nearest


def exact_values(operation: str, operands: tuple[Any, ...]) -> list[Fraction]:
    """Return an operation's exact results, element by element; square roots have 200 exact bits."""
    results = []
    for numbers in zip(*(x.tolist() for x in operands), strict=True):
        a, *rest = (Fraction(number) for number in numbers)
        if operation == "sqrt":
            scale = 1 << 400
            results.append(Fraction(math.isqrt(a.numerator * scale // a.denominator), 1 << 200))
            continue
        results.append(
            {
                "add": lambda: a + rest[0],  # noqa: B023  (called at once)
                "sub": lambda: a - rest[0],  # noqa: B023
                "mul": lambda: a * rest[0],  # noqa: B023
                "div": lambda: a / rest[0],  # noqa: B023
                "rcp": lambda: 1 / a,  # noqa: B023
                "fma": lambda: a * rest[0] + rest[1],  # noqa: B023
            }[operation]()
        )
    return results


def _directed(operation: str, mode: str, operands: int) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        for dtype in (F32, F64):
            given = [x.astype(dtype) for x in rng.uniform(0.01, 9.0, (operands, COUNT))]
            expected = np.array(
                [rounded(exact, dtype, mode) for exact in exact_values(operation, tuple(given))]
            )
            check(
                on,
                getattr(libdevice, f"{operation}_{mode}"),
                lambda *_: expected.astype(np.float64),  # noqa: B023
                given,
                0,
            )

    return run


def _to_whole(name: str, mode: str, source: Any, target: Any) -> Callable[[Machine, Any], None]:
    to = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[mode]

    def run(on: Machine, rng: Any) -> None:
        x = rng.uniform(0 if np.dtype(target).kind == "u" else -1e6, 1e6, COUNT).astype(source)
        check(on, getattr(libdevice, name), lambda x: to(x).astype(target), [x], 0, target)

    return run


def _from_whole(name: str, mode: str, source: Any, target: Any) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        (x,) = whole(source)(rng, COUNT)
        expected = np.array([rounded(Fraction(value), target, mode) for value in x.tolist()])
        check(on, getattr(libdevice, name), lambda _: expected.astype(np.float64), [x], 0, target)

    return run


def _narrow(mode: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        x = rng.standard_normal(COUNT)
        expected = np.array([rounded(Fraction(value), F32, mode) for value in x.tolist()])
        check(
            on,
            getattr(libdevice, f"double2float_{mode}"),
            lambda _: expected.astype(np.float64),
            [x],
            0,
            F32,
        )

    return run


# -- the table
# --------------------------------------------------------------------------------------------------

#: function of fp32 and fp64 -> (exact, operands, ULP in fp32 in relaxed mode, ULP in fp64 next to
#: the oracle's own error)
FLOATS: dict[str, tuple[Callable[..., Any], Draw, float, float]] = {
    "abs": (np.abs, reals(-9, 9), 0, 0),
    "acos": (np.arccos, reals(-1, 1), 8, 4),
    "acosh": (np.arccosh, reals(1, 99), 12, 4),
    "asin": (np.arcsin, reals(-1, 1), 8, 4),
    "asinh": (np.arcsinh, reals(-99, 99), 12, 4),
    "atan": (np.arctan, reals(-99, 99), 6, 4),
    "atan2": (np.arctan2, reals(-9, 9, 2), 6, 4),
    "atanh": (np.arctanh, reals(-0.99, 0.99), 12, 4),
    "cbrt": (np.cbrt, reals(-99, 99), 4, 2),
    "ceil": (np.ceil, reals(-99, 99), 0, 0),
    "copysign": (np.copysign, reals(-9, 9, 2), 0, 0),
    "cos": (np.cos, reals(-30, 30), 4, 4),
    "cosh": (np.cosh, reals(-9, 9), 24, 4),
    "cospi": (lambda x: np.sin(np.pi * (0.5 - np.abs(x))), reals(-1, 1), 4, 16),
    "cyl_bessel_i0": (lambda x: bessel_i(0, x), reals(-9, 9), 4, 32),
    "cyl_bessel_i1": (lambda x: bessel_i(1, x), reals(1, 9), 4, 64),
    "div_rn": (np.divide, reals(0.1, 9, 2), 0.5001, 0.5001),
    "erf": (_erf, reals(-4, 4), 4, 4),
    "erfc": (_erfc, reals(-4, 4), 4, 16),
    "erfcinv": (lambda x: -_quantile(x / 2) / math.sqrt(2), reals(0.01, 0.8), 4, 64),
    "erfcx": (lambda x: np.exp(x * x) * _erfc(x), reals(-2, 5), 4, 256),
    "erfinv": (lambda x: _quantile((1 + x) / 2) / math.sqrt(2), reals(0.2, 0.95), 4, 64),
    "exp": (np.exp, reals(-20, 20), 30, 4),
    "exp10": (lambda x: np.float64(10.0) ** x, reals(-9, 9), 8, 8),
    "exp2": (np.exp2, reals(-20, 20), 4, 4),
    "expm1": (np.expm1, reals(-5, 5), 16, 4),
    "fdim": (lambda x, y: np.maximum(x - y, 0), reals(-9, 9, 2), 0.5001, 0.5001),
    "floor": (np.floor, reals(-99, 99), 0, 0),
    "fmod": (np.fmod, reals(-9, 9, 2), 0, 0),
    "hypot": (np.hypot, reals(-9, 9, 2), 6, 4),
    "j0": (lambda x: bessel_j(0, x), reals(0.1, 2.2), 8, 64),
    "j1": (lambda x: bessel_j(1, x), reals(0.1, 3.6), 8, 256),
    "lgamma": (_lgamma, reals(2.5, 40), 4, 16),
    "log": (np.log, reals(0.01, 99), 4, 4),
    "log10": (np.log10, reals(0.01, 99), 4, 4),
    "log1p": (np.log1p, reals(-0.9, 99), 4, 4),
    "log2": (np.log2, reals(0.01, 99), 4, 4),
    "logb": (exponent, reals(0.01, 99), 0, 0),
    "nearbyint": (np.rint, reals(-99, 99), 0, 0),
    "norm3d": (lambda x, y, z: np.sqrt(x * x + y * y + z * z), reals(-9, 9, 3), 6, 4),
    "norm4d": (lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w), reals(-9, 9, 4), 6, 4),
    "normcdf": (lambda x: 0.5 * _erfc(-x / math.sqrt(2)), reals(-4, 4), 4, 64),
    "normcdfinv": (_quantile, reals(0.01, 0.45), 4, 64),
    "pow": (np.power, mixed(reals(0.1, 9), reals(-5, 5)), 24, 8),
    "rcbrt": (lambda x: 1 / np.cbrt(x), reals(0.1, 99), 8, 4),
    "remainder": (_remainder, reals(-9, 9, 2), 0, 0),
    "rhypot": (lambda x, y: 1 / np.hypot(x, y), reals(-9, 9, 2), 8, 4),
    "rint": (np.rint, reals(-99, 99), 0, 0),
    "rnorm3d": (lambda x, y, z: 1 / np.sqrt(x * x + y * y + z * z), reals(-9, 9, 3), 8, 4),
    "rnorm4d": (
        lambda x, y, z, w: 1 / np.sqrt(x * x + y * y + z * z + w * w),
        reals(-9, 9, 4),
        8,
        4,
    ),
    "round": (half_away, reals(-99, 99), 0, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), reals(0.01, 99), 4, 4),
    "sin": (np.sin, reals(-30, 30), 4, 4),
    "sinh": (np.sinh, reals(-9, 9), 24, 4),
    "sinpi": (lambda x: np.sin(np.pi * x), reals(-0.5, 0.5), 4, 4),
    "sqrt": (np.sqrt, reals(0, 99), 2, 0.5001),
    "tan": (np.tan, reals(-9, 9), 8, 4),
    "tanh": (np.tanh, reals(-9, 9), 8, 4),
    "tgamma": (_gamma, reals(0.5, 9), 4, 16),
    "trunc": (np.trunc, reals(-99, 99), 0, 0),
    "y0": (lambda x: bessel_y(0, x), reals(1.2, 3.5), 16, 4096),
    "y1": (lambda x: bessel_y(1, x), reals(0.8, 2.0), 16, 4096),
}

#: function of fp32 alone -> (exact, operands, ULP)
SINGLE: dict[str, tuple[Callable[..., Any], Draw, float]] = {
    "fast_cosf": (np.cos, reals(-3, 3), 64),
    "fast_dividef": (np.divide, reals(0.1, 9, 2), 4),
    "fast_exp10f": (lambda x: 10.0**x, reals(-3, 3), 32),
    "fast_expf": (np.exp, reals(-9, 9), 32),
    "fast_log10f": (np.log10, reals(2, 99), 16),
    "fast_log2f": (np.log2, reals(2, 99), 16),
    "fast_logf": (np.log, reals(2, 99), 16),
    "fast_powf": (np.power, mixed(reals(1, 9), reals(-3, 3)), 64),
    "fast_sinf": (np.sin, reals(-3, 3), 64),
    "fast_tanf": (np.tan, reals(-1, 1), 64),
    "fast_tanhf": (np.tanh, reals(-3, 3), 64),
    "rsqrt_rn": (lambda x: 1 / np.sqrt(x), reals(0.01, 99), 0.5001),
    "saturatef": (lambda x: np.clip(x, 0, 1), reals(-1, 2), 0),
}

#: function -> (exact, operands, type of the result); exact to the last bit
WHOLE: dict[str, list[tuple[Callable[..., Any], Draw, Any]]] = {
    "brev": [
        (
            lambda x: np.array([int(text[::-1], 2) for text in bits_from(x)], np.uint32).view(
                np.int32
            ),
            whole(np.int32),
            np.int32,
        )
    ],
    "byte_perm": [(permuted_bytes, whole(np.int32, 3), np.int32)],
    "clz": [(leading_zeros, whole(dtype), np.int32) for dtype in (np.int32, np.int64)],
    "double2hiint": [(high_words, reals(-9, 9), np.int32)],
    "double2loint": [(lambda x: x.view(np.int64).astype(np.int32), reals(-9, 9), np.int32)],
    "double_as_longlong": [(lambda x: x.view(np.int64), reals(-9, 9), np.int64)],
    "ffs": [
        (
            lambda x: np.array([text[::-1].find("1") + 1 for text in bits_from(x)]),
            whole(dtype),
            np.int32,
        )
        for dtype in (np.int32, np.int64)
    ],
    "finitef": [(np.isfinite, reals(-9, 9, dtype=F32), np.int32)],
    "float_as_int": [(lambda x: x.astype(F32).view(np.int32), reals(-9, 9, dtype=F32), np.int32)],
    "float_as_uint": [
        (lambda x: x.astype(F32).view(np.uint32), reals(-9, 9, dtype=F32), np.uint32)
    ],
    "hadd": [(lambda x, y: (x.astype(np.int64) + y) >> 1, whole(np.int32, 2), np.int32)],
    "ilogb": [(exponent, reals(0.01, 99, dtype=dtype), np.int32) for dtype in (F32, F64)],
    "isfinited": [(np.isfinite, reals(-9, 9), np.int32)],
    "isinf": [(np.isinf, reals(-9, 9, dtype=dtype), np.int32) for dtype in (F32, F64)],
    "isnan": [(np.isnan, reals(-9, 9, dtype=dtype), np.int32) for dtype in (F32, F64)],
    "llrint": [(np.rint, reals(-99, 99, dtype=dtype), np.int64) for dtype in (F32, F64)],
    "llround": [(half_away, reals(-99, 99, dtype=dtype), np.int64) for dtype in (F32, F64)],
    "mul24": [(lambda x, y: low24(x) * low24(y), whole(np.int32, 2), np.int32)],
    "mulhi": [(lambda x, y: (x.astype(np.int64) * y) >> 32, whole(np.int32, 2), np.int32)],
    "popc": [
        (lambda x: np.array([text.count("1") for text in bits_from(x)]), whole(dtype), np.int32)
        for dtype in (np.int32, np.int64)
    ],
    "rhadd": [(lambda x, y: (x.astype(np.int64) + y + 1) >> 1, whole(np.int32, 2), np.int32)],
    "sad": [(lambda x, y, z: np.abs(x - y) + z, whole(np.int32, 3, -9999, 9999), np.int32)],
    "signbit": [(np.signbit, reals(-9, 9, dtype=dtype), np.int32) for dtype in (F32, F64)],
}

#: function -> (exact float, operands, type of the result)
BITS: dict[str, tuple[Callable[..., Any], Draw, Any]] = {
    "hiloint2double": (join_words, whole(np.int32, 2, 0, 2**30), F64),
    "int_as_float": (lambda x: x.view(F32).astype(float), whole(np.int32, 1, 0, 2**30), F32),
    "uint_as_float": (lambda x: x.view(F32).astype(float), whole(np.uint32, 1, 0, 2**30), F32),
    "longlong_as_double": (lambda x: x.view(F64), whole(np.int64, 1, 0, 2**62), F64),
    "rcp64h": (lambda x: (high_words(1 / x).astype(np.int64) << 32).view(F64), reals(0.1, 9), F64),
}

DIRECTED = {"add": 2, "sub": 2, "mul": 2, "div": 2, "rcp": 1, "sqrt": 1, "fma": 3}
_WHOLE_NAMES = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
_FLOAT_NAMES = {"float": F32, "double": F64}


def _floats(name: str) -> Callable[[Machine, Any], None]:
    exact, draw, single, double = FLOATS[name]

    def run(on: Machine, rng: Any) -> None:
        for dtype, ulps in ((F32, single), (F64, double)):
            check(
                on,
                getattr(libdevice, name),
                exact,
                [x.astype(dtype) for x in draw(rng, COUNT)],
                ulps,
            )

    return run


def _single(name: str) -> Callable[[Machine, Any], None]:
    exact, draw, ulps = SINGLE[name]
    return lambda on, rng: check(
        on, getattr(libdevice, name), exact, [x.astype(F32) for x in draw(rng, COUNT)], ulps
    )


def _whole(name: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        for exact, draw, result in WHOLE[name]:
            operands = draw(rng, COUNT)
            if name.startswith(("is", "finite")):
                operands[0][::4], operands[0][1::4] = np.nan, -np.inf
            out = _results(on, name, operands, result)
            wide = [
                x
                if x.dtype.kind in "iu"
                or name in ("double2hiint", "double2loint", "double_as_longlong")
                else x.astype(F64)
                for x in operands
            ]
            np.testing.assert_array_equal(
                out != 0
                if out.dtype == np.int32 and np.asarray(exact(*wide)).dtype == bool
                else out,
                exact(*wide),
            )

    return run


def _results(on: Machine, name: str, operands: list[Any], result: Any) -> Any:
    out = np.zeros(COUNT, result)
    on(APPLY[len(operands) - 1])[(1,)](*operands, out, FUNCTION=getattr(libdevice, name), N=COUNT)
    return out


def _bits(name: str) -> Callable[[Machine, Any], None]:
    exact, draw, result = BITS[name]

    def run(on: Machine, rng: Any) -> None:
        operands = draw(rng, COUNT)
        np.testing.assert_array_equal(
            _results(on, name, operands, result).astype(float), exact(*operands)
        )

    return run


def _scaled(name: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        for dtype in (F32, F64):
            operands = [
                rng.standard_normal(COUNT).astype(dtype),
                rng.integers(-20, 20, COUNT).astype(np.int32),
            ]
            check(on, getattr(libdevice, name), np.ldexp, operands, 0)

    return run


def _nextafter(on: Machine, rng: Any) -> None:
    for dtype in (F32, F64):
        x, y = rng.standard_normal((2, COUNT)).astype(dtype)
        expected = np.nextafter(x, y).astype(float)
        check(on, libdevice.nextafter, lambda *_, value=expected: value, [x, y], 0)


def _any_order(name: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        order, x = rng.integers(0, 5, COUNT).astype(np.int32), rng.uniform(4, 9, COUNT)
        function = bessel_j if name == "jn" else bessel_y
        expected = np.array([function(int(n), value) for n, value in zip(order, x, strict=True)])
        np.testing.assert_allclose(
            _results(on, name, [order, x], F64), expected, rtol=1e-9, atol=1e-9
        )

    return run


def rows() -> Iterator[tuple[str, Callable[[Machine, Any], None]]]:
    """Function of the library -> the program that shows it."""
    for name in FLOATS:
        if name != "div_rn":
            yield name, _floats(name)
    for name in SINGLE:
        yield name, _single(name)
    for name in WHOLE:
        yield name, _whole(name)
    for name in BITS:
        yield name, _bits(name)
    for name in ("ldexp", "scalbn"):
        yield name, _scaled(name)
    for name in ("jn", "yn"):
        yield name, _any_order(name)
    yield "nextafter", _nextafter
    yield (
        "fma",
        lambda on, rng: check(
            on,
            libdevice.fma,
            lambda a, b, c: a * b + c,
            list(rng.standard_normal((3, COUNT)).astype(F32)),
            0.5001,
        ),
    )
    for operation, operands in DIRECTED.items():
        for mode in ("rn", "rz", "rd", "ru"):
            yield f"{operation}_{mode}", _directed(operation, mode, operands)
    for mode in ("rn", "rz", "rd", "ru"):
        yield f"double2float_{mode}", _narrow(mode)
        for text, number in _WHOLE_NAMES.items():
            for wide, element in _FLOAT_NAMES.items():
                if f"{wide}2{text}_{mode}" in libdevice.__all__:
                    yield (
                        f"{wide}2{text}_{mode}",
                        _to_whole(f"{wide}2{text}_{mode}", mode, element, number),
                    )
                if f"{text}2{wide}_{mode}" in libdevice.__all__:
                    yield (
                        f"{text}2{wide}_{mode}",
                        _from_whole(f"{text}2{wide}_{mode}", mode, number, element),
                    )


for _name, _body in rows():
    _body.__module__ = __name__
    add_probe(_name, [f"tl.extra.libdevice.{_name}"], _body)
