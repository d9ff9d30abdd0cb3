"""Calls of external functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.ir.types import I1, Type
from tilewright.llvm.emission.registers import storage_type
from tilewright.simt.target.externs import call_extern

if TYPE_CHECKING:
    from tilewright.llvm.codegen.libraries import Libraries

    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


class ExternalFunctions:
    """Functions of the launch's bitcode libraries (:mod:`tilewright.simt.target.externs`).

    Without libraries, a function, which takes and returns booleans as bytes, is left to the linker.
    """

    def __init__(self, libraries: Libraries | None = None) -> None:
        self.libraries = libraries

    def call(
        self,
        context: SimtContext,
        symbol: str,
        library: str,
        result: Type,
        operands: Sequence[tuple[Type, str]],
    ) -> str:
        """Call an external function on (element type, name) operands."""
        w = context.writer
        if self.libraries is not None:
            return call_extern(w, self.libraries, symbol, result, operands)
        arguments = [
            (storage_type(type_), w.emit(f"zext i1 {name} to i8") if type_ is I1 else name)
            for type_, name in operands
        ]
        value = w.call(symbol, storage_type(result), arguments)
        return w.emit(f"trunc i8 {value} to i1") if result is I1 else value
