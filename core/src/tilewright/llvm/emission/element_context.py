"""The interface of a backend's lowering to the emitters of operations on LLVM values.

Emitters receive operands as names of registers: scalars at width 0, else vectors of ``width``
lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tilewright.ir.core import Operation, Value
from tilewright.ir.types import Type
from tilewright.llvm.emission.writer import FunctionWriter


class ElementContext(Protocol):
    """Interface of a backend's lowering to the emitters.

    Attributes:
        writer: where instructions go.
        contract: flags on float additions and multiplications that allow fusing them, with a
            leading blank.
        native_ldexp: whether the machine has an instruction for ``x * 2**n``; elsewhere LLVM would
            call the C library.
        native_exp: whether exp of f32 is a target instruction, so that functions made of it are
            written with it.
    """

    writer: FunctionWriter
    contract: str

    @property
    def native_ldexp(self) -> bool: ...

    @property
    def native_exp(self) -> bool: ...

    def scalar(self, value: Value) -> str:
        """The name of a scalar."""
        ...

    def llvm_type(self, type_: Type) -> str:
        """The register type of a scalar."""
        ...

    def machine_operation(
        self,
        name: str,
        operands: list[str],
        width: int,
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        """Emit an operation of the table by the target's own code; None for the common code."""
        ...

    def machine_cast(
        self, operand: str, source: Type, result: Type, width: int, rounding: str
    ) -> str | None:
        """Emit the target's own conversion of number types; None for the common one."""
        ...

    def emit_elementwise(self, operation: Operation, operands: list[str], width: int) -> str:
        """Emit an elementwise operation on operands of ``width`` lanes.

        See :func:`tilewright.llvm.emission.elementwise.emit_operation`.
        """
        ...


Emitter = Callable[[ElementContext, Operation, list[str], int, Type], str]
