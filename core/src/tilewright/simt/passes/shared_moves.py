"""Register layouts for tiles that move between two places in shared memory.

Contiguous elements in one shared layout need not be contiguous in the other, for instance in a
transpose. Each thread takes a small block of neighbours in both layouts, so that it reads and
writes whole words and permutes their elements in registers; lanes are arranged for few bank
conflicts.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator

from tilewright.simt.layouts.linear_layout import Basis, LinearLayout, SharedLayout, log2
from tilewright.simt.layouts.swizzle import transactions

#: Maximum number of candidates for the lane bits, per block of registers.
_TRIALS = 300


@functools.lru_cache(maxsize=256)
def moving_layout(
    source: SharedLayout,
    target: SharedLayout,
    size: int,
    lanes: int,
    warps: int,
    max_access: int,
    banks: int,
) -> LinearLayout | None:
    """Return the layout in which a tile moves between shared layouts in the fewest wavefronts.

    Args:
        size: bytes of an element.
        lanes, warps: of the threads that share the tile.
        max_access: bytes of the widest access.
        banks: banks of 4 bytes.

    Returns:
        None where the tile has fewer elements than there are threads.
    """
    shape, dimension = source.shape, len(source.images)
    lane_bits, warp_bits = log2(lanes), log2(warps)
    held = dimension - lane_bits - warp_bits
    if held < 0:
        return None
    minimum = 2 * max(1, (math.prod(shape) * size // warps) // (banks * 4))
    best: tuple[int, int] | None = None
    found: LinearLayout | None = None
    sides = _neighbours(source), _neighbours(target)
    for widths in _widths(sides, max(0, log2(max_access // size)), held):
        registers = _independent(
            [vector for side, width in zip(sides, widths, strict=True) for vector in side[:width]]
        )
        for chosen in itertools.islice(_choices(sides, widths, registers, lane_bits), _TRIALS):
            rest = _independent([*registers, *chosen, *sides[0]])[len(registers) + lane_bits :]
            layout = LinearLayout(
                shape, (*registers, *rest[warp_bits:]), tuple(chosen), tuple(rest[:warp_bits])
            )
            moves = [
                transactions(layout, side, size, max_access, banks) for side in (source, target)
            ]
            score = sum(turns for _, turns in moves), sum(count for count, _ in moves)
            if best is None or score < best:
                best, found = score, layout
            if score[0] <= minimum:
                break
    return found


_Sides = tuple[list[int], list[int]]


def _widths(sides: _Sides, most: int, held: int) -> Iterator[tuple[int, int]]:
    """Yield the maximal access widths of both sides, in bits, that a thread's elements allow."""
    fitting = [
        (a, b)
        for a in range(most + 1)
        for b in range(most + 1)
        if len(_independent([*sides[0][:a], *sides[1][:b]])) <= held
    ]
    for a, b in fitting:
        if not any(a <= x and b <= y and (a, b) != (x, y) for x, y in fitting):
            yield a, b


def _choices(
    sides: _Sides, widths: tuple[int, int], registers: list[int], count: int
) -> Iterator[list[int]]:
    """Yield candidates for the lane bits.

    On each side, lanes served together should be neighbours: each step between lanes is therefore a
    step to a neighbour on both sides, in some order.
    """
    near = [
        _independent([*registers, *side[width:]])[len(registers) :]
        for side, width in zip(sides, widths, strict=True)
    ]
    for order in itertools.permutations(range(min(count, len(near[1])))):
        diagonal = [one ^ near[1][other] for one, other in zip(near[0], order, strict=False)]
        for length in range(len(diagonal), -1, -1):
            lanes = _independent([*registers, *diagonal[:length], *near[0], *near[1]])[
                len(registers) :
            ]
            yield lanes[:count]


def _neighbours(shared: SharedLayout) -> list[int]:
    """Return the elements that the bits of an offset map to, lowest first."""
    basis = Basis(shared.images)
    solved = [basis.solve(1 << bit) for bit in range(len(shared.images))]
    return [vector for vector in solved if vector is not None]


def _independent(vectors: Iterable[int]) -> list[int]:
    basis = Basis()
    return [vector for vector in vectors if basis.add(vector)]
