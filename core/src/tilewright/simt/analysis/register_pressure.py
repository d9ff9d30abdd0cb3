"""Register pressure of tiles: an estimate in program order, for decisions about occupancy.

Index arithmetic, pointers and masks do not count, because a thread holds only one address of a run
of consecutive ones.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Bitcast
from tilewright.ir.ops.control import For, If
from tilewright.ir.table import Effect
from tilewright.ir.types import I1, PointerType, TileType, bit_width
from tilewright.passes.effects import effects_of
from tilewright.simt.dialect.attributes import COLD, layout_of
from tilewright.simt.dialect.layout_rules import SHAPE_OPERATIONS, SOURCES
from tilewright.simt.dialect.ops.async_copy import Wait
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.dialect.ops.dot import Multiplication


def peak_words(function: Function) -> int:
    """Return the maximum number of 32-bit words of live tiles per thread in a kernel."""
    return peak_words_in(function.body)


def peak_words_in(region: Region) -> int:
    """Return the maximum number of 32-bit words of live tiles per thread within a region.

    Tiles defined outside of the region do not count.
    """
    return Pressure().region(region)


def hot_peak_words(function: Function) -> int:
    """Return the maximum number of 32-bit words of live tiles outside of cold regions.

    Code generation fuses chains of elementwise operations and their stores element by element: a
    tile within such a chain takes no registers.
    """
    return hot_peak_words_in(function.body)


def hot_peak_words_in(region: Region) -> int:
    """Return the same maximum within a region; tiles defined outside of it do not count."""
    return _HotPressure().region(region)


def words_of(tile: Value) -> int:
    """Return the 32-bit words of a tile per thread."""
    assert isinstance(tile.type, TileType)
    return -(-layout_of(tile).register_count * bit_width(tile.type.element) // 32)


class Pressure:
    """Estimate of the pressure in a region; subclasses override the model of operations."""

    def in_place(self, operation: Operation) -> bool:
        """Return whether a result reuses the registers of an operand whose last use this is."""
        return operation.spec.elementwise

    def beside(self, operation: Operation) -> int:
        """Return the words that an operation needs besides its operands and results."""
        return 0

    def reads(self, operation: Operation) -> list[Value]:
        """Return the values that an operation and its regions read."""
        return [operand for inner in operation.walk() for operand in inner.operands]

    def handed_over(self, operation: Operation, ended: int) -> int:
        """Return the words of dying operands (``ended``) that an operation's regions reuse."""
        return 0

    def words(self, value: Value) -> int:
        """Return the words of a value that the region defines."""
        type_ = value.type
        if (
            not isinstance(type_, TileType)
            or type_.element is I1
            or isinstance(type_.element, PointerType)
        ):
            return 0
        operation = value.definition
        if operation is not None and (
            isinstance(operation, SOURCES) or operation.name in SHAPE_OPERATIONS
        ):
            return 0
        return 0 if value.layout is None else words_of(value)

    def region(self, region: Region) -> int:
        """Return the peak within a region, of values defined in it."""
        last: dict[Value, Operation] = {}
        for operation in region:
            for value in self.reads(operation):
                last[value] = operation
        live = peak = sum(map(self.words, region.arguments))
        for operation in region:
            inner = max((self.region(inside) for inside in operation.regions), default=0)
            made = sum(map(self.words, operation.results))
            ended = sum(
                self.words(value)
                for value in set(self.reads(operation))
                if last[value] is operation and _defined_in(value, region)
            )
            within = live + inner - self.handed_over(operation, ended)
            peak = max(
                peak,
                within,
                live
                + made
                + self.beside(operation)
                - (min(ended, made) if self.in_place(operation) else 0),
            )
            live += (
                made
                - ended
                - sum(self.words(result) for result in operation.results if result not in last)
            )
        return peak


class _HotPressure(Pressure):
    """Estimate for hot regions: a value that only cold regions read counts as spilled.

    Matmuls accumulate in place, and results of shared memory round trips and of control flow reuse
    the registers of their operands.
    """

    def in_place(self, operation: Operation) -> bool:
        return isinstance(
            operation, Multiplication | Wait | Convert | For | If
        ) or super().in_place(operation)

    def reads(self, operation: Operation) -> list[Value]:
        inside = [
            value
            for region in operation.regions
            if not _is_cold(region)
            for inner in region
            for value in self.reads(inner)
        ]
        return [*operation.operands, *inside]

    def handed_over(self, operation: Operation, ended: int) -> int:
        # a loop's iteration arguments reuse the registers of their initial values
        return ended if isinstance(operation, For) else 0

    def words(self, value: Value) -> int:
        made = value.definition
        if isinstance(made, Bitcast):
            return 0
        is_passed_on = (
            made is not None
            and made.spec.elementwise
            and all(_goes_by_elements(user) and user.parent is made.parent for user in value.uses)
        )
        return 0 if is_passed_on else super().words(value)

    def region(self, region: Region) -> int:
        return 0 if _is_cold(region) else super().region(region)


def _goes_by_elements(operation: Operation) -> bool:
    """Return whether an operation computes or stores its operands element by element."""
    return operation.spec.elementwise or (
        not operation.results and effects_of(operation) == Effect.WRITE
    )


def _is_cold(region: Region) -> bool:
    owner = region.owner
    return isinstance(owner, If) and owner.then is region and COLD in owner.attributes


def _defined_in(value: Value, region: Region) -> bool:
    owner = value.owner
    return owner is region or (isinstance(owner, Operation) and owner.parent is region)
