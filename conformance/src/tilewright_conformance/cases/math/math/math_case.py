"""Statement of one case of a function of floats, and the kernels of one operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.math_values import (
    ARGUMENTS,
)

Array = NDArray[Any]
TABLE = Table("math", "math", "exact integers and fractions")
BLOCK = 1024
#: name -> the function of the language
FUNCTIONS: dict[str, Any] = {
    name: getattr(tl, name, None) or getattr(libdevice, name) for name in ARGUMENTS
}
#: The minimum normal number of f32, and a number so near above it that an error as large as relaxed
#: bounds may bring it below.
NORMAL, NEAR_NORMAL = 2.0**-126, 2.0**-126 * (1 + 2.0**-12)


def math_case(
    name: str,
    type_: str,
    variant: str,
    body: Callable[[Session], None],
    *others: str,
    quick: bool = False,
    tile: int = BLOCK,
    source: str = "",
) -> Case:
    return TABLE.case(
        f"{name}/{type_}/{variant}",
        f"tl.{name}",
        body,
        type_,
        *others,
        tile=tile,
        quick=quick,
        source=source,
    )


# ---- functions of one number


@tw.jit
def unary(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    tl.store(out_ptr + at, FUNCTION(x), mask=at < n)


@tw.jit
def through_fp32(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1)
    tl.store(out_ptr + at, FUNCTION(x.to(tl.float32)).to(x.dtype), mask=at < n)


def applied(session: Session, function: Any, x: Array, **options: Any) -> Array:
    found = np.full(len(x), 77, x.dtype)
    session.launch(
        unary, (-(-len(x) // BLOCK),), x, found, len(x), FUNCTION=function, BLOCK=BLOCK, **options
    )
    return found
