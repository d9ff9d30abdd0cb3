"""Bit fields of 32-bit words that become floats: the instructions that are written for them, run in
NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.kernels.decode_kernels import packed_vector_matmul

Ptx = Callable[..., str]

_CONVERSION = re.compile(r"cvt\.rn\.f32\.[su]32")


@tw.jit
def bit_field(x, z, SHIFT: tl.constexpr, MASK: tl.constexpr, OFFSET: tl.constexpr):
    word = tl.arange(0, 32)
    tl.store(z + word, (((tl.load(x + word) >> SHIFT) & MASK) + OFFSET).to(z.dtype.element_ty))


@tw.jit
def bit_field_less(x, z, SHIFT: tl.constexpr, MASK: tl.constexpr, OFFSET: tl.constexpr):
    word = tl.arange(0, 32)
    tl.store(z + word, (((tl.load(x + word) >> SHIFT) & MASK) - OFFSET).to(tl.float32))


def stored(text: str, words: Any, short: Any = np.float16) -> Any:
    """Run the straight-line PTX of a thread that loads one word and stores one number, for each of
    some words."""
    registers: dict[str, Any] = {}

    def value(name: str) -> Any:
        if name in registers:
            return registers[name]
        bits = int(name[2:], 16) if name[:2] in ("0f", "0x") else int(name) & 0xFFFFFFFF
        return np.full(words.shape, bits, np.uint32)

    def number(name: str) -> Any:
        """Return an f32 number as f64, in which sums and products of two of them are exact."""
        return value(name).view(np.float32).astype(np.float64)

    def half(name: str) -> Any:
        return (value(name) & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)

    def pair(kind: Any, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Compute in both halves of registers, whose bits are numbers of ``kind``."""

        def computed(*names: str) -> Any:
            halves = [
                compute(
                    *(
                        (value(name) >> at).astype(np.uint16).view(kind).astype(np.float64)
                        for name in names
                    )
                )
                .astype(kind)
                .view(np.uint16)
                .astype(np.uint32)
                for at in (np.uint32(0), np.uint32(16))
            ]
            return halves[0] | halves[1] << np.uint32(16)

        return computed

    def added(a: Any, b: Any) -> Any:
        return a + b

    def fused(a: Any, b: Any, c: Any) -> Any:
        return a * b + c

    results: dict[str, Callable[..., Any]] = {
        "mov.b32": value,
        "mov.b16": value,
        "cvt.u16.u32": value,
        "add.rn.f16": lambda a, b: shortened(half(a) + half(b)),
        "fma.rn.f16": lambda a, b, c: shortened(half(a) * half(b) + half(c)),
        "add.rn.f16x2": pair(np.float16, added),
        "fma.rn.f16x2": pair(np.float16, fused),
        "add.rn.bf16x2": pair(ml_dtypes.bfloat16, added),
        "fma.rn.bf16x2": pair(ml_dtypes.bfloat16, fused),
        "cvt.rn.f16.f32": lambda a: shortened(number(a)),
        "and.b32": lambda a, b: value(a) & value(b),
        "or.b32": lambda a, b: value(a) | value(b),
        "shr.u32": lambda a, b: value(a) >> value(b),
        "shr.s32": lambda a, b: (value(a).view(np.int32) >> value(b).view(np.int32)).view(
            np.uint32
        ),
        "bfe.u32": lambda a, at, bits: (value(a) >> value(at)) & ((1 << int(bits)) - 1),
        "add.s32": lambda a, b: value(a) + value(b),
        "lop3.b32": lambda a, b, c, table: (
            value(a) & value(b) | value(c) if table == "0xEA" else None
        ),
        "add.rn.f32": lambda a, b: rounded(number(a) + number(b)),
        "fma.rn.f32": lambda a, b, c: rounded(number(a) * number(b) + number(c)),
        "cvt.rn.f32.u32": lambda a: rounded(value(a).astype(np.float64)),
        "cvt.rn.f32.s32": lambda a: rounded(value(a).view(np.int32).astype(np.float64)),
    }
    for line in text.splitlines():
        name, _, rest = line.strip().removesuffix(";").partition(" ")
        rest = rest.strip()
        operands = [operand.strip(" {}") for operand in rest.split(",")]
        if name == "mov.b32" and rest.startswith("{"):
            low, high, source = operands
            registers[low], registers[high] = value(source), value(source) >> np.uint32(16)
        elif name == "ld.global.b32":
            registers[operands[0]] = words
        elif name == "st.global.b32":
            return value(operands[1]).view(np.float32)
        elif name == "st.global.b16":
            bits = value(operands[1]).astype(np.uint16)
            return bits.view(short).astype(np.float32)
        elif name in results and all(
            operand in registers or not operand.startswith("%") for operand in operands[1:]
        ):
            registers[operands[0]] = results[name](*operands[1:])
    raise AssertionError("nothing is stored")


