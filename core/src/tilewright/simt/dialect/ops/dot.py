"""Matmuls by a plan, whole or by steps along K, with accumulators in registers."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import TileType, Type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import slot_of
from tilewright.simt.dialect.types import MATMULS, SlotType


def _dot(shape: Shape) -> list[Type]:
    a, b, c = (shape.type(name) for name in ("a", "b", "c"))
    if (
        not isinstance(a, TileType | SlotType)
        or not isinstance(b, TileType | SlotType)
        or not isinstance(c, TileType)
    ):
        raise RuleError(f"a and b must be tiles or slots and c a tile, not {a}, {b} and {c}")
    if not (
        a.shape[:-2] == b.shape[:-2] == c.shape[:-2]
        and a.shape[-1] == b.shape[-2]
        and c.shape[-2:] == (a.shape[-2], b.shape[-1])
    ):
        raise RuleError(f"{a} times {b} does not give {c}")
    return [c]


def _dot_start(shape: Shape) -> list[Type]:
    return [*_dot(shape), MATMULS]


def _fragment(shape: Shape) -> list[Type]:
    slot_of(shape)
    if not isinstance(shape.result, TileType):
        raise RuleError(f"the result must be a tile, not {shape.result}")
    return [shape.result]


def _dot_step(shape: Shape) -> list[Type]:
    return [shape.type("c_in")]


OPS = Declarations()


class Multiplication(Operation):
    """A matmul by a plan, of a and b."""

    __slots__ = ()

    a = SingleOperand("the operand, as a tile in registers or a slot in shared memory")
    b = SingleOperand("the operand, as a tile in registers or a slot in shared memory")
    plan = fields.PLAN
    precision = fields.PRECISION
    max_imprecise = fields.MAX_IMPRECISE


class TileMatmul(Multiplication):
    """A matmul that is added to c, with a tile as the accumulator."""

    __slots__ = ()

    c = SingleOperand("the accumulator")


@OPS.operation(
    "simt.dot",
    "compute a @ b + c with the matmul plan that the attribute `plan` names. A matmul plan states "
    "which matrix instructions are used, and the layouts of operands and result",
    _dot,
    effects=Effect.READ,
)
class PlannedDot(TileMatmul):
    __slots__ = ()


@OPS.operation(
    "simt.dot_start",
    "start an asynchronous matmul a @ b + c (for example wgmma) with the matmul plan that the "
    "attribute `plan` names. The kernel may read the result after a `simt.wait`. Before the wait, "
    "the kernel may only carry the result through loops and branches, and use it as the "
    "accumulator c of the next matmul",
    _dot_start,
    effects=Effect.READ | Effect.ORDER,
)
class DotStart(TileMatmul):
    __slots__ = ()

    overwrites = TypedAttribute[bool](
        "whether the matmul ignores the value of c, and writes the product a @ b to the registers "
        "of c",
        False,
    )


class Step(Operation):
    """An operation on a part of a matmul, of which it says everything."""

    __slots__ = ()

    plan = fields.PLAN
    shape = TypedAttribute[tuple[int, ...]]("the shape of the matmul's result")
    k = TypedAttribute[int]("the extent of K of the whole matmul")
    a = TypedAttribute[Type]("the element type of a")
    b = TypedAttribute[Type]("the element type of b")
    c = TypedAttribute[Type]("the element type of the result")
    precision = fields.PRECISION
    max_imprecise = fields.MAX_IMPRECISE


@OPS.operation(
    "simt.fragment",
    "load a fragment from a slot in shared memory. A fragment consists of the elements of an "
    "operand that a thread needs for one step of a matmul along K. Several elements of less than "
    "32 bits may be packed into one register",
    _fragment,
    effects=Effect.READ,
    explicit_results=True,
)
class DotFragment(Step):
    __slots__ = ()

    slot = fields.SLOT
    operand_ = TypedAttribute[int]("0 for a, 1 for b")
    first = TypedAttribute[int]("the coordinate along K at which the step begins")


@OPS.operation(
    "simt.dot_step",
    "the sum of the accumulator `c_in` and the product of the fragments `a_in` and `b_in` (see "
    "`simt.fragment`), for one step of a matmul along K",
    _dot_step,
)
class DotStep(Step):
    __slots__ = ()

    a_in = SingleOperand()
    b_in = SingleOperand()
    c_in = SingleOperand()
