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
    """Decorate a kernel-language function for whose derivative you write a rule.

        @tw.custom_vjp
        def round_through(x):
            return tl.extra.libdevice.rint(x)

        @round_through.vjp
        def _(x, y, dy):
            return tl.where(tl.abs(x) < 1, dy, 0.0)

    A rule is a kernel-language function that computes the derivative of the decorated function. In
    a kernel that ``tw.vjp`` derives, a call of the rule replaces the derivative of the function's
    body. The rule receives the arguments of the function, the results of the function, and the
    cotangents of the float results. The rule returns a cotangent, or None, for each parameter of
    the function that is not a constexpr. If the function returns a tuple, the rule receives each
    element of the tuple, and the cotangent of each float element, as a separate argument. A
    cotangent has the same shape as the value that it belongs to, and the elements of a cotangent
    have at least 32 bits. If the rule returns a number as a cotangent, all elements of the
    cotangent have this value.

    The decorator ``.jvp`` of the decorated function sets the rule for forward mode. Kernels that
    ``tw.jvp`` derives call this rule. The rule for forward mode receives the arguments of the
    function, the results of the function, and the tangents of the float arguments, and returns the
    tangents of the float results. If you take a second derivative of a kernel, the compiler
    differentiates the code of the rule.

    The decorated function must not access memory.

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
