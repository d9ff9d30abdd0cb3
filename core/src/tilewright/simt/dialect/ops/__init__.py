"""Operations of the toolkit, one file per family.

They extend Tile IR, whose other operations only get layouts. Shared memory is explicit: buffers of
slots, each of which is a value. An asynchronous operation returns a token or arrives at an
mbarrier, and its users wait for the token or for a phase of the mbarrier. A partition runs its
parts on warps of their own. ``docs/site/developers/toolkit/`` shows each operation in an example.

Layout rules, effects on shared memory and lowering are in the interfaces of the operations
(:mod:`tilewright.simt.lowering`).
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
