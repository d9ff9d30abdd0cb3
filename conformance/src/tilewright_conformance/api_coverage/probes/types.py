"""Types: every number format's values, and what a dtype tells about itself."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import add_probe, probe


@tw.jit
def widen(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(tl.float32))


@tw.jit
def narrow(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@tw.jit
def increment(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + 1)


def float8_values(
    codes: Any, exponent_bits: int, bias: int, finite: bool, unsigned_zero: bool
) -> Any:
    """The numbers that 8-bit codes stand for.

    Args:
        finite: the maximum exponent holds numbers; otherwise infinities and NaN.
        unsigned_zero: the code of -0.0 is the only NaN.
    """
    mantissa_bits = 7 - exponent_bits
    sign, mantissa = 1 - 2.0 * (codes >> 7), codes & ((1 << mantissa_bits) - 1)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    part = mantissa / (1 << mantissa_bits)
    value = sign * np.where(
        exponent > 0, (1 + part) * 2.0 ** (exponent - float(bias)), part * 2.0 ** (1.0 - bias)
    )
    top = exponent == (1 << exponent_bits) - 1
    if not finite:
        value = np.where(top, np.where(mantissa == 0, sign * np.inf, np.nan), value)
    elif not unsigned_zero:
        value = np.where(top & (part == 1 - 2.0**-mantissa_bits), np.nan, value)
    return np.where(codes == 0x80, np.nan, value) if unsigned_zero else value


#: format -> (exponent bits, bias, the maximum exponent holds numbers, -0.0 is NaN)
FLOAT8 = {
    "float8e4nv": (4, 7, True, False),
    "float8e5": (5, 15, False, False),
    "float8e4b8": (4, 8, True, True),
    "float8e5b16": (5, 16, True, True),
}


def _float8(name: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        dtype = getattr(tl, name)
        codes = np.arange(256, dtype=np.uint8)
        values, back = np.zeros(256, np.float32), np.zeros(256, np.uint8)
        on(widen)[(1,)](tw.reinterpret(codes, dtype), values, N=256)
        np.testing.assert_array_equal(
            values, float8_values(codes.astype(int), *FLOAT8[name]).astype(np.float32)
        )
        on(narrow)[(1,)](values, tw.reinterpret(back, dtype), N=256)
        there = np.isfinite(values)  # infinity saturates
        np.testing.assert_array_equal(back[there], codes[there])

    return run


for _name in FLOAT8:
    add_probe(_name, [f"tl.{_name}"], _float8(_name))


@probe("tl.float8e4b15")
def float8e4b15(on: Machine, rng: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = np.zeros(256, np.float32)
    on(widen)[(1,)](tw.reinterpret(codes, tl.float8e4b15), values, N=256)
    ordinary = (codes & 0x7F) != 0x7F
    np.testing.assert_array_equal(
        values[ordinary],
        float8_values(codes.astype(int), 4, 15, True, False)[ordinary].astype(np.float32),
    )


@probe("tl.bfloat16")
def bfloat16(on: Machine, rng: Any) -> None:
    codes = rng.integers(0, 0x7F80, 256).astype(np.uint16)
    values, back = np.zeros(256, np.float32), np.zeros(256, np.uint16)
    on(widen)[(1,)](tw.reinterpret(codes, tl.bfloat16), values, N=256)
    np.testing.assert_array_equal(values, (codes.astype(np.uint32) << 16).view(np.float32))
    x = rng.standard_normal(256, dtype=np.float32)
    on(narrow)[(1,)](x, tw.reinterpret(back, tl.bfloat16), N=256)
    bits = x.view(np.uint32)
    np.testing.assert_array_equal(
        back, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    )  # to nearest, ties to even


def _number(name: str) -> Callable[[Machine, Any], None]:
    def run(on: Machine, rng: Any) -> None:
        dtype = np.dtype(name)
        whole = dtype.kind in "iu"
        x = (
            rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 64, dtype, endpoint=True)
            if whole
            else rng.standard_normal(64).astype(dtype)
        )
        out, wide = np.zeros(64, dtype), np.zeros(64, np.float32)
        on(increment)[(1,)](x, out, N=64)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, x + dtype.type(1))
        on(widen)[(1,)](x, wide, N=64)
        np.testing.assert_array_equal(wide, x.astype(np.float32))

    return run


for _name in (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
):
    add_probe(_name, [f"tl.{_name}"], _number(_name))


@tw.jit
def inverted(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    flag = tl.load(x + at)
    tl.static_assert(flag.dtype == tl.int1)
    tl.store(out + at, flag == 0)


@probe("tl.int1")
def int1(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 2, 64).astype(bool), np.zeros(64, bool)
    on(inverted)[(1,)](x, out, N=64)
    np.testing.assert_array_equal(out, ~x)


@tw.jit
def typed(x, out, N: tl.constexpr):
    tl.static_assert(x.dtype == tl.pointer_type(tl.int32))
    tl.static_assert(x.dtype == tl.pi32_t)
    tl.static_assert(x.dtype.element_ty == tl.int32 and x.dtype.is_ptr())
    value = tl.load(x + tl.arange(0, N))
    tl.static_assert(value.type == tl.block_type(tl.int32, [N]))
    tl.static_assert(
        value.type.is_block() and value.type.numel == N and value.type.scalar == tl.int32
    )
    tl.store(out + tl.arange(0, N), value)


@probe("tl.pointer_type", "tl.block_type", "tl.pi32_t")
def pointer_and_block_types(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 16).astype(np.int32), np.zeros(16, np.int32)
    on(typed)[(1,)](x, out, N=16)
    np.testing.assert_array_equal(out, x)


#: name in the language -> (name, bits, kind of number, bits of the mantissa)
DTYPES: dict[str, tuple[str, int, str, int]] = {
    "int1": ("int1", 1, "u", 0),
    **{f"int{bits}": (f"int{bits}", bits, "i", 0) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (f"uint{bits}", bits, "u", 0) for bits in (8, 16, 32, 64)},
    "float8e4nv": ("fp8e4nv", 8, "f", 3),
    "float8e4b8": ("fp8e4b8", 8, "f", 3),
    "float8e4b15": ("fp8e4b15", 8, "f", 3),
    "float8e5": ("fp8e5", 8, "f", 2),
    "float8e5b16": ("fp8e5b16", 8, "f", 2),
    "float16": ("fp16", 16, "f", 10),
    "bfloat16": ("bf16", 16, "f", 7),
    "float32": ("fp32", 32, "f", 23),
    "float64": ("fp64", 64, "f", 52),
}


def _predicates() -> dict[str, Callable[[str, int, str], bool]]:
    """Predicate of a dtype -> its value for (name, bits, kind)."""
    found: dict[str, Callable[[str, int, str], bool]] = {
        "is_fp8": lambda name, bits, kind: kind == "f" and bits == 8,
        "is_floating": lambda name, bits, kind: kind == "f",
        "is_standard_floating": lambda name, bits, kind: kind == "f" and bits > 8,
        "is_int": lambda name, bits, kind: kind in "iu",
        "is_int_signed": lambda name, bits, kind: kind == "i",
        "is_int_unsigned": lambda name, bits, kind: kind == "u",
        "is_bool": lambda name, bits, kind: bits == 1,
        "is_void": lambda name, bits, kind: False,
        "is_ptr": lambda name, bits, kind: False,
        "is_block": lambda name, bits, kind: False,
        "is_const": lambda name, bits, kind: False,
    }
    found.update((f"is_{name}", _is_named(name)) for name, *_ in DTYPES.values())
    return found


def _is_named(name: str) -> Callable[[str, int, str], bool]:
    return lambda other, bits, kind: other == name


PREDICATES = _predicates()


@probe(*(f"dtype.{name}" for name in PREDICATES), host=True)
def predicates(on: Machine, rng: Any) -> None:
    for public, (name, bits, kind, _) in DTYPES.items():
        for predicate, expected in PREDICATES.items():
            assert getattr(getattr(tl, public), predicate)() is expected(name, bits, kind), (
                public,
                predicate,
            )
    assert tl.void.is_void() and tl.pi32_t.is_ptr() and tl.block_type(tl.int8, [4]).is_block()


_FACTS = (
    "name primitive_bitwidth itemsize scalar int_bitwidth int_signedness fp_mantissa_width "
    "exponent_bias kind get_int_max_value get_int_min_value"
)
_MORE_FACTS = "is_dtype with_element_ty mangle SIGNEDNESS KIND codegen_name cache_key_part"


@probe(
    "tl.dtype",
    "tl.void",
    *(f"dtype.{name}" for name in f"{_FACTS} {_MORE_FACTS}".split()),
    host=True,
)
def facts_of_dtypes(on: Machine, rng: Any) -> None:
    for public, (name, bits, kind, mantissa) in DTYPES.items():
        dtype = getattr(tl, public)
        assert dtype is tl.dtype(name) and dtype == tl.constexpr(dtype).value and str(dtype) == name
        assert (dtype.name, dtype.primitive_bitwidth, dtype.itemsize, dtype.scalar) == (
            name,
            bits,
            bits // 8,
            dtype,
        )
        assert (
            dtype.codegen_name == public
            and dtype.with_element_ty(tl.int8) is tl.int8
            and tl.dtype.is_dtype(name)
        )
        assert dtype.mangle() and dtype.cache_key_part
        assert hash(dtype) == hash(tl.dtype(name)) and repr(dtype).endswith(f".language.{public}")
        if kind == "f":
            assert dtype.fp_mantissa_width == mantissa and dtype.kind() is tl.dtype.KIND.FLOATING
            assert dtype.exponent_bias == {
                "float8e4b8": 8,
                "float8e5b16": 16,
                "float8e4b15": 15,
            }.get(public, 2 ** (bits - 2 - mantissa) - 1)
        else:
            assert dtype.int_bitwidth == bits
            assert dtype.int_signedness is (
                tl.dtype.SIGNEDNESS.SIGNED if kind == "i" else tl.dtype.SIGNEDNESS.UNSIGNED
            )
            assert dtype.get_int_max_value() == 2 ** (bits - (kind == "i")) - 1
            assert dtype.get_int_min_value() == (-(2 ** (bits - 1)) if kind == "i" else 0)
            assert dtype.kind() is (tl.dtype.KIND.BOOLEAN if bits == 1 else tl.dtype.KIND.INTEGRAL)
    assert not tl.dtype.is_dtype("float") and tl.void.name == "void"


@probe("tl.str_to_ty", "tl.core.get_int_dtype", "tl.TRITON_MAX_TENSOR_NUMEL", host=True)
def types_of_texts(on: Machine, rng: Any) -> None:
    assert (
        tl.str_to_ty("fp32", None) is tl.float32
        and tl.str_to_ty("u1", None) is tl.int1
        and tl.str_to_ty("bf16", None) is tl.bfloat16
    )
    assert tl.str_to_ty("*i8", None) == tl.pointer_type(tl.int8)
    assert tl.str_to_ty("*ki8", None).is_const()
    assert tl.str_to_ty("tensordesc<fp16[64,32]>", None).block_type == tl.block_type(
        tl.float16, [64, 32]
    )
    assert (
        tl.core.get_int_dtype(16, True) is tl.int16
        and tl.core.get_int_dtype(64, False) is tl.uint64
    )
    assert tl.TRITON_MAX_TENSOR_NUMEL == 1048576
