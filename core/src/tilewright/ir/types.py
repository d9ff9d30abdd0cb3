"""The types of Tile IR.

Every type is interned: two equal types are the same object, so passes compare types with ``is``.

    i1 i8 i16 i32 i64          signed integers (i1 is the boolean)
    u8 u16 u32 u64             unsigned integers
    f16 bf16 f32 f64           floats, and the fp8 kinds f8e4m3fn f8e5m2 f8e4m3fnuz
                               f8e5m2fnuz f8e4b15
    ptr<f32>  ptr<f32, shared> pointers with an address space (``global`` is the default)
    tile<128x64xf32>           a tile: rank >= 1, every extent >= 1
    desc<64x64xf16>            a descriptor of a tensor in memory, seen in blocks of that shape
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from tilewright.ir.encoding import EncodingText

_T = TypeVar("_T", bound="Type")


class Type:
    """Base of all Tile IR types; ``str(t)`` is the text form, which the parser reads back."""

    __slots__ = ("_text",)
    _text: str
    _interned: ClassVar[dict[tuple[object, ...], Type]] = {}

    @classmethod
    def _intern(cls: type[_T], key: tuple[object, ...], text: str, **fields: object) -> _T:
        """The one object of this key.

        It is complete before it is filed, and filing is atomic, so threads may make types at the
        same time.
        """
        found = Type._interned.get((cls, *key))
        if found is None:
            made = object.__new__(cls)
            made._text = text
            for name, value in fields.items():
                setattr(made, name, value)
            found = Type._interned.setdefault((cls, *key), made)
        return found  # type: ignore[return-value]

    def __str__(self) -> str:
        return self._text

    def written(self, encoding: EncodingText) -> str:
        """The type's text where encodings are written as ``encoding`` says."""
        return self._text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._text}>"

    def __deepcopy__(self: _T, memo: object) -> _T:
        return self

    def __copy__(self: _T) -> _T:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        from tilewright.ir.type_text import parse_type

        return parse_type, (self._text,)

    @property
    def is_scalar(self) -> bool:
        """True for numbers and pointers, False for tiles and descriptors."""
        return isinstance(self, IntType | FloatType | PointerType)


