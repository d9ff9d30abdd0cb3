"""Accesses of memory by tiles of pointers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.ops.memory import AtomicCas, AtomicLoad, AtomicRmw, AtomicStore, Load, Store
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.cost_model import CostModel, access_cost, access_width

#: An access of global memory at pointers.
Access = Load | Store | AtomicRmw | AtomicCas | AtomicLoad | AtomicStore


@dataclass(frozen=True, slots=True)
class TileAccess:
    """Access to a tile of pointers.

    Attributes:
        order: its axes, the one with consecutive addresses first; axes of extent 1 last.
        vector: maximum number of consecutive, aligned elements per access.
        size: bytes of an element.
        limit: maximum number of bytes per access of a thread.
    """

    operation: Access
    shape: tuple[int, ...]
    order: tuple[int, ...]
    vector: int
    size: int
    limit: int
    pointer: AxisInfo
    mask: AxisInfo | None

    @property
    def writes(self) -> bool:
        return not isinstance(self.operation, Load | AtomicLoad)

    def cost(self, layout: LinearLayout, costs: CostModel) -> float:
        return access_cost(
            layout, self.pointer, self.mask, self.size, self.limit, costs, store=self.writes
        )

    def count(self, layout: LinearLayout) -> int:
        """Return the number of accesses per thread in a layout."""
        return layout.register_count // access_width(
            layout, self.pointer, self.mask, self.size, self.limit
        )
