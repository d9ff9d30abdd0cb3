"""The type in which two operands meet, against an oracle written from the rules."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.language.value_types.promotion import scalar_type

INTS = (
    {"int1": (1, False)}
    | {f"int{n}": (n, True) for n in (8, 16, 32, 64)}
    | {f"uint{n}": (n, False) for n in (8, 16, 32, 64)}
)
FP8 = ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15")
ALL = (*INTS, *FP8, "fp16", "bf16", "fp32", "fp64")


def expected(a: str, b: str, division: bool) -> str | None:
    """The common type of two tensors, or None where there is none: the numbered rules of the
    language, one line each."""
    both = {a, b}
    for first in ("fp64", "fp32"):
        if first in both:
            return first
    if "fp16" in both:
        return "fp32" if division else "fp16"
    if "bf16" in both:
        return "bf16" if both == {"bf16"} and not division else "fp32"
    if a in FP8 and b in FP8:
        return "fp32" if division else a if a == b else "fp16"
    if a in FP8 or b in FP8:
        return None
    (bits_a, signed_a), (bits_b, signed_b) = INTS[a], INTS[b]
    if signed_a == signed_b:
        return a if bits_a > bits_b else b
    if division:
        return None
    unsigned, signed = (b, a) if signed_a else (a, b)
    return unsigned if INTS[unsigned][0] >= INTS[signed][0] else signed


def kind(name: str) -> int:
    return 0 if name == "int1" else 1 if name in INTS else 2


def expected_with_scalar(tensor: str, scalar: str, division: bool) -> str | None:
    """The common type of a tensor and a number of the program text whose own type is ``scalar``."""
    if kind(scalar) <= kind(tensor):
        return "fp32" if division and tensor in ("fp16", "bf16", *FP8) else tensor
    return expected(tensor, scalar, division)


@pytest.mark.each_value
@pytest.mark.parametrize("division", [False, True])
@pytest.mark.parametrize(("a", "b"), list(itertools.product(ALL, ALL)))
def test_two_tensors(bench: Any, a: str, b: str, division: bool) -> None:
    x, y = bench.value(tl.dtype(a), [8]), bench.value(tl.dtype(b), [8])
    wanted = expected(a, b, division)
    if wanted is None:
        with pytest.raises(
            TypeError, match="signedness" if a in INTS and b in INTS else "no common type"
        ):
            bench.semantic.promote(x, y, div_or_mod=division)
        return
    for result in bench.semantic.promote(x, y, div_or_mod=division):
        assert result.dtype.name == wanted
        assert result.type is tl.block_type(tl.dtype(wanted), [8])
    bench.verify()


NUMBERS: dict[str, list[Any]] = {
    "int1": [True, False],
    "int32": [0, 1, -5, 2**31 - 1, -(2**31)],
    "uint32": [2**31, 2**32 - 1],
    "int64": [2**32, -(2**31) - 1, -(2**63)],
    "uint64": [2**63, 2**64 - 1],
    "fp32": [0.0, -0.0, 1.5, float("inf"), float("nan"), 2.0**-126, 3.4028234663852886e38],
    "fp64": [1e300, 2.0**-127, 1e-300],
}


def test_type_of_numbers() -> None:
    for name, values in NUMBERS.items():
        for value in values:
            assert scalar_type(value).name == name, value


def test_numbers_beyond_64_bits_are_refused(bench: Any) -> None:
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=r"Nonrepresentable integer"):
            bench.semantic.to_tensor(value)


@pytest.mark.parametrize("division", [False, True])
@pytest.mark.parametrize("reflected", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_tensor_and_number(bench: Any, name: str, division: bool, reflected: bool) -> None:
    x = bench.value(tl.dtype(name), [4])
    for own, values in NUMBERS.items():
        for value in values:
            wanted = expected_with_scalar(name, own, division)
            operands = (value, x) if reflected else (x, value)
            error: type[Exception] | None = None
            if wanted is None:
                error = TypeError
            elif wanted in INTS:
                bits, signed = INTS[wanted]
                low, high = (
                    (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
                )
                error = None if low <= value <= high else ValueError
            if error is not None:
                with pytest.raises(error):
                    bench.semantic.promote(*operands, div_or_mod=division)
                continue
            for result in bench.semantic.promote(*operands, div_or_mod=division):
                assert result.dtype.name == wanted, (name, value)
    bench.verify()


def test_messages_of_numbers_out_of_range(bench: Any) -> None:
    byte, unsigned = bench.value(tl.int8, [4]), bench.value(tl.uint32, [4])
    with pytest.raises(ValueError, match=r"^Scalar 300 is out of range for type int8$"):
        bench.semantic.binary("add", byte, 300)
    with pytest.raises(
        ValueError, match=r"negative scalar \(-1\): it is out of range for type uint32"
    ):
        bench.semantic.binary("mul", -1, unsigned)


def test_a_loaded_scalar_is_a_tensor_not_a_number(bench: Any) -> None:
    half, scalar = bench.value(tl.float16, [4]), bench.value(tl.float32)
    assert bench.semantic.binary("add", half, scalar).dtype is tl.float32
    assert bench.semantic.binary("add", half, 1.0).dtype is tl.float16


def test_comparisons_give_numbers_their_own_type(bench: Any) -> None:
    byte = bench.value(tl.uint8, [4], "x")
    assert bench.semantic.compare("lt", byte, 300).type is tl.block_type(tl.int1, [4])
    compared = bench.last.operands[0].type
    assert str(compared) == "tile<4xi32>"
    half = bench.value(tl.float16, [4])
    bench.semantic.compare("gt", half, 0.1)
    assert str(bench.last.operands[0].type) == "tile<4xf32>"


def test_a_literal_compared_with_fp64_is_rounded_to_fp32_first(bench: Any) -> None:
    bench.semantic.compare("lt", bench.value(tl.float64), 0.1)
    assert bench.last.operands[1].definition.attribute("value") == 0.10000000149011612
    bench.semantic.binary("add", bench.value(tl.float64), 0.1)
    assert bench.last.operands[1].definition.attribute("value") == 0.1


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_negative_numbers_compare_with_unsigned_as_in_c(bench: Any, op: str) -> None:
    bench.semantic.compare(op, bench.value(tl.uint32), -1)
    assert bench.last.attribute("predicate") == op
    assert bench.last.operands[1].definition.attribute("value") == 2**32 - 1


def test_pointers_do_not_compare_or_add(bench: Any) -> None:
    p, q, x = bench.value("*fp32"), bench.value("*fp32"), bench.value(tl.float32)
    with pytest.raises(TypeError, match=r"^cannot add pointers together$"):
        bench.semantic.binary("add", p, q)
    for op, a, b in (("sub", p, q), ("add", p, x), ("mul", p, 2), ("sub", 1, p)):
        with pytest.raises(TypeError, match="invalid operands of type"):
            bench.semantic.binary(op, a, b)
    with pytest.raises(TypeError, match="invalid operands of type"):
        bench.semantic.compare("eq", p, q)
