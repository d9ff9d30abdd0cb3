"""Fit the series of ``tilewright/language/device_math/coefficients.py`` (needs mpmath; takes about
a minute).

Each row is a function on [-1, 1], interpolated at Chebyshev points in 40-digit arithmetic and cut
where the terms fall below 2**-58 of the largest.

    python core/tools/fit_device_math.py > core/src/tilewright/language/device_math/coefficients.py
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp  # type: ignore[import-untyped]

mp.mp.dps = 40
Real = Callable[[mp.mpf], mp.mpf]


def series(function: Real, points: int = 48) -> list[float]:
    """Chebyshev coefficients of ``function`` on [-1, 1]."""
    angles = [mp.pi * (k + mp.mpf(1) / 2) / points for k in range(points)]
    values = [function(mp.cos(angle)) for angle in angles]
    found = [
        2 * mp.fsum(v * mp.cos(n * angle) for v, angle in zip(values, angles, strict=True)) / points
        for n in range(points)
    ]
    found[0] /= 2
    largest = max(abs(c) for c in found)
    while abs(found[-1]) < largest * mp.mpf(2) ** -58:
        found.pop()
    return [float(c) for c in found]


def lgamma_core(x: mp.mpf) -> mp.mpf:
    """lgamma(x) over its zeros at 1 and 2; at a zero by its neighbours."""
    if min(abs(x - 1), abs(x - 2)) < mp.mpf(10) ** -15:
        step = mp.mpf(10) ** -12
        return (lgamma_core(x + step) + lgamma_core(x - step)) / 2
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def square(t: mp.mpf) -> mp.mpf:
    """x with x*x/32 - 1 = t: x in [0, 8]."""
    return mp.sqrt(32 * (t + 1)) + mp.mpf(10) ** -30


def beyond(t: mp.mpf) -> mp.mpf:
    """x with 2 * (8/x)**2 - 1 = t: x from 8 on."""
    return 8 / mp.sqrt((t + 1) / 2)


def phase(order: int, part: str) -> Real:
    """P, or Q * x/8, of J = sqrt(2 / (pi x)) (P cos c - Q sin c), Y = sqrt(2 / (pi x)) (P sin c + Q
    cos c), c = x - pi/4 - order * pi/2.
    """

    def function(t: mp.mpf) -> mp.mpf:
        x = beyond(t)
        c = x - mp.pi / 4 - order * mp.pi / 2
        j, y, scale = mp.besselj(order, x), mp.bessely(order, x), mp.sqrt(mp.pi * x / 2)
        if part == "p":
            return scale * (j * mp.cos(c) + y * mp.sin(c))
        return scale * (y * mp.cos(c) - j * mp.sin(c)) * x / 8

    return function


def y_rest(order: int) -> Real:
    """Y without its logarithm (and pole), over x for order 1."""

    def function(t: mp.mpf) -> mp.mpf:
        x = square(t)
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    return function


FITS: dict[str, tuple[str, Real]] = {
    "erfcx": (
        "(1 + 2x) erfcx(x), t = (x - 3.75) / (x + 3.75)",
        lambda t: (lambda x: (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x))(3.75 * (1 + t) / (1 - t)),
    ),
    "lgamma": (
        "lgamma(x) / ((x - 1) (x - 2)), t = x - 1.5",
        lambda t: lgamma_core(t + mp.mpf("1.5")),
    ),
    "j0": ("J0(x), t = x*x/32 - 1", lambda t: mp.besselj(0, square(t))),
    "j1": ("J1(x) / x, t = x*x/32 - 1", lambda t: mp.besselj(1, square(t)) / square(t)),
    "y0": ("Y0(x) - 2/pi log(x) J0(x), t = x*x/32 - 1", y_rest(0)),
    "y1": ("(Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x, t = x*x/32 - 1", y_rest(1)),
    "p0": ("P of order 0, t = 2 (8/x)**2 - 1", phase(0, "p")),
    "q0": ("Q x/8 of order 0, t = 2 (8/x)**2 - 1", phase(0, "q")),
    "p1": ("P of order 1, t = 2 (8/x)**2 - 1", phase(1, "p")),
    "q1": ("Q x/8 of order 1, t = 2 (8/x)**2 - 1", phase(1, "q")),
    "i0": (
        "exp(-x) I0(x), t = x/4 - 1",
        lambda t: mp.exp(-4 * (t + 1)) * mp.besseli(0, 4 * (t + 1)),
    ),
    "i1": (
        "exp(-x) I1(x) (1 + x) / x, t = x/4 - 1",
        lambda t: mp.exp(-4 * (t + 1)) * mp.besseli(1, 4 * (t + 1)) * (1 + 1 / (4 * (t + 1))),
    ),
    "i0_far": (
        "exp(-x) sqrt(x) I0(x), t = 16/x - 1",
        lambda t: (lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(0, x))(16 / (t + 1)),
    ),
    "i1_far": (
        "exp(-x) sqrt(x) I1(x), t = 16/x - 1",
        lambda t: (lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(1, x))(16 / (t + 1)),
    ),
}


def main() -> None:
    print(
        '"""Chebyshev series of :mod:`tilewright.language.device_math`, in fp64. Made by '
        '``core/tools/fit_device_math.py``."""\n'
    )
    print("from __future__ import annotations\n\nSERIES: dict[str, tuple[float, ...]] = {")
    for name, (law, function) in FITS.items():
        print(f"    # {law}\n    {name!r}: (".replace("'", '"'))
        for coefficient in series(function):
            print(f"        {coefficient!r},")
        print("    ),")
    print("}")


if __name__ == "__main__":
    main()
