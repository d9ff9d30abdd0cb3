"""The operations of the toolkit: Tile IR for threads. They stand beside those of Tile IR that need nothing more said of them than the layouts of their tiles.

Shared memory is explicit: buffers of slots, each a value. What starts gives a token, and what needs it waits for the token, or for a phase of a barrier
object. A partition runs its parts on warps of their own. ``docs/site/developers/toolkit.md`` shows each operation with an example.
"""

from __future__ import annotations

from typing import Literal

from tilewright.ir.core import Operation
from tilewright.ir.declare import Declarations, NamedRegion, OptionalOperand, SingleOperand, TypedAttribute, VariadicOperand
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.linear import Precision
from tilewright.ir.table import Effect, OpTable
from tilewright.ir.types import Type
from tilewright.simt.op_rules import (
    accumulator_load_rule,
    accumulator_rule,
    accumulator_store_rule,
    barriers_rule,
    block_load_start_rule,
    block_store_start_rule,
    buffer_rule,
    check_part,
    check_partition,
    commit_rule,
    copy_start_rule,
    descriptor_only_rule,
    dot_into_rule,
    dot_rule,
    dot_start_rule,
    dot_step_rule,
    fragment_rule,
    free_accumulators_rule,
    free_descriptors_rule,
    load_rule,
    load_start_rule,
    make_descriptor_rule,
    memory_rule,
    nothing_rule,
    on_barrier_rule,
    rank_rule,
    release_rule,
    rows_load_start_rule,
    rows_store_start_rule,
    same_rule,
    slot_of_rule,
    store_rule,
    tensor_rule,
    view_rule,
    wait_rule,
)
from tilewright.simt.types import ENCODINGS, TYPES

#: The operations, in documentation order.
OPS = Declarations()


# ---- operands and attributes that several operations have

_SLOT = SingleOperand("a place in shared memory")
_POINTER = SingleOperand("where the elements are")
_MASK = OptionalOperand("which elements are read; the others are zero")
_TOKENS = VariadicOperand("what was started")
_ROWS = SingleOperand("a place in shared memory of the rows' numbers")
_COLUMN = SingleOperand("the first one, in elements")
_BARRIERS = SingleOperand("barrier objects")
_INDEX = SingleOperand("which of them")
_CONDITION = OptionalOperand("whether it happens at all")
_BY = TypedAttribute[str]("the copy mechanism")
_TO_ALL = TypedAttribute[bool]("of a cluster: each block copies a part of it, to all of them", False)
_REDUCTION = TypedAttribute[str]("the kind of an atomic, by which elements of the tensor are updated in place of being written", "")
_CACHE = TypedAttribute[str]("", "")
_EVICTION = TypedAttribute[str]("", "normal")
_ORDERED = TypedAttribute[bool]("whoever wrote it saw to it that no thread may still touch the slot", False)
_STORE_ORDERED = TypedAttribute[bool](f"{_ORDERED.meaning}, and nothing behind it in its region reads what it writes", False)
_PLAN = TypedAttribute[str]("the product plan, by name")
_PRECISION = TypedAttribute[Precision]("how f32 operands may be rounded", "ieee")
_MAX_IMPRECISE = TypedAttribute[int]("fp8: products summed at reduced precision before a full-precision add; 0 is the target's choice", 0)
_ACCUMULATORS = SingleOperand("what simt.accumulators gave")
_ACCUMULATOR = SingleOperand("the place of the sums")
_THREADS = Effect.ORDER


class Product(Operation):
    """A product by a plan, of a and b, added to c."""

    __slots__ = ()

    a = SingleOperand("a tile, or a slot")
    b = SingleOperand("a tile, or a slot")
    c = SingleOperand("the accumulator")
    plan = _PLAN
    precision = _PRECISION
    max_imprecise = _MAX_IMPRECISE


