"""The interface that a backend implements to describe its GPU to the toolkit.

A backend supplies one :class:`SimtTarget`; everything else is common to all backends.

A target's answer depends on its architecture, its options and the query, never on earlier queries:
a kernel that is printed after a stage and read back compiles to the same code. Whatever the code
depends on is in the kernel, or derived from it by :meth:`SimtTarget.prepare`.

Emitting methods append LLVM IR to the :class:`~tilewright.llvm.emission.writer.FunctionWriter` they
are passed and return names of values. Values have the register types of
:mod:`tilewright.llvm.emission.registers`; pointers to global memory are ``ptr``.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.errors import LoweringError
from tilewright.ir.core import Module, Value
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.table import OpSpec, OpTable
from tilewright.ir.types import I1, DescriptorType, Type
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.ops.tensor_maps import Descriptors, FreeDescriptors, MakeDescriptor, ShowDescriptor, Tensor
from tilewright.simt.dialect.types import LOADS
from tilewright.simt.target.copy_mechanism import THROUGH_REGISTERS, BlockAccess, CopyMechanism
from tilewright.simt.target.cost_model import MachineCosts
from tilewright.simt.target.externs import call_extern
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan

if TYPE_CHECKING:
    from tilewright.ir.core import Function
    from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
    from tilewright.llvm.codegen.libraries import Libraries
    from tilewright.simt.dialect.op_interface import Interface
    from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
    from tilewright.simt.lowering.emission.context import SimtContext


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the compilation.

    Attributes:
        name: the name that selects the stage and labels its time.
        run: (module with one kernel, target, launch options): rewrites the module.
        meaning: a one-line description.
    """

    name: str
    run: Callable[[Module, SimtTarget, Mapping[str, Any]], None]
    meaning: str


@dataclass(frozen=True, slots=True)
class Access:
    """The cache and eviction hints of a memory access, as in the op table."""

    cache: str = ""
    eviction: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """An atomic update of memory.

    Attributes:
        kind, order, scope: as in the op table.
        element: the type of an element.
        used: whether the old values are read, or needed for the memory order.
    """

    kind: str
    element: Type
    order: str
    scope: str
    used: bool


@dataclass(frozen=True, slots=True)
class Threads:
    """The warps that run a piece of a kernel: the whole program, or one warp-specialized partition.

    Attributes:
        number: the partition's number, from 0 on; also 0 for all warps of the program.
        first: the first warp.
        count: the number of warps.
        parts: the number of partitions of the program at this point; 1: the program is not divided.
    """

    number: int
    first: int
    count: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class MadeDescriptor:
    """A device-side descriptor, as :meth:`SimtTarget.make_descriptor` receives it.

    Attributes:
        memory: the i32 that identifies the global memory of the descriptor.
        shared: the address of the shared memory in which the descriptor is assembled.
        base: the address of the tensor.
        extents, strides: i64, the strides in elements.
        padding: the value of elements outside the tensor: ``zero`` or ``nan``.
    """

    memory: str
    shared: str
    base: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    padding: str


