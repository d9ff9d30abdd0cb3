"""Types: members, predicates, identity, text."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest

import tilewright
import tilewright.language as tl
from tilewright.ir import types as ir_types
from tilewright.language.value_types import dtypes

# name: (name in tl, bits, signed or None for floats, fraction bits, bias, IR type)
TABLE: dict[str, tuple[str, int, bool | None, int, int, str]] = {
    "int1": ("int1", 1, False, 0, 0, "i1"),
    "int8": ("int8", 8, True, 0, 0, "i8"),
    "int16": ("int16", 16, True, 0, 0, "i16"),
    "int32": ("int32", 32, True, 0, 0, "i32"),
    "int64": ("int64", 64, True, 0, 0, "i64"),
    "uint8": ("uint8", 8, False, 0, 0, "u8"),
    "uint16": ("uint16", 16, False, 0, 0, "u16"),
    "uint32": ("uint32", 32, False, 0, 0, "u32"),
    "uint64": ("uint64", 64, False, 0, 0, "u64"),
    "fp8e4nv": ("float8e4nv", 8, None, 3, 7, "f8e4m3fn"),
    "fp8e5": ("float8e5", 8, None, 2, 15, "f8e5m2"),
    "fp8e4b8": ("float8e4b8", 8, None, 3, 8, "f8e4m3fnuz"),
    "fp8e5b16": ("float8e5b16", 8, None, 2, 16, "f8e5m2fnuz"),
    "fp8e4b15": ("float8e4b15", 8, None, 3, 15, "f8e4b15"),
    "fp16": ("float16", 16, None, 10, 15, "f16"),
    "bf16": ("bfloat16", 16, None, 7, 127, "bf16"),
    "fp32": ("float32", 32, None, 23, 127, "f32"),
    "fp64": ("float64", 64, None, 52, 1023, "f64"),
}


def read_back(type_: object) -> object:
    """What the text of a type stands for, by the name that this process knows the package by: other
    tests may have imported the shim."""
    return eval(repr(type_), {"tilewright": tilewright, "triton": sys.modules.get("triton")})


@pytest.mark.parametrize("name", TABLE)
def test_members(name: str) -> None:
    attribute, bits, signed, fraction, bias, ir_text = TABLE[name]
    type_: Any = getattr(tl, attribute)
    assert type_ is tl.dtype(name)
    assert (type_.name, str(type_), type_.primitive_bitwidth, type_.itemsize) == (
        name,
        name,
        bits,
        bits // 8,
    )
    assert type_.scalar is type_
    assert str(type_.ir_type) == ir_text
    assert dtypes.from_ir(type_.ir_type) is type_
    assert type_.is_int() is (signed is not None)
    assert type_.is_floating() is (signed is None)
    assert type_.is_int_signed() is (signed is True)
    assert type_.is_int_unsigned() is (signed is False)
    assert type_.is_fp8() is (signed is None and bits == 8)
    assert type_.is_standard_floating() is (name in ("fp16", "bf16", "fp32", "fp64"))
    assert (type_.is_ptr(), type_.is_block(), type_.is_const(), type_.is_void()) == (False,) * 4
    own = [other for other in TABLE if getattr(type_, f"is_{other}")()]
    assert own == [name]
    assert type_.is_bool() is (name == "int1")
    if signed is None:
        assert (type_.fp_mantissa_width, type_.exponent_bias) == (fraction, bias)
        assert type_.kind() is tl.dtype.KIND.FLOATING
        with pytest.raises(TypeError):
            type_.get_int_max_value()
    else:
        assert type_.int_bitwidth == bits
        assert type_.int_signedness is (
            tl.dtype.SIGNEDNESS.SIGNED if signed else tl.dtype.SIGNEDNESS.UNSIGNED
        )
        assert type_.kind() is (tl.dtype.KIND.BOOLEAN if bits == 1 else tl.dtype.KIND.INTEGRAL)
        assert type_.get_int_max_value() - type_.get_int_min_value() == 2**bits - 1
        assert (type_.get_int_min_value() < 0) is signed
        assert tl.core.get_int_dtype(bits, signed) is type_


@pytest.mark.parametrize("name", [*TABLE, "void"])
def test_identity_and_text(name: str) -> None:
    type_ = tl.dtype(name)
    assert read_back(type_) is type_
    assert pickle.loads(pickle.dumps(type_)) is type_
    assert copy.deepcopy(type_) is type_
    assert type_ == tl.constexpr(type_)
    assert tl.constexpr(type_) == type_
    assert type_ != name
    assert [other for other in TABLE if tl.dtype(other) == type_] == (
        [name] if name != "void" else []
    )
    assert len({type_, tl.dtype(name)}) == 1
    assert tl.dtype.is_dtype(name)


def test_kinds_are_ordered() -> None:
    kinds = [tl.dtype.KIND.BOOLEAN, tl.dtype.KIND.INTEGRAL, tl.dtype.KIND.FLOATING]
    assert [kind.value for kind in kinds] == sorted(kind.value for kind in kinds)


def test_repr_of_types_can_be_evaluated() -> None:
    for type_ in (
        tl.pointer_type(tl.float16),
        tl.pointer_type(tl.int8, const=True),
        tl.pointer_type(tl.float32, 3),
        tl.block_type(tl.pointer_type(tl.int1), [4, 2]),
    ):
        assert read_back(type_) is type_
        assert pickle.loads(pickle.dumps(type_)) is type_


def test_unknown_names_are_refused() -> None:
    assert not tl.dtype.is_dtype("float32")
    with pytest.raises(ValueError, match="unknown dtype 'float32'"):
        tl.dtype("float32")
    with pytest.raises(ValueError, match="Unsupported bitwidth 12"):
        tl.core.get_int_dtype(12, True)


def test_pointers() -> None:
    pointer = tl.pointer_type(tl.float32)
    assert pointer is tl.pointer_type(tl.float32, 1) is tl.pointer_type(tl.float32, "global")
    assert pointer is not tl.pointer_type(tl.float32, const=True)
    assert tl.pointer_type(tl.float32, const=True).is_const()
    assert not pointer.is_const()
    assert pointer.is_ptr()
    assert pointer.element_ty is tl.float32
    assert pointer.scalar is pointer
    assert pointer.primitive_bitwidth == 64
    assert str(pointer) == "pointer<fp32>"
    assert str(tl.pointer_type(tl.float32, const=True)) == "const_pointer<fp32>"
    assert str(tl.pointer_type(tl.float16, 3).ir_type) == "ptr<f16, shared>"
    assert tl.pi32_t is tl.pointer_type(tl.int32)
    with pytest.raises(TypeError):
        tl.pointer_type("fp32")


def test_a_boolean_in_memory_is_a_byte() -> None:
    assert str(tl.pointer_type(tl.int1).ir_type) == "ptr<i8>"
    assert tl.pointer_type(tl.int1) is not tl.pointer_type(tl.int8)


def test_blocks() -> None:
    block = tl.block_type(tl.float16, [4, 8])
    assert (
        block
        is tl.block_type(tl.float16, (tl.constexpr(4), 8))
        is tl.block_type(tl.constexpr(tl.float16), (4, 8))
    )
    assert (block.shape, block.numel, block.nbytes, block.element_ty, block.scalar) == (
        (4, 8),
        32,
        64,
        tl.float16,
        tl.float16,
    )
    assert block.get_block_shapes() == (4, 8)
    assert block.is_block()
    assert block.with_element_ty(tl.int8) is tl.block_type(tl.int8, [4, 8])
    assert tl.float32.with_element_ty(tl.int8) is tl.int8
    assert block.ir_type is ir_types.TileType((4, 8), ir_types.F16)
    assert str(block) == "<[4, 8], fp16>"
    assert dtypes.from_ir(block.ir_type) is block


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ([], TypeError, "0d block_type is forbidden"),
        ([3], ValueError, "Shape element 0 must be a power of 2"),
        ([4, 0], ValueError, "Shape element 1 must be a power of 2"),
        ([4, -2], ValueError, "Shape element 1 must be a power of 2"),
        ([4, 2.0], TypeError, r"Shape element 1 must have type `constexpr\[int\]`, got `float`"),
        (
            [1024, 2048],
            ValueError,
            r"numel \(2097152\) exceeds the maximum tensor numel \(1048576\)",
        ),
    ],
)
def test_shapes_that_are_refused(shape: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tl.block_type(tl.float32, shape)


SIGNATURES = {
    "i1": tl.int1,
    "u1": tl.int1,
    "B": tl.int1,
    "fp8e4nv": tl.float8e4nv,
    "*kfp16": tl.pointer_type(tl.float16, const=True),
    "**i8": tl.pointer_type(tl.pointer_type(tl.int8)),
    "*bf16": tl.pointer_type(tl.bfloat16),
}


def test_signature_texts() -> None:
    for text, type_ in SIGNATURES.items():
        assert tl.str_to_ty(text) is type_
    for name, row in TABLE.items():
        type_ = tl.dtype(name)
        assert tl.str_to_ty(type_.cache_key_part) is type_
        assert tl.str_to_ty("*" + type_.cache_key_part) is tl.pointer_type(getattr(tl, row[0]))
    described = tl.str_to_ty("tensordesc<fp16[64,32]>")
    assert described.block_type is tl.block_type(tl.float16, [64, 32])
    assert [str(flat) for flat in described.flatten()] == ["desc<64x32xf16>"]
    nested = tl.str_to_ty(("i32", ("*fp32", "constexpr")), (None, (None, 7)))
    assert isinstance(nested, tl.tuple_type)
    assert [str(flat) for flat in nested.flatten()] == ["i32", "ptr<f32>"]
    assert nested[1][1] == tl.constexpr_type(7)  # type: ignore[index]
    for text in ("float", "*", "", "i7", "tensordesc<fp16>", "tensordesc<foo[4]>"):
        with pytest.raises(ValueError, match="is not the type"):
            tl.str_to_ty(text)
