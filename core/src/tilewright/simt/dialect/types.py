"""Types of the SIMT operations: places in the memory that the threads of a program share, and what
is in flight.

buffer<4 x 128x64xf16, #S1> shared memory for four tiles, each of whose elements are where ``#S1``
says slot<128x64xf16, #S1> the place of one tile
token<copies>                  asynchronous operations of one queue, which end in order
barriers<4>                    four objects that count arrivals and bytes, and have phases
accumulator<128x128xf32>       the place of a matmul's accumulator in tensor memory
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from tilewright.ir.core import Value
from tilewright.ir.encoding import Encoding, EncodingText, full_text
from tilewright.ir.type_text import parse_type, split_comma
from tilewright.ir.types import PointerType, TileType, Type, byte_size
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, shape_text

_Memory = TypeVar("_Memory", bound="MemoryType")


class MemoryType(Type):
    """Tiles in shared memory: ``count`` of them, of ``shape`` and ``element``, whose elements are
    where ``layout`` says."""

    __slots__ = ("count", "element", "layout", "shape")
    count: int
    shape: tuple[int, ...]
    element: Type
    layout: SharedLayout

    @classmethod
    def _make(
        cls: type[_Memory], count: int, shape: tuple[int, ...], element: Type, layout: SharedLayout
    ) -> _Memory:
        shape = tuple(shape)
        if layout.shape != shape:
            raise ValueError(
                f"a tile of {shape_text(shape)} in shared memory cannot have a layout of "
                f"{shape_text(layout.shape)}"
            )
        key = count, shape, element, layout
        return cls._intern(
            key,
            cls._text_of(*key, full_text),
            count=count,
            shape=shape,
            element=element,
            layout=layout,
        )

    @staticmethod
    def _text_of(
        count: int,
        shape: tuple[int, ...],
        element: Type,
        layout: SharedLayout,
        encoding: EncodingText,
    ) -> str:
        raise NotImplementedError

    def written(self, encoding: EncodingText) -> str:
        return self._text_of(self.count, self.shape, self.element, self.layout, encoding)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self)._make, (self.count, self.shape, self.element, self.layout)

    @property
    def tile(self) -> TileType:
        """The type of a tile in registers that is there."""
        return TileType(self.shape, self.element)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile, rounded up to 16; an i1 takes one, a pointer eight."""
        size = 8 if isinstance(self.element, PointerType) else byte_size(self.element)
        return -(-math.prod(self.shape) * size // 16) * 16


class SlotType(MemoryType):
    """The place of one tile in shared memory."""

    __slots__ = ()

    def __new__(cls, shape: tuple[int, ...], element: Type, layout: SharedLayout) -> SlotType:
        return cls._make(1, shape, element, layout)

    @staticmethod
    def _text_of(
        count: int,
        shape: tuple[int, ...],
        element: Type,
        layout: SharedLayout,
        encoding: EncodingText,
    ) -> str:
        return f"slot<{shape_text(shape)}x{element}, {encoding(layout)}>"


class BufferType(MemoryType):
    """Shared memory for ``count`` tiles, one after the other."""

    __slots__ = ()

    def __new__(
        cls, count: int, shape: tuple[int, ...], element: Type, layout: SharedLayout
    ) -> BufferType:
        if count < 1:
            raise ValueError(f"a buffer has one slot at least, not {count}")
        return cls._make(count, shape, element, layout)

    @staticmethod
    def _text_of(
        count: int,
        shape: tuple[int, ...],
        element: Type,
        layout: SharedLayout,
        encoding: EncodingText,
    ) -> str:
        return f"buffer<{count} x {shape_text(shape)}x{element}, {encoding(layout)}>"

    @property
    def slot(self) -> SlotType:
        """The type of one of its slots."""
        return SlotType(self.shape, self.element, self.layout)

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return self.count * self.tile_bytes


class TokenType(Type):
    """Asynchronous operations in flight.

    Those of one ``queue`` end in the order they were started in: ``copies``, ``matmuls``, or one of
    a target's.
    """

    __slots__ = ("queue",)
    queue: str

    def __new__(cls, queue: str) -> TokenType:
        if not queue.isidentifier():
            raise ValueError(f"a queue is named by an identifier, not {queue!r}")
        return cls._intern((queue,), f"token<{queue}>", queue=queue)

    def __reduce__(self) -> tuple[object, ...]:
        return TokenType, (self.queue,)


COPIES, LOADS, STORES, MATMULS = (
    TokenType(queue) for queue in ("copies", "loads", "stores", "matmuls")
)


class BarriersType(Type):
    """``count`` mbarriers in shared memory."""

    __slots__ = ("count",)
    count: int

    def __new__(cls, count: int) -> BarriersType:
        if count < 1:
            raise ValueError(f"there is one barrier at least, not {count}")
        return cls._intern((count,), f"barriers<{count}>", count=count)

    def __reduce__(self) -> tuple[object, ...]:
        return BarriersType, (self.count,)


class AccumulatorType(Type):
    """A matmul's accumulator, of ``shape`` and ``element``, in memory that the machine has
    for them."""

    __slots__ = ("element", "shape")
    shape: tuple[int, ...]
    element: Type

    def __new__(cls, shape: tuple[int, ...], element: Type) -> AccumulatorType:
        shape = tuple(shape)
        return cls._intern(
            (shape, element),
            f"accumulator<{shape_text(shape)}x{element}>",
            shape=shape,
            element=element,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return AccumulatorType, (self.shape, self.element)

    @property
    def tile(self) -> TileType:
        """The type of the accumulator as a tile in registers."""
        return TileType(self.shape, self.element)


_TILES = re.compile(r"((?:\d+x)+)(.+)\Z", re.S)
_COUNT = re.compile(r"(\d+) x (.+)\Z", re.S)


def _tiles(
    body: str, encoding: Callable[[str], Encoding]
) -> tuple[tuple[int, ...], Type, SharedLayout]:
    first, comma, name = split_comma(body)
    found = _TILES.match(first.strip())
    if not comma or found is None:
        raise ValueError(f"{body!r} is no tile in shared memory: 'EXTENTSxELEMENT, LAYOUT' is")
    layout = encoding(name.strip())
    if not isinstance(layout, SharedLayout):
        raise ValueError(f"{name.strip()} is no layout of shared memory")
    return tuple(int(extent) for extent in found[1].split("x")[:-1]), parse_type(found[2]), layout


def _slot(body: str, encoding: Callable[[str], Encoding]) -> Type:
    return SlotType(*_tiles(body, encoding))


def _buffer(body: str, encoding: Callable[[str], Encoding]) -> Type:
    found = _COUNT.match(body)
    if found is None:
        raise ValueError(f"{body!r} is no buffer: 'COUNT x EXTENTSxELEMENT, LAYOUT' is")
    return BufferType(int(found[1]), *_tiles(found[2], encoding))


def _token(body: str, encoding: Callable[[str], Encoding]) -> Type:
    return TokenType(body)


def _barriers(body: str, encoding: Callable[[str], Encoding]) -> Type:
    if not body.isdecimal():
        raise ValueError(f"{body!r} is no number of barriers")
    return BarriersType(int(body))


def _accumulator(body: str, encoding: Callable[[str], Encoding]) -> Type:
    found = _TILES.match(body.strip())
    if found is None:
        raise ValueError(f"{body!r} is no accumulator: 'EXTENTSxELEMENT' is")
    return AccumulatorType(
        tuple(int(extent) for extent in found[1].split("x")[:-1]), parse_type(found[2])
    )


#: How the types of this module are read, by keyword.
TYPES = {
    "slot": _slot,
    "buffer": _buffer,
    "token": _token,
    "barriers": _barriers,
    "accumulator": _accumulator,
}
#: How layouts are read, by keyword.
ENCODINGS: dict[str, Callable[[str], Encoding]] = {
    LinearLayout.keyword: LinearLayout.parse,
    SharedLayout.keyword: SharedLayout.parse,
}


def slot_type(value: Value) -> SlotType:
    """The type of a slot."""
    type_ = value.type
    assert isinstance(type_, SlotType)
    return type_
