"""Verdicts tell differences behind uninterpreted operations from others, by argument."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.testing import exact_mode, same_algebra

OPTIONS = {"grid": (1,), "backend": "reference"}


@tw.jit
def helper(x):
    return tl.floor(x)


@tw.jit
def passed_on(x):
    return x * 2.0


@tw.jit
def two_outputs(
    x_ptr, rounded_ptr, out_ptr, FLOW: tl.constexpr, WRONG: tl.constexpr, COUNT: tl.constexpr
):
    place = tl.arange(0, COUNT)
    x = tl.load(x_ptr + place)
    floor = tl.floor(x)
    tl.store(rounded_ptr + place, floor)
    out = x + (2.0 if WRONG else 1.0)
    if FLOW == "operand":
        out += floor
    elif FLOW == "mask":
        out = tl.where(floor > 0, out, 0.0)
    elif FLOW == "address":
        place = tl.where(floor > 0, place, COUNT - 1 - place)
    elif FLOW == "condition":
        if tl.sum(floor, axis=0) != 7.0:
            out += 1.0
    elif FLOW == "trips":
        for _ in range(tl.sum((floor > 0).to(tl.int32), axis=0)):
            out += 1.0
    elif FLOW == "while":
        steps = tl.sum((floor > 0).to(tl.int32), axis=0)
        while steps > 0:
            out += 1.0
            steps -= 1
    elif FLOW == "carried":
        kept = x
        for _ in range(3):
            out += kept
            kept = floor
    elif FLOW == "memory":
        out += tl.load(rounded_ptr + place)
    elif FLOW == "call":
        out += helper(x)
    elif FLOW == "reduction":
        out += tl.max(floor, axis=0)
    elif FLOW == "pure call":
        out += passed_on(x)
    tl.store(out_ptr + place, out)


def verdict(flow: str, **options):
    arrays = np.ones(16, np.float32), np.zeros(16, np.float32), np.zeros(16, np.float32)
    return same_algebra(
        two_outputs, two_outputs, arrays, constants={"FLOW": flow, "WRONG": False, "COUNT": 16},
        constants_b={"FLOW": flow, "WRONG": True, "COUNT": 16}, **OPTIONS, **options,
    )  # fmt: skip


@pytest.mark.parametrize("flow", ["", "pure call"])
def test_a_difference_elsewhere_is_conclusive(flow) -> None:
    found = verdict(flow)
    (difference,) = found.differences
    assert found.status == "different" and difference.argument == "2"
    assert difference.behind == () and [one.operation for one in found.uninterpreted] == ["floor"]


@pytest.mark.parametrize(
    "flow",
    [
        "operand", "mask", "address", "condition", "trips", "while", "carried", "memory", "call",
        "reduction",
    ],
)  # fmt: skip
def test_a_difference_behind_the_operation_is_not(flow) -> None:
    found = verdict(flow)
    (difference,) = found.differences
    assert found.status == "inconclusive"
    assert {one.operation for one in difference.behind} == {"floor"}
    assert "uninterpreted: floor at" in str(found)


@tw.jit
def store_floor(x_ptr, out_ptr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    tl.store(out_ptr + place, tl.floor(tl.load(x_ptr + place)))


@tw.jit
def add(x_ptr, y_ptr, out_ptr, factor: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    y = tl.load(y_ptr + place) * factor
    tl.store(out_ptr + place, tl.load(x_ptr + place) + y)


@pytest.mark.parametrize(
    ("source", "status"),
    [("input", "different"), ("launch", "inconclusive"), ("copy", "inconclusive")],
)
def test_memory_carries_operations_from_launch_to_launch(source, status) -> None:
    def form(factor):
        def launches(x, y, out):
            floors = np.empty_like(x)
            store_floor[(1,)](x, floors, COUNT=16)
            other = {"input": y, "launch": floors[:], "copy": floors.copy()}[source]
            add[(1,)](x, other, out, factor=factor, COUNT=16)

        return launches

    arrays = np.ones(16, np.float32), np.ones(16, np.float32), np.zeros(16, np.float32)
    found = same_algebra(form(1.0), form(2.0), arrays, backend="reference")
    assert found.status == status, found


def test_arguments_that_overlap_are_one_memory() -> None:
    memory = np.ones(64, np.float32)
    x, floors, again = memory[:16], memory[16:32], memory[16:33]
    with exact_mode("reference") as reports:
        reports.begin_with([memory])
        two_outputs[(1,)](x, floors, memory[40:56], FLOW="", WRONG=False, COUNT=16)
        assert reports.behind(floors) and not reports.behind(memory[40:56])
        add[(1,)](x, again, memory[48:64], factor=1.0, COUNT=16)
    assert reports.behind(memory[60:64]) and not reports.behind(memory[40:44])
