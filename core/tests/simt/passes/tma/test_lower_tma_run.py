"""Loads and stores through kept descriptors on the emulated machine, wherever they stand: against
the reference interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.dialect.types import BufferType
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.testing.emulator_check import small
from tilewright.testing.toy_targets import BulkTarget


@device_function
def everywhere(d, e, n):
    acc = tl.zeros((4, 8), dtype=tl.float32)
    for i in range(n):
        if i % 2 == 0:
            acc += d.load([i, 1])
        else:
            k = 0
            while k < i:
                acc -= d.load([k, i])
                k += 1
        e.store([i, 0], d.load([0, i]) + acc)
    e.store([n, 1], acc)


@pytest.mark.parametrize("completion", ["late", "early", "random"])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_in_all_control_flow_and_over_the_edge(n: int, completion: str) -> None:
    arrays = [small(np.random.default_rng(n), 9, 13), np.full((9, 9), 7, np.float32)]
    found = differ(
        everywhere,
        {"d": (4, 8), "e": (4, 8)},
        arrays,
        [n],
        BulkTarget(8, completion=completion),
        num_warps=2,
    )
    assert found.count("simt.block_load_start") == 3 and found.count("simt.block_store_start") == 2


@device_function
def in_place(d, n):
    for i in range(n):
        d.store([i + 1, 0], d.load([i, 0]) * 2.0)


def test_what_one_iteration_stores_the_next_one_loads() -> None:
    found = differ(
        in_place,
        {"d": (4, 8)},
        [small(np.random.default_rng(3), 12, 8)],
        [6],
        BulkTarget(8),
        num_warps=4,
    )
    assert "simt.block_load_start" in found


@device_function
def product(a, b, c, n):
    for tile in range(n):
        x = a.load([tile * 16, 0])
        y = b.load([0, 0])
        c.store([tile * 16, 0], tl.dot(x, tl.trans(y)) + c.load([tile * 16, 0]))


@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("stages", [1, 3])
def test_products_of_blocks(stages: int, completion: str) -> None:
    rng = np.random.default_rng(stages)
    arrays = [small(rng, 48, 16), small(rng, 16, 16), small(rng, 48, 16)]
    blocks = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}
    found = differ(
        product,
        blocks,
        arrays,
        [3],
        BulkTarget(8, completion=completion),
        num_warps=4,
        num_stages=stages,
    )
    assert "simt.dot_start" in found or "simt.dot" in found


@device_function
def persistent(a, b, c, tiles, steps):
    for tile in tl.range(tiles, warp_specialize=True):
        acc = tl.zeros((16, 16), dtype=tl.float32)
        for k in tl.range(steps, num_stages=3):
            acc = tl.dot(a.load([tile * 16, k * 16]), tl.trans(b.load([0, k * 16])), acc)
        c.store([tile * 16, 0], acc + c.load([tile * 16, 0]))


@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_blocks_beside_a_loop_that_is_divided_among_warps(steps: int, completion: str) -> None:
    rng = np.random.default_rng(steps)
    arrays = [small(rng, 48, 80), small(rng, 16, 80), small(rng, 48, 16)]
    blocks = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}
    found = differ(
        persistent, blocks, arrays, [3, steps], BulkTarget(8, completion=completion), num_warps=4
    )
    assert "simt.partition" in found and found.count("simt.block_store_start") == 1


@device_function
def doubled(a, b, c, steps, DIVIDED: tl.constexpr):
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in tl.range(steps, warp_specialize=DIVIDED):
        acc = tl.dot(a.load([0, k * 16]), b.load([k * 16, 0]) * 2.0, acc)
    c.store([0, 0], acc)


@pytest.mark.parametrize("completion", ["late", "random", "early"])
@pytest.mark.parametrize("divided", [False, True])
def test_products_of_what_threads_put_into_shared_memory_in_each_iteration(
    divided: bool, completion: str
) -> None:
    rng = np.random.default_rng(divided)
    arrays = [small(rng, 16, 80), small(rng, 80, 16), small(rng, 16, 16)]
    blocks = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}
    target = BulkTarget(8, completion=completion)
    found = differ(
        doubled,
        blocks,
        arrays,
        [5],
        target,
        constants={"DIVIDED": divided},
        num_warps=4,
        num_stages=3,
    )
    assert "simt.dot_start" in found and ("simt.partition" in found) == divided


@device_function
def scaled(a, c, n):
    for i in range(n):
        x = a.load([i * 8, 0])
        c.store([i * 16, 0], x * 2.0)
        if i % 3 != 1:
            c.store([i * 16 + 8, 0], x * 3.0)


@device_function
def scaled_and_read(a, c, n):
    for i in range(n):
        c.store([0, 0], a.load([i * 8, 0]) + c.load([0, 0]))


#: Bytes of shared memory -> (pieces, slots) of a tile of 8 x 128 f32 that is stored twice in a
#: loop, beside one that is loaded.
ROOM = {
    64 * 1024: (1, 2),
    4096 + 4096 + 64: (1, 1),
    4096 + 2048 + 64: (2, 1),
    4096 + 1024 + 64: (4, 1),
}


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early", "random"])
@pytest.mark.parametrize("room", ROOM)
def test_stores_in_a_loop_run_on_in_as_many_pieces_as_there_is_room_for(
    room: int, completion: str
) -> None:
    target = BulkTarget(8, completion=completion)
    target.resources = replace(target.resources, shared_memory=room)
    arrays = [small(np.random.default_rng(1), 40, 130), np.full((78, 125), 7, np.float32)]
    compiled: list[Module] = []
    found = differ(
        scaled, {"a": (8, 128), "c": (8, 128)}, arrays, [5], target, num_warps=1, compiled=compiled
    )
    pieces, slots = ROOM[room]
    assert found.count("simt.block_store_start") == 2 * pieces
    buffers = [
        operation.results[0].type
        for operation in kernel_of(compiled[0]).walk()
        if operation.name == "simt.buffer"
    ]
    assert any(
        isinstance(type_, BufferType) and (type_.count, type_.shape) == (slots, (8, 128 // pieces))
        for type_ in buffers
    )


def test_a_store_that_runs_on_is_waited_for_before_its_slot_is_written_again() -> None:
    """The machine shows it: without the waits in the loop the last tile is stored twice."""
    module = compile_function(
        scaled, dict.fromkeys("ac", "tensordesc<fp32[8,128]>") | {"n": "i32"}, {}
    )
    run_passes(module)
    target, options = BulkTarget(8), {"num_warps": 1, "num_stages": 2, "enable_fp_fusion": False}
    given = [argument.type for argument in kernel_of(module).arguments]
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
    waits = [operation for operation in kernel_of(module).walk() if operation.name == "simt.wait"]
    inside = [wait for wait in waits if any(outer.name == "for" for outer in wait.ancestors())]
    assert inside and len(inside) < len(waits)
    for wait in inside:
        wait.erase()
    function = kernel_of(module)
    a, c = small(np.random.default_rng(1), 40, 128), np.zeros((80, 128), np.float32)
    types = [argument.type for argument in function.arguments]
    text = lower_function(function, target, options)
    passed = emulator.expanded_arguments(
        given, types, [emulator.EmulatedDescriptor(a), emulator.EmulatedDescriptor(c), 5]
    )
    emulator.run_text(text, target, types, passed, (1, 1, 1), 1)
    assert not np.array_equal(c[:8], 2 * a[:8])


@pytest.mark.parametrize("completion", ["late", "random"])
def test_what_the_kernel_reads_back_is_waited_for_where_it_is_stored(completion: str) -> None:
    arrays = [small(np.random.default_rng(2), 40, 128), np.ones((8, 128), np.float32)]
    found = differ(
        scaled_and_read,
        {"a": (8, 128), "c": (8, 128)},
        arrays,
        [5],
        BulkTarget(8, completion=completion),
        num_warps=1,
    )
    start = found.index("simt.block_store_start")
    assert found[start + 1 : start + 3] == ["simt.commit", "simt.wait"]


@device_function
def persistent_product(a, b, c, tiles, depth):
    for tile in tl.range(tl.program_id(0), tiles, 1, flatten=True):
        total = tl.zeros((16, 16), dtype=tl.float32)
        for k in tl.range(0, depth, 16, num_stages=3):
            total = tl.dot(a.load([tile * 16, k]), tl.trans(b.load([0, k])), total)
        c.store([tile * 16, 0], total)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early", "crossed", "random"])
@pytest.mark.parametrize(
    ("tiles", "depth"), [(0, 16), (1, 0), (1, 5), (3, 16), (4, 41), (2, 97), (5, 129)]
)
def test_a_persistent_product_whose_stores_run_on_beside_the_loads_of_what_follows(
    tiles: int, depth: int, completion: str
) -> None:
    rng = np.random.default_rng(depth)
    arrays = [
        small(rng, 16 * 5 - 3, max(1, depth)),
        small(rng, 13, max(1, depth)),
        np.full((16 * 5 - 3, 13), 7, np.float32),
    ]
    blocks = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}
    found = differ(
        persistent_product,
        blocks,
        arrays,
        [tiles, depth],
        BulkTarget(8, completion=completion, seed=depth),
        num_warps=2,
    )
    assert found.count("simt.part") == 2, (
        "loads have warps of their own, since the loops are to be one"
    )
