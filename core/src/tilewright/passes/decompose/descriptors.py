"""Descriptors as a base, extents and strides; their accesses as loads, stores and updates of
pointers under masks. One expansion does a whole function."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tilewright.ir.core import Function, Operation
from tilewright.passes.decompose.decomposition import Decomposition
from tilewright.passes.descriptor_pointers import Expansion, has_descriptors
from tilewright.passes.rewriter import Rewriter

_ADDRESSES = (
    "constant",
    "arange",
    "splat",
    "cast",
    "add",
    "mul",
    "cmp",
    "and",
    "expand_dims",
    "broadcast",
    "addptr",
)


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


def _row(operation: str, law: str, *into: str) -> Decomposition:
    return Decomposition(operation, law, into, _stays)


ROWS: tuple[Decomposition, ...] = (
    _row(
        "make_descriptor",
        "its operands: an argument is passed as its base, its extents and its strides",
    ),
    _row("descriptor_extent", "the extent"),
    _row("descriptor_stride", "the stride"),
    _row("descriptor_load", "a load of pointers under a mask", *_ADDRESSES, "load"),
    _row("descriptor_store", "a store to pointers under a mask", *_ADDRESSES, "store"),
    _row("descriptor_reduce", "an update at pointers under a mask", *_ADDRESSES, "atomic_rmw"),
    _row("descriptor_gather", "a load of pointers under a mask", *_ADDRESSES, "load"),
    _row("descriptor_scatter", "a store to pointers under a mask", *_ADDRESSES, "store"),
)
