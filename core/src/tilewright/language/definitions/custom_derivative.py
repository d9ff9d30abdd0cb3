"""Functions of the language that have a derivative of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.language.definitions.callable import JitCallable, device_function

#: The kinds of rules: of reverse mode, and of forward mode.
VJP, JVP = "vjp", "jvp"

#: ``rule(inputs, outputs, derivatives)`` appends a rule and returns the derivatives it computes.
RuleBody = Callable[[list[Any], list[Any], list[Any]], Any]


class CustomDerivative(JitCallable):
    """A function of the language that has a derivative of its own; see :func:`custom_vjp`.

    Attributes:
        rules: ``vjp`` and ``jvp`` -> the rule, as far as it has one.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.rules: dict[str, JitCallable] = {}

    def vjp(self, rule: Callable[..., Any]) -> JitCallable:
        """Set the rule of reverse mode; see :func:`custom_vjp`."""
        return self._set(VJP, rule)

    def jvp(self, rule: Callable[..., Any]) -> JitCallable:
        """Set the rule of forward mode; see :func:`custom_vjp`."""
        return self._set(JVP, rule)

    def _set(self, kind: str, rule: Callable[..., Any]) -> JitCallable:
        found = rule if isinstance(rule, JitCallable) else device_function(rule)
        self.rules[kind] = found
        self.forget_meaning()
        self._replaced()
        return found


def custom_vjp(fn: Callable[..., Any] | JitCallable) -> CustomDerivative:
    """Make a function of the language that has a derivative of its own.

        @tw.custom_vjp
        def round_through(x):
            return tl.extra.libdevice.rint(x)

        @round_through.vjp
        def _(x, y, dy):
            return tl.where(tl.abs(x) < 1, dy, 0.0)

    Kernels call it like any other function, and are compiled as if it were one. ``tw.vjp`` calls
    the rule instead of deriving the function's body: it gets the arguments, the results, and the
    cotangents of those results that are floats; and returns the cotangent of each parameter but
    constexprs, or None where there is none. The results of a function that returns a tuple are
    arguments of their own. A cotangent has the shape of what it belongs to, and 32 bits where that
    has fewer. A number stands for a tile of it.

    ``tw.jvp`` calls the rule that is set by ``.jvp``, which gets the arguments, the results, and
    the tangents of those arguments that are floats; and returns the tangents of those results that
    are floats. Second derivatives derive the rules.

    The function computes values from values: it reads and writes no memory.

    Args:
        fn: a function, as for ``tilewright.jit``.

    Raises:
        DefinitionError: it is none.
    """
    return CustomDerivative(fn.fn if isinstance(fn, JitCallable) else fn)


@dataclass(frozen=True)
class DifferentiableCall:
    """A call of a function that has a derivative of its own.

    Attributes:
        key: identifies the function.
        name: the function's.
        inputs: its arguments, with the names of its parameters.
        body: appends its body, given the arguments, and returns its value.
        rules: ``vjp`` and ``jvp`` -> the rule.
    """

    key: Hashable
    name: str
    inputs: tuple[tuple[str, Any], ...]
    body: Callable[[list[Any]], Any]
    rules: Mapping[str, RuleBody]
