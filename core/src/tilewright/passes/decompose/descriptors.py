"""Descriptors as a base, extents and strides; their accesses as loads, stores and updates of
pointers under masks. One expansion does a whole function."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tilewright.ir.core import Function, Operation
from tilewright.passes.decompose.decomposition import Decomposition
from tilewright.passes.descriptor_pointers import Expansion, has_descriptors
from tilewright.passes.rewriter import Rewriter


def expand(function: Function, lowers: Collection[str]) -> bool:
    """Expand a function's descriptors, used or not, where none of the operations on them is
    lowered, or one that it has is not: a kernel has them as descriptors, or as their parts."""
    own = {row.operation for row in ROWS}
    missing = own - set(lowers)
    if (
        missing != own and missing.isdisjoint(operation.name for operation in function.walk())
    ) or not has_descriptors(function):
        return False
    Expansion(function).run()
    return True


def _stays(operation: Operation, b: Rewriter) -> Any:
    return None  # what is here after the expansion is lowered


def _part(operation: str, law: str) -> Decomposition:
    return Decomposition(operation, law, (), _stays)


def _access(operation: str, access: str, law: str) -> Decomposition:
    """Return the row of an access to the pointers of a descriptor's block."""
    return Decomposition(
        operation,
        law,
        (
            *("constant", "arange", "splat", "cast", "add", "mul", "cmp", "and"),
            *("expand_dims", "broadcast", "addptr", access),
        ),
        _stays,
    )


ROWS: tuple[Decomposition, ...] = (
    _part(
        "make_descriptor",
        "its operands: an argument is passed as its base, its extents and its strides",
    ),
    _part("descriptor_extent", "the extent"),
    _part("descriptor_stride", "the stride"),
    _access("descriptor_load", "load", "a load of pointers under a mask"),
    _access("descriptor_store", "store", "a store to pointers under a mask"),
    _access("descriptor_reduce", "atomic_rmw", "an update at pointers under a mask"),
    _access("descriptor_gather", "load", "a load of pointers under a mask"),
    _access("descriptor_scatter", "store", "a store to pointers under a mask"),
)