class IntType(Type):
    """An integer of ``bits`` bits; arithmetic wraps around.

    ``i1`` is the boolean and counts as unsigned.
    """

    __slots__ = ("bits", "signed")
    bits: int
    signed: bool

    def __new__(cls, bits: int, signed: bool = True) -> IntType:
        if bits not in (1, 8, 16, 32, 64):
            raise ValueError(f"an integer has 1, 8, 16, 32 or 64 bits, not {bits}")
        if bits == 1:
            signed = False
        return cls._intern(
            (bits, signed), f"{'i' if signed or bits == 1 else 'u'}{bits}", bits=bits, signed=signed
        )

    @property
    def minimum(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def wrap(self, value: int) -> int:
        """``value`` modulo 2**bits, in this type's range."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value > self.maximum else value


class FloatType(Type):
    """A binary floating-point format.

    ``mantissa`` counts the stored fraction bits, ``bias`` is the exponent's. ``has_infinity`` is
    false for formats whose top exponent holds numbers; ``has_negative_zero`` is false for the
    ``fnuz`` kinds, where that encoding is the only NaN.
    """

    __slots__ = ("bias", "bits", "exponent", "has_infinity", "has_negative_zero", "mantissa")
    bits: int
    exponent: int
    mantissa: int
    bias: int
    has_infinity: bool
    has_negative_zero: bool

    def __new__(cls, name: str) -> FloatType:
        if name not in _FLOAT_FORMATS:
            raise ValueError(f"unknown float type {name!r}; known: {', '.join(_FLOAT_FORMATS)}")
        exponent, mantissa, bias, has_infinity, has_negative_zero = _FLOAT_FORMATS[name]
        return cls._intern(
            (name,),
            name,
            bits=1 + exponent + mantissa,
            exponent=exponent,
            mantissa=mantissa,
            bias=bias,
            has_infinity=has_infinity,
            has_negative_zero=has_negative_zero,
        )

    @property
    def is_fp8(self) -> bool:
        return self.bits == 8


_FLOAT_FORMATS: dict[str, tuple[int, int, int, bool, bool]] = {
    # name: (exponent bits, fraction bits, bias, has infinity, has negative zero)
    "f16": (5, 10, 15, True, True),
    "bf16": (8, 7, 127, True, True),
    "f32": (8, 23, 127, True, True),
    "f64": (11, 52, 1023, True, True),
    "f8e4m3fn": (4, 3, 7, False, True),
    "f8e5m2": (5, 2, 15, True, True),
    "f8e4m3fnuz": (4, 3, 8, False, False),
    "f8e5m2fnuz": (5, 2, 16, False, False),
    "f8e4b15": (4, 3, 15, False, True),
}


class PointerType(Type):
    """The address of elements of ``pointee`` in an address space (``global``, ``shared``,
    ``constant``, ``private``)."""

    __slots__ = ("pointee", "space")
    pointee: Type
    space: str

    def __new__(cls, pointee: Type, space: str = "global") -> PointerType:
        if not pointee.is_scalar:
            raise ValueError(f"a pointer points to numbers or pointers, not to {pointee}")
        if not space.isidentifier():
            raise ValueError(f"an address space is named by an identifier, not {space!r}")
        text = f"ptr<{pointee}>" if space == "global" else f"ptr<{pointee}, {space}>"
        return cls._intern((pointee, space), text, pointee=pointee, space=space)


class TileType(Type):
    """A tile of ``shape`` whose elements are numbers or pointers."""

    __slots__ = ("element", "numel", "shape")
    shape: tuple[int, ...]
    element: Type
    numel: int

    def __new__(cls, shape: tuple[int, ...], element: Type) -> TileType:
        shape = tuple(shape)
        found = Type._interned.get((cls, shape, element))
        if found is not None:
            return found  # type: ignore[return-value]
        if not shape or any(extent < 1 for extent in shape):
            raise ValueError(f"a tile has rank >= 1 and extents >= 1, not {shape}")
        if not element.is_scalar:
            raise ValueError(f"a tile holds numbers or pointers, not {element}")
        text = f"tile<{'x'.join(map(str, shape))}x{element}>"
        return cls._intern(
            (shape, element), text, shape=shape, element=element, numel=math.prod(shape)
        )

    @property
    def rank(self) -> int:
        return len(self.shape)


class DescriptorType(Type):
    """A descriptor of a strided tensor in memory, accessed in blocks of ``block_shape`` (rank 1 to
    5)."""

    __slots__ = ("block_shape", "element")
    block_shape: tuple[int, ...]
    element: Type

    def __new__(cls, block_shape: tuple[int, ...], element: Type) -> DescriptorType:
        block_shape = tuple(block_shape)
        if not 1 <= len(block_shape) <= 5 or any(extent < 1 for extent in block_shape):
            raise ValueError(
                f"a descriptor's block has rank 1 to 5 and extents >= 1, not {block_shape}"
            )
        if not isinstance(element, IntType | FloatType):
            raise ValueError(f"a descriptor describes numbers, not {element}")
        return cls._intern(
            (block_shape, element),
            f"desc<{'x'.join(map(str, block_shape))}x{element}>",
            block_shape=block_shape,
            element=element,
        )

    @property
    def rank(self) -> int:
        return len(self.block_shape)

    @property
    def block_type(self) -> TileType:
        """The type of one block, as ``descriptor_load`` returns it."""
        return TileType(self.block_shape, self.element)


I1 = IntType(1)
I8, I16, I32, I64 = (IntType(bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (IntType(bits, signed=False) for bits in (8, 16, 32, 64))
F16, BF16, F32, F64 = (FloatType(name) for name in ("f16", "bf16", "f32", "f64"))
F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E4B15 = (
    FloatType(name) for name in ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15")
)

INTEGERS: tuple[IntType, ...] = (I1, I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS: tuple[FloatType, ...] = (
    F16,
    BF16,
    F32,
    F64,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E4B15,
)


def element_type(type_: Type) -> Type:
    """The element of a tile, or the scalar type itself."""
    return type_.element if isinstance(type_, TileType) else type_


def shape_of(type_: Type) -> tuple[int, ...]:
    """The shape of a tile; ``()`` for a scalar."""
    return type_.shape if isinstance(type_, TileType) else ()


def with_element(type_: Type, element: Type) -> Type:
    """The type of the same shape (tile or scalar) with another element."""
    return TileType(type_.shape, element) if isinstance(type_, TileType) else element


def tile_or_scalar(shape: tuple[int, ...], element: Type) -> Type:
    """``tile<shape x element>``, or ``element`` itself for the empty shape."""
    return TileType(shape, element) if shape else element


def bit_width(type_: Type) -> int:
    """Bits of one element; pointers have 64."""
    element = element_type(type_)
    if isinstance(element, IntType | FloatType):
        return element.bits
    if isinstance(element, PointerType):
        return 64
    raise ValueError(f"{type_} has no bit width")


def byte_size(type_: Type) -> int:
    """Bytes one element takes in memory; i1 takes one."""
    return max(1, bit_width(type_) // 8)
