"""The operations of the toolkit: Tile IR for threads. They stand beside those of Tile IR that need nothing more said of them than the layouts of their tiles.

Shared memory is explicit: buffers of slots, each a value. What starts gives a token, and what needs it waits for the token, or for a phase of a barrier
object. A partition runs its parts on warps of their own. ``docs/site/developers/toolkit.md`` shows each operation with an example.
"""

from __future__ import annotations

from tilewright.ir.core import Operation
from tilewright.ir.ops import TABLE
from tilewright.ir.table import Attribute, Effect, Kind, Operand, OpSpec, OpTable, RuleError, Shape
from tilewright.ir.types import I1, I32, I64, DescriptorType, IntType, PointerType, TileType, Type, element_type
from tilewright.simt.types import ENCODINGS, TYPES, AccumulatorType, BarriersType, BufferType, MemoryType, SlotType, TokenType

COPIES, LOADS, STORES, PRODUCTS = (TokenType(queue) for queue in ("copies", "loads", "stores", "products"))


# ---- rules


def _nothing(shape: Shape) -> list[Type]:
    return []


def _rank(shape: Shape) -> list[Type]:
    return [I32]


def _same(shape: Shape) -> list[Type]:
    return [shape.type("x")]


def _buffer(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BufferType):
        raise RuleError(f"the result must be a buffer, not {shape.result}")
    return [shape.result]


def _release(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("buffer"), BufferType):
        raise RuleError(f"buffer must be a buffer, not {shape.type('buffer')}")
    return []


def _slot_of(shape: Shape) -> list[Type]:
    buffer = shape.type("buffer")
    if not isinstance(buffer, BufferType):
        raise RuleError(f"buffer must be a buffer, not {buffer}")
    _index(shape)
    return [buffer.slot]


def _index(shape: Shape) -> None:
    if not isinstance(shape.type("index"), IntType):
        raise RuleError(f"index must be an integer, not {shape.type('index')}")


def _view(shape: Shape) -> list[Type]:
    slot, result = _slot(shape, "x"), shape.result
    if not isinstance(result, SlotType) or result.element is not slot.element or len(result.layout.images) != len(slot.layout.images):
        raise RuleError(f"the result must be a slot of as many elements of the same type, not {result}")
    return [result]


def _slot(shape: Shape, name: str = "slot") -> MemoryType:
    type_ = shape.type(name)
    if not isinstance(type_, SlotType):
        raise RuleError(f"{name} must be a slot, not {type_}")
    return type_


def _load(shape: Shape) -> list[Type]:
    return [_slot(shape).tile]


