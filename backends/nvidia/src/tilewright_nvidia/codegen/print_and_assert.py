"""Prints and failed assertions, through the device runtime's ``vprintf`` and ``__assertfail``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from tilewright.llvm.assembly.inline_assembly import BITS
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.debugging import Debugging
from tilewright_nvidia.codegen.inline_ptx import call_asm


class PtxDebugging(Debugging):
    """Prints and assertions of the device runtime."""

    def print(
        self,
        context: SimtContext,
        form: str,
        operands: Sequence[tuple[str, str]],
        predicate: str | None,
    ) -> None:
        """Print by ``vprintf``, whose arguments lie in memory, each aligned to its size."""
        w = context.writer
        w.module.declare("vprintf", "i32", ("ptr", "ptr"))
        text = w.module.string(form.encode())
        places, end = [], 0
        for type_, _ in operands:
            size = BITS[type_] // 8
            end = -(-end // size) * size
            places.append(end)
            end += size
        buffer = w.alloca("i64", max(1, -(-end // 8)), 8)
        with w.when(predicate) if predicate is not None else nullcontext():
            for (type_, name), place in zip(operands, places, strict=True):
                w.store(type_, name, w.gep("i8", buffer, place), BITS[type_] // 8)
            w.emit(f"call i32 @vprintf(ptr {text}, ptr {buffer})")

    def fail(
        self,
        context: SimtContext,
        message: str,
        file: str,
        line: int,
        function: str,
        predicate: str,
    ) -> None:
        """Fail by ``__assertfail``: the driver prints the message; the context becomes unusable."""
        w = context.writer
        w.module.declare("__assertfail", "void", ("ptr", "ptr", "i32", "ptr", "i64"))
        texts = [w.module.string(text.encode()) for text in (message, file, function)]
        with w.when(predicate, likely=False):
            w.do(
                f"call void @__assertfail(ptr {texts[0]}, ptr {texts[1]}, i32 {line}, ptr "
                f"{texts[2]}, i64 1)"
            )

    def clock(self, w: FunctionWriter) -> str:
        (now,) = call_asm(w, "mov.u64 $0, %globaltimer;", ["i64"], [])
        return now
