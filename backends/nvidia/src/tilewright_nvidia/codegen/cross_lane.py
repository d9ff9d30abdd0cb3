"""Shuffles (``shfl.sync``) and reductions of a warp (``redux.sync``, from sm_80 on)."""

from __future__ import annotations

from typing import Final

from tilewright.ir.types import I32, U32, Type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.cross_lane import CrossLane

#: The mask of a warp's lanes that take part.
ALL_LANES: Final = "-1"
#: (reduction, type) -> LLVM's name of the ``redux.sync``.
_REDUCTIONS: Final[dict[tuple[str, Type], str]] = {
    **{(kind, element): kind for kind in ("add", "and", "or", "xor") for element in (I32, U32)},
    **{
        (kind, element): prefix + kind
        for kind in ("min", "max")
        for element, prefix in ((I32, ""), (U32, "u"))
    },
}


def shuffle(w: FunctionWriter, value: str, lane: str) -> str:
    """Emit a shuffle of the i32 ``value`` from one lane."""
    return w.call(
        "llvm.nvvm.shfl.sync.idx.i32",
        "i32",
        [("i32", ALL_LANES), ("i32", value), ("i32", lane), ("i32", "31")],
    )


class PtxLanes(CrossLane):
    """Operations among the 32 lanes of a warp."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        return shuffle(w, value, lane)

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        return w.call(
            "llvm.nvvm.shfl.sync.bfly.i32",
            "i32",
            [("i32", ALL_LANES), ("i32", value), ("i32", str(mask)), ("i32", "31")],
        )

    def reduce(self, w: FunctionWriter, kind: str, value: str, element: Type) -> str | None:
        name = _REDUCTIONS.get((kind, element)) if self._capability >= 80 else None
        return (
            w.call(f"llvm.nvvm.redux.sync.{name}", "i32", [("i32", value), ("i32", ALL_LANES)])
            if name
            else None
        )
