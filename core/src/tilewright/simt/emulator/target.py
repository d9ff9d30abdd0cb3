"""The emulated machine as a target: LLVM IR for the host in place of a GPU's instructions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.core import Function
from tilewright.ir.ops.linear import DotScaled
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.code import begin_kernel, declare_helpers, set_fault
from tilewright.simt.emulator.memory import (
    EmulatedCopies,
    EmulatedLanes,
    EmulatedMemory,
    EmulatedShared,
    start_copy,
)
from tilewright.simt.emulator.record import EmissionRecord
from tilewright.simt.emulator.synchronization import (
    EmulatedClusters,
    EmulatedMbarriers,
    EmulatedNamedBarriers,
    EmulatedThreads,
)
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.debugging import Debugging
from tilewright.simt.target.capabilities.matrix import MatrixInstructions, PingPong
from tilewright.simt.target.capabilities.thread_hierarchy import Threads
from tilewright.simt.target.capabilities.warp_specialization import WarpSpecialization
from tilewright.simt.target.copy_mechanism import GROUPS, CopyMechanism
from tilewright.simt.target.cost_model import CostModel
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.simt.target.simt_target import Resources, SimtTarget


class EmulatedTarget(SimtTarget):
    """The emulated machine.

    It has mbarriers, clusters of one CTA, named barriers, and partitions of any number of warps; a
    test adds TMA, the async proxy, tensor memory and matrix instructions.

    Function parameters before the kernel's own: block, own, lane, warp, and the program's position.

    Attributes:
        record: what launches need of the kernels emitted so far.
    """

    name = "emulator"
    costs = CostModel(
        operations={
            **dict.fromkeys(("exp", "exp2", "log", "log2", "sqrt", "rsqrt"), 4.0),
            **dict.fromkeys(("div", "rem"), 8.0),
        },
        sector=32, line=128, line_turn=1.6, access=2.0, trip=40.0, shuffle=12.0, shuffled_word=2.0,
        stored_word=1.5, selected_word=0.5,
        barrier=16, selects_per_shuffle=2, scratch=32 * 1024, other_registers=36,
    )  # fmt: skip

    def __init__(
        self,
        warp_size: int = 32,
        shared_memory: int = 64 * 1024,
        copy_widths: tuple[int, ...] = (4, 8, 16),
        *,
        completion: str = "late",
        seed: int = 0,
    ) -> None:
        self.resources = Resources(
            warp_size,
            1024,
            shared_memory,
            banks=32,
            max_access=16,
            registers=255,
            register_file=65536,
        )
        record = self.record = EmissionRecord(self.name, warp_size, completion, seed)
        self.threads = EmulatedThreads(record)
        self.lanes = EmulatedLanes(record, self.threads)
        self.shared, self.memory = EmulatedShared(record), EmulatedMemory(record)
        self.async_copy = EmulatedCopies(
            record,
            (CopyMechanism("queue", GROUPS, copy_widths, start=start_copy),) if copy_widths else (),
        )
        self.debugging = EmulatedDebugging(record)
        self.mbarriers, self.clusters = EmulatedMbarriers(record), EmulatedClusters(record)
        self.named_barriers, self.warp_specialization = (
            EmulatedNamedBarriers(record),
            WarpSpecialization(1),
        )

    def prepare(self, function: Function) -> object:
        self.record.prepare(function, async_proxy=self.async_proxy is not None)
        return self.record

    def begin(
        self,
        module: ModuleWriter,
        name: str,
        parameters: Sequence[tuple[str, str]],
        num_warps: int,
        options: Mapping[str, Any],
    ) -> FunctionWriter:
        declare_helpers(module)
        kernel = begin_kernel(module, name, parameters)
        self.record.everyone = Threads(0, 0, num_warps)
        return kernel


class EmulatedMatrix(MatrixInstructions):
    """Matrix instructions that a test describes.

    Args:
        plans: the plans of a matmul.
        keeps_scaled: whether a block-scaled matmul is kept.
        ping_pong: as in :class:`~tilewright.simt.target.capabilities.matrix.MatrixInstructions`.
    """

    def __init__(
        self,
        plans: Callable[[Matmul], Sequence[MatmulPlan]] = lambda matmul: (),
        *,
        keeps_scaled: Callable[[DotScaled], bool] = lambda operation: False,
        ping_pong: PingPong | None = None,
    ) -> None:
        self._plans, self._keeps_scaled, self.ping_pong = plans, keeps_scaled, ping_pong

    def plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        return self._plans(matmul)

    def keeps_scaled(self, operation: DotScaled) -> bool:
        return self._keeps_scaled(operation)


class EmulatedDebugging(Debugging):
    """Prints by the host's ``printf``; assertions end the launch."""

    def __init__(self, record: EmissionRecord) -> None:
        self._record = record

    def print(
        self,
        context: SimtContext,
        form: str,
        operands: Sequence[tuple[str, str]],
        predicate: str | None,
    ) -> None:
        w = context.writer
        w.module.declare("printf", "i32", ("ptr", "..."))
        text = w.module.string(form.encode())
        with w.when(predicate or "true"):
            listed = "".join(f", {type_} {name}" for type_, name in operands)
            w.emit(f"call i32 (ptr, ...) @printf(ptr {text}{listed})")

    def fail(
        self,
        context: SimtContext,
        message: str,
        file: str,
        line: int,
        function: str,
        predicate: str,
    ) -> None:
        self._record.messages.append(f"{message} ({file}:{line} in {function})")
        with context.writer.when(predicate):
            set_fault(context.writer, layout.ASSERTION + len(self._record.messages) - 1)

    def clock(self, w: FunctionWriter) -> str:
        now = w.alloca("i64", 2)
        w.call("clock_gettime", "i32", [("i32", str(time.CLOCK_MONOTONIC)), ("ptr", now)])
        seconds, rest = (w.load("i64", w.gep("i64", now, i), 8) for i in range(2))
        return w.emit(f"add i64 {w.emit(f'mul i64 {seconds}, 1000000000')}, {rest}")
