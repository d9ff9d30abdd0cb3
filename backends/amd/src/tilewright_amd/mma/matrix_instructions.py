"""The matrix instructions of an architecture, and fragments in packed registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import F32, F64, I32, U32, Type, element_type
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_amd.architectures import Architecture
from tilewright_amd.codegen.kernel_state import kernel_state
from tilewright_amd.codegen.vectors import join
from tilewright_amd.mma import block_scaled, mma
from tilewright_amd.mma.ping_pong import GcnPingPong


class GcnPairDot:
    """``v_dot2_f32_bf16``."""

    def __init__(self, types: frozenset[Type]) -> None:
        self.types = types

    def emit(self, w: FunctionWriter, element: Type, x: str, y: str, total: str) -> str:
        pairs = [("<2 x bfloat>", w.emit(f"bitcast i32 {word} to <2 x bfloat>")) for word in (x, y)]
        return w.call(
            "llvm.amdgcn.fdot2.f32.bf16", "float", [*pairs, ("float", total), ("i1", "false")]
        )


class GcnMatrix(MatrixInstructions):
    """MFMA or WMMA instructions.

    Args:
        row: the architecture.
        extent, pack: the options ``matrix_instr_nonkdim`` and ``kpack``.
        interleaving: LLVM's ``iglp.opt`` strategy, or None.
    """

    transposes_in_registers = True

    def __init__(
        self, row: Architecture, *, extent: int, pack: int, interleaving: int | None
    ) -> None:
        self._row, self._extent, self._pack, self._interleaving = row, extent, pack, interleaving
        self.ping_pong = GcnPingPong(row)
        self.pair_dot = GcnPairDot(row.pair_dots) if row.pair_dots else None

    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        return self._plans(matmul)[0]

    def vectors(self, matmul: Matmul) -> dict[LinearLayout, int]:
        """Return the result layouts of a matmul's plans and an instruction's elements per lane."""
        found, together = self._plans(matmul)
        return {plan.c: together for plan in found}

    def _plans(self, matmul: Matmul) -> tuple[list[MatmulPlan], int]:
        return mma.plans(self._row, matmul, self._extent, self._pack, self._interleaving)

    def keeps_scaled(self, operation: DotScaled) -> bool:
        return block_scaled.serves(self._row, operation)

    def scaled_plan(self, operation: DotScaled, num_warps: int) -> block_scaled.ScaledPlan:
        """Plan a ``dot_scaled`` that :meth:`keeps_scaled` accepts, for ``num_warps`` warps."""
        return block_scaled.plan_of(operation, num_warps, self._extent)

    def vector_of(self, context: SimtContext, value: Value) -> int:
        element, vectors = element_type(value.type), kernel_state(context.writer).vectors
        return vectors.get(layout_of(value), 1) if element in (F32, F64, I32) else 1

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        size = storage_size(element)
        return (U32, 4 // size) if size < 4 else (element, 1)

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return names
        groups = [names[i : i + count] for i in range(0, len(names), count)]
        return [
            w.emit(f"bitcast <{count} x {type_}> {join(w, type_, group)} to i32")
            for group in groups
        ]

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return words
        vectors = [w.emit(f"bitcast i32 {word} to <{count} x {type_}>") for word in words]
        return [
            w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}")
            for vector in vectors
            for i in range(count)
        ]
