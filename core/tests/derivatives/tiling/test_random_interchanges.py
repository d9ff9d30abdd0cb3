"""Random kernels that add in a loop: interchanged, they add the same."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from online_softmax_kernels import HEADER, module_of

from tilewright.derivatives.tiling.hoist_transposes import hoist_transposes
from tilewright.derivatives.tiling.interchange import interchange
from tilewright.derivatives.tiling.iteration_counts import iteration_counts
from tilewright.derivatives.tiling.kernel_memory import NoTilingError
from tilewright.derivatives.tiling.materialize import materialize
from tilewright.derivatives.tiling.scalar_slice import evaluate_slice
from tilewright.ir.core import Module
from tilewright.reference.interpreter import run

TYPES = {**dict.fromkeys(("x_ptr", "y_ptr", "d_ptr"), "*fp64"), "n": "i32"}
#: Upper bounds of program p, in batch b.
ENDS = (
    "n",
    "n - 3 * b",
    "p * 6 + 1",
    "tl.minimum(p * 5 + 3, n)",
    "tl.minimum(n, (p + 1) * 7)",
    "tl.minimum(2 * p + 9, n - 2 * b)",
    "tl.minimum(n - b, tl.minimum(3 * p + 2, 40))",
    "tl.minimum(n, p // 2 * 6 + 5)",
    "tl.maximum(n - p * 4, 6)",
    "tl.where(p > 1, n, n // 2)",
)
#: What a program computes of its tile ``a`` before the loop.
BEFORE = ("a", "tl.exp(a)", "a * tl.sum(a)", "a + p", "a * tl.num_programs(AXIS)", "a * tl.max(a)")
#: What it adds in iteration k, of its tile ``u`` and the iteration's ``v``.
ADDENDS = (
    "u * v",
    "u + v * p",
    "tl.where(i < p + 2, u, v)",
    "tl.exp(v) * u - k",
    "u * v * tl.load(y_ptr + p)",
    "v * p",
)


def source_of(rng: random.Random, axis: int, batch: int) -> str:
    """Return the source of a random kernel."""
    lower, end = rng.choice(("0", "3", "b", "2 * b + 1")), rng.choice(ENDS)
    start = f"b * 200 + {lower} + i"
    address = "d_ptr + b * 200 + k + i"
    lines = ["pass", "pass"]
    if rng.random() < 0.3:
        lines, address = [f"at = d_ptr + {start}", "at += N"], "at"
    elif rng.random() < 0.5:
        lines, address = [f"at = {start}", "at += N"], "d_ptr + at"
    addends = rng.sample(ADDENDS, 1 + (rng.random() < 0.4))
    additions = "\n        ".join(
        f"tl.atomic_add({address} + {number * 1000}, {addend}, mask=k + i < n, sem='relaxed')"
        for number, addend in enumerate(addends)
    )
    return f"""{HEADER}def kernel(x_ptr, y_ptr, d_ptr, n, N: tl.constexpr):
    p, b = tl.program_id({axis}), tl.program_id({batch})
    i = tl.arange(0, N)
    a = tl.load(x_ptr + p * N + i)
    u = {rng.choice(BEFORE).replace("AXIS", str(axis))}
    {lines[0]}
    for k in range({lower}, {end}, N):
        v = tl.load(y_ptr + b * 17 + k + i, mask=k + i < n, other=0.0)
        {additions}
        {lines[1]}
"""


def outcome(folder: Path, seed: int) -> str:
    """Interchange a random kernel and compare it; return ``same``, ``different`` or why not."""
    rng = random.Random(seed)
    axis, batch = rng.choice([(0, 1), (1, 0), (0, 2), (2, 1)])
    module = module_of(folder, source_of(rng, axis, batch), TYPES, {"N": rng.choice([4, 8])})
    extents = [1, 1, 1]
    extents[axis], extents[batch] = programs, _ = rng.choice([3, 5, 7]), rng.choice([1, 3])
    arrays = np.random.default_rng(seed)
    d = np.zeros(2600)
    named = {"x_ptr": arrays.standard_normal(64), "y_ptr": arrays.standard_normal(300), "d_ptr": d}
    named |= {"n": rng.choice([13, 29])}

    def launch(kernel: Module, grid: list[int]) -> None:
        values = [named[argument.name] for argument in kernel.kernel.arguments]
        run(kernel, values, (grid[0], grid[1], grid[2]))

    launch(module, extents)
    expected, d[:] = d.copy(), 0
    try:
        found = materialize(module)
        made = interchange(found.rest, axis)
        counts = evaluate_slice(
            iteration_counts(module), 1, (extents[0], extents[1], extents[2]), {"n": named["n"]}
        )
    except NoTilingError as error:
        return error.reason
    for tile in found.scratch:
        named[tile.name] = np.full(int(np.prod(extents)) * tile.elements, np.nan)
    if found.first is not None:
        launch(found.first, extents)
    named[made.programs] = programs
    extents[axis] = int(counts.max())
    launch(hoist_transposes(made.module), extents)
    return "same" if np.allclose(d, expected, rtol=1e-12, atol=1e-12) else "different"


def check(folder: Path, seeds: range) -> None:
    found = Counter(outcome(folder, seed) for seed in seeds)
    assert not found["different"]
    assert found["same"] > len(seeds) / 2


def test_random_kernels(tmp_path: Path) -> None:
    check(tmp_path, range(24))


@pytest.mark.slow
def test_hundreds_of_random_kernels(tmp_path: Path) -> None:
    check(tmp_path, range(100, 700))
