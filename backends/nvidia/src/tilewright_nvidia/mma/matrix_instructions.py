"""The matrix instructions of an architecture, and fragments in packed registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import U32, Type
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_nvidia.codegen.kernel_state import words_in
from tilewright_nvidia.mma import block_scaled, mma, tcgen05, wgmma
from tilewright_nvidia.mma.operand_loads import read_fragments


class PtxMatrix(MatrixInstructions):
    """``mma``, and ``wgmma`` or ``tcgen05``.

    Args:
        capability: compute capability, 10 * major + minor.
        warpgroups: whether matmuls use ``wgmma``.
        tensor_memory: whether matmuls use ``tcgen05``.
    """

    def __init__(self, capability: int, *, warpgroups: bool, tensor_memory: bool) -> None:
        self._capability, self._warpgroups, self._tensor_memory = (
            capability,
            warpgroups,
            tensor_memory,
        )

    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        return (*self.wide_plans(matmul), *mma.plans(self._capability, matmul))

    def wide_plans(self, matmul: Matmul) -> tuple[MatmulPlan, ...]:
        """Return the plans of instructions that span several warps."""
        if self._tensor_memory:
            return tcgen05.plans(matmul)
        return wgmma.plans(matmul) if self._warpgroups else ()

    def keeps_scaled(self, operation: DotScaled) -> bool:
        return block_scaled.serves(self._capability, operation)

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        size = storage_size(element)
        return (U32, 4 // size) if size < 4 else (element, 1)

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return names
        known = words_in(w)
        return [
            known.pack(w, names[i : i + count], type_, "i32") for i in range(0, len(names), count)
        ]

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return words
        known = words_in(w)
        return [name for word in words for name in known.unpack(w, word, "i32", type_)]

    def read_fragments(
        self,
        context: SimtContext,
        address: str,
        layout: LinearLayout,
        shared: SharedLayout,
        element: Type,
    ) -> list[str] | None:
        return (
            read_fragments(context, address, layout, shared, element)
            if self._capability >= 75
            else None
        )
