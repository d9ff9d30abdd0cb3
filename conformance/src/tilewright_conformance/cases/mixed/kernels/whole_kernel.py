"""Common parts of the whole-kernel cases: making a case, and random and poisoned arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

Array = np.ndarray[Any, Any]


def whole(
    id_: str,
    profile: str,
    body: Callable[[Session], None],
    dtypes: str = "f32",
    *,
    quick: bool = False,
    **needs: Any,
) -> Case:
    """A case of the family ``kernels``; its subject is the first word of ``id_``.

    Args:
        dtypes: with blanks between.
        needs: as ``elements`` takes them.
    """
    table, subject = Table("kernels", profile, "NumPy, float64"), id_.partition("/")[0]
    return table.case(
        id_, subject, body, *dtypes.split(), quick=quick, **{"tile": 1 << 12, **needs}
    )


def normal(session: Session, *shape: int, dtype: Any = np.float32) -> Array:
    return np.asarray(session.rng.standard_normal(shape)).astype(dtype)


def poisoned(*shape: int, dtype: Any = np.float32) -> Array:
    """An array of values that no kernel writes by chance."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


def blocks(extent: int, block: int) -> int:
    return -(-extent // block)
