"""What arguments hold where a record is run, and how results are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from corpus import data
from corpus.launches import Argument, Launch

LAUNCH = Launch("p", "1", "m", "k", "c", ())


def tensor(kind: str, *shape: int, strides: tuple[int, ...] | None = None, name: str = "x") -> Argument:
    """An argument that is a tensor."""
    rows = strides or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Argument(name, kind, shape=shape, strides=rows)


def test_constants_are_not_passed_and_items_of_tuples_are() -> None:
    items = (Argument("t.0", "i32", 3), Argument("t.1", "constexpr", 1))
    given = (Argument("a", "constexpr", 1), Argument("t", "tuple", items=items), tensor("*fp32", 2))
    assert [each.name for each in data.passed(given)] == ["t.0", "x"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("*bf16", "bf16"), ("tensordesc<fp8e4nv[64, 64]>", "fp8e4nv"), ("i32", ""), ("fp32", "")],
)
def test_the_type_of_elements(kind: str, expected: str) -> None:
    assert data.element(Argument("x", kind)) == expected


def test_a_tensor_reaches_from_its_first_element_to_its_last() -> None:
    assert data.extent(tensor("*fp32", 4, 8)) == 32
    assert data.extent(tensor("*fp32", 4, 8, strides=(16, 1))) == 56
    assert data.extent(tensor("*fp32", 4, 8, strides=(0, 1))) == 8
    assert data.extent(tensor("*fp32", 0, 8)) == 8


@pytest.mark.parametrize("kind", sorted(data.ELEMENTS))
def test_contents_are_the_same_in_every_process_and_finite(kind: str) -> None:
    one, other = (data.contents(LAUNCH, tensor(f"*{kind}", 300, 300), 1 << 30) for _ in range(2))
    assert one.size == 90000
    assert one.tobytes() == other.tobytes()
    if one.dtype.kind == "f":
        assert np.isfinite(one).all()
    elif not kind.startswith(("bf", "fp")):
        assert 0 <= int(one.min()) <= int(one.max()) < 4
    assert data.contents(LAUNCH, tensor(f"*{kind}", 300, 300), 4096).nbytes == 4096


def test_sequences_begin_one_behind_the_other() -> None:
    found = data.contents(LAUNCH, tensor("*i32", 4, name="cu_seqlens_ptr"), 1 << 20)
    assert found.tolist() == [0, 16, 32, 48]


def test_differences_are_by_the_largest_value() -> None:
    one = np.array([1.0, 2.0, -4.0], "f4")
    assert data.difference(one, one.copy(), "fp32") == 0
    assert data.difference(one, one + np.array([0, 1, 0], "f4"), "fp32") == pytest.approx(0.25)
    assert data.difference(one, np.array([1, np.nan, -4], "f4"), "fp32") == math.inf
    nan = np.array([1, np.nan], "f4")
    assert data.difference(nan, nan + np.array([0.5, 0], "f4"), "fp32") == pytest.approx(1 / 3)
    assert data.difference(np.array([1, 2, 3]), np.array([1, 0, 0]), "i64") == 2
    bits = (one.view("u4") >> 16).astype("u2")
    other = (np.array([1.0, 2.0, -2.0], "f4").view("u4") >> 16).astype("u2")
    assert data.difference(bits, other, "bf16") == pytest.approx(1.0)
