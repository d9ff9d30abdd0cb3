"""The rings of exact mode: a float of ``w`` bits is a residue modulo 251^(w/8), at most 251^4.

A payload is an unsigned integer of the float's width: a residue below the modulus, or one of four
codes at the top of the range (negative and positive infinity, NaN, undefined). 251 is the largest
prime below 256, so residues leave room for the codes; 2 is a unit, so that every binary fraction
has a residue; 251 = 3 (mod 4), so that square roots are powers; and reduction modulo 251^j is a
homomorphism, which is what a narrowing cast does.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from tilewright.ir.types import U32, U64, FloatType, IntType, Type, element_type

PRIME = 251


class Ring:
    """The ring of floats of one width.

    Attributes:
        bits: the width of the floats, 8, 16, 32 or 64.
        digits: the number of digits to base 251; f64 has f32's.
        modulus, half: 251^digits, and the largest residue that counts as positive.
        payload: the unsigned type of the floats' width.
        wide: an unsigned type that holds the product of two residues.
        negative_infinity, infinity, nan, undefined: the codes, in ascending order. The undefined
            payload, such as a quotient by a multiple of 251, equals every other in a verdict.
    """

    __slots__ = (
        "bits",
        "digits",
        "half",
        "infinity",
        "modulus",
        "nan",
        "negative_infinity",
        "payload",
        "undefined",
        "wide",
    )

    def __init__(self, bits: int) -> None:
        self.bits, self.digits = bits, min(bits // 8, 4)
        self.modulus: int = PRIME**self.digits
        self.half: int = self.modulus // 2
        self.payload = IntType(bits, signed=False)
        self.wide = U32 if bits <= 16 else U64
        top = (1 << bits) - 1
        self.negative_infinity, self.infinity, self.nan, self.undefined = (
            top - 3,
            top - 2,
            top - 1,
            top,
        )

    def residue(self, number: Fraction | int) -> int:
        """Return a rational number's residue.

        Raises:
            ValueError: its denominator is a multiple of 251.
        """
        number = Fraction(number)
        return number.numerator * pow(number.denominator, -1, self.modulus) % self.modulus


@functools.cache
def ring(bits: int) -> Ring:
    """The ring of floats of ``bits`` bits."""
    return Ring(bits)


def ring_of(type_: Type) -> Ring:
    """The ring of a float, or of a tile's elements."""
    element = element_type(type_)
    assert isinstance(element, FloatType)
    return ring(element.bits)


def is_float(type_: Type) -> bool:
    """Return whether a scalar, or a tile's elements, are floats."""
    return isinstance(element_type(type_), FloatType)
