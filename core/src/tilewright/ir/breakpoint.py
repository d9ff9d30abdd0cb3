"""The operation that stops a kernel for its author to look at its variables.

Only what interprets a kernel can stop it, so the operation is not in the core's table: a backend
that can declares the feature ``breakpoint`` and adds the operation to the table by its manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, TypedAttribute, VariadicOperand
from tilewright.ir.table import Effect, Shape, Trait
from tilewright.ir.types import Type

#: The name of the feature that backends declare.
FEATURE = "breakpoint"


def _anything(shape: Shape) -> Sequence[Type]:
    return ()


OPS = Declarations()


@OPS.operation(
    "debug.breakpoint",
    "hand the kernel's variables to the host's debugger, for one program after the other",
    _anything,
    effects=Effect.ORDER,
    traits=Trait.BITWISE,
)
class Breakpoint(Operation):
    __slots__ = ()

    values = VariadicOperand()
    names = TypedAttribute[tuple[str, ...]](
        "the variable of each value; 'a.0' is the first item of the tuple a"
    )
    constants = TypedAttribute[tuple[str, ...]](
        "the variables known at compile time, as 'NAME=text of its value'"
    )
