"""Loops of a few known trips are unrolled: what fills and drains their pipelines is known, and
takes no instructions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import listed

import tilewright.language as tl
from tilewright import jit
from tilewright.plugins.manifest import CodeObject

SIZE, BLOCK = 32, 32


@jit
def gram(x, out, rows, K: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """Rows times their own transposed, BLOCK columns at a time."""
    row = tl.arange(0, SIZE)
    total = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK)):
        at = k * BLOCK + tl.arange(0, BLOCK)
        part = tl.load(
            x + row[:, None] * K + at[None, :],
            mask=(row < rows)[:, None] & (at < K)[None, :],
            other=0.0,
        )
        total = tl.dot(part, tl.trans(part), total)
    tl.store(out + row[:, None] * SIZE + row[None, :], total)


def compiled_gram(arch: str, trips: int) -> CodeObject:
    return listed(
        gram,
        "x=*fp16:16, out=*fp32:16, rows=i32",
        arch,
        {"K": trips * BLOCK, "BLOCK": BLOCK, "SIZE": SIZE},
        num_warps=2,
        num_stages=2,
    )


def loops_of(code: CodeObject) -> int:
    """Backward branches."""
    lines = str(code.stages["amdgcn"]).splitlines()
    places = {
        line.split(":")[0]: number
        for number, line in enumerate(lines)
        if re.match(r"\.LBB\w+:", line)
    }
    branches = (
        (number, re.match(r"\ts_c?branch\w* (\.LBB\w+)", line)) for number, line in enumerate(lines)
    )
    return sum(found is not None and places[found[1]] <= number for number, found in branches)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("trips", "loops"), [(2, 0), (4, 0), (8, 1)])
def test_only_short_loops_are_unrolled(arch: str, trips: int, loops: int) -> None:
    code = compiled_gram(arch, trips)
    assert loops_of(code) == loops
    x = np.random.default_rng(trips).integers(-3, 4, (SIZE, trips * BLOCK)).astype(np.float16)
    for schedule in ("lockstep", "random"):
        out = np.full((SIZE, SIZE), np.nan, np.float32)
        launched(code, [x, out, SIZE - 5], schedule=schedule)
        expected = x.astype(np.float32)
        expected[SIZE - 5 :] = 0
        np.testing.assert_array_equal(out, expected @ expected.T)
