"""Rules of reverse mode: a function an operation, registered where it is written.

``rule(builder, operation, *cotangents)`` gets the cotangent of each result, or None, and adds the
cotangents of the operands. Elementwise operations have no rule: their factors are in
:mod:`tilewright.derivatives.partials`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.ir.core import Operation
from tilewright.ir.ops import TABLE
from tilewright.passes.package_modules import import_modules

_Apply = TypeVar("_Apply", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class AdjointRule:
    """The rule of an operation.

    Attributes:
        law: the operands' cotangents, in one line; ``dy`` is the result's.
        apply: see the module.
    """

    law: str
    apply: Callable[..., None]


_RULES: dict[str, AdjointRule] = {}


@functools.cache
def rules() -> Mapping[str, AdjointRule]:
    """The rules by operation."""
    import_modules("tilewright.derivatives.adjoint")
    return _RULES


def transposes(op_class: type[Operation], law: str) -> Callable[[_Apply], _Apply]:
    """Register the rule of an operation that has a class of its own."""

    def register(apply: _Apply) -> _Apply:
        name = op_class.row.name
        assert name in TABLE
        if name in _RULES:
            raise ValueError(f"operation {name!r} has two rules in reverse mode")
        _RULES[name] = AdjointRule(law, apply)
        return apply

    return register


def applied(name: str) -> Callable[..., Any] | None:
    """Return the function of an operation's rule; None where it has none."""
    rule = rules().get(name)
    return None if rule is None else rule.apply
