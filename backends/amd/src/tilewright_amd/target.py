"""AMD GPUs as SIMT targets: AMDGPU code through LLVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.ir.core import Function
from tilewright.ir.ops.linear import DotScaled
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.plugins.manifest import Target
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.ops.dot import Multiplication, Step
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.target.matmul_plan import matmul_of
from tilewright.simt.target.simt_target import Resources, SimtTarget, VendorDialect
from tilewright_amd.architectures import architecture
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.async_copy.shared_memory import SHARED_SYMBOL, GcnShared
from tilewright_amd.codegen import assertions, memory_access, prints
from tilewright_amd.codegen.arithmetic import GcnArithmetic
from tilewright_amd.codegen.cross_lane import GcnLanes
from tilewright_amd.codegen.global_memory import GcnGlobalMemory
from tilewright_amd.codegen.inline_assembly import GcnAssembly
from tilewright_amd.codegen.kernel_state import KernelState, state_for
from tilewright_amd.codegen.reports import GcnDebugging
from tilewright_amd.codegen.thread_hierarchy import GcnThreads
from tilewright_amd.instruction_costs import costs_of
from tilewright_amd.mma import block_scaled
from tilewright_amd.mma.matrix_instructions import GcnMatrix

TRIPLE: Final = "amdgcn-amd-amdhsa"
#: The code object version; every ROCm since 5.4 loads it.
CODE_OBJECT_VERSION: Final = 500
#: Kernel inputs that the hardware or runtime would set up and that no kernel reads.
_UNUSED: Final = (
    "workitem-id-y", "workitem-id-z", "dispatch-ptr", "queue-ptr", "dispatch-id", "heap-ptr",
    "hostcall-ptr", "multigrid-sync-arg", "default-queue",
    "completion-action", "lds-kernel-id", "flat-scratch-init",
)  # fmt: skip
#: Values of the option ``schedule_hint`` -> LLVM's ``iglp.opt`` strategy for blocks with MFMA
#: instructions, or None.
SCHEDULE_HINTS: Final[Mapping[str, int | None]] = {
    "": None,
    "attention": 2,
    "memory-bound-attention": None,
}


class GcnTarget(SimtTarget):
    """An AMD GPU architecture with the options of a launch."""

    def __init__(self, target: Target, options: Mapping[str, Any] | None = None) -> None:
        row, chosen = architecture(target.arch), options or {}
        self.name, self.costs = row.name, costs_of(row)
        self._chiplets = int(chosen.get("chiplets", 0))
        self.resources = Resources(
            warp_size=row.wave,
            max_threads=1024,
            shared_memory=int(target.limits.get("shared_memory", row.shared_memory)),
            banks=row.banks,
            max_access=16,
            registers=row.registers,
            register_file=row.file,
            few_registers=row.few_registers,
        )
        self.dialect = VendorDialect(interfaces=block_scaled.INTERFACES)
        self.threads = GcnThreads(row, self._chiplets)
        self.lanes = GcnLanes(row, self.threads)
        self.shared, self.memory = GcnShared(), GcnGlobalMemory(row)
        self.arithmetic = GcnArithmetic(row, relaxed=chosen.get("math", "relaxed") == "relaxed")
        self.async_copy = global_load_lds.GcnCopies(
            (global_load_lds.mechanism(row.direct),) if row.direct else ()
        )
        self.matrix = self._matrix = GcnMatrix(
            row,
            extent=int(chosen.get("matrix_instr_nonkdim", 0)),
            pack=int(chosen.get("kpack", 1)),
            interleaving=SCHEDULE_HINTS.get(chosen.get("schedule_hint", "")),
        )
        self.debugging, self.assembly = GcnDebugging(), GcnAssembly()

    def prepare(self, function: Function) -> KernelState:
        vectors: dict[LinearLayout, int] = {}
        operations = list(function.walk())
        for matmul in dict.fromkeys(
            matmul_of(one) for one in operations if isinstance(one, Multiplication | Step)
        ):
            vectors |= self._matrix.vectors(matmul)
        for operation in operations:
            if isinstance(operation, DotScaled):
                plan = self._matrix.scaled_plan(operation, function.attributes[WARPS])
                vectors[plan.c] = plan.extent**2 // 64
        return state_for(function, vectors)

    def begin(
        self,
        module: ModuleWriter,
        name: str,
        parameters: Sequence[tuple[str, str]],
        num_warps: int,
        options: Mapping[str, Any],
    ) -> FunctionWriter:
        state = module.state
        assert isinstance(state, KernelState)
        # inline device functions into the kernel: a call would pass registers through memory
        module.attributes = "alwaysinline nounwind"
        module.add_global(f"@{SHARED_SYMBOL} = external addrspace(3) global [0 x i8], align 128")
        version = module.metadata(
            f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}'
        )
        module.add_global(f"!llvm.module.flags = !{{{version}}}")
        threads = num_warps * self.resources.warp_size
        attributes = [
            "nounwind",
            f'"amdgpu-flat-work-group-size"="{threads},{threads}"',
            '"uniform-work-group-size"="true"',
        ]
        attributes += [f'"amdgpu-no-{what}"' for what in self._unused(state)]
        waves = options.get("waves_per_eu")
        if waves:
            attributes.append(f'"amdgpu-waves-per-eu"="{waves}"')
        given = [
            (memory_access.GLOBAL, f"{parameter}.global") if type_ == "ptr" else (type_, parameter)
            for type_, parameter in parameters
        ]
        if state.asserts:
            given.append(assertions.PARAMETER)
        if state.record_words:
            given.append(prints.PARAMETER)
        w = module.function(name, given, linkage="amdgpu_kernel", attributes=" ".join(attributes))
        for type_, parameter in parameters:
            if type_ == "ptr":
                w.do(
                    f"%{parameter} = addrspacecast {memory_access.GLOBAL} %{parameter}.global "
                    "to ptr"
                )
        return w

    def _unused(self, state: KernelState) -> tuple[str, ...]:
        """Return the inputs that the kernel does not need set up."""
        groups = tuple(f"workgroup-id-{'xyz'[axis]}" for axis in (1, 2) if axis not in state.groups)
        counts = state.counts or (self._chiplets > 1 and 0 in state.groups)
        return (*_UNUSED, *groups, *(() if counts else ("implicitarg-ptr",)))
