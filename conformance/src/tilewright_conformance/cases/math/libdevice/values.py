"""Device library functions whose results are rounded: arguments, error bounds, defined results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: (random numbers, the argument of exp that is just in range: 85 or 700) -> operands, as float64
Domain = Callable[[np.random.Generator, float], list[Array]]
INF, NAN = math.inf, math.nan


def spread(rng: np.random.Generator, count: int, low: float, high: float) -> Array:
    """Numbers of both signs whose sizes are spread evenly on a logarithmic scale."""
    return np.asarray(
        rng.choice([-1.0, 1.0], count) * np.exp(rng.uniform(math.log(low), math.log(high), count))
    )


def _one(domain: Callable[[np.random.Generator, float], Array]) -> Domain:
    return lambda rng, big: [domain(rng, big)]


def _several(count: int, low: float, high: float) -> Domain:
    return lambda rng, big: [spread(rng, 150, low, high) for _ in range(count)]


def _tiny(rng: np.random.Generator, big: float) -> Array:
    """Probabilities of any exponent."""
    return np.asarray(10.0 ** rng.uniform(-300 if big > 100 else -37, 0, 60))


def _powers(rng: np.random.Generator, big: float) -> list[Array]:
    """Results over the whole range; and negative bases with integers."""
    x = np.abs(spread(rng, 200, 1e-6, 1e6))
    y = rng.uniform(-1, 1, 200) * (big - 5) / np.maximum(np.abs(np.log(x)), 0.05)
    return [
        np.concatenate([x, spread(rng, 50, 0.5, 4)]),
        np.concatenate([y, rng.integers(-20, 20, 50)]),
    ]


#: name -> the domain it is tried on
DOMAINS: dict[str, Domain] = {
    "expm1": _one(lambda rng, big: spread(rng, 200, 1e-8, big)),
    "log1p": _one(
        lambda rng, big: np.concatenate(
            [np.abs(spread(rng, 150, 1e-8, 1e6)), -np.abs(spread(rng, 50, 1e-8, 0.99))]
        )
    ),
    "log10": _one(
        lambda rng, big: np.concatenate(
            [np.abs(spread(rng, 100, 1e-30, 1e30)), 1 + spread(rng, 100, 1e-5, 0.1)]
        )
    ),
    "exp10": _one(lambda rng, big: spread(rng, 200, 1e-5, big / 2.4)),
    "pow": _powers,
    "sinh": _one(lambda rng, big: spread(rng, 200, 1e-6, big)),
    "cosh": _one(lambda rng, big: spread(rng, 200, 1e-6, big)),
    "asinh": _one(lambda rng, big: spread(rng, 200, 1e-6, 1e12)),
    "acosh": _one(lambda rng, big: 1 + np.abs(spread(rng, 200, 1e-6, 1e12))),
    "atanh": _one(lambda rng, big: spread(rng, 200, 1e-6, 0.999)),
    "tan": _one(lambda rng, big: spread(rng, 200, 1e-6, 1e3)),
    "sinpi": _one(lambda rng, big: spread(rng, 200, 1e-6, 100)),
    "cospi": _one(lambda rng, big: spread(rng, 200, 1e-6, 100)),
    "atan": _one(lambda rng, big: spread(rng, 200, 1e-6, 1e6)),
    "asin": _one(lambda rng, big: spread(rng, 200, 1e-4, 1)),
    "acos": _one(lambda rng, big: spread(rng, 200, 1e-4, 1)),
    "atan2": _several(2, 1e-3, 1e3),
    "cbrt": _one(lambda rng, big: spread(rng, 200, 1e-30, 1e30)),
    "rcbrt": _one(lambda rng, big: spread(rng, 200, 1e-30, 1e30)),
    "rsqrt_rn": _one(lambda rng, big: np.abs(spread(rng, 200, 1e-30, 1e30))),
    "hypot": _several(2, 1e-3, 1e3),
    "rhypot": _several(2, 1e-3, 1e3),
    "norm3d": _several(3, 1e-3, 1e3),
    "rnorm3d": _several(3, 1e-3, 1e3),
    "norm4d": _several(4, 1e-3, 1e3),
    "rnorm4d": _several(4, 1e-3, 1e3),
    "erfc": _one(lambda rng, big: np.clip(spread(rng, 200, 1e-4, 25 if big > 100 else 9), -6, 25)),
    "erfcx": _one(lambda rng, big: np.clip(spread(rng, 200, 1e-4, 1e6), -5, None)),
    "erfinv": _one(lambda rng, big: spread(rng, 200, 1e-6, 0.9999)),
    "erfcinv": _one(
        lambda rng, big: np.concatenate(
            [_tiny(rng, big), rng.uniform(0, 2, 60), 1 + spread(rng, 30, 1e-3, 0.1)]
        )
    ),
    "normcdf": _one(
        lambda rng, big: np.clip(spread(rng, 200, 1e-4, 36 if big > 100 else 12), None, 6)
    ),
    "normcdfinv": _one(
        lambda rng, big: np.concatenate([_tiny(rng, big), rng.uniform(0.01, 0.99, 60)])
    ),
    "lgamma": _one(lambda rng, big: np.abs(spread(rng, 200, 1e-8, 1e6))),
    "tgamma": _one(
        lambda rng, big: np.concatenate(
            [np.abs(spread(rng, 100, 1e-4, 170 if big > 100 else 34)), rng.uniform(-20, 0, 100)]
        )
    ),
    "cyl_bessel_i0": _one(lambda rng, big: spread(rng, 200, 1e-4, big)),
    "cyl_bessel_i1": _one(lambda rng, big: spread(rng, 200, 1e-4, big)),
}

#: name -> the exact function behind it, where that has another name
EXACT = {
    "rsqrt_rn": "rsqrt",
    **dict.fromkeys(("hypot", "norm3d", "norm4d"), "length"),
    **dict.fromkeys(("rhypot", "rnorm3d", "rnorm4d"), "reciprocal_length"),
}

#: Errors in units in the last place, in fp32 and fp64, of functions that the documented table of
#: the package omits. Lengths: a multiplication, an addition for each further part, a root. Their
#: reciprocals: a division more.
ULP_OF_OTHERS: dict[str, tuple[float, float]] = {
    "atan2": (3, 3),
    "rcbrt": (2.5, 2.5),
    "rsqrt_rn": (0.5, 1.5),
    "hypot": (2, 2),
    "rhypot": (3, 3),
    "norm3d": (2.5, 2.5),
    "rnorm3d": (3.5, 3.5),
    "norm4d": (3, 3),
    "rnorm4d": (4, 4),
    "erfcinv": (1, 8),
    "normcdfinv": (1, 8),
}

#: name -> results at 0, -0, infinity, -infinity and NaN
SETTLED: dict[str, tuple[float, ...]] = {
    "tan": (0.0, -0.0, NAN, NAN, NAN),
    "sinh": (0.0, -0.0, INF, -INF, NAN),
    "cosh": (1.0, 1.0, INF, INF, NAN),
    "asinh": (0.0, -0.0, INF, -INF, NAN),
    "acosh": (NAN, NAN, INF, NAN, NAN),
    "atanh": (0.0, -0.0, NAN, NAN, NAN),
    "asin": (0.0, -0.0, NAN, NAN, NAN),
    "acos": (math.pi / 2, math.pi / 2, NAN, NAN, NAN),
    "atan": (0.0, -0.0, math.pi / 2, -math.pi / 2, NAN),
    "expm1": (0.0, -0.0, INF, -1.0, NAN),
    "log1p": (0.0, -0.0, INF, NAN, NAN),
    "log10": (-INF, -INF, INF, NAN, NAN),
    "exp10": (1.0, 1.0, INF, 0.0, NAN),
    "sinpi": (0.0, -0.0, NAN, NAN, NAN),
    "cospi": (1.0, 1.0, NAN, NAN, NAN),
    "cbrt": (0.0, -0.0, INF, -INF, NAN),
    "rcbrt": (INF, -INF, 0.0, -0.0, NAN),
    "rsqrt_rn": (INF, -INF, 0.0, NAN, NAN),
    "erfc": (1.0, 1.0, 0.0, 2.0, NAN),
    "erfcx": (1.0, 1.0, 0.0, INF, NAN),
    "erfinv": (0.0, -0.0, NAN, NAN, NAN),
    "erfcinv": (INF, INF, NAN, NAN, NAN),
    "normcdf": (0.5, 0.5, 1.0, 0.0, NAN),
    "normcdfinv": (-INF, -INF, NAN, NAN, NAN),
    "lgamma": (INF, INF, INF, INF, NAN),
    "tgamma": (INF, -INF, INF, NAN, NAN),
    "j0": (1.0, 1.0, 0.0, 0.0, NAN),
    "j1": (0.0, -0.0, 0.0, 0.0, NAN),
    "y0": (-INF, -INF, 0.0, NAN, NAN),
    "y1": (-INF, -INF, 0.0, NAN, NAN),
    "cyl_bessel_i0": (1.0, 1.0, INF, INF, NAN),
    "cyl_bessel_i1": (0.0, -0.0, INF, -INF, NAN),
    "logb": (-INF, -INF, INF, INF, NAN),
}
_TINY = (5e-324, 1e-310, 1e-300, 1e-200, 5e-155, 1e-154, 1e-100, 1e-45, 1e-40, 1e-30, 1e-20)
_BELOW_ONE = (
    0.99999994,
    0.5,
    -0.5,
    -1.0,
    -2.0,
    -5032.5244,
    -1e5,
    -1e8,
    -1e10,
    -1e15,
    -1e25,
    -3e38,
    -1e300,
)
#: name -> arguments where a way to the function might end: a step beyond the domain and far beyond
#: it, next to zeros, at the ends of the range
EDGES: dict[str, tuple[float, ...]] = {
    "acosh": (1.0, 1.0000001, 16384.0, 16385.0, 3e38, *_BELOW_ONE),
    "asin": (1.0, -1.0, 1.0000001, -1.0000001, 3e38, -1e300, *_TINY),
    "acos": (1.0, -1.0, 1.0000001, -1.0000001, 3e38, -1e300, *_TINY),
    "atanh": (1.0000001, -1.0000001, 2.0, -3e38, 1e300, *_TINY),
    "log1p": (-1.0000001, -2.0, -3e38, -1e300, 3e38, 1e300, *_TINY),
    "log10": (-1e-45, -1.0, -3e38, -1e300, 1.0, *_TINY),
    "cosh": (89.0, 89.4, 709.8, 710.4, -89.4, 3e38),
    "sinh": (89.0, 89.4, 709.8, 710.4, -89.4, 3e38, *_TINY),
    "cospi": tuple(
        sign * x
        for x in (
            0.49999997,
            0.5,
            0.50000006,
            1.5,
            1.5000001,
            7.5000005,
            4194303.8,
            8388607.5,
            0.49999999999999994,
        )
        for sign in (1, -1)
    ),
    "sinpi": tuple(
        sign * x
        for x in (
            0.99999994,
            1.0,
            1.0000001,
            2.0,
            2.0000002,
            8388607.5,
            4503599627370495.5,
            0.9999999999999999,
        )
        for sign in (1, -1)
    ),
    "erfcx": (9e307, 1.7e308, 3e38, 1e20, -5.0),
    "erfc": (27.2, 26.5, 10.05, 9.19, -30.0, 3e38, -3e38, *_TINY),
    "erfinv": (1.0000001, -1.0000001, 3e38, *_TINY),
    "erfcinv": (2.0000002, -1e-45, -3e38, 3e38, 1e-323, 1.5e-323, 1.0, *_TINY),
    "normcdfinv": (1.0000001, -1e-45, -3e38, 3e38, 1e-323, 1.5e-323, 0.5, *_TINY),
    "lgamma": (1.0, 2.0, -1.0, -2.0, -8388608.0, 3e38, 1e305, *_TINY, *(-x for x in _TINY)),
    "tgamma": (
        1.0,
        -1.0,
        -2.0,
        -8388608.0,
        3e38,
        -170.5,
        -177.5,
        -182.00000000000003,
        -0.5,
        -0.25,
        *_TINY,
        *(-x for x in _TINY),
    ),
}

#: name -> where the function of EDGES is no number
_OUTSIDE: dict[str, Callable[[float], bool]] = {
    "acosh": lambda x: x < 1,
    "asin": lambda x: abs(x) > 1,
    "acos": lambda x: abs(x) > 1,
    "atanh": lambda x: abs(x) > 1,
    "log1p": lambda x: x < -1,
    "log10": lambda x: x < 0,
    "erfinv": lambda x: abs(x) > 1,
    "erfcinv": lambda x: x < 0 or x > 2,
    "normcdfinv": lambda x: x < 0 or x > 1,
    "tgamma": lambda x: x < 0 and x == math.trunc(x),
}
_AT: dict[tuple[str, float], float] = {
    **{("lgamma", x): INF for x in (-1.0, -2.0, -8388608.0)},
    **{(name, x): math.copysign(INF, x) for name in ("atanh", "erfinv") for x in (1.0, -1.0)},
    ("log1p", -1.0): -INF,
    ("erfcinv", 2.0): -INF,
    ("normcdfinv", 1.0): INF,
    ("tgamma", 3e38): INF,
    **dict.fromkeys(
        (
            ("lgamma", 1.0),
            ("lgamma", 2.0),
            ("acosh", 1.0),
            ("acos", 1.0),
            ("log10", 1.0),
            ("erfcinv", 1.0),
            ("normcdfinv", 0.5),
        ),
        0.0,
    ),
}


def settled_edge(name: str, x: float) -> float | None:
    """Return a function's NaN, infinite or exact zero of :data:`EDGES`; None for another value."""
    if name in _OUTSIDE and _OUTSIDE[name](x):
        return NAN
    if x == 0:
        return SETTLED[name][math.copysign(1, x) < 0]
    if name == "sinpi" and x == math.trunc(x):
        return math.copysign(0.0, x)
    if name == "cospi" and math.fmod(x, 1) in (0.5, -0.5):
        return 0.0
    return _AT.get((name, x))


