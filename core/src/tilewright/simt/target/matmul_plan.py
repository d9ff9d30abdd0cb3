"""Matmul problems, and the plans by which a target computes them.

The IR names a plan; the plan itself, with its layouts and its emitter, is looked up among the plans
that the target offers for the matmul.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops import linear
from tilewright.ir.types import FloatType, IntType, TileType, Type
from tilewright.simt.dialect.attributes import warps_of
from tilewright.simt.dialect.ops.dot import Multiplication, Step, TileMatmul
from tilewright.simt.dialect.ops.tensor_memory import DotInto
from tilewright.simt.dialect.types import AccumulatorType, SlotType
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout


@dataclass(frozen=True, slots=True)
class Matmul:
    """A matmul problem of one program.

    Attributes:
        shape: of the result, (..., M, N), leading axes for batches.
        k: the extent of K.
        a, b: element types of the operands.
        accumulator: element type of the result.
        precision, max_imprecise: the attributes of ``dot``.
        warps: number of warps that share it.
    """

    shape: tuple[int, ...]
    k: int
    a: Type
    b: Type
    accumulator: FloatType | IntType
    precision: str
    max_imprecise: int
    warps: int


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """A matmul operand in shared memory.

    Attributes:
        address: the name of its address.
        shared: its shared layout.
        element: the type of its elements.
    """

    address: str
    shared: SharedLayout
    element: Type


@dataclass(frozen=True, slots=True)
class TensorMemoryAccumulator:
    """The accumulator of a plan in tensor memory.

    Attributes:
        units: the columns of tensor memory that it takes.
        load: (context, place) -> the accumulator's registers in the plan's layout of c, for the i32
            of the first column. All warps run it.
        store: (context, place, registers): writes an accumulator there.
    """

    units: int
    load: Callable[..., list[str]]
    store: Callable[..., None]


#: An operand as an emitter takes it: the names of its registers, or its place in shared memory.
OperandSource = Any  # list[str] | SharedOperand

#: Alignment of buffers that matrix instructions read: swizzles repeat at multiples of it.
OPERAND_ALIGNMENT: Final = 1024
#: The memory that a plan reads an operand from.
REGISTERS: Final = "registers"
SHARED: Final = "shared"


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """An MMA atom: the instructions of a matmul, and the layouts of operands and accumulator.

    There are three kinds, by ``reads``: registers x registers, shared x shared, registers x shared.
    An operand that is read from registers may still be in shared memory: its fragments are then
    loaded as they are needed. An operand that is read from shared memory but is in registers is
    stored there first.

    Attributes:
        name: of the instruction, with its parameters; unique among a target's plans for a matmul.
        a, b, c: layouts of a (M x K), b (K x N), and of c and the result (M x N); with leading axes
            for batches. For an operand in shared memory, the elements that a thread reads, or would
            read.
        emit: (context, a, b, registers of c) -> registers of the result; an operand is a list of
            names if it is read from registers, else a :class:`SharedOperand`. For an asynchronous
            plan, it starts the matmul and returns the registers in which the result will be. None:
            the toolkit's own loop of multiply-adds (:mod:`tilewright.simt.target.fma_plan`).
        reads: the memory that a and b are read from.
        by_threads: whether threads load the operands that are read from shared memory by ordinary
            loads; if not, matrix instructions read them.
        asynchronous: whether the result is available only after a wait of the queue ``matmuls``.
        a_shared, b_shared: the preferred shared layouts of the operands, if any.
        a_others, b_others: further shared layouts that serve as well, where memory cannot be copied
            to the first, such as those of transposed operands.
        accepts: whether an operand (0 or 1) can be read from shared memory in a layout; None: from
            any.
        load_a, load_b: (context, address of the shared tile, its shared layout[, first]) -> the
            operand's registers, where the target has an instruction that loads fragments; None
            where the toolkit's own loads do, and returned for a shared layout that the instruction
            cannot read. With ``k_step`` they take a fourth argument, the coordinate along K at
            which a step begins, and return the registers of that step.
        load_turns: (operand 0 or 1, its shared layout) -> the number of shared-memory transactions
            of ``load_a`` or ``load_b`` for the whole operand; None if their instruction cannot read
            it. Present if there is such an instruction for each step along K.
        a_transposed, b_transposed: the layout in which ``load_a`` and ``load_b`` read a transposed
        operand,
            which is contiguous in shared memory along M or N; None if they have no instruction for
            that.
        whole_rows: whether each warp has whole rows of the result, while in the preferred plan
            warps share rows and load less: values computed from rows for a following matmul then
            stay in their warps.
        k_step: elements along K that one call of ``emit`` takes, if it need not take all: the
            registers of ``a`` and ``b`` whose elements are in the step, in their order. Fragments
            are then loaded from shared memory step by step. 0: ``emit`` takes all registers.
        accumulator: the accumulator in tensor memory; None if it is in registers. Both operands are
            then read from shared memory, and ``emit``, which one thread runs, starts the matmul: in
            place of the registers of c it takes the i32 of the accumulator's place and the i1 that
            says whether to add to it, and returns no registers.
    """

    name: str
    a: LinearLayout
    b: LinearLayout
    c: LinearLayout
    emit: Callable[..., list[str]] | None
    reads: tuple[str, str] = (REGISTERS, REGISTERS)
    by_threads: bool = False
    asynchronous: bool = False
    a_shared: SharedLayout | None = None
    b_shared: SharedLayout | None = None
    a_others: tuple[SharedLayout, ...] = ()
    b_others: tuple[SharedLayout, ...] = ()
    accepts: Callable[[int, SharedLayout], bool] | None = None
    load_a: Callable[..., list[str] | None] | None = None
    load_b: Callable[..., list[str] | None] | None = None
    load_turns: Callable[[int, SharedLayout], int | None] | None = None
    a_transposed: LinearLayout | None = None
    b_transposed: LinearLayout | None = None
    whole_rows: bool = False
    k_step: int = 0
    accumulator: TensorMemoryAccumulator | None = None

    def operand(self, position: int) -> LinearLayout:
        """The layout of operand 0 or 1."""
        return self.a if position == 0 else self.b

    def wish(self, position: int) -> SharedLayout | None:
        """The preferred shared layout of operand 0 or 1."""
        return self.a_shared if position == 0 else self.b_shared

    def wishes(self, position: int) -> tuple[SharedLayout, ...]:
        """The suitable shared layouts of operand 0 or 1, in order of preference."""
        wish, others = self.wish(position), self.a_others if position == 0 else self.b_others
        return others if wish is None else (wish, *others)

    def load(self, position: int) -> Callable[..., list[str] | None] | None:
        """The function that loads fragments of operand 0 or 1."""
        return self.load_a if position == 0 else self.load_b

    def readers(self, position: int) -> tuple[LinearLayout, ...]:
        """The layouts in which fragments of operand 0 or 1 are read from shared memory.

        These are its own layout, and that of an instruction that transposes fragments.
        """
        transposed = self.a_transposed if position == 0 else self.b_transposed
        return (
            (self.operand(position),)
            if transposed is None
            else (self.operand(position), transposed)
        )

    def can_read(self, position: int, shared: SharedLayout) -> bool:
        """Return whether operand 0 or 1 can be read from shared memory in a layout.

        An asynchronous matmul that reads an operand from registers does not load it: the registers
        have to be kept until the matmul has been waited for.
        """
        if self.reads[position] == REGISTERS:
            return not self.asynchronous
        return self.accepts is None or self.accepts(position, shared)


#: Operations that multiply tiles; their last operand is the accumulator: matmuls, and matmuls of
#: scaled operands that a target keeps, whose operands are in registers.
MULTIPLYING: Final = (Multiplication, linear.DotScaled)


def factors(operation: Operation) -> list[Value]:
    """Return the factors of a matmul operation, with their scales, but not its accumulator."""
    *found, _ = operation.operands
    return found


def matmul_of(operation: linear.Dot | Multiplication | Step, warps: int | None = None) -> Matmul:
    """Return the matmul problem of a ``dot``, or of an operation derived from it.

    ``warps`` is the number of warps if the function does not have it yet.
    """
    rounding = (
        operation.precision,
        operation.max_imprecise,
        warps_of(operation) if warps is None else warps,
    )
    if isinstance(operation, Step):
        assert isinstance(operation.c, FloatType | IntType)
        return Matmul(
            operation.shape, operation.k, operation.a, operation.b, operation.c, *rounding
        )
    assert isinstance(operation, linear.Dot | TileMatmul | DotInto)
    accumulator = operation.accumulator if isinstance(operation, DotInto) else operation.c
    a, b, c = operation.a.type, operation.b.type, accumulator.type
    assert isinstance(a, TileType | SlotType) and isinstance(b, TileType | SlotType)
    assert isinstance(c, TileType | AccumulatorType)
    assert isinstance(c.element, FloatType | IntType)
    return Matmul(c.shape, a.shape[-1], a.element, b.element, c.element, *rounding)


def step_attributes(matmul: Matmul, plan: MatmulPlan) -> dict[str, Any]:
    """Return the attributes by which an operation on a part of a matmul refers to the whole."""
    return {
        "plan": plan.name,
        "shape": matmul.shape,
        "k": matmul.k,
        "a": matmul.a,
        "b": matmul.b,
        "c": matmul.accumulator,
        "precision": matmul.precision,
        "max_imprecise": matmul.max_imprecise,
    }
