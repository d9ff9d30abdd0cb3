"""Functions of floats, and a few of integers: as Tile IR, and as functions of the language.

They are compared with exact values and the table of errors. Strict bounds hold with the launch
options of ``session.strict``, relaxed ones without. Both are columns of
:data:`tilewright.passes.math.math_library.MATH`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tilewright_conformance.cases.math.math.function_calls import language_cases
from tilewright_conformance.cases.math.math.fused_arithmetic import WIDE, arithmetic_cases
from tilewright_conformance.cases.math.math.integer_functions import integer_cases
from tilewright_conformance.cases.math.math.math_case import math_case
from tilewright_conformance.cases.math.math.root_cases import rounding_cases
from tilewright_conformance.cases.math.math.transcendental import (
    every_half,
    large_arguments,
    relaxed_bounds,
    special_values,
    strict_bounds,
)
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.math_values import ARGUMENTS
from tilewright_conformance.testlib.sampled_cases import sampled


def cases() -> Iterator[Case]:
    yield from sampled(
        "math",
        "math",
        dict.fromkeys(("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt"), True),
    )
    for name in ARGUMENTS:
        for type_ in WIDE:
            yield math_case(
                name,
                type_,
                "strict",
                functools.partial(strict_bounds, name, type_),
                quick=type_ == "f32",
                source="decimal arithmetic of forty digits",
            )
            yield math_case(
                name,
                type_,
                "relaxed",
                functools.partial(relaxed_bounds, name, type_),
                quick=name in ("exp", "log2"),
                source="double precision",
            )
            yield math_case(
                name,
                type_,
                "special",
                functools.partial(special_values, name, type_),
                quick=type_ == "f32",
                source="IEEE 754 and C's Annex F",
            )
        for type_ in ("f16", "bf16"):
            body = functools.partial(every_half, name, type_)
            yield math_case(
                name,
                type_,
                "every-number",
                body,
                "f32",
                quick=name in ("sin", "exp", "tanh") and type_ == "bf16",
                source="double precision",
            )
    for name in ("sin", "cos"):
        for type_ in WIDE:
            yield math_case(
                name,
                type_,
                "large",
                functools.partial(large_arguments, name, type_),
                quick=type_ == "f32",
                source="decimal arithmetic",
            )
    yield from rounding_cases()
    yield from arithmetic_cases()
    yield from integer_cases()
    yield from language_cases()
