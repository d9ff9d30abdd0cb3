"""Queues of operations in flight: ``cp.async`` groups, bulk stores, and ``wgmma``."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import element_type
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.async_copy import AsyncCopies
from tilewright_nvidia.async_copy import tma
from tilewright_nvidia.mma import wgmma


class PtxCopies(AsyncCopies):
    """The commit and wait instructions of asynchronous copies, TMA stores and wgmma."""

    def commit(self, context: SimtContext, queue: str) -> None:
        if queue == STORES.queue:
            tma.commit(context)
        elif queue == COPIES.queue:
            context.writer.call("llvm.nvvm.cp.async.commit.group", "void", [])

    def wait(
        self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        if queue == MATMULS.queue:
            assert context.operation is not None
            operation = context.operation
            tiles, held = operation.results[: len(names)], []
            for tile in operation.held if isinstance(operation, Wait) else ():
                held += wgmma.operand_words(
                    context.writer, context.registers[tile], element_type(tile.type)
                )
            return wgmma.wait(
                context.writer, pending, names, [element_type(tile.type) for tile in tiles], held
            )
        if queue == COPIES.queue:
            context.writer.call("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(pending))])
        elif queue == STORES.queue:
            assert isinstance(context.operation, Wait)
            tma.wait(context, pending, written=context.operation.written)
        return [list(tile) for tile in names]
