"""The type rules of the toolkit's operations, and what is checked of partitions."""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.table import RuleError, Shape
from tilewright.ir.types import I1, I32, I64, DescriptorType, IntType, PointerType, TileType, Type, element_type
from tilewright.simt.types import COPIES, LOADS, PRODUCTS, AccumulatorType, BarriersType, BufferType, MemoryType, SlotType, TokenType


def nothing_rule(shape: Shape) -> list[Type]:
    return []


def rank_rule(shape: Shape) -> list[Type]:
    return [I32]


def same_rule(shape: Shape) -> list[Type]:
    return [shape.type("x")]


def buffer_rule(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BufferType):
        raise RuleError(f"the result must be a buffer, not {shape.result}")
    return [shape.result]


def release_rule(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("buffer"), BufferType):
        raise RuleError(f"buffer must be a buffer, not {shape.type('buffer')}")
    return []


def slot_of_rule(shape: Shape) -> list[Type]:
    buffer = shape.type("buffer")
    if not isinstance(buffer, BufferType):
        raise RuleError(f"buffer must be a buffer, not {buffer}")
    _index(shape)
    return [buffer.slot]


def _index(shape: Shape) -> None:
    if not isinstance(shape.type("index"), IntType):
        raise RuleError(f"index must be an integer, not {shape.type('index')}")


def view_rule(shape: Shape) -> list[Type]:
    slot, result = _slot(shape, "x"), shape.result
    if not isinstance(result, SlotType) or result.element is not slot.element or len(result.layout.images) != len(slot.layout.images):
        raise RuleError(f"the result must be a slot of as many elements of the same type, not {result}")
    return [result]


def _slot(shape: Shape, name: str = "slot") -> MemoryType:
    type_ = shape.type(name)
    if not isinstance(type_, SlotType):
        raise RuleError(f"{name} must be a slot, not {type_}")
    return type_


def load_rule(shape: Shape) -> list[Type]:
    return [_slot(shape).tile]


