"""Contraction: fusion of multiplications and additions of floats into one rounding.

The launch option ``enable_fp_fusion`` allows it, unless a function of Tile IR forbids it by the
attribute ``contract``, as those of invariant launches do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function
from tilewright.ir.order import CONTRACT


def is_contracted(function: Function, options: Mapping[str, Any]) -> bool:
    """Return whether a function's multiplications and additions may be fused."""
    return bool(options.get("enable_fp_fusion", True) and function.attributes.get(CONTRACT, True))


def contract_flag(function: Function, options: Mapping[str, Any]) -> str:
    """Return the fast-math flag of a function's arithmetic, with a space before it; or nothing."""
    return " contract" if is_contracted(function, options) else ""
