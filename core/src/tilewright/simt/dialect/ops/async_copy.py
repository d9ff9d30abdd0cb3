"""Copies of elements at pointers, and loads, that are started; queues of what is in flight, and
waiting for it."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.declare import (
    Declarations,
    OptionalOperand,
    SingleOperand,
    TypedAttribute,
    VariadicOperand,
)
from tilewright.ir.ops.rules import nothing
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import I1, PointerType, TileType, Type, element_type
from tilewright.simt.dialect.ops import fields
from tilewright.simt.dialect.ops.type_rules import slot_of
from tilewright.simt.dialect.types import COPIES, LOADS, TokenType


def _pointers(shape: Shape) -> TileType:
    """The tile that pointers point to, whose mask is checked."""
    pointers = shape.type("pointer")
    element = element_type(pointers)
    if not isinstance(pointers, TileType) or not isinstance(element, PointerType):
        raise RuleError(f"pointer must be a tile of pointers, not {pointers}")
    mask = shape.optional("mask")
    if mask is not None and mask is not TileType(pointers.shape, I1):
        raise RuleError(f"mask must be a tile of {I1} of the pointers' shape, not {mask}")
    return TileType(pointers.shape, element.pointee)


def _copy_start(shape: Shape) -> list[Type]:
    slot, tile = slot_of(shape), _pointers(shape)
    if slot.tile is not tile:
        raise RuleError(f"pointer must point to {slot.tile}, not to {tile}")
    return []


def _load_start(shape: Shape) -> list[Type]:
    tile = _pointers(shape)
    other = shape.optional("other")
    if other is not None and other is not tile:
        raise RuleError(f"other must be {tile}, not {other}")
    return [tile, LOADS]


def _commit(shape: Shape) -> list[Type]:
    (result,) = shape.results or (COPIES,)
    if not isinstance(result, TokenType):
        raise RuleError(f"the result must be a token, not {result}")
    return [result]


def _wait(shape: Shape) -> list[Type]:
    for type_ in shape.groups["tokens"]:
        if not isinstance(type_, TokenType):
            raise RuleError(f"tokens must be tokens, not {type_}")
    tiles = list(shape.groups["tiles"])
    if not shape.groups["tokens"]:
        raise RuleError("takes one token at least")
    for name in ("tiles", "held"):
        if any(not isinstance(tile, TileType) for tile in shape.groups.get(name, ())):
            raise RuleError(f"{name} must be tiles, not {', '.join(map(str, shape.groups[name]))}")
    return tiles


OPS = Declarations()

_POINTER = SingleOperand("where the elements are")
_MASK = OptionalOperand("which elements are read; the others are zero")


@OPS.operation(
    "simt.copy_start",
    "start copying the elements at the pointers to shared memory; they are there after a wait for "
    "the group that the next commit ends",
    _copy_start,
    effects=Effect.READ | Effect.WRITE,
)
class CopyStart(Operation):
    __slots__ = ()

    slot = fields.SLOT
    pointer = _POINTER
    mask = _MASK
    by = fields.BY
    cache = fields.CACHE
    eviction = fields.EVICTION
    ordered = fields.ORDERED


@OPS.operation(
    "simt.commit",
    "what was started since the last commit, as a group",
    _commit,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Commit(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.load_start",
    "start loading the elements at the pointers; the tile may be read after a wait",
    _load_start,
    effects=Effect.READ,
)
class LoadStart(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    other = OptionalOperand("in place of elements that are not read")
    cache = fields.CACHE
    eviction = fields.EVICTION
    unobserved = TypedAttribute[bool](
        "nobody sees the elements that are not read: they may be anything", False
    )


@OPS.operation(
    "simt.keep_order",
    "the code generator moves no access of memory across this place: what is started before it is "
    "in flight while what follows is done",
    nothing,
    effects=Effect.ORDER,
)
class KeepOrder(Operation):
    __slots__ = ()

    everything = TypedAttribute[bool]("nor anything else", False)


@OPS.operation(
    "simt.wait",
    "wait until what the tokens stand for has ended; the tiles, which were being made, may be "
    "read, those held no longer are. Of copies of slots it has when the slots are read, unless "
    "``written`` says more",
    _wait,
    effects=Effect.ORDER,
    forwards="tiles",
)
class Wait(Operation):
    __slots__ = ()

    tokens = VariadicOperand("what was started")
    tiles = VariadicOperand("in flight")
    held = VariadicOperand("operands that matmuls in flight read in registers")
    written = TypedAttribute[bool]("whether what slots were copied to is to be written too", False)
