"""Tensor memory, and matmuls that accumulate there."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, OptionalOperand, SingleOperand, TypedAttribute
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I1, I32, Type
from tilewright.simt.dialect.ops.dot import Multiplication, Step
from tilewright.simt.dialect.types import AccumulatorType, SlotType


def _memory(shape: Shape) -> list[Type]:
    return [I32]


def _free_accumulators(shape: Shape) -> list[Type]:
    if shape.type("memory") is not I32:
        raise RuleError(f"memory must be what simt.accumulators yields, not {shape.type('memory')}")
    return []


def _accumulator(shape: Shape) -> list[Type]:
    _free_accumulators(shape)
    if not isinstance(shape.result, AccumulatorType):
        raise RuleError(f"the result must be an accumulator, not {shape.result}")
    return [shape.result]


def _into(shape: Shape) -> AccumulatorType:
    type_ = shape.type("accumulator")
    if not isinstance(type_, AccumulatorType):
        raise RuleError(f"accumulator must be one, not {type_}")
    return type_


def _accumulator_load(shape: Shape) -> list[Type]:
    if any(type_ is not I1 for type_ in shape.groups.get("there", ())):
        raise RuleError(f"there must be {I1}, not {shape.groups['there'][0]}")
    return [_into(shape).tile]


def _accumulator_store(shape: Shape) -> list[Type]:
    tile = _into(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


def _dot_into(shape: Shape) -> list[Type]:
    a, b, c = shape.type("a"), shape.type("b"), _into(shape)
    if not isinstance(a, SlotType) or not isinstance(b, SlotType):
        raise RuleError(f"a and b must be slots, not {a} and {b}")
    if (a.shape[0], b.shape[1]) != c.shape or a.shape[1] != b.shape[0]:
        raise RuleError(f"{a} times {b} does not give {c}")
    if shape.type("adds") is not I1:
        raise RuleError(f"adds must be {I1}, not {shape.type('adds')}")
    return []


OPS = Declarations()

_MEMORY = SingleOperand("the result of `simt.accumulators`")
_ACCUMULATOR = SingleOperand("the accumulator")


@OPS.operation(
    "simt.accumulators",
    "allocate tensor memory for accumulators (PTX: tcgen05.alloc). Tensor memory is the memory in "
    "which the matrix unit of a GPU accumulates",
    _memory,
    effects=Effect.ORDER,
)
class Accumulators(Operation):
    __slots__ = ()

    units = TypedAttribute[int]("the number of allocated units of tensor memory (PTX: columns)")


@OPS.operation(
    "simt.accumulator",
    "the accumulator that begins at the unit `first` of the tensor memory `memory`",
    _accumulator,
    explicit_results=True,
)
class Accumulator(Operation):
    __slots__ = ()

    memory = _MEMORY
    first = TypedAttribute[int]("the first unit of the accumulator")


@OPS.operation(
    "simt.accumulator_load",
    "load an accumulator from tensor memory into registers (PTX: tcgen05.ld). No matmul in flight "
    "may write this accumulator",
    _accumulator_load,
    effects=Effect.ORDER,
)
class AccumulatorLoad(Step):
    __slots__ = ()

    accumulator = _ACCUMULATOR
    there = OptionalOperand(
        "whether the accumulator has already been written; if false, all elements of the result "
        "are zero"
    )


@OPS.operation(
    "simt.accumulator_store",
    "store a tile to an accumulator in tensor memory (PTX: tcgen05.st). No matmul in flight may "
    "access this accumulator",
    _accumulator_store,
    effects=Effect.ORDER,
)
class AccumulatorStore(Step):
    __slots__ = ()

    accumulator = _ACCUMULATOR
    x = SingleOperand()


@OPS.operation(
    "simt.dot_into",
    "make one thread start a matmul of two slots, whose accumulator is in tensor memory (PTX: "
    "tcgen05.mma). If `adds` is true, the matmul adds the product to the accumulator. Otherwise, "
    "the matmul overwrites the accumulator with the product. Matmuls with the same accumulator "
    "complete in the order in which they were started",
    _dot_into,
    effects=Effect.READ | Effect.ORDER,
)
class DotInto(Multiplication):
    __slots__ = ()

    accumulator = _ACCUMULATOR
    adds = SingleOperand("whether the matmul adds to the accumulator")


@OPS.operation(
    "simt.free_accumulators",
    "free the tensor memory that `simt.accumulators` allocated (PTX: tcgen05.dealloc). The kernel "
    "may not access accumulators in this memory afterwards",
    _free_accumulators,
    effects=Effect.ORDER,
)
class FreeAccumulators(Operation):
    __slots__ = ()

    memory = _MEMORY
