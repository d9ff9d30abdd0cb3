"""Integers of 8 bits that become floats: the instructions that are written for the bytes of a word,
run in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gpu_kernels as kernels
import numpy as np
import pytest

from tilewright.llvm.emission.writer import ModuleWriter
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.lower import to_ptx

Ptx = Callable[..., str]


def permuted(low: Any, high: Any, selector: int) -> Any:
    """``prmt`` of two words, or of arrays of them."""
    given = np.concatenate(
        [
            np.atleast_1d(np.asarray(each, np.uint32))[:, None].view(np.uint8)
            for each in np.broadcast_arrays(low, high)
        ],
        axis=1,
    )
    return (
        np.stack([given[:, selector >> 4 * place & 7] for place in range(4)], axis=1)
        .copy()
        .view(np.uint32)[:, 0]
    )


@pytest.mark.parametrize("type_", ["*i8", "*u8"])
def test_bytes_of_words_become_floats_without_the_converters(ptx: Ptx, type_: str) -> None:
    """The instructions written for the four bytes of a word, run in NumPy on each of the 256
    bytes."""
    text = ptx(
        kernels.copy,
        {"x": type_, "z": "*fp32"},
        constants={"BLOCK": 512, "CACHE": "", "EVICT": "", "STORE": ""},
    )
    assert not re.search(r"cvt\.rn\.[bf0-9]+\.[su]\d", text)
    flips = {
        int(value) & 0xFFFFFFFF for value in re.findall(r"xor\.b32 \t%r\d+, %r\d+, (-?\d+);", text)
    }
    selectors = {
        int(value, 16)
        for value in re.findall(r"prmt\.b32 \t%r\d+, %r\d+, 1258291200, 0x(\w+)U;", text)
    }
    (taken,) = set(re.findall(r"add\.rn\.f32 \t%r\d+, %r\d+, 0f(\w+);", text))
    assert len(selectors) == 4 and len(flips) == (type_ == "*i8")
    given = np.arange(256, dtype=np.uint8)
    expected = (given.view(np.int8) if type_ == "*i8" else given).astype(np.float32)
    for selector in selectors:
        word = given.astype(np.uint32) << np.uint32(8 * (selector & 15))
        for flip in flips:
            word ^= np.uint32(flip)
        bits = permuted(word, 0x4B000000, selector).view(np.float32)
        np.testing.assert_array_equal(
            bits + np.array([int(taken, 16)], np.uint32).view(np.float32), expected
        )


def halves(words: Any, result: str) -> Any:
    """The numbers in both halves of words, as (word, half)."""
    parts = np.atleast_1d(np.asarray(words, np.uint32))[:, None].view(np.uint16)
    return (
        parts.view(np.float16).astype(np.float64)
        if result == "*fp16"
        else (parts.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    )


def joined(numbers: Any, result: str) -> Any:
    """The inverse of :func:`halves`, for numbers that are not rounded."""
    parts = (
        numbers.astype(np.float16).view(np.uint16)
        if result == "*fp16"
        else (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    words = np.ascontiguousarray(parts).view(np.uint32)[:, 0]
    np.testing.assert_array_equal(halves(words, result), numbers)
    return words


#: On words: destination, then the operands but for registers that something else wrote.
_RUN = re.compile(
    r"(xor|and|prmt|lop3|mov|shr\.u32)(?:\.b32)? "
    r"\t?(.*);|(fma\.rn\.bf16x2|(?:add|sub)(?:\.rn)?\.f16x2) \t?(.*);"
)
#: Words of all bytes in every place.
_WORDS = np.arange(256, dtype=np.uint32) * np.uint32(0x01010101) + np.uint32(0x00408003)


def pairs_of(text: str, result: str) -> list[Any]:
    """Run the instructions that are written for a word, on each of some words, and return the pairs
    of numbers that are made: no sum of halves is rounded."""
    registers: dict[str, Any] = {}
    made: list[Any] = []

    def value(name: str) -> Any:
        return (
            registers.get(name, _WORDS)
            if name.startswith("%")
            else np.uint32(int(name.removesuffix("U"), 0) & 0xFFFFFFFF)
        )

    for line in text.splitlines():
        found = _RUN.fullmatch(line.strip())
        if found is None:
            continue
        name, operands = (found[1], found[2]) if found[1] else (found[3], found[4])
        to, *names = operands.split(", ")
        if name == "prmt":
            registers[to] = permuted(value(names[0]), value(names[1]), int(value(names[2])))
            continue
        taken = [value(each) for each in names]
        if name == "lop3":
            a, b, c = taken[:3]
            registers[to] = (a & b | c) if taken[3] == 0xEA else (~a & b | c)
        elif name == "shr.u32":
            registers[to] = taken[0] >> taken[1]
        elif name in ("xor", "and", "mov"):
            registers[to] = (
                taken[0] ^ taken[1]
                if name == "xor"
                else taken[0] & taken[1]
                if name == "and"
                else taken[0]
            )
        else:
            a, b, *c = (halves(each, result) for each in taken)
            registers[to] = joined(
                np.broadcast_to(
                    a * b + c[0] if c else a + b if name.startswith("add") else a - b, (256, 2)
                ),
                result,
            )
            made.append(registers[to])
    return made


def bytes_of_words(type_: str) -> Any:
    return np.ascontiguousarray(_WORDS)[:, None].view(np.int8 if type_ == "*i8" else np.uint8)


@pytest.mark.parametrize(
    ("type_", "result"), [("*i8", "*bf16"), ("*u8", "*bf16"), ("*i8", "*fp16"), ("*u8", "*fp16")]
)
def test_bytes_of_words_become_short_floats_by_pairs(ptx: Ptx, type_: str, result: str) -> None:
    """The instructions written for a word, run in NumPy on words of all bytes: no sum of halves is
    rounded, and each pair of numbers is one word."""
    text = ptx(
        kernels.copy,
        {"x": type_, "z": result},
        constants={"BLOCK": 512, "CACHE": "", "EVICT": "", "STORE": ""},
    )
    assert not re.search(r"cvt\.rn", text)
    made, bytes_ = pairs_of(text, result), bytes_of_words(type_)
    for pair in (bytes_[:, :2], bytes_[:, 2:]):
        assert any((halves(words, result) == pair).all() for words in made)


@pytest.mark.parametrize(
    ("type_", "result"), [("*i8", "*bf16"), ("*u8", "*bf16"), ("*i8", "*fp16"), ("*u8", "*fp16")]
)
def test_bytes_are_taken_from_where_they_were_before_a_permutation(type_: str, result: str) -> None:
    """Pairs of a word whose bytes 1 and 2 change places are its even and its odd bytes: no
    permutation is left, and the odd ones of bf16 take one shift."""
    module, register = ModuleWriter("nounwind"), "half" if result == "*fp16" else "i16"
    w = module.function("f", [("ptr", "x"), ("ptr", "z")])
    words = PackedRegisters()
    word = words.permute(w, w.load("i32", "%x", align=4), 0x3120)
    names = [
        words.narrow_float(w, name, register, signed=type_ == "*i8")
        for name in words.unpack(w, word, "i32", "i8")
    ]
    for i in range(2):
        pair = words.pack(w, [str(name) for name in names[2 * i : 2 * i + 2]], register, "i32")
        w.store("i32", pair, w.gep("i32", "%z", i), align=4)
    w.ret()
    text = to_ptx(module.text(), target_of(ARCHITECTURES["sm_90a"]))
    assert len(re.findall(r"prmt\.b32", text)) == (1 if result == "*fp16" else 0)
    assert len(re.findall(r"shr\.u32", text)) == (0 if result == "*fp16" else 1)
    made, bytes_ = pairs_of(text, result), bytes_of_words(type_)
    for pair in (bytes_[:, ::2], bytes_[:, 1::2]):
        assert any((halves(words, result) == pair).all() for words in made)
