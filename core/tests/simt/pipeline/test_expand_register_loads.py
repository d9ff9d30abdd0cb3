"""Pipelined loops on machines that cannot copy to shared memory by themselves: loads start early,
into registers, and are stored late."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from looped_kernels import (
    ATTENTION,
    STEPS,
    advancing,
    attending,
    attention,
    counting_to,
    several_readers,
    steps,
)

import tilewright.language as tl
from tilewright.ir.core import Operation
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.clone import clone_module
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, compile_kernel, kernel_of, run_stages
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.types import SlotType
from tilewright.simt.lowering.emission.address_steps import AddressSteps
from tilewright.testing.emulator_check import LANES, WARPS, build, compare, inside, small
from tilewright.testing.matrix_target import MatrixTarget

OPTIONS = {"num_warps": WARPS, "num_stages": 3, "enable_fp_fusion": False}


def plain(lanes: int = LANES, **options: Any) -> emulator.EmulatedTarget:
    """A target without async copies."""
    return emulator.EmulatedTarget(lanes, copy_widths=(), **options)


def order(loop: Operation) -> list[str]:
    """Return the operations of a pipelined loop, in order."""
    names = (
        "simt.load_start",
        "simt.keep_order",
        "barrier",
        "simt.dot",
        "simt.dot_step",
        "simt.wait",
        "simt.store",
        "simt.load",
        "load",
    )
    return [
        operation.name.removeprefix("simt.")
        for operation in loop.regions[0]
        if operation.name in names
    ]


SIZES = {"BK": 16, "M": 16, "N": 8}
#: What stands in for masked elements of the two operands.
FILLS = {"A_FILL": 2.0, "B_FILL": -1.0}


def operands(seed: int, trips: int, K: int = 128) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        small(rng, 16, 128),
        small(rng, 128, 8),
        np.full((16, 8), 7, np.float32),
        0,
        16 * trips,
        16,
        K,
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("lanes", [LANES, 64])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("trips", range(8))
def test_any_number_of_iterations(stages: int, trips: int, lanes: int) -> None:
    kernel, (loop,), _ = compare(
        steps,
        STEPS,
        operands(trips, trips, 100),
        stages=stages,
        target=plain(lanes),
        **SIZES,
        **FILLS,
    )
    assert order(loop) == [
        "load_start",
        "load_start",
        "barrier",
        "dot",
        "wait",
        "store",
        "wait",
        "store",
    ]
    tokens, waits = Tokens(kernel), inside(loop, "simt.wait")
    # of both loads, what is further ahead, and of the first the second
    assert [tokens.pending(wait) for wait in waits] == [
        [("loads", 2 * (stages - 2) + 1)],
        [("loads", 2 * (stages - 2))],
    ]


@pytest.mark.parametrize(
    ("type_", "top"), [("i32", 2**31), ("u32", 2**32), ("i64", 2**63), ("i16", 2**15)]
)
def test_counters_near_the_end_of_their_type(type_: str, top: int) -> None:
    """Three iterations, the last at the type's last values: the counter ahead wraps around, and
    nothing past the end is loaded."""

    _, (loop,), _ = compare(*counting_to(top, type_), stages=4, target=plain(), **SIZES)
    assert inside(loop, "simt.load_start")


@device_function
def moving_fill(a, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    fill = tl.full((M, M), 1.0, dtype=tl.float32)
    for i in range(n):
        x = tl.load(
            a + i * M * M + rows[:, None] * M + inner[None, :],
            mask=inner[None, :] < 9 + i,
            other=fill + i,
        )
        total = tl.dot(x, tl.trans(x), total)
        fill = fill * -1.0
    tl.store(out + rows[:, None] * M + inner[None, :], total)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_what_stands_in_for_masked_elements_may_differ_in_each_iteration(
    trips: int, stages: int
) -> None:
    arguments = [
        small(np.random.default_rng(trips), 6, 16, 16),
        np.full((16, 16), 7, np.float32),
        trips,
    ]
    _, (loop,), _ = compare(
        moving_fill,
        {"a": "*fp32", "out": "*fp32", "n": "i32"},
        arguments,
        stages=stages,
        target=plain(),
        M=16,
    )
    assert (
        len(inside(loop, "simt.load_start")) == 1
        and len(inside(loop, "barrier")) == 1
        and not inside(loop, "load")
    )


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_transposed_operands_and_pointers_that_advance(trips: int) -> None:
    _, (loop,), _ = compare(*advancing(trips), stages=3, target=plain(), BK=16, M=16, N=16)
    assert len(inside(loop, "simt.load_start")) == 2
    # the transposed operand is read from where it lies
    assert not inside(loop, "permute") and not inside(loop, "simt.convert")


@pytest.mark.parametrize("lanes", [LANES, 64])
@pytest.mark.parametrize("n", [0, 16, 33, 64])
def test_two_products_that_depend_on_each_other(n: int, lanes: int) -> None:
    _, (loop,), _ = compare(*attending(n), stages=3, target=plain(lanes), D=16, BLOCK=16)
    assert len(inside(loop, "simt.load_start")) == 2


@pytest.mark.parametrize("stages", [2, 3])
def test_loads_with_several_readers(stages: int) -> None:
    _, (loop,), _ = compare(*several_readers(), stages=stages, target=plain(), M=16)
    assert len(inside(loop, "simt.load_start")) == 2


@device_function
def far_pages(table, pages, out, n, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    for j in range(2):
        total = tl.zeros((M, M), dtype=tl.float32)
        for i in range(n - j):
            page = pages + tl.load(table + i).to(tl.int64) * M * M
            x = tl.load(page + rows[:, None] * M + inner[None, :])
            total = tl.dot(x, x, total)
        tl.store(out + j * M * M + rows[:, None] * M + inner[None, :], total)


FAR_PAGES = {"table": "*i32", "pages": "*fp32", "out": "*fp32", "n": "i32"}


def _paged(trips: int) -> list[Any]:
    rng = np.random.default_rng(trips)
    table = np.full(16, 2**30, np.int32)
    table[:trips] = rng.permutation(6)[:trips]
    return [table, small(rng, 6, 16, 16), np.full((2, 16, 16), 7, np.float32), trips]


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_addresses_that_are_loaded_in_a_loop_inside_another(trips: int) -> None:
    """The table holds garbage past its end: what would be loaded there is not."""
    _, (outer, loop), _ = compare(
        far_pages, FAR_PAGES, _paged(trips), stages=4, target=plain(), M=16
    )
    assert len(inside(loop, "simt.load_start")) == 1 and len(inside(loop, "load")) == 1
    assert len(inside(outer, "simt.load_start")) == 1 + 3


@device_function
def far_apart(a, out, n, distance, M: tl.constexpr):
    rows, inner = tl.arange(0, M), tl.arange(0, M)
    total = tl.zeros((M, M), dtype=tl.float32)
    for i in range(n):
        x = tl.load(
            a + i * distance + rows[:, None] * M + inner[None, :], mask=inner[None, :] < n + M
        )
        y = tl.load(a + i * distance + rows[:, None] * M + inner[None, :])
        total = tl.dot(x, y, total)
    tl.store(out + rows[:, None] * M + inner[None, :], total)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to lose")
@pytest.mark.parametrize("trips", [0, 1])
def test_nothing_is_read_for_iterations_past_the_end(trips: int) -> None:
    """The tiles of a second iteration would be where no memory is: reading there kills the process,
    so it is another one that runs the kernel."""
    module, target = (
        build(far_apart, {"a": "*fp32", "out": "*fp32", "n": "i32", "distance": "i64"}, M=16),
        plain(),
    )
    text = compile_kernel(module, target, {**OPTIONS, "num_stages": 4})
    assert any(operation.name == "simt.load_start" for operation in kernel_of(module).walk())
    types = [argument.type for argument in module.kernel.arguments]
    tile = small(np.random.default_rng(0), 16, 16)
    child = os.fork()
    if not child:
        emulator.run_text(
            text, target, types, [tile, np.zeros_like(tile), trips, 2**44], (1, 1, 1), WARPS
        )
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


# ---- decisions


def scheduled(
    target: emulator.EmulatedTarget, stages: int, **sizes: int
) -> tuple[Operation, list[str]]:
    """The loop of ``steps`` with its schedule, and what is noted."""
    module = build(steps, STEPS, **{**SIZES, **FILLS, **sizes})
    run_stages(
        module,
        target,
        {**OPTIONS, "num_stages": stages},
        ["prepare", "layouts", "select", "schedule"],
    )
    (loop,) = (operation for operation in module.kernel.walk() if operation.name == "for")
    return loop, [text for _, text in notes_of(module.kernel) if "pipelined" in text]


@pytest.mark.parametrize("stages", [2, 3, 6])
def test_two_slots_serve_any_distance(stages: int) -> None:
    loop, told = scheduled(plain(), stages)
    assert {name: value for name, value in loop.attributes.items() if name.startswith("simt.")} == {
        "simt.slots": 2,
        "simt.form": "registers",
        "simt.distance": stages - 1,
    }
    assert not told


def test_distance_is_limited_by_registers() -> None:
    """A thread holds 24 registers of operands, and 8 each of two accumulators."""
    target = plain()
    found = {}
    for registers in (36, 100, 124, 148, 255):
        target.resources = replace(target.resources, registers=registers)
        loop, told = scheduled(target, 6)
        found[registers] = loop.attributes["simt.distance"]
        assert told == (
            []
            if found[registers] == 5
            else [f"pipelined {found[registers] + 1} deep instead of 6, for want of registers"]
        )
    assert found == {36: 1, 100: 1, 124: 2, 148: 3, 255: 5}
    target.resources = replace(target.resources, registers=124)
    compare(steps, STEPS, operands(1, 5, 70), stages=6, target=target, **SIZES, **FILLS)


def test_shared_memory_for_two_slots_is_needed() -> None:
    each = (16 * 16 + 16 * 8) * 4
    loop, told = scheduled(plain(shared_memory=2 * each), 6)
    assert loop.attributes["simt.slots"] == 2 and not told
    loop, told = scheduled(plain(shared_memory=2 * each - 16), 6)
    assert "simt.slots" not in loop.attributes and told == [
        "not pipelined: emulator has no shared memory for two buffers of its loads"
    ]


# ---- few registers


def crowded(registers: int, k_step: int = 4) -> MatrixTarget:
    """A target with matrix instructions and without async copies."""
    target = MatrixTarget(k_step, fragments=False, wish=False)
    target.async_copy.mechanisms, target.resources = (
        (),
        replace(target.resources, registers=registers, few_registers=True),
    )
    return target


TOGETHER = ["load_start", "load_start", "barrier", "dot", "wait", "store", "wait", "store"]
STORED = ["keep_order", "wait", "store"]


def in_turn(*first: str, second: list[str]) -> list[str]:
    """The order of a loop with two loads, given what is done while the first is in flight, and
    while the second is."""
    return [
        "load_start",
        "keep_order",
        *first,
        *STORED,
        "load_start",
        "keep_order",
        *second,
        *STORED,
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("k_step", [4, 8, 16])
def test_loads_are_in_flight_in_turn_where_registers_are_few(k_step: int, trips: int) -> None:
    """Each load is in flight while half of the matmul's steps run.

    A matmul of one step is not split.
    """
    orders = {}
    for registers in (255, 70):
        _, (loop,), _ = compare(
            steps,
            STEPS,
            operands(trips, trips, 100),
            stages=2,
            target=crowded(registers, k_step),
            **SIZES,
            **FILLS,
        )
        orders[registers] = order(loop)
    half = ["dot_step"] * (8 // k_step)
    whole = ["load_start", "load_start", "keep_order", "barrier", "dot", *STORED, "wait", "store"]
    assert orders == {255: TOGETHER, 70: in_turn("barrier", *half, second=half) if half else whole}


def test_loads_are_in_flight_together_where_registers_are_not_few() -> None:
    target = crowded(70)
    target.resources = replace(target.resources, few_registers=False)
    _, (loop,), _ = compare(steps, STEPS, operands(1, 3), stages=2, target=target, **SIZES, **FILLS)
    assert order(loop) == TOGETHER


#: Of a thread: for all of the loop of ``attention``, for all but both loads at a time, for less.
REGISTERS = (255, 125, 60)
#: Bytes of shared memory with room for the query, and without.
MEMORIES = (5120, 5104)


@pytest.mark.parametrize("n", [0, 16, 33, 64])
def test_operands_that_stay_the_same_are_kept_in_shared_memory_where_registers_are_few(
    n: int,
) -> None:
    found = {}
    for registers in REGISTERS:
        _, (loop,), _ = compare(*attending(n), stages=2, target=crowded(registers), D=16, BLOCK=16)
        done = [name for name in order(loop) if name != "barrier"] == in_turn("dot", second=["dot"])
        kept = isinstance(inside(loop, "simt.dot")[0].operands[0].type, SlotType)
        found[registers] = (done, kept)
    assert found == dict(zip(REGISTERS, ((False, False), (True, False), (True, True)), strict=True))


def test_constant_operands_are_in_registers_where_there_is_no_shared_memory_for_them() -> None:
    """Rings of two slots of two tiles of 1 KiB, and 1 KiB of the query."""
    module = build(attention, ATTENTION, D=16, BLOCK=16)
    found = {}
    for memory in MEMORIES:
        copy, target = clone_module(module), crowded(REGISTERS[-1])
        target.resources = replace(target.resources, shared_memory=memory)
        run_stages(
            copy, target, {**OPTIONS, "num_stages": 2}, ["prepare", "layouts", "select", "schedule"]
        )
        found[memory] = [
            product.attributes.get("simt.kept", ())
            for product in copy.kernel.walk()
            if product.name == "simt.dot"
        ]
    assert found == dict(zip(MEMORIES, ([(0,), ()], [(), ()]), strict=True))


def test_what_is_decided_where_registers_are_few_reads_back() -> None:
    module, target = build(attention, ATTENTION, D=16, BLOCK=16), crowded(REGISTERS[-1])
    options = {**OPTIONS, "num_stages": 2}
    names = [stage.name for stage in target.stages(STAGES)]
    done = names.index("schedule") + 1
    run_stages(module, target, options, names[:done])
    text = print_module(module)
    assert "simt.in_turn = true" in text and "simt.kept = [0]" in text
    again = parse_module(text, target.dialect.table)
    for one in (module, again):
        run_stages(one, target, options, names[done:])
    assert print_module(module) == print_module(again)


# ---- addresses


@device_function
def strided(
    a, b, out, n, row, BK: tl.constexpr, M: tl.constexpr, N: tl.constexpr, AROUND: tl.constexpr
):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    at = a + (rows % 13 if AROUND else rows)[:, None] * row + inner[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for i in range(n):
        x = tl.load(at)
        y = tl.load(b + (i * BK + inner[:, None]) * N + columns[None, :])
        total = tl.dot(x, y, total)
        at += BK
    tl.store(out + rows[:, None] * N + columns[None, :], total)


@pytest.mark.parametrize("around", [False, True])
def test_a_thread_holds_one_address_of_a_tile_whose_others_follow(around: bool) -> None:
    """Rows that begin anew do so at other registers in other threads."""
    rng = np.random.default_rng(3)
    arguments = [small(rng, 16, 128), small(rng, 128, 8), np.full((16, 8), 7, np.float32), 5, 128]
    signature = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32", "row": "i32"}
    target = plain()
    target.resources = replace(target.resources, few_registers=True)
    kernel, (loop,), text = compare(
        strided, signature, arguments, stages=2, target=target, BK=16, M=16, N=8, AROUND=around
    )
    of_a, of_b = inside(loop, "simt.load_start")
    found = AddressSteps(kernel, target)
    assert (found.of(of_a) is None) == around and found.of(of_b) is not None
    # beside what the machine carries itself
    assert (sum(" = phi ptr " in line for line in text.splitlines()) > 2) == around


@pytest.mark.parametrize("row", ["i32", "constexpr"])
def test_copies_ahead_follow_by_constants(row: str) -> None:
    """Rows a run-time stride apart would take a register for each distance."""
    rng = np.random.default_rng(3)
    arguments = [small(rng, 16, 128), small(rng, 128, 8), np.full((16, 8), 7, np.float32), 5]
    signature = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}
    strides = {"row": 128}
    if row == "i32":
        arguments, signature, strides = [*arguments, 128], {**signature, "row": "i32"}, {}
    target = emulator.EmulatedTarget(LANES)
    kernel, (loop,), text = compare(
        strided,
        signature,
        arguments,
        stages=3,
        target=target,
        BK=16,
        M=16,
        N=8,
        AROUND=False,
        **strides,
    )
    of_a, of_b = inside(loop, "simt.copy_start")
    found = AddressSteps(kernel, target)
    assert (found.of(of_a) is None) == (row == "i32") and found.of(of_b) is not None
    # beside what the machine carries itself
    assert (sum(" = phi ptr " in line for line in text.splitlines()) > 2) == (row == "i32")


# ---- text in, text out

LOOP = """tilewright.ir 1.0

