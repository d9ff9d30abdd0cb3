"""Precisions of f32 operands, and limited precisions of the accumulator."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.cases.matmul.dots.dot_case import dot_case
from tilewright_conformance.cases.matmul.dots.single_matmuls import launch_matmul
from tilewright_conformance.oracles import matrix
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

#: accumulator -> NumPy's dtype of it


def precision_cases() -> Iterator[Case]:
    for precision in matrix.PRECISIONS:
        for m, n, k in ((16, 16, 16), (32, 32, 64), (64, 32, 256)):
            body = functools.partial(_precise, precision, (m, n, k))
            kwargs: dict[str, Any] = {
                "precisions": {precision} - {"ieee"},
                "quick": k == 64,
                "elements": 1 << 14,
            }
            yield dot_case(
                f"precision/f32/{precision}/{m}x{n}x{k}",
                body,
                ("f32",),
                {("f32", "f32")},
                (m, n, k),
                **kwargs,
            )
    for allowed in (True, False):
        body = functools.partial(_allowed, allowed)
        # True allows the rounding, and a backend without it computes exactly: nothing is needed for
        # it.
        yield dot_case(
            f"precision/f32/allow_tf32_{allowed}",
            body,
            ("f32",),
            {("f32", "f32")},
            (32, 32, 64),
            quick=True,
        )
    for limit in (0, 16, 64):
        body = functools.partial(_imprecise, limit)
        yield dot_case(
            f"precision/f8e4m3fn/max_imprecise_{limit}",
            body,
            ("f8e4m3fn", "f32"),
            {("f8e4m3fn", "f32")},
            (32, 32, 64),
            quick=limit == 16,
        )
    body = functools.partial(_uneven, "f32", "f32")
    yield dot_case(
        "precision/f32/terms_of_all_sizes",
        body,
        ("f32",),
        {("f32", "f32")},
        (16, 16, 64),
        quick=True,
    )
    yield dot_case(
        "precision/f64/terms_of_all_sizes",
        functools.partial(_uneven, "f64", "f64"),
        ("f64",),
        {("f64", "f64")},
        (16, 16, 64),
        quick=True,
    )
    yield dot_case(
        "precision/f16/sums_beyond_f16",
        _beyond_half,
        ("f16", "f32"),
        {("f16", "f32")},
        (16, 16, 64),
        quick=True,
    )


def _precise(precision: str, shape: tuple[int, int, int], session: Session) -> None:
    m, n, k = shape
    a, b, c = (matrix.spread(session.rng, "f32", *own) for own in ((m, k), (k, n), (m, n)))
    launch_matmul(session, a, b, c, "f32", rounded=True, precision=precision)


def _allowed(tf32: bool, session: Session) -> None:
    a, b = matrix.spread(session.rng, "f32", 32, 64), matrix.spread(session.rng, "f32", 64, 32)
    found = np.zeros((32, 32), np.float32)
    session.launch(
        kernels.allowing, (1,), a.given, b.given, found, TF32=tf32, IMPRECISE=None, M=32, N=32, K=64
    )
    precision = "tf32" if tf32 and "tf32" in session.capabilities.dot_precisions else "ieee"
    session.check(
        found, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32", precision)
    )


def _imprecise(limit: int, session: Session) -> None:
    for draw in (matrix.few_bits, matrix.spread):
        a, b = draw(session.rng, "f8e4m3fn", 32, 64), draw(session.rng, "f8e4m3fn", 64, 32)
        found = np.zeros((32, 32), np.float32)
        session.launch(
            kernels.allowing,
            (1,),
            a.given,
            b.given,
            found,
            TF32=None,
            IMPRECISE=limit,
            M=32,
            N=32,
            K=64,
        )
        atol = (
            matrix.bound(a.values, b.values, 0.0, "f32", imprecise=True)
            if draw is matrix.spread
            else 0.0
        )
        session.check(found, a.values @ b.values, atol=atol, zero_sign=False)


def _uneven(type_: str, result: str, session: Session) -> None:
    """Terms from 2**-30 to 2**30, of one sign, so that each result keeps its leading bits."""
    size = np.exp2(session.rng.integers(-15, 16, (16, 64)))
    a = matrix.encoded(type_, session.rng.uniform(1, 2, (16, 64)) * size)
    b = matrix.encoded(
        type_,
        session.rng.uniform(1, 2, (64, 16)) * np.exp2(session.rng.integers(-15, 16, (64, 16))),
    )
    launch_matmul(session, a, b, matrix.encoded(result, np.zeros((16, 16))), result, rounded=True)


def _beyond_half(session: Session) -> None:
    """Matmuls of fp16 whose results fp16 holds neither in magnitude nor in bits."""
    a = matrix.encoded("f16", session.rng.integers(100, 300, (16, 64)))
    b = matrix.encoded("f16", session.rng.integers(1, 8, (64, 16)))
    # All results are whole numbers below 2**24: exact in fp32.
    launch_matmul(session, a, b, matrix.whole(session.rng, "f32", 16, 16), "f32", rounded=False)
