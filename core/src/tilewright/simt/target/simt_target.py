"""What the toolkit asks of a machine.

A backend supplies one :class:`SimtTarget`; all else is common.

A target's answer depends on its architecture, its options and the question, never on earlier
questions: a kernel that is printed after a stage and read back compiles to the same code. What code
depends on is in the kernel, or found in it by :meth:`SimtTarget.prepare`.

Emitting methods append LLVM IR to the :class:`~tilewright.llvm.emission.writer.FunctionWriter` they
are given and return names of values. Values have the register types of
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
    """A step of the way.

    Attributes:
        name: by which it is asked for, and timed.
        run: (module with one kernel, target, launch options): rewrites the module.
        meaning: a line about it.
    """

    name: str
    run: Callable[[Module, SimtTarget, Mapping[str, Any]], None]
    meaning: str


@dataclass(frozen=True, slots=True)
class Access:
    """How memory is accessed: the attributes of the operation, as in the op table."""

    cache: str = ""
    eviction: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """How memory is updated atomically.

    Attributes:
        kind, order, scope: as in the op table.
        element: the type of an element.
        used: whether the old values are read, or needed for the order.
    """

    kind: str
    element: Type
    order: str
    scope: str
    used: bool


@dataclass(frozen=True, slots=True)
class Threads:
    """Warps that run a piece of a kernel: all of its program, or a part's.

    Attributes:
        number: of the part, from 0 on; that of all warps is 0 too.
        first: the first warp.
        count: how many they are.
        parts: into how many parts the program is divided there; 1: the whole program.
    """

    number: int
    first: int
    count: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class MadeDescriptor:
    """A descriptor that a kernel makes, as :meth:`SimtTarget.make_descriptor` gets it.

    Attributes:
        memory: the i32 by which the memory is known that it is in.
        shared: the address of shared memory in which it is put together.
        base: the address of the tensor.
        extents, strides: i64, the strides in elements.
        padding: what is read outside the tensor: ``zero`` or ``nan``.
    """

    memory: str
    shared: str
    base: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    padding: str


class SimtTarget(ABC):
    """A machine whose programs run on warps of threads.

    Attributes:
        name: for messages, such as an architecture.
        costs: what things cost there; layouts, conversions and schedules are chosen by it.
        warp_size: lanes of a warp, a power of two.
        shared_memory: bytes a program may use.
        max_threads: threads a program may have.
        banks: banks of shared memory, of 4 bytes each.
        max_access: bytes of the widest access of one thread.
        registers: registers of 32 bits that a thread may have.
        register_file: those that a program may have.
        few_registers: whether a thread's registers are too few for the tiles that pipelined loops
            over matmuls are written for, if their loads go through registers: these are then in
            flight one after the other, each by one address
            (:mod:`tilewright.simt.pipeline.register_budget`,
            :mod:`tilewright.simt.lowering.emission.address_steps`).
        shared_pointer: LLVM type of an address in shared memory. Pointers to global memory are
            ``ptr``.
        mechanisms: the ways to copy to shared memory, those preferred first.
        barrier_bytes: bytes of an mbarrier in shared memory; 0 where there are none.
        published: whether TMA copies, and matmuls that read shared memory themselves, go through a
            proxy of their own: they see what threads write there only after :meth:`publish`, and
            stay behind what threads read only then.
        cluster_blocks: CTAs that may run a program together; 1 where the machine has no such thing.
        cluster_part: rows and columns of a matmul's result that each of them has at least.
        part_warps: parts of a partition have a multiple of so many warps; 0 where a program cannot
            be divided.
        resident_programs: how many programs share a multiprocessor at most, where the toolkit
            decides on that.
        descriptor_bytes: bytes of shared memory, and their alignment, in which a descriptor is put
            together that a kernel makes; 0: the machine copies by none.


        turned_by_loads: whether an operand whose neighbours in memory a matmul does not sum over is turned by the threads that load it: each has some rows of
            what it sums over, which it puts side by side into shared memory.
        accumulator_units: units of tensor memory for accumulators (:class:`~tilewright.simt.target.matmul_plan.Accumulator`); 0 where it has none.
        unrolled_trips: known trip count up to which the code generator is to unroll small loops in full; 0: it unrolls none.
        operations: rows of the op table for operations of its own (``vendor.op``).
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

    # ---- what the toolkit is told of the machine

    @property
    def interfaces(self) -> Mapping[str, Interface]:
        """What is to be known of operations of its own, by name; they take the place of the
        toolkit's."""
        return {}

    def own_interface(self, name: str) -> Interface | None:
        """That of :attr:`interfaces` for an operation; None where the toolkit's own holds
        (:func:`tilewright.simt.dialect.registry.interface_of`)."""
        return self._own_interfaces.get(name)

    @functools.cached_property
    def _own_interfaces(self) -> Mapping[str, Interface]:
        return self.interfaces

    @property
    def table(self) -> OpTable:
        """The operations that a kernel for this target may consist of."""
        return SIMT_TABLE.extended(self.operations) if self.operations else SIMT_TABLE

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """The way of a kernel through the toolkit: ``stages`` are the toolkit's own, to which
        others may be added."""
        return stages

    def mechanism(self, name: str) -> CopyMechanism:
        """The copy mechanism of a name.

        Raises:
            LoweringError: there is none.
        """
        for found in (*self.mechanisms, THROUGH_REGISTERS):
            if found.name == name:
                return found
        raise LoweringError(f"{self.name} has no copy mechanism {name!r}; it has {', '.join(one.name for one in self.mechanisms)}")

    # ---- the function

    def prepare(self, function: Function) -> object:
        """Look at a kernel in its final form, before it is written.

        Returns:
            The state for writing it, :attr:`tilewright.llvm.emission.writer.ModuleWriter.state` of
                all writers
            that the target is given from then on: what depends on the kernel, and what is
                remembered
            of what was written, for a target is the same for all kernels.
        """
        return None

    @abstractmethod
    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        """The writer of the kernel: a function of ``parameters`` (LLVM type, name), with the
        attributes of a kernel of ``num_warps`` warps."""

    @abstractmethod
    def shared_base(self, w: FunctionWriter) -> str:
        """The address of the program's shared memory, aligned to 128 bytes at least."""

    # ---- where a thread is; all i32

    @abstractmethod
    def lane(self, w: FunctionWriter) -> str: ...

    @abstractmethod
    def warp(self, w: FunctionWriter) -> str:
        """The warp's number among all warps of the program."""

    @abstractmethod
    def program_id(self, w: FunctionWriter, axis: int) -> str: ...

    @abstractmethod
    def num_programs(self, w: FunctionWriter, axis: int) -> str: ...

    def rank(self, w: FunctionWriter) -> str:
        """The block's number among those that run the program."""
        raise AssertionError(f"{self.name} has no clusters")

    # ---- threads together

    @abstractmethod
    def barrier(self, w: FunctionWriter, threads: Threads) -> None:
        """Wait for all of ``threads``; what they wrote to shared and global memory before is seen
        by them after."""

    def meet(self, context: SimtContext) -> None:
        """Wait for all threads of all blocks of the cluster; what they did with shared memory
        before is seen by them after."""
        raise AssertionError(f"{self.name} has no clusters")

    def publish(self, w: FunctionWriter, *, everywhere: bool) -> None:
        """Let what copies blocks and multiplies see what this thread wrote to shared memory, or
        ``everywhere``, after the next barrier or arrival."""
        raise AssertionError(f"{self.name} has nothing to publish to")

    def barrier_init(self, context: SimtContext, address: str, count: int) -> None:
        """Make an mbarrier of ``count`` arrivals a phase, by one thread; more may follow, and then
        :meth:`barriers_made`."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def barriers_made(self, context: SimtContext) -> None:  # noqa: B027
        """Let all see the mbarriers that this thread made; a barrier of all threads follows."""

    def barrier_expect(self, context: SimtContext, address: str, size: int) -> None:
        """Arrive, and announce ``size`` bytes, by one thread."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def barrier_arrive_after(self, context: SimtContext, address: str) -> None:
        """Arrive, by the thread that starts matmuls into accumulators, when all that it started
        have ended."""
        raise AssertionError(f"{self.name} has no accumulators")

    def take_accumulators(self, context: SimtContext, units: int, scratch: str) -> str:
        """Take memory for sums, by all threads of the program: the i32 of its first unit.

        ``scratch`` is the address of 16 bytes of shared memory.
        """
        raise AssertionError(f"{self.name} has no accumulators")

    def free_accumulators(self, context: SimtContext, units: int, memory: str) -> None:
        """Give it back, by all threads of the program, after a barrier of theirs."""
        raise AssertionError(f"{self.name} has no accumulators")

    def warp_barrier(self, w: FunctionWriter) -> None:
        """Wait for all lanes of the warp; what they did with shared memory before is seen by them
        after."""
        raise AssertionError(f"{self.name} has no barriers of a warp")

    def barrier_arrive(self, context: SimtContext, address: str) -> None:
        """Arrive, by one thread, for others whose accesses of shared memory were before a barrier
        of theirs."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def barrier_arrive_at_all(self, context: SimtContext, address: str) -> None:
        """The same at the mbarriers of all blocks of the cluster that have this place in their
        shared memory."""
        raise AssertionError(f"{self.name} has no clusters")

    def barrier_wait(self, context: SimtContext, address: str, phase: str) -> None:
        """Wait, each thread, until the phase of parity ``phase`` (i1) has ended."""
        raise AssertionError(f"{self.name} has no mbarriers")

    def turn_wait(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Wait until it is the turn of ``place`` in an order of parts; ``order`` counts the orders
        of the kernel."""
        raise AssertionError(f"{self.name} has no turns")

    def turn_pass(self, context: SimtContext, order: int, place: int, of: int, threads: Threads) -> None:
        """Let the place after this one have its turn."""
        raise AssertionError(f"{self.name} has no turns")

    def set_registers(self, w: FunctionWriter, count: int) -> None:  # noqa: B027
        """Give each thread of the part that begins here ``count`` registers, where the machine can."""

    def part_registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        """How many registers the threads of each part should have, for its warps, where so many
        programs share a multiprocessor; those that are not named keep what they are given."""
        return {}

    def resident_memory(self, programs: int) -> int:
        """Bytes of shared memory that each of so many programs may use on a multiprocessor."""
        return self.shared_memory // programs

    def alternates(self, matmul: Matmul) -> bool:
        """Return whether the loop over a matmul is written such that one half of the warps reads
        operands while the other half multiplies."""
        return False

    def phase(self, context: SimtContext, *, matmuls: bool) -> None:  # noqa: B027
        """The warp begins to multiply, and does nothing else, or ends it."""

    @abstractmethod
    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        """The i32 ``value`` of lane ``lane`` (i32) of the warp."""

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        """The i32 ``value`` of the lane whose number differs in the bits of ``mask``."""
        return self.shuffle(w, value, w.emit(f"xor i32 {self.lane(w)}, {mask}"))

    def shuffle_all(self, w: FunctionWriter, values: Sequence[str], lane: str) -> list[str]:
        """Values that go the same way: see :meth:`shuffle`."""
        return [self.shuffle(w, value, lane) for value in values]

    def shuffle_all_xor(self, w: FunctionWriter, values: Sequence[str], mask: int) -> list[str]:
        """Values that go the same way: see :meth:`shuffle_xor`."""
        return [self.shuffle_xor(w, value, mask) for value in values]

    def reduce_warp(self, w: FunctionWriter, kind: str, value: str, element: Type) -> str | None:
        """What all lanes of the warp have of ``value`` together, by the commutative operation
        ``kind`` of the op table, in every lane, where one instruction computes that exactly; None
        where none does."""
        return None

    # ---- memory

    def touch_shared(self, w: FunctionWriter, address: str, *, writes: bool) -> None:  # noqa: B027
        """Write what a machine that watches accesses of shared memory does at each of them."""

    def shared_access(self, w: FunctionWriter) -> str:
        """What LLVM is told of each load from shared memory and store to it: metadata, after a
        comma."""
        return ""

    @abstractmethod
    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        """``count`` consecutive elements from global memory, in one access aligned to its size (at
        most :attr:`max_access` bytes). Where ``predicate`` (i1) is false nothing is read and the
        result is ``other``, or anything where that is None."""

    @abstractmethod
    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        """Consecutive elements to global memory, in one access, where ``predicate`` holds."""

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        """How many consecutive elements one atomic update takes at most, a power of two.

        Their address is a multiple of the size of all of them together, and each is updated by
        itself: no other thread sees them change at once.
        """
        return 1

    @abstractmethod
    def atomic_rmw(self, context: SimtContext, update: Update, pointer: str, values: Sequence[str], predicate: str | None) -> list[str]:
        """Update consecutive elements of global memory (a power of two, :meth:`atomic_width` at
        most) atomically, by one thread, where ``predicate`` holds.

        Returns:
            The old values: anything where the predicate is false, and nothing of use where they are
                not ``update.used``.
        """

    @abstractmethod
    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str: ...

    @abstractmethod
    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        """An element of global memory, read whole by one thread (anything where the predicate is
        false)."""

    @abstractmethod
    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        """An element of global memory, written whole by one thread."""

    @abstractmethod
    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        """Order this thread's accesses of global memory before the fence and after it (``release``
        or ``acquire``): a release before relaxed atomic accesses, or an acquire after them, makes
        each of them one of that order."""

    @abstractmethod
    def clock(self, w: FunctionWriter) -> str:
        """Nanoseconds by a clock of the device that never goes back, as an i64."""

    @abstractmethod
    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        """Add an i32 to shared memory."""

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        """What fragments of a matmul's operands are kept in between its steps: the type of a word,
        and how many elements it holds."""
        return element, 1

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        """The words (:meth:`fragment_word`) of a fragment whose registers are ``names``."""
        return names

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        """The registers of a fragment in words that :meth:`pack` made."""
        return words

    def read_fragments(self, context: SimtContext, address: str, layout: LinearLayout, shared: SharedLayout, element: Type) -> list[str] | None:
        """The registers of a tile that is at an address in shared memory, by an instruction that
        loads the fragments of operands, where the machine has one and it is run less often than the
        accesses of each thread would be; None where those serve."""
        return None

    def vector_of(self, context: SimtContext, value: Value) -> int:
        """How many registers of a tile, neighbours in their order, the machine's matmuls take and
        give as one vector: so it is carried by control flow."""
        return 1

    # ---- what is in flight

    def keep_order(self, w: FunctionWriter, *, everything: bool) -> None:  # noqa: B027
        """Keep the code generator from moving accesses of memory, or ``everything``, across this
        place, where it would."""

    def commit(self, context: SimtContext, queue: str) -> None:
        """End a group of what this thread started in a queue."""
        raise AssertionError(f"{self.name} has no groups of {queue}")

    def wait(self, context: SimtContext, queue: str, pending: int, names: Sequence[Sequence[str]]) -> list[list[str]]:
        """Wait until at most ``pending`` groups of this thread (copies, of a mechanism that counts
        those) are in flight in a queue; the registers of the tiles that may be read then, given
        those in which they are made. At the end of a loop, matmuls are waited for of which no tile
        is read yet. Loads into registers are waited for by who reads them, unless a target says
        otherwise."""
        if queue == LOADS.queue:
            return [list(tile) for tile in names]
        raise AssertionError(f"{self.name} has no groups of {queue}")

    def uniform(self, w: FunctionWriter, value: str, type_: str) -> str:
        """A value of an LLVM type that is the same in all threads of a warp, in a way that the code
        generator sees it."""
        return value

    # ---- arithmetic

    #: the bitcode that the launch gives, where the target takes any; see :mod:`.externs`
    libraries: Libraries | None = None

    #: whether LLVM has an instruction of the machine for ``x * 2**n``
    native_ldexp: bool = False
    #: Whether exp of f32 is the machine's own where it is computed, so that functions made of it
    #: are written with it.
    native_exp: bool = False

    def element_operation(self, context: SimtContext, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
        """The machine's own way to compute an elementwise operation of the op table on scalars of
        type ``element``, in the accuracy the attributes ask for; None where the common one
        (:mod:`tilewright.llvm.emission.elementwise`) serves."""
        return None

    def cast(self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str) -> str | None:
        """The machine's own conversion; None where the common one
        (:mod:`tilewright.llvm.emission.casts`) serves."""
        return None

    def matmul_plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        """The plans by which matrix instructions compute a matmul, those preferred first; none
        where there are none: the toolkit then computes it by multiplications and additions."""
        return ()

    @property
    def pair_products(self) -> frozenset[Type]:
        """Types of 16 bits of which one instruction adds two products to an f32 number; see
        :meth:`add_pair`."""
        return frozenset()

    def add_pair(self, w: FunctionWriter, element: Type, x: str, y: str, total: str) -> str:
        """An f32 number with the products of two words' elements, of one of :attr:`pair_products`,
        added to it: lower by lower, upper by upper."""
        raise AssertionError(f"{self.name} adds no pairs of products")

    def inline_asm(
        self, context: SimtContext, text: str, constraints: str, results: Sequence[AssemblyOperand], operands: Sequence[AssemblyOperand]
    ) -> list[str]:
        """Run the target's assembly on one group of elements, and return the values of its results.

        The operation is the context's.

        Raises:
            LoweringError: the constraints do not fit; who calls adds the place.
        """
        raise AssertionError(f"{self.name} takes no inline assembly")

    def is_uniform_assembly(self, text: str) -> bool:
        """Return whether all threads that run assembly on the same inputs get the same: it reads
        nothing of a thread's own, and no memory.

        By default that is not known, and conditions made of its results may differ between threads
        (:mod:`tilewright.simt.analysis.divergence`).
        """
        return False

    def extern(self, context: SimtContext, symbol: str, library: str, result: Type, operands: Sequence[tuple[Type, str]]) -> str:
        """Call a function of a library of the target's on (element type, name) operands.

        By default it is one of :attr:`libraries`; where there are none, a function of that symbol,
        which takes and gives booleans as bytes, is left to be linked.
        """
        w = context.writer
        if self.libraries is not None:
            return call_extern(w, self.libraries, symbol, result, operands)
        arguments = [(storage_type(type_), w.emit(f"zext i1 {name} to i8") if type_ is I1 else name) for type_, name in operands]
        value = w.call(symbol, storage_type(result), arguments)
        return w.emit(f"trunc i8 {value} to i1") if result is I1 else value

    def keeps_descriptor(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        """Return whether a load or store through a descriptor is left as it is, for the machine's
        own tensor copies: a mechanism of kind ``barrier``. The descriptor is the kernel's argument
        or, where there are :attr:`descriptor_bytes`, made in it (``make_descriptor``). ``divisors``
        are powers of two that divide the block's offsets, one an axis, or the first column of rows
        that numbers name; ``width`` is one that divides the tensor's last extent, in elements."""
        return False

    def keeps_scaled(self, operation: DotScaled) -> bool:
        """Return whether a ``dot_scaled`` is left as it is, for the machine's own instructions: its
        interface is then among :attr:`interfaces`. Others become matmuls of operands that are
        scaled first."""
        return False

    def wants_blocks(self, matmul: Matmul) -> bool:
        """Return whether loads at pointers that feed a matmul in a loop are to be raised to TMA
        copies, by descriptors made at the launch."""
        return False

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        """Return whether TMA copies reach a tensor whose address and strides, and whose blocks'
        places in a row, are multiples of so many bytes."""
        return False

    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        """What stands for the descriptor of a ``simt.tensor``, as the ``ptr`` of a descriptor that
        is an argument does."""
        raise AssertionError(f"{self.name} wants no blocks")

    def descriptors(self, context: SimtContext, operation: Descriptors) -> str:
        """Memory of this program's own for the descriptors that are made in it
        (``simt.descriptors``): an i32 by which it is known. All threads of the program, or of a
        part, run this, and the first of them gets the memory."""
        raise AssertionError(f"{self.name} makes no descriptors")

    def make_descriptor(self, context: SimtContext, operation: MakeDescriptor, made: MadeDescriptor) -> str:
        """Make a descriptor (``simt.make_descriptor``), by the first of the threads that run this,
        or its warp: the ``ptr`` that copies take for it which that thread starts, once it is shown.
        """
        raise AssertionError(f"{self.name} makes no descriptors")

    def show_descriptor(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        """Let copies that the first of the threads that run this starts after read a descriptor
        that it made (``simt.show_descriptor``)."""
        raise AssertionError(f"{self.name} makes no descriptors")

    def free_descriptors(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        """Give memory for descriptors back, by the thread that got it (``simt.free_descriptors``)."""
        raise AssertionError(f"{self.name} makes no descriptors")

    # ---- reports

    @abstractmethod
    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        """Print by a C format; operands are (LLVM type, name) of i32, i64, double or pointer."""

    @abstractmethod
    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        """Stop the kernel with an error where ``predicate`` holds."""