#: Of these a zero may have either sign: a value of 0 that is no limit, or the end of a decaying
#: oscillation.
ANY_ZERO = frozenset({"j0", "j1", "y0", "y1"})

#: Numbers of which functions of two operands take every pair.
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    INF,
    -INF,
    NAN,
    5e-324,
    1e300,
    -1e300,
)


def _c(fn: Callable[..., float]) -> Callable[..., float]:
    """A function of :mod:`math` with C's results where Python raises."""

    def call(*args: float) -> float:
        try:
            return fn(*args)
        except OverflowError:
            return INF
        except ValueError:
            return NAN

    return call


def _difference(a: float, b: float) -> float:
    return NAN if a != a or b != b else a - b if a > b else 0.0


#: name -> the function of two Python floats, special cases as in C's Annex F
PAIRS: dict[str, Callable[[float, float], float]] = {
    "pow": lambda a, b: float(
        np.power(np.array([a]), np.array([b]))[0]
    ),  # of arrays: NumPy takes another way with a scalar exponent of 0.5
    "fdim": _difference,
    **{
        name: _c(getattr(math, name))
        for name in ("atan2", "hypot", "fmod", "remainder", "copysign")
    },
}


def pairs_of_special_numbers(name: str, dtype: Any) -> tuple[Array, Array, Array]:
    """Both operands, and the results as float64 or as numbers of ``dtype``."""
    with np.errstate(all="ignore"):
        x, y = (
            np.array(side).astype(dtype)
            for side in zip(*((a, b) for a in SPECIAL for b in SPECIAL), strict=True)
        )
        if name == "nextafter":
            return x, y, np.nextafter(x, y)
        return (
            x,
            y,
            np.array([PAIRS[name](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]),
        )
