"""TMA of the emulated machine: tensor copies, and descriptors that kernels make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir.types import DescriptorType, Type
from tilewright.simt.dialect.ops.tensor_maps import (
    Descriptors,
    FreeDescriptors,
    MakeTensorMap,
    ShowDescriptor,
    Tensor,
)
from tilewright.simt.dialect.ops.tma import RowCopy
from tilewright.simt.dialect.ops.tma import TmaCopy as BlockMove
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.blocks import BlockSite
from tilewright.simt.emulator.code import call_engine, number_of
from tilewright.simt.emulator.record import EmissionRecord, record_of
from tilewright.simt.layouts.linear_layout import SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.tma import DeviceTensorMaps, MadeDescriptor, Tma
from tilewright.simt.target.copy_mechanism import (
    BARRIER,
    BlockAccess,
    BlockCopy,
    CopyMechanism,
    multicast_axis,
)
from tilewright.simt.target.matmul_plan import Matmul


def _no_matmul(matmul: Matmul) -> bool:
    return False


def _no_block(block: DescriptorType, divisor: int) -> bool:
    return False


class EmulatedTma(Tma):
    """TMA of a machine that a test describes.

    Args:
        keeps: which descriptor accesses are kept: (operation, divisors, width).
        promotes: the matmuls whose loads are promoted.
        reaches: the tensors that copies can access: (block, byte alignment).
        descriptor_bytes: of a descriptor that a kernel makes; 0: kernels make none.
    """

    def __init__(
        self,
        record: EmissionRecord,
        keeps: Callable[[BlockAccess, Sequence[int], int], bool],
        *,
        promotes: Callable[[Matmul], bool] = _no_matmul,
        reaches: Callable[[DescriptorType, int], bool] = _no_block,
        descriptor_bytes: int = 0,
    ) -> None:
        self._keeps, self._promotes, self._reaches = keeps, promotes, reaches
        self.device_maps = (
            EmulatedDescriptors(record, descriptor_bytes) if descriptor_bytes else None
        )

    def keeps(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        return self._keeps(operation, divisors, width)

    def promotes(self, matmul: Matmul) -> bool:
        return self._promotes(matmul)

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        return self._reaches(block, divisor)

    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        """The words of a descriptor, in memory of the thread's own."""
        with context.at_entry() as w:
            words = w.alloca("i64", len(operation.operands))
        for i, operand in enumerate(operation.operands):
            name = context.scalar(operand)
            context.writer.store(
                "i64",
                number_of(context.writer, name) if i == 0 else name,
                context.writer.gep("i64", words, i),
                8,
            )
        return words


class EmulatedDescriptors(DeviceTensorMaps):
    """Descriptors that kernels make, in memory that the engine allocates."""

    def __init__(self, record: EmissionRecord, size: int) -> None:
        self._record, self.bytes = record, size

    def allocate(self, context: SimtContext, operation: Descriptors) -> str:
        number = str(self._record.memories)
        self._record.memories += 1
        with context.writer.when(context.is_first_thread()):
            call_engine(context.writer, layout.TAKE_MEMORY, [number])
        return number

    def make(self, context: SimtContext, operation: MakeTensorMap, made: MadeDescriptor) -> str:
        """Assemble the words in shared memory, and copy them to the thread's private memory."""
        with context.at_entry() as w:
            place = w.alloca("i64", 1 + 2 * len(made.extents))
        w = context.writer
        with w.when(context.is_first_thread()):
            words = [number_of(w, made.base), *made.extents, *made.strides]
            for i, name in enumerate(words):
                w.store("i64", name, w.gep("i64", made.shared, i), 8)
            memory = w.emit(f"zext i32 {made.memory} to i64")
            call_engine(
                w,
                layout.MAKE_DESCRIPTOR,
                [memory, number_of(w, made.shared), number_of(w, place), str(len(words))],
            )
        return place

    def show(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        with context.writer.when(context.is_first_thread()):
            call_engine(
                context.writer, layout.SHOW_DESCRIPTOR, [number_of(context.writer, descriptor)]
            )

    def free(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        w = context.writer
        with w.when(context.is_first_thread()):
            call_engine(w, layout.FREE_MEMORY, [w.emit(f"zext i32 {memory} to i64")])


def bulk_mechanism(*, stores: bool = True) -> CopyMechanism:
    """TMA copies of blocks and rows that complete on mbarriers; copies back with ``stores``."""
    store = _store_block if stores else None
    return CopyMechanism(
        "bulk", BARRIER, start=_load_block, store=store, fills_rows=_any_layout, shares=_shares
    )


def _any_layout(shared: SharedLayout, element: Type) -> bool:
    return True


def _shares(shared: SharedLayout, element: Type, blocks: int) -> bool:
    return shared.shape[multicast_axis(shared.shape)] % blocks == 0


def _load_block(context: SimtContext, copy: BlockCopy) -> None:
    _call_block(context, layout.LOAD_BLOCK, copy, [copy.barrier])


def _store_block(context: SimtContext, copy: BlockCopy) -> None:
    _call_block(context, layout.STORE_BLOCK, copy, [])


def _call_block(context: SimtContext, code: int, copy: BlockCopy, barrier: Sequence[str]) -> None:
    w = context.writer
    assert isinstance(context.operation, BlockMove | RowCopy)
    made = isinstance(context.operation.descriptor.definition, MakeTensorMap)
    site = record_of(w).add_site(
        BlockSite(
            copy.layout, copy.element, copy.padding, copy.bytes, made, copy.parts, bool(copy.rows)
        )
    )
    places = [number_of(w, address) for address in (copy.shared, copy.descriptor, *barrier)]
    numbers = []
    for row in range(copy.layout.shape[0]) if copy.rows else ():
        place = w.gep("i32", copy.rows, row)
        context.target.shared.touch(w, place, writes=False)
        numbers.append(w.load("i32", place, 4))
    call_engine(
        w,
        code,
        [
            str(site),
            *places,
            *(w.emit(f"sext i32 {offset} to i64") for offset in (*copy.offsets, *numbers)),
        ],
    )
