"""Error function, gamma function and Bessel functions in decimal arithmetic.

Results are exact to more than twenty-five digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist

from tilewright_conformance.oracles.elementary import (
    exponential,
    of_half_turns,
    pi,
    sine_and_cosine,
    total,
    working,
)

#: Euler's constant.
_EULER = Decimal(
    "0.57721566490153286060651209008240243104215933593992"
    "35988057672348848677267776646709369470632917467495"
)

# ---- error function


def error_function(x: Decimal) -> Decimal:
    if abs(x) > 2:
        return (1 - complement(abs(x))).copy_sign(x)
    if x == 0:
        return x

    def terms() -> Iterator[Decimal]:
        term = x
        for k in range(1, 1000):
            yield term
            term *= 2 * x * x / (2 * k + 1)

    return 2 / pi().sqrt() * exponential(-x * x) * total(terms())


def scaled_complement(x: Decimal) -> Decimal:
    """``exp(x*x) * erfc(x)``, from 2 on by P. Laplace's continued fraction."""
    if x < 2:
        return exponential(x * x) * complement(x)
    fraction = x
    for k in range(20 + int(800 / min(x, Decimal(10**6)) ** 2), 0, -1):
        fraction = x + Decimal(k) / 2 / fraction
    return 1 / (pi().sqrt() * fraction)


def complement(x: Decimal) -> Decimal:
    """``erfc(x)``."""
    if abs(x) < 2:
        return 1 - error_function(x)
    far = exponential(-x * x) * scaled_complement(abs(x))
    return far if x > 0 else 2 - far


def normal_probability(x: Decimal) -> Decimal:
    return complement(-x / Decimal(2).sqrt()) / 2


def inverse_of_normal_probability(p: Decimal) -> Decimal:
    """By Newton's method on the logarithm, from a value that is right to nine digits."""
    if p > Decimal("0.5"):
        return -inverse_of_normal_probability(1 - p)
    x = Decimal(NormalDist().inv_cdf(float(p)))
    for _ in range(3):
        found = normal_probability(x)
        slope = exponential(-x * x / 2) / (2 * pi()).sqrt()
        x -= (found / p).ln() * found / slope
    return x


def inverse_of_complement(q: Decimal) -> Decimal:
    return -inverse_of_normal_probability(q / 2) / Decimal(2).sqrt()


def inverse_of_error_function(x: Decimal) -> Decimal:
    """Near 0, where 1 - x would lose it, by Newton's method on the function itself."""
    if abs(x) > Decimal("0.1"):
        return -inverse_of_complement(1 + x)
    y = x * pi().sqrt() / 2
    for _ in range(6):
        y -= (error_function(y) - x) * pi().sqrt() / 2 * exponential(y * y)
    return y


# ---- gamma


@functools.cache
def _bernoulli(count: int) -> tuple[Fraction, ...]:
    """B(0) to B(count - 1)."""
    found: list[Fraction] = []
    for n in range(count):
        found.append(
            Fraction(n == 0)
            - sum((Fraction(math.comb(n, k), n - k + 1) * found[k] for k in range(n)), Fraction(0))
        )
    return tuple(found)


def logarithm_of_gamma(x: Decimal) -> Decimal:
    """The logarithm of the gamma function's absolute value.

    It uses J. Stirling's series from 25 on, the recurrence below, the reflection below 0.
    """
    if x < 0:
        return (pi() / abs(x * of_half_turns(x)[0])).ln() - logarithm_of_gamma(-x)
    multiplied = Decimal(1)
    while x < 25:
        multiplied *= x
        x += 1
    found = (x - Decimal("0.5")) * x.ln() - x + (2 * pi()).ln() / 2 - multiplied.ln()
    for n in range(1, 19):
        b = _bernoulli(37)[2 * n]
        found += Decimal(b.numerator) / b.denominator / (2 * n * (2 * n - 1)) / x ** (2 * n - 1)
    return found


def gamma(x: Decimal) -> Decimal:
    size = exponential(logarithm_of_gamma(x))
    return -size if x < 0 and math.floor(x) % 2 else size


# ---- Bessel functions

