"""Differences count an array's elements, and report what lies outside of it apart."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.testing import same_algebra


@tw.jit
def doubled(x_ptr, out_ptr, stride, WRONG: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    out = 2.0 * x
    if WRONG == "all":
        out = 3.0 * x
    if WRONG == "one" or WRONG == "one and behind":
        out = tl.where(place == 5, 3.0 * x, out)
    tl.store(out_ptr + place * stride, out)
    if WRONG == "before":
        tl.store(out_ptr - 1 - place, out, mask=place < 2)
    if WRONG == "behind" or WRONG == "one and behind":
        tl.store(out_ptr + COUNT * stride + place, out, mask=place < 3)
    if WRONG == "gap":
        tl.store(out_ptr + 7, 1.0)


def differences(wrong, out=None):
    x = np.ones(16, np.float32)
    out = np.ones(16, np.float32) if out is None else out
    stride = out.strides[-1] // 4
    return same_algebra(
        doubled, doubled, (x, out, stride), grid=(1,), backend="cpu",
        constants={"WRONG": "", "COUNT": 16}, constants_b={"WRONG": wrong, "COUNT": 16},
    )  # fmt: skip


@pytest.mark.parametrize(("wrong", "index", "count"), [("all", 0, 16), ("one", 5, 1)])
def test_elements_of_the_array_are_counted(wrong, index, count) -> None:
    found = differences(wrong)
    (one,) = found.differences
    assert (one.index, one.count, one.size, one.outside) == ((index,), count, 16, 0)
    assert str(found).endswith(f"; {count} of 16 elements differ")


@pytest.mark.parametrize(("wrong", "index", "outside"), [("before", -2, 2), ("behind", 16, 3)])
def test_writes_outside_of_the_array_are_found_apart(wrong, index, outside) -> None:
    found = differences(wrong)
    (one,) = found.differences
    assert found.status == "different"
    assert (one.index, one.count, one.size, one.outside) == ((index,), 0, 16, outside)
    assert str(found).endswith(f"; 0 of 16 elements differ, and {outside} outside of the array")


def test_an_element_is_named_before_what_lies_outside() -> None:
    (one,) = differences("one and behind").differences
    assert (one.index, one.count, one.outside) == ((5,), 1, 3)


@pytest.mark.parametrize(("wrong", "index", "count"), [("all", (0, 0), 16), ("one", (0, 5), 1)])
def test_gaps_between_elements_are_not_counted(wrong, index, count) -> None:
    out = np.broadcast_to(np.ones(32, np.float32), (1, 32))[:, ::2]  # a stride of 0
    (one,) = differences(wrong, out).differences
    assert (one.index, one.count, one.size, one.outside) == (index, count, 16, 0)


def test_a_write_into_a_gap_is_outside() -> None:
    (one,) = differences("gap", np.ones(32, np.float32)[::2]).differences
    assert (one.index, one.count, one.size, one.outside) == ((7,), 0, 16, 1)
