"""The state of emitting one kernel: the registers of tiles, and the thread's coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.errors import LoweringError, TilewrightError
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.types import DescriptorType, TileType, Type, element_type
from tilewright.llvm.emission.contraction import contract_flag
from tilewright.llvm.emission.debug_locations import LineTable
from tilewright.llvm.emission.elementwise import emit_operation
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.passes.analysis.axis import AxisInfo
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import CLUSTER, WARPS, layout_of, offset_of
from tilewright.simt.dialect.types import AccumulatorType, BarriersType, MemoryType, TokenType
from tilewright.simt.layouts.linear_layout import LinearLayout, bits_of
from tilewright.simt.target.capabilities.thread_hierarchy import Threads
from tilewright.simt.target.simt_target import SimtTarget

if TYPE_CHECKING:
    from tilewright.simt.dialect.ops.async_copy import CopyStart

#: The name of a register that is not written, because nothing reads it. LLVM rejects it, so that a
#: use of the name is an error.
UNWRITTEN = "<unwritten>"


class Steps(Protocol):
    """Strength-reduced addresses.

    See :class:`tilewright.simt.lowering.emission.address_steps.AddressSteps`.
    """

    def of(self, operation: Operation) -> tuple[Polynomial, ...] | None: ...

    def distance(self, context: SimtContext, polynomial: Polynomial, size: int) -> str: ...


class SimtContext:
    """Emits one kernel.

    Attributes:
        writer: the function under construction.
        registers: for each tile, the names of the thread's elements in the order of its layout's
            registers; for a scalar, one name.
        axes: axis analysis of the function.
        contract: fast-math flags that allow the fusion of float additions and multiplications.
        cluster: CTAs that run a program together.
        steps: strength-reduced addresses.

    ``lower`` emits an operation, and ``copies_of`` returns how many copies each thread starts by a
    ``simt.copy_start``.
    """

    def __init__(
        self,
        writer: FunctionWriter,
        target: SimtTarget,
        function: Function,
        axes: Mapping[Value, AxisInfo],
        options: Mapping[str, Any],
        needs: Mapping[Value, int],
        steps: Steps,
        lower: Callable[[SimtContext, Operation], None],
        copies_of: Callable[[CopyStart, SimtTarget, Mapping[Value, AxisInfo]], int],
    ) -> None:
        self.writer, self.target, self.axes, self.options = writer, target, axes, options
        #: debug locations, if line information is requested
        self.lines: LineTable | None = None
        self.registers: dict[Value, list[str]] = {}
        self._needs, self._lower = needs, lower
        self.cluster: int = function.attributes.get(CLUSTER, 1)
        self.steps = steps
        #: the threads that run the code under construction
        self.threads = Threads(0, 0, function.attributes[WARPS])
        self.contract = contract_flag(function, options)
        #: the operation being written
        self.operation: Operation | None = None
        #: groups in flight behind each token
        counted = any(mechanism.counted for mechanism in target.async_copy.mechanisms)
        self.tokens = Tokens(
            function, (lambda operation: copies_of(operation, target, axes)) if counted else None
        )
        #: numbers of the ordered hand-offs so far, by name
        self.orders: dict[str, int] = {}
        self._facts = dict(zip(function.arguments, function.argument_attributes, strict=True))
        self._thread_parts: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        with self.at_entry():
            self.lane, self.warp = target.threads.lane(writer), target.threads.warp(writer)
            self.shared_base = target.shared.base(writer)

    @contextmanager
    def without_contraction(self) -> Iterator[None]:
        """Fuse no multiplication with an addition that is emitted inside."""
        saved, self.contract = self.contract, ""
        try:
            yield
        finally:
            self.contract = saved

    # ---- values

    def layout(self, value: Value) -> LinearLayout:
        return layout_of(value)

    def scalar(self, value: Value) -> str:
        """Return the name of a scalar."""
        (name,) = self.registers[value]
        return name

    def is_needed(self, value: Value, register: int) -> bool:
        """Return whether anything reads a register of a value.

        A register that nothing reads may be :data:`UNWRITTEN`.
        """
        return not isinstance(value.type, TileType) or bool(
            self._needs.get(value, 0) >> register & 1
        )

    def bind(self, value: Value, names: Sequence[str]) -> None:
        """Bind a value to the names of its registers."""
        expected = self.layout(value).register_count if isinstance(value.type, TileType) else 1
        assert len(names) == expected, f"{value} has {expected} registers, not {len(names)}"
        self.registers[value] = list(names)

    def llvm_type(self, type_: Type) -> str:
        """Return the LLVM type of one element of a value of this type.

        A place in shared memory is an offset in bytes, and an accumulator in tensor memory is the
        number of its first column; a token has no runtime value; a descriptor is the pointer to the
        target's own.
        """
        if isinstance(type_, MemoryType | BarriersType | TokenType | AccumulatorType):
            return "i32"
        if isinstance(type_, DescriptorType):
            return "ptr"
        return register_type(element_type(type_))

    # ---- elements (:class:`tilewright.llvm.emission.element_context.ElementContext`)

    @property
    def native_ldexp(self) -> bool:
        return self.target.arithmetic.native_ldexp

    @property
    def native_exp(self) -> bool:
        return self.target.arithmetic.native_exp

    def machine_operation(
        self,
        name: str,
        operands: list[str],
        width: int,
        element: Type,
        attributes: Mapping[str, Any],
    ) -> str | None:
        return self.target.arithmetic.operation(self, name, operands, element, attributes)

    def machine_cast(
        self, operand: str, source: Type, result: Type, width: int, rounding: str
    ) -> str | None:
        return self.target.arithmetic.cast(self, operand, source, result, rounding)

    def emit_elementwise(self, operation: Operation, operands: list[str], width: int) -> str:
        return emit_operation(self, operation, operands, width)

    # ---- the thread

    @contextmanager
    def at_entry(self) -> Iterator[FunctionWriter]:
        """Emit into the entry block, which dominates all other blocks."""
        with self.writer.inserting(self.writer.entry):
            yield self.writer

    @contextmanager
    def run_by(self, threads: Threads) -> Iterator[None]:
        """Emit code that only some of the warps run, numbered from 0 on within it."""
        before = self.threads, self.warp, self._thread_parts
        with self.at_entry() as w:
            warp = w.emit(f"sub i32 {self.warp}, {threads.first}") if threads.first else self.warp
        self.threads, self.warp, self._thread_parts = threads, warp, {}
        try:
            yield
        finally:
            self.threads, self.warp, self._thread_parts = before

    def argument_facts(self, value: Value) -> Mapping[str, Any]:
        """Return the attributes of an argument of the kernel, such as a descriptor's padding."""
        return self._facts.get(value, {})

    def thread_part(self, lanes: Sequence[int], warps: Sequence[int]) -> str:
        """Emit the xor of the images of this thread's lane and warp bits, as i32.

        It is emitted once, in the entry block.
        """
        key = tuple(lanes), tuple(warps)
        name = self._thread_parts.get(key)
        if name is None:
            with self.at_entry() as w:
                name = emit_linear(w, ((self.lane, key[0]), (self.warp, key[1])))
            self._thread_parts[key] = name
        return name

    def is_owner(self, layout: LinearLayout) -> str | None:
        """Emit an i1 that holds in one of the threads that hold the same elements.

        Returns None if each element is held once.
        """
        lanes, warps = layout.redundant_threads()
        return self.thread_is_zero(lanes, warps)

    def thread_is_zero(self, lanes: int, warps: int) -> str | None:
        """Emit an i1: whether this thread's lane and warp have none of the masks' bits set.

        Returns None if both masks are empty.
        """
        conditions = []
        with self.at_entry() as w:
            for name, mask in ((self.lane, lanes), (self.warp, warps)):
                if mask:
                    conditions.append(w.emit(f"icmp eq i32 {w.emit(f'and i32 {name}, {mask}')}, 0"))
            if not conditions:
                return None
            return (
                conditions[0]
                if len(conditions) == 1
                else w.emit(f"and i1 {conditions[0]}, {conditions[1]}")
            )

    def is_first_thread(self) -> str:
        """Emit an i1: whether this is the first of the threads that run the emitted code.

        A partition may have any number of warps.
        """
        condition = self.thread_is_zero(
            self.target.resources.warp_size - 1, (1 << (self.threads.count - 1).bit_length()) - 1
        )
        return "true" if condition is None else condition

    def barrier(self) -> None:
        self.target.threads.barrier(self.writer, self.threads)

    def warp_barrier(self) -> None:
        self.target.threads.warp_barrier(self.writer)

    # ---- shared memory

    def scratch(self, operation: Operation, offset: int = 0) -> str:
        """Emit the address ``offset`` bytes into the scratch space of an operation."""
        return self.shared_address(offset_of(operation) + offset)

    def shared_address(self, offset: int | str) -> str:
        """Emit the shared-memory address at ``offset`` bytes, a number or the name of an i32."""
        return self.writer.emit(
            f"getelementptr i8, {self.target.shared.pointer} {self.shared_base}, i32 {offset}"
        )

    def shared_load(
        self, address: str, type_: str, count: int = 1, offset: int = 0, align: int = 1
    ) -> list[str]:
        """Load ``count`` consecutive elements of an LLVM type from shared memory.

        The first one is ``offset`` bytes from ``address``.
        """
        w, pointer = self.writer, self.target.shared.pointer
        if offset:
            address = w.emit(f"getelementptr i8, {pointer} {address}, i32 {offset}")
        self.target.shared.touch(w, address, writes=False)
        if count == 1:
            return [
                w.emit(
                    f"load {type_}, {pointer} {address}, align "
                    f"{align}{self.target.shared.metadata(w)}"
                )
            ]
        vector = w.emit(
            f"load <{count} x {type_}>, {pointer} {address}, align "
            f"{align}{self.target.shared.metadata(w)}"
        )
        return [
            w.emit(f"extractelement <{count} x {type_}> {vector}, i32 {i}") for i in range(count)
        ]

    def shared_store(
        self, address: str, type_: str, values: Sequence[str], offset: int = 0, align: int = 1
    ) -> None:
        """Store consecutive elements of an LLVM type to shared memory."""
        w, pointer = self.writer, self.target.shared.pointer
        if offset:
            address = w.emit(f"getelementptr i8, {pointer} {address}, i32 {offset}")
        self.target.shared.touch(w, address, writes=True)
        if len(values) == 1:
            w.do(
                f"store {type_} {values[0]}, {pointer} {address}, align "
                f"{align}{self.target.shared.metadata(w)}"
            )
            return
        vector = "poison"
        for i, value in enumerate(values):
            vector = w.emit(
                f"insertelement <{len(values)} x {type_}> {vector}, {type_} {value}, i32 {i}"
            )
        w.do(
            f"store <{len(values)} x {type_}> {vector}, {pointer} {address}, align "
            f"{align}{self.target.shared.metadata(w)}"
        )

    # ---- regions

    def lower_region(self, region: Region) -> Operation:
        """Emit the operations of a region but its terminator, and return the terminator."""
        mark = self.writer.mark
        for operation in region:
            if operation.spec.terminator:
                self.writer.mark = mark
                return operation
            self.operation = operation
            if self.lines is not None:
                self.writer.mark = self.lines.mark(operation.location)
            try:
                self._lower(self, operation)
            except TilewrightError:
                raise
            except Exception as error:
                raise LoweringError(
                    f"could not lower {operation.name} at {operation.location} for "
                    f"{self.target.name}, a defect of the backend: {type(error).__name__}: {error}"
                ) from error
        raise AssertionError("a region without a terminator")

    def evaluate(self, region: Region, arguments: Sequence[str]) -> list[str]:
        """Emit a region with scalar arguments, as of a ``reduce``; return the yielded values."""
        for argument, name in zip(region.arguments, arguments, strict=True):
            self.registers[argument] = [name]
        terminator = self.lower_region(region)
        return [self.scalar(value) for value in terminator.operands]


def emit_linear(w: FunctionWriter, sources: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Emit a linear map over F2: the xor of the images of the bits set in i32 values.

    ``sources`` are (name, images of its bits).
    """
    terms: dict[tuple[str, int], int] = {}
    for name, images in sources:
        for bit, image in enumerate(images):
            for target in bits_of(image):
                key = (name, target - bit)
                terms[key] = terms.get(key, 0) | 1 << bit
    result, occupied = "", 0
    for (name, shift), mask in terms.items():
        part = w.emit(f"and i32 {name}, {mask}")
        if shift:
            part = w.emit(f"{'shl' if shift > 0 else 'lshr'} i32 {part}, {abs(shift)}")
        moved = mask << shift if shift > 0 else mask >> -shift
        if not result:
            result = part
        else:
            result = w.emit(f"{'xor' if occupied & moved else 'or disjoint'} i32 {result}, {part}")
        occupied |= moved
    return result or "0"
