"""The error function by tables in registers: within its bound for vectors, parts and scalars."""

import math

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.types import F32
from tilewright.passes.math.math_library import MATH
from tilewright_cpu.hardware import hardware_of
from tilewright_cpu.target import host

torch = pytest.importorskip("torch")
if not hardware_of(host()).tables:
    pytest.skip("this processor has no tables of sixteen numbers", allow_module_level=True)


@tw.jit
def erf_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.erf(tl.load(x_ptr + places, mask=places < n)), mask=places < n)


@tw.jit
def scalar_kernel(x_ptr, out_ptr):
    place = tl.program_id(0)
    tl.store(out_ptr + place, tl.erf(tl.load(x_ptr + place)))


@tw.jit
def narrow_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, tl.erf(x.to(tl.float32)).to(x.dtype))


def erf(x: np.ndarray, block: int = 1024) -> np.ndarray:
    out = np.full_like(x, 7.0)
    erf_kernel[(tw.cdiv(x.size, block),)](x, out, x.size, BLOCK=block)
    return out


def exact(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return torch.erf(torch.from_numpy(x.astype(np.float64))).numpy()


def ulps(found: np.ndarray, x: np.ndarray) -> np.ndarray:
    right = exact(x)
    # the unit of the number just below a power of two where the exact result is just below it:
    # frexp, not the rounded result, tells
    exponent = np.maximum(np.frexp(right)[1] - 1, -126)
    return np.abs(found.astype(np.float64) - right) / np.ldexp(1.0, exponent - 23)


@pytest.mark.parametrize("low, high", [(-4.5, 4.5), (-0.3, 0.3), (3.5, 4.2), (-1e-3, 1e-3)])
def test_the_error_is_within_the_bound(low: float, high: float) -> None:
    x = np.random.default_rng(1).uniform(low, high, 1 << 20).astype(np.float32)
    error = ulps(erf(x), x)
    assert error.max() <= 0.81 <= MATH["erf", F32].strict_ulp, x[error.argmax()]


def test_the_error_over_all_exponents() -> None:
    x = np.arange(0, 1 << 32, 1009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    found = erf(x)
    assert np.array_equal(np.isnan(found), np.isnan(x))
    inside = ~np.isnan(x)
    normal = inside & (np.abs(x) >= 2.0**-126)
    assert ulps(found[normal], x[normal]).max() <= 0.81
    # of the least numbers, which have few digits, the unit is the same for all
    assert ulps(found[inside], x[inside]).max() <= MATH["erf", F32].strict_ulp


def test_every_piece_meets_the_next_without_a_step_back() -> None:
    borders = np.arange(1, 17, dtype=np.float32) * np.float32(0.246)
    x = np.concatenate([np.nextafter(borders, np.float32(side)) for side in (0, 9)] + [borders])
    assert ulps(erf(x), x).max() <= 0.81


def test_special_values() -> None:
    x = np.asarray(
        [math.inf, -math.inf, 0.0, -0.0, math.nan, 50.0, -50.0, 3.93, -3.93, 1e-45, -1e-45],
        np.float32,
    )
    x = np.concatenate([x, np.asarray([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)])
    found = erf(x)
    expected = exact(x).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(x[numbers]))


@pytest.mark.parametrize("block", [2, 4, 8, 16, 32, 64])
def test_lanes_do_not_depend_on_how_many_there_are(block: int) -> None:
    x = np.random.default_rng(2).normal(size=640).astype(np.float32)
    np.testing.assert_array_equal(erf(x, block), erf(x))


def test_scalars_are_lanes_too() -> None:
    x = np.random.default_rng(3).normal(size=300).astype(np.float32)
    out = np.zeros_like(x)
    scalar_kernel[(300,)](x, out)
    np.testing.assert_array_equal(out, erf(x))


def test_tiles_of_narrower_numbers() -> None:
    x = torch.randn(512).to(torch.bfloat16)
    out = torch.zeros_like(x)
    narrow_kernel[(2,)](x, out, BLOCK=256)
    assert torch.equal(out, torch.from_numpy(erf(x.float().numpy())).to(torch.bfloat16))
