"""A kernel of a plan while the plan is made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilewright.derivatives.plan.adjoint_plan import ScratchBuffer
from tilewright.derivatives.plan.grid_extents import Extent, Grid
from tilewright.ir.core import Module


@dataclass
class KernelDraft:
    """A kernel of a plan while it is made.

    Attributes:
        module, grid, numbers, scratch: as of :class:`PlannedKernel`.
        ways: inputs -> how it writes their gradients, so far.
        continued: inputs to whose gradients a kernel before it has written.
        reasons: why it was made.
    """

    module: Module
    grid: Grid
    numbers: dict[str, Extent] = field(default_factory=dict)
    scratch: dict[str, ScratchBuffer] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    continued: frozenset[str] = frozenset()
    reasons: list[str] = field(default_factory=list)

    def derived(self, module: Module, *reasons: str, grid: Grid | None = None) -> KernelDraft:
        """Return the draft of a kernel made of this one, without its reasons."""
        return replace(
            self,
            module=module,
            grid=self.grid if grid is None else grid,
            numbers=dict(self.numbers),
            scratch=dict(self.scratch),
            ways=dict(self.ways),
            reasons=list(reasons),
        )


__all__ = ["KernelDraft"]
