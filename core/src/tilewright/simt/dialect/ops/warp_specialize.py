"""Operations for CTA ranks, warp-specialized partitions, staggered warps and named barriers."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, NamedRegion, SingleOperand, TypedAttribute
from tilewright.ir.ops.rules import nothing
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I32, TileType, Type


def _rank(shape: Shape) -> list[Type]:
    return [I32]


def _check_partition(operation: Partition) -> None:
    for part in operation.parts:
        if not isinstance(part, Part) and not part.spec.terminator:
            raise RuleError(f"holds parts only, not {part.name}")


def _check_part(operation: Part) -> None:
    around = next(operation.ancestors(), None)
    if around is None or not isinstance(around, Partition):
        raise RuleError("stands in a partition only")
    if operation.warps < 1:
        raise RuleError("has one warp at least")
    inside = set(operation.walk())
    for inner in operation.walk():
        for operand in inner.operands:
            owner = operand.owner
            outer = (
                owner not in inside if isinstance(owner, Operation) else owner.owner not in inside
            )
            if outer and isinstance(operand.type, TileType):
                raise RuleError(
                    f"reads the tile {operand.name or operand.type} from outside: tiles go between "
                    "parts through buffers"
                )


OPS = Declarations()


@OPS.operation("simt.rank", "the rank of this CTA in its cluster, from 0 on", _rank)
class Rank(Operation):
    __slots__ = ()


def _uniform(shape: Shape) -> list[Type]:
    if shape.type("x") is not I32:
        raise RuleError(f"x must be {I32}, not {shape.type('x')}")
    return [I32]


@OPS.operation(
    "simt.uniform",
    "x, with the guarantee that all lanes of a warp have the same value of x. The code generator "
    "uses this guarantee if it cannot derive it from the operations that compute x",
    _uniform,
)
class Uniform(Operation):
    __slots__ = ()

    x = SingleOperand()


@OPS.operation(
    "simt.partition",
    "run several partitions concurrently. A partition is a group of warps that executes its own "
    "region (warp specialization). Partitions synchronize at mbarriers. All warps continue after "
    "the last partition has ended",
    nothing,
    effects=Effect.REGION | Effect.ORDER,
    check=_check_partition,
)
class Partition(Operation):
    __slots__ = ()

    parts = NamedRegion()


@OPS.operation(
    "simt.part",
    "run a region as one partition, that is, on a group of warps that executes only this region "
    "(warp specialization). In the region, lanes and warps are numbered from 0, and a barrier "
    "synchronizes only the warps of the partition",
    nothing,
    effects=Effect.REGION | Effect.ORDER,
    check=_check_part,
)
class Part(Operation):
    __slots__ = ()

    name_ = TypedAttribute[str]("the name of the partition, which messages show")
    warps = TypedAttribute[int]("the number of warps that run the partition")
    registers = TypedAttribute[int](
        "the number of registers of each thread (PTX: setmaxnreg); 0: as many as the kernel has", 0
    )
    body = NamedRegion()


@OPS.operation(
    "simt.stagger",
    "make one half of the warps of a program instance execute an extra barrier, so that the two "
    "halves alternate in a ping-pong loop. Before the loop, the second half executes the extra "
    "barrier, and then runs one barrier behind the first half. After the loop, the first half "
    "executes an extra barrier, so that all warps are at the same barrier again",
    nothing,
    effects=Effect.ORDER,
)
class Stagger(Operation):
    __slots__ = ()

    later = TypedAttribute[bool](
        "whether the second half executes the extra barrier, before the loop; if false, the first "
        "half executes it, after the loop"
    )


@OPS.operation(
    "simt.phase",
    "begin a phase of a ping-pong loop. Each iteration of such a loop has two phases: in one "
    "phase, a warp only executes matmuls, and in the other phase, it executes all other operations",
    nothing,
    effects=Effect.ORDER,
)
class Phase(Operation):
    __slots__ = ()

    matmuls = TypedAttribute[bool]("whether the warp only executes matmuls in this phase")


class Turn(Operation):
    """An operation of a part that takes turns with others."""

    __slots__ = ()

    order = TypedAttribute[str]("the name of the cyclic order")
    place = TypedAttribute[int]("the position of this partition in the order, from 0 on")
    of = TypedAttribute[int]("the number of partitions in the order")


OPS.row(
    Turn,
    "simt.turn_wait",
    "wait until this partition may use a hardware unit that several partitions use one after "
    "another, in a cyclic order. The partition waits at its named barrier until the previous "
    "partition in the order has executed `simt.turn_pass`. At the start, the partition at "
    "position 0 uses the unit first",
    nothing,
    effects=Effect.ORDER,
)
OPS.row(
    Turn,
    "simt.turn_pass",
    "let the next partition use a hardware unit that several partitions use one after another, in "
    "a cyclic order. The next partition waits for this in `simt.turn_wait`: `simt.turn_pass` "
    "arrives at the named barrier of the next partition",
    nothing,
    effects=Effect.ORDER,
)
