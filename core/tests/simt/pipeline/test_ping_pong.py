"""Ping-pong between halves of the warps: the loops that are expanded so, and their results."""

from __future__ import annotations

import pytest
from matmul_kernels import MODES, operations, run_matmul

from tilewright.ir import Module
from tilewright.ir.core import Operation
from tilewright.simt.compile import kernel_of
from tilewright.testing.toy_targets import RunsTarget, StagedTarget

SIZES = [(16, 8, 64), (32, 16, 40), (19, 12, 20), (16, 8, 4), (5, 4, 0)]


def loop_of(module: Module) -> Operation:
    (loop,) = operations(module, "for")
    return loop


def order(module: Module) -> str:
    """Return the loop's operations as letters.

    They start copies or loads (c), read fragments (f), store (s), wait (w), synchronize (b) and
    multiply (m).
    """
    letters = {
        "simt.copy_start": "c",
        "simt.load_start": "c",
        "simt.fragment": "f",
        "simt.store": "s",
        "simt.wait": "w",
        "barrier": "b",
        "simt.dot_step": "m",
    }
    return "".join(letters.get(operation.name, "") for operation in loop_of(module).regions[0])


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("warps", [2, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul_by_turns_with_copies(
    size: tuple[int, int, int], warps: int, completion: str
) -> None:
    for stages in (3, 4):
        target = RunsTarget(
            8 if warps == 2 else 4, k_step=4, alternating=True, completion=completion
        )
        module = run_matmul(size, stages, target, num_warps=warps, completion=completion)
        assert order(module) == "ccffffwbmmb", (
            "copies of a later iteration, all fragments, the next iteration's copies; then "
            "the product alone"
        )
        assert len(operations(module, "simt.stagger")) == 2


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul_by_turns_through_registers(size: tuple[int, int, int]) -> None:
    for stages in (3, 4):
        module = run_matmul(size, stages, StagedTarget(8, k_step=4, alternating=True), num_warps=2)
        assert order(module) == "ffffwswsccbmmb"
        assert len(operations(module, "simt.stagger")) == 2


@pytest.mark.parametrize("target", [RunsTarget, StagedTarget])
def test_two_iterations_in_flight_are_too_few(target: type[StagedTarget]) -> None:
    """What the next iteration reads would be waited for where it is started."""
    module = run_matmul((16, 8, 64), 2, target(8, k_step=4, alternating=True), num_warps=2)
    assert not operations(module, "simt.stagger")


def test_a_machine_that_does_not_ask_for_it_has_one_stream() -> None:
    module = run_matmul((16, 8, 64), 3, RunsTarget(8, k_step=4), num_warps=2)
    assert not operations(module, "simt.stagger") and not operations(module, "simt.phase")
    assert kernel_of(module).name == "by_pointers"
