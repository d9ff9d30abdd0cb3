"""Operations for CTA ranks, warp-specialized partitions, staggered warps and named barriers."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, NamedRegion, TypedAttribute
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


@OPS.operation(
    "simt.rank", "the number of this CTA among those that run the program, from 0 on", _rank
)
class Rank(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.partition",
    "run parts side by side, each on warps of its own, which talk through buffers and barriers; "
    "all warps go on when all parts have ended",
    nothing,
    effects=Effect.REGION | Effect.ORDER,
    check=_check_partition,
)
class Partition(Operation):
    __slots__ = ()

    parts = NamedRegion()


@OPS.operation(
    "simt.part",
    "one part of a partition: barriers, lanes and warps in it are its own",
    nothing,
    effects=Effect.REGION | Effect.ORDER,
    check=_check_part,
)
class Part(Operation):
    __slots__ = ()

    name_ = TypedAttribute[str]("for messages")
    warps = TypedAttribute[int]("that run it")
    registers = TypedAttribute[int]("of each thread; 0 as given", 0)
    body = NamedRegion()


@OPS.operation(
    "simt.stagger",
    "the warps of one half meet a barrier more than those of the other: from there on the halves "
    "are one barrier apart, or together again",
    nothing,
    effects=Effect.ORDER,
)
class Stagger(Operation):
    __slots__ = ()

    later = TypedAttribute[bool](
        "it is the later half, which is behind from there on; else the earlier, for which the "
        "later then catches up"
    )


@OPS.operation(
    "simt.phase",
    "between this and the next of its kind the warp multiplies only, or does everything else",
    nothing,
    effects=Effect.ORDER,
)
class Phase(Operation):
    __slots__ = ()

    matmuls = TypedAttribute[bool]("it multiplies")


class Turn(Operation):
    """An operation of a part that takes turns with others."""

    __slots__ = ()

    order = TypedAttribute[str]("the order's name")
    place = TypedAttribute[int]("of this part in the order, from 0 on")
    of = TypedAttribute[int]("how many parts take turns")


OPS.row(
    Turn,
    "simt.turn_wait",
    "wait until it is this part's turn; at first it is that of place 0",
    nothing,
    effects=Effect.ORDER,
)
OPS.row(
    Turn,
    "simt.turn_pass",
    "let the next part of the order have its turn",
    nothing,
    effects=Effect.ORDER,
)
