"""NVIDIA GPUs as SIMT targets: PTX through LLVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.debug import InlineAsm
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.ops.memory import DescriptorGather
from tilewright.ir.table import merged
from tilewright.ir.types import BF16, F16, F32, I8, I32, U8, U16, U32, DescriptorType, Type, element_type
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.assembly.assembly_sites import site
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.llvm.emission.casts import emit_cast
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.plugins.manifest import Target
from tilewright.simt.dialect.attributes import CLUSTER, PROGRAMS, WARPS
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.tensor_maps import Descriptors, FreeDescriptors, MakeDescriptor, ShowDescriptor, Tensor
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.dialect.types import COPIES, MATMULS, STORES
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.copy_mechanism import ROW_COPIES, BlockAccess
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.simt.target.simt_target import Access, MadeDescriptor, SimtTarget, Stage, Threads, Update
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.async_copy import im2col, mbarrier, tensor_maps, tma
from tilewright_nvidia.async_copy.cp_async import CP_ASYNC
from tilewright_nvidia.codegen import arithmetic, atomics, casts, print_and_assert
from tilewright_nvidia.codegen.half_arithmetic import half_operation
from tilewright_nvidia.codegen.inline_ptx import ASSEMBLY_REGISTERS, call_asm
from tilewright_nvidia.codegen.kernel_state import KernelState, kernel_state, words_in
from tilewright_nvidia.codegen.memory_access import GlobalMemory
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.codegen.uniform_ptx import is_uniform
from tilewright_nvidia.instruction_costs import COSTS
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.mma import block_scaled, mma, tcgen05, wgmma
from tilewright_nvidia.mma.operand_loads import read_fragments
from tilewright_nvidia.operations import OPS
from tilewright_nvidia.toolchain.occupancy_bound import bound_occupancy, has_products, is_light, most_registers

if TYPE_CHECKING:
    from tilewright.llvm.codegen.libraries import Libraries

TRIPLE = "nvptx64-nvidia-cuda"
#: The symbol of a CTA's shared memory; the launch sets its size.
SHARED_SYMBOL = "tilewright_shared_memory"
_ALL_LANES = "-1"

#: The maximum CTAs per SM that the toolkit chooses (more were not measured), and the bytes of
#: shared memory that the hardware reserves per CTA.
_RESIDENT, _UNSEEN = 4, 1024
#: The portable maximum of CTAs per cluster, and the minimum columns of a matmul's result per CTA.
_CLUSTER, _LEAST_COLUMNS = 8, 32
#: Type -> PTX name of its pair, for conversions of two f32 at a time.
_PAIRS: dict[Type, str] = {F16: "f16x2", BF16: "bf16x2"}
#: (reduction, type) -> LLVM's name of the ``redux.sync``.
_REDUCTIONS: Final[dict[tuple[str, Type], str]] = {
    **{(kind, element): kind for kind in ("add", "and", "or", "xor") for element in (I32, U32)},
    **{(kind, element): prefix + kind for kind in ("min", "max") for element, prefix in ((I32, ""), (U32, "u"))},
}
#: Compute capabilities of data center GPUs with tensor memory.
_TENSOR_MEMORY = (100, 103)


class PtxTarget(SimtTarget):
    """An NVIDIA GPU architecture with the options of a launch.

    Attributes:
        capability: compute capability, 10 * major + minor.
        engine: whether TMA copies blocks (the option ``asynchronous``).
        hopper: whether matmuls use ``wgmma``; if :attr:`accumulator_units` is not 0, they use
            ``tcgen05`` instead.
        gathers: whether TMA gathers rows by index, and on 10.x also scatters them (the option
            ``asynchronous``).
        overlaps: whether a kernel may start before the preceding one ends (the option
            ``launch_pdl``).
    """

    warp_size = 32
    max_threads = 1024
    banks, max_access = 32, 16
    registers, register_file = 255, 65536
    costs = COSTS
    shared_pointer = "ptr addrspace(3)"
    operations = tuple(OPS)

    def __init__(
        self,
        target: Target,
        options: Mapping[str, Any] | None = None,
        *,
        tensor_sums: bool = True,
        libraries: Libraries | None = None,
    ) -> None:
        super().__init__()
        row = ARCHITECTURES.get(target.arch)
        if row is None:
            raise LoweringError(f"there is no code for {target.arch!r}; targets are {', '.join(ARCHITECTURES)}")
        self.name = row.name
        self.capability = row.capability
        self.shared_memory = int(target.limits.get("shared_memory", row.shared_memory))
        self.engine = row.capability in (90, *_TENSOR_MEMORY) and bool((options or {}).get("asynchronous", OPTIONS["asynchronous"]))
        self.hopper = self.engine and row.capability == 90
        self.accumulator_units = tcgen05.COLUMNS if tensor_sums and self.engine and not self.hopper else 0
        self.mechanisms = (CP_ASYNC,) if row.capability >= 80 else ()
        self.gathers = row.capability >= 100 and bool((options or {}).get("asynchronous", OPTIONS["asynchronous"]))
        if self.engine or self.gathers:
            self.mechanisms = (tma.mechanism(rows=self.gathers), *self.mechanisms)
            self.barrier_bytes, self.descriptor_bytes = mbarrier.BYTES, tensor_maps.BYTES
            self.published = True
        if self.engine:
            self.part_warps = wgmma.GROUP
            # kernels with tensor memory were not measured
            self.resident_programs = 1 if (options or {}).get("maxnreg") or self.accumulator_units else _RESIDENT
        if self.hopper:
            self.cluster_blocks, self.cluster_part = _CLUSTER, (wgmma.ROWS, _LEAST_COLUMNS)
        self._limited = bool((options or {}).get("maxnreg"))
        self.relaxed = (options or {}).get("math", "relaxed") == "relaxed"
        self.native_exp = self.relaxed
        self.overlaps = bool((options or {}).get("launch_pdl")) and row.capability >= 90
        self.libraries = libraries

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        place = next(number for number, stage in enumerate(stages) if stage.name == "allocate") + 1
        bound = Stage("occupancy", bound_occupancy, "how many CTAs share an SM, for kernels to which ptxas would give other registers")
        return (*stages[:place], bound, *stages[place:])

    # ---- the function

    def prepare(self, function: Function) -> KernelState:
        operations = list(function.walk())
        matrices, light = has_products(function), is_light(function)
        moves_registers = any(isinstance(operation, Part) and operation.registers for operation in operations)
        words = PackedRegisters()
        return KernelState(
            maps=tma.TensorMaps(function),
            memory=GlobalMemory(self.capability, words, frugal=light),
            num_warps=function.attributes[WARPS],
            most_registers=most_registers(function),
            # if partitions redistribute registers, ptxas must know the initial number per thread
            programs=function.attributes.get(PROGRAMS) or int(moves_registers),
            cluster=function.attributes.get(CLUSTER, 1),
            uniform_warps=matrices,
            waits_at_entry=self.overlaps and not any(map(_waits_for_kernel_before, operations)),
            words=words,
        )

    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        module.add_global(f"@{SHARED_SYMBOL} = external addrspace(3) global [0 x i8], align 1024")
        threads = num_warps * self.warp_size
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
        given = [(type_, parameter) for type_, parameter in parameters if parameter not in maps.descriptors]
        given += [(tma.MAP_TYPE, parameter) for parameter, _ in maps.wanted]
        maps.made.begin(module, threads, ARCHITECTURES[self.name])
        w = module.function(name, given, linkage="ptx_kernel", attributes=" ".join(attributes))
        if state.waits_at_entry:
            w.call("llvm.nvvm.griddepcontrol.wait", "void", [])
        return w

    def shared_base(self, w: FunctionWriter) -> str:
        return f"@{SHARED_SYMBOL}"

    # ---- thread indices

    def lane(self, w: FunctionWriter) -> str:
        return w.emit(f"and i32 {_special(w, 'tid.x')}, 31")

    def warp(self, w: FunctionWriter) -> str:
        state = kernel_state(w)
        if state.num_warps == 1:
            return "0"
        number = w.emit(f"lshr i32 {_special(w, 'tid.x')}, 5")
        # a shuffle shows ptxas that the warp index is uniform
        return self.shuffle(w, number, "0") if state.uniform_warps else number

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        return _special(w, f"{'cluster' if kernel_state(w).cluster > 1 else 'cta'}id.{'xyz'[axis]}")

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        return _special(w, f"n{'cluster' if kernel_state(w).cluster > 1 else 'cta'}id.{'xyz'[axis]}")

    def rank(self, w: FunctionWriter) -> str:
        return _special(w, "cluster.ctarank")

    # ---- barriers, clusters and cross-lane operations

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.count == 1:
            self.warp_barrier(w)
        elif threads.parts > 1:
            mbarrier.part_barrier(w, threads)
        else:
            w.call("llvm.nvvm.barrier.cta.sync.aligned.all", "void", [("i32", "0")])

    def warp_barrier(self, w: FunctionWriter) -> None:
        w.call("llvm.nvvm.bar.warp.sync", "void", [("i32", _ALL_LANES)])

    def publish(self, w: FunctionWriter, *, everywhere: bool) -> None:
        mbarrier.proxy_fence(w, everywhere=everywhere)

    def barrier_init(self, context: SimtContext, address: str, count: int) -> None:
        mbarrier.initialize(context.writer, address, count)

    def barriers_made(self, context: SimtContext) -> None:
        mbarrier.show(context.writer)

    def barrier_expect(self, context: SimtContext, address: str, size: int) -> None:
        mbarrier.expect(context.writer, address, size)

    def barrier_arrive(self, context: SimtContext, address: str) -> None:
        mbarrier.arrive(context.writer, address)

    def barrier_arrive_at_all(self, context: SimtContext, address: str) -> None:
        mbarrier.arrive_at_all(context.writer, address, context.cluster)

    def meet(self, context: SimtContext) -> None:
        mbarrier.meet(context.writer)

    def barrier_wait(self, context: SimtContext, address: str, phase: str) -> None:
        mbarrier.wait(context.writer, address, phase)

    def barrier_arrive_after(self, context: SimtContext, address: str) -> None:
        tcgen05.arrive_after(context.writer, address)

    def take_accumulators(self, context: SimtContext, units: int, scratch: str) -> str:
        return tcgen05.take(context, units, scratch)

    def free_accumulators(self, context: SimtContext, units: int, memory: str) -> None:
        tcgen05.give_back(context, units, memory)

    def set_registers(self, w: FunctionWriter, count: int) -> None:
        state = kernel_state(w)
        given = mbarrier.given_registers(state.num_warps, state.programs)
        mbarrier.set_registers(w, count, given)

    def part_registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        return {} if self._limited else mbarrier.divided_registers(warps, programs)

    def resident_memory(self, programs: int) -> int:
        # an SM has the shared memory that a CTA may use, and a reserved part for each CTA
        return (self.shared_memory + _UNSEEN) // programs - _UNSEEN

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        return w.call("llvm.nvvm.shfl.sync.idx.i32", "i32", [("i32", _ALL_LANES), ("i32", value), ("i32", lane), ("i32", "31")])

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        return w.call("llvm.nvvm.shfl.sync.bfly.i32", "i32", [("i32", _ALL_LANES), ("i32", value), ("i32", str(mask)), ("i32", "31")])

    def reduce_warp(self, w: FunctionWriter, kind: str, value: str, element: Type) -> str | None:
        name = _REDUCTIONS.get((kind, element)) if self.capability >= 80 else None
        return w.call(f"llvm.nvvm.redux.sync.{name}", "i32", [("i32", value), ("i32", _ALL_LANES)]) if name else None

    # ---- memory

    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        return kernel_state(w).memory.load(w, pointer, element, count, predicate, other, access)

    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        kernel_state(w).memory.store(w, pointer, element, values, predicate, access)

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        return atomics.atomic_width(ARCHITECTURES[self.name], kind, element)

    def atomic_rmw(self, context: SimtContext, update: Update, pointer: str, values: Sequence[str], predicate: str | None) -> list[str]:
        return atomics.atomic_rmw(context, self.capability, update, pointer, values, predicate)

    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str:
        return atomics.atomic_cas(context, pointer, element, compare, value, predicate, order, scope)

    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        return atomics.atomic_load(context.writer, pointer, element, predicate, order, scope)

    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        atomics.atomic_store(context.writer, pointer, element, value, predicate, order, scope)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        atomics.fence(w, scope)

    def clock(self, w: FunctionWriter) -> str:
        (now,) = call_asm(w, "mov.u64 $0, %globaltimer;", ["i64"], [])
        return now

    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        atomics.shared_atomic_add(w, pointer, value, predicate)

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        size = storage_size(element)
        return (U32, 4 // size) if size < 4 else (element, 1)

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return names
        known = words_in(w)
        return [known.pack(w, names[i : i + count], type_, "i32") for i in range(0, len(names), count)]

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return words
        known = words_in(w)
        return [name for word in words for name in known.unpack(w, word, "i32", type_)]

    def read_fragments(self, context: SimtContext, address: str, layout: LinearLayout, shared: SharedLayout, element: Type) -> list[str] | None:
        return read_fragments(context, address, layout, shared, element) if self.capability >= 75 else None

    def commit(self, context: SimtContext, queue: str) -> None:
        if queue == STORES.queue:
            tma.commit(context)
        elif queue == COPIES.queue:
            context.writer.call("llvm.nvvm.cp.async.commit.group", "void", [])

    def wait(self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]) -> list[list[str]]:
        if queue == MATMULS.queue:
            assert context.operation is not None
            operation = context.operation
            tiles, held = operation.results[: len(names)], []
            for tile in operation.held if isinstance(operation, Wait) else ():
                held += wgmma.operand_words(context.writer, context.registers[tile], element_type(tile.type))
            return wgmma.wait(context.writer, pending, names, [element_type(tile.type) for tile in tiles], held)
        if queue == COPIES.queue:
            context.writer.call("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(pending))])
        elif queue == STORES.queue:
            assert isinstance(context.operation, Wait)
            tma.wait(context, pending, written=context.operation.written)
        return [list(tile) for tile in names]

    # ---- arithmetic

    def element_operation(self, context: SimtContext, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
        state = kernel_state(context.writer)
        half = state.wide.emit(context, name, operands, element)
        if half is not None:
            return half
        if name == "shr" and element is U32 and operands[1] == "16":
            return state.words.shifted(context.writer, operands[0])
        field = state.bit_fields.emit(context.writer, name, operands, element)
        if field is not None:
            return field
        packed = half_operation(context, state.words, name, operands, element, attributes) if self.capability >= 80 else None
        if packed is not None:
            return packed
        return arithmetic.element_operation(context.writer, self.capability, self.relaxed, name, operands, element, attributes)

    def cast(self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str) -> str | None:
        words = words_in(context.writer)
        if source in (I32, U32) and result in (F32, F16, BF16):
            fields, w = kernel_state(context.writer).bit_fields, context.writer
            field = None if result is BF16 else fields.converted(w, words, operand, result)
            if field is None and result is not F32:
                single = fields.converted(w, words, operand, F32)
                field = None if single is None else emit_cast(context, single, F32, result, 0)
            return field
        if source is U32 and result is U16:
            return words.half(context.writer, operand)
        if source in (I8, U8) and result in (F32, F16, BF16) and self.capability >= 80 and operand.startswith("%"):
            narrow = words.narrow_float(context.writer, operand, register_type(result), signed=source is I8) if result is not F32 else None
            if narrow is not None:
                return narrow
            single = words.byte(context.writer, operand, signed=source is I8)
            return single if result is F32 else emit_cast(context, single, F32, result, 0)
        pair = _PAIRS.get(result) if source is F32 and rounding == "rtne" and self.capability >= 90 else None
        name = casts.machine_cast(words, context.writer, self.capability, operand, source, result, rounding)
        if pair is not None:
            name = name or context.writer.emit(f"fptrunc float {operand} to half")
            words.round(name, operand, pair)
        return name

    def matmul_plans(self, product: Matmul) -> Sequence[MatmulPlan]:
        return (*self._wide_products(product), *mma.plans(self.capability, product))

    def _wide_products(self, product: Matmul) -> tuple[MatmulPlan, ...]:
        """Return the plans of instructions that span several warps."""
        if self.accumulator_units:
            return tcgen05.plans(product)
        return wgmma.plans(product) if self.hopper else ()

    def keeps_scaled(self, operation: DotScaled) -> bool:
        return block_scaled.serves(self.capability, operation)

    @property
    def interfaces(self) -> Mapping[str, Interface]:
        return merged(block_scaled.INTERFACES, im2col.interfaces(there=self.hopper or self.gathers))

    def keeps_descriptor(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        rows = self.gathers and (isinstance(operation, DescriptorGather) or self.capability < 120)
        return (rows if isinstance(operation, ROW_COPIES) else self.engine) and tma.keeps(operation, divisors, width)

    def wants_blocks(self, product: Matmul) -> bool:
        return bool(self._wide_products(product))

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        return tma.reaches(block, divisor)

    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        return kernel_state(context.writer).maps.tensors[operation]

    def descriptors(self, context: SimtContext, operation: Descriptors) -> str:
        return kernel_state(context.writer).maps.made.take(context, operation)

    def make_descriptor(self, context: SimtContext, operation: MakeDescriptor, made: MadeDescriptor) -> str:
        return kernel_state(context.writer).maps.made.make(context, operation, made)

    def show_descriptor(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        kernel_state(context.writer).maps.made.show(context, operation.descriptor, descriptor)

    def free_descriptors(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        kernel_state(context.writer).maps.made.give_back(context, operation.memory, memory)

    def inline_asm(
        self, context: SimtContext, text: str, constraints: str, results: Sequence[AssemblyOperand], operands: Sequence[AssemblyOperand]
    ) -> list[str]:
        marks = site(context.writer.module, context.operation.location if context.operation is not None else None)
        return emit_inline_asm(context.writer, ASSEMBLY_REGISTERS, text, constraints, results, operands, marks)

    def is_uniform_assembly(self, text: str) -> bool:
        return is_uniform(text)

    # ---- reports

    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        print_and_assert.emit_print(context.writer, form, operands, predicate)

    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        print_and_assert.emit_failure(context.writer, message, file, line, function, predicate)


def _waits_for_kernel_before(operation: Operation) -> bool:
    """Return whether an operation waits explicitly for the preceding kernel."""
    return isinstance(operation, InlineAsm) and "griddepcontrol.wait" in operation.assembly


def _special(w: FunctionWriter, name: str) -> str:
    """Read a special register."""
    return w.call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", [])
