"""Rows through kept descriptors on the emulated machine: against the reference interpreter, and
where they are waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.testing.emulator_check import small
from tilewright.testing.toy_targets import BulkTarget

COMPLETIONS = ("late", "early", "random", "crossed")


@device_function
def moved(d, e, step, column):
    at = (tl.arange(0, 16) * step) % 13 - 2  # from two rows before the tensor on
    e.scatter(d.gather(at, column) * 2.0, tl.arange(0, 16) * 3 - 5, column - 3)


@pytest.mark.parametrize("completion", COMPLETIONS)
@pytest.mark.parametrize(("step", "column"), [(1, 0), (5, 4), (7, -3), (3, 12)])
def test_rows_over_all_edges(step: int, column: int, completion: str) -> None:
    arrays = [small(np.random.default_rng(step), 9, 14), np.full((30, 11), 7, np.float32)]
    blocks = {"d": (1, 8), "e": (1, 8)}
    found = differ(
        moved, blocks, arrays, [step, column], BulkTarget(8, completion=completion), num_warps=2
    )
    assert found.count("simt.rows_load_start") == found.count("simt.rows_store_start") == 1
    assert not {"load", "store", "descriptor_gather", "descriptor_scatter"} & set(found)


@device_function
def in_loops(d, e, n):
    total = tl.zeros((8, 8), dtype=tl.float32)
    for i in range(n):
        rows = (tl.arange(0, 8) * 5 + i) % 11
        if i % 3 != 1:
            total += d.gather(rows, i)
        e.scatter(total, rows, 0)


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_the_numbers_change_while_copies_go_on(completion: str) -> None:
    """Each iteration writes to rows of the one before."""
    arrays = [small(np.random.default_rng(1), 10, 12), np.zeros((9, 8), np.float32)]
    differ(
        in_loops,
        {"d": (1, 8), "e": (1, 8)},
        arrays,
        [5],
        BulkTarget(8, completion=completion),
        num_warps=4,
    )


@device_function
def beside_blocks(e, f, n):
    for i in range(n):
        f.store([i, 0], tl.zeros((4, 8), dtype=tl.float32) + i)
        e.scatter(e.gather(tl.arange(0, 8), 0) + 1.0, 7 - tl.arange(0, 8), 0)


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_rows_that_are_written_and_read_again_beside_blocks(completion: str) -> None:
    arrays = [small(np.random.default_rng(2), 6, 8), np.zeros((9, 8), np.float32)]
    differ(
        beside_blocks,
        {"e": (1, 8), "f": (4, 8)},
        arrays,
        [3],
        BulkTarget(8, completion=completion),
        num_warps=2,
    )


@device_function
def product(a, b, c):
    rows = tl.arange(0, 16) * 7 % 32
    c.store([0, 0], tl.dot(a.gather(rows, 0), tl.trans(b.gather(rows + 1, 0))))


def test_products_read_the_rows_where_they_are() -> None:
    rng = np.random.default_rng(4)
    arrays = [small(rng, 40, 16), small(rng, 40, 16), small(rng, 16, 16)]
    found = differ(
        product, {"a": (1, 16), "b": (1, 16), "c": (16, 16)}, arrays, [], BulkTarget(8), num_warps=4
    )
    assert "simt.dot_start" in found and "simt.load" not in found


@device_function
def stored_in_turns(e, n):
    for i in range(n):
        e.scatter(tl.zeros((8, 8), dtype=tl.float32) + i, tl.arange(0, 8) + i, 0)


def test_numbers_are_not_written_before_those_before_were_read() -> None:
    found = differ(
        stored_in_turns,
        {"e": (1, 8)},
        [np.zeros((11, 8), np.float32)],
        [3],
        BulkTarget(8),
        num_warps=4,
    )
    body = found[found.index("for") :]
    assert body.index("barrier") < body.index("simt.store") < body.index("simt.rows_store_start")


@device_function
def by_two_ways(p, n):
    blocks = tl.make_tensor_descriptor(p, [16, 8], [8, 1], [8, 8])
    rows = tl.make_tensor_descriptor(p, [16, 8], [8, 1], [1, 8])
    for i in range(n):
        blocks.store([i, 0], tl.zeros((8, 8), dtype=tl.float32) + i)
    rows.scatter(tl.zeros((8, 8), dtype=tl.float32) - 1.0, 2 * tl.arange(0, 8), 0)
    blocks.store([8, 0], tl.zeros((8, 8), dtype=tl.float32) + 9)


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_rows_are_written_after_blocks_of_the_same_memory(completion: str) -> None:
    module = compile_function(by_two_ways, {"p": "*fp32", "n": "i32"}, {})
    run_passes(module)
    found = np.zeros((16, 8), np.float32)
    emulator.run(module, [found, 3], target=BulkTarget(8, completion=completion), num_warps=2)
    assert {"simt.block_store_start", "simt.rows_store_start"} <= {
        operation.name for operation in kernel_of(module).walk()
    }
    expected = np.zeros((16, 8), np.float32)
    for i in range(3):
        expected[i : i + 8] = i
    expected[::2] = -1
    expected[8:] = 9
    np.testing.assert_array_equal(found, expected)


@device_function
def once(d, e):
    e.scatter(d.gather(tl.arange(0, 8), 0), 7 - tl.arange(0, 8), 0)


@device_function
def twice(d, e):
    e.scatter(d.gather(tl.arange(0, 8), 0), 7 - tl.arange(0, 8), 0)
    e.scatter(d.gather(tl.arange(0, 8) + 1, 0), tl.arange(0, 8), 0)


@pytest.mark.parametrize(("kernel", "written"), [(once, [False]), (twice, [True, True])])
def test_until_when_stores_of_rows_are_waited_for(kernel: Any, written: list[bool]) -> None:
    modules: list[Module] = []
    arrays = [small(np.random.default_rng(5), 9, 8), np.zeros((8, 8), np.float32)]
    differ(kernel, {"d": (1, 8), "e": (1, 8)}, arrays, [], BulkTarget(8), modules, num_warps=2)
    waits = [
        operation.attribute("written")
        for operation in kernel_of(modules[0]).walk()
        if operation.name == "simt.wait"
    ]
    assert waits == written


def test_threads_store_rows_where_the_machine_stores_no_blocks() -> None:
    """And load them: of one descriptor all accesses are of one kind where one writes."""
    arrays = [small(np.random.default_rng(6), 9, 8), np.zeros((8, 8), np.float32)]
    found = differ(
        once, {"d": (1, 8), "e": (1, 8)}, arrays, [], BulkTarget(8, stores=False), num_warps=2
    )
    assert "simt.rows_load_start" in found and "store" in found
    found = differ(
        beside_blocks,
        {"e": (1, 8), "f": (4, 8)},
        [arrays[0], np.zeros((9, 8), np.float32)],
        [2],
        BulkTarget(8, stores=False),
        num_warps=2,
    )
    assert "simt.rows_load_start" not in found