def _store(shape: Shape) -> list[Type]:
    tile = _slot(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


def _tensor(shape: Shape) -> list[Type]:
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


def _make_descriptor(shape: Shape) -> list[Type]:
    _free_descriptors(shape)
    _slot(shape)
    return _tensor(shape)


def _free_descriptors(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("memory"), IntType):
        raise RuleError(f"memory must be what simt.descriptors gives, not {shape.type('memory')}")
    return []


def _descriptor_only(shape: Shape) -> list[Type]:
    if not isinstance(shape.type("descriptor"), DescriptorType):
        raise RuleError(f"descriptor must be a descriptor, not {shape.type('descriptor')}")
    return []


def _memory(shape: Shape) -> list[Type]:
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


def _copy_start(shape: Shape) -> list[Type]:
    slot, tile = _slot(shape), _pointers(shape)
    if slot.tile is not tile:
        raise RuleError(f"pointer must point to {slot.tile}, not to {tile}")
    return []


def _load_start(shape: Shape) -> list[Type]:
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


def _block_load_start(shape: Shape) -> list[Type]:
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


def _rows_load_start(shape: Shape) -> list[Type]:
    _row_copy(shape)
    _barrier(shape)
    return []


def _rows_store_start(shape: Shape) -> list[Type]:
    _row_copy(shape)
    return []


def _block_store_start(shape: Shape) -> list[Type]:
    _block(shape, pieces=True)
    return []


def _tokens(shape: Shape) -> None:
    for type_ in shape.groups["tokens"]:
        if not isinstance(type_, TokenType):
            raise RuleError(f"tokens must be tokens, not {type_}")


def _commit(shape: Shape) -> list[Type]:
    (result,) = shape.results or (COPIES,)
    if not isinstance(result, TokenType):
        raise RuleError(f"the result must be a token, not {result}")
    return [result]


def _wait(shape: Shape) -> list[Type]:
    _tokens(shape)
    tiles = list(shape.groups["tiles"])
    if not shape.groups["tokens"]:
        raise RuleError("takes one token at least")
    for name in ("tiles", "held"):
        if any(not isinstance(tile, TileType) for tile in shape.groups.get(name, ())):
            raise RuleError(f"{name} must be tiles, not {', '.join(map(str, shape.groups[name]))}")
    return tiles


def _barriers(shape: Shape) -> list[Type]:
    if not isinstance(shape.result, BarriersType):
        raise RuleError(f"the result must be barriers, not {shape.result}")
    return [shape.result]


def _barrier(shape: Shape) -> None:
    if not isinstance(shape.type("barriers"), BarriersType):
        raise RuleError(f"barriers must be barriers, not {shape.type('barriers')}")
    _index(shape)


def _on_barrier(shape: Shape) -> list[Type]:
    _barrier(shape)
    for name in ("condition", "phase"):
        group = shape.groups.get(name, ())
        if any(type_ is not I1 for type_ in group):
            raise RuleError(f"{name} must be {I1}, not {group[0]}")
    return []


def _dot(shape: Shape) -> list[Type]:
    a, b, c = (shape.type(name) for name in ("a", "b", "c"))
    if not isinstance(a, TileType | SlotType) or not isinstance(b, TileType | SlotType) or not isinstance(c, TileType):
        raise RuleError(f"a and b must be tiles or slots and c a tile, not {a}, {b} and {c}")
    if not (a.shape[:-2] == b.shape[:-2] == c.shape[:-2] and a.shape[-1] == b.shape[-2] and c.shape[-2:] == (a.shape[-2], b.shape[-1])):
        raise RuleError(f"{a} times {b} does not give {c}")
    return [c]


def _dot_start(shape: Shape) -> list[Type]:
    return [*_dot(shape), PRODUCTS]


def _accumulator(shape: Shape) -> list[Type]:
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


def _accumulator_load(shape: Shape) -> list[Type]:
    if any(type_ is not I1 for type_ in shape.groups.get("there", ())):
        raise RuleError(f"there must be {I1}, not {shape.groups['there'][0]}")
    return [_into(shape).tile]


def _accumulator_store(shape: Shape) -> list[Type]:
    tile = _into(shape).tile
    if shape.type("x") is not tile:
        raise RuleError(f"x must be {tile}, not {shape.type('x')}")
    return []


def _free_accumulators(shape: Shape) -> list[Type]:
    if shape.type("memory") is not I32:
        raise RuleError(f"memory must be what simt.accumulators gives, not {shape.type('memory')}")
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


def _fragment(shape: Shape) -> list[Type]:
    _slot(shape)
    if not isinstance(shape.result, TileType):
        raise RuleError(f"the result must be a tile, not {shape.result}")
    return [shape.result]


def _dot_step(shape: Shape) -> list[Type]:
    return [shape.type("c_in")]


def _check_partition(operation: Operation) -> None:
    (region,) = operation.regions
    for part in region:
        if part.name != "simt.part" and not part.spec.terminator:
            raise RuleError(f"holds parts only, not {part.name}")


def _check_part(operation: Operation) -> None:
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


# ---- operands and attributes that several operations have

_SLOT = Operand("slot", "a place in shared memory")
_POINTER = Operand("pointer", "where the elements are")
_MASK = Operand("mask", "which elements are read; the others are zero", Kind.OPTIONAL)
_TOKENS = Operand("tokens", "what was started", Kind.VARIADIC)
_ROWS = Operand("rows", "a place in shared memory of the rows' numbers")
_COLUMN = Operand("column", "the first one, in elements")
_BARRIERS = Operand("barriers", "barrier objects")
_INDEX = Operand("index", "which of them")
_CONDITION = Operand("condition", "whether it happens at all", Kind.OPTIONAL)
_BY = Attribute("by", "str", "the copy mechanism")
_TO_ALL = Attribute("to_all", "bool", "of a cluster: each block copies a part of it, to all of them", False)
_REDUCTION = Attribute("reduction", "str", "the kind of an atomic, by which elements of the tensor are updated in place of being written", "")
_CACHE = (Attribute("cache", "str", "", ""), Attribute("eviction", "str", "", "normal"))
_ORDERED = Attribute("ordered", "bool", "whoever wrote it saw to it that no thread may still touch the slot", False)
_STORE_ORDERED = Attribute("ordered", "bool", f"{_ORDERED.meaning}, and nothing behind it in its region reads what it writes", False)
_PLAN = Attribute("plan", "str", "the product plan, by name")
_PRECISION = (
    Attribute("precision", "enum", "how f32 operands may be rounded", "ieee", ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")),
    Attribute("max_imprecise", "int", "fp8: products summed at reduced precision before a full-precision add; 0 is the target's choice", 0),
)
_STEP = (
    _PLAN,
    Attribute("shape", "ints", "extents of the product's result"),
    Attribute("k", "int", "elements that each sum of the whole product is over"),
    Attribute("a", "type", "of a's elements"),
    Attribute("b", "type", "of b's elements"),
    Attribute("c", "type", "of the result's elements"),
    *_PRECISION,
)
_PRODUCT = (Operand("a", "a tile, or a slot"), Operand("b", "a tile, or a slot"), Operand("c", "the accumulator"))
_ACCUMULATORS = Operand("memory", "what simt.accumulators gave")
_ACCUMULATOR = Operand("accumulator", "the place of the sums")
_TURN = (
    Attribute("order", "str", "the order's name"),
    Attribute("place", "int", "of this part in the order, from 0 on"),
    Attribute("of", "int", "how many parts take turns"),
)
_THREADS = Effect.ORDER


OPS: tuple[OpSpec, ...] = (
    OpSpec("simt.rank", "the number of this block of threads among those that run the program, from 0 on", (), _rank),
    OpSpec("simt.convert", "the same tile in another layout", (Operand("x"),), _same),
    # shared memory
    OpSpec(
        "simt.buffer",
        "shared memory for some tiles, for as long as it is used",
        (),
        _buffer,
        (Attribute("alignment", "int", "of its first byte", 16),),
        effects=Effect.ORDER,
        explicit_results=True,
    ),
    OpSpec(
        "simt.release",
        "the other parts are past their last access of a buffer: from here on this part may use its memory for other things",
        (Operand("buffer"),),
        _release,
        effects=Effect.ORDER,
    ),
    OpSpec(
        "simt.stagger",
        "the warps of one half meet a barrier more than those of the other: from there on the halves are one barrier apart, or together again",
        (),
        _nothing,
        (Attribute("later", "bool", "it is the later half, which is behind from there on; else the earlier, for which the later then catches up"),),
        effects=Effect.ORDER,
    ),
    OpSpec(
        "simt.phase",
        "between this and the next of its kind the warp multiplies only, or does everything else",
        (),
        _nothing,
        (Attribute("products", "bool", "it multiplies"),),
        effects=Effect.ORDER,
    ),
    OpSpec("simt.slot", "the place of one tile in a buffer", (Operand("buffer"), Operand("index", "from 0 on")), _slot_of),
    OpSpec(
        "simt.view",
        "the same memory seen as a tile of another shape; the shared layout says where its elements are",
        (Operand("x"),),
        _view,
        explicit_results=True,
    ),
    OpSpec("simt.load", "a tile from shared memory", (_SLOT,), _load, effects=Effect.READ),
    OpSpec("simt.store", "write a tile to shared memory", (_SLOT, Operand("x")), _store, (_STORE_ORDERED,), effects=Effect.WRITE),
    # copies
    OpSpec(
        "simt.tensor",
        "a descriptor of the tensor at an argument's address, by numbers that are computed of arguments alone: launchers know it. Outside it is zero",
        (Operand("base"), Operand("shape", "extents", Kind.VARIADIC), Operand("strides", "in elements", Kind.VARIADIC)),
        _tensor,
        explicit_results=True,
    ),
    OpSpec(
        "simt.descriptors",
        "memory for the descriptors that this program, or this part of it, makes, known by a number. No one else has it until it is given back",
        (),
        _memory,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.make_descriptor",
        "make a descriptor of the tensor at base, in place of the one that the operation made before; a slot is where it is put together. No copy may be under"
        " way that reads the one before",
        (Operand("memory"), _SLOT, Operand("base"), Operand("shape", "extents", Kind.VARIADIC), Operand("strides", "in elements", Kind.VARIADIC)),
        _make_descriptor,
        (Attribute("padding", "enum", "what a load gives outside the tensor", "zero", ("zero", "nan")),),
        effects=_THREADS,
        explicit_results=True,
    ),
    OpSpec(
        "simt.show_descriptor",
        "let copies of blocks, which this program starts after, read a descriptor that it made",
        (Operand("descriptor"),),
        _descriptor_only,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.free_descriptors",
        "give memory for descriptors back: no copy is under way that reads one in it",
        (Operand("memory"),),
        _free_descriptors,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.copy_start",
        "start copying the elements at the pointers to shared memory; they are there after a wait for the group that the next commit ends",
        (_SLOT, _POINTER, _MASK),
        _copy_start,
        (_BY, *_CACHE, _ORDERED),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec("simt.commit", "what was started since the last commit, as a group", (), _commit, effects=_THREADS, explicit_results=True),
    OpSpec(
        "simt.load_start",
        "start loading the elements at the pointers; the tile may be read after a wait",
        (_POINTER, _MASK, Operand("other", "in place of elements that are not read", Kind.OPTIONAL)),
        _load_start,
        (*_CACHE, Attribute("unseen", "bool", "nobody sees the elements that are not read: they may be anything", False)),
        effects=Effect.READ,
    ),
    OpSpec(
        "simt.keep_order",
        "the code generator moves no access of memory across this place: what is started before it is under way while what follows is done",
        (),
        _nothing,
        (Attribute("everything", "bool", "nor anything else", False),),
        effects=_THREADS,
    ),
    OpSpec(
        "simt.block_load_start",
        "start copying a descriptor's block to shared memory; its bytes are counted by a barrier object when they are there",
        (_SLOT, Operand("descriptor"), Operand("offsets", "of the block, in elements", Kind.VARIADIC), _BARRIERS, _INDEX, _CONDITION),
        _block_load_start,
        (_BY, *_CACHE, _ORDERED, _TO_ALL),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec(
        "simt.block_store_start",
        "start copying a slot to a descriptor's block, or to a piece of it; what is outside the tensor is dropped. The slot may be written after a wait for"
        " the next commit",
        (_SLOT, Operand("descriptor"), Operand("offsets", "of the block, in elements", Kind.VARIADIC)),
        _block_store_start,
        (_BY, _REDUCTION),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec(
        "simt.rows_load_start",
        "start copying the rows of a descriptor's tensor that numbers in shared memory name, from a column on, to shared memory; their bytes are counted by a"
        " barrier object when they are there",
        (_SLOT, Operand("descriptor"), _ROWS, _COLUMN, _BARRIERS, _INDEX),
        _rows_load_start,
        (_BY,),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec(
        "simt.rows_store_start",
        "start copying a slot to the rows of a descriptor's tensor that numbers in shared memory name, from a column on; what is outside the tensor is dropped."
        " The slot may be written after a wait for the next commit",
        (_SLOT, Operand("descriptor"), _ROWS, _COLUMN),
        _rows_store_start,
        (_BY,),
        effects=Effect.READ | Effect.WRITE,
    ),
    OpSpec(
        "simt.wait",
        "wait until what the tokens stand for has ended; the tiles, which were being made, may be read, those held no longer are. Of copies of slots it has"
        " when the slots are read, unless ``written`` says more",
        (_TOKENS, Operand("tiles", "in flight", Kind.VARIADIC), Operand("held", "operands that products under way read in registers", Kind.VARIADIC)),
        _wait,
        (Attribute("written", "bool", "whether what slots were copied to is to be written too", False),),
        effects=_THREADS,
    ),
    # barrier objects
    OpSpec(
        "simt.barriers",
        "barrier objects, in their first phase, each of which ends a phase after so many arrivals, when all bytes that were announced have come",
        (),
        _barriers,
        (Attribute("count", "int", "arrivals of a phase"),),
        effects=_THREADS,
        explicit_results=True,
    ),
    OpSpec(
        "simt.expect",
        "arrive at a barrier object, by one thread, and announce bytes that copies will bring in this phase",
        (_BARRIERS, _INDEX, _CONDITION),
        _on_barrier,
        (
            Attribute("bytes", "int", "that come"),
            Attribute("ordered", "bool", "whoever wrote it saw to it that no thread may still wait for the phase before", False),
        ),
        effects=_THREADS,
    ),
    OpSpec(
        "simt.arrive",
        "arrive at a barrier object: each warp once, after what its threads did before",
        (_BARRIERS, _INDEX, _CONDITION),
        _on_barrier,
        (Attribute("at_all", "bool", "of a cluster: at the objects of all blocks", False),),
        effects=_THREADS,
    ),
    OpSpec(
        "simt.await",
        "wait until the phase of this parity of a barrier object has ended; that before the first one has",
        (_BARRIERS, _INDEX, Operand("phase", "its parity: false for the first phase"), _CONDITION),
        _on_barrier,
        (Attribute("alone", "bool", "only the warp waits that starts copies of blocks: the others do not depend on what it waits for", False),),
        effects=_THREADS,
    ),
    OpSpec(
        "simt.publish",
        "let copies of blocks, and products that read shared memory themselves, see what threads wrote there before, from the next barrier or arrival on",
        (),
        _nothing,
        (Attribute("everywhere", "bool", "what they wrote to global memory as well", False),),
        effects=_THREADS,
    ),
    # products
    OpSpec("simt.dot", "a @ b + c by a plan", _PRODUCT, _dot, (_PLAN, *_PRECISION), effects=Effect.READ),
    OpSpec(
        "simt.dot_start",
        "start a @ b + c by an asynchronous plan; the result may be read after a wait, or be the accumulator of the next one",
        _PRODUCT,
        _dot_start,
        (_PLAN, *_PRECISION),
        effects=Effect.READ | Effect.ORDER,
    ),
    OpSpec(
        "simt.fragment",
        "each thread's registers of one step along K of a product's operand that is in shared memory, in words, threads in order",
        (_SLOT,),
        _fragment,
        (*_STEP, Attribute("operand", "int", "0 for a, 1 for b"), Attribute("first", "int", "the coordinate along K at which the step begins")),
        effects=Effect.READ,
        explicit_results=True,
    ),
    OpSpec(
        "simt.dot_step",
        "c and the product of one step along K of both operands, which are fragments",
        (Operand("a_in"), Operand("b_in"), Operand("c_in")),
        _dot_step,
        _STEP,
    ),
    # products whose sums are in memory of the machine's own
    OpSpec(
        "simt.accumulators",
        "memory of the machine's own for so many units of sums, taken by the program, known by a number. No one else has it until it is given back",
        (),
        _memory,
        (Attribute("units", "int", "of the machine's, such as columns"),),
        effects=_THREADS,
    ),
    OpSpec(
        "simt.accumulator",
        "the place of sums in it",
        (_ACCUMULATORS,),
        _accumulator,
        (Attribute("first", "int", "the first of its units"),),
        explicit_results=True,
    ),
    OpSpec(
        "simt.accumulator_load",
        "the sums that are there: no product that writes them is under way",
        (_ACCUMULATOR, Operand("there", "whether any are; without, all are zero", Kind.OPTIONAL)),
        _accumulator_load,
        _STEP,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.accumulator_store",
        "write sums there, for products to add to: none that touches them is under way",
        (_ACCUMULATOR, Operand("x")),
        _accumulator_store,
        _STEP,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.dot_into",
        "start a @ b, by one thread, added to the sums that are there, or in place of them. Those of one place end in order",
        (*_PRODUCT[:2], _ACCUMULATOR, Operand("adds", "whether it is added")),
        _dot_into,
        (_PLAN, *_PRECISION),
        effects=Effect.READ | Effect.ORDER,
    ),
    OpSpec(
        "simt.arrive_after",
        "arrive at a barrier object, once, when all products into accumulators that were started before have ended",
        (_BARRIERS, _INDEX, _CONDITION),
        _on_barrier,
        effects=_THREADS,
    ),
    OpSpec(
        "simt.free_accumulators",
        "give memory for sums back: nothing touches it any more",
        (_ACCUMULATORS,),
        _free_accumulators,
        effects=_THREADS,
    ),
    # partitions
    OpSpec(
        "simt.partition",
        "run parts side by side, each on warps of its own, which talk through buffers and barriers; all warps go on when all parts have ended",
        (),
        _nothing,
        effects=Effect.REGION | Effect.ORDER,
        regions=("parts",),
        check=_check_partition,
    ),
    OpSpec(
        "simt.part",
        "one part of a partition: barriers, lanes and warps in it are its own",
        (),
        _nothing,
        (Attribute("name", "str", "for messages"), Attribute("warps", "int", "that run it"), Attribute("registers", "int", "of each thread; 0 as given", 0)),
        effects=Effect.REGION | Effect.ORDER,
        regions=("body",),
        check=_check_part,
    ),
    OpSpec("simt.turn_wait", "wait until it is this part's turn; at first it is that of place 0", (), _nothing, _TURN, effects=_THREADS),
    OpSpec("simt.turn_pass", "let the next part of the order have its turn", (), _nothing, _TURN, effects=_THREADS),
)

#: Tile IR's table and the operations of this module.
SIMT_TABLE: OpTable = TABLE.extended(OPS, TYPES, ENCODINGS)
