"""How many registers a thread needs for its tiles at once: an estimate from the order of the operations, for deciding how many threads shall share a
machine's registers.

Index arithmetic, pointers and masks are not counted: of a run of addresses a thread holds one.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.types import I1, PointerType, TileType, bit_width
from tilewright.simt.facts import layout_of
from tilewright.simt.rules import SHAPE_OPERATIONS, SOURCES


def peak_words(function: Function) -> int:
    """The most 32-bit words that a thread holds of tiles at any place of a kernel with layouts."""
    return peak_words_in(function.body)


def peak_words_in(region: Region) -> int:
    """The most 32-bit words that a thread holds of tiles of a region, its arguments and what it makes, at any place there."""
    return Pressure().region(region)


def words_of(tile: Value) -> int:
    """32-bit words of a tile that a thread holds."""
    assert isinstance(tile.type, TileType)
    return -(-layout_of(tile).register_count * bit_width(tile.type.element) // 32)


class Pressure:
    """Follows a region in order; what differs from the estimate for any program, others override."""

    def in_place(self, operation: Operation) -> bool:
        """Whether a result takes the place of an operand that ends there."""
        return operation.spec.elementwise

    def beside(self, operation: Operation) -> int:
        """Words that an operation holds while it runs, beside its operands and results."""
        return 0

    def words(self, value: Value) -> int:
        """Words of a value that is made in the region."""
        type_ = value.type
        if not isinstance(type_, TileType) or type_.element is I1 or isinstance(type_.element, PointerType):
            return 0
        operation = value.definition
        if operation is not None and (operation.name in SOURCES or operation.name in SHAPE_OPERATIONS):
            return 0
        return 0 if value.layout is None else words_of(value)

    def region(self, region: Region) -> int:
        """The peak within a region, of what is defined in it."""
        last: dict[Value, Operation] = {}
        for operation in region:
            for value in _read(operation):
                last[value] = operation
        live = peak = sum(map(self.words, region.arguments))
        for operation in region:
            inner = max((self.region(inside) for inside in operation.regions), default=0)
            made = sum(map(self.words, operation.results))
            ended = sum(self.words(value) for value in set(_read(operation)) if last[value] is operation and _defined_in(value, region))
            peak = max(peak, live + inner, live + made + self.beside(operation) - (min(ended, made) if self.in_place(operation) else 0))
            live += made - ended - sum(self.words(result) for result in operation.results if result not in last)
        return peak


def _read(operation: Operation) -> list[Value]:
    """What an operation and its regions read."""
    return [operand for inner in operation.walk() for operand in inner.operands]


def _defined_in(value: Value, region: Region) -> bool:
    owner = value.owner
    return owner is region or (isinstance(owner, Operation) and owner.parent is region)