#: From here on the asymptotic series are right to 25 digits, and before the power series lose less
#: than what is computed with beyond that.
_FAR = 30


def _power_series(order: int, x: Decimal, sign: int) -> Decimal:
    """J (sign -1) or I (sign 1)."""
    quarter, term = sign * x * x / 4, (x / 2) ** order / math.factorial(order)

    def terms(term: Decimal) -> Iterator[Decimal]:
        for k in range(1, 10000):
            yield term
            term *= quarter / (k * (k + order))

    return total(terms(term)) if x else Decimal(order == 0)


def _far(order: int, x: Decimal) -> tuple[Decimal, Decimal]:
    """J and Y of order 0 or 1 by H. Hankel's expansion."""
    totals, term = [Decimal(0), Decimal(0)], Decimal(1)
    for k in range(1, 200):
        totals[(k - 1) % 2] += term * (1 - (k - 1) // 2 % 2 * 2)
        following = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        if abs(following) >= abs(term):
            break
        term = following
    sine, cosine = sine_and_cosine(x - (2 * order + 1) * pi() / 4)
    size = (2 / (pi() * x)).sqrt()
    first = size * (totals[0] * cosine - totals[1] * sine)
    return first, size * (totals[0] * sine + totals[1] * cosine)


def _second_kind(order: int, x: Decimal) -> Decimal:
    """Y of order 0 or 1 by its power series."""
    quarter, harmonic, term = -x * x / 4, Decimal(0), Decimal(1)
    found, k = Decimal(0), 0
    while True:
        weight = 2 * harmonic + (Decimal(1) / (k + 1) if order else 0)
        if k and found + weight * term == found:
            break
        found += weight * term
        k += 1
        harmonic += Decimal(1) / k
        term *= quarter / (k * (k + order))
    logarithm = 2 / pi() * ((x / 2).ln() + _EULER) * _power_series(order, x, -1)
    return logarithm - found * (x / 2) ** order / pi() - (2 / (pi() * x) if order else 0)


def bessel(order: int, x: Decimal, *, second: bool) -> Decimal:
    """J or Y of an integer order: orders 0 and 1, then the upward recurrence.

    The recurrence is stable for Y, and for J below ``x``.
    """
    if not second and (abs(x) < _FAR or x == 0):
        with working(100):
            return _power_series(order, x, -1)
    if not second and x < 0:
        return (-1) ** order * bessel(order, -x, second=second)
    if x < _FAR:
        with working(100):
            values = [_second_kind(n, x) for n in (0, 1)]
    else:
        values = [_far(n, x)[second] for n in (0, 1)]
    for n in range(1, order):
        values.append(2 * n / x * values[n] - values[n - 1])
    return values[order]


def modified(order: int, x: Decimal) -> Decimal:
    """I of order 0 or 1."""
    size = abs(x)
    if size < 45:
        found = _power_series(order, size, 1)
    else:
        term = found = Decimal(1)
        for k in range(1, 200):
            term *= Decimal((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * size)
            if found + term == found:
                break
            found += term
            if 2 * k > 2 * size:
                break
        found *= exponential(size) / (2 * pi() * size).sqrt()
    return -found if x < 0 and order else found


#: name -> the function; ``jn`` and ``yn`` take the order first
SPECIAL: dict[str, Callable[..., Decimal]] = {
    "erf": error_function,
    "erfc": complement,
    "erfcx": scaled_complement,
    "erfinv": inverse_of_error_function,
    "erfcinv": inverse_of_complement,
    "normcdf": normal_probability,
    "normcdfinv": inverse_of_normal_probability,
    "lgamma": logarithm_of_gamma,
    "tgamma": gamma,
    "j0": functools.partial(bessel, 0, second=False),
    "j1": functools.partial(bessel, 1, second=False),
    "y0": functools.partial(bessel, 0, second=True),
    "y1": functools.partial(bessel, 1, second=True),
    "jn": lambda n, x: bessel(int(n), x, second=False),
    "yn": lambda n, x: bessel(int(n), x, second=True),
    "cyl_bessel_i0": functools.partial(modified, 0),
    "cyl_bessel_i1": functools.partial(modified, 1),
}
