"""What arguments hold where a record is run, and how results are compared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from corpus import data
from corpus.launches import Argument, Launch

LAUNCH = Launch("p", "1", "m", "k", "c", ())


def tensor(
    kind: str, *shape: int, strides: tuple[int, ...] | None = None, name: str = "x"
) -> Argument:
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
    elif kind in ("i8", "u8"):
        assert int(one.min()) <= -100 or int(one.max()) >= 250
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lock_ptr", [0, 0, 0, 0]),
        ("dELocks", [0, 0, 0, 0]),
        ("counter_ptr", [0, 0, 0, 0]),
        ("status_ptr", [0, 0, 0, 0]),
    ],
)
def test_what_other_kernels_leave_is_known_by_name(name: str, expected: list[int]) -> None:
    assert data.contents(LAUNCH, tensor("*i32", 4, name=name), 1 << 20).tolist() == expected


def test_tables_of_blocks_are_no_locks() -> None:
    assert data.contents(LAUNCH, tensor("*i32", 999, name="block_tables"), 1 << 20).any()


def test_packed_weights_use_all_their_bits() -> None:
    found = data.contents(LAUNCH, tensor("*i32", 999, name="qweight"), 1 << 20)
    assert int(found.min()) < -(1 << 30) and int(found.max()) > 1 << 30


def test_contents_of_a_record_are_taken() -> None:
    argument = replace(tensor("*i32", 2, 4, name="block_tables"), contents=((7, 0, 1), (9, 2, 3)))
    assert data.contents(LAUNCH, argument, 1 << 20).tolist() == [7, 9, 11, 13, 7, 9, 11, 13]


@pytest.mark.parametrize(("name", "least"), [("qmap1_ptr", -1), ("qmap2_ptr", 0), ("code_ptr", -1)])
def test_codes_stand_for_numbers_in_order(name: str, least: float) -> None:
    found = data.contents(LAUNCH, tensor("*fp32", 256, name=name), 1 << 20)
    assert found[0] == least and found[-1] == 1 and (np.diff(found) > 0).all()


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16"])
def test_largest_values_are_positive(kind: str) -> None:
    found = data.values(
        data.contents(LAUNCH, tensor(f"*{kind}", 999, name="absmax1_ptr"), 1 << 20), kind
    )
    assert found.min() >= 0 and found.max() > 0.1


def test_points_of_an_interval_are_in_one_cell_of_the_grid() -> None:
    names = [
        tensor("*i32", 15, 4, name="geom_feats_ptr"),
        tensor("*i32", 5, name="interval_starts_ptr"),
        tensor("*i32", 5, name="interval_lengths_ptr"),
    ]
    launch = Launch("p", "1", "m", "k", "c", tuple(names))
    points, starts, lengths = (data.contents(launch, each, 1 << 20) for each in names)
    assert starts.tolist() == [0, 3, 6, 9, 12] and set(lengths) == {3}
    assert points.reshape(15, 4)[::3].tolist() == [[cell, 0, 0, 0] for cell in range(5)]
    assert (points.reshape(5, 3, 4) == points.reshape(5, 3, 4)[:, :1]).all()
