"""The catalogue of decompositions, and the pass that leaves only operations that a backend lowers.

    decompose(module, lowers={"constant", "select", "cmp", ...}, computes={"f32"})

Each operation that is not lowered is replaced by what its row says, and what that leaves by its own
row, until nothing with a row is left. An operation without one stays, for the backend to refuse by
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tilewright.ir.core import Module
from tilewright.ir.ops.control import Call
from tilewright.ir.table import merged
from tilewright.ir.types import F32, FLOATS
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.decompose import descriptors
from tilewright.passes.decompose.decomposition import Decomposition
from tilewright.passes.decompose.widen import widening
from tilewright.passes.inline import inline
from tilewright.passes.package_modules import rows_of
from tilewright.passes.rewriter import Rewrite, Rewriter, by_operation

#: operation -> its decomposition
CATALOGUE: Mapping[str, Decomposition] = merged(
    *({row.operation: row} for row in rows_of("tilewright.passes.decompose", "ROWS"))
)


def remaining(operations: Iterable[str]) -> frozenset[str]:
    """The operations that have to be lowered where all that have a decomposition are decomposed:
    of ``operations``, and of what these leave."""
    found, seen = set(), set()
    waiting = list(operations)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        row = CATALOGUE.get(name)
        if row is None:
            found.add(name)
        else:
            waiting += row.into
    return frozenset(found)


def decompose(module: Module, lowers: Collection[str], computes: Collection[str] = ()) -> bool:
    """Take apart what a backend does not lower, in place; whether anything changed.

    Args:
        lowers: the operations that stay as they are.
        computes: the float types with arithmetic and conversions of their own, f32 among them;
            empty for all. Arithmetic on others is done in f32, and they are converted by operations
            on integers.
    """
    changed = False
    if "call" not in lowers and any(isinstance(operation, Call) for operation in module.walk()):
        changed |= inline(module)
    rewrites = [
        Rewrite((name,), row.law, row.apply)
        for name, row in CATALOGUE.items()
        if name not in lowers
    ]
    if computes:
        native = frozenset(type_ for type_ in FLOATS if str(type_) in computes)
        rewrites += widening(native | {F32})
    table = by_operation(rewrites)
    for function in module.functions.values():
        changed |= descriptors.expand(function, lowers)
        if any(operation.name in table for operation in function.walk()):
            changed |= Rewriter(table).run(function)
    if changed:
        cse(module)
        dce(module)
    return changed
