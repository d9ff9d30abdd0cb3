"""What is explained of a recorded launch: its code, and a roofline with the record's sizes and
grid."""

from __future__ import annotations

import pytest
from corpus.explain import explained
from corpus.launches import Argument, Launch
from corpus.targets import TARGETS

import tilewright as tw
import tilewright.language as tl


@tw.jit
def scaled(out, x, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if factor > 0:
        tl.store(out + i, factor * tl.load(x + i, mask=i < n), mask=i < n)


LAUNCH = Launch(
    "a-package",
    "1.0",
    "a.module",
    "scaled",
    "rows/1000/fp32",
    (
        Argument("out", "*fp32", shape=(1000,), strides=(1,), aligned=True),
        Argument("x", "*fp32", shape=(1000,), strides=(1,), aligned=True),
        Argument("n", "i32", value=1000),
        Argument("factor", "fp32", value=0.5),
        Argument("BLOCK", "constexpr", value=128),
    ),
    {"num_warps": 1},
    (8, 1, 1),
)


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "cpu"])
def test_a_recorded_launch_has_the_roofline_of_its_sizes(target: str) -> None:
    found = explained(LAUNCH, scaled, TARGETS[target])
    traffic = found.roofline.traffic
    assert traffic.whole and traffic.programs == 8 and traffic.minimum == traffic.asked == 8000
    assert found.options["num_warps"] == 1
    assert target == "cpu" or any(
        "`n` is not known to be a multiple of" in note.text for note in found.findings
    )


@tw.jit
def multiplied(out, x, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tile = tl.load(x + at)
    tl.store(out + at, tl.dot(tile, tile))


MATMUL = Launch(
    "a-package",
    "1.0",
    "a.module",
    "multiplied",
    "tile/16x16/fp32",
    (
        Argument("out", "*fp32", shape=(16, 16), strides=(16, 1), aligned=True),
        Argument("x", "*fp32", shape=(16, 16), strides=(16, 1), aligned=True),
        Argument("SIZE", "constexpr", value=16),
    ),
    {"num_warps": 1},
    (1, 1, 1),
)


def test_a_dot_that_states_no_precision_has_that_of_triton() -> None:
    assert "tf32" in str(explained(MATMUL, multiplied, TARGETS["sm_90a"]))
    assert "tf32" not in str(explained(MATMUL, multiplied, TARGETS["gfx942"]))
