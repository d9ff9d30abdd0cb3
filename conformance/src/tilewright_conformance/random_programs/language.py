"""The part of Tile IR that programs for a backend may use, by its capabilities and the op table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.ir.ops.linear import accumulator_types
from tilewright.ir.ops.memory import check_atomic_element
from tilewright.ir.table import RuleError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import F32, F64, FLOATS, I1, I32, I64, INTEGERS, FloatType, IntType, Type
from tilewright.plugins.manifest import Capabilities

_KINDS = ("add", "min", "max", "and", "or", "xor", "xchg")

#: Extents along an axis.
_EXTENTS = (1, 2, 4, 8, 16, 32, 64, 256)
_ODD_EXTENTS = (3, 5, 7, 12, 33, 100)
#: No tile of a program is larger, so that the reference stays fast.
MOST_ELEMENTS = 1024


def _fits(kind: str, element: Type) -> bool:
    try:
        check_atomic_element(kind, element)
    except RuleError:
        return False
    return True


_NUMBERS: tuple[IntType | FloatType, ...] = (*INTEGERS, *FLOATS)

#: All of Tile IR that needs nothing of a target, with extents that are powers of two.
PORTABLE = Capabilities(
    dtypes=frozenset(str(type_) for type_ in _NUMBERS),
    dot={
        str(type_): tuple(map(str, accumulator_types(type_)))
        for type_ in _NUMBERS
        if accumulator_types(type_)
    },
    dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
    atomics={
        str(type_): frozenset(
            {
                kind
                for kind in _KINDS
                if _fits(kind, type_) and (type_.bits >= 32 or kind in ("add", "xchg"))
            }
            | {"cas"}
        )
        for type_ in _NUMBERS
        if type_.bits >= 16
    },
    features=frozenset({"descriptors", "dot_scaled", "noinline", "assert"}),
)


@dataclass(frozen=True)
class Language:
    """The types, shapes and operations that programs are drawn from."""

    capabilities: Capabilities

    def has(self, type_: Type) -> bool:
        """Return whether the backend has an element type."""
        return str(type_) in self.capabilities.dtypes

    def feature(self, name: str) -> bool:
        return name in self.capabilities.features

    @cached_property
    def integers(self) -> tuple[IntType, ...]:
        """Integers other than the boolean.

        Masks, offsets and program ids need i1, i32 and i64, which every backend has.
        """
        return tuple(
            type_
            for type_ in INTEGERS
            if type_ is not I1 and (self.has(type_) or type_ in (I32, I64))
        )

    @cached_property
    def floats(self) -> tuple[FloatType, ...]:
        return tuple(type_ for type_ in FLOATS if self.has(type_))

    @cached_property
    def numbers(self) -> tuple[IntType | FloatType, ...]:
        return (*self.integers, *self.floats)

    @cached_property
    def stored(self) -> tuple[IntType | FloatType, ...]:
        """Element types of arguments, the more common ones more than once."""
        usual = tuple(type_ for type_ in self.numbers if type_.bits > 8)
        return (*self.numbers, *usual, *(type_ for type_ in (F32, F64) if self.has(type_)))

    @cached_property
    def scalars(self) -> tuple[IntType | FloatType, ...]:
        """Types of arguments that are numbers."""
        return (I1, *self.integers, *(type_ for type_ in (F32, F64) if self.has(type_)))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tiles that a program begins with."""
        extents = _EXTENTS if self.capabilities.power_of_two else (*_EXTENTS, *_ODD_EXTENTS)
        found: list[tuple[int, ...]] = [(extent,) for extent in extents]
        found += [
            (rows, columns)
            for rows in extents
            for columns in extents
            if 4 <= rows * columns <= 256 and max(rows, columns) <= 64
        ]
        found += [(2, 4, 8), (4, 1, 16), (2, 2, 2), (1, 8, 4)]
        if not self.capabilities.power_of_two:
            found += [(3, 4, 5), (2, 3, 1, 7)]
        most = self.most_elements
        return tuple(shape for shape in found if self.numel(shape) <= most)

    @cached_property
    def most_elements(self) -> int:
        return min(MOST_ELEMENTS, self.capabilities.max_tile_elements)

    def numel(self, shape: tuple[int, ...]) -> int:
        count = 1
        for extent in shape:
            count *= extent
        return count

    def fits(self, *shapes: tuple[int, ...]) -> bool:
        """Return whether tiles of these shapes may be made."""
        for shape in shapes:
            if self.numel(shape) > self.most_elements:
                return False
            if self.capabilities.power_of_two and any(extent & (extent - 1) for extent in shape):
                return False
        return True

    @cached_property
    def dots(self) -> tuple[tuple[IntType | FloatType, IntType | FloatType], ...]:
        """Pairs (operand, accumulator) of a dot that the IR and the backend both have."""
        return tuple(
            (operand, accumulator)
            for operand in self.numbers
            for accumulator in accumulator_types(operand)
            if isinstance(accumulator, IntType | FloatType)
            and str(accumulator) in self.capabilities.dot.get(str(operand), ())
            and self.has(accumulator)
        )

    @cached_property
    def atomics(self) -> tuple[tuple[IntType | FloatType, str], ...]:
        """Pairs (element, kind) of atomic updates of the IR and the backend, with ``cas``."""
        found: list[tuple[IntType | FloatType, str]] = []
        for name in sorted(self.capabilities.atomics):
            element = parse_type(name)
            if not isinstance(element, IntType | FloatType) or not self.has(element):
                continue
            kinds = sorted(self.capabilities.atomics[name])
            found += [
                (element, kind)
                for kind in kinds
                if (
                    element.bits in (16, 32, 64)
                    if kind == "cas"
                    else kind in _KINDS and _fits(kind, element)
                )
            ]
        return tuple(found)
