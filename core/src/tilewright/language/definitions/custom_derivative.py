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
    """Decorate a kernel-language function whose derivative you define by a rule.

        @tw.custom_vjp
        def round_through(x):
            return tl.extra.libdevice.rint(x)

        @round_through.vjp
        def _(x, y, dy):
            return tl.where(tl.abs(x) < 1, dy, 0.0)

    Kernels call the function like any other, and compile to the same code. A kernel that ``tw.vjp``
    derives calls the rule instead of a derivative of the function's body. The rule receives the
    arguments, the results, and the cotangents of float results. It returns a cotangent, or None,
    for each parameter that is not a constexpr. If the function returns a tuple, each result is a
    separate argument of the rule. A cotangent has the shape of its value, and its elements have at
    least 32 bits. If the rule returns a number, it stands for a tile with this number in all
    elements.

    ``.jvp`` sets the rule of forward mode, for kernels that ``tw.jvp`` derives. It receives the
    arguments, the results, and the tangents of float arguments. It returns the tangents of float
    results. A second derivative is the derivative of a rule.

    The function must not access memory.

    Args:
        fn: a function, as for ``tilewright.jit``.

    Raises:
        DefinitionError: ``fn`` is not such a function.
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