class Step(Operation):
    """An operation on a part of a product, of which it says everything."""

    __slots__ = ()

    plan = _PLAN
    shape = TypedAttribute[tuple[int, ...]]("extents of the product's result")
    k = TypedAttribute[int]("elements that each sum of the whole product is over")
    a = TypedAttribute[Type]("of a's elements")
    b = TypedAttribute[Type]("of b's elements")
    c = TypedAttribute[Type]("of the result's elements")
    precision = _PRECISION
    max_imprecise = _MAX_IMPRECISE


class Turn(Operation):
    """An operation of a part that takes turns with others."""

    __slots__ = ()

    order = TypedAttribute[str]("the order's name")
    place = TypedAttribute[int]("of this part in the order, from 0 on")
    of = TypedAttribute[int]("how many parts take turns")


@OPS.operation("simt.rank", "the number of this block of threads among those that run the program, from 0 on", rank_rule)
class Rank(Operation):
    __slots__ = ()


@OPS.operation("simt.convert", "the same tile in another layout", same_rule)
class Convert(Operation):
    __slots__ = ()

    x = SingleOperand()


# shared memory


@OPS.operation("simt.buffer", "shared memory for some tiles, for as long as it is used", buffer_rule, effects=Effect.ORDER, explicit_results=True)
class Buffer(Operation):
    __slots__ = ()

    alignment = TypedAttribute[int]("of its first byte", 16)


@OPS.operation(
    "simt.release",
    "the other parts are past their last access of a buffer: from here on this part may use its memory for other things",
    release_rule,
    effects=Effect.ORDER,
)
class Release(Operation):
    __slots__ = ()

    buffer = SingleOperand()


@OPS.operation(
    "simt.stagger",
    "the warps of one half meet a barrier more than those of the other: from there on the halves are one barrier apart, or together again",
    nothing_rule,
    effects=Effect.ORDER,
)
class Stagger(Operation):
    __slots__ = ()

    later = TypedAttribute[bool]("it is the later half, which is behind from there on; else the earlier, for which the later then catches up")


@OPS.operation("simt.phase", "between this and the next of its kind the warp multiplies only, or does everything else", nothing_rule, effects=Effect.ORDER)
class Phase(Operation):
    __slots__ = ()

    products = TypedAttribute[bool]("it multiplies")


@OPS.operation("simt.slot", "the place of one tile in a buffer", slot_of_rule)
class Slot(Operation):
    __slots__ = ()

    buffer = SingleOperand()
    index = SingleOperand("from 0 on")


@OPS.operation("simt.view", "the same memory seen as a tile of another shape; the shared layout says where its elements are", view_rule, explicit_results=True)
class View(Operation):
    __slots__ = ()

    x = SingleOperand()


@OPS.operation("simt.load", "a tile from shared memory", load_rule, effects=Effect.READ)
class Load(Operation):
    __slots__ = ()

    slot = _SLOT


@OPS.operation("simt.store", "write a tile to shared memory", store_rule, effects=Effect.WRITE)
class Store(Operation):
    __slots__ = ()

    slot = _SLOT
    x = SingleOperand()
    ordered = _STORE_ORDERED


# copies


@OPS.operation(
    "simt.tensor",
    "a descriptor of the tensor at an argument's address, by numbers that are computed of arguments alone: launchers know it. Outside it is zero",
    tensor_rule,
    explicit_results=True,
)
class Tensor(Operation):
    __slots__ = ()

    base = SingleOperand()
    shape = VariadicOperand("extents")
    strides = VariadicOperand("in elements")


@OPS.operation(
    "simt.descriptors",
    "memory for the descriptors that this program, or this part of it, makes, known by a number. No one else has it until it is given back",
    memory_rule,
    effects=_THREADS,
)
class Descriptors(Operation):
    __slots__ = ()


