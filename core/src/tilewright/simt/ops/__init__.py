"""The operations of the toolkit: Tile IR for threads, one file a family. They stand beside those of Tile IR that need nothing more said of them than the
layouts of their tiles.

Shared memory is explicit: buffers of slots, each a value. What starts gives a token, and what needs it waits for the token, or for a phase of a barrier
object. A partition runs its parts on warps of their own. ``docs/site/developers/toolkit.md`` shows each operation with an example.

What does not live here: layouts, effects on shared memory and code, which are an operation's interface (:mod:`tilewright.simt.lowering`).
"""

from tilewright.ir.ops import TABLE
from tilewright.ir.table import OpTable
from tilewright.simt.ops import accumulators, barriers, block_copies, buffers, copies, descriptors, partitions, products
from tilewright.simt.types import ENCODINGS, TYPES

#: The operations, in documentation order.
OPS = (
    *partitions.OPS,
    *buffers.OPS,
    *descriptors.OPS,
    *copies.OPS,
    *block_copies.OPS,
    *barriers.OPS,
    *products.OPS,
    *accumulators.OPS,
)

#: Tile IR's table and these.
SIMT_TABLE: OpTable = TABLE.extended(OPS, TYPES, ENCODINGS)

__all__ = ["OPS", "SIMT_TABLE"]
