"""Products whose sums are in memory of the machine's own, on the emulated machine: against the reference interpreter, whenever things happen."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.errors import KernelError, OutOfResources
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.core import Operation
from tilewright.language.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.accumulators import ACCUMULATORS
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.lower import lower_function
from tilewright.testing.emulated import compare, small
from tilewright.testing.toy_targets import BulkTarget

COMPLETIONS = ["late", "early", "crossed", "random"]
BLOCKS = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}


def machine(completion: str, **options: bool | int) -> BulkTarget:
    return BulkTarget(8, units=64, completion=completion, **options)  # type: ignore[arg-type]


@device_function
def multiply(a, b, c, tiles, steps, FROM: tl.constexpr, DIVIDED: tl.constexpr):
    for tile in tl.range(tiles, warp_specialize=DIVIDED):
        acc = c.load([tile * 16, 0]) if FROM else tl.zeros((16, 16), dtype=tl.float32)
        for k in tl.range(steps):
            acc = tl.dot(a.load([tile * 16, k * 16]), tl.trans(b.load([0, k * 16])), acc)
        c.store([tile * 16, 0], acc)


def run(kernel: Any, steps: int, target: BulkTarget, tiles: int = 2, stages: int = 3, warps: int = 2, **constants: int) -> list[Operation]:
    rng = np.random.default_rng(steps)
    arrays = [small(rng, 48, 96), small(rng, 16, 96), small(rng, 48, 16)]
    compiled: list[Module] = []
    differ(kernel, BLOCKS, arrays, [tiles, steps], target, compiled, constants, num_warps=warps, num_stages=stages)
    return list(kernel_of(compiled[0]).walk())


def inside_loops(operations: list[Operation], name: str, depth: int) -> list[Operation]:
    return [one for one in operations if one.name == name and sum(outer.name == "for" for outer in one.ancestors()) == depth]


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("steps", [0, 1, 2, 6])
@pytest.mark.parametrize("start", [False, True])
def test_sums_stay_in_their_memory_while_a_pipelined_loop_runs(start: bool, steps: int, completion: str) -> None:
    found = run(multiply, steps, machine(completion), FROM=start, DIVIDED=False)
    assert len(inside_loops(found, "simt.dot_into", 2)) == len(inside_loops(found, "simt.arrive_after", 2)) == 1
    assert len(inside_loops(found, "simt.accumulator_load", 1)) == 1
    assert len(inside_loops(found, "simt.accumulator_store", 1)) == start
    awaits = inside_loops(found, "simt.await", 2)
    assert awaits and all(one.attribute("alone") for one in awaits), "one warp alone goes through the loop"


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("steps", [0, 1, 6])
@pytest.mark.parametrize("tiles", [1, 3])
def test_loads_on_warps_of_their_own(tiles: int, steps: int, completion: str) -> None:
    found = run(multiply, steps, machine(completion), tiles, FROM=False, DIVIDED=True)
    assert sum(one.name == "simt.part" for one in found) == 2
    assert not inside_loops(found, "simt.accumulator_load", 2)


@device_function
def of_many_lengths(a, b, c, tiles, steps, DIVIDED: tl.constexpr):
    for tile in tl.range(tiles, warp_specialize=DIVIDED):
        acc = tl.zeros((16, 16), dtype=tl.float32)
        for k in tl.range(tile * 2 % 5):
            acc = tl.dot(a.load([tile * 16, k * 16]), tl.trans(b.load([0, k * 16])), acc)
        c.store([tile * 16, 0], acc)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("divided", [False, True])
def test_loops_of_which_some_do_not_run(divided: bool, completion: str) -> None:
    rng = np.random.default_rng(3)
    arrays = [small(rng, 96, 96), small(rng, 16, 96), np.full((96, 16), 7, np.float32)]
    differ(of_many_lengths, BLOCKS, arrays, [6, 0], machine(completion), constants={"DIVIDED": divided}, num_warps=2, num_stages=3)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("start", [False, True])
def test_loops_that_are_not_pipelined(start: bool, completion: str) -> None:
    found = run(multiply, 4, machine(completion), stages=1, FROM=start, DIVIDED=False)
    assert len(inside_loops(found, "simt.dot_into", 2)) == 1 and not inside_loops(found, "simt.accumulator_load", 2)


@device_function
def chained(a, b, c, tiles, steps):
    acc = tl.zeros((16, 16), dtype=tl.float32)
    total = tl.zeros((16, 16), dtype=tl.float32)
    for k in tl.range(steps):
        y = b.load([0, k * 16])
        scores = tl.dot(a.load([0, k * 16]), tl.trans(y))
        acc = acc * 2.0
        acc = tl.dot(scores, y, acc)
        if k % 2 == 0:
            total += tl.dot(y, scores)
    c.store([0, 0], acc)
    c.store([16, 0], total)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("stages", [1, 2])
def test_chains_of_products_whose_sums_share_a_place(stages: int, completion: str) -> None:
    found = run(chained, 3, machine(completion), stages=stages)
    (memory,) = (one for one in found if one.name == "simt.accumulators")
    assert memory.attribute("units") == 16 and sum(one.name == "simt.dot_into" for one in found) == 3


@device_function
def in_steps(a, b, c, tiles, steps):
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in tl.range(steps):
        acc = tl.dot(a.load([0, k * 16]) * 2.0, b.load([0, k * 16]), acc)
        if k == 2:
            acc = acc + 1.0
    c.store([0, 0], acc)


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_sums_that_the_loop_reads_and_operands_that_threads_put_into_shared_memory(completion: str) -> None:
    found = run(in_steps, 4, machine(completion))
    assert len(inside_loops(found, "simt.accumulator_load", 1)) == len(inside_loops(found, "simt.accumulator_store", 1)) == 1


@device_function
def beside_a_sum(a, b, c, tiles, steps):
    acc = tl.zeros((16, 16), dtype=tl.float32)
    rows = tl.zeros((16,), dtype=tl.float32)
    for k in tl.range(steps):
        x = a.load([0, k * 16])
        acc = tl.dot(x, b.load([0, k * 16]), acc)
        rows += tl.sum(x, 1)
    c.store([0, 0], acc + rows[:, None])


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_operands_that_threads_read_too(completion: str) -> None:
    found = run(beside_a_sum, 5, machine(completion))
    assert not any(one.attribute("alone") and one.operands[0].type.count > 1 and not one.operand("condition") for one in inside_loops(found, "simt.await", 1))  # type: ignore[attr-defined]
    assert not inside_loops(found, "simt.accumulator_load", 1), "the sums stay where they are"


@device_function
def at_pointers(a, b, c, n, K: tl.constexpr):
    rows, columns, along = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, K)
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(0, n, K):
        x = tl.load(a + rows[:, None] * 96 + (k + along)[None, :])
        y = tl.load(b + (k + along)[:, None] * 16 + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * 16 + columns[None, :], acc)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("n", [0, 16, 96])
def test_loops_whose_copies_are_of_pointers(n: int, completion: str) -> None:
    rng = np.random.default_rng(n)
    arrays = [small(rng, 16, 96), small(rng, 96, 16), np.full((16, 16), 7, np.float32), n]
    target = machine(completion, groups=True)
    signature = {**dict.fromkeys("abc", "*fp32"), "n": "i32"}
    function, (loop,), _ = compare(at_pointers, signature, arrays, stages=3, target=target, K=16)
    body = [one.name for one in loop.regions[0]]
    assert body.index("simt.copy_start") < body.index("simt.dot_into") and body[-2:] == ["simt.await", "yield"], "copies run on beside the product"
    assert "simt.accumulator_load" not in body and any(one.name == "simt.accumulator_load" for one in function.walk())


def test_without_the_wait_for_a_slots_product_it_is_filled_too_early() -> None:
    """The machine shows it: a product that is as late as it may reads what was copied for a later one."""
    blocks = dict.fromkeys("abc", "tensordesc<fp32[16,16]>") | dict.fromkeys(("tiles", "steps"), "i32")
    module = compile_function(multiply, blocks, {"FROM": False, "DIVIDED": False})
    run_passes(module)
    target, options = machine("crossed"), {"num_warps": 2, "num_stages": 3, "enable_fp_fusion": False}
    given = [argument.type for argument in kernel_of(module).arguments]
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
    function = kernel_of(module)
    (wait,) = (one for one in function.walk() if one.name == "simt.await" and one.attribute("alone") and one.operand("condition") is not None)
    wait.erase()
    rng = np.random.default_rng(1)
    a, b, c = small(rng, 16, 96), small(rng, 16, 96), np.zeros((16, 16), np.float32)
    types = [argument.type for argument in function.arguments]
    passed = emulator.expanded_arguments(given, types, [*map(emulator.EmulatedDescriptor, (a, b, c)), 1, 6])
    text = lower_function(function, target, options)
    with contextlib.suppress(KernelError):  # or a phase that nobody waited for ends twice
        emulator.run_text(text, target, types, passed, (1, 1, 1), 2)
    assert not np.array_equal(c, a @ b.T)


def test_more_sums_than_there_is_memory_for() -> None:
    target = machine("late")
    target.accumulator_units = 8
    with pytest.raises(OutOfResources) as caught:
        run(multiply, 2, target, FROM=False, DIVIDED=False)
    assert (caught.value.name, caught.value.required, caught.value.limit) == (ACCUMULATORS, 16, 8)
