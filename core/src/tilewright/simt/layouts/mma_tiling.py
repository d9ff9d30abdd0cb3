"""Tiling of a matmul over warps, and operand layouts from those of one matrix instruction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.simt.layouts.linear_layout import LinearLayout, axis_shifts, log2

#: (row, column) offset of a bit of a register or lane index: a power of two and 0, or (0, 0)
#: for broadcast bits.
Step = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Layout of a matrix instruction's operand in the lanes of a warp.

    Attributes:
        registers: steps of the bits of the element index in its lane, lowest first.
        lanes: steps of the bits of the lane index, lowest first.
    """

    registers: tuple[Step, ...]
    lanes: tuple[Step, ...]

    @property
    def elements(self) -> int:
        """Number of elements per lane."""
        return 1 << len(self.registers)


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """Matrix instruction of a warp: D = A @ B + C of an (m x k) and a (k x n) matrix.

    C and D have the same layout.
    """

    m: int
    n: int
    k: int
    a: Fragment
    b: Fragment
    c: Fragment


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiling of a matmul over the warps of a program.

    Attributes:
        warps_m, warps_n: warps along the rows and columns of the result; further warps repeat the
            work of these.
        repeats_m, repeats_n, repeats_k: instructions of one warp along each extent.
        batches: matmuls of each warp, one after the other.
    """

    warps_m: int
    warps_n: int
    repeats_m: int
    repeats_n: int
    repeats_k: int
    batches: int

    def instructions(self, steps: int) -> Iterator[tuple[int, int, int]]:
        """Yield the left, right and accumulator fragment indices of each instruction of a warp.

        Consecutive instructions share an operand. Operands have ``steps`` fragments along K for
        each instruction along their other extent.
        """
        for batch in range(self.batches):
            for step in range(steps):
                for m in range(self.repeats_m):
                    for n in (
                        range(self.repeats_n) if m % 2 == 0 else reversed(range(self.repeats_n))
                    ):
                        left, right = batch * self.repeats_m + m, batch * self.repeats_n + n
                        yield left * steps + step, right * steps + step, left * self.repeats_n + n


def powers(first: int, last: int) -> list[int]:
    """first, 2 * first, ... below ``last``."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return found


def tile(
    instruction: MatrixShape,
    shape: Sequence[int],
    k: int,
    num_warps: int,
    *,
    whole_columns: bool = False,
) -> Tiling:
    """The warp grid that loads the fewest operand elements: the squarest part of the result for
    each warp. With ``whole_columns`` the one that leaves columns whole, as far as there are as
    many, whatever it loads: what is then computed of columns each warp has for itself."""
    m, n = shape[-2:]
    rows, columns = m // instruction.m, n // instruction.n
    choices = [
        (wm, wn)
        for wm in powers(1, min(rows, num_warps) + 1)
        for wn in powers(1, min(columns, num_warps) + 1)
        if wm * wn <= num_warps
    ]
    wm, wn = min(
        choices,
        key=lambda grid: (
            -grid[0] * grid[1],
            grid[0] if whole_columns else 0,
            m // grid[0] + n // grid[1],
            -grid[0],
        ),
    )
    return Tiling(wm, wn, rows // wm, columns // wn, k // instruction.k, math.prod(shape[:-2]))


def layouts(
    instruction: MatrixShape, tiling: Tiling, shape: tuple[int, ...], k: int, num_warps: int
) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    """Return the layouts of A, B and C."""
    m, n = shape[-2:]
    spare = log2(num_warps) - log2(tiling.warps_m) - log2(tiling.warps_n)

    def rows(values: Sequence[int]) -> list[Step]:
        return [(value, 0) for value in values]

    def columns(values: Sequence[int]) -> list[Step]:
        return [(0, value) for value in values]

    def build(
        extents: tuple[int, int], fragment: Fragment, repeats: list[Step], warps: list[Step]
    ) -> LinearLayout:
        whole = (*shape[:-2], *extents)
        row, column = axis_shifts(whole)[-2:]

        def images(steps: Sequence[Step]) -> list[int]:
            return [step[0] << row | step[1] << column for step in steps]

        batches = powers(extents[0] * extents[1], math.prod(whole))
        return LinearLayout(
            whole,
            (*images([*fragment.registers, *repeats]), *batches),
            tuple(images(fragment.lanes)),
            (*images(warps), *([0] * spare)),
        )

    k_steps = powers(instruction.k, k)
    # the warps have the highest bits of an extent, so that each has a part without gaps
    m_repeats = [instruction.m * value for value in powers(1, tiling.repeats_m)]
    n_repeats = [instruction.n * value for value in powers(1, tiling.repeats_n)]
    m_warps = [instruction.m * tiling.repeats_m * value for value in powers(1, tiling.warps_m)]
    n_warps = [instruction.n * tiling.repeats_n * value for value in powers(1, tiling.warps_n)]
    none_m, none_n = [(0, 0)] * len(m_warps), [(0, 0)] * len(n_warps)
    a = build(
        (m, k), instruction.a, [*columns(k_steps), *rows(m_repeats)], [*rows(m_warps), *none_n]
    )
    b = build(
        (k, n), instruction.b, [*rows(k_steps), *columns(n_repeats)], [*none_m, *columns(n_warps)]
    )
    c = build(
        (m, n),
        instruction.c,
        [*columns(n_repeats), *rows(m_repeats)],
        [*rows(m_warps), *columns(n_warps)],
    )
    return a, b, c


def transposed(layout: LinearLayout) -> LinearLayout:
    """Return the layout of transposed matrices: the last two axes are exchanged."""
    rank = len(layout.shape)
    return layout.permute((*range(rank - 2), rank - 1, rank - 2))
