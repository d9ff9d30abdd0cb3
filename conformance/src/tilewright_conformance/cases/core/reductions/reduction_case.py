"""Statement of one case of a reduction, and the axes that reductions take."""

from __future__ import annotations

from typing import Any

from tilewright_conformance.oracles.dtypes import (
    Array,
    kind,
    language,
)
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib import combining
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.combining import Shape
from tilewright_conformance.testlib.numbers import unset

#: (shape, axis, whether the axis is kept)
AXES: tuple[tuple[Shape, int | None, bool], ...] = (
    ((64,), 0, False),
    ((8, 16), 1, False),
    ((8, 16), 0, False),
    ((1,), 0, False),
    ((16, 8), -1, True),
    ((2, 4, 8), 1, False),
    ((32, 32), None, False),
    ((1024,), None, True),
    ((4, 1), 1, False),
    ((1, 32), 0, True),
    ((4, 8, 2), 0, True),
    ((2, 8, 16), 2, False),
    ((128, 4), 0, False),
    ((2, 4, 2, 8), 1, False),
    ((2, 2, 4, 8), -1, True),
    ((4, 128), 1, False),
    ((2,), 0, False),
    ((4, 2, 2, 4), 0, False),
    ((4096,), 0, False),
)
reduction_case = Table("reductions", "core", "NumPy, float64").case


def axis_text(shape: Shape, axis: int | None, keep: bool) -> str:
    along = "all" if axis is None else axis % len(shape)
    return f"{'x'.join(map(str, shape))}_{along}{'_keep' if keep else ''}"


def reduced(
    function: Any, x: Array, result: str, place: tuple[Shape, int | None, bool], session: Session
) -> Array:
    """Reduce a tile on the backend and return the result."""
    shape, axis, keep = place
    found = unset(combining.extent_of(shape, axis, keep), kind(result))
    session.launch(
        combining.reduced,
        (1,),
        x,
        found,
        SHAPE=shape,
        FUNCTION=function,
        AXIS=axis,
        KEEP=keep,
        TYPE=language(result),
    )
    return found
