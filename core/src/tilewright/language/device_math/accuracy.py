"""Error bounds of this package's functions under strict arithmetic.

The documentation prints the table, and the conformance tests enforce it.
"""

from __future__ import annotations

#: function -> the maximum error in units in the last place of the exact value, in fp32 and in
#: fp64; of lgamma below -1/2, where it is a difference, in units of the maximum of 1, the value
#: and lgamma(-x)
ULP: dict[str, tuple[float, float]] = {
    "expm1": (2.5, 2.5),
    "log1p": (2.5, 2.5),
    "log10": (2, 2),
    "exp10": (2, 2),
    "pow": (2, 2),
    "sinh": (3, 3),
    "cosh": (2, 2),
    "asinh": (3, 3),
    "acosh": (3, 3),
    "atanh": (3, 3),
    "tan": (3, 3),
    "sinpi": (3, 3),
    "cospi": (3, 3),
    "atan": (2, 2),
    "asin": (3, 3),
    "acos": (3, 3),
    "cbrt": (1, 1),
    "erfc": (1, 5),
    "erfcx": (1, 6),
    "erfinv": (1, 5),
    "normcdf": (1, 6),
    "lgamma": (1, 6),
    "tgamma": (1, 8),
    "cyl_bessel_i0": (1, 5),
    "cyl_bessel_i1": (1, 5),
}
