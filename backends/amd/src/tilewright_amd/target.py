"""AMD GPUs as SIMT targets: AMDGPU code through LLVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Value
from tilewright.ir.ops.arithmetic import Cast
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.types import BF16, F32, F64, I32, U32, FloatType, TileType, Type, element_type
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.assembly.assembly_sites import site
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.llvm.emission.atomics import (
    Reach,
    atomic_read,
    atomic_sum,
    atomic_update,
    atomic_write,
    compare_and_swap,
)
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.passes.analysis.intervals import UNLIMITED, float_limits
from tilewright.plugins.manifest import Target
from tilewright.simt.dialect.attributes import WARPS, layout_of
from tilewright.simt.dialect.op_interface import Interface
from tilewright.simt.dialect.ops.dot import Multiplication, Step
from tilewright.simt.dialect.types import COPIES
from tilewright.simt.layouts.linear_layout import LinearLayout, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan, matmul_of
from tilewright.simt.target.simt_target import Access, SimtTarget, Threads, Update
from tilewright_amd.architectures import MFMA, TICK, architecture
from tilewright_amd.async_copy import global_load_lds
from tilewright_amd.codegen import (
    arithmetic,
    assertions,
    casts,
    cross_lane,
    memory_access,
    prints,
    waitcnt,
)
from tilewright_amd.codegen.kernel_state import KernelState, kernel_state, state_for
from tilewright_amd.codegen.vectors import join
from tilewright_amd.instruction_costs import costs_of
from tilewright_amd.mma import block_scaled, mma

TRIPLE: Final = "amdgcn-amd-amdhsa"
#: The symbol of a program's LDS; the launch sets its size.
SHARED_SYMBOL: Final = "tilewright_shared_memory"
#: The code object version; every ROCm since 5.4 loads it.
CODE_OBJECT_VERSION: Final = 500
#: Kernel inputs that the hardware or runtime would set up and that no kernel reads.
_UNUSED: Final = (
    "workitem-id-y", "workitem-id-z", "dispatch-ptr", "queue-ptr", "dispatch-id", "heap-ptr", "hostcall-ptr", "multigrid-sync-arg", "default-queue",
    "completion-action", "lds-kernel-id", "flat-scratch-init",
)  # fmt: skip
#: Values of the option ``schedule_hint`` -> LLVM's ``iglp.opt`` strategy for blocks with MFMA
#: instructions, or None.
SCHEDULE_HINTS: Final[Mapping[str, int | None]] = {"": None, "attention": 2, "memory-bound-attention": None}
#: Atomic scope -> LLVM's ``syncscope``.
_SCOPES: Final = {"program": "workgroup", "device": "agent", "system": ""}
#: Letters of inline assembly constraints: any, vector, scalar and accumulator registers, of any
#: width.
_LETTERS: Final = {"r": "", "v": "", "s": "", "a": ""}
#: The first MFMA generation on which programs of eight waves alternate between matmul and load
#: phases.
_ALTERNATES_FROM: Final = 3


#: LLVM types that one or two ``v_readfirstlane`` instructions read.
_SCALAR: Final = frozenset({"i32", "i64", "float", "double"})


class GcnTarget(SimtTarget):
    """An AMD GPU architecture with the options of a launch.

    Attributes:
        row: the architecture.
        relaxed: whether functions may have the hardware instructions' error (the option ``math``).
    """

    max_threads, max_access = 1024, 16
    native_ldexp = True
    unrolled_trips = 4
    turned_by_loads = True
    shared_pointer = "ptr addrspace(3)"

    def __init__(self, target: Target, options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.row = architecture(target.arch)
        self.name, self.warp_size, self.banks = self.row.name, self.row.wave, self.row.banks
        self.registers, self.register_file, self.few_registers = self.row.registers, self.row.file, self.row.few_registers
        self.shared_memory = int(target.limits.get("shared_memory", self.row.shared_memory))
        self.costs = costs_of(self.row)
        self.mechanisms = (global_load_lds.mechanism(self.row.direct),) if self.row.direct else ()
        chosen = options or {}
        self.relaxed = chosen.get("math", "relaxed") == "relaxed"
        self.native_exp = self.relaxed
        self._extent, self._pack = int(chosen.get("matrix_instr_nonkdim", 0)), int(chosen.get("kpack", 1))
        self._chiplets = int(chosen.get("chiplets", 0))
        self._interleaving = SCHEDULE_HINTS.get(chosen.get("schedule_hint", ""))

    # ---- the function

    def prepare(self, function: Function) -> KernelState:
        vectors: dict[LinearLayout, int] = {}
        operations = list(function.walk())
        for product in dict.fromkeys(matmul_of(one) for one in operations if isinstance(one, Multiplication | Step)):
            vectors |= self.vectors(product)
        for operation in operations:
            if isinstance(operation, DotScaled):
                plan = self.scaled_plan(operation, function.attributes[WARPS])
                vectors[plan.c] = plan.extent**2 // 64
        return state_for(function, vectors)

    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        state = module.state
        assert isinstance(state, KernelState)
        # inline device functions into the kernel: a call would pass registers through memory
        module.attributes = "alwaysinline nounwind"
        module.add_global(f"@{SHARED_SYMBOL} = external addrspace(3) global [0 x i8], align 128")
        version = module.metadata(f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}')
        module.add_global(f"!llvm.module.flags = !{{{version}}}")
        threads = num_warps * self.warp_size
        attributes = ["nounwind", f'"amdgpu-flat-work-group-size"="{threads},{threads}"', '"uniform-work-group-size"="true"']
        attributes += [f'"amdgpu-no-{what}"' for what in self._unused(state)]
        waves = options.get("waves_per_eu")
        if waves:
            attributes.append(f'"amdgpu-waves-per-eu"="{waves}"')
        given = [(memory_access.GLOBAL, f"{parameter}.global") if type_ == "ptr" else (type_, parameter) for type_, parameter in parameters]
        if state.asserts:
            given.append(assertions.PARAMETER)
        if state.record_words:
            given.append(prints.PARAMETER)
        w = module.function(name, given, linkage="amdgpu_kernel", attributes=" ".join(attributes))
        for type_, parameter in parameters:
            if type_ == "ptr":
                w.do(f"%{parameter} = addrspacecast {memory_access.GLOBAL} %{parameter}.global to ptr")
        return w

    def _unused(self, state: KernelState) -> tuple[str, ...]:
        """Return the inputs that the kernel does not need set up."""
        groups = tuple(f"workgroup-id-{'xyz'[axis]}" for axis in (1, 2) if axis not in state.groups)
        counts = state.counts or (self._chiplets > 1 and 0 in state.groups)
        return (*_UNUSED, *groups, *(() if counts else ("implicitarg-ptr",)))

    def shared_base(self, w: FunctionWriter) -> str:
        return f"@{SHARED_SYMBOL}"

    # ---- thread indices

    def lane(self, w: FunctionWriter) -> str:
        return w.emit(f"and i32 {_thread(w)}, {self.warp_size - 1}")

    def warp(self, w: FunctionWriter) -> str:
        if kernel_state(w).num_warps == 1:
            return "0"
        # the warp index is uniform, which LLVM cannot derive from the thread index
        return w.intrinsic("llvm.amdgcn.readfirstlane", "i32", [("i32", w.emit(f"lshr i32 {_thread(w)}, {log2(self.warp_size)}"))])

    def program_id(self, w: FunctionWriter, axis: int) -> str:
        place = w.call(f"llvm.amdgcn.workgroup.id.{'xyz'[axis]}", "i32", [])
        return self._on_chiplets(w, place) if axis == 0 and self._chiplets > 1 else place

    def _on_chiplets(self, w: FunctionWriter, place: str) -> str:
        """Remap a workgroup ID so that each chiplet runs consecutive programs.

        Workgroup IDs with the same remainder modulo the number of chiplets run on one chiplet. If
        the number of chiplets does not divide the grid, the first chiplets get one program more.
        """
        count, chiplets = self.num_programs(w, 0), self._chiplets
        each, more = w.emit(f"udiv i32 {count}, {chiplets}"), w.emit(f"urem i32 {count}, {chiplets}")
        chiplet, own = w.emit(f"urem i32 {place}, {chiplets}"), w.emit(f"udiv i32 {place}, {chiplets}")
        longer = w.intrinsic("llvm.umin", "i32", [("i32", chiplet), ("i32", more)])
        first = w.emit(f"add i32 {w.emit(f'mul i32 {chiplet}, {each}')}, {longer}")
        return w.emit(f"add i32 {first}, {own}")

    def num_programs(self, w: FunctionWriter, axis: int) -> str:
        # the implicit arguments of a launch begin with the numbers of workgroups
        hidden = w.call("llvm.amdgcn.implicitarg.ptr", "ptr addrspace(4)", [])
        place = w.emit(f"getelementptr i32, ptr addrspace(4) {hidden}, i64 {axis}")
        return w.emit(f"load i32, ptr addrspace(4) {place}, align 4, !invariant.load {w.module.metadata('!{}')}")

    # ---- barriers and cross-lane operations

    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        if threads.count == 1:
            self.warp_barrier(w)
            return
        w.do(memory_access.KEEP)
        waitcnt.wait_for_shared(w, self.row)
        if kernel_state(w).announces and self.row.matrix == MFMA:
            # a wave's release waits only for its own stores, so each wave waits for its stores here
            waitcnt.wait_for_memory(w)
        if kernel_state(w).copies:
            # a fence would also wait for copies to LDS; of the accesses that it orders, only LDS
            # accesses are not already in order
            w.call("llvm.amdgcn.s.barrier", "void", [])
            w.do(memory_access.KEEP)
            return
        w.do('fence syncscope("workgroup") release')
        w.call("llvm.amdgcn.s.barrier", "void", [])
        w.do('fence syncscope("workgroup") acquire')

    def warp_barrier(self, w: FunctionWriter) -> None:
        """Keep LLVM from reordering a wave's accesses, which the hardware executes in order."""
        w.do(memory_access.KEEP)
        w.do('fence syncscope("wavefront") release')
        w.call("llvm.amdgcn.wave.barrier", "void", [])
        w.do('fence syncscope("wavefront") acquire')
        if kernel_state(w).copies:
            w.do(memory_access.KEEP)

    def alternates(self, product: Matmul) -> bool:
        """Return whether the two waves of a SIMD alternate between matmul and load phases.

        With eight waves, each SIMD of a compute unit runs two, which share its matrix unit and its
        path to LDS.
        """
        return self.row.matrix == MFMA and self.row.generation >= _ALTERNATES_FROM and product.warps == 8 and min(product.shape[-2:]) >= 128

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:
        """Raise the priority of a wave that multiplies. LLVM moves nothing across ``s_setprio``."""
        context.writer.call("llvm.amdgcn.s.setprio", "void", [("i16", "1" if matmuls else "0")])

    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        return cross_lane.bpermute(w, value, lane)

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        return cross_lane.exchange(w, self.row, value, lambda: self.lane(w), mask)

    def shuffle_all(self, w: FunctionWriter, values: Sequence[str], lane: str) -> list[str]:
        if not kernel_state(w).copies:
            return super().shuffle_all(w, values, lane)
        return cross_lane.pinned(w, values, lambda value: self.shuffle(w, value, lane))

    def shuffle_all_xor(self, w: FunctionWriter, values: Sequence[str], mask: int) -> list[str]:
        if not kernel_state(w).copies or not cross_lane.goes_through_lds(self.row, mask):
            return super().shuffle_all_xor(w, values, mask)
        return cross_lane.pinned(w, values, lambda value: self.shuffle_xor(w, value, mask))

    def uniform(self, w: FunctionWriter, value: str, type_: str) -> str:
        """Move a uniform value to scalar registers, for uniform branches and scalar bases."""
        return w.intrinsic("llvm.amdgcn.readfirstlane", type_, [(type_, value)]) if type_ in _SCALAR else value

    # ---- asynchronous copies

    def keep_order(self, w: FunctionWriter, *, everything: bool) -> None:
        w.do(memory_access.KEEP)
        if everything:
            w.call("llvm.amdgcn.sched.barrier", "void", [("i32", "0")])

    def commit(self, context: SimtContext, queue: str) -> None:
        """Emit nothing: the hardware counts copies one by one."""

    def wait(self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]) -> list[list[str]]:
        if queue != COPIES.queue:
            return super().wait(context, queue, pending, names)
        context.writer.do(memory_access.KEEP)
        global_load_lds.wait(context.writer, pending)
        context.writer.do(memory_access.KEEP)
        return [list(tile) for tile in names]

    # ---- memory

    def shared_access(self, w: FunctionWriter) -> str:
        return global_load_lds.aside(w) if kernel_state(w).copies else ""

    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        return memory_access.load(w, pointer, element, count, predicate, other, access)

    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        memory_access.store(w, pointer, element, values, predicate, access)

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        # as for all float atomics, packed adds are only valid in memory that is not fine-grained
        return 2 if kind == "add" and scope != "system" and element in self.row.packed_sums else 1

    def atomic_rmw(self, context: SimtContext, update: Update, pointer: str, values: Sequence[str], predicate: str | None) -> list[str]:
        w, element, order = context.writer, update.element, update.order
        if len(values) == 1:

            def one(place: str, reach: Reach) -> str:
                return atomic_update(context, update.kind, element, place, values[0], order, reach)

            return [_where(context, pointer, register_type(element), predicate, update.scope, one)]
        register, kept = register_type(element), "bfloat" if element is BF16 else register_type(element)
        pair = w.emit(f"bitcast <2 x {register}> {join(w, register, values)} to <2 x {kept}>") if kept != register else join(w, register, values)

        def both(place: str, reach: Reach) -> str:
            return atomic_sum(w, f"<2 x {kept}>", 4, place, pair, order, reach)

        old = _where(context, pointer, f"<2 x {kept}>", predicate, update.scope, both)
        if kept != register:
            old = w.emit(f"bitcast <2 x {kept}> {old} to <2 x {register}>")
        return [w.emit(f"extractelement <2 x {register}> {old}, i32 {i}") for i in range(2)]

    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str:
        def swap(place: str, reach: Reach) -> str:
            return compare_and_swap(context, element, place, compare, value, order, reach)

        return _where(context, pointer, register_type(element), predicate, scope, swap)

    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        return _where(context, pointer, register_type(element), predicate, scope, lambda place, reach: atomic_read(context, element, place, order, reach))

    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        def write(place: str, reach: Reach) -> str:
            atomic_write(context, element, place, value, order, reach)
            return ""

        _where(context, pointer, register_type(element), predicate, scope, write)

    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        w.do(f"fence {Reach(scope=_SCOPES[scope]).order(order)}")

    def clock(self, w: FunctionWriter) -> str:
        """Read the 100 MHz clock in nanoseconds.

        The product does not overflow, so dividing by the length of a tick restores the count.
        """
        return w.emit(f"mul nuw nsw i64 {w.call('llvm.readsteadycounter', 'i64', [])}, {TICK}")

    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        with w.when(predicate or "true"):
            w.emit(f'atomicrmw add {self.shared_pointer} {pointer}, i32 {value} syncscope("workgroup") monotonic, align 4')

    # ---- arithmetic

    def element_operation(self, context: SimtContext, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
        return arithmetic.element_operation(context.writer, self.row, self.relaxed, name, operands, element, attributes)

    def cast(self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str) -> str | None:
        operation = context.operation
        limits = float_limits(operation.x) if isinstance(operation, Cast) and isinstance(result, FloatType) and result.bits == 8 else UNLIMITED
        return casts.machine_cast(context.writer, self.row, operand, source, result, rounding, limits=limits)

    @property
    def pair_products(self) -> frozenset[Type]:
        return self.row.pair_products

    def add_pair(self, w: FunctionWriter, element: Type, x: str, y: str, total: str) -> str:
        pairs = [("<2 x bfloat>", w.emit(f"bitcast i32 {word} to <2 x bfloat>")) for word in (x, y)]
        return w.call("llvm.amdgcn.fdot2.f32.bf16", "float", [*pairs, ("float", total), ("i1", "false")])

    def matmul_plans(self, product: Matmul) -> Sequence[MatmulPlan]:
        return self._plans(product)[0]

    def vectors(self, product: Matmul) -> dict[LinearLayout, int]:
        """Return the result layouts of a matmul's plans and an instruction's elements per lane."""
        found, together = self._plans(product)
        return {plan.c: together for plan in found}

    def _plans(self, product: Matmul) -> tuple[list[MatmulPlan], int]:
        return mma.plans(self.row, product, self._extent, self._pack, self._interleaving)

    def keeps_scaled(self, operation: DotScaled) -> bool:
        return block_scaled.serves(self.row, operation)

    @property
    def interfaces(self) -> Mapping[str, Interface]:
        return block_scaled.INTERFACES

    def scaled_plan(self, operation: DotScaled, num_warps: int) -> block_scaled.ScaledPlan:
        """Plan a ``dot_scaled`` that :meth:`keeps_scaled` accepts, for ``num_warps`` warps."""
        return block_scaled.plan_of(operation, num_warps, self._extent)

    def vector_of(self, context: SimtContext, value: Value) -> int:
        element, vectors = element_type(value.type), kernel_state(context.writer).vectors
        return vectors.get(layout_of(value), 1) if element in (F32, F64, I32) else 1

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        size = storage_size(element)
        return (U32, 4 // size) if size < 4 else (element, 1)

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return names
        groups = [names[i : i + count] for i in range(0, len(names), count)]
        return [w.emit(f"bitcast <{count} x {type_}> {join(w, type_, group)} to i32") for group in groups]

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        count, type_ = self.fragment_word(element)[1], register_type(element)
        if count == 1:
            return words
        vectors = [w.emit(f"bitcast i32 {word} to <{count} x {type_}>") for word in words]
        return [w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for vector in vectors for i in range(count)]

    def inline_asm(
        self, context: SimtContext, text: str, constraints: str, results: Sequence[AssemblyOperand], operands: Sequence[AssemblyOperand]
    ) -> list[str]:
        """Emit inline assembly, with ``r`` as a vector register.

        On other targets ``r`` is a general register of each thread. The call is convergent, since
        the assembly may exchange values between lanes.

        Raises:
            LoweringError: the constraints do not fit, or put an element of a tile into a scalar
                register, although each lane has its own.
        """
        operation = context.operation
        tiles = operation is not None and any(isinstance(value.type, TileType) for value in (*operation.operands, *operation.results))
        listed = [part.strip() for part in constraints.split(",")]
        scalars = [part for part in listed if part == "s" or part.startswith("{s")]
        if scalars and tiles:
            raise LoweringError(f"constraint {scalars[0]!r} in {constraints!r} takes what all lanes share, and elements of tiles are a lane's own: take 'v'")
        own = ",".join("v".join(part.rsplit("r", 1)) if part.lstrip("=&") == "r" else part for part in listed)
        marks = f" convergent{site(context.writer.module, operation.location if operation is not None else None)}"
        return emit_inline_asm(context.writer, _LETTERS, text, own, results, operands, marks)

    # ---- reports

    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        """Write a print record: the format's number and the operands (:mod:`.codegen.prints`)."""
        state, told = kernel_state(context.writer), (form, tuple(type_ for type_, _ in operands))
        if told not in state.formats:
            state.formats.append(told)
        number = 1 + state.formats.index(told)
        prints.emit_record(context.writer, number, state.record_words, operands, predicate)

    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        """Record which assertion failed for the host, then end the queue with an error."""
        texts = kernel_state(context.writer).assertions
        texts.append(assertions.text_of(message, file, line, function))
        with context.writer.when(predicate, likely=False):
            assertions.emit_failure(context.writer, len(texts))


def _thread(w: FunctionWriter) -> str:
    return w.call("llvm.amdgcn.workitem.id.x", "i32", [])


def _where(context: SimtContext, pointer: str, type_: str, predicate: str | None, scope: str, access: Callable[[str, Reach], str]) -> str:
    """Access global memory where the predicate holds; yield zeros elsewhere."""
    w = context.writer
    place = memory_access.global_pointer(w, pointer)
    # float atomics are only valid in memory that is not fine-grained; memory is fine-grained only
    # if its allocation requests it
    sums = "" if scope == "system" else f", !amdgpu.no.fine.grained.memory {w.module.metadata('!{}')}"
    reach = Reach(memory_access.GLOBAL, _SCOPES[scope], sums)
    if predicate is None:
        return access(place, reach)
    before, then, join = w.current, w.new_block("then"), w.new_block("join")
    w.branch_if(predicate, then, join)
    w.place(then)
    found = access(place, reach)
    after = w.current
    w.branch(join)
    w.place(join)
    return w.phi(type_, ((found, after), ("null" if type_ == "ptr" else "zeroinitializer", before))) if found else ""
