"""Fragments of ``mma.sync``: the mapping from lanes to elements of A, B and C.

An instruction computes ``D = A @ B + C`` of an (m x k) and a (k x n) matrix, in 32-bit registers
(64-bit for f64). By the PTX ISA ("Matrix fragments for mma"), lane ``4 * g + t`` holds rows g and g
+ 8 of A and column g of B. If a register packs e elements, these are e consecutive elements along K
from ``e * t`` on and from ``e * (t + 4)`` on. Of C it holds columns 2t and 2t + 1 of rows g and g +
8.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.simt.layouts.mma_tiling import Fragment, MatrixShape, powers


@dataclass(frozen=True, slots=True)
class Instruction:
    """One matrix instruction.

    Attributes:
        m, n, k: extents.
        packed: elements per register of an operand.
        text: its PTX name; ``{a}`` and ``{b}`` stand for the operands' types.
        operand: LLVM type of a register of A or B.
        accumulator: LLVM type of a register of C: ``float``, ``i32`` (an integer, or two f16) or
            ``double``.
        minimum: minimum compute capability.
        pairs: whether a lane's two columns of A and rows of B are adjacent along K. This permutes K
            equally in both operands, which leaves the sum unchanged.
    """

    m: int
    n: int
    k: int
    packed: int
    text: str
    operand: str
    accumulator: str
    minimum: int
    pairs: bool = False

    @property
    def shape(self) -> MatrixShape:
        """The instruction's extents and fragments.

        An operand's registers hold packed elements, then (for A) the rows 8 further, then the
        columns four registers further.
        """
        e = self.packed
        within, far = powers(1, e), powers(4 * e, min(8 * e, self.k))
        if self.pairs:
            e, far = 2 * e, powers(e, 2 * e)
        tall = tuple((row, 0) for row in powers(8, self.m))
        rows, columns = ((1, 0), (2, 0), (4, 0)), ((0, 1), (0, 2), (0, 4))
        a = Fragment(
            (*((0, k) for k in within), *tall, *((0, k) for k in far)), ((0, e), (0, 2 * e), *rows)
        )
        b = Fragment(tuple((k, 0) for k in (*within, *far)), ((e, 0), (2 * e, 0), *columns))
        c = Fragment(((0, 1), *tall), ((0, 2), (0, 4), *rows))
        return MatrixShape(self.m, self.n, self.k, a, b, c)

    @property
    def words(self) -> tuple[int, int, int]:
        """Registers of a thread in A, B and C."""
        halves = 2 if self.k >= 8 * self.packed else 1
        rows = self.m // 8
        return rows * halves, halves, rows if self.halves_accumulate else rows * 2

    @property
    def halves_accumulate(self) -> bool:
        """Return whether a register of C packs two f16 accumulators."""
        return ".row.col.f16." in self.text