class SimtTarget(ABC):
    """A GPU whose programs run on warps of threads.

    Attributes:
        name: for messages, such as an architecture.
        costs: the cost model, which layouts, conversions and schedules are chosen by.
        warp_size: lanes of a warp, a power of two.
        shared_memory: bytes of shared memory that a program may use.
        max_threads: maximum number of threads of a program.
        banks: banks of shared memory, of 4 bytes each.
        max_access: bytes of the widest access of one thread.
        registers: maximum number of 32-bit registers of a thread.
        register_file: maximum number of 32-bit registers of a program.
        few_registers: whether a thread has too few registers for the tiles of pipelined matmul
            loops whose loads go through registers: the loads are then serialized, and each computes
            its addresses from a single one (:mod:`tilewright.simt.pipeline.register_budget`,
            :mod:`tilewright.simt.lowering.emission.address_steps`).
        shared_pointer: LLVM type of an address in shared memory. Pointers to global memory are
            ``ptr``.
        mechanisms: the copy mechanisms into shared memory, in order of preference.
        barrier_bytes: bytes of an mbarrier in shared memory; 0 if the target has none.
        published: whether TMA copies, and matmuls that read shared memory themselves, use the async
            proxy: a proxy fence (:meth:`publish`) orders a thread's own reads and writes of shared
            memory before theirs.
        cluster_blocks: maximum number of CTAs of a cluster; 1 if the target has no clusters.
        cluster_part: minimum rows and columns of a matmul's result for each CTA of a cluster.
        part_warps: the number of warps of a partition is a multiple of this; 0 if the target has no
            warp specialization.
        resident_programs: maximum number of programs on an SM, where the toolkit chooses the
            occupancy.
        descriptor_bytes: size and alignment of the shared memory in which a device-side descriptor
            is assembled; 0 if the target's copies use none.
        turned_by_loads: whether the threads that load an operand transpose it if it is contiguous
            along an axis that the matmul does not sum over: each thread holds some rows along K and
            stores them side by side into shared memory.
        accumulator_units: columns of tensor memory for accumulators
            (:class:`~tilewright.simt.target.matmul_plan.Accumulator`); 0 if the target has none.
        unrolled_trips: maximum known trip count of small loops that the code generator is asked to
            unroll in full; 0: it unrolls none.
        operations: rows of the op table for the target's own operations (``vendor.op``).
    """

    name: str
    costs: MachineCosts
    warp_size: int
    shared_memory: int
    max_threads: int
    banks: int
    max_access: int
    registers: int
    register_file: int
    few_registers: bool = False
    shared_pointer: str = "ptr"
    mechanisms: Sequence[CopyMechanism] = ()
    barrier_bytes: int = 0
    published: bool = False
    cluster_blocks: int = 1
    cluster_part: tuple[int, int] = (1, 1)
    part_warps: int = 0
    resident_programs: int = 1

    descriptor_bytes: int = 0
    unrolled_trips: int = 0

    turned_by_loads: bool = False
    accumulator_units: int = 0
    operations: tuple[OpSpec, ...] = ()

    def __init__(self) -> None:
        #: the plans of matmuls: a cache of :func:`tilewright.simt.target.plan_selection.plans`
        self.known_plans: dict[Matmul, tuple[MatmulPlan, ...]] = {}

    # ---- queries of the target

    @property
    def interfaces(self) -> Mapping[str, Interface]:
        """Interfaces of the target's own operations, by name; they override the toolkit's."""
        return {}

    def own_interface(self, name: str) -> Interface | None:
        """Return the entry of :attr:`interfaces` for an operation, or None if there is none.

        The toolkit's interface then holds (:func:`tilewright.simt.dialect.registry.interface_of`).
        """
        return self._own_interfaces.get(name)

    @functools.cached_property
    def _own_interfaces(self) -> Mapping[str, Interface]:
        return self.interfaces

    @property
    def table(self) -> OpTable:
        """The operations that a kernel for this target may contain."""
        return SIMT_TABLE.extended(self.operations) if self.operations else SIMT_TABLE

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Return the compilation stages: the toolkit's ``stages``, and any of the target's."""
        return stages

    def mechanism(self, name: str) -> CopyMechanism:
        """Return the copy mechanism of the given name.

        Raises:
            LoweringError: the target has no such mechanism.
        """
        for found in (*self.mechanisms, THROUGH_REGISTERS):
            if found.name == name:
                return found
        raise LoweringError(f"{self.name} has no copy mechanism {name!r}; it has {', '.join(one.name for one in self.mechanisms)}")

    # ---- the function

    def prepare(self, function: Function) -> object:
        """Analyze a kernel in its final form, before it is emitted.

        Returns:
            The state of the kernel's emission, which becomes
            :attr:`tilewright.llvm.emission.writer.ModuleWriter.state` of all writers that the
            target is passed from then on. It holds what depends on the kernel and what the emission
            remembers, because one target serves all kernels.
        """
        return None

    @abstractmethod
    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        """Begin the kernel's LLVM function and return its writer.

        The function takes ``parameters`` (LLVM type, name) and has the attributes of a kernel of
        ``num_warps`` warps.
        """

    @abstractmethod
    def shared_base(self, w: FunctionWriter) -> str:
        """Emit the address of the program's shared memory, aligned to at least 128 bytes."""

    # ---- thread and program coordinates; all i32

    @abstractmethod
    def lane(self, w: FunctionWriter) -> str: ...

    @abstractmethod
    def warp(self, w: FunctionWriter) -> str:
        """Emit the warp's number among all warps of the program."""

    @abstractmethod
    def program_id(self, w: FunctionWriter, axis: int) -> str: ...

    @abstractmethod
    def num_programs(self, w: FunctionWriter, axis: int) -> str: ...

    def rank(self, w: FunctionWriter) -> str:
        """Emit the CTA's rank in its cluster."""
        raise AssertionError(f"{self.name} has no clusters")

    # ---- synchronization

    @abstractmethod
    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        """Emit a barrier of ``threads``.

        It makes their earlier writes to shared and global memory visible to all of them.
        """

    def meet(self, context: SimtContext) -> None:
        """Emit a cluster barrier: wait for all threads of all CTAs of the cluster.

        It orders their accesses of shared memory before the barrier ahead of those after it.
        """
        raise AssertionError(f"{self.name} has no clusters")

    def publish(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """Emit a proxy fence, for shared memory or, if ``everywhere``, for all memory.

        This thread's writes are visible to TMA copies and to matmuls through the async proxy after
        the next barrier or arrival.
        """
        raise AssertionError(f"{self.name} has nothing to publish to")

    def barrier_init(self, context: SimtContext, address: str, count: int) -> None:
        """Initialize, in one thread, an mbarrier that expects ``count`` arrivals a phase.

        More may follow; :meth:`barriers_made` comes after the last one.
        """
        raise AssertionError(f"{self.name} has no mbarriers")

    def barriers_made(self, context: SimtContext) -> None:  # noqa: B027
        """Make the mbarriers that this thread initialized visible, before a barrier of all."""

    def barrier_expect(self, context: SimtContext, address: str, size: int) -> None:
        """Arrive at an mbarrier and expect ``size`` bytes (``arrive.expect_tx``), in one thread."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def barrier_arrive_after(self, context: SimtContext, address: str) -> None:
        """Arrive at an mbarrier once all matmuls into accumulators in flight have completed.

        The thread that starts those matmuls emits this.
        """
        raise AssertionError(f"{self.name} has no accumulators")

    def take_accumulators(self, context: SimtContext, units: int, scratch: str) -> str:
        """Allocate tensor memory, by all threads; return the i32 of its first column.

        ``scratch`` is the address of 16 bytes of shared memory.
        """
        raise AssertionError(f"{self.name} has no accumulators")

    def free_accumulators(self, context: SimtContext, units: int, memory: str) -> None:
        """Free tensor memory for accumulators, by all threads, after a barrier of theirs."""
        raise AssertionError(f"{self.name} has no accumulators")

    def warp_barrier(self, w: FunctionWriter) -> None:
        """Emit a warp barrier, which orders the lanes' accesses of shared memory."""
        raise AssertionError(f"{self.name} has no barriers of a warp")

    def barrier_arrive(self, context: SimtContext, address: str) -> None:
        """Arrive at an mbarrier, in one thread, on behalf of threads that passed a barrier with it.

        Their accesses of shared memory before that barrier are complete.
        """
        raise AssertionError(f"{self.name} has no mbarriers")

    def barrier_arrive_at_all(self, context: SimtContext, address: str) -> None:
        """Arrive as :meth:`barrier_arrive` does, at this mbarrier in every CTA of the cluster."""
        raise AssertionError(f"{self.name} has no clusters")

    def barrier_wait(self, context: SimtContext, address: str, phase: str) -> None:
        """Wait, in each thread, until the phase of parity ``phase`` (i1) has completed."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def turn_wait(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Wait at a named barrier for the turn of ``place`` in a hand-off among partitions.

        ``order`` numbers the hand-offs of the kernel.
        """
        raise AssertionError(f"{self.name} has no turns")

    def turn_pass(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Arrive at the named barrier of the next partition in an ordered hand-off."""
        raise AssertionError(f"{self.name} has no turns")

    def set_registers(self, w: FunctionWriter, count: int) -> None:  # noqa: B027
        """Set the register count of a thread in the partition that begins, where supported."""

    def part_registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        """Return the register count of a thread in each partition, by name.

        ``programs`` is the number of programs on an SM. Partitions that are absent from the result
        keep the count they start with.
        """
        return {}

    def resident_memory(self, programs: int) -> int:
        """Return the bytes of shared memory of a program if ``programs`` of them share an SM."""
        return self.shared_memory // programs

    def alternates(self, matmul: Matmul) -> bool:
        """Return whether a matmul's loop is written as ping-pong of two halves of the warps.

        One half reads operands while the other half computes.
        """
        return False

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:  # noqa: B027
        """Mark that the warp begins a phase of matmuls alone (``matmuls``), or ends it."""

    @abstractmethod
    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        """Emit a shuffle: the i32 ``value`` of lane ``lane`` (i32) of the warp."""

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        """Emit a butterfly shuffle of the i32 ``value``: lanes are paired by ``mask``."""
        return self.shuffle(w, value, w.emit(f"xor i32 {self.lane(w)}, {mask}"))

    def shuffle_all(self, w: FunctionWriter, values: Sequence[str], lane: str) -> list[str]:
        """Emit shuffles of several values from the same lane: see :meth:`shuffle`."""
        return [self.shuffle(w, value, lane) for value in values]

    def shuffle_all_xor(self, w: FunctionWriter, values: Sequence[str], mask: int) -> list[str]:
        """Emit butterfly shuffles of several values with the same mask: see :meth:`shuffle_xor`."""
        return [self.shuffle_xor(w, value, mask) for value in values]

    def reduce_warp(self, w: FunctionWriter, kind: str, value: str, element: Type) -> str | None:
        """Reduce ``value`` over the lanes of the warp by one instruction, for every lane.

        ``kind`` is a commutative operation of the op table. Returns None if no instruction computes
        the reduction exactly.
        """
        return None

    # ---- memory

    def touch_shared(self, w: FunctionWriter, address: str, *, writes: bool) -> None:  # noqa: B027
        """Instrument an access of shared memory, on targets that check such accesses."""

    def shared_access(self, w: FunctionWriter) -> str:
        """Return the LLVM metadata of each load and store of shared memory, after a comma."""
        return ""

    @abstractmethod
    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        """Load ``count`` consecutive elements from global memory in one naturally aligned access.

        The access has at most :attr:`max_access` bytes. If ``predicate`` (i1) is false nothing is
        read and the result is ``other``, or undefined if that is None.
        """

    @abstractmethod
    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        """Store consecutive elements to global memory in one access, if ``predicate`` holds."""

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        """Return the maximum number of consecutive elements of one atomic update, a power of two.

        The address is a multiple of the size of all of them together. Each element is updated
        atomically by itself; other threads may see the updates of the elements at different times.
        """
        return 1

    @abstractmethod
    def atomic_rmw(self, context: SimtContext, update: Update, pointer: str, values: Sequence[str], predicate: str | None) -> list[str]:
        """Update consecutive elements of global memory atomically, if ``predicate`` holds.

        One thread updates them. They are at most :meth:`atomic_width` in number, a power of two.

        Returns:
            The old values; undefined if the predicate is false or they are not ``update.used``.
        """

    @abstractmethod
    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str: ...

    @abstractmethod
    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        """Load an element of global memory atomically, in one thread, if ``predicate`` holds."""

    @abstractmethod
    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        """Store an element of global memory atomically, in one thread."""

    @abstractmethod
    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        """Emit a ``release`` or ``acquire`` fence for this thread's accesses of global memory.

        A release fence before relaxed atomic accesses, or an acquire fence after them, gives each
        of them that order.
        """

    @abstractmethod
    def clock(self, w: FunctionWriter) -> str:
        """Emit the nanoseconds of a monotonic device clock, as an i64."""

    @abstractmethod
    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        """Add an i32 to shared memory atomically."""

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        """Return the word type of fragments between matmul steps, and its element count.

        By default an element is a word of its own; a target may pack several elements into a word.
        """
        return element, 1

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        """Pack the registers of a fragment, ``names``, into words of type :meth:`fragment_word`."""
        return names

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        """Return the registers of a fragment from words that :meth:`pack` made."""
        return words

    def read_fragments(self, context: SimtContext, address: str, layout: LinearLayout, shared: SharedLayout, element: Type) -> list[str] | None:
        """Read a tile from shared memory by the matrix-load instruction for operand fragments.

        Returns None if the target has no such instruction, or if it takes at least as many
        instructions as the accesses of each thread.
        """
        return None

    def vector_of(self, context: SimtContext, value: Value) -> int:
        """Return how many neighboring registers of a tile the target's matmuls use as one vector.

        Control flow carries the tile in vectors of that length.
        """
        return 1

    # ---- asynchronous operations in flight

    def keep_order(self, w: FunctionWriter, *, everything: bool) -> None:  # noqa: B027
        """Keep the code generator from moving accesses, or ``everything``, across this point."""

    def commit(self, context: SimtContext, queue: str) -> None:
        """End the group of asynchronous operations that this thread has started in a queue."""
        raise AssertionError(f"{self.name} has no groups of {queue}")

    def wait(self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]) -> list[list[str]]:
        """Wait until at most ``pending`` of this thread's groups are in flight in a queue.

        If the mechanism counts single copies, ``pending`` is a number of copies. ``names`` are the
        registers of the tiles in flight; returns the registers of the tiles that may be read after
        the wait. At the end of a loop, a wait for matmuls has no tiles, because none is read yet.
        Loads into registers are waited for by their readers, unless a target overrides this.
        """
        if queue == LOADS.queue:
            return [list(tile) for tile in names]
        raise AssertionError(f"{self.name} has no groups of {queue}")

    def uniform(self, w: FunctionWriter, value: str, type_: str) -> str:
        """Mark a value as warp-uniform for the code generator; return the marked value."""
        return value

    # ---- arithmetic

    #: the bitcode libraries of the launch, where the target supports any; see :mod:`.externs`
    libraries: Libraries | None = None

    #: whether the target has an instruction for ``x * 2**n``
    native_ldexp: bool = False
    #: Whether exp of f32 maps to a target instruction, so that functions built on exp
    #: are expanded with it.
    native_exp: bool = False

    def element_operation(self, context: SimtContext, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
        """Emit an elementwise operation on scalars by the target's own instructions.

        The scalars have type ``element``; the attributes state the accuracy. Returns None if the
        common expansion (:mod:`tilewright.llvm.emission.elementwise`) serves.
        """
        return None

    def cast(self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str) -> str | None:
        """Emit a conversion by the target's own instructions.

        Returns None if the common expansion (:mod:`tilewright.llvm.emission.casts`) serves.
        """
        return None

    def matmul_plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        """The plans by which matrix instructions compute a matmul, in order of preference.

        If there are none, the toolkit computes the matmul by multiply-adds.
        """
        return ()

    @property
    def pair_products(self) -> frozenset[Type]:
        """16-bit types of which one instruction adds two products to an f32.

        See :meth:`add_pair`.
        """
        return frozenset()

    def add_pair(self, w: FunctionWriter, element: Type, x: str, y: str, total: str) -> str:
        """Emit the dot product of two elements packed in ``x`` and in ``y``, plus f32 ``total``.

        The elements have one of the types :attr:`pair_products`.
        """
        raise AssertionError(f"{self.name} adds no pairs of products")

    def inline_asm(
        self, context: SimtContext, text: str, constraints: str, results: Sequence[AssemblyOperand], operands: Sequence[AssemblyOperand]
    ) -> list[str]:
        """Emit inline assembly on one group of elements, and return the values of its results.

        The operation is ``context.operation``.

        Raises:
            LoweringError: the constraints do not fit; the caller adds the source location.
        """
        raise AssertionError(f"{self.name} takes no inline assembly")

    def is_uniform_assembly(self, text: str) -> bool:
        """Return whether assembly yields equal results in all threads with equal inputs.

        It then reads no per-thread state and no memory. By default this is unknown, and conditions
        computed from its results may diverge (:mod:`tilewright.simt.analysis.divergence`).
        """
        return False

    def extern(self, context: SimtContext, symbol: str, library: str, result: Type, operands: Sequence[tuple[Type, str]]) -> str:
        """Call an external function on (element type, name) operands.

        By default the function is one of :attr:`libraries`. Without libraries, a function of that
        symbol, which takes and returns booleans as bytes, is left to the linker.
        """
        w = context.writer
        if self.libraries is not None:
            return call_extern(w, self.libraries, symbol, result, operands)
        arguments = [(storage_type(type_), w.emit(f"zext i1 {name} to i8") if type_ is I1 else name) for type_, name in operands]
        value = w.call(symbol, storage_type(result), arguments)
        return w.emit(f"trunc i8 {value} to i1") if result is I1 else value

    def keeps_descriptor(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        """Return whether a descriptor load or store is kept for the target's tensor copies.

        Those are a mechanism of kind ``barrier``. The descriptor is the kernel's argument or, if
        there are :attr:`descriptor_bytes`, made in the kernel (``make_descriptor``). ``divisors``
        are powers of two that divide the block's offsets, one an axis, or the first column of a
        gather or scatter of rows; ``width`` is one that divides the tensor's last extent, in
        elements.
        """
        return False

    def keeps_scaled(self, operation: DotScaled) -> bool:
        """Return whether a ``dot_scaled`` is kept for the target's own instructions.

        Its interface is then among :attr:`interfaces`. Otherwise it becomes a matmul of operands
        that are scaled first.
        """
        return False

    def wants_blocks(self, matmul: Matmul) -> bool:
        """Return whether loads at pointers that feed a matmul in a loop are promoted to TMA copies.

        Their tensor maps are made on the host at the launch.
        """
        return False

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        """Return whether TMA copies can access a tensor with the given byte alignment.

        Its address and strides, and the offsets of its blocks in a row, are multiples of
        ``divisor`` bytes.
        """
        return False

    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        """Return the ``ptr`` of the descriptor that a ``simt.tensor`` stands for."""
        raise AssertionError(f"{self.name} wants no blocks")

    def descriptors(self, context: SimtContext, operation: Descriptors) -> str:
        """Allocate the program's memory for device-side descriptors; return an i32 handle.

        All threads of the program, or of a partition, run this (``simt.descriptors``), and the
        first one allocates.
        """
        raise AssertionError(f"{self.name} makes no descriptors")

    def make_descriptor(self, context: SimtContext, operation: MakeDescriptor, made: MadeDescriptor) -> str:
        """Make a device-side descriptor (``simt.make_descriptor``) and return its ``ptr``.

        The first of the threads that run this, or its warp, makes it. Copies that this thread
        starts may use it after :meth:`show_descriptor`.
        """
        raise AssertionError(f"{self.name} makes no descriptors")

    def show_descriptor(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        """Make a device-side descriptor visible to copies that its thread starts afterwards.

        That thread is the first one that runs this (``simt.show_descriptor``).
        """
        raise AssertionError(f"{self.name} makes no descriptors")

    def free_descriptors(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        """Free the memory of device-side descriptors, in the thread that allocated it."""
        raise AssertionError(f"{self.name} makes no descriptors")

    # ---- reports

    @abstractmethod
    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        """Print by a C format; operands are (LLVM type, name) of i32, i64, double or ptr."""

    @abstractmethod
    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        """Stop the kernel with an error if ``predicate`` holds."""
