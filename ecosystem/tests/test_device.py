"""The page of ratios on a GPU, and the comparison of what tensors hold, without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus import device
from corpus.compilation import place
from corpus.launches import Argument, Launch

LAUNCH = Launch("p", "1", "m", "k", "c", (Argument("out", "*fp32", shape=(4,), strides=(1,)),))
THEIRS = np.array([1, 2, 3, 4], "f4")


@pytest.mark.parametrize(
    ("ours", "right", "note"),
    [
        ({"out": THEIRS * np.float32(1.0001)}, True, ""),
        ({"out": THEIRS[::-1].copy()}, False, "out differs by 0.75"),
        ({}, False, "changed: [], Triton ['out']"),
    ],
)
def test_tensors_are_compared(tmp_path: Path, ours: dict[str, np.ndarray], right: bool, note: str) -> None:
    for compiler, tensors in (("triton", {"out": THEIRS}), ("tilewright", ours)):
        folder = tmp_path / "tensors" / compiler
        folder.mkdir(parents=True)
        raw = {name: each.view(np.uint8) for name, each in tensors.items()}
        np.savez(folder / f"{place(LAUNCH)}.npz", **raw)
    measured = device.Measured(LAUNCH.id)
    device._compare(measured, LAUNCH, tmp_path)
    assert (measured.right, measured.note) == (right, note)


def test_the_least_time_of_the_rounds_counts_and_the_first_call_of_the_first() -> None:
    measured = device.Measured("k")
    device._take(measured, {"device": 10.0, "host": 5.0, "first": 900.0}, "triton", 0)
    device._take(measured, {"device": 8.0, "host": 6.0, "first": 1.0}, "triton", 1)
    device._take(measured, {"device": 4.0, "host": 5.0, "first": 450.0}, "tilewright", 0)
    assert measured.theirs == {"device": 8.0, "host": 5.0, "first": 900.0}
    assert [measured.speed(what) for what in ("device", "host", "first")] == [2.0, 1.0, 2.0]
    device._take(measured, {"error": "it died"}, "tilewright", 1)
    assert measured.note == "tilewright: it died"


def test_the_page_has_the_slowest_first() -> None:
    def one(kernel: str, ours: float) -> device.Measured:
        return device.Measured(kernel, {"device": ours, "host": 5.0}, {"device": 10.0}, right=True)

    text = device.page([one("fast", 5.0), one("slow", 20.0), device.Measured("bad", note="x|y")], "H100")
    assert "- device: geometric mean 1.00 of 2, worst 0.50, 1 below 0.90" in text
    assert "- first: not measured" in text
    assert "| slow | 0.50 |  |  | 20.0 | 5.0 | right |" in text
    assert text.index("| slow |") < text.index("| fast |") < text.index("| bad |")
    assert "x\\|y" in text