kernel @k(%p: ptr<f32>, %n: u32) {
  %0 = constant 0 : u32
  %1 = constant 1 : u32
  %f = constant 0.0 : f32
  %c = splat %f : tile<4x4xf32>
  %q = splat %p : tile<4x4xptr<f32>>
  %r = for %0, %n, %1, inits=[%c] : tile<4x4xf32> body(%i: u32, %x: tile<4x4xf32>) {
    %w = splat %i : tile<4x4xu32>
    %qi = addptr %q, %w : tile<4x4xptr<f32>>
    %a = load %qi : tile<4x4xf32>
    %y = dot %a, %a, %x : tile<4x4xf32>
    yield %y
  }
  store %q, %r
  return
}
"""

EXPANDED = """  %2 = simt.buffer : buffer<2 x 4x4xf32>
  %10, %11 = simt.load_start %qi, mask=%9 : tile<4x4xf32>, token<loads>
  %16, %17 = simt.load_start %qi#1, mask=%15 : tile<4x4xf32>, token<loads>
  %20 = simt.slot %2, %19 : slot<4x4xf32>
  %21 = simt.wait tokens=[%11], tiles=[%10] : tile<4x4xf32>
  simt.store %20, %21
  %r, %28, %29, %30, %31, %32 = for %0, %n, %1, inits=[%c, %18, %27, %26, %16, %17]
    %49, %50 = simt.load_start %qi#2, mask=%48 : tile<4x4xf32>, token<loads>
    %52 = simt.slot %2, %34 : slot<4x4xf32>
    %y = simt.dot %52, %52, %x : tile<4x4xf32>
    %53 = simt.slot %2, %45 : slot<4x4xf32>
    %54 = simt.wait tokens=[%37], tiles=[%36] : tile<4x4xf32>
    simt.store %53, %54 {ordered = true}
    yield %y, %51, %45, %47, %49, %50"""


def test_a_loop_is_written_out() -> None:
    """Iterations in flight at iteration i.

    I+1 is loop-carried with its token, and i+2 starts at the top.
    """
    module = parse_module(LOOP, SIMT_TABLE)
    run_stages(module, plain(), OPTIONS, ["layouts", "select", "schedule", "expand"])
    text = re.sub(
        r", #\w+| \{(?!ordered)[^}\n]*\}| : [^:\n]* body\(.*",
        "",
        print_module(module, locations=False),
    )
    assert [
        line for line in text.splitlines() if re.search(r"simt\.|yield| for ", line)
    ] == EXPANDED.splitlines()
