"""The warp's matrix instructions: what they multiply, and where their threads hold the operands.

Each is ``D = A @ B + C`` of an (m x k) and a (k x n) matrix, in words of 32 bits (64 for f64). By the PTX ISA ("Matrix fragments for mma"), lane
``4 * g + t`` holds of A the rows g and g + 8, of B the columns g, each ``e`` neighbours along k from ``e * t`` on and from ``e * (t + 4)`` on where a word
holds e elements, and of C the columns 2t and 2t + 1 of the rows g and g + 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.simt.linear_layout import LinearLayout, axis_shifts, log2


@dataclass(frozen=True, slots=True)
class Instruction:
    """One matrix instruction.

    Attributes:
        m, n, k: extents.
        packed: elements a word of an operand holds.
        text: its name; ``{a}`` and ``{b}`` stand for the operands' types.
        operand: LLVM type of a word of A or B.
        accumulator: LLVM type of a word of C: ``float``, ``i32`` (an integer, or two halves) or ``double``.
        least: compute capability that has it.
    """

    m: int
    n: int
    k: int
    packed: int
    text: str
    operand: str
    accumulator: str
    least: int

    @property
    def words(self) -> tuple[int, int, int]:
        """Words of a thread in A, B and C."""
        halves = 2 if self.k >= 8 * self.packed else 1
        rows = self.m // 8
        return rows * halves, halves, rows if self.halves_accumulate else rows * 2

    @property
    def halves_accumulate(self) -> bool:
        """Whether a word of C holds two halves."""
        return ".row.col.f16." in self.text


def _axis(shift: int, *values: int) -> list[int]:
    return [value << shift for value in values]


def _powers(first: int, last: int) -> list[int]:
    """first, 2 * first, ... below ``last``."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return found


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the warps of a program share a product.

    Attributes:
        warps_m, warps_n: warps along the rows and columns of the result; more warps than those repeat others' work.
        repeats_m, repeats_n, repeats_k: instructions of one warp along each extent.
        batches: products that each warp does one after the other.
    """

    warps_m: int
    warps_n: int
    repeats_m: int
    repeats_n: int
    repeats_k: int
    batches: int


def tile(instruction: Instruction, shape: Sequence[int], k: int, num_warps: int) -> Tiling:
    """The warp grid that loads the fewest operand elements: the squarest part of the result for each warp."""
    m, n = shape[-2:]
    rows, columns = m // instruction.m, n // instruction.n
    choices = [(wm, wn) for wm in _powers(1, min(rows, num_warps) + 1) for wn in _powers(1, min(columns, num_warps) + 1) if wm * wn <= num_warps]
    wm, wn = min(choices, key=lambda grid: (-grid[0] * grid[1], m // grid[0] + n // grid[1], -grid[0]))
    return Tiling(wm, wn, rows // wm, columns // wn, k // instruction.k, math.prod(shape[:-2]))


def layouts(instruction: Instruction, tiling: Tiling, shape: tuple[int, ...], k: int, num_warps: int) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    """Of A, B and C. Registers are in the order: within an instruction, along k (A and B) or n (C), along the other extent, batches."""
    m, n = shape[-2:]
    e, spare = instruction.packed, log2(num_warps) - log2(tiling.warps_m) - log2(tiling.warps_n)

    def extent_above(tile_shape: tuple[int, ...]) -> list[int]:
        size = math.prod(tile_shape[-2:])
        return _powers(size, math.prod(tile_shape))

    def build(tile_shape: tuple[int, ...], registers: list[int], lanes: list[int], rows: list[int], columns: list[int]) -> LinearLayout:
        warps = [*rows, *columns, *([0] * spare)]
        return LinearLayout(tile_shape, (*registers, *extent_above(tile_shape)), tuple(lanes), tuple(warps))

    batch = shape[:-2]
    long_k = _powers(4 * e, min(8 * e, instruction.k))
    k_steps = _powers(instruction.k, k)
    # the warps have the highest bits of an extent, so that each has a part without gaps
    m_repeats = [instruction.m * value for value in _powers(1, tiling.repeats_m)]
    n_repeats = [instruction.n * value for value in _powers(1, tiling.repeats_n)]
    m_warps = [instruction.m * tiling.repeats_m * value for value in _powers(1, tiling.warps_m)]
    n_warps = [instruction.n * tiling.repeats_n * value for value in _powers(1, tiling.warps_n)]
    tall = _powers(8, instruction.m)

    a_shape = (*batch, m, k)
    mk, ak = axis_shifts(a_shape)[-2:]
    a = build(
        a_shape,
        [*_axis(ak, *_powers(1, e)), *_axis(mk, *tall), *_axis(ak, *long_k, *k_steps), *_axis(mk, *m_repeats)],
        [*_axis(ak, e, 2 * e), *_axis(mk, 1, 2, 4)],
        _axis(mk, *m_warps),
        [0] * len(n_warps),
    )
    b_shape = (*batch, k, n)
    bk, bn = axis_shifts(b_shape)[-2:]
    b = build(
        b_shape,
        [*_axis(bk, *_powers(1, e), *long_k, *k_steps), *_axis(bn, *n_repeats)],
        [*_axis(bk, e, 2 * e), *_axis(bn, 1, 2, 4)],
        [0] * len(m_warps),
        _axis(bn, *n_warps),
    )
    c_shape = (*batch, m, n)
    cm, cn = axis_shifts(c_shape)[-2:]
    c = build(
        c_shape,
        [*_axis(cn, 1), *_axis(cm, *tall), *_axis(cn, *n_repeats), *_axis(cm, *m_repeats)],
        [*_axis(cn, 2, 4), *_axis(cm, 1, 2, 4)],
        _axis(cm, *m_warps),
        _axis(cn, *n_warps),
    )
    return a, b, c
