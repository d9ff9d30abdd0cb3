"""Simplification by local laws: constant folding, algebra, shapes, known masks, control flow with
known conditions.

The laws are the rows of :mod:`tilewright.passes.rewrites`; each says what it rests on.
"""

from __future__ import annotations

from tilewright.ir.core import Module
from tilewright.passes.package_modules import rows_of
from tilewright.passes.rewriter import Rewrite, Rewriter, by_operation

REWRITES: tuple[Rewrite, ...] = rows_of("tilewright.passes.rewrites", "REWRITES")
_BY_OPERATION = by_operation(REWRITES)


def canonicalize(module: Module) -> bool:
    """Apply the rewrite rules up to a fixed point; return whether anything changed."""
    changed = False
    for function in module.functions.values():
        changed |= Rewriter(_BY_OPERATION).run(function)
    return changed
