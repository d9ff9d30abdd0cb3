"""Elementwise operations and conversions by the target's own instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.ir.types import Type

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class Arithmetic:
    """Instructions for elementwise operations; by default the common expansions serve.

    Attributes:
        native_ldexp: whether the target has an instruction for ``x * 2**n``.
        native_exp: whether exp of f32 maps to a target instruction, so that functions built on exp
            are expanded with it.
    """

    native_ldexp: bool = False
    native_exp: bool = False

    def operation(
        self,
        context: SimtContext,
        name: str,
        operands: list[str],
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        """Emit an elementwise operation on scalars by the target's own instructions.

        The scalars have type ``element``; the attributes state the accuracy. Returns None if the
        common expansion (:mod:`tilewright.llvm.emission.elementwise`) serves.
        """
        return None

    def cast(
        self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str
    ) -> str | None:
        """Emit a conversion by the target's own instructions.

        Returns None if the common expansion (:mod:`tilewright.llvm.emission.casts`) serves.
        """
        return None
