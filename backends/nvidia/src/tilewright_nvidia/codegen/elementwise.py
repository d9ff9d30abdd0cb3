"""Elementwise operations and conversions, on packed registers and bit fields where possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.types import BF16, F16, F32, I8, I32, U8, U16, U32, Type
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.arithmetic import Arithmetic
from tilewright_nvidia.codegen import arithmetic, casts
from tilewright_nvidia.codegen.half_arithmetic import half_operation
from tilewright_nvidia.codegen.kernel_state import kernel_state, words_in

#: Type -> PTX name of its pair, for conversions of two f32 at a time.
_PAIRS: Final[dict[Type, str]] = {F16: "f16x2", BF16: "bf16x2"}


class PtxArithmetic(Arithmetic):
    """Elementwise instructions; ``relaxed``: the option ``math``."""

    def __init__(self, capability: int, *, relaxed: bool) -> None:
        self._capability, self._relaxed = capability, relaxed
        self.native_exp = relaxed

    def operation(
        self,
        context: SimtContext,
        name: str,
        operands: list[str],
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        state = kernel_state(context.writer)
        half = state.wide.emit(context, name, operands, element)
        if half is not None:
            return half
        if name == "shr" and element is U32 and operands[1] == "16":
            return state.words.shifted(context.writer, operands[0])
        field = state.bit_fields.emit(context.writer, name, operands, element)
        if field is not None:
            return field
        packed = (
            half_operation(context, state.words, name, operands, element, attributes)
            if self._capability >= 80
            else None
        )
        if packed is not None:
            return packed
        return arithmetic.element_operation(
            context.writer, self._capability, self._relaxed, name, operands, element, attributes
        )

    def cast(
        self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str
    ) -> str | None:
        words = words_in(context.writer)
        if source in (I32, U32) and result in (F32, F16, BF16):
            fields, w = kernel_state(context.writer).bit_fields, context.writer
            field = fields.converted(w, words, operand, result)
            if field is None and result is not F32:
                single = fields.converted(w, words, operand, F32)
                field = None if single is None else emit_cast(context, single, F32, result, 0)
            return field
        if source is U32 and result is U16:
            return words.half(context.writer, operand)
        if (
            source in (I8, U8)
            and result in (F32, F16, BF16)
            and self._capability >= 80
            and operand.startswith("%")
        ):
            narrow = (
                words.narrow_float(
                    context.writer, operand, register_type(result), signed=source is I8
                )
                if result is not F32
                else None
            )
            if narrow is not None:
                return narrow
            single = words.byte(context.writer, operand, signed=source is I8)
            return single if result is F32 else emit_cast(context, single, F32, result, 0)
        pair = (
            _PAIRS.get(result)
            if source is F32 and rounding == "rtne" and self._capability >= 90
            else None
        )
        name = casts.machine_cast(
            words, context.writer, self._capability, operand, source, result, rounding
        )
        if pair is not None:
            name = name or context.writer.emit(f"fptrunc float {operand} to half")
            words.round(name, operand, pair)
        return name
