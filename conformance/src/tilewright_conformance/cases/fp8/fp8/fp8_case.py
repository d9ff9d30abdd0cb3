"""Statement of one case of the formats of 8 bits, and the comparison of their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright_conformance.oracles.dtypes import ELEMENTS, FP8, IR, Array
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

#: names in the language
KINDS = tuple(ELEMENTS[text] for text in FP8)
COMMON = ("float8e4nv", "float8e5")
BLOCK = 256
BYTES = np.arange(256, dtype=np.uint8)
TABLE = Table("fp8", "fp8", "the definition of the format")


def fp8_case(
    name: str,
    id_: str,
    subject: str,
    body: Callable[[Session], None],
    *types: str,
    quick: bool = False,
    tile: int = BLOCK,
    **needs: Any,
) -> Case:
    return TABLE.case(
        f"{IR[name]}/{id_}", subject, body, name, *types, quick=quick, tile=tile, **needs
    )


def check_bits(
    session: Session, found: Array, expected: Array, name: str, label: str = "result"
) -> None:
    """Bits of a format, against numbers: a NaN has many patterns."""
    session.check(found, expected, type_=IR[name], name=label)
