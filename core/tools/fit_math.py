"""Fit the polynomials of ``tilewright/passes/math/math_coefficients.py`` (needs mpmath; takes about
a minute).

Each row is a function to approximate on an interval and the weight of its absolute error there, so
that what is minimised is the error of the math function's result, in units of its size. The Remez
exchange (E. Remez, 1934) runs on a dense Chebyshev grid in 60-digit arithmetic; coefficients are
then rounded from the lowest degree up; for f32 the rest is fitted anew after each, so that rounding
costs little (where 0 is inside the interval the last few powers alone have no unique best fit, and
are rounded as they are).

    python core/tools/fit_math.py > core/src/tilewright/passes/math/math_coefficients.py
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp  # type: ignore[import-untyped]
import numpy as np

mp.mp.dps = 60
Real = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """``function`` on [low, high] by a polynomial of ``degree``; ``weight`` times the absolute
    error is the relative error of the result.
    """

    name: str
    element: str
    function: Real
    low: float
    high: float
    degree: int
    weight: Real
    law: str


def remez(
    ys: list[mp.mpf], ws: list[mp.mpf], xs: list[mp.mpf], powers: list[int]
) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients of ``powers`` with the least weighted maximal error over the points, and that
    error.
    """
    count = len(powers)
    reference = [round(i * (len(xs) - 1) / count) for i in range(count + 1)]
    coefficients, worst = [mp.mpf(0)] * count, mp.mpf(0)
    for _ in range(60):
        system = mp.matrix(count + 1)
        right = mp.matrix(count + 1, 1)
        for row, i in enumerate(reference):
            for column, power in enumerate(powers):
                system[row, column] = xs[i] ** power
            system[row, count] = (-1) ** row / ws[i]
            right[row] = ys[i]
        solution = mp.lu_solve(system, right)
        coefficients = [solution[i] for i in range(count)]
        level = abs(solution[count])
        errors = [
            w * (sum(c * x**p for c, p in zip(coefficients, powers, strict=True)) - y)
            for x, y, w in zip(xs, ys, ws, strict=True)
        ]
        worst = max(abs(e) for e in errors)
        if worst <= level * mp.mpf("1.002"):
            break
        extrema: list[int] = []
        for i, error in enumerate(errors):
            if extrema and (error > 0) == (errors[extrema[-1]] > 0):
                if abs(error) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > count + 1:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        if len(extrema) < count + 1:
            break
        reference = extrema
    return coefficients, worst


def worst_error(
    coefficients: list[mp.mpf],
    ys: list[mp.mpf],
    ws: list[mp.mpf],
    xs: list[mp.mpf],
    powers: list[int],
) -> mp.mpf:
    return max(
        abs(w * (sum(c * x**p for c, p in zip(coefficients, powers, strict=True)) - y))
        for x, y, w in zip(xs, ys, ws, strict=True)
    )


def fit(row: Fit, points: int = 400) -> tuple[list[float], float]:
    low, high = mp.mpf(row.low), mp.mpf(row.high)
    xs = [
        (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mp.mpf("0.5")) / points)
        for k in range(points)
    ]
    ys, ws = [row.function(x) for x in xs], [row.weight(x) for x in xs]
    powers = list(range(row.degree + 1))
    rounded: list[float] = []
    coefficients, _ = remez(ys, ws, xs, powers)
    while powers:
        if rounded and row.element == "f32":
            with contextlib.suppress(ZeroDivisionError):
                refitted, _ = remez(ys, ws, xs, powers)
                coefficients = min(
                    coefficients, refitted, key=lambda c: worst_error(c, ys, ws, xs, powers)
                )
        value = (
            float(np.float32(float(coefficients[0])))
            if row.element == "f32"
            else float(coefficients[0])
        )
        coefficients = coefficients[1:]
        rounded.append(value)
        ys = [y - mp.mpf(value) * x ** powers[0] for x, y in zip(xs, ys, strict=True)]
        powers.pop(0)
    return rounded, float(mp.log(max(abs(w * y) for w, y in zip(ws, ys, strict=True)), 2))


LN2, LOG2E = mp.log(2), 1 / mp.log(2)
HALF_LN2, QUARTER_PI = float(LN2 / 2) * 1.001, float(mp.pi / 4) * 1.001
ROOT_LOW, ROOT_HIGH = float(mp.sqrt(0.5) - 1) * 1.0001, float(mp.sqrt(2) - 1) * 1.0001


