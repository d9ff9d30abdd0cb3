"""Loops that load indices, gather rows by them and use the indices again: in every form in which a
loop is written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from looped_kernels import Run, chasing, gathering, gathering_last

import tilewright.language as tl
from tilewright.ir.core import Operation
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.testing.emulator_check import LANES, compare, inside, small
from tilewright.testing.matrix_target import MatrixTarget
from tilewright.testing.toy_targets import BulkTarget

#: The number of iterations: with more slots than iterations, as many, fewer.
TRIPS = [0, 1, 2, 5]


def expanded(run: Run, stages: int, target: emulator.EmulatedTarget, **constants: int) -> Operation:
    """The loop in its form, after its values were compared with those of the reference."""
    _, (loop,), _ = compare(*run, stages=stages, target=target, **constants)
    return loop


@pytest.mark.each_value
@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("kernel", [gathering, chasing])
def test_copies_in_groups(kernel: Callable[[int], Run], stages: int, trips: int) -> None:
    loop = expanded(kernel(trips), stages, emulator.EmulatedTarget(LANES), D=16, M=16)
    assert inside(loop, "simt.copy_start")


@pytest.mark.each_value
@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("kernel", [gathering, chasing])
def test_loads_through_registers(kernel: Callable[[int], Run], stages: int, trips: int) -> None:
    loop = expanded(
        kernel(trips), stages, emulator.EmulatedTarget(LANES, copy_widths=()), D=16, M=16
    )
    assert inside(loop, "simt.load_start")


@pytest.mark.parametrize("trips", TRIPS)
def test_loads_through_few_registers(trips: int) -> None:
    target = MatrixTarget(4, fragments=False, wish=False)
    target.async_copy.mechanisms, target.resources = (
        (),
        replace(target.resources, registers=60, few_registers=True),
    )
    loop = expanded(chasing(trips), 2, target, D=16, M=16)
    assert inside(loop, "simt.keep_order")


@pytest.mark.each_value
@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("registers", [255, 40])
def test_the_last_product_step_by_step(registers: int, trips: int) -> None:
    """The fragments of its first step are loaded in the iteration before, or in its own where
    registers are short."""
    target = MatrixTarget(4, fragments=False, wish=False)
    target.resources = replace(target.resources, registers=registers)
    loop = expanded(gathering_last(trips), 3, target, M=16)
    assert inside(loop, "simt.dot_step")


@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("kernel", [gathering, chasing])
def test_asynchronous_products(kernel: Callable[[int], Run], trips: int) -> None:
    """Copies start after the wait for the previous matmul, where the index has been read."""
    loop = expanded(kernel(trips), 3, BulkTarget(LANES, groups=True), D=16, M=16)
    assert inside(loop, "simt.copy_start") and inside(loop, "simt.dot_start")


@device_function
def scaled_by_numbers(a, b, factors, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + start + inner[None, :]) * tl.load(factors + start // BK)
        total = tl.dot(x, tl.load(b + (start + inner[:, None]) * BN + columns[None, :]), total)
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


def test_an_operand_may_be_computed_of_a_number_that_is_loaded() -> None:
    rng = np.random.default_rng(0)
    arguments = [
        small(rng, 16, 64),
        small(rng, 64, 16),
        small(rng, 4),
        np.zeros((16, 16), np.float32),
        64,
    ]
    signature = {"a": "*fp32", "b": "*fp32", "factors": "*fp32", "out": "*fp32", "K": "i32"}
    compare(scaled_by_numbers, signature, arguments, stages=3, BM=16, BN=16, BK=16)
