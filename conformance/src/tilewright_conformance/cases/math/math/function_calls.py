"""The functions in the language: of constants, as members of tensors, and of refused types."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright_conformance.cases.math.math.integer_functions import integer_unary
from tilewright_conformance.cases.math.math.math_case import FUNCTIONS, TABLE, math_case
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
)


@tw.jit
def of_constants(out_ptr, x):
    tl.store(out_ptr, tl.exp(1.0))
    tl.store(out_ptr + 1, tl.log2(8.0))
    tl.store(out_ptr + 2, tl.cos(x))
    tl.store(out_ptr + 3, tl.fma(x, 2.0, 0.5))
    tl.store(out_ptr + 4, tl.math.rsqrt(x))
    tl.store(out_ptr + 5, tl.math.erf(tl.full((), 0.5, tl.float32)))


def _of_constants(session: Session) -> None:
    """Numbers of the program text and arguments of the kernel are fp32."""
    out = np.zeros(6, np.float32)
    session.launch(of_constants, (1,), out, 2.25, **session.strict)
    expected = [math.e, 3.0, math.cos(2.25), 5.0, 1 / 1.5, math.erf(0.5)]
    session.check(out, np.array(expected), ulp=2)


@tw.jit
def members(x_ptr, out_ptr, N: tl.constexpr):
    rows = tl.arange(0, 2)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows)
    tl.store(
        out_ptr + rows,
        x.exp().log() + x.sin() * 0.0 + x.cos() * 0.0 + x.sqrt() - x.sqrt() + x.abs() - x.abs(),
    )


def _members(session: Session) -> None:
    """The functions are members of tensors too."""
    x = session.rng.uniform(1, 3, (2, 64)).astype(np.float32)
    out = np.zeros_like(x)
    session.launch(members, (1,), x, out, N=64, **session.strict)
    session.check(out, x, ulp=6)


def _refused(name: str, session: Session) -> None:
    """fp16, bf16 and integers are no operands: kernels say where they want fp32."""
    function = FUNCTIONS.get(name) or getattr(tl, name)
    for array in (
        np.ones(4, np.float16),
        tw.reinterpret(np.ones(4, np.uint16), tl.bfloat16),
        np.ones(4, np.int32),
    ):
        with session.raises(CompilationError, match="Expected dtype|not supported"):
            session.launch(integer_unary, (1,), array, array, 4, FUNCTION=function, BLOCK=4)


def language_cases() -> Iterator[Case]:
    yield math_case(
        "constants", "f32", "scalars", _of_constants, quick=True, tile=1, source="Python's math"
    )
    yield math_case("members", "f32", "tile", _members, tile=128, source="NumPy")
    for name in (*(name for name in ARGUMENTS if name != "tanh"), "floor", "ceil", "sqrt_rn"):
        yield TABLE.case(
            f"{name}/f16/refused",
            f"tl.{name}",
            functools.partial(_refused, name),
            quick=name == "exp",
            source="the language",
        )
