"""Lyra's matrix instruction: an f32 plus the dot product of four elements of a row and a column.

A plan describes it to the toolkit: the layouts of both operands and of the result, and the function
that emits the instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import BF16, F16, F32
from tilewright.llvm.emission.casts import emit_cast
from tilewright.simt.emulator.multiply import operand_layout
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.fma_plan import result_layout
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan

#: Elements along K that one instruction takes, and those that threads have in registers at a time.
WIDTH, STEP = 4, 16


def plans(matmul: Matmul, warp_size: int) -> Sequence[MatmulPlan]:
    """Return the plans for a matmul.

    There is one for 16-bit floats with an f32 accumulator, if K is a multiple of the instruction's.
    The toolkit expands all other matmuls into multiply-adds.
    """
    if (
        len(matmul.shape) != 2
        or matmul.a not in (F16, BF16)
        or matmul.b is not matmul.a
        or matmul.accumulator is not F32
        or matmul.k % WIDTH
    ):
        return ()
    c = result_layout(matmul.shape, log2(warp_size), log2(matmul.warps))
    a, b = operand_layout(c, matmul.k, 0), operand_layout(c, matmul.k, 1)
    step = min(STEP, matmul.k)
    rows, columns = (
        _registers(a, matmul.k, step, along=1),
        _registers(b, matmul.shape[1], step, along=0),
    )

    def emit(context: SimtContext, left: list[str], right: list[str], sums: list[str]) -> list[str]:
        """A step along K: registers of both operands and of the sums -> those of the sums."""
        found = []
        for element, total in zip(c.register_elements(), sums, strict=True):
            row, column = divmod(element, matmul.shape[1])
            for k in range(0, step, WIDTH):
                four = [
                    (left[rows[row, k + i]], right[columns[k + i, column]]) for i in range(WIDTH)
                ]
                total = _dot4(context, matmul, four, total)
            found.append(total)
        return found

    return (MatmulPlan("lyra.dot4", a, b, c, emit, k_step=step if step < matmul.k else 0),)


def _registers(
    layout: LinearLayout, columns: int, step: int, along: int
) -> dict[tuple[int, int], int]:
    """(row, column) of an operand -> the register of it, among those of the first step: coordinates
    along axis ``along`` below ``step``. A thread's own
    coordinates differ from these by what its number adds, which is the same in all three layouts.
    """
    places = [divmod(element, columns) for element in layout.register_elements()]
    return {
        place: register
        for register, place in enumerate(place for place in places if place[along] < step)
    }


def _dot4(
    context: SimtContext, matmul: Matmul, pairs: Sequence[tuple[str, str]], total: str
) -> str:
    """The instruction. The emulated machine has none of its kind, and is given what it computes."""
    for pair in pairs:
        x, y = (emit_cast(context, name, matmul.a, F32, 0) for name in pair)
        total = context.writer.intrinsic(
            "llvm.fma", "float", [("float", x), ("float", y), ("float", total)]
        )
    return total
