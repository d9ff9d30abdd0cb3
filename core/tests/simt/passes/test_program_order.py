"""Kernels whose program ids are reversed, and that all of their programs still run once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.program_order import start_longest_first


@device_function
def longer(out, n):
    total = tl.program_id(1)
    for i in range(n, (tl.program_id(0) + 1) * 4 + n):
        total += i
    tl.store(out + tl.program_id(0) + tl.program_id(1) * tl.num_programs(0), total)


@device_function
def shorter(out, n):
    total = 0
    for i in range(tl.program_id(0), n):
        total += i
    tl.store(out + tl.program_id(0), total)


@device_function
def both(out, n):
    total = 0
    for i in range(tl.program_id(0), n):
        total += i
    for i in range(tl.program_id(0)):
        total += i
    tl.store(out + tl.program_id(0), total)


@device_function
def alike(out, n):
    total = 0
    for i in range(tl.program_id(0), tl.program_id(0) + n):
        total += i
    tl.store(out + tl.program_id(0), total)


@device_function
def other_axis(out, n):
    total = 0
    for i in range(tl.program_id(1) + n):
        total += i
    tl.store(out + tl.program_id(0), total)


@device_function
def unknown(out, n):
    total = 0
    for i in range(tl.load(out + tl.program_id(0))):
        total += i
    tl.store(out + tl.program_id(0), total)


@device_function
def talking(out, n):
    total = 0
    for i in range(tl.program_id(0)):
        total += i
    tl.atomic_add(out + n, total)


def built(fn: Any) -> Module:
    module = compile_function(fn, {"out": "*i32", "n": "i32"}, {})
    run_passes(module)
    return module


@pytest.mark.parametrize(
    ("fn", "expected"),
    [(longer, True), *((fn, False) for fn in (shorter, both, alike, other_axis, unknown, talking))],
)
def test_programs_that_run_longer_start_first(fn: Any, expected: bool) -> None:
    assert start_longest_first(built(fn).kernel) is expected


def test_each_program_runs_once() -> None:
    out = np.full((3, 5), -1, np.int32)
    emulator.run(built(longer), [out, 7], (5, 3, 1), num_warps=1, target=EmulatedTarget(4))
    np.testing.assert_array_equal(
        out,
        [[row + sum(range(7, 4 * (column + 1) + 7)) for column in range(5)] for row in range(3)],
    )
