"""Scalar functions on payloads, applied to tiles element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Function, Value
from tilewright.ir.expressions import Number
from tilewright.ir.types import Type, element_type, with_element
from tilewright.passes.decompose.decomposition import lifted
from tilewright.passes.math.math_expressions import Scope


class Formulas:
    """Scalar functions on payloads, each written once and applied to tiles of any shape."""

    def __init__(self) -> None:
        self._functions: dict[tuple[Any, ...], Function] = {}

    def applied(
        self,
        builder: Any,
        key: tuple[Any, ...],
        write: Callable[..., Number],
        operands: list[Value],
        like: Type,
        result: Type,
    ) -> Value:
        """Append ``write`` for each element of payload operands.

        Args:
            key: identifies ``write``, beside the operands' types.
            like: a type of the operands' shape.
            result: the element type of the result.
        """
        types = tuple(element_type(operand.type) for operand in operands)
        function = self._functions.get((key, types))
        if function is None:
            scope = Scope(str(key[0]), (), result)
            arguments = [scope.function.body.add_argument(type_) for type_ in types]
            function = scope.finish(write(*(Number(scope, value) for value in arguments)))
            self._functions[key, types] = function
        found = lifted(builder, function.body, operands, with_element(like, result))
        assert found is not None
        return found[0]