@OPS.operation(
    "simt.make_descriptor",
    "make a descriptor of the tensor at base, in place of the one that the operation made before; a slot is where it is put together. No copy may be under"
    " way that reads the one before",
    make_descriptor_rule,
    effects=_THREADS,
    explicit_results=True,
)
class MakeDescriptor(Operation):
    __slots__ = ()

    memory = SingleOperand()
    slot = _SLOT
    base = SingleOperand()
    shape = VariadicOperand("extents")
    strides = VariadicOperand("in elements")
    padding = TypedAttribute[Literal["zero", "nan"]]("what a load gives outside the tensor", "zero")


@OPS.operation(
    "simt.show_descriptor", "let copies of blocks, which this program starts after, read a descriptor that it made", descriptor_only_rule, effects=_THREADS
)
class ShowDescriptor(Operation):
    __slots__ = ()

    descriptor = SingleOperand()


@OPS.operation("simt.free_descriptors", "give memory for descriptors back: no copy is under way that reads one in it", free_descriptors_rule, effects=_THREADS)
class FreeDescriptors(Operation):
    __slots__ = ()

    memory = SingleOperand()


@OPS.operation(
    "simt.copy_start",
    "start copying the elements at the pointers to shared memory; they are there after a wait for the group that the next commit ends",
    copy_start_rule,
    effects=Effect.READ | Effect.WRITE,
)
class CopyStart(Operation):
    __slots__ = ()

    slot = _SLOT
    pointer = _POINTER
    mask = _MASK
    by = _BY
    cache = _CACHE
    eviction = _EVICTION
    ordered = _ORDERED


@OPS.operation("simt.commit", "what was started since the last commit, as a group", commit_rule, effects=_THREADS, explicit_results=True)
class Commit(Operation):
    __slots__ = ()


@OPS.operation("simt.load_start", "start loading the elements at the pointers; the tile may be read after a wait", load_start_rule, effects=Effect.READ)
class LoadStart(Operation):
    __slots__ = ()

    pointer = _POINTER
    mask = _MASK
    other = OptionalOperand("in place of elements that are not read")
    cache = _CACHE
    eviction = _EVICTION
    unseen = TypedAttribute[bool]("nobody sees the elements that are not read: they may be anything", False)


@OPS.operation(
    "simt.keep_order",
    "the code generator moves no access of memory across this place: what is started before it is under way while what follows is done",
    nothing_rule,
    effects=_THREADS,
)
class KeepOrder(Operation):
    __slots__ = ()

    everything = TypedAttribute[bool]("nor anything else", False)


@OPS.operation(
    "simt.block_load_start",
    "start copying a descriptor's block to shared memory; its bytes are counted by a barrier object when they are there",
    block_load_start_rule,
    effects=Effect.READ | Effect.WRITE,
)
class BlockLoadStart(Operation):
    __slots__ = ()

    slot = _SLOT
    descriptor = SingleOperand()
    offsets = VariadicOperand("of the block, in elements")
    barriers = _BARRIERS
    index = _INDEX
    condition = _CONDITION
    by = _BY
    cache = _CACHE
    eviction = _EVICTION
    ordered = _ORDERED
    to_all = _TO_ALL


@OPS.operation(
    "simt.block_store_start",
    "start copying a slot to a descriptor's block, or to a piece of it; what is outside the tensor is dropped. The slot may be written after a wait for"
    " the next commit",
    block_store_start_rule,
    effects=Effect.READ | Effect.WRITE,
)
class BlockStoreStart(Operation):
    __slots__ = ()

    slot = _SLOT
    descriptor = SingleOperand()
    offsets = VariadicOperand("of the block, in elements")
    by = _BY
    reduction = _REDUCTION


@OPS.operation(
    "simt.rows_load_start",
    "start copying the rows of a descriptor's tensor that numbers in shared memory name, from a column on, to shared memory; their bytes are counted by a"
    " barrier object when they are there",
    rows_load_start_rule,
    effects=Effect.READ | Effect.WRITE,
)
class RowsLoadStart(Operation):
    __slots__ = ()

    slot = _SLOT
    descriptor = SingleOperand()
    rows = _ROWS
    column = _COLUMN
    barriers = _BARRIERS
    index = _INDEX
    by = _BY


