"""Matmuls beside other operations: views, conversions of operands, batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.matmul.dots import kernels
from tilewright_conformance.cases.matmul.dots.dot_case import Array, dot_case
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.dtypes import language, storage
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

_FUSIONS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "left_transposed": lambda x, y, z: x.T @ y,
    "right_transposed": lambda x, y, z: x @ y.T,
    "both_transposed": lambda x, y, z: y @ x,
    "with_itself": lambda x, y, z: x @ x.T,
    "chained": lambda x, y, z: x @ y @ z,
    "chained_on_the_right": lambda x, y, z: x @ (y @ z),
    "summed": lambda x, y, z: y @ z + x @ y + x @ z,
    "computed": lambda x, y, z: np.where(x > 0, y, -x) @ (1.5 * z),
    "masked": lambda x, y, z: np.tril(x) @ y,
    "by_a_unit": lambda x, y, z: np.roll(x, -3, axis=1),
    "repeated_row": lambda x, y, z: np.broadcast_to(x.max(0), x.shape) @ y,
    "woven": lambda x, y, z: (x + y) @ z,
    "added_up": lambda x, y, z: x @ y + (y @ z).sum(1)[:, None] - (x @ z).max(0)[None, :],
    "powers": lambda x, y, z: x @ x @ z,
    "nested": lambda x, y, z: 9 * (x @ y),
    "scaled_loop": lambda x, y, z: (
        (x @ y) * np.where(np.arange(len(x)) % 2 == 0, 2.5, 2.0)[:, None]
    ),
}


def fusion_cases() -> Iterator[Case]:
    for type_, size in (("f16", 16), ("f16", 32), ("bf16", 16), ("f32", 32)):
        for name in _FUSIONS:
            quick = (type_, size) == ("f16", 32) and name in (
                "left_transposed",
                "right_transposed",
                "chained",
                "nested",
                "scaled_loop",
                "woven",
            )
            body = functools.partial(_fusion, name, type_, size)
            shape = (2 * size if name == "woven" else size, size, size)
            own: dict[str, Any] = {
                "subject": f"tl.dot, {name}",
                "quick": quick,
                "elements": 2 * size**2,
            }
            yield dot_case(
                f"around/{name}/{type_}/{size}",
                body,
                (type_, "f32"),
                {(type_, "f32")},
                shape,
                **own,
            )
    yield dot_case(
        "around/chosen/f16/16",
        _branches,
        ("f16", "f32"),
        {("f16", "f32")},
        (16, 16, 16),
        subject="tl.dot, chosen",
        quick=True,
    )


def _around(
    session: Session, name: str, type_: str, size: int, programs: int = 1
) -> tuple[Array, tuple[Array, Array, Array]]:
    x, y, z = (matrix.whole(session.rng, type_, size, size, most=1) for _ in range(3))
    found = np.zeros((programs, size, size), np.float32)
    session.launch(
        kernels.fused,
        (programs,),
        x.given,
        y.given,
        z.given,
        found,
        FN=getattr(kernels, name),
        SIZE=size,
    )
    return found, (x.values, y.values, z.values)


def _fusion(name: str, type_: str, size: int, session: Session) -> None:
    found, values = _around(session, name, type_, size)
    session.check(found[0], _FUSIONS[name](*values), zero_sign=False)


def _branches(session: Session) -> None:
    found, (x, y, _) = _around(session, "chosen", "f16", 16, programs=2)
    session.check(found, np.stack([x @ y, y @ x]), zero_sign=False)


#: the storage type, and the type it is converted to for the matmul
_CONVERSIONS = (
    ("i8", "f16"),
    ("u8", "f32"),
    ("f32", "f16"),
    ("f16", "bf16"),
    ("f16", "f32"),
    ("bf16", "f32"),
    ("f8e5m2", "f16"),
    ("f8e4m3fn", "bf16"),
)


def conversion_cases() -> Iterator[Case]:
    for stored, type_ in _CONVERSIONS:
        body = functools.partial(_converted, stored, type_)
        yield dot_case(
            f"converted/{stored}/to_{type_}",
            body,
            (stored, type_, "f32"),
            {(type_, "f32")},
            (16, 32, 32),
            quick=stored in ("i8", "f8e5m2"),
        )
    for type_, result in (("f16", "f32"), ("f32", "f32"), ("i8", "i32"), ("f64", "f64")):
        body = functools.partial(_batches, type_, result)
        yield dot_case(
            f"batches/{type_}/transposed",
            body,
            (type_, result),
            {(type_, result)},
            (16, 32, 16),
            quick=type_ == "f16",
            elements=1 << 12,
        )


def _converted(stored: str, type_: str, session: Session) -> None:
    """Integers of few bits and scales that are powers of two: exact in any of the types."""
    a, b = (
        matrix.whole(session.rng, stored, 16, 32, most=4),
        matrix.whole(session.rng, type_, 32, 32),
    )
    scale = matrix.encoded("f32", np.exp2(session.rng.integers(-3, 3, 16)))
    found = np.zeros((16, 32), np.float32)
    session.launch(
        kernels.converted,
        (1,),
        a.given,
        scale.given,
        b.given,
        found,
        TYPE=language(type_),
        M=16,
        N=32,
        K=32,
    )
    session.check(found, (a.values * scale.values[:, None]) @ b.values, zero_sign=False)


def _batches(type_: str, result: str, session: Session) -> None:
    a, b = matrix.whole(session.rng, type_, 4, 16, 16), matrix.whole(session.rng, type_, 4, 32, 16)
    found = np.zeros((4, 16, 32), storage(result))
    session.launch(kernels.batches_transposed, (1,), a.given, b.given, found, B=4, M=16, N=32, K=16)
    session.check(found, (a.values @ b.values.swapaxes(1, 2)).astype(found.dtype), zero_sign=False)
