"""A fictional matrix instruction for the emulated target, for tests of matrix lowering.

A warp of 8 lanes computes c (4 x 4) += a (4 x 4) @ b (4 x 4) in f32: a lane holds two neighbours of
a row of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.types import F32
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import places, plan_accesses, read
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.simt.target.fragments import step_registers
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan

#: The shape of the instruction.
_M, _N, _K = 4, 4, 4


class MatrixTarget(EmulatedTarget):
    """An emulated machine with warps of 8 lanes and the instruction."""

    def __init__(self, k_step: int, fragments: bool, wish: bool, prices: bool = False) -> None:
        super().__init__(8)
        self.matrix = ShuffledMatrix(k_step, fragments, wish, prices)


class ShuffledMatrix(MatrixInstructions):
    """Every lane gets the row of a and the columns of b that it needs through shuffles.

    Args:
        k_step: as in :class:`~tilewright.simt.target.matmul_plan.MatmulPlan`.
        fragments: whether there is an instruction that loads fragments of a.
        wish: whether it asks for a layout in shared memory, and reads no other.
        prices: whether it says how many turns of the memory fragments take: fewer than accesses of
            a lane's own.

    Attributes:
        calls: the registers of a of each matmul written.
        loads: the coordinate along K of each fragment loaded.
    """

    def __init__(self, k_step: int, fragments: bool, wish: bool, prices: bool = False) -> None:
        self._k_step, self._fragments, self._wish, self._prices = k_step, fragments, wish, prices
        self.calls: list[int] = []
        self.loads: list[int] = []

    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        shape, k, num_warps = matmul.shape, matmul.k, matmul.warps
        m, n = shape[-2:]
        if len(shape) > 2 or m < _M or n < 8 or k < _K or matmul.a is not F32:
            return ()
        mb, nb, kb = log2(m), log2(n), log2(k)
        warp_bits = log2(num_warps)
        # c: lane bits: column bit 1, row bits 0 and 1; register: column bit 0; warps along the
        # other rows; the rest repeats
        rows = [1 << (nb + i) for i in range(mb)]
        columns = [1 << i for i in range(nb)]
        warps = rows[2:][:warp_bits] + [0] * max(0, warp_bits - (mb - 2))
        c = LinearLayout(
            shape,
            (columns[0], *columns[2:], *rows[2 + warp_bits :]),
            (columns[1], rows[0], rows[1]),
            tuple(warps),
        )
        # a: a lane has elements k0 of (row, k bit 1); b: a lane has (k bits) rows of two columns
        a_rows, a_k = [1 << (kb + i) for i in range(mb)], [1 << i for i in range(kb)]
        a_layout = LinearLayout(
            (m, k),
            (a_k[0], *a_rows[2 + warp_bits :], *a_k[2:]),
            (a_k[1], a_rows[0], a_rows[1]),
            tuple(a_rows[2:][:warp_bits] + [0] * max(0, warp_bits - (mb - 2))),
        )
        b_k = [1 << (nb + i) for i in range(kb)]
        b_layout = LinearLayout(
            (k, n),
            (columns[0], *columns[2:], *b_k[2:]),
            (columns[1], b_k[0], b_k[1]),
            (0,) * warp_bits,
        )

        def load_turns(position: int, shared: SharedLayout) -> int:
            return (a_layout, b_layout)[position].register_count // 8

        plan = MatmulPlan(
            "made up", a_layout, b_layout, c, self._emit(a_layout, b_layout, c, kb),
            a_shared=SharedLayout.row_major((m, k)) if self._wish else None,
            load_a=self._load(a_layout, 1) if self._fragments else None, k_step=self._k_step,
            load_turns=load_turns if self._prices else None,
        )  # fmt: skip
        return (plan,)

    def _load(self, layout: LinearLayout, axis: int) -> Callable[..., list[str] | None]:
        def load(
            context: SimtContext, address: str, shared: SharedLayout, first: int = 0
        ) -> list[str] | None:
            if not self._wish and first:
                return None  # a layout that this instruction does not read
            self.loads.append(first)
            wanted = list(step_registers(layout, axis, first, self._k_step))
            names: dict[int, str] = {}
            for place in places(context, address, plan_accesses(context, layout, shared, F32), F32):
                if set(place.registers) & set(wanted):
                    names.update(zip(place.registers, read(context, place, F32), strict=True))
            return [names[register] for register in wanted]

        return load

    def _emit(
        self, a: LinearLayout, b: LinearLayout, c: LinearLayout, k_bits: int
    ) -> Callable[..., list[str]]:
        def emit(
            context: SimtContext, x: Sequence[str], y: Sequence[str], accumulator: list[str]
        ) -> list[str]:
            w = context.writer
            self.calls.append(len(x))
            steps = (self._k_step or (1 << k_bits)) // 4
            a_group, b_group = len(x) // steps, len(y) // steps

            def of_lane(name: str, lane: str) -> str:
                bits = context.target.lanes.shuffle(w, w.emit(f"bitcast float {name} to i32"), lane)
                return w.emit(f"bitcast i32 {bits} to float")

            accumulator = list(accumulator)
            row = w.emit(f"and i32 {context.lane}, 6")
            column = w.emit(f"and i32 {context.lane}, 1")
            column_registers = len(c.registers) - (len(a.registers) - 1 - (k_bits - 2))
            for step in range(steps):
                for k in range(4):
                    a_lane = w.emit(f"or i32 {row}, {k >> 1}")
                    b_lane = w.emit(f"or i32 {column}, {k << 1}")
                    lefts = [
                        of_lane(x[step * a_group + 2 * i + (k & 1)], a_lane)
                        for i in range(a_group // 2)
                    ]
                    rights = [of_lane(y[step * b_group + j], b_lane) for j in range(b_group)]
                    for register in range(len(accumulator)):
                        left, right = (
                            lefts[register >> column_registers],
                            rights[register & ((1 << column_registers) - 1)],
                        )
                        accumulator[register] = w.intrinsic(
                            "llvm.fma",
                            "float",
                            [("float", left), ("float", right), ("float", accumulator[register])],
                        )
            return accumulator

        return emit
