"""Matrix instructions: MMA plans, operand fragments, pair dot products, and ping-pong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tilewright.ir.core import Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import Type
from tilewright.llvm.emission.writer import FunctionWriter

if TYPE_CHECKING:
    from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout

    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext
    from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan


class PairDot(Protocol):
    """An instruction that adds the dot product of two pairs of 16-bit elements to an f32.

    Attributes:
        types: the element types.
    """

    @property
    def types(self) -> frozenset[Type]: ...

    def emit(self, w: FunctionWriter, element: Type, x: str, y: str, total: str) -> str:
        """Emit the dot product of two elements packed in ``x`` and in ``y``, plus f32 ``total``."""


class PingPong(Protocol):
    """Matmul loops in which two halves of the warps alternate between matrix unit and loads."""

    def serves(self, matmul: Matmul) -> bool:
        """Return whether a matmul's loop is written as ping-pong of two halves of the warps.

        One half reads operands while the other half computes.
        """

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:
        """Mark that the warp begins a phase of matmuls alone (``matmuls``), or ends it."""


class MatrixInstructions:
    """The matrix instructions of a target; by default it has none.

    Attributes:
        transposes_in_registers: whether the threads that load an operand transpose it if it is
            contiguous along an axis that the matmul does not sum over: each thread holds some rows
            along K and stores them side by side into shared memory.
        pair_dot: the dot product of pairs, used by the toolkit's own multiply-adds; None if the
            target has no such instruction.
        ping_pong: None if loops are never written as ping-pong.
    """

    transposes_in_registers: bool = False
    pair_dot: PairDot | None = None
    ping_pong: PingPong | None = None

    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        """Return the plans by which instructions compute a matmul, in order of preference.

        If there are none, the toolkit computes the matmul by multiply-adds. The toolkit asks once
        for each matmul (:func:`tilewright.simt.target.plan_selection.plans`).
        """
        return ()

    def keeps_scaled(self, operation: DotScaled) -> bool:
        """Return whether a ``dot_scaled`` is kept for the target's own instructions.

        Its interface is then one of the target's. Otherwise it becomes a matmul of operands that
        are scaled first.
        """
        return False

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        """Return the word type of fragments between matmul steps, and its element count.

        By default an element is a word of its own; a target may pack several elements into a word.
        """
        return element, 1

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        """Pack the registers of a fragment, ``names``, into words of type :meth:`fragment_word`."""
        return names

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        """Return the registers of a fragment from words that :meth:`pack` made."""
        return words

    def read_fragments(
        self,
        context: SimtContext,
        address: str,
        layout: LinearLayout,
        shared: SharedLayout,
        element: Type,
    ) -> list[str] | None:
        """Read a tile from shared memory by the matrix-load instruction for operand fragments.

        Returns None if the target has no such instruction, or if it takes at least as many
        instructions as the accesses of each thread.
        """
        return None

    def vector_of(self, context: SimtContext, value: Value) -> int:
        """Return how many neighboring registers of a tile the target's matmuls use as one vector.

        Control flow carries the tile in vectors of that length.
        """
        return 1
