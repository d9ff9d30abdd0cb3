"""Operations that the toolkit adds to Tile IR while it prepares a module: conversions between layouts and explicit shared memory."""

from __future__ import annotations

from tilewright.ir.ops import TABLE
from tilewright.ir.table import Attribute, Effect, Kind, Operand, OpSpec, OpTable, RuleError, Shape
from tilewright.ir.types import I1, U8, PointerType, TileType, Type, byte_size, element_type

#: Pointers into the memory that the threads of a program share.
SHARED = "shared"


def shared_pointer(element: Type) -> PointerType:
    return PointerType(element, SHARED)


def _same(shape: Shape) -> list[Type]:
    return [shape.type("x")]


def _alloc(shape: Shape) -> list[Type]:
    return [shared_pointer(U8)]


def _buffer(shape: Shape) -> Type:
    type_ = shape.type("buffer")
    if not isinstance(type_, PointerType) or type_.space != SHARED:
        raise RuleError(f"buffer must point to shared memory, not be {type_}")
    return type_.pointee


def _async_load(shape: Shape) -> list[Type]:
    _buffer(shape)
    pointers = shape.type("pointer")
    element = element_type(pointers)
    if not isinstance(pointers, TileType) or not isinstance(element, PointerType):
        raise RuleError(f"pointer must be a tile of pointers, not {pointers}")
    mask = shape.optional("mask")
    if mask is not None and mask is not TileType(pointers.shape, I1):
        raise RuleError(f"mask must be a tile of {I1} of the pointers' shape, not {mask}")
    return []


def _shared_load(shape: Shape) -> list[Type]:
    _buffer(shape)
    (result,) = shape.results
    if not isinstance(result, TileType):
        raise RuleError(f"the result must be a tile, not {result}")
    return [result]


def _shared_store(shape: Shape) -> list[Type]:
    _buffer(shape)
    if not isinstance(shape.type("x"), TileType):
        raise RuleError(f"x must be a tile, not {shape.type('x')}")
    return []


def _nothing(shape: Shape) -> list[Type]:
    return []


def _dot_step(shape: Shape) -> list[Type]:
    return [shape.type("c")]


_BUFFER = Operand("buffer", "an address in shared memory; the assignment has the shared layout of what is there")

OPS: tuple[OpSpec, ...] = (
    OpSpec("simt.convert", "the same tile in another layout", (Operand("x"),), _same),
    OpSpec(
        "simt.shared_alloc",
        "shared memory, for as long as the address is used",
        (),
        _alloc,
        (Attribute("bytes", "int"), Attribute("alignment", "int", "", 16)),
        effects=Effect.ORDER,
    ),
    OpSpec(
        "simt.async_load",
        "start copying the elements at the pointers to shared memory; zeros where the mask is false",
        (_BUFFER, Operand("pointer"), Operand("mask", kind=Kind.OPTIONAL)),
        _async_load,
        (
            Attribute("cache", "str", "", ""),
            Attribute("eviction", "str", "", ""),
            Attribute("ordered", "bool", "whoever wrote it saw to it that no thread may still touch the buffer", False),
        ),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec("simt.async_commit", "end a group of copies", (), _nothing, effects=Effect.ORDER),
    OpSpec(
        "simt.async_wait",
        "wait until at most `pending` groups of this thread are under way",
        (),
        _nothing,
        (Attribute("pending", "int"),),
        effects=Effect.ORDER,
    ),
    OpSpec("simt.shared_load", "a tile from shared memory", (_BUFFER,), _shared_load, explicit_results=True, effects=Effect.READ),
    OpSpec(
        "simt.fragment_load",
        "each thread's registers of one step along K of a product's operand that is in shared memory, in words, threads in order; the assignment has the"
        " product's plan, and the shared layout of all of the operand",
        (_BUFFER,),
        _shared_load,
        (
            Attribute("operand", "int", "0 for a, 1 for b"),
            Attribute("element", "type", "of the operand"),
            Attribute("first", "int", "the coordinate along K at which the step begins"),
        ),
        explicit_results=True,
        effects=Effect.READ,
    ),
    OpSpec(
        "simt.dot_step",
        "c and the product of one step along K of both operands; the assignment has the product's plan",
        (Operand("a"), Operand("b"), Operand("c")),
        _dot_step,
        (Attribute("a_element", "type", "of the operand"), Attribute("b_element", "type", "of the operand")),
    ),
    OpSpec("simt.shared_store", "write a tile to shared memory", (_BUFFER, Operand("x")), _shared_store, effects=Effect.WRITE),
)

#: Tile IR's table and the operations of this module.
SIMT_TABLE: OpTable = TABLE.extended(OPS)


def bytes_of(type_: TileType) -> int:
    """Bytes of a tile in shared memory; an i1 takes one."""
    return type_.numel * (8 if isinstance(type_.element, PointerType) else byte_size(type_.element))
