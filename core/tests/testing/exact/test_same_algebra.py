"""Verdicts: equal, different with the place and both values, inconclusive with the operation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.testing import exact_mode, same_algebra


@tw.jit
def plain(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, place = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + place, mask=place < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0) / n)


@tw.jit
def blocks(x_ptr, out_ptr, n, inverse, BLOCK: tl.constexpr, wrong: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place <= n if wrong == "mask" else place < n
        total += tl.load(x_ptr + row * n + place, mask=inside, other=0.0)
    mean = tl.sum(total, axis=0) * inverse
    tl.store(out_ptr + row + (row == 4 if wrong == "place" else 0), mean)
    if wrong == "behind":
        tl.store(out_ptr + 5 + row, mean, mask=row == 4)


def verdict(wrong: str, **options):
    x = np.ones((6, 77), np.float32)
    out = np.ones(12, np.float32)
    return same_algebra(
        plain,
        blocks,
        {"x_ptr": x, "out_ptr": out, "n": 77},
        {"x_ptr": x, "out_ptr": out, "n": 77, "inverse": 1 / 77},
        grid=(5,),
        constants={"BLOCK": 128},
        constants_b={"BLOCK": 16, "wrong": wrong},
        backend="reference",
        **options,
    )


@pytest.mark.parametrize("carry", ["float", "int"])
def test_another_order_and_another_form_are_equal(carry) -> None:
    found = verdict("", carry=carry)
    assert found and found.status == "equal" and not found.differences


def test_a_read_past_the_end_of_a_row_is_different() -> None:
    found = verdict("mask")
    (difference,) = found.differences
    assert found.status == "different" and difference.argument == "out_ptr"
    assert difference.index == (0,) and difference.count == 5
    assert isinstance(difference.a, Fraction) and difference.a != difference.b
    assert "argument out_ptr[0] is" in str(found)


def test_a_write_too_much_is_different() -> None:
    (difference,) = verdict("behind").differences
    assert difference.index == (9,) and difference.count == 1


def test_a_wrong_place_is_different() -> None:
    (difference,) = verdict("place").differences
    assert difference.index == (4,) and difference.count == 2


@tw.jit
def rounded(x_ptr, out_ptr, first: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    tl.store(out_ptr + place, tl.floor(x + 1.0) if first else tl.floor(x) + 1.0)


def test_a_difference_behind_an_uninterpreted_operation_is_inconclusive() -> None:
    arrays = np.ones(16, np.float32), np.zeros(16, np.float32)
    options = {"grid": (1,), "backend": "reference"}
    found = same_algebra(
        rounded, rounded, arrays, constants={"first": True, "COUNT": 16},
        constants_b={"first": False, "COUNT": 16}, **options,
    )  # fmt: skip
    assert found.status == "inconclusive" and not found
    assert "uninterpreted: floor at" in str(found)
    same = same_algebra(rounded, rounded, arrays, constants={"first": True, "COUNT": 16}, **options)
    assert same.status == "equal"
    assert [one.operation for one in same.uninterpreted] == ["floor"]


def test_functions_that_launch_kernels_are_compared() -> None:
    def one(x, out):
        plain[(5,)](x, out, 77, BLOCK=128)

    def two(x, out):
        with tw.backend("reference"):
            blocks[(5,)](x, out, 77, 1 / 77, BLOCK=32, wrong="")

    arrays = np.ones((5, 77), np.float32), np.zeros(5, np.float32)
    assert same_algebra(one, two, arrays, backend="reference")


def test_arrays_of_no_use_to_both_are_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        same_algebra(lambda x: None, lambda y: None, (np.ones(3),), (np.ones(3),))


def test_ordinary_launches_are_as_before() -> None:
    x, out = np.full((5, 77), 2.0, np.float32), np.zeros(5, np.float32)
    with exact_mode("reference"):
        plain[(5,)](x, out, 77, BLOCK=128)
    with tw.backend("reference"):
        plain[(5,)](x, out, 77, BLOCK=128)
    assert (out == 2).all()


def test_kernels_of_the_disk_cache_are_exact_too() -> None:
    x, out = np.ones((5, 77), np.float32), np.zeros(5, np.float32)
    with exact_mode("reference"):
        exact = plain.warmup(x, out, 77, BLOCK=128, grid=(5,))
    with tw.backend("reference"):
        floats = plain.warmup(x, out, 77, BLOCK=128, grid=(5,))
    assert exact.hash != floats.hash
    assert "u64" in exact.asm["tileir"] and "u64" not in floats.asm["tileir"]


def test_tensors_are_compared() -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.ones((5, 77)), torch.zeros(5)
    found = same_algebra(
        plain, blocks, (x, out, 77), (x, out, 77, 1 / 77), grid=(5,), constants={"BLOCK": 128},
        constants_b={"BLOCK": 16, "wrong": ""}, backend="reference",
    )  # fmt: skip
    assert found, found