def _series(function: Real, value: float) -> Real:
    """The function, with its limit where it is 0/0."""
    return lambda x: function(x) if abs(x) > mp.mpf(10) ** -12 else mp.mpf(value)


def _atanh_rest(z: mp.mpf) -> mp.mpf:
    # log(1+f) = f - f*f/2 + s*(f*f/2 + R(s*s)), s = f/(2+f): R(z) = (2*atanh(s)/s - 2) with z = s*s
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) / s - 2) / z


S_HIGH = float((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * 1.001

# erf changes formula here; the values are a trade between the two degrees
ERF_SPLIT = {"f32": 0.9375, "f64": 1.0}
ERF_END = {"f32": 3.93, "f64": 5.95}


def _erf_rows(element: str, degree_small: int, degree_large: int) -> list[Fit]:
    split, end = ERF_SPLIT[element], ERF_END[element]
    small = Fit(
        "erf_small",
        element,
        _series(lambda t: mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1, float(2 / mp.sqrt(mp.pi) - 1)),
        0.0,
        split**2 * 1.001,
        degree_small,
        lambda t: mp.sqrt(t) / mp.erf(mp.sqrt(t)) if t > 0 else mp.sqrt(mp.pi) / 2,
        "erf(x) = x + x*P(x*x)",
    )
    large = Fit(
        "erf_large",
        element,
        lambda a: mp.log(mp.erfc(a)) / a + 1,
        split * 0.999,
        end * 1.001,
        degree_large,
        lambda a: mp.erfc(a) * a / mp.erf(a),
        "log(1 - erf(a)) = -a + a*P(a)",
    )
    return [small, large]


def rows() -> list[Fit]:
    found = []
    for element, degree in (("f32", 4), ("f64", 9)):
        found.append(
            Fit(
                "exp",
                element,
                _series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5),
                -HALF_LN2,
                HALF_LN2,
                degree,
                lambda r: r**2,
                "exp(r) = 1 + r + r*r*P(r)",
            )
        )
    found.append(
        Fit(
            "exp2",
            "f32",
            _series(lambda r: (2**r - 1) / r, float(LN2)),
            -0.5005,
            0.5005,
            5,
            lambda r: abs(r),
            "exp2(r) = 1 + r*P(r)",
        )
    )
    exp2_rest = _series(lambda r: (2**r - 1 - r * LN2) / r**2, float(LN2**2 / 2))
    found.append(
        Fit(
            "exp2",
            "f64",
            exp2_rest,
            -0.5005,
            0.5005,
            9,
            lambda r: r**2,
            "exp2(r) = 1 + r*ln2 + r*r*P(r)",
        )
    )
    found.append(
        Fit(
            "log",
            "f32",
            _series(lambda f: (mp.log(1 + f) - f + f * f / 2) / f**3, 1 / 3),
            ROOT_LOW,
            ROOT_HIGH,
            7,
            lambda f: abs(f**3 / mp.log(1 + f)) if f else mp.mpf(0),
            "log(1 + f) = f - f*f/2 + f*f*f*P(f)",
        )
    )
    found.append(
        Fit(
            "log2",
            "f32",
            _series(lambda f: (mp.log(1 + f) * LOG2E - f * LOG2E) / f**2, float(-LOG2E / 2)),
            ROOT_LOW,
            ROOT_HIGH,
            8,
            lambda f: abs(f**2 / mp.log(1 + f)) * LN2 if f else mp.mpf(0),
            "log2(1 + f) = f*log2(e) + f*f*P(f)",
        )
    )
    found.append(
        Fit(
            "log",
            "f64",
            _series(_atanh_rest, 2 / 3),
            0.0,
            S_HIGH,
            6,
            lambda z: z,
            "log(1 + f) = f - f*f/2 + s*(f*f/2 + z*P(z)), s = f/(2 + f), z = s*s",
        )
    )
    for element, sine, cosine in (("f32", 3, 2), ("f64", 6, 6)):
        found.append(
            Fit(
                "sin",
                element,
                _series(lambda t: (mp.sin(mp.sqrt(t)) - mp.sqrt(t)) / mp.sqrt(t) ** 3, -1 / 6),
                0.0,
                QUARTER_PI**2,
                sine,
                lambda t: t,
                "sin(r) = r + r*r*r*P(r*r)",
            )
        )
        found.append(
            Fit(
                "cos",
                element,
                _series(lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2, 1 / 24),
                0.0,
                QUARTER_PI**2,
                cosine,
                lambda t: t**2 / mp.cos(mp.sqrt(t)),
                "cos(r) = 1 - r*r/2 + r*r*r*r*P(r*r)",
            )
        )
    for element, degree in (("f32", 5), ("f64", 12)):
        found.append(
            Fit(
                "tanh",
                element,
                _series(lambda t: (mp.tanh(mp.sqrt(t)) - mp.sqrt(t)) / mp.sqrt(t) ** 3, -1 / 3),
                0.0,
                0.63**2,
                degree,
                lambda t: t,
                "tanh(x) = x + x*x*x*P(x*x)",
            )
        )
    found += _erf_rows("f32", 6, 6)
    found += _erf_rows("f64", 14, 21)
    return found


#: erf in f32 in pieces: how many, the degree, and the width of each; together a little beyond where
#: erf is 1.
PIECES, PIECES_DEGREE = 16, 5
PIECE_WIDTH = 0.246


def _exact_centre(about: float) -> tuple[float, float]:
    """A number of f32 near ``about`` whose erf lies next to one of f32, and that one: so the
    table's rounding adds nothing (S. Gal, 1986).
    """
    value = np.float32(float(mp.erf(about)))
    best = (mp.mpf(1), 0.0, 0.0)
    for target in (value, *(np.nextafter(value, np.float32(side)) for side in (0, 1))):
        if target < 1:
            centre = np.float32(float(mp.erfinv(mp.mpf(float(target)))))
            for _ in range(400):
                # the values beside the target are met on the way
                exact = mp.erf(mp.mpf(float(centre)))
                rounded = float(np.float32(float(exact)))
                if rounded < 1:
                    best = min(best, (abs(exact - mp.mpf(rounded)), float(centre), rounded))
                centre = np.nextafter(centre, np.float32(8))
    return best[1], best[2]


def erf_pieces() -> list[tuple[float, ...]]:
    """Columns by piece: the centres, then the coefficients, lowest degree first.

    The constant of the first piece, where erf(x) = x + x*P(x), is not used.
    """
    lines: list[tuple[float, ...]] = []
    for i in range(PIECES):
        centre, value = _exact_centre((i + 0.5) * PIECE_WIDTH) if i else (0.0, 0.0)
        low, high = i * PIECE_WIDTH - centre, (i + 1) * PIECE_WIDTH - centre
        first = 1 if i == 0 else 0
        slope = float(2 / mp.sqrt(mp.pi) * mp.exp(-(mp.mpf(centre) ** 2))) - first
        row = Fit(
            "erf_piece",
            "f32",
            _series(
                lambda d, c=centre, v=value, first=first: (mp.erf(c + d) - v) / d - first, slope
            ),  # type: ignore[misc]
            low - 1e-5 * (i > 0),
            high + 1e-5,
            PIECES_DEGREE,
            lambda d, c=centre: abs(d) / mp.erf(c + d) if c + d > 0 else mp.mpf(1),  # type: ignore[misc]
            "",
        )
        coefficients, bits = fit(row)
        print("erf piece", i, f"{bits:.1f}", file=sys.stderr)
        lines.append((centre, value, *coefficients))
    return list(zip(*lines, strict=True))


def main() -> None:
    print('"""Coefficients of the polynomials of :mod:`.math_library`, lowest degree first.\n')
    print('Made by ``core/tools/fit_math.py``.\n"""\n')
    print("from __future__ import annotations\n")
    print(
        "#: (polynomial, element) -> coefficients. The comment has the law, and the binary "
        "logarithm of the fit's error relative to the result."
    )
    print("COEFFICIENTS: dict[tuple[str, str], tuple[float, ...]] = {")
    for row in rows():
        coefficients, bits = fit(row)
        print(f"    # {row.law}; error 2**{bits:.1f}")
        print(f'    ("{row.name}", "{row.element}"): (')
        for value in coefficients:
            print(f"        {value!r},")
        print("    ),")
        print(row.name, row.element, f"{bits:.1f}", file=sys.stderr)
    print("}")
    print(
        "\n#: erf(x) of f32 for x >= 0 in pieces: their width, then by piece the centre c and what "
        "is C(x - c); in the first erf(x) = x + x*P(x) instead."
    )
    print(f"ERF_PIECE_WIDTH = {PIECE_WIDTH!r}")
    print("ERF_PIECES: tuple[tuple[float, ...], ...] = (")
    for column in erf_pieces():
        print("    (")
        for value in column:
            print(f"        {value!r},")
        print("    ),")
    print(")")


if __name__ == "__main__":
    main()
