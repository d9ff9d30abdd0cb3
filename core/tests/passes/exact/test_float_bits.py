"""Bits of floats in exact mode: their order, their signs, and memory that is read as integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.ring import ring
from tilewright.testing import exact_mode, same_algebra
from tilewright.testing.exact import embed, fractions

DTYPES = {
    8: (tl.float8e5, tl.int8), 16: (tl.float16, tl.int16), 32: (tl.float32, tl.int32),
    64: (tl.float64, tl.int64),
}  # fmt: skip


@tw.jit
def there_and_back(x_ptr, out_ptr, INTEGER: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    bits = tl.load(x_ptr + place).to(INTEGER, bitcast=True)
    tl.store(out_ptr + place, bits.to(out_ptr.dtype.element_ty, bitcast=True))


@pytest.mark.parametrize("bits", DTYPES)
def test_payloads_move_through_integers(bits) -> None:
    own, (kind, integer) = ring(bits), DTYPES[bits]
    rng = np.random.default_rng(0)
    x = rng.integers(0, own.modulus, 256, dtype=np.uint64)
    x[:8] = 0, 1, own.half, own.half + 1, own.modulus - 1, own.nan, own.undefined, own.infinity
    x[8] = own.negative_infinity
    x = x.astype(f"uint{bits}")
    out = np.zeros_like(x)
    with exact_mode("reference"):
        there_and_back[(1,)](
            tw.reinterpret(x, kind), tw.reinterpret(out, kind), INTEGER=integer, COUNT=256
        )
    assert (out == x).all()


@tw.jit
def sorted_by(x_ptr, out_ptr, WAY: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    if WAY == "sort":
        found = tl.sort(x)
    elif WAY == "descending":
        found = -tl.sort(-x, descending=True)
    elif WAY == "wider":
        found = tl.sort(x.to(tl.float64)).to(x.dtype)
    else:  # the number of elements that are before each, by comparisons
        first = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (
            place[None, :] < place[:, None]
        ))  # fmt: skip
        rank = tl.sum(first.to(tl.int32), axis=1)
        found = tl.sum(tl.where(rank[:, None] == place[None, :], x[:, None], 0.0), axis=0)
    tl.store(out_ptr + place, found)


@pytest.mark.parametrize("way", ["descending", "wider", "ranks"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sorting_agrees_with_comparisons(way, dtype) -> None:
    arrays = np.ones(64, dtype), np.zeros(64, dtype)
    found = same_algebra(
        sorted_by, sorted_by, arrays, grid=(1,), constants={"WAY": "sort", "COUNT": 64},
        constants_b={"WAY": way, "COUNT": 64}, backend="reference",
    )  # fmt: skip
    assert found, found


def test_numbers_codes_and_all_are_sorted() -> None:
    x = np.array([3, -np.inf, np.nan, -2, 0, np.inf, -1, 7], np.float32)
    x, out = embed(x), np.zeros(8, np.float32)
    with exact_mode("reference"):
        sorted_by[(1,)](x, out, WAY="sort", COUNT=8)
    assert list(fractions(out)) == ["-inf", *map(Fraction, (-2, -1, 0, 3, 7)), "inf", "nan"]


@tw.jit
def signs(x_ptr, out_ptr, BY_BITS: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    if BY_BITS:
        bits = x.to(tl.int32, bitcast=True)
        absolute = (bits & 0x7FFFFFFF).to(tl.float32, bitcast=True)
        negated = (bits ^ -0x80000000).to(tl.float32, bitcast=True)
        relu = tl.maximum(bits, 0).to(tl.float32, bitcast=True)
    else:
        absolute, negated, relu = tl.abs(x), -x, tl.maximum(x, 0.0)
    tl.store(out_ptr + place, absolute)
    tl.store(out_ptr + COUNT + place, negated)
    tl.store(out_ptr + 2 * COUNT + place, relu)


def test_the_highest_bit_is_the_sign() -> None:
    arrays = np.ones(64, np.float32), np.zeros(192, np.float32)
    found = same_algebra(
        signs, signs, arrays, grid=(1,), constants={"BY_BITS": False, "COUNT": 64},
        constants_b={"BY_BITS": True, "COUNT": 64}, backend="reference",
    )  # fmt: skip
    assert found, found


@tw.jit
def read_as_integers(x_ptr, out_ptr, WAY: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    out_bits = out_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    if WAY == "floats":
        tl.store(out_ptr + place, tl.sort(tl.load(x_ptr + place, place < COUNT - 1, 2.0)))
    elif WAY == "loads":
        x = tl.load(x_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + place)
        x = tl.where(place < COUNT - 1, x.to(tl.float32, bitcast=True), 2.0)
        tl.store(out_ptr + place, tl.sort(x))
    elif WAY == "stores":
        x = tl.sort(tl.load(x_ptr + place, place < COUNT - 1, 2.0))
        tl.store(out_bits + place, x.to(tl.int32, bitcast=True))
    elif WAY == "exchanges":
        x = tl.sort(tl.load(x_ptr + place, place < COUNT - 1, 2.0))
        tl.atomic_xchg(out_bits + place, x.to(tl.int32, bitcast=True))
    elif WAY == "compares":
        x = tl.sort(tl.load(x_ptr + place, place < COUNT - 1, 2.0))
        before = tl.load(out_bits + place)
        tl.atomic_cas(out_bits + place, before, x.to(tl.int32, bitcast=True))
    else:
        tl.atomic_max(out_bits + place, 3)


@pytest.mark.parametrize("way", ["loads", "stores", "exchanges", "compares"])
def test_floats_in_memory_are_read_as_integers(way) -> None:
    arrays = np.ones(32, np.float32), np.zeros(32, np.float32)
    found = same_algebra(
        read_as_integers, read_as_integers, arrays, grid=(1,), backend="reference",
        constants={"WAY": "floats", "COUNT": 32}, constants_b={"WAY": way, "COUNT": 32},
    )  # fmt: skip
    assert found, found


def test_atomic_arithmetic_on_bits_is_refused() -> None:
    arrays = np.ones(32, np.float32), np.zeros(32, np.float32)
    with (
        exact_mode("reference"),
        pytest.raises(ExactModeError, match="an atomic max on the bits of floats in memory"),
    ):
        read_as_integers[(1,)](*arrays, WAY="arithmetic", COUNT=32)
