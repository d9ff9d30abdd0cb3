"""Reductions, scans and matmuls in a stated order: the reference's bits, without tolerances.

The floats have spread exponents, so that each order of adding them rounds differently. Batches of
several sizes and rows at several places of a tile are held to the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.ir.order import ANY
from tilewright_conformance.oracles.dtypes import IR
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import reduction_order
from tilewright_conformance.testlib.bits import same_bits
from tilewright_conformance.testlib.case_table import Table, elements
from tilewright_conformance.testlib.reduction_order import ORDERS

Array = np.ndarray[Any, Any]

_TYPES = ("float16", "float32")
_ROWS = (1, 3, 16, 64)
_EXTENTS = (32, 128, 512)
#: Elements of the largest tile; larger batches take several programs.
_TILE = 8192
#: (M, N, K)
_MATMULS = ((1, 16, 32), (16, 16, 32), (16, 16, 128), (64, 16, 64))

_REDUCTIONS = Table("orders", "control", "the reference interpreter")
_MATRICES = Table("orders", "matmul", "the reference interpreter")


def cases() -> Iterator[Case]:
    for order in ORDERS:
        for name in _TYPES:
            for extent in _EXTENTS:
                where = f"{order}/{IR[name]}/{extent}"
                yield _REDUCTIONS.case(
                    f"sum/{where}",
                    "tl.sum",
                    functools.partial(_reductions, name, extent, order),
                    name,
                    "float32",
                    tile=_TILE,
                    orders={("reduce", order)},
                    quick=extent == 128,
                )
                for reverse in (False, True):
                    yield _REDUCTIONS.case(
                        f"cumsum/{where}{'_reverse' if reverse else ''}",
                        "tl.cumsum",
                        functools.partial(_scans, name, extent, reverse, order),
                        name,
                        "float32",
                        tile=_TILE,
                        orders={("scan", order)},
                        quick=extent == 32 and not reverse,
                    )
            for shape in _MATMULS:
                yield _MATRICES.case(
                    f"dot/{order}/{IR[name]}/{'x'.join(map(str, shape))}",
                    "tl.dot",
                    functools.partial(_matmuls, name, shape, order),
                    name,
                    "float32",
                    tile=_TILE,
                    dot={(IR[name], "f32")},
                    dot_shape=shape,
                    orders={("dot", order)},
                    quick=shape == (16, 16, 32),
                )
    yield from _REDUCTIONS


def _spread(session: Session, name: str, shape: tuple[int, ...]) -> Array:
    limit = 6 if name == "float16" else 12
    exponents = session.rng.integers(-limit, limit + 1, shape)
    return (session.rng.standard_normal(shape) * 2.0**exponents).astype(name)


def _rows_of_a_tile(rows: int, extent: int) -> int:
    """Return a power of two that divides the number of rows."""
    return min(rows, _TILE // extent) if rows & (rows - 1) == 0 else 1


def _reductions(name: str, extent: int, order: str, session: Session) -> None:
    for rows in _ROWS:
        x, tile = _spread(session, name, (rows, extent)), _rows_of_a_tile(rows, extent)
        found, expected = np.zeros(rows, name), np.zeros(rows, name)
        for own, out in ((session, found), (session.reference, expected)):
            own.launch(
                reduction_order.sum_rows, (rows // tile,), x, out, N=extent, ROWS=tile, ORDER=order
            )
        same_bits(session, found, expected, f"sum of {rows} rows")


def _scans(name: str, extent: int, reverse: bool, order: str, session: Session) -> None:
    for rows in _ROWS:
        x, tile = _spread(session, name, (rows, extent)), _rows_of_a_tile(rows, extent)
        found, expected = np.zeros_like(x), np.zeros_like(x)
        for own, out in ((session, found), (session.reference, expected)):
            own.launch(
                reduction_order.scan_rows,
                (rows // tile,),
                x,
                out,
                N=extent,
                ROWS=tile,
                REVERSE=reverse,
                ORDER=order,
            )
        same_bits(session, found, expected, f"scan of {rows} rows")


def _matmuls(name: str, shape: tuple[int, int, int], order: str, session: Session) -> None:
    m, n, k = shape
    a, b = _spread(session, name, (m, k)), _spread(session, name, (k, n))
    found = _spread(session, "float32", (m, n))
    expected = found.copy()
    for own, out in ((session, found), (session.reference, expected)):
        own.launch(reduction_order.multiply, (1,), a, b, out, M=m, N=n, K=k, ORDER=order)
    same_bits(session, found, expected, "matrix")


@_REDUCTIONS("refused", "tl.sum", needs=elements("float32", tile=256))
def refused(session: Session) -> None:
    """An order that is not declared, or does not exist, is an error that states the remedy."""
    x, out = np.ones((1, 32), np.float32), np.zeros((1, 32), np.float32)
    kernels: dict[str, tuple[Any, dict[str, Any]]] = {
        "reduce": (reduction_order.sum_rows, {"ROWS": 1}),
        "scan": (reduction_order.scan_rows, {"ROWS": 1, "REVERSE": False}),
    }
    for name, (kernel, constants) in kernels.items():
        declared = session.capabilities.orders.get(name, frozenset())
        for order in ORDERS:
            if order not in declared:
                remedy = f"(?s)order '{order}' of {name}.*use order=.*'{ANY}'"
                with session.raises(TilewrightError, remedy):
                    session.launch(kernel, (1,), x, out, N=32, ORDER=order, **constants)
        with session.raises(TilewrightError, "order must be one of"):
            session.launch(kernel, (1,), x, out, N=32, ORDER="sorted", **constants)
