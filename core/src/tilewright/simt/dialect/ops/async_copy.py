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
_MASK = OptionalOperand("the elements to read; masked-off elements are zero")


@OPS.operation(
    "simt.copy_start",
    "start copying elements from the given pointers into a slot, which is in shared memory "
    "(cp.async). The next `simt.commit` adds these copies to a commit group. The copies are "
    "complete after a `simt.wait` for this group",
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
    "start copying elements from the pointers of each warp into a slot, to addresses in shared "
    "memory that no other warp accesses (cp.async). If several lanes of a warp have pointers to "
    "the same element, one of these lanes copies the element. The next `simt.commit` adds the "
    "copies to a commit group. After a warp has waited for this group, it needs no barrier before "
    "it reads the elements that it copied",
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
    "let each warp read the elements that it copied to a slot with `simt.own_copy_start`. The "
    "result is a tile in the layout of the pointers of these copies, or a scalar",
    _own_load,
    effects=Effect.READ,
    explicit_results=True,
)
class OwnLoad(Operation):
    __slots__ = ()

    slot = fields.SLOT


@OPS.operation(
    "simt.commit",
    "end a commit group of copies, of stores or of matmuls, as the type of the returned token "
    "states. The group contains all operations of this kind that were started since the last "
    "`simt.commit` of this kind",
    _commit,
    effects=Effect.ORDER,
    explicit_results=True,
)
class Commit(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.load_start",
    "start loading the elements at the pointers into registers. The kernel may use the loaded "
    "tile after a `simt.wait` for the token that this operation returns",
    _load_start,
    effects=Effect.READ,
)
class LoadStart(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    other = OptionalOperand("the values of masked-off elements")
    cache = fields.CACHE
    eviction = fields.EVICTION
    unobserved = TypedAttribute[bool](
        "whether masked-off elements may have any value, because nothing observes them", False
    )


@OPS.operation(
    "simt.keep_order",
    "prevent the code generator from moving memory accesses across this operation. For example, "
    "a load that was started before this operation then stays in flight while the code after the "
    "operation runs",
    nothing,
    effects=Effect.ORDER,
)
class KeepOrder(Operation):
    __slots__ = ()

    everything = TypedAttribute[bool](
        "whether to keep it from moving any other instruction, too", False
    )


@OPS.operation(
    "simt.wait",
    "wait until the commit groups that the given tokens stand for are complete. After the wait, "
    "the kernel may use the tiles `tiles`, which were in flight, and may reuse the registers of "
    "the tiles `held`, which matmuls in flight read. A store from a slot to global memory counts "
    "as complete when the store has read the slot. If the attribute `written` is true, the store "
    "counts as complete only when it has also written global memory",
    _wait,
    effects=Effect.ORDER,
    forwards="tiles",
)
class Wait(Operation):
    __slots__ = ()

    tokens = VariadicOperand("the groups to wait for")
    tiles = VariadicOperand("the results in flight")
    held = VariadicOperand("operands that matmuls in flight read from registers")
    written = TypedAttribute[bool](
        "whether to also wait until stores from slots have written global memory", False
    )