def rounded(numbers: Any) -> Any:
    return numbers.astype(np.float32).view(np.uint32)


def shortened(numbers: Any) -> Any:
    return numbers.astype(np.float16).view(np.uint16).astype(np.uint32)


_WORDS = np.random.default_rng(0).integers(0, 1 << 32, 4096, dtype=np.uint32)
_WORDS[:4] = 0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF


def shifts(bits: int) -> list[int]:
    """The places of fields side by side in a word: at most five, with the first and the last."""
    places = [*range(0, 33 - bits, bits)]
    return sorted({places[len(places) * part // 4] for part in range(4)} | {places[-1]})


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 16, 22, 23])
def test_fields_of_a_word_take_no_conversion(ptx: Ptx, bits: int) -> None:
    for shift in shifts(bits):
        for type_, offset in (("i32", -(1 << bits - 1)), ("i32", 3), ("u32", 0), ("u32", 5)):
            constants = {"SHIFT": shift, "MASK": (1 << bits) - 1, "OFFSET": offset}
            text = ptx(
                bit_field, {"x": f"*{type_}", "z": "*fp32"}, constants=constants, num_warps=1
            )
            assert not _CONVERSION.search(text)
            expected = (_WORDS >> np.uint32(shift) & np.uint32((1 << bits) - 1)).astype(
                np.int64
            ) + offset
            np.testing.assert_array_equal(stored(text, _WORDS).view(np.uint32), rounded(expected))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 10])
def test_fields_become_f16_without_f32(ptx: Ptx, bits: int) -> None:
    for shift in shifts(bits):
        for offset in (-(1 << bits - 1), 0, 1024):
            constants = {"SHIFT": shift, "MASK": (1 << bits) - 1, "OFFSET": offset}
            text = ptx(bit_field, {"x": "*i32", "z": "*fp16"}, constants=constants, num_warps=1)
            assert not re.search(r"cvt\.rn", text)
            expected = (_WORDS >> np.uint32(shift) & np.uint32((1 << bits) - 1)).astype(
                np.int64
            ) + offset
            np.testing.assert_array_equal(stored(text, _WORDS).view(np.uint32), rounded(expected))


@pytest.mark.parametrize("bits", [1, 2, 4, 7])
def test_fields_become_bf16_without_f32(ptx: Ptx, bits: int) -> None:
    for shift in (0, bits, 16 - bits, 16, 32 - bits):
        for offset in (-(1 << bits - 1), 0, 128):
            constants = {"SHIFT": shift, "MASK": (1 << bits) - 1, "OFFSET": offset}
            text = ptx(bit_field, {"x": "*i32", "z": "*bf16"}, constants=constants, num_warps=1)
            assert not re.search(r"cvt\.rn", text)
            expected = (_WORDS >> np.uint32(shift) & np.uint32((1 << bits) - 1)).astype(
                np.int64
            ) + offset
            found = stored(text, _WORDS, ml_dtypes.bfloat16)
            np.testing.assert_array_equal(found, expected.astype(np.float32))


