"""NVIDIA GPUs as SIMT targets: PTX through LLVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.table import merged
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.plugins.manifest import Target
from tilewright.simt.dialect.attributes import CLUSTER, PROGRAMS, WARPS
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.target.capabilities.external_functions import ExternalFunctions
from tilewright.simt.target.simt_target import Resources, SimtTarget, Stage, VendorDialect
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.async_copy import im2col, tma
from tilewright_nvidia.async_copy.cluster import PtxClusters
from tilewright_nvidia.async_copy.cp_async import CP_ASYNC
from tilewright_nvidia.async_copy.mbarrier import PtxAsyncProxy, PtxMbarriers
from tilewright_nvidia.codegen.cross_lane import PtxLanes
from tilewright_nvidia.codegen.elementwise import PtxArithmetic
from tilewright_nvidia.codegen.kernel_ptx import PtxAssembly
from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.codegen.memory_access import PtxGlobalMemory
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.codegen.print_and_assert import PtxDebugging
from tilewright_nvidia.codegen.register_redistribution import PtxWarpSpecialization
from tilewright_nvidia.codegen.shared_memory import SHARED_SYMBOL, PtxShared
from tilewright_nvidia.codegen.thread_hierarchy import PtxThreads
from tilewright_nvidia.instruction_costs import COSTS
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.mma import block_scaled, wgmma
from tilewright_nvidia.mma.async_queues import PtxCopies
from tilewright_nvidia.mma.matrix_instructions import PtxMatrix
from tilewright_nvidia.mma.tcgen05 import PtxTensorMemory
from tilewright_nvidia.operations import OPS
from tilewright_nvidia.toolchain.occupancy_bound import (
    bound_occupancy,
    has_matmuls,
    is_light,
    most_registers,
)

if TYPE_CHECKING:
    from tilewright.llvm.codegen.libraries import Libraries

TRIPLE = "nvptx64-nvidia-cuda"
_WARP: Final = 32
#: The maximum CTAs per SM that the toolkit chooses (more were not measured), and the bytes of
#: shared memory that the hardware reserves per CTA.
_RESIDENT, _RESERVED = 4, 1024
#: The minimum columns of a matmul's result per CTA of a cluster.
_MIN_COLUMNS = 32
#: Compute capabilities of data center GPUs with tensor memory.
_TENSOR_MEMORY = (100, 103)


class PtxTarget(SimtTarget):
    """An NVIDIA GPU architecture with the options of a launch.

    Without the option ``asynchronous``, the target has no TMA and none of what depends on it.
    """

    costs = COSTS

    def __init__(
        self,
        target: Target,
        options: Mapping[str, Any] | None = None,
        *,
        tensor_accumulators: bool = True,
        libraries: Libraries | None = None,
    ) -> None:
        row = ARCHITECTURES.get(target.arch)
        if row is None:
            raise LoweringError(
                f"there is no code for {target.arch!r}; targets are {', '.join(ARCHITECTURES)}"
            )
        chosen, capability = options or {}, row.capability
        self.name = row.name
        asynchronous = bool(chosen.get("asynchronous", OPTIONS["asynchronous"]))
        blocks, gathers = (
            asynchronous and capability in (90, *_TENSOR_MEMORY),
            asynchronous and capability >= 100,
        )
        hopper = blocks and capability == 90
        tensor_memory = tensor_accumulators and blocks and not hopper
        limited = bool(chosen.get("maxnreg"))
        self._overlaps = bool(chosen.get("launch_pdl")) and capability >= 90
        self.resources = Resources(
            warp_size=_WARP,
            max_threads=1024,
            shared_memory=int(target.limits.get("shared_memory", row.shared_memory)),
            banks=32,
            max_access=16,
            registers=255,
            register_file=65536,
            reserved_shared_memory=_RESERVED,
            # kernels with tensor memory were not measured
            max_resident=_RESIDENT if blocks and not limited and not tensor_memory else 1,
        )
        self.dialect = VendorDialect(
            tuple(OPS), merged(block_scaled.INTERFACES, im2col.interfaces(there=hopper or gathers))
        )
        self.threads, self.lanes = PtxThreads(), PtxLanes(capability)
        self.shared, self.memory = PtxShared(), PtxGlobalMemory(row)
        self.arithmetic = PtxArithmetic(
            capability, relaxed=chosen.get("math", "relaxed") == "relaxed"
        )
        self.matrix = matrix = PtxMatrix(capability, warpgroups=hopper, tensor_memory=tensor_memory)
        self.debugging, self.assembly, self.externs = (
            PtxDebugging(),
            PtxAssembly(),
            ExternalFunctions(libraries),
        )
        mechanisms = (CP_ASYNC,) if capability >= 80 else ()
        if blocks or gathers:
            mechanisms = (tma.mechanism(rows=gathers), *mechanisms)
            self.tma = tma.PtxTma(
                matrix.wide_plans,
                blocks=blocks,
                gathers=gathers,
                scatters=gathers and capability < 120,
            )
            self.mbarriers, self.async_proxy = PtxMbarriers(), PtxAsyncProxy()
        self.async_copy = PtxCopies(mechanisms)
        if blocks:
            self.warp_specialization = PtxWarpSpecialization(redistributes=not limited)
        if tensor_memory:
            self.tensor_memory = PtxTensorMemory()
        if hopper:
            self.clusters = PtxClusters((wgmma.ROWS, _MIN_COLUMNS))

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        place = next(number for number, stage in enumerate(stages) if stage.name == "allocate") + 1
        bound = Stage(
            "occupancy",
            bound_occupancy,
            "how many CTAs share an SM, for kernels to which ptxas would give other registers",
        )
        return (*stages[:place], bound, *stages[place:])

    def prepare(self, function: Function) -> KernelState:
        operations = list(function.walk())
        matrices, light = has_matmuls(function), is_light(function)
        moves_registers = any(
            isinstance(operation, Part) and operation.registers for operation in operations
        )
        return KernelState(
            maps=tma.TensorMaps(function),
            frugal=light,
            num_warps=function.attributes[WARPS],
            most_registers=most_registers(function),
            # if partitions redistribute registers, ptxas must know the initial number per thread
            programs=function.attributes.get(PROGRAMS) or int(moves_registers),
            cluster=function.attributes.get(CLUSTER, 1),
            uniform_warps=matrices,
            waits_at_entry=self._overlaps and not any(map(_waits_for_kernel_before, operations)),
            words=PackedRegisters(),
        )

    def begin(
        self,
        module: ModuleWriter,
        name: str,
        parameters: Sequence[tuple[str, str]],
        num_warps: int,
        options: Mapping[str, Any],
    ) -> FunctionWriter:
        module.add_global(f"@{SHARED_SYMBOL} = external addrspace(3) global [0 x i8], align 1024")
        threads = num_warps * _WARP
        attributes = ["nounwind", f'"nvvm.reqntid"="{threads}"']
        state = module.state
        assert isinstance(state, KernelState)
        limit = options.get("maxnreg") or state.most_registers
        if limit:
            attributes.append(f'"nvvm.maxnreg"="{limit}"')
        if state.programs:
            attributes.append(f'"nvvm.minctasm"="{state.programs}"')
        if state.cluster > 1:
            attributes.append(f'"nvvm.cluster_dim"="{state.cluster},1,1"')
        maps = state.maps
        given = [
            (type_, parameter)
            for type_, parameter in parameters
            if parameter not in maps.descriptors
        ]
        given += [(tma.MAP_TYPE, parameter) for parameter, _ in maps.wanted]
        maps.made.begin(module, threads, ARCHITECTURES[self.name])
        w = module.function(name, given, linkage="ptx_kernel", attributes=" ".join(attributes))
        if state.waits_at_entry:
            w.call("llvm.nvvm.griddepcontrol.wait", "void", [])
        return w


def _waits_for_kernel_before(operation: Operation) -> bool:
    """Return whether an operation waits explicitly for the preceding kernel."""
    return isinstance(operation, InlineAsm) and "griddepcontrol.wait" in operation.assembly
