"""Host-side tensor maps (``CUtensorMap``): the 128 bytes that describe a tensor to TMA.

The launcher encodes one map for each tensor and box shape that the kernel copies, from an address,
extents and strides that depend on the launch's arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.expressions import Expression, checked, plain, with_words, word, words_of
from tilewright.gpu_host.table import (
    STRUCTURE,
    IntegerArrayOperand,
    IntegerOperand,
    NativeCall,
    OpaqueArgument,
    Precondition,
)
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    FloatType,
    IntType,
    Type,
)
from tilewright.llvm.emission.registers import storage_size

#: Bytes of a tensor map.
BYTES: Final = 128
#: The maximum extent of a box, and the maximum number of axes.
MOST_BOX, MOST_AXES = 256, 5
#: Alignment in bytes of addresses, strides and the box's innermost row.
ALIGNMENT: Final = 16
_MOST_EXTENT, _MOST_STRIDE = 1 << 32, 1 << 40

#: :attr:`TensorMap.element` of f32 that TMA rounds to tf32.
ROUNDED: Final = "tf32"
#: Element type -> ``CUtensorMapDataType``; TMA copies other types as unsigned integers of the same
#: size.
_TYPES: Final[dict[Type, int]] = {
    U8: 0,
    U16: 1,
    U32: 2,
    I32: 3,
    U64: 4,
    I64: 5,
    F16: 6,
    F32: 7,
    F64: 8,
    BF16: 9,
}
#: ``CU_TENSOR_MAP_DATA_TYPE_TFLOAT32``
_ROUNDED_FLOATS: Final = 11
_PLAIN: Final = {1: U8, 2: U16, 4: U32, 8: U64}
#: Swizzle width in bytes -> ``CUtensorMapSwizzle``.
_SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
#: ``CU_TENSOR_MAP_L2_PROMOTION_L2_128B``
_LINES_OF_128: Final = 2
_TILED, _PIXELS = "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"
#: The enumerations that the encoding function takes last, in order.
_BEHIND: Final = (
    "CUtensorMapInterleave",
    "CUtensorMapSwizzle",
    "CUtensorMapL2promotion",
    "CUtensorMapFloatOOBfill",
)


@dataclass(frozen=True, slots=True)
class PixelBox:
    """The bounding box of an im2col map of images with innermost channels.

    Attributes:
        lower, upper: the box's corners relative to an image's first and last pixel, by axis of an
            image.
        pixels: pixels per copy.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    pixels: int


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The parameters of a host-side tensor map, with launch-time expressions for address and shape.

    Attributes:
        address: address of the tensor's first element, as an expression over the words of the
            kernel's arguments (:mod:`tilewright.gpu_host.expressions`).
        extents, strides: the tensor's extents, and its strides in elements, outermost first, as
            such expressions; as many as ``box`` has.
        element: the element type, as Tile IR spells it, or :data:`ROUNDED`.
        box: extents of the box that one copy moves, outermost first.
        span: swizzle width in bytes; 0 without a swizzle.
        nan: whether elements outside the tensor read as NaN instead of 0.
        pixel_box: the bounding box of an im2col map, whose ``box`` then has the channels of one
            pixel; None for a tiled map.
        implied: whether the compiler derived the map from pointer arithmetic and not from a
            descriptor. If such a map cannot be encoded, the launch uses the kernel compiled without
            it.
    """

    address: Expression
    extents: tuple[Expression, ...]
    strides: tuple[Expression, ...]
    element: str
    box: tuple[int, ...]
    span: int
    nan: bool
    implied: bool = False
    pixel_box: PixelBox | None = None

    @classmethod
    def of_descriptor(
        cls,
        argument: int,
        element: str,
        box: tuple[int, ...],
        span: int,
        nan: bool,
        pixel_box: PixelBox | None = None,
    ) -> TensorMap:
        """Return the map of a descriptor that is an argument of the kernel."""
        rank = len(box)
        extents, strides = (
            tuple(word(argument, first + axis) for axis in range(rank)) for first in (1, 1 + rank)
        )
        return cls(word(argument), extents, strides, element, box, span, nan, pixel_box=pixel_box)

    def with_words(self, replacement: Callable[[int, int], Expression]) -> TensorMap:
        """Return the map with each argument word replaced by ``replacement(argument, index)``."""

        def replaced(*expressions: Expression) -> tuple[Expression, ...]:
            return tuple(with_words(expression, replacement) for expression in expressions)

        return replace(
            self,
            address=replaced(self.address)[0],
            extents=replaced(*self.extents),
            strides=replaced(*self.strides),
        )

    def facts(self) -> dict[str, Any]:
        """Return the map as plain data, for a code object's metadata."""
        found = {
            name: plain(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        if self.pixel_box is not None:
            found["pixel_box"] = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self.pixel_box).items()
            }
        return found

    @classmethod
    def of(cls, facts: dict[str, Any]) -> TensorMap:
        """Restore a map from the result of :meth:`facts`."""
        extents, strides = (tuple(map(checked, facts[name])) for name in ("extents", "strides"))
        pixels = facts["pixel_box"]
        box = (
            PixelBox(tuple(pixels["lower"]), tuple(pixels["upper"]), pixels["pixels"])
            if pixels
            else None
        )
        return cls(
            checked(facts["address"]),
            extents,
            strides,
            facts["element"],
            tuple(facts["box"]),
            facts["span"],
            facts["nan"],
            facts["implied"],
            box,
        )


