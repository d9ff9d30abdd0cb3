"""Matmuls: what is multiplied, and the plans by which a machine does it.

The IR names a plan; the plan itself, with its layouts and its emitter, is found again among those
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
    """A matmul of one program.

    Attributes:
        shape: of the result, (..., M, N), leading axes for batches.
        k: elements that each sum is over.
        a, b: element types of the operands.
        accumulator: that of the result.
        precision, max_imprecise: the attributes of ``dot``.
        warps: warps that share it.
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
    """A tile in shared memory, as a matmul reads it.

    Attributes:
        address: the name of its address.
        shared: where its elements are.
        element: their type.
    """

    address: str
    shared: SharedLayout
    element: Type


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Memory of the machine's own in which a plan has its sums, while matmuls add to them.

    Attributes:
        units: that sums take of it, such as columns.
        load: (context, place) -> the registers of the sums in the plan's layout of c, for the i32
            of the first unit. All warps run it.
        store: (context, place, registers): writes sums there.
    """

    units: int
    load: Callable[..., list[str]]
    store: Callable[..., None]


#: What an emitter gets of an operand: the names of its registers, or where it is in shared memory.
OperandSource = Any  # list[str] | SharedOperand

#: How buffers that matrix instructions read are aligned: swizzles count from multiples of this.
OPERAND_ALIGNMENT: Final = 1024
#: Where a plan takes an operand from.
REGISTERS: Final = "registers"
SHARED: Final = "shared"


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """How a matmul is computed: where its operands and its accumulator are, and the instructions.

    There are three kinds, by ``reads``: registers x registers, shared x shared, registers x shared.
    An operand that is read from registers may still be in shared memory: its fragments are then
    loaded as they are needed. One that is read from shared memory and is in registers is put there
    first.

    Attributes:
        name: of the instruction, with its parameters; one plan of a target for a matmul has it.
        a, b, c: layouts of a (M x K), b (K x N), and of c and the result (M x N); with leading axes
            for batches. For an operand in shared memory, what a thread reads of it, or would.
        emit: (context, a, b, registers of c) -> registers of the result; for operands read from
            registers the names of those, for others a :class:`SharedOperand`. Of an asynchronous
            plan: starts it, and gives the registers in which the result will be. None: the
            toolkit's own loop of multiply-adds (:mod:`tilewright.simt.target.fma_plan`).
        reads: where a and b are taken from.
        by_threads: whether threads load the operands that are taken from shared memory, as they
            load anything else; if not, matrix instructions do.
        asynchronous: whether the result is there only after a wait of the queue ``matmuls``.
        a_shared, b_shared: the shared layouts that the operands are wanted in, if any.
        a_others, b_others: further shared layouts that serve as well, where memory cannot be copied
            to the first, such as those of transposed operands.
        accepts: whether an operand (0 or 1) can be read from shared memory in a layout; None: from
            any.
        load_a, load_b: (context, address of the shared tile, its shared layout[, first]) -> the
            operand's registers, where the machine has an instruction that loads fragments; None
            where the toolkit's own loads do, and given back for a shared layout that the
            instruction cannot read. With ``k_step`` they get a fourth argument, the coordinate
            along K at which a step begins, and give the registers of that step.
        load_turns: (operand 0 or 1, its shared layout) -> turns of the memory that ``load_a`` or
            ``load_b`` take to read all of the operand; None where their instruction cannot read it.
            It is given where there is such an instruction for each step along K.
        a_turned, b_turned: in which layout ``load_a`` and ``load_b`` read an operand from shared
            memory whose neighbours there are not summed over; None where they have no instruction
            for that.
        whole_rows: whether each warp has whole rows of the result, where by the plan preferred to
            it warps share rows and load less: what is computed of rows for a matmul that follows
            then stays in their warps.
        k_step: elements along K that one call of ``emit`` takes, where it need not get all: the
            registers of ``a`` and ``b`` whose elements are in the step, in their order. Fragments
            are then loaded from shared memory step by step. 0: ``emit`` takes all registers.
        accumulator: where the sums are, if not in registers. Both operands are then read from
            shared memory, and ``emit``, which one thread runs, starts the matmul: it gets the i32
            of the sums' place and the i1 that says whether to add to what is there in place of the
            registers of c, and gives none.
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
    a_turned: LinearLayout | None = None
    b_turned: LinearLayout | None = None
    whole_rows: bool = False
    k_step: int = 0
    accumulator: Accumulator | None = None

    def operand(self, position: int) -> LinearLayout:
        """The layout of operand 0 or 1."""
        return self.a if position == 0 else self.b

    def wish(self, position: int) -> SharedLayout | None:
        """The shared layout that operand 0 or 1 is wanted in."""
        return self.a_shared if position == 0 else self.b_shared

    def wishes(self, position: int) -> tuple[SharedLayout, ...]:
        """The shared layouts that serve operand 0 or 1, the one wanted first."""
        wish, others = self.wish(position), self.a_others if position == 0 else self.b_others
        return others if wish is None else (wish, *others)

    def load(self, position: int) -> Callable[..., list[str] | None] | None:
        """What loads fragments of operand 0 or 1."""
        return self.load_a if position == 0 else self.load_b

    def readers(self, position: int) -> tuple[LinearLayout, ...]:
        """The layouts in which fragments of operand 0 or 1 are read from shared memory: its own,
        and that of an instruction that turns them."""
        turned = self.a_turned if position == 0 else self.b_turned
        return (self.operand(position),) if turned is None else (self.operand(position), turned)

    def can_read(self, position: int, shared: SharedLayout) -> bool:
        """Return whether operand 0 or 1 can be read from shared memory in a layout.

        An asynchronous matmul that takes an operand from registers does not load it: they are to be
        kept until it has been waited for.
        """
        if self.reads[position] == REGISTERS:
            return not self.asynchronous
        return self.accepts is None or self.accepts(position, shared)


#: All that multiplies tiles, of which the last operand is what is added to: matmuls, and those of
#: scaled operands that a target keeps, which read theirs from registers.
MULTIPLYING: Final = (Multiplication, linear.DotScaled)


def factors(operation: Operation) -> list[Value]:
    """What an operation that multiplies tiles multiplies, with the scales of it; not what is added
    to."""
    *found, _ = operation.operands
    return found


def matmul_of(operation: linear.Dot | Multiplication | Step) -> Matmul:
    """The matmul that a ``dot``, or one of the operations made of it, computes."""
    rounding = operation.precision, operation.max_imprecise, warps_of(operation)
    if isinstance(operation, Step):
        assert isinstance(operation.c, FloatType | IntType)
        return Matmul(operation.shape, operation.k, operation.a, operation.b, operation.c, *rounding)
    assert isinstance(operation, linear.Dot | TileMatmul | DotInto)
    sums = operation.accumulator if isinstance(operation, DotInto) else operation.c
    a, b, c = operation.a.type, operation.b.type, sums.type
    assert isinstance(a, TileType | SlotType) and isinstance(b, TileType | SlotType)
    assert isinstance(c, TileType | AccumulatorType)
    assert isinstance(c.element, FloatType | IntType)
    return Matmul(c.shape, a.shape[-1], a.element, b.element, c.element, *rounding)


def step_attributes(matmul: Matmul, plan: MatmulPlan) -> dict[str, Any]:
    """The attributes by which an operation on a part of a matmul describes it."""
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
