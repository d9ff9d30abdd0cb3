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
from tilewright.ir.types import I1, PointerType, TileType, Type, element_type, with_element
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


def _own_copy_start(shape: Shape) -> list[Type]:
    slot, pointer = slot_of(shape), element_type(shape.type("pointer"))
    if not isinstance(pointer, PointerType) or pointer.pointee is not slot.element:
        raise RuleError(f"pointer must point to {slot.element}, not be {shape.type('pointer')}")
    mask = shape.optional("mask")
    if mask is not None and mask is not with_element(shape.type("pointer"), I1):
        raise RuleError(f"mask must be {I1} of the pointer's shape, not {mask}")
    return []


def _own_load(shape: Shape) -> list[Type]:
    slot, result = slot_of(shape), shape.result
    if result is None or element_type(result) is not slot.element:
        raise RuleError(f"the result must be of {slot.element}, not {result}")
    return [result]


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

_POINTER = SingleOperand("the addresses of the elements")
_MASK = OptionalOperand("whether each element is read; elements that are not read are zero")


@OPS.operation(
    "simt.copy_start",
    "make each thread start copies of the elements at its pointers to a slot in shared memory "
    "(PTX: cp.async). The next `simt.commit` adds the copies to a commit group, a set of copies "
    "that are waited for together. The copies are complete after a `simt.wait` for this group",
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
    "simt.own_copy_start",
    "make each warp start copies of the elements at its pointers to a part of a slot that no "
    "other warp accesses (PTX: cp.async). If several lanes of a warp have pointers to the same "
    "element, one of these lanes copies the element. The next `simt.commit` adds the copies to a "
    "commit group. After a `simt.wait` for this group, the warp may read the elements with "
    "`simt.own_load`, without a barrier",
    _own_copy_start,
    effects=Effect.READ | Effect.WRITE,
)
class OwnCopyStart(Operation):
    __slots__ = ()

    slot = fields.SLOT
    pointer = SingleOperand("the addresses of the elements, or one address")
    mask = _MASK
    by = fields.BY


@OPS.operation(
    "simt.own_load",
    "make each warp read the elements that this warp copied to a slot with `simt.own_copy_start`. "
    "The result is a tile in the layout of the pointers of `simt.own_copy_start`, or a scalar if "
    "there was only one pointer",
    _own_load,
    effects=Effect.READ,
    explicit_results=True,
)
class OwnLoad(Operation):
    __slots__ = ()

    slot = fields.SLOT


@OPS.operation(
    "simt.commit",
    "end a commit group and return a token, with which a `simt.wait` waits for the group. The "
    "type of the token states whether the group contains copies (`token<copies>`) or stores "
    "(`token<stores>`). The group contains all operations of this kind that were started since "
    "the previous `simt.commit` of this kind. A token of type `token<matmuls>` stands for no "
    "matmul: a loop carries this token until it has started its first matmul",
    _commit,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Commit(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.load_start",
    "start loading the elements at the pointers into registers. The results are the tile, which "
    "is still in flight, and a token. The kernel passes both to a `simt.wait`, which returns a "
    "tile that the kernel may read",
    _load_start,
    effects=Effect.READ,
)
class LoadStart(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    other = OptionalOperand("the values of elements whose mask is false")
    cache = fields.CACHE
    eviction = fields.EVICTION
    unobserved = TypedAttribute[bool](
        "whether elements whose mask is false may have any value, because no operation depends on "
        "them",
        False,
    )


@OPS.operation(
    "simt.keep_order",
    "prevent the code generator from moving memory accesses across this operation. For example, "
    "the code generator cannot delay a load that is before this operation until after this "
    "operation",
    nothing,
    effects=Effect.ORDER,
)
class KeepOrder(Operation):
    __slots__ = ()

    everything = TypedAttribute[bool](
        "whether the code generator must not move any other instruction across this operation "
        "either",
        False,
    )


@OPS.operation(
    "simt.wait",
    "wait until the operations in the commit groups of the given tokens are complete. The "
    "operation returns the tiles `tiles`, which were in flight before the wait and which the "
    "kernel may read after it. If a store copies a slot to global memory, the wait returns when "
    "the slot has been read. If the attribute `written` is true, the wait returns only when "
    "global memory has also been written",
    _wait,
    effects=Effect.ORDER,
    forwards="tiles",
)
class Wait(Operation):
    __slots__ = ()

    tokens = VariadicOperand("the tokens of the groups to wait for")
    tiles = VariadicOperand("results of loads or matmuls in flight")
    held = VariadicOperand(
        "tiles that matmuls in flight read from registers; after the wait, their registers may be "
        "reused"
    )
    written = TypedAttribute[bool]("whether to wait until stores have written global memory", False)
