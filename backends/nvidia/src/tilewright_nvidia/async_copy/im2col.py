"""TMA loads in im2col mode (``cp.async.bulk.tensor`` with ``.im2col``), from sm_90 on.

They load pixels in the order in which a convolution reads them. By the PTX ISA ("im2col mode" of
tensors), the map defines a bounding box of base pixels, with ``lower`` relative to the image's
first pixel and ``upper`` relative to its last. A copy starts at a base pixel and traverses the box
row after row and image after image. For each base pixel, it loads the channels of the pixel at the
window's offset, and zeros outside the image.

The load waits for its copy right away; its tile and mbarrier are in scratch memory.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Value
from tilewright.ir.types import DescriptorType, TileType, element_type
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.assign_layouts import shape_rules
from tilewright.simt.dialect.attributes import offset_of
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import read_tile
from tilewright.simt.target.simt_target import SimtTarget
from tilewright_nvidia.async_copy.mbarrier import PtxAsyncProxy, PtxMbarriers
from tilewright_nvidia.async_copy.tensor_maps import ALIGNMENT, MOST_BOX
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import kernel_state
from tilewright_nvidia.operations import LoadIm2col

NAME: Final = LoadIm2col.row.name
#: Alignment of a tile in shared memory.
_PLACE: Final = 128
_SHARED: Final = "ptr addrspace(3)"


def interfaces(*, there: bool) -> dict[str, Interface]:
    """Return the operation's interface; ``there``: whether im2col copies may be used."""

    def lower(context: SimtContext, operation: LoadIm2col) -> None:
        _require(operation, context.target, there=there)
        _lower(context, operation)

    return {NAME: Interface(lower, shape_rules.block, scratch=_scratch)}


def can_copy(operation: LoadIm2col, divisibility: int) -> bool:
    """Return whether TMA can load the channels of a load's pixels.

    ``divisibility`` divides the tensor's address and strides in bytes.
    """
    type_ = operation.descriptor.type
    assert isinstance(type_, DescriptorType)
    channels, size = type_.block_shape[-1], storage_size(type_.element)
    return (
        divisibility % ALIGNMENT == 0 and channels <= MOST_BOX and channels * size % ALIGNMENT == 0
    )


def _require(operation: LoadIm2col, target: SimtTarget, *, there: bool) -> None:
    if not there:
        why = (
            f"{target.name} has no such copies, which are those of sm_90a on, or "
            "asynchronous=False forbids them"
        )
        raise LoweringError(f"load_im2col at {operation.location}: {why}")


def _tile(operation: LoadIm2col) -> TileType:
    type_ = operation.results[0].type
    assert isinstance(type_, TileType)
    return type_


def _bytes(operation: LoadIm2col) -> int:
    type_ = _tile(operation)
    return math.prod(type_.shape) * storage_size(type_.element)


def _scratch(operation: LoadIm2col, target: SimtTarget) -> int:
    """Return the bytes of scratch for the tile, its alignment and the mbarrier."""
    return (
        _PLACE
        + -(-_bytes(operation) // PtxMbarriers.bytes) * PtxMbarriers.bytes
        + PtxMbarriers.bytes
    )


def _lower(context: SimtContext, operation: LoadIm2col) -> None:
    w, size, name = (
        context.writer,
        _bytes(operation),
        kernel_state(context.writer).maps.im2col(operation),
    )
    place = -offset_of(operation) % _PLACE
    tile = context.scratch(operation, place)
    barrier = context.scratch(
        operation, place + -(-size // PtxMbarriers.bytes) * PtxMbarriers.bytes
    )
    at, window = (
        [_narrowed(context, value, to) for value in reversed(values)]
        for values, to in ((operation.offsets, "i32"), (operation.window, "i16"))
    )
    # order the threads' earlier accesses of this memory before TMA's writes
    PtxAsyncProxy().fence(w, everywhere=False)
    context.barrier()
    barriers = PtxMbarriers()
    with w.when(context.is_first_thread()):
        barriers.initialize(context, barrier, 1)
        barriers.fence_initialization(context)
        barriers.expect(context, barrier, size)
        start(context, tile, name, barrier, at, window)
    context.barrier()
    barriers.wait(context, barrier, "false")
    shape, element = _tile(operation).shape, element_type(operation.results[0].type)
    registers = read_tile(
        context, tile, context.layout(operation.results[0]), SharedLayout.row_major(shape), element
    )
    context.barrier()
    with w.when(context.is_first_thread()):
        call_asm(w, "mbarrier.inval.shared::cta.b64 [$0];", (), [(_SHARED, barrier)], memory=True)
    context.bind(operation.results[0], registers)


def start(
    context: SimtContext,
    shared: str,
    tensor_map: str,
    barrier: str,
    at: list[str],
    window: list[str],
) -> None:
    """Start a copy, from one thread.

    Args:
        shared: address of the tile, aligned to 128 bytes; ``barrier``: address of the mbarrier that
            counts its bytes.
        at: i32 coordinates of the first pixel's first channel, innermost first.
        window: nonnegative i16 offsets that move each pixel, innermost first.
    """
    coordinates = ", ".join(f"${3 + i}" for i in range(len(at)))
    moved = ", ".join(f"${3 + len(at) + i}" for i in range(len(window)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.im2col."
        f"mbarrier::complete_tx::bytes [$0], [$1, {{{coordinates}}}], [$2], {{{moved}}};"
    )
    operands = [
        (_SHARED, shared),
        ("ptr", tensor_map),
        (_SHARED, barrier),
        *(("i32", one) for one in at),
        *(("i16", one) for one in window),
    ]
    call_asm(context.writer, text, (), operands, memory=True)


def _narrowed(context: SimtContext, value: Value, to: str) -> str:
    """Convert a scalar integer to another width."""
    name, type_ = context.scalar(value), context.llvm_type(value.type)
    if type_ == to or not name.startswith("%"):
        return name
    how = "trunc" if int(type_[1:]) > int(to[1:]) else "sext"
    return context.writer.emit(f"{how} {type_} {name} to {to}")
