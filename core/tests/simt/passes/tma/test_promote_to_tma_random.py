"""Random addresses, masks and stores of a matmul's rows and columns.

Results equal the reference interpreter's, whether the loads are promoted or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pointer_kernels import kernel_module

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.compile import run_stages
from tilewright.testing.toy_targets import BulkTarget

SIDE = 8


@device_function
def anyhow(
    a, b, c, M, K, step, batch, first, ahead,
    ROWS: tl.constexpr, ABOVE: tl.constexpr, DEPTH: tl.constexpr, INNER: tl.constexpr,
    STORE: tl.constexpr,
    TURNED: tl.constexpr, CARRIED: tl.constexpr, SHIFT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    tl.assume(first >= 0)
    tl.assume(ahead >= 0)
    lanes = tl.arange(0, 8)
    row = tl.program_id(0) * 8 + SHIFT
    rows = row + lanes
    place = rows
    if ROWS == "rem":
        place = rows % M
    elif ROWS == "where":
        place = tl.where(rows < M, rows, 0)
    elif ROWS == "where not":
        place = tl.where(rows >= M, M - 1, rows)
    elif ROWS == "min":
        place = tl.minimum(rows, M - 1)
    elif ROWS == "ahead":
        place = rows + 8 * ahead
    offsets = place.to(tl.int64) if WIDE else place
    total = tl.zeros((8, 8), dtype=tl.float32)
    z = tl.program_id(1)
    base = a + z * batch if ABOVE != "late batch" else a
    at = (
        base + offsets[:, None] * step + lanes[None, :]
        if not TURNED
        else base + offsets[:, None] + lanes[None, :] * step
    )
    at += 8 * first * (step if TURNED else 1)
    if ABOVE == "late batch":
        at += z * batch
    right = b + lanes[:, None] * 8 + lanes[None, :] + 64 * first
    for k in range(8 * first, K, 8):
        here = at
        if not CARRIED:
            here = (
                base + offsets[:, None] * step + (k + lanes)[None, :]
                if not TURNED
                else base + offsets[:, None] + (k + lanes)[None, :] * step
            )
            if ABOVE == "late batch":
                here += z * batch
        inside = (lanes >= 0)[None, :]
        if DEPTH == "rest":
            inside = lanes[None, :] < K - k
        elif DEPTH == "last":
            inside = k + lanes[None, :] <= K - 1
        elif DEPTH == "more":
            inside = lanes[None, :] + k < K
        elif DEPTH == "both":
            inside = (k + lanes[None, :] < K) & (lanes[None, :] < K - k)
        if ABOVE == "lt":
            inside = inside & (rows[:, None] < M)
        elif ABOVE == "ge":
            inside = inside & (rows[:, None] <= M - 1)
        elif ABOVE == "lanes":
            inside = (lanes[:, None] < M - row) & inside
        elif ABOVE == "both":
            inside = inside & (rows[:, None] >= 0) & (rows[:, None] < M)
        elif ABOVE == "twice":
            inside = inside & (rows[:, None] < M) & (rows[:, None] < M - INNER)
        elif ABOVE == "on":
            inside = inside & (rows[:, None] < M) & (z < 2)
        x = tl.load(here, mask=inside, other=0.0)
        y = tl.load(right, mask=lanes[:, None] < K - k, other=0.0)
        total = tl.dot(x, y, total)
        if CARRIED:
            at += 8 * step if TURNED else 8
        right += 64
    out = c + z * 1024 + (rows + 8)[:, None] * 8 + lanes[None, :]
    if STORE == "M":
        tl.store(out, total, mask=rows[:, None] < M)
    elif STORE == "less":
        tl.store(out, total, mask=(rows[:, None] < M) & (rows[:, None] + 2 < M))
    elif STORE == "lanes":
        tl.store(out, total * 2, mask=lanes[:, None] < M - row)
    elif STORE == "where":
        tl.store(out, tl.where(rows[:, None] < M, total, 5.0))
    elif STORE == "more":
        tl.store(out, total, mask=rows[:, None] < M + 1)
    else:
        tl.store(out, total)


def chosen(rng: np.random.Generator) -> dict[str, Any]:
    rows = str(rng.choice(["plain", "plain", "plain", "rem", "where", "where not", "min", "ahead"]))
    above = str(rng.choice(["lt", "ge", "lanes", "both", "twice", "on", "late batch", "none"]))
    bounded = above in ("lt", "ge", "lanes", "both", "twice", "on")
    shift = int(rng.choice([0, 0, 8, -8])) if above == "both" else int(rng.choice([0, 8]))
    return {
        "ROWS": rows,
        "ABOVE": above,
        "DEPTH": str(rng.choice(["rest", "last", "more", "both", "none"])),
        "INNER": int(rng.integers(-1, 3)),
        "STORE": str(rng.choice(["M", "less", "lanes", "where", "more", "all"])),
        "TURNED": bool(rng.integers(2)),
        "CARRIED": bool(rng.integers(2)),
        "SHIFT": shift if rows in ("plain", "ahead") and bounded else 0,
        "WIDE": bool(rng.integers(2)),
    }


def module_of(choice: dict[str, Any]) -> Module:
    return kernel_module(anyhow, dict.fromkeys("abc", "*fp32"), choice, ("a", "b", "step", "batch"))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(60))
def test_random_addresses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    choice = chosen(rng)
    m, k, first, ahead = (
        int(rng.integers(low, high)) for low, high in ((1, 21), (1, 30), (0, 2), (0, 2))
    )
    programs = 2 if choice["ROWS"] == "plain" and choice["ABOVE"] in ("none", "late batch") else 3
    step, batch = 48, 48 * 48
    a, b, c = rng.integers(-3, 4, 4 * batch), rng.integers(-3, 4, (64, SIDE)), np.full(4096, 77)
    expected, found = ([array.astype(np.float32) for array in (a, b, c)] for _ in range(2))
    numbers = [m, k, step, batch, first, ahead]
    run_reference(module_of(choice), [*expected, *numbers], (programs, 3, 1))
    module = module_of(choice)
    target = BulkTarget(
        8, raises=16, completion=str(rng.choice(["late", "early", "random"])), seed=seed
    )
    emulator.run(
        module,
        [*found, *numbers],
        (programs, 3, 1),
        target=target,
        num_warps=2,
        num_stages=int(rng.integers(2, 4)),
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(other, one)


def test_many_are_raised() -> None:
    texts = []
    for seed in range(60):
        module = module_of(chosen(np.random.default_rng(seed)))
        run_stages(
            module,
            BulkTarget(8, raises=16),
            {"num_warps": 2, "num_stages": 2},
            ["prepare", "raise"],
        )
        texts.append("simt.tensor" in str(module))
    assert 40 <= sum(texts) <= 56
