"""PTX of arithmetic on two elements of a register, and of conversions of pairs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gpu_kernels as kernels
import pytest

import tilewright.language as tl
from tilewright.language import libdevice
from tilewright.language.definitions.callable import device_function
from tilewright_nvidia.toolchain.linking import assemble

Ptx = Callable[..., str]


def test_both_halves_of_a_product_are_computed_at_once(ptx: Ptx) -> None:
    text = ptx(
        kernels.dropout,
        {"x": "*fp32", "z": "*fp32", "n": "i32", "p": "fp32", "seed": "i32"},
        constants={"BLOCK": 1024},
    )
    whole, high = text.count("mul.wide.u32"), text.count("mul.hi.u32")
    assert whole > 4 * high > 0  # of the last round only one half is wanted


def test_a_comparison_is_computed_once_for_neighbours_that_share_it(ptx: Ptx) -> None:
    signature = {"x": "*fp32", "z": "*fp32", "n": "i32"}
    counts = [
        ptx(kernels.inside, signature, constants={"BLOCK": 1024}, aligned=aligned).count("setp.")
        for aligned in (True, False)
    ]
    assert counts == [
        2,
        8,
    ]  # a thread has two vectors of four; where n may be any number, each element is compared


def test_negations_and_magnitudes_of_16_bits_are_made_of_what_the_assembler_does_not_widen(
    ptx: Ptx,
) -> None:
    text = ptx(kernels.negated, {"x": "*i16", "z": "*i32"}, constants={"BLOCK": 128})
    assert not re.search(r"(neg|abs)\.s16", text)
    assert re.search(r"not\.b16 \t(%rs\d+), %rs\d+;\n\tadd\.s16 \t\1, \1, 1;", text)
    assert re.search(
        (
            r"shr\.s16 \t%sign, (%rs\d+), 15;\n\tadd\.s16 \t(%rs\d+), \1, %sign;\n\txor\.b16 "
            r"\t\2, \2, %sign;"
        ),
        text,
    )


@pytest.mark.parametrize(("type_", "kind"), [("fp8e4nv", "e4m3x2"), ("fp8e5", "e5m2x2")])
def test_neighbours_are_widened_and_multiplied_together(ptx: Ptx, type_: str, kind: str) -> None:
    def kernel(x: Any, scale: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(tl.bfloat16) * tl.load(scale))

    signature = {"x": f"*{type_}", "scale": "*bf16", "z": "*bf16"}
    text = ptx(device_function(kernel), signature, "sm_90a", constants={"BLOCK": 1024})
    # eight elements of a thread, by twos: of a pair the first is the low half of a word
    assert (
        len(re.findall(rf"cvt\.rn\.f16x2\.{kind}", text))
        == len(re.findall(r"mul\.(?:rn\.)?bf16x2", text))
        == 4
    )
    assert not re.search(r"mul\.(?:rn\.)?bf16 |mul\.rn\.f32|cvt\.rn\.bf16\.f32", text)
    halves = (
        r"cvt\.f32\.f16\s+(%r\d+), %rs\d+;\s+cvt\.f32\.f16\s+(%r\d+), "
        r"%rs\d+;[^;]*cvt\.rn\.bf16x2\.f32 %r\d+, (%r\d+), (%r\d+);"
    )
    pairs = re.findall(halves, text)
    assert len(pairs) == 4 and all(
        (low, high) == (second, first) for low, high, first, second in pairs
    )
    assert assemble(text, "sm_90a").spills == 0
    older = ptx(device_function(kernel), signature, "sm_80", constants={"BLOCK": 1024})
    assert "f16x2.e" not in older and len(re.findall(r"bf16x2", older)) == len(
        re.findall(r"fma\.rn\.bf16x2", older)
    )


@pytest.mark.parametrize("source", ["fp32", "fp16"])
@pytest.mark.parametrize(("type_", "kind"), [("fp8e4nv", "e4m3x2"), ("fp8e5", "e5m2x2")])
def test_conversions_to_fp8_saturate_as_the_instruction_does(
    ptx: Ptx, type_: str, kind: str, source: str
) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(z.dtype.element_ty))

    text = ptx(
        device_function(kernel),
        {"x": f"*{source}", "z": f"*{type_}"},
        "sm_90a",
        constants={"BLOCK": 1024},
    )
    assert len(re.findall(rf"cvt\.rn\.satfinite\.{kind}\.f32", text)) == 4
    # nothing is done about those that are too great, nor for the sign of a NaN
    assert "setp" not in text and "selp" not in text


@pytest.mark.parametrize(
    ("type_", "width"), [("fp8e4nv", 8), ("fp8e5", 8), ("fp8e4nv", 4), ("fp8e4nv", 2)]
)
def test_neighbours_are_rounded_to_fp8_together(ptx: Ptx, type_: str, width: int) -> None:
    """The words that are stored are made by nothing but the conversions of pairs."""

    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.minimum(tl.load(x + at), 3.0).to(z.dtype.element_ty))

    text = ptx(
        device_function(kernel),
        {"x": "*fp32", "z": f"*{type_}"},
        "sm_90a",
        constants={"BLOCK": 128 * width},
    )
    pairs = re.findall(r"cvt\.rn\.satfinite\.\w+\.f32\s+(%rs\d+), (%r\d+), (%r\d+);", text)
    assert (
        len(pairs) == width // 2
        and "prmt" not in text
        and "selp" not in text
        and "setp" not in text
    )
    loaded = {
        name: int(source[2:]) for name, source in re.findall(r"min\.f32\s+(%r\d+), (%r\d+)", text)
    }
    assert all(loaded[low] < loaded[high] for _, high, low in pairs)


@pytest.mark.parametrize("source", ["i32", "i16"])
def test_small_integers_become_bf16_by_pairs(ptx: Ptx, source: str) -> None:
    """Four bits of a packed number as bf16: by packed additions, or by way of f32, two of which one
    instruction rounds to a word; nothing is rounded by integer arithmetic."""

    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, ((tl.load(x + at) >> 4) & 15).to(tl.bfloat16))

    text = ptx(
        device_function(kernel),
        {"x": f"*{source}", "z": "*bf16"},
        "sm_90a",
        constants={"BLOCK": 512},
    )
    if source == "i32":
        assert len(re.findall(r"lop3\.b32", text)) == len(re.findall("add.rn.bf16x2", text)) == 4
        assert "cvt" not in text
    else:
        assert len(re.findall(r"cvt\.rn\.f32\.[us]16", text)) == 4
        assert len(re.findall(r"cvt\.rn\.bf16x2\.f32", text)) == 2 and "32767" not in text


def test_bf16_numbers_become_f32_in_one_instruction(ptx: Ptx) -> None:
    def kernel(x: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at).to(tl.float32))

    text = ptx(
        device_function(kernel), {"x": "*bf16", "z": "*fp32"}, "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"shl\.b32\s+%r\d+, %r\d+, 16;", text))
        == len(re.findall(r"and\.b32\s+%r\d+, %r\d+, -65536;", text))
        == 4
    )
    assert "%rs" not in text


def test_rounding_to_integers_takes_no_rounding_to_whole_floats(ptx: Ptx) -> None:
    def kernel(x: Any, z: Any) -> None:
        at = tl.arange(0, 128)
        tl.store(z + at, libdevice.round(tl.load(x + at)).to(tl.int8))

    text = ptx(device_function(kernel), {"x": "*fp32", "z": "*i8"}, "sm_90a", constants={})
    assert (
        len(re.findall(r"\bcvt\.rzi\.s16\.f32", text)) == 1
        and "cvt.rzi.f32" not in text
        and "setp" not in text
    )


def test_numbers_of_one_word_are_multiplied_by_those_of_another(ptx: Ptx) -> None:
    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at) * tl.load(y + at))

    text = ptx(
        device_function(kernel), dict.fromkeys("xyz", "*bf16"), "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"mul\.(?:rn\.)?bf16x2", text)) == 4
        and "mov.b32" not in text.partition("bf16x2")[2]
    )


def test_neighbours_that_are_rounded_become_words(ptx: Ptx) -> None:
    """As in SwiGLU: what was computed in f32 is rounded, by twos, and multiplied by what was
    loaded."""

    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        wide = tl.load(x + at).to(tl.float32)
        tl.store(z + at, (wide * wide).to(tl.bfloat16) * tl.load(y + at))

    text = ptx(
        device_function(kernel), dict.fromkeys("xyz", "*bf16"), "sm_90a", constants={"BLOCK": 1024}
    )
    assert (
        len(re.findall(r"cvt\.rn\.bf16x2\.f32", text))
        == len(re.findall(r"\bmul\.bf16x2", text))
        == 4
    )
    assert "cvt.rn.bf16.f32" not in text and not re.search(r"mov\.b32 \s*%r\d+, \{", text)


def test_numbers_rounded_to_bf16_go_on_as_f32_in_one_instruction(ptx: Ptx) -> None:
    """The number is rounded into the upper half of a word, which is the f32: no conversion of a
    single number, at a quarter of the rate, and no shift. What is stored as bf16 is rounded by
    pairs from the same f32."""

    def kernel(x: Any, y: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        rounded = (tl.load(x + at) * 3.0).to(tl.bfloat16)
        tl.store(y + at, rounded)
        tl.store(z + at, rounded.to(tl.float32) + 1.0)

    signature = {"x": "*fp32", "y": "*bf16", "z": "*fp32"}
    text = ptx(device_function(kernel), signature, "sm_90a", constants={"BLOCK": 512})
    assert len(re.findall(r"cvt\.rn\.bf16x2\.f32", text)) == 4 + 2
    assert not re.search(r"cvt\.rn\.bf16\.f32|shl\.b32 \s*%r\d+, %r\d+, 16;", text)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(("arch", "has_sum"), [("sm_80", False), ("sm_90a", True)])
@pytest.mark.parametrize("type_", ["bf16", "fp16"])
def test_halves_of_words_are_computed_together(
    ptx: Ptx, type_: str, arch: str, has_sum: bool, fuse: bool
) -> None:
    """Eight elements of a thread of a rotation, as rotary embeddings are: four words of each
    operand, stored as they were computed."""

    def kernel(x: Any, y: Any, c: Any, s: Any, z: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(z + at, tl.load(x + at) * tl.load(c + at) - tl.load(y + at) * tl.load(s + at))

    signature = dict.fromkeys(("x", "y", "c", "s", "z"), f"*{type_}")
    text = ptx(
        device_function(kernel), signature, arch, constants={"BLOCK": 1024}, enable_fp_fusion=fuse
    )
    pair = {"bf16": "bf16x2", "fp16": "f16x2"}[type_]
    count = {
        name: len(re.findall(rf"\b{name}(?:\.rn)?\.{pair} ", text))
        for name in ("fma", "mul", "sub")
    }
    if fuse and (has_sum or type_ == "fp16"):
        assert count == {"fma": 4, "mul": 4, "sub": 0}
    elif type_ == "bf16" and not has_sum:  # products and differences are made of fma
        assert count == {"fma": 8 if fuse else 12, "mul": 0, "sub": 0}
    else:
        assert count == {"fma": 0, "mul": 8, "sub": 4}
    assert not re.search(
        r"cvt\.|prmt|\.f32|\bshl\.b32 |mov\.b32 \s*\{", text.partition("ld.global")[2]
    )
    last = [
        re.search(rf"\S+{pair}\s+{word},", text)
        for word in re.findall(r"%r\d+", re.findall(r"st\.global\.v4\.b32 \S+ \{(.*?)\}", text)[0])
    ]
    starts = [found.start() for found in last if found is not None]
    assert len(starts) == 4 and starts == sorted(starts)


@device_function
def _rounded_before_a_sum(x, y, z, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.mul_rn(tl.load(x + at), tl.load(y + at)) + tl.load(z + at))


def test_a_rounded_product_is_not_contracted(ptx: Ptx) -> None:
    text = ptx(
        _rounded_before_a_sum,
        dict.fromkeys(("x", "y", "z", "out"), "*fp32"),
        constants={"BLOCK": 128},
    )
    assert (
        "fma" not in text
        and len(re.findall(r"mul\.rn\.f32|mul\.f32", text))
        == len(re.findall(r"add\.rn\.f32|add\.f32", text))
        == 1
    )
