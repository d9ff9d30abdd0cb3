"""The interface that a backend implements to describe its GPU to the toolkit.

A backend supplies one :class:`SimtTarget`; everything else is common to all backends. The target is
a record of objects with one subject each (:mod:`tilewright.simt.target.capabilities`).

A target's answer depends on its architecture, its options and the query, never on earlier queries:
a kernel that is printed after a stage and read back compiles to the same code. Whatever the code
depends on is in the kernel, or derived from it by :meth:`SimtTarget.prepare`.

Emitting methods append LLVM IR to the :class:`~tilewright.llvm.emission.writer.FunctionWriter` they
are passed and return names of values. Values have the register types of
:mod:`tilewright.llvm.emission.registers`; pointers to global memory are ``ptr``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilewright.errors import LoweringError
from tilewright.ir.core import Module
from tilewright.ir.table import OpSpec, OpTable
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.target.capabilities.arithmetic import Arithmetic
from tilewright.simt.target.capabilities.async_copy import AsyncCopies
from tilewright.simt.target.capabilities.async_proxy import AsyncProxy
from tilewright.simt.target.capabilities.clusters import Clusters
from tilewright.simt.target.capabilities.cross_lane import CrossLane
from tilewright.simt.target.capabilities.debugging import Debugging
from tilewright.simt.target.capabilities.external_functions import ExternalFunctions
from tilewright.simt.target.capabilities.global_memory import GlobalMemory
from tilewright.simt.target.capabilities.kernel_assembly import InlineAssembly
from tilewright.simt.target.capabilities.matrix import MatrixInstructions
from tilewright.simt.target.capabilities.mbarriers import Mbarriers
from tilewright.simt.target.capabilities.named_barriers import NamedBarriers
from tilewright.simt.target.capabilities.shared_memory import SharedMemory
from tilewright.simt.target.capabilities.tensor_memory import TensorMemory
from tilewright.simt.target.capabilities.thread_hierarchy import ThreadHierarchy
from tilewright.simt.target.capabilities.tma import Tma
from tilewright.simt.target.capabilities.warp_specialization import WarpSpecialization
from tilewright.simt.target.cost_model import CostModel

if TYPE_CHECKING:
    from tilewright.ir.core import Function

_Capability = TypeVar("_Capability")


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
class Resources:
    """The sizes of a GPU.

    Attributes:
        warp_size: lanes of a warp, a power of two.
        max_threads: maximum number of threads of a program.
        shared_memory: bytes of shared memory that a program may use.
        banks: banks of shared memory, of 4 bytes each.
        max_access: bytes of the widest access of one thread.
        registers: maximum number of 32-bit registers of a thread.
        register_file: maximum number of 32-bit registers of a program.
        few_registers: whether a thread has too few registers for the tiles of pipelined matmul
            loops whose loads go through registers: the loads are then serialized, and each computes
            its addresses from a single one (:mod:`tilewright.simt.pipeline.register_budget`,
            :mod:`tilewright.simt.lowering.emission.address_steps`).
        reserved_shared_memory: bytes of an SM's shared memory that the hardware takes for each
            program.
        max_resident: maximum number of programs on an SM, where the toolkit chooses the occupancy.
    """

    warp_size: int
    max_threads: int
    shared_memory: int
    banks: int
    max_access: int
    registers: int
    register_file: int
    few_registers: bool = False
    reserved_shared_memory: int = 0
    max_resident: int = 1

    def resident_memory(self, programs: int) -> int:
        """Return the bytes of shared memory of a program if ``programs`` of them share an SM."""
        return (
            self.shared_memory + self.reserved_shared_memory
        ) // programs - self.reserved_shared_memory


class OperationInterface(Protocol):
    """The shape of :class:`~tilewright.simt.dialect.op_interface.Interface`.

    Interfaces name the emission context and the layout problem, which depend on targets.
    """

    @property
    def lower(self) -> Callable[[Any, Any], None]: ...

    @property
    def layout(self) -> Callable[[Any, Any], None] | None: ...

    @property
    def check(self) -> Callable[[Any, Any], str] | None: ...

    @property
    def scratch(self) -> Callable[[Any, Any], int] | None: ...

    @property
    def effects(self) -> Callable[[Any], Any] | None: ...

    @property
    def describe(self) -> Callable[[Any, Any], list[str]] | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class VendorDialect:
    """The operations that a target adds to the toolkit's.

    Attributes:
        operations: rows of the op table for the target's own operations (``vendor.op``).
        interfaces: the :class:`~tilewright.simt.dialect.op_interface.Interface` of operations, by
            name; they override the toolkit's
            (:func:`tilewright.simt.dialect.registry.interface_of`).
    """

    operations: tuple[OpSpec, ...] = ()
    interfaces: Mapping[str, OperationInterface] = field(default_factory=dict)

    @property
    def table(self) -> OpTable:
        """The operations that a kernel for this target may contain."""
        return SIMT_TABLE.extended(self.operations) if self.operations else SIMT_TABLE


class SimtTarget(ABC):
    """A GPU whose programs run on warps of threads.

    Attributes:
        name: for messages, such as an architecture.
        costs: the cost model, which layouts, conversions and schedules are chosen by.
        resources: the sizes of the hardware.
        dialect: the target's own operations.
        threads: coordinates of threads and programs, and barriers.
        lanes: operations among the lanes of a warp.
        shared: access to shared memory.
        memory: access to global memory.
        arithmetic: instructions for elementwise operations and conversions.
        async_copy: copy mechanisms, and waits for asynchronous operations.
        matrix: matrix instructions.
        debugging: prints, assertions and the clock.
        externs: calls of external functions.
        tma, async_proxy, mbarriers, tensor_memory, clusters, named_barriers, warp_specialization,
            assembly: optional hardware; None on targets without it.
    """

    name: str
    costs: CostModel
    resources: Resources
    dialect: VendorDialect = VendorDialect()

    threads: ThreadHierarchy
    lanes: CrossLane
    shared: SharedMemory
    memory: GlobalMemory
    arithmetic: Arithmetic = Arithmetic()
    async_copy: AsyncCopies = AsyncCopies()
    matrix: MatrixInstructions = MatrixInstructions()
    debugging: Debugging
    externs: ExternalFunctions = ExternalFunctions()

    tma: Tma | None = None
    async_proxy: AsyncProxy | None = None
    mbarriers: Mbarriers | None = None
    tensor_memory: TensorMemory | None = None
    clusters: Clusters | None = None
    named_barriers: NamedBarriers | None = None
    warp_specialization: WarpSpecialization | None = None
    assembly: InlineAssembly | None = None

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Return the compilation stages: the toolkit's ``stages``, and any of the target's."""
        return stages

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
    def begin(
        self,
        module: ModuleWriter,
        name: str,
        parameters: Sequence[tuple[str, str]],
        num_warps: int,
        options: Mapping[str, Any],
    ) -> FunctionWriter:
        """Begin the kernel's LLVM function and return its writer.

        The function takes ``parameters`` (LLVM type, name) and has the attributes of a kernel of
        ``num_warps`` warps.
        """


def required(capability: _Capability | None, target: SimtTarget, what: str) -> _Capability:
    """Return a capability that a kernel needs.

    Raises:
        LoweringError: the target lacks it.
    """
    if capability is None:
        raise LoweringError(f"{target.name} has no {what}, which this kernel needs")
    return capability
