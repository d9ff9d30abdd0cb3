"""Handlers that are registered for an operation's name take that operation's class."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tilewright.ir.breakpoint import OPS as BREAKPOINT
from tilewright.ir.core import Operation
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Binary, Cast, Cmp
from tilewright.ir.types import F32
from tilewright.passes import canonicalize, descriptor_pointers
from tilewright.passes.analysis import axis, axis_moves
from tilewright.passes.decompose.catalogue import CATALOGUE
from tilewright.passes.decompose.widen import widening
from tilewright.reference.checks import undefined_lanes
from tilewright.reference.checks.value_checks import CHECKS
from tilewright.reference.operations.regions import CONTROL
from tilewright.reference.operations.semantics import MEANINGS
from tilewright.simt.lowering import atomics, index, reduce, scan, shape
from tilewright_cpu.codegen.registry import METHODS

Handler = Callable[..., Any]

ALL = TABLE.extended(BREAKPOINT)

#: Tables of handlers -> the rows: an operation, and what is called with it.
HANDLERS: dict[str, list[tuple[str, Handler]]] = {
    "rewrites": [
        (name, rewrite.apply) for rewrite in canonicalize.REWRITES for name in rewrite.operations
    ],
    "decompositions": [(name, row.apply) for name, row in CATALOGUE.items()],
    "widening": [
        (name, rewrite.apply) for rewrite in widening([F32]) for name in rewrite.operations
    ],
    "expansions of descriptors": list(descriptor_pointers._EXPANSIONS.items()),
    "moves of axes": list(axis_moves.MOVED.items()),
    "control flow of axes": list(axis._STRUCTURED.items()),
    "meanings": list(MEANINGS.items()),
    "control flow": list(CONTROL.items()),
    "checks": [(name, check) for name, rows in CHECKS.items() for *_, check in rows],
    "undefined lanes": list(undefined_lanes._RULES.items()),
    **{
        module.__name__: [
            (name, interface.lower)
            for name, interface in module.INTERFACES.items()
            if name in TABLE
        ]
        for module in (atomics, index, reduce, scan, shape)
    },
    "lowering for the CPU": list(METHODS.statements.items()),
}


def _classes(annotation: Any) -> tuple[type[Operation], ...] | None:
    """The classes of operations that an annotation admits; None where it is of something else."""
    found = (
        typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    )
    return (
        found
        if all(isinstance(each, type) and issubclass(each, Operation) for each in found)
        else None
    )


def taken(handler: Handler) -> tuple[type[Operation], ...]:
    """The classes of the operation that a handler takes."""
    scope = {"Operation": Operation} | handler.__globals__
    for text in handler.__annotations__.values():
        try:
            found = _classes(eval(text, scope))
        except (
            NameError
        ):  # a name that is imported for type checkers alone, which no class of operations is
            continue
        if found is not None:
            return found
    raise AssertionError(f"{handler.__qualname__} takes no operation")


def unfit(name: str, handler: Handler) -> Iterator[str]:
    """What a handler takes, where the operation of that name is none of it."""
    classes = taken(handler)
    if not issubclass(ALL[name].op_class, classes):
        yield (
            f"{handler.__qualname__} takes {' | '.join(each.__name__ for each in classes)}, and "
            f"is called with {name}"
        )


@pytest.mark.parametrize("table", HANDLERS)
def test_handlers_take_the_class_of_the_operation_that_they_are_called_with(table: str) -> None:
    assert HANDLERS[table]
    assert not [fault for name, handler in HANDLERS[table] for fault in unfit(name, handler)]


def _compare(context: object, operation: Cmp) -> None: ...
def _join(context: object, operation: Binary | Cast) -> None: ...
def _nothing(context: object) -> None: ...


def test_what_is_found() -> None:
    assert (
        not list(unfit("cmp", _compare))
        and not list(unfit("cmp", _join))
        and not list(unfit("cast", _join))
    )
    assert list(unfit("add", _compare)) == ["_compare takes Cmp, and is called with add"]
    assert list(unfit("select", _join)) == ["_join takes Binary | Cast, and is called with select"]
    with pytest.raises(AssertionError, match="takes no operation"):
        taken(_nothing)