def fills_with_nan(element: Type) -> bool:
    """Return whether TMA can fill out-of-bounds elements of a type with NaN."""
    return isinstance(element, FloatType) and element in _TYPES


def engine_type(element: Type) -> Type:
    """Return the element type as which TMA copies elements of a type."""
    assert isinstance(element, IntType | FloatType)
    return element if element in _TYPES else _PLAIN[storage_size(element)]


def element_of(wanted: TensorMap) -> Type:
    """Return the element type in memory."""
    return F32 if wanted.element == ROUNDED else parse_type(wanted.element)


def opaque(cuda: Driver, wanted: TensorMap) -> OpaqueArgument:
    """Return the kernel parameter of a map: inputs, conditions, and the encoding calls."""
    size = storage_size(element_of(wanted))
    *steps, last = wanted.strides
    steps = [("mul", step, size) for step in steps]
    rows = Precondition(last, 1, 1, 1, "the elements of a row must be side by side, its stride 1")
    start = Precondition(
        wanted.address, 0, 2**63 - 1, ALIGNMENT, f"the address must be a multiple of {ALIGNMENT}"
    )
    strides = [
        Precondition(
            step,
            0,
            _MOST_STRIDE - 1,
            ALIGNMENT,
            f"strides must be multiples of {ALIGNMENT} bytes from 0 to below 2**40",
        )
        for step in steps
    ]
    extents = [
        Precondition(extent, 1, _MOST_EXTENT, 1, "extents must be from 1 to 2**32")
        for extent in wanted.extents
    ]
    arguments = ", ".join(
        str(argument) for argument in sorted({argument for argument, _ in words_of(wanted.address)})
    )
    what = (
        f"the memory at addresses made of arguments {arguments}"
        if wanted.implied
        else f"the tensor of argument {arguments}"
    )
    facts = _facts(wanted)
    # a map of rank 1 has no strides, but the driver still reads from the pointer to them
    strides_operand = IntegerArrayOperand("i64", tuple(reversed(steps)) or (ALIGNMENT,))
    return OpaqueArgument(
        subject=f"the TMA unit cannot access {what}",
        inputs=(wanted.address, *wanted.extents, *steps),
        size=BYTES,
        conditions=(rows, start, *strides, *extents),
        encode=partial(_encoded, cuda, wanted, facts),
        native=NativeCall(
            _PIXELS if wanted.pixel_box else _TILED,
            (
                STRUCTURE,
                IntegerOperand("i32", facts["CUtensorMapDataType"]),
                IntegerOperand("i32", len(wanted.box)),
                IntegerOperand("i64", wanted.address),
                IntegerArrayOperand("i64", wanted.extents[::-1]),
                strides_operand,
                *(
                    IntegerArrayOperand("i32", one)
                    if isinstance(one, tuple)
                    else IntegerOperand("i32", one)
                    for one in _box(wanted)
                ),
                IntegerArrayOperand("i32", (1,) * len(wanted.box)),
                *(IntegerOperand("i32", facts[name]) for name in _BEHIND),
            ),
        ),
    )


def _box(wanted: TensorMap) -> tuple[tuple[int, ...] | int, ...]:
    """Return the encoder's arguments for the box, innermost axis first.

    In im2col mode these are the corners of the bounding box, the channels and the pixels per copy.
    """
    pixels = wanted.pixel_box
    return (
        (wanted.box[::-1],)
        if pixels is None
        else (pixels.lower[::-1], pixels.upper[::-1], wanted.box[-1], pixels.pixels)
    )


def _facts(wanted: TensorMap) -> dict[str, int]:
    """Return the value of each of the driver's enumerations for a map."""
    return {
        "CUtensorMapDataType": _ROUNDED_FLOATS
        if wanted.element == ROUNDED
        else _TYPES[engine_type(element_of(wanted))],
        "CUtensorMapInterleave": 0,
        "CUtensorMapSwizzle": _SWIZZLES[wanted.span],
        "CUtensorMapL2promotion": _LINES_OF_128,
        "CUtensorMapFloatOOBfill": int(wanted.nan),
    }


def _encoded(
    cuda: Driver, wanted: TensorMap, facts: Mapping[str, int], values: tuple[int, ...]
) -> bytes:
    b, rank = cuda.bindings, len(wanted.box)
    address, extents, steps = values[0], values[1 : 1 + rank], values[1 + rank :] or (ALIGNMENT,)
    made = cuda(
        _PIXELS if wanted.pixel_box else _TILED,
        b.CUtensorMapDataType(facts["CUtensorMapDataType"]),
        rank,
        address,
        [b.cuuint64_t(extent) for extent in reversed(extents)],
        [b.cuuint64_t(step) for step in reversed(steps)],
        *(
            _box(wanted)
            if wanted.pixel_box
            else ([b.cuuint32_t(extent) for extent in reversed(wanted.box)],)
        ),
        [b.cuuint32_t(1) for _ in wanted.box],
        *(getattr(b, name)(facts[name]) for name in _BEHIND),
    )
    return struct.pack("<16Q", *(int(word) for word in made.opaque))
