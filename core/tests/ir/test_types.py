"""The types: interned, checked, written and read."""

from __future__ import annotations

import copy
import pickle

import pytest

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import (
    F16,
    F32,
    FLOATS,
    I1,
    I8,
    INTEGERS,
    U8,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    bit_width,
    byte_size,
)

TYPES: tuple[Type, ...] = (
    *INTEGERS,
    *FLOATS,
    *(PointerType(type_) for type_ in (*INTEGERS, *FLOATS)),
    PointerType(F32, "shared"),
    PointerType(PointerType(F32, "constant"), "private"),
    *(TileType((4,), type_) for type_ in (*INTEGERS, *FLOATS)),
    TileType((1,), I1),
    TileType((2, 3, 5, 7), F16),
    TileType((8, 16), PointerType(PointerType(I8), "shared")),
    DescriptorType((64, 64), F16),
    DescriptorType((1, 2, 3, 4, 5), U8),
)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_text_is_read_back(type_: Type) -> None:
    assert parse_type(str(type_)) is type_
    assert pickle.loads(pickle.dumps(type_)) is type_
    assert copy.deepcopy(type_) is type_


def test_texts_differ() -> None:
    assert len({str(type_) for type_ in TYPES}) == len(TYPES)


NO_TYPES = """i2 u1 i128 f8 float tile<f32> tile<4f32> tile<4xf32 tile<x4xf32> ptr<> ptr<f32,1a> ptr<tile<4xf32>> desc<4xptr<f32>> desc<f32> tile<4x>
tile<4xtile<4xf32>> tile<0xf32> tile<-1xf32> desc<1x1x1x1x1x1xf32> vec<4xf32>"""


@pytest.mark.parametrize("text", ["", *NO_TYPES.split()])
def test_what_is_no_type(text: str) -> None:
    with pytest.raises(ValueError):
        parse_type(text)


def test_integers() -> None:
    assert (I8.minimum, I8.maximum, U8.minimum, U8.maximum, I1.minimum, I1.maximum) == (
        -128,
        127,
        0,
        255,
        0,
        1,
    )
    assert [I8.wrap(value) for value in (127, 128, -129, 256, -1)] == [127, -128, 127, 0, -1]
    assert [U8.wrap(value) for value in (255, 256, -1)] == [255, 0, 255]
    assert IntType(1, signed=True) is I1
    assert not I1.signed
    with pytest.raises(ValueError, match="an integer has 1, 8, 16, 32 or 64 bits, not 12"):
        IntType(12)


def test_sizes() -> None:
    assert [
        bit_width(type_) for type_ in (I1, U8, F16, F32, PointerType(F32), TileType((4,), F16))
    ] == [1, 8, 16, 32, 64, 16]
    assert [byte_size(type_) for type_ in (I1, U8, F16, PointerType(I1))] == [1, 1, 2, 8]
    for format_ in FLOATS:
        assert format_.bits == 1 + format_.exponent + format_.mantissa
        assert format_.bits in (8, 16, 32, 64)
    with pytest.raises(ValueError, match="unknown float type 'f12'; known: f16, bf16"):
        FloatType("f12")