@tw.jit
def interleaved_fields(x, z, TYPE: tl.constexpr):
    word, place = tl.arange(0, 32), tl.arange(0, 8)
    q = (tl.load(x + word)[:, None] >> (4 * (place // 2) + 16 * (place % 2))[None, :]) & 15
    tl.store(z + word[:, None] * 8 + place[None, :], (q - 8).to(TYPE))


@pytest.mark.parametrize(("type_", "shifts"), [("fp16", 1), ("bf16", 3)])
def test_neighbours_16_bits_apart_are_converted_together(ptx: Ptx, type_: str, shifts: int) -> None:
    constants = {"TYPE": tl.float16 if type_ == "fp16" else tl.bfloat16}
    text = ptx(
        interleaved_fields, {"x": "*i32", "z": f"*{type_}"}, constants=constants, num_warps=1
    )
    kind = "f16x2" if type_ == "fp16" else "bf16x2"
    assert len(re.findall(r"lop3\.b32", text)) == 4
    assert len(re.findall(rf"(add|fma)\.rn\.{kind}", text)) == 4
    assert len(re.findall(r"shr\.u32 \t%r\d+, %r\d+, (4|8|12);", text)) == shifts
    assert not re.search(r"prmt|cvt|mov\.b32 \t\{", text)


@pytest.mark.parametrize(
    ("result", "mask", "offset"), [("bf16", 255, -8), ("f16", 2047, 0), ("f16", 15, 1025)]
)
def test_other_short_floats_are_rounded_from_f32(
    ptx: Ptx, result: str, mask: int, offset: int
) -> None:
    types = {"x": "*i32", "z": "*bf16" if result == "bf16" else "*fp16"}
    text = ptx(
        bit_field, types, constants={"SHIFT": 8, "MASK": mask, "OFFSET": offset}, num_warps=1
    )
    assert not re.search(r"cvt\.rn\.\w+\.[su]32", text)
    assert re.search(rf"cvt\.rn\.{result}\.f32", text)
    if result == "f16":
        expected = ((_WORDS >> np.uint32(8) & np.uint32(mask)).astype(np.float64) + offset).astype(
            np.float16
        )
        np.testing.assert_array_equal(stored(text, _WORDS), expected.astype(np.float32))


def test_a_mask_need_not_begin_at_its_lowest_bit(ptx: Ptx) -> None:
    text = ptx(
        bit_field,
        {"x": "*i32", "z": "*fp32"},
        constants={"SHIFT": 20, "MASK": 0b10100, "OFFSET": 0},
        num_warps=1,
    )
    assert not _CONVERSION.search(text)
    np.testing.assert_array_equal(
        stored(text, _WORDS), (_WORDS >> np.uint32(20) & np.uint32(0b10100)).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("type_", "shift", "mask", "offset"),
    [
        (
            "i32",
            0,
            (1 << 24) - 1,
            0,
        ),  # as many bits as the mantissa with its hidden one, which is the unit's
        ("i32", 28, 255, 3),  # copies of the sign are in the mask
        ("i32", 0, 255, -(1 << 23) - 1),  # f32 does not hold the sum with the unit
        ("i32", 0, 255, (1 << 23) + 1),
        ("u32", 4, 15, (1 << 32) - 8),  # wraps around
        ("i32", 4, -1, 0),
    ],
)
def test_what_is_no_exact_field_is_converted(
    ptx: Ptx, type_: str, shift: int, mask: int, offset: int
) -> None:
    constants = {"SHIFT": shift, "MASK": mask, "OFFSET": offset}
    text = ptx(bit_field, {"x": f"*{type_}", "z": "*fp32"}, constants=constants, num_warps=1)
    kind = np.int32 if type_ == "i32" else np.uint32
    whole = ((_WORDS.view(kind) >> kind(shift)).astype(np.int64) & mask) + offset
    expected = whole.astype(np.uint64).astype(np.uint32).view(kind)
    np.testing.assert_array_equal(stored(text, _WORDS), expected.astype(np.float32))
    assert _CONVERSION.search(text)


@pytest.mark.parametrize(("type_", "offset", "converted"), [("i32", 8, False), ("u32", 8, True)])
def test_a_subtraction_below_zero_is_a_field_of_signed_words_alone(
    ptx: Ptx, type_: str, offset: int, converted: bool
) -> None:
    constants = {"SHIFT": 4, "MASK": 15, "OFFSET": offset}
    text = ptx(bit_field_less, {"x": f"*{type_}", "z": "*fp32"}, constants=constants, num_warps=1)
    assert bool(_CONVERSION.search(text)) is converted
    whole = (_WORDS >> np.uint32(4) & np.uint32(15)).astype(np.int64) - offset
    expected = whole.astype(np.int32) if type_ == "i32" else (whole & 0xFFFFFFFF).astype(np.uint32)
    np.testing.assert_array_equal(stored(text, _WORDS), expected.astype(np.float32))


def test_packed_weights_shift_once_a_word(ptx: Ptx) -> None:
    """Of eight weights of four bits five are masked where they stand, and three after one shift:
    the shifts are elements of an index tile, literals in each register."""
    types = {
        "x_ptr": "*fp16",
        "q_ptr": "*i32",
        "scale_ptr": "*fp16",
        "out_ptr": "*fp16",
        "N": "i32",
        "K": "i32",
    }
    text = ptx(
        packed_vector_matmul,
        types,
        constants={"GROUP": 128, "BLOCK_N": 4, "BLOCK_K": 2048},
        num_warps=4,
    )
    words = 4 * 2048 // 8 // 128
    assert not _CONVERSION.search(text)
    assert len(re.findall(r"lop3\.b32", text)) == 8 * words
    assert len(re.findall(r"shr\.u32 \t%r\d+, %r\d+, 16;", text)) == words
    assert not re.search(r"bfe|shr\.s32 \t%r\d+, %r\d+, %r", text)
