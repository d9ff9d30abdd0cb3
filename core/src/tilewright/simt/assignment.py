"""What the passes of the toolkit find out about a function besides its IR."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.core import Operation, Value
from tilewright.simt.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.target import DotPlan


@dataclass(slots=True)
class Assignment:
    """Side tables of one kernel.

    Attributes:
        num_warps: warps of a program.
        layouts: the layout of every tile.
        dots: how each ``dot`` is computed.
        shared: the shared layout of what ``simt.shared_load``, ``simt.shared_store`` and ``simt.async_load`` access.
        offsets: where in shared memory an operation's scratch space or a ``simt.shared_alloc`` begins, in bytes.
        shared_bytes: shared memory of a program.
        notes: (operation, text): what left the fast path, and why.
    """

    num_warps: int
    layouts: dict[Value, LinearLayout] = field(default_factory=dict)
    dots: dict[Operation, DotPlan] = field(default_factory=dict)
    shared: dict[Operation, SharedLayout] = field(default_factory=dict)
    offsets: dict[Operation, int] = field(default_factory=dict)
    shared_bytes: int = 0
    notes: list[tuple[Operation, str]] = field(default_factory=list)
