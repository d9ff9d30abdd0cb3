"""One matmul, with and without a third operand: exact numbers, and numbers that use all bits."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.cases.matmul.dots.dot_case import ACCUMULATORS, Body, dot_case
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.dtypes import language, storage
from tilewright_conformance.oracles.matrix import Operand
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

#: leading batch axes, M, N, K; a backend whose smallest matmul is larger refuses the last ones
SHAPES: tuple[tuple[int, ...], ...] = (
    (16, 16, 16),
    (16, 64, 32),
    (64, 16, 32),
    (32, 32, 128),
    (128, 32, 16),
    (4, 16, 16, 32),
    (2, 2, 16, 32, 16),
    (1, 16, 32),
    (64, 1, 16),
    (8, 8, 32),
    (2, 1, 32, 16),
)
#: Of the types that every matrix unit has, the larger ones too.
LARGE = ((128, 128, 32), (64, 128, 64))


# ---- one matmul, with and without a third operand


def matmul_cases() -> Iterator[Case]:
    for type_, accumulators in ACCUMULATORS.items():
        for result in accumulators:
            common = type_ in ("f16", "bf16", "f32", "i8") and result != "f16"
            for index, (*batches, m, n, k) in enumerate(
                SHAPES + LARGE * common if common else SHAPES[::2]
            ):
                text = "x".join(map(str, (*batches, m, n, k)))
                body = functools.partial(_matmul, type_, type_, result, (tuple(batches), m, n, k))
                yield _matmul_case(
                    f"product/{type_}/into_{result}/{text}",
                    body,
                    type_,
                    type_,
                    result,
                    (m, n, k),
                    quick=index in (0, 3, 5),
                )
    for left, right, result in (
        ("f8e5m2", "f8e4m3fn", "f32"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("f8e4m3fn", "f8e5m2", "f16"),
        ("f8e4m3fnuz", "f8e5m2fnuz", "f32"),
    ):
        body = functools.partial(_matmul, left, right, result, ((), 16, 32, 64))
        yield _matmul_case(
            f"product/{left}/by_{right}_into_{result}",
            body,
            left,
            right,
            result,
            (16, 32, 64),
            quick=True,
        )
    for type_ in ("i8", "u8"):
        body = functools.partial(_matmul, type_, type_, "i32", ((), 16, 16, 32), named=type_)
        yield _matmul_case(
            f"product/{type_}/named_{type_}", body, type_, type_, "i32", (16, 16, 32)
        )


def _matmul_case(
    id_: str, body: Body, left: str, right: str, result: str, shape: tuple[int, ...], **own: Any
) -> Case:
    # fp8e4b15 is a storage format: its matmuls are those of fp16
    dot = {("f16", result)} if left == "f8e4b15" else {(left, result), (right, result)}
    m, n, k = shape
    return dot_case(
        id_, body, (left, right, result), dot, shape, elements=4 * max(m * n, m * k, k * n), **own
    )


def _matmul(
    left: str,
    right: str,
    result: str,
    shape: tuple[tuple[int, ...], int, int, int],
    session: Session,
    *,
    named: str = "",
) -> None:
    """Exact numbers, then those that use all bits."""
    batches, m, n, k = shape
    for draw in (matrix.few_bits, matrix.spread):
        a, b = draw(session.rng, left, *batches, m, k), draw(session.rng, right, *batches, k, n)
        c = matrix.few_bits(session.rng, result, *batches, m, n)
        rounded = draw is matrix.spread
        launch_matmul(
            session,
            a,
            b,
            c,
            result,
            rounded=rounded,
            out=named or (result if result == "f16" else ""),
            imprecise=rounded and matrix.is_fp8(left),
        )


def launch_matmul(
    session: Session,
    a: Operand,
    b: Operand,
    c: Operand,
    result: str,
    *,
    rounded: bool,
    out: str = "",
    precision: str = "ieee",
    imprecise: bool = False,
) -> None:
    """Run ``a @ b + c`` and ``a @ b`` and compare them: equal, or within the error bound.

    The bound holds where ``rounded``.
    """
    *batches, m, k = a.values.shape
    n = b.values.shape[-1]
    found = np.zeros((2, *batches, m, n), storage(result))
    options = {"BATCHES": batches, "M": m, "N": n, "K": k, "OUT": language(out) if out else None}
    session.launch(
        kernels.matmul,
        (1,),
        a.given,
        b.given,
        c.given,
        found,
        **options,
        PRECISION=precision if precision != "ieee" else None,
    )
    with np.errstate(all="ignore"):
        exact = np.matmul(a.values, b.values)
        for own, third, name in (
            (found[0], c.values, "a @ b + c"),
            (found[1], np.zeros(()), "a @ b"),
        ):
            atol = (
                matrix.bound(a.values, b.values, third, result, precision, imprecise=imprecise)
                if rounded and result != "i32"
                else 0.0
            )
            session.check(
                own,
                (exact + third).astype(own.dtype) if result == "i32" else exact + third,
                atol=atol,
                zero_sign=False,
                name=name,
            )
