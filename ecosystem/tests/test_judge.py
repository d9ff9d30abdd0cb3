"""Which differences from Triton's results are none of Tilewright's doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from corpus.device.judge import judge

Array = np.ndarray[Any, np.dtype[Any]]
TRUTH = np.linspace(-1, 1, 1 << 20, dtype="f4")


def raw(values: Array, kind: str) -> Array:
    """The bytes of numbers in a type; bf16 by cutting bits off."""
    return (
        (values.astype("f4").view("u4") >> 16).astype("u2").view("u1")
        if kind == "bf16"
        else values.view("u1")
    )


def verdict(
    ours: Array, theirs: Array, kind: str, again: Array | None = None, exact: Array | None = None
) -> tuple[bool, str]:
    witnesses: dict[str, Mapping[str, Array] | None] = {
        "again": {"out": raw(theirs if again is None else again, kind)},
        "exact": None if exact is None else {"out": exact.view("u1")},
    }
    found = judge("out", kind, raw(ours, kind), raw(theirs, kind), witnesses.__getitem__)
    return found.right, found.note


def off(by: float) -> Array:
    """The truth with one number that is off by so much."""
    found = TRUTH.copy()
    found[1 << 19] += by
    return found


def test_what_is_within_the_tolerance_asks_nobody() -> None:
    bits = raw(TRUTH, "fp32")
    assert judge(
        "out", "fp32", raw(off(1e-4), "fp32"), bits, lambda which: pytest.fail(which)
    ).right


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_results_of_low_precision_are_judged_by_those_of_higher(kind: str) -> None:
    assert verdict(off(0.05), off(-0.05), kind) == (False, "out differs by 0.1")
    right, note = verdict(off(0.05), off(-0.05), kind, exact=TRUTH)
    assert right and note.startswith(
        "out is off by 0.05 of what floats of 32 bits give, Triton's by 0.05"
    )
    assert verdict(off(0.2), off(-0.05), kind, exact=TRUTH)[0] is False, (
        "Triton's is four times as near"
    )
    assert not verdict(off(0.05), off(-0.05), kind, exact=TRUTH[: 1 << 10])[0], (
        "what is not kept is no witness"
    )


def test_floats_may_differ_as_tritons_own_results_do() -> None:
    assert verdict(off(0.05), TRUTH, "fp32", again=off(0.04)) == (
        True,
        "out is not defined: Triton's own results differ by 0.04",
    )
    assert verdict(off(0.5), TRUTH, "fp32", again=off(0.04)) == (False, "out differs by 0.5")


def test_positions_that_atomics_hand_out_may_be_in_another_order() -> None:
    order = np.arange(1000, dtype="i4")
    swapped, reversed_ = order.copy(), order[::-1].copy()
    swapped[:2] = 1, 0
    assert verdict(reversed_, order, "i32", again=swapped) == (
        True,
        "out: the order is not defined",
    )
    assert verdict(reversed_, order, "i32") == (False, "out differs by 1e+03"), (
        "Triton leaves the same order each time"
    )
    wrong = reversed_.copy()
    wrong[5] = 7
    assert not verdict(wrong, order, "i32", again=swapped)[0], "a position is handed out twice"


def test_few_codes_may_be_the_next_ones() -> None:
    codes = (np.arange(1 << 22) % 200).astype("u1")
    near, far, many = codes.copy(), codes.copy(), codes.copy()
    near[[3, 9999]] += 1
    far[3] += 2
    many[:100] += 1
    assert verdict(near, codes, "u8") == (True, "out: 2 codes are the next ones")
    assert not verdict(far, codes, "u8")[0] and not verdict(many, codes, "u8")[0]
    assert not verdict(near.view("i4"), codes.view("i4"), "i32")[0], "numbers are no codes"
