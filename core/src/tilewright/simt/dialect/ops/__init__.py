"""The operations of the toolkit: Tile IR for threads, one file a family.

They stand beside those of Tile IR that need nothing more said of them than the layouts of their
tiles.

Shared memory is explicit: buffers of slots, each a value. What starts yields a token, and what
needs it waits for the token, or for a phase of a barrier object. A partition runs its parts on
warps of their own. ``docs/site/developers/toolkit.md`` shows each operation with an example.

What does not live here: layouts, effects on shared memory and code, which are an operation's
interface (:mod:`tilewright.simt.lowering`).
"""

from tilewright.ir.ops import TABLE
from tilewright.ir.table import OpTable
from tilewright.simt.dialect.ops import (
    async_copy,
    buffers,
    dot,
    mbarrier,
    tensor_maps,
    tensor_memory,
    tma,
    warp_specialize,
)
from tilewright.simt.dialect.types import ENCODINGS, TYPES

#: The operations, in documentation order.
OPS = (
    *warp_specialize.OPS,
    *buffers.OPS,
    *tensor_maps.OPS,
    *async_copy.OPS,
    *tma.OPS,
    *mbarrier.OPS,
    *dot.OPS,
    *tensor_memory.OPS,
)

#: Tile IR's table and these.
SIMT_TABLE: OpTable = TABLE.extended(OPS, TYPES, ENCODINGS)

__all__ = ["OPS", "SIMT_TABLE"]