def store_rule(shape: Shape) -> list[Type]:
    tile = _slot(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


def tensor_rule(shape: Shape) -> list[Type]:
    result, base = shape.result, shape.type("base")
    if not isinstance(result, DescriptorType):
        raise RuleError(f"the result must be a descriptor, not {result}")
    if not isinstance(base, PointerType) or base.pointee is not result.element:
        raise RuleError(f"base must be a pointer to {result.element}, not {base}")
    for name in ("shape", "strides"):
        group = shape.groups[name]
        if len(group) != result.rank or any(type_ is not I64 for type_ in group):
            raise RuleError(f"{name} must be {result.rank} numbers of {I64}, not {', '.join(map(str, group)) or 'none'}")
    return [result]


def make_descriptor_rule(shape: Shape) -> list[Type]:
    free_descriptors_rule(shape)
    _slot(shape)
    return tensor_rule(shape)


def free_descriptors_rule(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("memory"), IntType):
        raise RuleError(f"memory must be what simt.descriptors gives, not {shape.type('memory')}")
    return []


def descriptor_only_rule(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("descriptor"), DescriptorType):
        raise RuleError(f"descriptor must be a descriptor, not {shape.type('descriptor')}")
    return []


def memory_rule(shape: Shape) -> list[Type]:
    return [I32]


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


def copy_start_rule(shape: Shape) -> list[Type]:
    slot, tile = _slot(shape), _pointers(shape)
    if slot.tile is not tile:
        raise RuleError(f"pointer must point to {slot.tile}, not to {tile}")
    return []


def load_start_rule(shape: Shape) -> list[Type]:
    tile = _pointers(shape)
    other = shape.optional("other")
    if other is not None and other is not tile:
        raise RuleError(f"other must be {tile}, not {other}")
    return [tile, LOADS]


def _block(shape: Shape, *, pieces: bool = False) -> None:
    """A descriptor, as many offsets as it has axes, and a slot for its block, or for a piece of it."""
    descriptor, slot = shape.type("descriptor"), _slot(shape)
    if not isinstance(descriptor, DescriptorType):
        raise RuleError(f"descriptor must be a descriptor, not {descriptor}")
    if len(shape.groups["offsets"]) != descriptor.rank:
        raise RuleError(f"{descriptor} takes {descriptor.rank} offsets, not {len(shape.groups['offsets'])}")
    block = descriptor.block_type
    fits = slot.element is block.element and len(slot.shape) == descriptor.rank and not any(b % a for a, b in zip(slot.shape, block.shape, strict=True))
    if slot.tile is not block and not (pieces and fits):
        raise RuleError(f"slot must be one of {block}{' or of a piece of it' if pieces else ''}, not {slot}")


def block_load_start_rule(shape: Shape) -> list[Type]:
    _block(shape)
    _barrier(shape)
    return []


def _row_copy(shape: Shape) -> None:
    """A descriptor of rows, a slot for as many of them as another slot has numbers, and the first column."""
    descriptor, slot, rows = shape.type("descriptor"), _slot(shape), _slot(shape, "rows")
    if not isinstance(descriptor, DescriptorType) or descriptor.rank != 2 or descriptor.block_shape[0] != 1:
        raise RuleError(f"descriptor must be one of rows, not {descriptor}")
    if len(rows.shape) != 1 or rows.element is not I32:
        raise RuleError(f"rows must be a slot of numbers of {I32}, not {rows}")
    wanted = TileType((rows.shape[0], descriptor.block_shape[1]), descriptor.block_type.element)
    if slot.tile is not wanted:
        raise RuleError(f"slot must be one of {wanted}, not {slot}")
    if not isinstance(shape.type("column"), IntType):
        raise RuleError(f"column must be an integer, not {shape.type('column')}")


def rows_load_start_rule(shape: Shape) -> list[Type]:
    _row_copy(shape)
    _barrier(shape)
    return []


def rows_store_start_rule(shape: Shape) -> list[Type]:
    _row_copy(shape)
    return []


def block_store_start_rule(shape: Shape) -> list[Type]:
    _block(shape, pieces=True)
    return []


def _tokens(shape: Shape) -> None:
    for type_ in shape.groups["tokens"]:
        if not isinstance(type_, TokenType):
            raise RuleError(f"tokens must be tokens, not {type_}")


def commit_rule(shape: Shape) -> list[Type]:
    (result,) = shape.results or (COPIES,)
    if not isinstance(result, TokenType):
        raise RuleError(f"the result must be a token, not {result}")
    return [result]


def wait_rule(shape: Shape) -> list[Type]:
    _tokens(shape)
    tiles = list(shape.groups["tiles"])
    if not shape.groups["tokens"]:
        raise RuleError("takes one token at least")
    for name in ("tiles", "held"):
        if any(not isinstance(tile, TileType) for tile in shape.groups.get(name, ())):
            raise RuleError(f"{name} must be tiles, not {', '.join(map(str, shape.groups[name]))}")
    return tiles


def barriers_rule(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BarriersType):
        raise RuleError(f"the result must be barriers, not {shape.result}")
    return [shape.result]


def _barrier(shape: Shape) -> None:
    if not isinstance(shape.type("barriers"), BarriersType):
        raise RuleError(f"barriers must be barriers, not {shape.type('barriers')}")
    _index(shape)


def on_barrier_rule(shape: Shape) -> list[Type]:
    _barrier(shape)
    for name in ("condition", "phase"):
        group = shape.groups.get(name, ())
        if any(type_ is not I1 for type_ in group):
            raise RuleError(f"{name} must be {I1}, not {group[0]}")
    return []


def dot_rule(shape: Shape) -> list[Type]:
    a, b, c = (shape.type(name) for name in ("a", "b", "c"))
    if not isinstance(a, TileType | SlotType) or not isinstance(b, TileType | SlotType) or not isinstance(c, TileType):
        raise RuleError(f"a and b must be tiles or slots and c a tile, not {a}, {b} and {c}")
    if not (a.shape[:-2] == b.shape[:-2] == c.shape[:-2] and a.shape[-1] == b.shape[-2] and c.shape[-2:] == (a.shape[-2], b.shape[-1])):
        raise RuleError(f"{a} times {b} does not give {c}")
    return [c]


def dot_start_rule(shape: Shape) -> list[Type]:
    return [*dot_rule(shape), PRODUCTS]


def accumulator_rule(shape: Shape) -> list[Type]:
    if shape.type("memory") is not I32:
        raise RuleError(f"memory must be what simt.accumulators gives, not {shape.type('memory')}")
    if not isinstance(shape.result, AccumulatorType):
        raise RuleError(f"the result must be an accumulator, not {shape.result}")
    return [shape.result]


def _into(shape: Shape) -> AccumulatorType:
    type_ = shape.type("accumulator")
    if not isinstance(type_, AccumulatorType):
        raise RuleError(f"accumulator must be one, not {type_}")
    return type_


def accumulator_load_rule(shape: Shape) -> list[Type]:
    if any(type_ is not I1 for type_ in shape.groups.get("there", ())):
        raise RuleError(f"there must be {I1}, not {shape.groups['there'][0]}")
    return [_into(shape).tile]


def accumulator_store_rule(shape: Shape) -> list[Type]:
    tile = _into(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


def free_accumulators_rule(shape: Shape) -> list[Type]:
    if shape.type("memory") is not I32:
        raise RuleError(f"memory must be what simt.accumulators gives, not {shape.type('memory')}")
    return []


def dot_into_rule(shape: Shape) -> list[Type]:
    a, b, c = shape.type("a"), shape.type("b"), _into(shape)
    if not isinstance(a, SlotType) or not isinstance(b, SlotType):
        raise RuleError(f"a and b must be slots, not {a} and {b}")
    if (a.shape[0], b.shape[1]) != c.shape or a.shape[1] != b.shape[0]:
        raise RuleError(f"{a} times {b} does not give {c}")
    if shape.type("adds") is not I1:
        raise RuleError(f"adds must be {I1}, not {shape.type('adds')}")
    return []


def fragment_rule(shape: Shape) -> list[Type]:
    _slot(shape)
    if not isinstance(shape.result, TileType):
        raise RuleError(f"the result must be a tile, not {shape.result}")
    return [shape.result]


def dot_step_rule(shape: Shape) -> list[Type]:
    return [shape.type("c_in")]


def check_partition(operation: Operation) -> None:
    (region,) = operation.regions
    for part in region:
        if part.name != "simt.part" and not part.spec.terminator:
            raise RuleError(f"holds parts only, not {part.name}")


def check_part(operation: Operation) -> None:
    around = next(operation.ancestors(), None)
    if around is None or around.name != "simt.partition":
        raise RuleError("stands in a partition only")
    if operation.attribute("warps") < 1:
        raise RuleError("has one warp at least")
    inside = set(operation.walk())
    for inner in operation.walk():
        for operand in inner.operands:
            owner = operand.owner
            outer = owner not in inside if isinstance(owner, Operation) else owner.owner not in inside
            if outer and isinstance(operand.type, TileType):
                raise RuleError(f"reads the tile {operand.name or operand.type} from outside: tiles go between parts through buffers")
