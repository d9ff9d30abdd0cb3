"""Products of f32 by instructions for narrower numbers: each factor is a sum of a few of those, and
the products of the greater parts are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.llvm.emission.writer import FunctionWriter, float_constant

#: precision -> (parts of each factor, the products of parts that are summed, smallest first), of
#: bf16.
BF16_SPLITS: Final[dict[str, tuple[int, tuple[tuple[int, int], ...]]]] = {
    "bf16x3": (2, ((1, 0), (0, 1), (0, 0))),
    "bf16x6": (3, ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0))),
}


def split(
    w: FunctionWriter,
    name: str,
    parts: int,
    narrow: Callable[[str], str],
    widen: Callable[[str], str],
) -> list[str]:
    """An f32 number as a sum of narrower ones, largest first.

    What is left of an infinity or NaN is 0, so that products do not become NaN.

    Args:
        narrow, widen: round an f32 to the narrower kind, and give that as f32 again.
    """
    found = []
    for part in range(parts):
        piece = narrow(name)
        found.append(piece)
        if part + 1 < parts:
            rest = w.emit(f"fsub float {name}, {widen(piece)}")
            size = w.intrinsic("llvm.fabs", "float", [("float", rest)])
            finite = w.emit(f"fcmp olt float {size}, {float_constant('float', float('inf'))}")
            name = w.emit(f"select i1 {finite}, float {rest}, float {float_constant('float', 0.0)}")
    return found