@OPS.operation(
    "simt.rows_store_start",
    "start copying a slot to the rows of a descriptor's tensor that numbers in shared memory name, from a column on; what is outside the tensor is dropped."
    " The slot may be written after a wait for the next commit",
    rows_store_start_rule,
    effects=Effect.READ | Effect.WRITE,
)
class RowsStoreStart(Operation):
    __slots__ = ()

    slot = _SLOT
    descriptor = SingleOperand()
    rows = _ROWS
    column = _COLUMN
    by = _BY


@OPS.operation(
    "simt.wait",
    "wait until what the tokens stand for has ended; the tiles, which were being made, may be read, those held no longer are. Of copies of slots it has"
    " when the slots are read, unless ``written`` says more",
    wait_rule,
    effects=_THREADS,
)
class Wait(Operation):
    __slots__ = ()

    tokens = _TOKENS
    tiles = VariadicOperand("in flight")
    held = VariadicOperand("operands that products under way read in registers")
    written = TypedAttribute[bool]("whether what slots were copied to is to be written too", False)


# barrier objects


@OPS.operation(
    "simt.barriers",
    "barrier objects, in their first phase, each of which ends a phase after so many arrivals, when all bytes that were announced have come",
    barriers_rule,
    effects=_THREADS,
    explicit_results=True,
)
class Barriers(Operation):
    __slots__ = ()

    count = TypedAttribute[int]("arrivals of a phase")


@OPS.operation(
    "simt.expect", "arrive at a barrier object, by one thread, and announce bytes that copies will bring in this phase", on_barrier_rule, effects=_THREADS
)
class Expect(Operation):
    __slots__ = ()

    barriers = _BARRIERS
    index = _INDEX
    condition = _CONDITION
    bytes = TypedAttribute[int]("that come")
    ordered = TypedAttribute[bool]("whoever wrote it saw to it that no thread may still wait for the phase before", False)


@OPS.operation("simt.arrive", "arrive at a barrier object: each warp once, after what its threads did before", on_barrier_rule, effects=_THREADS)
class Arrive(Operation):
    __slots__ = ()

    barriers = _BARRIERS
    index = _INDEX
    condition = _CONDITION
    at_all = TypedAttribute[bool]("of a cluster: at the objects of all blocks", False)


@OPS.operation(
    "simt.await", "wait until the phase of this parity of a barrier object has ended; that before the first one has", on_barrier_rule, effects=_THREADS
)
class Await(Operation):
    __slots__ = ()

    barriers = _BARRIERS
    index = _INDEX
    phase = SingleOperand("its parity: false for the first phase")
    condition = _CONDITION
    alone = TypedAttribute[bool]("only the warp waits that starts copies of blocks: the others do not depend on what it waits for", False)


@OPS.operation(
    "simt.publish",
    "let copies of blocks, and products that read shared memory themselves, see what threads wrote there before, from the next barrier or arrival on",
    nothing_rule,
    effects=_THREADS,
)
class Publish(Operation):
    __slots__ = ()

    everywhere = TypedAttribute[bool]("what they wrote to global memory as well", False)


# products


@OPS.operation("simt.dot", "a @ b + c by a plan", dot_rule, effects=Effect.READ)
class Dot(Product):
    __slots__ = ()


@OPS.operation(
    "simt.dot_start",
    "start a @ b + c by an asynchronous plan; the result may be read after a wait, or be the accumulator of the next one",
    dot_start_rule,
    effects=Effect.READ | Effect.ORDER,
)
class DotStart(Product):
    __slots__ = ()


@OPS.operation(
    "simt.fragment",
    "each thread's registers of one step along K of a product's operand that is in shared memory, in words, threads in order",
    fragment_rule,
    effects=Effect.READ,
    explicit_results=True,
)
class Fragment(Step):
    __slots__ = ()

    slot = _SLOT
    operand_ = TypedAttribute[int]("0 for a, 1 for b")
    first = TypedAttribute[int]("the coordinate along K at which the step begins")


