"""Statement of one case of the speed of a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright_conformance.suite.case import Case, Needs
from tilewright_conformance.suite.session import Session


def perf_case(
    id_: str,
    body: Callable[[Session], None],
    dtypes: str = "f32",
    dot: Any = (),
    *,
    quick: bool = False,
) -> Case:
    needs = Needs(
        frozenset(dtypes.split()),
        frozenset(dot),
        dot_shape=(64, 64, 32) if dot else None,
        tile_elements=1 << 15,
    )
    return Case(
        f"perf/{id_}",
        "perf",
        id_.partition("/")[0],
        body,
        needs,
        time_limit=120.0,
        quick=quick,
        alone=True,
        source="the wall clock",
    )
