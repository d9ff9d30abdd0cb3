"""State of lowering one function, and the services that the lowering of an operation may use.

A tile is *lazy* until something needs it in memory: elementwise operations, loads, and operations
that only move elements are evaluated by vector strips where they are read (:mod:`.loops.evaluate`).
:meth:`Context.materialize` puts a tile into a row-major :class:`Buffer`.

A lowering is a function ``lower_<op>(context, operation) -> None``, listed in ``LOWERINGS`` of its
file. It reads its operands with :meth:`Context.scalar`, :meth:`Context.materialize` or
:meth:`Context.in_place`, writes code with ``context.writer``, and binds each result with
:meth:`Context.bind_scalar` or :meth:`Context.bind_buffer`. It may write any control flow; when it
returns, ``writer.current`` is an open block that everything before dominates. Names it binds must
be defined in a block that dominates the end of what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.errors import LoweringError
from tilewright.ir.core import Function, Location, Operation, Region, Value
from tilewright.ir.types import TileType, Type, element_type
from tilewright.llvm.emission.contraction import contract_flag
from tilewright.llvm.emission.debug_locations import LineTable
from tilewright.llvm.emission.elementwise import emit_operation
from tilewright.llvm.emission.registers import (
    constant,
    register_type,
    storage_size,
    storage_type,
    vector_type,
)
from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter, Loop, ModuleWriter
from tilewright_cpu.codegen.state.partial_sums import PartialSumState
from tilewright_cpu.codegen.state.sanitizer_state import FunctionChecks, ModuleChecks
from tilewright_cpu.codegen.state.stack_slots import Buffer as Buffer
from tilewright_cpu.codegen.state.stack_slots import StackSlots
from tilewright_cpu.hardware import Hardware
from tilewright_cpu.status import poll_symbol

if TYPE_CHECKING:
    # handed in: the kernel's lowering analyzes tiles first
    from tilewright_cpu.codegen.analysis.tiles import Analysis

    # handed in: loops open accumulators, and their dots read the state
    from tilewright_cpu.codegen.gemm.loop_accumulator import LoopAccumulator


@dataclass(frozen=True, slots=True)
class Strided:
    """A tile that can be read where the kernel's data lies.

    Element ``i`` is at ``pointer + sum(strides[d] * i[d])`` elements. ``strides`` are i64 operands,
    numbers where they are known. ``valid`` is an i1: where it is false some lane is masked off, and
    the tile must be materialized instead. ``"true"`` where there is no mask.
    """

    pointer: str
    strides: tuple[str, ...]
    element: Type
    valid: str = "true"


class Coordinate(NamedTuple):
    """One coordinate of an index.

    ``base`` is an i64 operand, defined in the scope ``depth``. With a ``width`` the coordinate
    stands for the lanes base, base + 1, … base + width - 1.
    """

    base: str
    depth: int = 0
    width: int = 0


class Partial(NamedTuple):
    """A kept tile of rank 1 of which the lanes from ``start`` on were not written.

    They stand for ``number``, being masked off by the comparison ``leaf``. ``certain``: ``start``
    is where the comparison ends, in any case.
    """

    leaf: Value
    start: str
    number: float
    certain: bool


class Copy(NamedTuple):
    """A copy of a load, which is read in the load's place where the i1 ``holds``.

    It lies at ``pointer``, ``strides`` elements from one coordinate to the next.
    """

    holds: str
    pointer: str
    strides: tuple[int, ...]


Index = tuple[Coordinate, ...]
ZERO = Coordinate("0")


def lane_axis(index: Index) -> int:
    """The axis that has a width; -1 for an index of scalars."""
    for axis, coordinate in enumerate(index):
        if coordinate.width:
            return axis
    return -1


def with_coordinate(index: Index, axis: int, coordinate: Coordinate) -> Index:
    return (*index[:axis], coordinate, *index[axis + 1 :])


class Scope:
    """A place that code invariant in deeper loops is hoisted to.

    It holds the block, the values that were evaluated there, the bounds that were checked there
    (:mod:`.sanitizer.bounds`), and the addresses in buffers: (type, address before, index, stride)
    -> address.
    """

    __slots__ = ("addresses", "block", "checks", "memo")

    def __init__(self, block: BasicBlock) -> None:
        self.block = block
        self.memo: dict[tuple[Value, Index], str] = {}
        self.checks: dict[Any, Any] = {}
        self.addresses: dict[tuple[str, str, str, int], str] = {}


@dataclass(frozen=True)
class Methods:
    """Services of a context that files above it implement, in functions of these names.

    Attributes:
        statements: operation name -> its lowering, for every operation that is not lazy.
        scalar: the lowering of an elementwise operation on scalars.
    """

    materialize: Callable[[Context, Value], Buffer]
    copy_buffer: Callable[[Context, Buffer, Buffer], None]
    in_place: Callable[[Context, Value], Strided | None]
    evaluate: Callable[[Context, Value, Index], str]
    evaluate_scalars: Callable[[Context, Region, Sequence[str]], list[str]]
    machine_operation: Callable[[Context, str, list[str], int, Type, Mapping[str, Any]], str | None]
    statements: Mapping[str, Callable[[Context, Operation], None]]
    scalar: Callable[[Context, Operation], None]


class KernelState:
    """State that the functions of one module share.

    Attributes:
        functions: the module's functions, by name.
        methods: the services of contexts.
        symbol: the kernel's name in the code.
        hardware: the processor that code is generated for.
        options: the launch options.
        messages: the message of each assertion, by its index in the status block.
        callees: the LLVM names of the functions written so far but for the kernel, by name.
        arena_bytes: heap memory of the functions written so far.
        memory_bytes, cleared_bytes: see :class:`~tilewright_cpu.codegen.kernel.KernelText`.
        prepackable: whether a matmul looks for operands that were packed before the launch.
        checks: the state of debug mode's checks.
        poll: the variable that holds the address of the cancellation check.
        polls: whether there is a loop with cancellation checks.
    """

    def __init__(
        self,
        module: ModuleWriter,
        functions: Mapping[str, Function],
        hardware: Hardware,
        options: Mapping[str, Any],
        methods: Methods,
        symbol: str,
    ) -> None:
        self.module, self.functions, self.methods = module, functions, methods
        self.symbol = symbol
        self.poll = f"@{poll_symbol(symbol)}"
        self.polls = False
        self.hardware = hardware
        self.options = options
        self.messages: list[str] = []
        self.callees: dict[str, str] = {}
        self.arena_bytes = self.memory_bytes = self.cleared_bytes = 0
        self.prepackable = False
        self.checks = ModuleChecks()


class Context(StackSlots):
    """Lowering of one function.

    Attributes:
        writer: where code goes.
        state: what the functions of the module share.
        operation: the operation being lowered.
        program_ids: the position of the running program, i32 operands x, y, z.
    """

    def __init__(
        self, state: KernelState, writer: FunctionWriter, function: Function, analysis: Analysis
    ) -> None:
        super().__init__(writer)
        self.state, self.function, self.analysis = state, function, analysis
        self.operation: Operation | None = None
        #: the places of instructions, where the code says its lines
        self.lines: LineTable | None = None
        self.program_ids: tuple[str, str, str] = ("0", "0", "0")
        self.grid: tuple[str, str, str] = ("1", "1", "1")
        self.status = "null"
        self.contract = contract_flag(function, state.options)
        self.stop_block: BasicBlock | None = None
        #: a word with the time when its loops last let signals be handled; "" where no loop has
        #: cancellation checks
        self.heeded = ""
        #: a region of scalars is being run on elements by the operation at ``position``
        self.in_elements = False
        self.scalars: dict[Value, str] = {}
        self.buffers: dict[Value, Buffer] = {}
        self.descriptors: dict[Value, Any] = {}
        # strip evaluation
        self.scopes: list[Scope] = []
        self.floor = 0
        self.assumed: frozenset[Value] = frozenset()
        #: (comparison, its lane axis) -> lanes from the first on that satisfy it, i64, in the row
        #: at hand
        self.limits: dict[tuple[Value, int], str] = {}
        #: tiles the loop nest at hand fills, and the index of the loop nest's own strip
        self.caching: dict[Value, Buffer] = {}
        self.nest_index: Index = ()
        self.partial: dict[Value, Partial] = {}
        #: results of loops that are kept in vector registers
        self.partial_sums: dict[Value, PartialSumState] = {}
        #: loop-carried tiles -> the state of those that dots add up from zero
        self.loop_accumulators: dict[Value, LoopAccumulator] = {}
        #: stores that loops may make by themselves -> the address of an i8, other than 0 if so
        self.stored_in_loops: dict[Operation, str] = {}
        #: ``for`` operations whose bodies are, or were, written
        self.loops: dict[Operation, Loop] = {}
        self.axis_strides: dict[Value, tuple[Any, ...]] = {}
        #: index tiles that are consecutive if an i1 holds (see :mod:`.analysis.contiguity`); those
        #: in ``assumed`` are
        self.consecutive: dict[Value, str] = {}
        #: loads that were not evaluated yet, in order
        self.pending: dict[Value, Operation] = {}
        #: of those, the ones that the loop nest of the store at hand reads, unless its addresses
        #: meet theirs (:mod:`.ops.alias_check`)
        self.compared: list[Value] = []
        #: and the copies that are read where they do
        self.copies: dict[Value, Copy] = {}
        #: what debug mode checks
        self.checks = FunctionChecks()
        # memory
        self._dummy = self._dummy_store = ""
        #: what holds in front of the loops over the lanes of a row that are being written: the
        #: scopes, the floor, what is assumed, the forms
        self.row: tuple[list[Scope], int, frozenset[Value], dict[Value, tuple[Any, ...]]] | None = (
            None
        )

    # ---- values

    def scalar(self, value: Value) -> str:
        """The LLVM operand of a scalar (a number or a pointer)."""
        try:
            return self.scalars[value]
        except KeyError:
            raise LoweringError(
                f"scalar {value!r} is read before it is lowered, in {self.operation!r}"
            ) from None

    def bind_scalar(self, value: Value, name: str) -> None:
        """Bind a scalar result to an LLVM operand."""
        self.scalars[value] = name

    def resolve(self, value: Value) -> Value:
        """The value that stands for ``value``.

        Carried tiles that only move by a uniform step are rewritten in terms of their first value.
        """
        replaced = self.analysis.replaced
        while value in replaced:
            value = replaced[value]
        return value

    def materialize(self, value: Value) -> Buffer:
        """The tile in memory.

        A tile that is in memory already is returned as it is, and must not be written to (see
        :meth:`take_buffer`).
        """
        return self.state.methods.materialize(self, value)

    def take_buffer(self, value: Value) -> Buffer | None:
        """The tile's buffer if the result may be written over it, else None; bind the result to it.

        It may where the operation being lowered is the tile's last reader.
        """
        value = self.resolve(value)
        buffer, operation = self.buffers.get(value), self.operation
        last_use, position = self.analysis.last_use, self.position
        if buffer is None or last_use.get(value, -1) > position or self.is_borrowed(buffer):
            return None
        operands = (
            [] if operation is None else [self.resolve(operand) for operand in operation.operands]
        )
        if operands.count(value) > 1:
            return None
        for holder in self.holders(buffer):
            last = -1 if holder is value else last_use.get(holder, -1)
            # what the operation read of it through this value has been read by now
            if last > position or (last == position and operation is None):
                return None
            if any(
                operand is not value and self.analysis.reaches(operand, holder)
                for operand in operands
            ):
                return None
        return buffer

    def materialize_owned(self, value: Value) -> Buffer:
        """The tile in memory that the operation being lowered may overwrite.

        It is the tile's own buffer where this operation is its last reader, else a copy.
        """
        buffer = self.materialize(value)
        if self.take_buffer(value) is not None:
            return buffer
        copy = self.new_buffer(buffer.shape, buffer.element)
        self.state.methods.copy_buffer(self, buffer, copy)
        return copy

    def bind_buffer(self, value: Value, buffer: Buffer) -> None:
        """Give a tile result. The buffer lives until the last reader of ``value``."""
        assert (
            isinstance(value.type, TileType)
            and value.type.shape == buffer.shape
            and value.type.element is buffer.element
        ), (value, buffer)
        self.buffers[value] = buffer
        self.holders(buffer).append(value)
        self.reserve(buffer, self.analysis.last_use.get(value, self.position))

    def in_place(self, value: Value) -> Strided | None:
        """Address and strides of a tile that can be read without a copy; None where it cannot.

        Such a tile is a load whose addresses are a sum of strides (its mask, if any, bounds each
        axis), or a tile in memory. Code is written for the address and strides.
        """
        return self.state.methods.in_place(self, value)

    @property
    def dummy(self) -> str:
        """64 zero bytes that a masked-off lane may read."""
        if not self._dummy:
            self._dummy = self.writer.alloca("i8", 64, 64)
            self.writer.allocations.append(
                f"  call void @llvm.memset.p0.i64(ptr align 64 {self._dummy}, i8 0, i64 64, "
                "i1 false)"
            )
            self.state.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        return self._dummy

    @property
    def dummy_store(self) -> str:
        """64 bytes that a masked-off lane may write to."""
        if not self._dummy_store:
            self._dummy_store = self.writer.alloca("i8", 64, 64)
        return self._dummy_store

    @contextmanager
    def on_one_way(self) -> Iterator[None]:
        """Write code on one of several ways: what it puts into memory is there on this way only."""
        saved = self.buffers, self.pending, self.partial, self.partial_sums
        self.buffers, self.pending = dict(self.buffers), dict(self.pending)
        self.partial, self.partial_sums = dict(self.partial), dict(self.partial_sums)
        try:
            yield
        finally:
            self.buffers, self.pending, self.partial, self.partial_sums = saved

    # ---- types and conversions

    def llvm_type(self, type_: Type, width: int = 0) -> str:
        """The register type of a scalar, or of a vector of ``width`` elements.

        Storage is the same but for i1, which is i8 in memory.
        """
        return vector_type(element_type(type_), width)

    def register_type(self, element: Type) -> str:
        return register_type(element)

    def storage_type(self, element: Type) -> str:
        return storage_type(element)

    def constant(self, element: Type, value: float | bool, width: int = 0) -> str:
        """A constant operand."""
        return constant(element, value, width)

    def convert(
        self, name: str, source: Type, result: Type, width: int = 0, rounding: str = "rtne"
    ) -> str:
        """A number in register form as another number type, by the rules of ``cast``."""
        from tilewright.llvm.emission.casts import emit_cast

        return emit_cast(self, name, source, result, width, rounding)

    @property
    def native_ldexp(self) -> bool:
        return self.state.hardware.can("ldexp")

    @property
    def native_exp(self) -> bool:
        return False

    def machine_operation(
        self,
        name: str,
        operands: list[str],
        width: int,
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        return self.state.methods.machine_operation(
            self, name, operands, width, element, attributes
        )

    def machine_cast(
        self, operand: str, source: Type, result: Type, width: int, rounding: str
    ) -> str | None:
        return None

    def emit_elementwise(self, operation: Operation, operands: list[str], width: int) -> str:
        return emit_operation(self, operation, operands, width)

    def elements_for(self, element: Type) -> int:
        """Elements of a type that a vector register holds."""
        return max(1, self.state.hardware.vector_bytes // storage_size(element))

    # ---- regions of scalars

    def is_straight_line(self, region: Region) -> bool:
        """Return whether a region has elementwise operations and constants only.

        :meth:`evaluate_vectors` takes such regions.
        """
        from tilewright.llvm.emission.scalar_regions import is_straight_line

        return is_straight_line(region)

    def evaluate_scalars(self, region: Region, arguments: Sequence[str]) -> list[str]:
        """Emit a scalar region (the body of a combine or a map); return the values it yields."""
        return self.state.methods.evaluate_scalars(self, region, arguments)

    def evaluate_vectors(self, region: Region, arguments: Sequence[str], width: int) -> list[str]:
        """Run a straight-line region on vectors of ``width`` lanes; what it yields."""
        from tilewright.llvm.emission.scalar_regions import evaluate_vectors

        return evaluate_vectors(self, region, arguments, width)

    # ---- tiles by strips

    def evaluate(self, value: Value, index: Index) -> str:
        """A tile at an index: a vector where a coordinate has a width, else a scalar.

        Only inside :meth:`nest` and :meth:`loop`, after
        :class:`~tilewright_cpu.codegen.loops.loop_nest.NestPlan` of the tile.
        """
        return self.state.methods.evaluate(self, value, index)

    @contextmanager
    def nest(self) -> Iterator[None]:
        """Open the outermost scope of a loop nest at the current block."""
        assert not self.scopes, "a nest is written inside another"
        self.scopes, self.floor = [Scope(self.writer.current)], 0
        try:
            yield
        finally:
            self.scopes, self.floor, self.assumed = [], 0, frozenset()
            self.limits, self.caching = {}, {}

    @contextmanager
    def scope(
        self, block: BasicBlock, assume: frozenset[Value] = frozenset(), *, floor: bool = False
    ) -> Iterator[int]:
        """Open a scope that starts at ``block``; its depth.

        With ``assume`` those conditions hold in it. With ``floor`` nothing evaluated in it is
        hoisted above the block.
        """
        saved = self.floor, self.assumed, self.axis_strides
        self.scopes.append(Scope(block))
        if assume - self.assumed:
            if any(value in self.consecutive for value in assume - self.assumed):
                self.axis_strides = {}
            self.assumed = self.assumed | assume
            floor = True
        if floor:
            self.floor = len(self.scopes) - 1
        try:
            yield len(self.scopes) - 1
        finally:
            self.scopes.pop()
            self.floor, self.assumed, self.axis_strides = saved

    @contextmanager
    def ahead_of_row(self) -> Iterator[None]:
        """Write code in front of the loops over the row's lanes, or here where there are none."""
        if self.row is None or self.row[0][-1] is self.scopes[-1]:
            yield
            return
        saved = self.writer.current, self.scopes, self.floor, self.assumed, self.axis_strides
        self.scopes, self.floor, self.assumed, self.axis_strides = self.row
        self.writer.current = self.scopes[-1].block
        try:
            yield
        finally:
            self.writer.current, self.scopes, self.floor, self.assumed, self.axis_strides = saved

    @contextmanager
    def ahead_of_nest(self) -> Iterator[None]:
        """Write code in front of all loops of the nest at hand, where nothing is assumed yet."""
        saved = self.writer.current, self.scopes, self.floor, self.assumed, self.axis_strides
        if len(self.scopes) > 1:
            self.writer.current = self.scopes[0].block
        self.scopes, self.floor = self.scopes[:1], 0
        try:
            yield
        finally:
            current, self.scopes, self.floor, self.assumed, self.axis_strides = saved
            if len(self.scopes) > 1:
                self.writer.current = current

    @contextmanager
    def trusting(self, operations: Sequence[Operation]) -> Iterator[None]:
        """Write code that accesses what the operations access without a check."""
        saved = self.checks.trusted
        self.checks.trusted = saved | frozenset(operations)
        try:
            yield
        finally:
            self.checks.trusted = saved

    @contextmanager
    def loop(
        self,
        lower: str,
        upper: str,
        step: int = 1,
        carried: Sequence[tuple[str, str]] = (),
        *,
        nonempty: bool = False,
        assume: frozenset[Value] = frozenset(),
    ) -> Iterator[tuple[Loop, Coordinate]]:
        """Open a loop of a loop nest: the loop, and its coordinate without a width.

        Code that does not depend on the coordinate is hoisted out as it is written.
        """
        self.scopes[-1].block = self.writer.current
        loop = self.writer.begin_loop(lower, upper, step, carried, nonempty=nonempty)
        with (
            self.scope(loop.preheader, assume, floor=bool(assume)),
            self.scope(self.writer.current) as depth,
        ):
            yield loop, Coordinate(loop.index, depth)
            self.writer.end_loop(loop, loop.next_values)

    # ---- leaving the kernel

    def stop(self) -> None:
        """Leave the function for good, and end the current block.

        Programs that did not start yet will not run in this thread.
        """
        assert self.stop_block is not None
        self.writer.branch(self.stop_block)

    def report(self, code: int, message: str) -> None:
        """Write the status block, unless another program did, and stop. Ends the current block.

        ``message`` is an i32.
        """
        w = self.writer
        pair = w.emit(f"cmpxchg ptr {self.status}, i32 0, i32 {code} monotonic monotonic, align 4")
        first, report, leave = (
            w.emit(f"extractvalue {{ i32, i1 }} {pair}, 1"),
            w.new_block("report"),
            w.new_block("leave"),
        )
        w.branch_if(first, report, leave)
        w.place(report)
        for position, value in enumerate((message, *self.program_ids), start=1):
            w.store("i32", value, w.gep("i32", self.status, position), 4)
        w.branch(leave)
        w.place(leave)
        self.stop()

    def message(self, text: str, location: Location | None) -> int:
        """The index under which the status block names an assertion's message."""
        self.state.messages.append(f"{text} at {location}" if location is not None else text)
        return len(self.state.messages) - 1


def scope_of(context: Context, index: Index) -> Scope:
    """Return the outermost scope, not above the floor, that defines all coordinates of an index."""
    depth = context.floor
    for coordinate in index:
        if coordinate.depth > depth:
            depth = coordinate.depth
    return context.scopes[depth]
