"""Limits of a matmul's extents, which masks of operands set when the kernel runs.

:mod:`.remainder` derives them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_cpu.codegen.gemm.plan import Extent


@dataclass(frozen=True, slots=True)
class Limits:
    """Rows, columns and steps along K to compute: i64 operands from 0 to the extent, None for all.

    ``end``: how far along K operands are in memory, which is not less than ``k``; beyond the other
    limits they are not either.
    """

    rows: str | None = None
    columns: str | None = None
    k: str | None = None
    end: str | None = None

    def blocks(
        self, w: FunctionWriter, limit: str | None, first: int, size: int, count: int
    ) -> Extent:
        """Number of ``count`` blocks of ``size`` from ``first`` on that begin below a limit."""
        if limit is None:
            return count
        past = w.emit(f"add i64 {limit}, {size - 1 - first}")
        past = w.intrinsic("llvm.smax", "i64", [("i64", past), ("i64", "0")])
        return w.intrinsic(
            "llvm.smin", "i64", [("i64", w.emit(f"udiv i64 {past}, {size}")), ("i64", str(count))]
        )


ALL = Limits()
