"""What the toolkit asks of a machine. A backend supplies one :class:`SimtTarget`; all else is common.

Emitting methods append LLVM IR to the :class:`~tilewright.llvm.writer.FunctionWriter` they are given and return names of values. Values have the register
types of :mod:`tilewright.llvm.registers`; pointers to global memory are ``ptr``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.ir.core import Operation
from tilewright.ir.types import I1, FloatType, IntType, Type
from tilewright.llvm.registers import storage_type
from tilewright.llvm.writer import FunctionWriter, ModuleWriter
from tilewright.simt.linear_layout import LinearLayout, SharedLayout

if TYPE_CHECKING:
    from tilewright.ir.core import Function
    from tilewright.simt.assignment import Assignment
    from tilewright.simt.context import SimtContext


@dataclass(frozen=True, slots=True)
class Access:
    """How memory is accessed: the attributes of the operation, as in the op table."""

    cache: str = ""
    eviction: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """A tile in shared memory, as a matrix product reads it.

    Attributes:
        address: the name of its address.
        shared: where its elements are.
        element: their type.
    """

    address: str
    shared: SharedLayout
    element: Type


@dataclass(frozen=True, slots=True)
class DotPlan:
    """How a matrix product of one program is computed: where its operands and its accumulator are, and the instructions.

    Attributes:
        a, b, c: layouts of a (M x K), b (K x N), and of c and the result (M x N); with leading axes for batches.
        emit: (context, registers of a, of b, of c) -> registers of the result; None with ``emit_shared``.
        instruction: its name, for inspection.
        a_shared, b_shared: the shared layouts that a fast load of the operands wants, if there are any.
        load_a, load_b: (context, address of the shared tile, its shared layout) -> the operand's registers, where the machine has an instruction that
            loads fragments; None where the toolkit's own loads do, and given back for a shared layout that the instruction cannot read. With ``k_step``
            they get a fourth argument, the coordinate along K at which a step begins, and give the registers of that step.
        k_step: elements along K that one call of ``emit`` takes, where it need not get all: the registers of ``a`` and ``b`` whose elements are in the
            step, in their order. Fragments are then loaded from shared memory step by step. 0: ``emit`` takes all registers.
        emit_shared: the product of operands in shared memory, in any layout, of which it loads what it needs when it needs it: (context, a, b, registers
            of c) -> registers of the result. Operands that come in registers may be in any layout and are put into shared memory first; ``a`` and ``b``
            say what a thread reads of them.
    """

    a: LinearLayout
    b: LinearLayout
    c: LinearLayout
    emit: Callable[[SimtContext, list[str], list[str], list[str]], list[str]] | None
    instruction: str
    a_shared: SharedLayout | None = None
    b_shared: SharedLayout | None = None
    load_a: Callable[..., list[str] | None] | None = None
    load_b: Callable[..., list[str] | None] | None = None
    k_step: int = 0
    emit_shared: Callable[[SimtContext, SharedOperand, SharedOperand, list[str]], list[str]] | None = None


class SimtTarget(ABC):
    """A machine whose programs run on warps of threads.

    Attributes:
        name: for messages, such as an architecture.
        warp_size: lanes of a warp, a power of two.
        shared_memory: bytes a program may use.
        max_threads: threads a program may have.
        banks: banks of shared memory, of 4 bytes each.
        max_access: bytes of the widest access of one thread.
        shared_pointer: LLVM type of an address in shared memory. Pointers to global memory are ``ptr``.
        registers: registers of 32 bits that a thread may have.
        register_file: those that a program may have.
        copy_widths: bytes that one asynchronous copy into shared memory may have; empty where there are none.
    """

    name: str
    warp_size: int = 32
    shared_memory: int = 48 * 1024
    max_threads: int = 1024
    banks: int = 32
    max_access: int = 16
    registers: int = 255
    register_file: int = 65536
    shared_pointer: str = "ptr"
    copy_widths: tuple[int, ...] = ()

    # ---- the function

    def prepare(self, function: Function, assignment: Assignment) -> None:  # noqa: B027
        """Look at a kernel in its final form, before it is written, to decide on what :meth:`begin` says of it."""

    @abstractmethod
    def begin(self, module: ModuleWriter, name: str, parameters: Sequence[tuple[str, str]], num_warps: int, options: Mapping[str, Any]) -> FunctionWriter:
        """The writer of the kernel: a function of ``parameters`` (LLVM type, name), with the attributes of a kernel of ``num_warps`` warps."""

    @abstractmethod
    def shared_base(self, w: FunctionWriter) -> str:
        """The address of the program's shared memory, aligned to 128 bytes at least."""

    # ---- where a thread is; all i32

    @abstractmethod
    def lane(self, w: FunctionWriter) -> str: ...

    @abstractmethod
    def warp(self, w: FunctionWriter) -> str: ...

    @abstractmethod
    def program_id(self, w: FunctionWriter, axis: int) -> str: ...

    @abstractmethod
    def num_programs(self, w: FunctionWriter, axis: int) -> str: ...

    # ---- threads together

    @abstractmethod
    def barrier(self, w: FunctionWriter) -> None:
        """Wait for all threads of the program; what they wrote to shared and global memory before is seen after."""

    @abstractmethod
    def shuffle(self, w: FunctionWriter, value: str, lane: str) -> str:
        """The i32 ``value`` of lane ``lane`` (i32) of the warp."""

    def shuffle_xor(self, w: FunctionWriter, value: str, mask: int) -> str:
        """The i32 ``value`` of the lane whose number differs in the bits of ``mask``."""
        return self.shuffle(w, value, w.emit(f"xor i32 {self.lane(w)}, {mask}"))

    # ---- memory

    @abstractmethod
    def load(self, w: FunctionWriter, pointer: str, element: Type, count: int, predicate: str | None, other: Sequence[str] | None, access: Access) -> list[str]:
        """``count`` consecutive elements from global memory, in one access aligned to its size (at most :attr:`max_access` bytes). Where
        ``predicate`` (i1) is false nothing is read and the result is ``other``, or anything where that is None."""

    @abstractmethod
    def store(self, w: FunctionWriter, pointer: str, element: Type, values: Sequence[str], predicate: str | None, access: Access) -> None:
        """Consecutive elements to global memory, in one access, where ``predicate`` holds."""

    @abstractmethod
    def atomic_rmw(self, context: SimtContext, kind: str, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> str:
        """An atomic update of global memory by one thread; the old value (anything where the predicate is false)."""

    @abstractmethod
    def atomic_cas(self, context: SimtContext, pointer: str, element: Type, compare: str, value: str, predicate: str | None, order: str, scope: str) -> str: ...

    @abstractmethod
    def atomic_load(self, context: SimtContext, pointer: str, element: Type, predicate: str | None, order: str, scope: str) -> str:
        """An element of global memory, read whole by one thread (anything where the predicate is false)."""

    @abstractmethod
    def atomic_store(self, context: SimtContext, pointer: str, element: Type, value: str, predicate: str | None, order: str, scope: str) -> None:
        """An element of global memory, written whole by one thread."""

    @abstractmethod
    def clock(self, w: FunctionWriter) -> str:
        """Nanoseconds by a clock of the device that never goes back, as an i64."""

    @abstractmethod
    def shared_atomic_add(self, w: FunctionWriter, pointer: str, value: str, predicate: str | None) -> None:
        """Add an i32 to shared memory."""

    def fragment_word(self, element: Type) -> tuple[Type, int]:
        """What fragments of a product's operands are kept in between its steps: the type of a word, and how many elements it holds."""
        return element, 1

    def pack(self, w: FunctionWriter, names: list[str], element: Type) -> list[str]:
        """The words (:meth:`fragment_word`) of a fragment whose registers are ``names``."""
        return names

    def unpack(self, w: FunctionWriter, words: list[str], element: Type) -> list[str]:
        """The registers of a fragment in words that :meth:`pack` made."""
        return words

    def async_copy(self, w: FunctionWriter, shared: str, pointer: str, size: int, predicate: str | None) -> None:
        """Start copying ``size`` bytes (of :attr:`copy_widths`) from global to shared memory; zeros where the predicate is false."""
        raise AssertionError(f"{self.name} has no asynchronous copies")

    def async_commit(self, w: FunctionWriter) -> None:
        raise AssertionError(f"{self.name} has no asynchronous copies")

    def async_wait(self, w: FunctionWriter, pending: int) -> None:
        raise AssertionError(f"{self.name} has no asynchronous copies")

    # ---- arithmetic

    #: whether LLVM has an instruction of the machine for ``x * 2**n``
    native_ldexp: bool = False

    def element_operation(self, context: SimtContext, name: str, operands: list[str], element: Type, attributes: Mapping[str, Any]) -> str | None:
        """The machine's own way to compute an elementwise operation of the op table on scalars of type ``element``, in the accuracy the attributes ask
        for; None where the common one (:mod:`tilewright.llvm.elementwise`) serves."""
        return None

    def cast(self, context: SimtContext, operand: str, source: Type, result: Type, rounding: str) -> str | None:
        """The machine's own conversion; None where the common one (:mod:`tilewright.llvm.casts`) serves."""
        return None

    def dot(self, shape: tuple[int, ...], k: int, a: Type, b: Type, accumulator: FloatType | IntType, precision: str, num_warps: int) -> DotPlan | None:
        """Matrix instructions for a product whose result has ``shape`` (..., M, N) and which sums over ``k`` elements; None where there are none: the toolkit
        then computes it by multiplications and additions."""
        return None

    def inline_asm(self, context: SimtContext, text: str, constraints: str, result_types: Sequence[str], operands: Sequence[tuple[str, str]]) -> list[str]:
        """The target's assembly on one group of registers: (LLVM type, name) operands."""
        raise AssertionError(f"{self.name} takes no inline assembly")

    def extern(self, context: SimtContext, symbol: str, library: str, result: Type, operands: Sequence[tuple[Type, str]]) -> str:
        """Call a function of a library of the target's on (element type, name) operands. By default a function of that symbol, which takes and gives
        booleans as bytes, is left to be linked."""
        w = context.writer

        arguments = [(storage_type(type_), w.emit(f"zext i1 {name} to i8") if type_ is I1 else name) for type_, name in operands]
        value = w.call(symbol, storage_type(result), arguments)
        return w.emit(f"trunc i8 {value} to i1") if result is I1 else value

    def keeps_descriptor(self, operation: Operation) -> bool:
        """Whether a load or store through a descriptor that is the kernel's argument is left as it is, for the machine's own tensor copies."""
        return False

    # ---- reports

    @abstractmethod
    def print(self, context: SimtContext, form: str, operands: Sequence[tuple[str, str]], predicate: str | None) -> None:
        """Print by a C format; operands are (LLVM type, name) of i32, i64, double or pointer."""

    @abstractmethod
    def fail(self, context: SimtContext, message: str, file: str, line: int, function: str, predicate: str) -> None:
        """Stop the kernel with an error where ``predicate`` holds."""