@OPS.operation("simt.dot_step", "c and the product of one step along K of both operands, which are fragments", dot_step_rule)
class DotStep(Step):
    __slots__ = ()

    a_in = SingleOperand()
    b_in = SingleOperand()
    c_in = SingleOperand()


# products whose sums are in memory of the machine's own


@OPS.operation(
    "simt.accumulators",
    "memory of the machine's own for so many units of sums, taken by the program, known by a number. No one else has it until it is given back",
    memory_rule,
    effects=_THREADS,
)
class Accumulators(Operation):
    __slots__ = ()

    units = TypedAttribute[int]("of the machine's, such as columns")


@OPS.operation("simt.accumulator", "the place of sums in it", accumulator_rule, explicit_results=True)
class Accumulator(Operation):
    __slots__ = ()

    memory = _ACCUMULATORS
    first = TypedAttribute[int]("the first of its units")


@OPS.operation("simt.accumulator_load", "the sums that are there: no product that writes them is under way", accumulator_load_rule, effects=_THREADS)
class AccumulatorLoad(Step):
    __slots__ = ()

    accumulator = _ACCUMULATOR
    there = OptionalOperand("whether any are; without, all are zero")


@OPS.operation(
    "simt.accumulator_store", "write sums there, for products to add to: none that touches them is under way", accumulator_store_rule, effects=_THREADS
)
class AccumulatorStore(Step):
    __slots__ = ()

    accumulator = _ACCUMULATOR
    x = SingleOperand()


@OPS.operation(
    "simt.dot_into",
    "start a @ b, by one thread, added to the sums that are there, or in place of them. Those of one place end in order",
    dot_into_rule,
    effects=Effect.READ | Effect.ORDER,
)
class DotInto(Operation):
    __slots__ = ()

    a = SingleOperand("a slot")
    b = SingleOperand("a slot")
    accumulator = _ACCUMULATOR
    adds = SingleOperand("whether it is added")
    plan = _PLAN
    precision = _PRECISION
    max_imprecise = _MAX_IMPRECISE


@OPS.operation(
    "simt.arrive_after",
    "arrive at a barrier object, once, when all products into accumulators that were started before have ended",
    on_barrier_rule,
    effects=_THREADS,
)
class ArriveAfter(Operation):
    __slots__ = ()

    barriers = _BARRIERS
    index = _INDEX
    condition = _CONDITION


@OPS.operation("simt.free_accumulators", "give memory for sums back: nothing touches it any more", free_accumulators_rule, effects=_THREADS)
class FreeAccumulators(Operation):
    __slots__ = ()

    memory = _ACCUMULATORS


# partitions


@OPS.operation(
    "simt.partition",
    "run parts side by side, each on warps of its own, which talk through buffers and barriers; all warps go on when all parts have ended",
    nothing_rule,
    effects=Effect.REGION | Effect.ORDER,
    check=check_partition,
)
class Partition(Operation):
    __slots__ = ()

    parts = NamedRegion()


@OPS.operation(
    "simt.part", "one part of a partition: barriers, lanes and warps in it are its own", nothing_rule, effects=Effect.REGION | Effect.ORDER, check=check_part
)
class Part(Operation):
    __slots__ = ()

    name_ = TypedAttribute[str]("for messages")
    warps = TypedAttribute[int]("that run it")
    registers = TypedAttribute[int]("of each thread; 0 as given", 0)
    body = NamedRegion()


@OPS.operation("simt.turn_wait", "wait until it is this part's turn; at first it is that of place 0", nothing_rule, effects=_THREADS)
class TurnWait(Turn):
    __slots__ = ()


@OPS.operation("simt.turn_pass", "let the next part of the order have its turn", nothing_rule, effects=_THREADS)
class TurnPass(Turn):
    __slots__ = ()


#: Tile IR's table and the operations of this module.
SIMT_TABLE: OpTable = TABLE.extended(OPS, TYPES, ENCODINGS)
