"""Marks for the derivatives of a kernel."""

from __future__ import annotations

from typing import Any

from tilewright.language.binding import builtin
from tilewright.language.definitions.custom_derivative import JVP, VJP, DifferentiableCall
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import constexpr


@builtin
def stop_gradient(x: Any, _semantic: Any = None) -> Any:
    """Return the operand; derivatives of the kernel treat the result as a constant.

    The function does not change the results of the kernel itself.

    Args:
        x: a tensor or a number.

    Example:
        scale = tl.max(tl.abs(tl.stop_gradient(x)), axis=0)
    """
    if not isinstance(x, tensor) or not _semantic.options.differentiated:
        return x

    def nothing(inputs: list[Any], outputs: list[Any], derivatives: list[Any]) -> constexpr:
        return constexpr(None)

    return _semantic.generator.differentiable_call(
        DifferentiableCall(
            "stop_gradient",
            "stop_gradient",
            (("x", x),),
            lambda values: values[0],
            {VJP: nothing, JVP: nothing},
        )
    )
