"""Matmuls with accumulators in tensor memory, in the emulator, against the reference interpreter.

Operations complete in any allowed order.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from back_to_back_kernels import HEAD, attention_module, exp2_attention
from descriptor_kernels import differ
from matmul_kernels import BM, BN, build

import tilewright.language as tl
from tilewright.errors import KernelError, LoweringError, OutOfResources
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.core import Operation
from tilewright.ir.parser import parse_module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, kernel_of, run_stages
from tilewright.simt.dialect.attributes import offset_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.passes.allocate_tensor_memory import ACCUMULATORS
from tilewright.testing.emulator_check import compare, small
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


def run(
    kernel: Any,
    steps: int,
    target: BulkTarget,
    tiles: int = 2,
    stages: int = 3,
    warps: int = 2,
    **constants: int,
) -> list[Operation]:
    rng = np.random.default_rng(steps)
    arrays = [small(rng, 48, 96), small(rng, 16, 96), small(rng, 48, 16)]
    compiled: list[Module] = []
    differ(
        kernel,
        BLOCKS,
        arrays,
        [tiles, steps],
        target,
        compiled,
        constants,
        num_warps=warps,
        num_stages=stages,
    )
    return list(kernel_of(compiled[0]).walk())


def inside_loops(operations: list[Operation], name: str, depth: int) -> list[Operation]:
    return [
        one
        for one in operations
        if one.name == name and sum(outer.name == "for" for outer in one.ancestors()) == depth
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("steps", [0, 1, 2, 6])
@pytest.mark.parametrize("start", [False, True])
def test_sums_stay_in_their_memory_while_a_pipelined_loop_runs(
    start: bool, steps: int, completion: str
) -> None:
    found = run(multiply, steps, machine(completion), FROM=start, DIVIDED=False)
    assert (
        len(inside_loops(found, "simt.dot_into", 2))
        == len(inside_loops(found, "simt.arrive_after", 2))
        == 1
    )
    assert len(inside_loops(found, "simt.accumulator_load", 1)) == 1
    assert len(inside_loops(found, "simt.accumulator_store", 1)) == start
    awaits = inside_loops(found, "simt.await", 2)
    assert awaits and all(one.attribute("alone") for one in awaits), (
        "one warp alone goes through the loop"
    )


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
    differ(
        of_many_lengths,
        BLOCKS,
        arrays,
        [6, 0],
        machine(completion),
        constants={"DIVIDED": divided},
        num_warps=2,
        num_stages=3,
    )


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("start", [False, True])
def test_loops_that_are_not_pipelined(start: bool, completion: str) -> None:
    found = run(multiply, 4, machine(completion), stages=1, FROM=start, DIVIDED=False)
    assert len(inside_loops(found, "simt.dot_into", 2)) == 1 and not inside_loops(
        found, "simt.accumulator_load", 2
    )


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
    target = machine(completion)
    # too little for the halves of a loop side by side
    target.tensor_memory = emulator.EmulatedTensorMemory(16)
    found = run(chained, 3, target, stages=stages)
    (memory,) = (one for one in found if one.name == "simt.accumulators")
    assert (
        memory.attribute("units") == 16 and sum(one.name == "simt.dot_into" for one in found) == 3
    )


@device_function
def in_steps(a, b, c, tiles, steps):
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in tl.range(steps):
        acc = tl.dot(a.load([0, k * 16]) * 2.0, b.load([0, k * 16]), acc)
        if k == 2:
            acc = acc + 1.0
    c.store([0, 0], acc)


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_sums_that_the_loop_reads_and_operands_that_threads_put_into_shared_memory(
    completion: str,
) -> None:
    found = run(in_steps, 4, machine(completion))
    assert (
        len(inside_loops(found, "simt.accumulator_load", 1))
        == len(inside_loops(found, "simt.accumulator_store", 1))
        == 1
    )


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
    assert not any(
        one.attribute("alone") and one.operands[0].type.count > 1 and not one.operand("condition")
        for one in inside_loops(found, "simt.await", 1)
    )  # type: ignore[attr-defined]
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


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("n", [0, 16, 96])
def test_loops_whose_copies_are_of_pointers(n: int, completion: str) -> None:
    rng = np.random.default_rng(n)
    arrays = [small(rng, 16, 96), small(rng, 96, 16), np.full((16, 16), 7, np.float32), n]
    target = machine(completion, groups=True)
    signature = {**dict.fromkeys("abc", "*fp32"), "n": "i32"}
    function, (loop,), _ = compare(at_pointers, signature, arrays, stages=3, target=target, K=16)
    body = [one.name for one in loop.regions[0]]
    assert body.index("simt.copy_start") < body.index("simt.dot_into") and body[-2:] == [
        "simt.await",
        "yield",
    ], "copies run on beside the product"
    assert "simt.accumulator_load" not in body and any(
        one.name == "simt.accumulator_load" for one in function.walk()
    )


def test_without_the_wait_for_a_slots_product_it_is_filled_too_early() -> None:
    """The emulator detects it.

    A matmul that completes as late as possible reads the data of a later one.
    """
    blocks = dict.fromkeys("abc", "tensordesc<fp32[16,16]>") | dict.fromkeys(
        ("tiles", "steps"), "i32"
    )
    module = compile_function(multiply, blocks, {"FROM": False, "DIVIDED": False})
    run_passes(module)
    target, options = (
        machine("crossed"),
        {"num_warps": 2, "num_stages": 3, "enable_fp_fusion": False},
    )
    given = [argument.type for argument in kernel_of(module).arguments]
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
    function = kernel_of(module)
    (wait,) = (
        one
        for one in function.walk()
        if one.name == "simt.await"
        and one.attribute("alone")
        and one.operand("condition") is not None
    )
    wait.erase()
    rng = np.random.default_rng(1)
    a, b, c = small(rng, 16, 96), small(rng, 16, 96), np.zeros((16, 16), np.float32)
    types = [argument.type for argument in function.arguments]
    passed = emulator.expanded_arguments(
        given, types, [*map(emulator.EmulatedDescriptor, (a, b, c)), 1, 6]
    )
    text = lower_function(function, target, options)
    with contextlib.suppress(KernelError):  # or a phase that nobody waited for ends twice
        emulator.run_text(text, target, types, passed, (1, 1, 1), 2)
    assert not np.array_equal(c, a @ b.T)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize(("causal", "blocks"), [(False, 2), (False, 4), (True, 4)])
def test_chains_of_attention(causal: bool, blocks: int, completion: str) -> None:
    n = blocks * BN
    q, k, v = np.random.default_rng(blocks).standard_normal((3, n, HEAD)).astype(np.float32)
    out, module = np.full_like(q, np.nan), attention_module(causal)
    arguments = [*map(emulator.EmulatedDescriptor, (q, k, v)), out, n, BN, n // BM]
    emulator.run(
        module, arguments, num_warps=2, target=machine(completion, rows=True), num_stages=3
    )
    np.testing.assert_allclose(out, exp2_attention(q, k, v, causal), rtol=1e-5, atol=1e-6)
    found = list(kernel_of(module).walk())
    assert sum(one.name == "simt.part" for one in found) == 2 and sum(
        one.name == "simt.dot_into" for one in found
    ) == 4 * (1 + causal)
    # in the loop both matmuls start before the wait for the first, and the second accumulator is
    # written and read
    starts = inside_loops(found, "simt.dot_into", 2)
    assert (
        len(starts)
        == 2 * (1 + causal)
        == len(inside_loops(found, "simt.accumulator_load", 2))
        == 2 * len(inside_loops(found, "simt.accumulator_store", 2))
    )
    body = [one.name for one in starts[0].parent or ()]
    assert body.index("simt.accumulator_load") > max(
        place for place, name in enumerate(body) if name == "simt.dot_into"
    )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize("n", [0, 8, 16, 40])
@pytest.mark.parametrize("start", [False, True])
def test_sums_of_chains_stay_in_their_memory_too(start: bool, n: int, completion: str) -> None:
    rng, head = np.random.default_rng(n), HEAD
    q, k, g = (
        rng.integers(-2, 3, (max(extent, 1), head)).astype(np.float32) for extent in (n, 32, n)
    )
    dk = np.full_like(k, 7)
    blocks = {
        name: f"tensordesc<fp32[{extent},{head}]>"
        for name, extent in (("q", 8), ("k", 16), ("g", 8))
    }
    module = build(
        weighted, {**blocks, "dk": "*fp32", "n": "i32"}, BM=8, BN=16, HEAD=head, FROM=start
    )
    emulator.run(
        module,
        [*map(emulator.EmulatedDescriptor, (q, k, g)), dk, n],
        (2, 1, 1),
        num_warps=2,
        target=machine(completion),
        num_stages=3,
    )
    np.testing.assert_array_equal(dk, 7 * start + (k @ q[:n].T) @ g[:n])
    found = list(kernel_of(module).walk())
    assert (
        sum(one.name == "simt.part" for one in found) == 2
        and len(inside_loops(found, "simt.dot_into", 1)) == 2
    )
    assert len(inside_loops(found, "simt.accumulator_load", 1)) == 1 and not inside_loops(
        found, "simt.accumulator_store", 1
    )


@device_function
def weighted(
    q, k, g, dk, n, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr, FROM: tl.constexpr
):
    column = tl.program_id(0) * BN
    places = dk + (column + tl.arange(0, BN))[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    keys = k.load([column, 0])
    sums = tl.load(places) if FROM else tl.zeros([BN, HEAD], dtype=tl.float32)
    for i in tl.range(0, n, BM, warp_specialize=True):
        sums = tl.dot(tl.dot(keys, q.load([i, 0]).T), g.load([i, 0]), sums)
    tl.store(places, sums)


def test_a_product_that_was_not_written_out_is_named() -> None:
    module = attention_module(False)
    target, options = machine("late"), {"num_warps": 2, "num_stages": 1}
    for stage in STAGES:
        if stage.name != "accumulators":
            stage.run(module, target, options)
    with pytest.raises(
        LoweringError,
        match=(
            r"simt\.dot at .* is to be written out first: its accumulator is not in registers "
            r"\(stage accumulators\)"
        ),
    ):
        lower_function(kernel_of(module), target, options)


def test_memory_is_not_used_anew_while_a_product_reads_it() -> None:
    """Operations between a matmul and the wait for its mbarrier have other scratch space."""
    text = """
    tilewright.ir 1.0
    #L0 = layout<16x16, registers [(0,1) (0,2) (0,4) (0,8) (8,0)], lanes [(1,0) (2,0) (4,0)], warps []>
    #L1 = layout<16x16, registers [(1,0) (2,0) (4,0) (8,0) (0,8)], lanes [(0,1) (0,2) (0,4)], warps []>
    #S0 = shared<16x16>
    kernel @k(%x: tile<16x16xf32, #L0>, %phase: i1) attributes {warps = 1} {
      %zero = constant 0 : i32
      %one = constant 1 : i32
      %ended = simt.barriers 1 : barriers<2>
      %memory = simt.accumulators 16 : i32
      %sums = simt.accumulator %memory {first = 0} : accumulator<16x16xf32>
      %as = simt.buffer : buffer<1 x 16x16xf32, #S0>
      %a = simt.slot %as, %zero : slot<16x16xf32, #S0>
      simt.dot_into %a, %a, %sums, %phase {plan = "toy.into"}
      simt.arrive_after %ended, %zero
      simt.await %ended, %one, %phase
      %y = simt.convert %x : tile<16x16xf32, #L1>
      simt.await %ended, %zero, %phase
      %z = simt.convert %x : tile<16x16xf32, #L1>
      return
    }
    """
    module, target = parse_module(text, SIMT_TABLE), machine("late")
    run_stages(module, target, {}, ["allocate"])
    first, second = (
        operation for operation in kernel_of(module).walk() if operation.name == "simt.convert"
    )
    (buffer,) = (
        operation for operation in kernel_of(module).walk() if operation.name == "simt.buffer"
    )
    assert offset_of(first) >= offset_of(buffer) + 1024 > offset_of(second)


def test_more_sums_than_there_is_memory_for() -> None:
    target = machine("late")
    target.tensor_memory = emulator.EmulatedTensorMemory(8)
    with pytest.raises(OutOfResources) as caught:
        run(multiply, 2, target, FROM=False, DIVIDED=False)
    assert (caught.value.name, caught.value.required, caught.value.limit) == (ACCUMULATORS, 16, 8)
