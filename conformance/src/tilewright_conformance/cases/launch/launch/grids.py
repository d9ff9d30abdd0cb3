"""Grids, program ids, and successive launches: with other values, on one stream, from threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.ir.types import I32
from tilewright_conformance.op_samples.kernel import SampleKernel
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table, elements
from tilewright_conformance.testlib.threads import side_by_side

CASES = Table("launch", "launch", "Python and NumPy")

# ---- grids


@tw.jit
def who_is_there(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = ((z * tl.num_programs(1) + y) * tl.num_programs(0) + x) * 6
    tl.store(out + at, x)
    tl.store(out + at + 1, y)
    tl.store(out + at + 2, z)
    tl.store(out + at + 3, tl.num_programs(0))
    tl.store(out + at + 4, tl.num_programs(1))
    tl.store(out + at + 5, tl.num_programs(2))


GRIDS: dict[str, tuple[int, ...]] = {
    "x" + "x".join(map(str, grid)): grid
    for grid in (
        (1,),
        (7,),
        (64,),
        (3, 5),
        (5, 3),
        (1, 9),
        (2, 3, 4),
        (4, 3, 2),
        (1, 1, 6),
        (1, 5, 1),
        (8, 1, 2),
        (1, 2000),
        (1, 1, 700),
    )
}


@CASES("grid/ids", "program_id", each=GRIDS, quick=("x2x3x4", "x5x3"))
def every_program_knows_its_place(session: Session, grid: tuple[int, ...]) -> None:
    """Ids and extents on all three axes; each program runs once."""
    x, y, z = (*grid, 1, 1)[:3]
    out = np.full((z, y, x, 6), -1, np.int32)
    session.launch(who_is_there, grid, out)
    at = np.moveaxis(np.indices((z, y, x)), 0, -1)[..., ::-1]
    session.check(
        out, np.concatenate([at, np.broadcast_to([x, y, z], at.shape)], -1).astype(np.int32)
    )


@tw.jit
def count_programs(out, extra):
    pid = tl.program_id(0)
    tl.store(out + pid, tl.load(out + pid) + pid + extra)


@CASES("grid/large", "program_id", quick=True)
def more_programs_than_16_bits_count(session: Session) -> None:
    count = (1 << 16) + 4467
    out = np.full(count + 1, 5, np.int32)
    session.launch(count_programs, (count,), out, 1)
    session.check(out, np.append(np.arange(count) + 6, 5).astype(np.int32))


@CASES("grid/empty", "launch", quick=True)
def empty_grids_run_nothing(session: Session) -> None:
    """By the language, and by the backend's own launcher."""
    out = np.full((4, 6), 9, np.int32)
    for grid in ((0,), (0, 4), (4, 0), (2, 2, 0), (0, 0, 0), (1, 0, 3)):
        session.launch(who_is_there, grid, out)
        session.check(out, np.full((4, 6), 9, np.int32), name=f"an array after grid {grid}")
        kernel, found = SampleKernel("empty"), np.full(1, 9, np.int32)
        kernel.b.store(kernel.pointer(I32, (1,), output=True), kernel.constant(I32, 7))
        session.run_module(kernel.finish().module, [found], (*grid, 1, 1)[:3])
        session.check(
            found, np.array([9], np.int32), name=f"an array after the launcher's grid {grid}"
        )
    session.launch(who_is_there, (1,), out)
    session.check(out[0], np.array([0, 0, 0, 1, 1, 1], np.int32))


@tw.jit
def fill_blocks(out, n, number, BLOCK: tl.constexpr = 8):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, number, mask=offsets < n)


@CASES("grid/forms", "launch", needs=elements(tile=16), quick=True)
def grids_are_numbers_sequences_and_functions(session: Session) -> None:
    seen: list[Mapping[str, Any]] = []

    def by_block(meta: Mapping[str, Any]) -> tuple[int, ...]:
        seen.append(dict(meta))
        return (tw.cdiv(meta["n"], meta["BLOCK"]),)

    for grid, options in (
        (4, {}),
        ([4], {}),
        ((np.int64(4),), {}),
        ((np.int32(2), 2), {}),
        (by_block, {}),
        (by_block, {"BLOCK": 16, "num_warps": 2}),
        (lambda meta: [tw.cdiv(meta["n"], meta["BLOCK"]), 1, 1], {"BLOCK": 4}),
        (lambda meta: meta["number"] - 3, {}),
    ):
        out = np.zeros(32, np.int32)
        session.launch(fill_blocks, grid, out, 32, 7, **options)
        reached = 16 if isinstance(grid, tuple) and len(grid) == 2 else 32
        session.check(out, np.where(np.arange(32) < reached, 7, 0).astype(np.int32))
    session.require(
        [(one["n"], one["BLOCK"]) for one in seen] == [(32, 8), (32, 16)],
        f"a grid's function is given all arguments, not {seen}",
    )
    session.require(seen[1].get("num_warps") == 2, "a grid's function is given the launch options")


@CASES("errors/grid", "LaunchError", needs=elements(tile=8), quick=True)
def what_is_no_grid_is_refused(session: Session) -> None:
    out = np.zeros(8, np.int32)
    for grid in (
        (),
        (1, 1, 1, 1),
        (-1,),
        (2, -2),
        (1.5,),
        ("4",),
        "4",
        None,
        (2**31,),
        (1, 2**31),
        lambda meta: None,
    ):
        with session.raises(LaunchError, "grid"):
            session.launch(fill_blocks, grid, out, 8, 3)
    session.check(out, np.zeros(8, np.int32))
    session.launch(fill_blocks, (1,), out, 8, 3)
    session.check(out, np.full(8, 3, np.int32))


# ---- one launch after another


@tw.jit
def add_number(x, n, number, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + number, mask=offsets < n)


@CASES("repeat/values", "launch", needs=elements(tile=8), quick=True)
def every_launch_has_its_own_numbers(session: Session) -> None:
    kernel = tw.jit(add_number.fn)
    for n, number in ((20, 5), (41, 7), (20, -7), (3, 100000), (41, 7), (64, 3)):
        x = np.zeros(64, np.int32)
        session.launch(kernel, (8,), x, n, number, BLOCK=8)
        session.check(
            x,
            np.where(np.arange(64) < n, number, 0).astype(np.int32),
            name=f"n={n}, number={number}",
        )


@CASES("repeat/grids", "launch", needs=elements(tile=8), quick=True)
def every_launch_has_its_own_grid(session: Session) -> None:
    kernel = tw.jit(add_number.fn)
    for grid in (2, 8, 1, 5):
        x = np.zeros(64, np.int32)
        session.launch(kernel, (grid,), x, 64, 5, BLOCK=8)
        session.check(
            x, np.where(np.arange(64) < grid * 8, 5, 0).astype(np.int32), name=f"grid {grid}"
        )


@CASES("repeat/same", "launch", needs=elements(tile=8), quick=True)
def the_same_launch_counts_each_time(session: Session) -> None:
    """Launch with the very same arguments many times: later launches reuse the first plans."""
    x, place = np.zeros(64, np.int32), session.placement()
    placed = place(x)
    with session.use():
        for _ in range(9):
            add_number[(8,)](placed, 64, 5, BLOCK=8)
    place.fetch()
    session.check(x, np.full(64, 45, np.int32))


@CASES("repeat/arrays", "launch", needs=elements("f32", "f16", "i16", tile=8), quick=True)
def every_launch_has_its_own_arrays(session: Session) -> None:
    """Of other types, sizes and places, in turn, with one kernel."""
    for _ in range(3):
        for dtype in (np.float32, np.int32, np.float16, np.int16):
            for n in (9, 33):
                x = session.rng.integers(-50, 50, n).astype(dtype)
                expected = x + dtype(3)
                session.launch(add_number, (5,), x, n, 3, BLOCK=8)
                session.check(x, expected, zero_sign=False)


@tw.jit
def triple(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 3, mask=offsets < n)


@tw.jit
def reverse(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + n - 1 - offsets, mask=offsets < n), mask=offsets < n)


@CASES("order", "launch", needs=elements(tile=256), quick=True)
def launches_of_a_stream_run_in_order(session: Session) -> None:
    """Run a chain of launches in which each reads the results of the one before, without a wait.

    Other programs of the launch before wrote some of them.
    """
    n = 5000
    x = session.rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.int32)
    out, expected = np.zeros(n, np.int32), x.view(np.uint32).copy()
    place, grid = session.placement(), (tw.cdiv(n, 256),)
    a, b = place(x), place(out)
    with session.use():
        for step in range(30):
            triple[grid](a, b, n, BLOCK=256)
            add_number[grid](b, n, step, BLOCK=256)
            reverse[grid](b, a, n, BLOCK=256)
            expected = (expected * np.uint32(3) + np.uint32(step))[::-1]
    place.fetch()
    session.check(x, expected.view(np.int32))


@tw.jit
def own_share(x, n, by, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0)
    tl.store(x + offsets, value * by + offsets, mask=offsets < n)


@CASES("threads", "launch", needs=elements(tile=64), quick=True)
def threads_launch_side_by_side(session: Session) -> None:
    """Launch two kernels that are not compiled yet from several threads, with two constants.

    Each thread has its own arrays and numbers.
    """
    kernels = [tw.jit(own_share.fn), tw.jit(add_number.fn)]
    count, n, rounds = 4, 200, 12
    arrays = [session.rng.integers(-50, 50, n).astype(np.int32) for _ in range(count)]
    expected = [array.copy() for array in arrays]
    places = [session.placement() for _ in range(count)]
    placed = [place(array) for place, array in zip(places, arrays, strict=True)]

    def work(own: int) -> None:
        for step in range(rounds):
            block = 32 if (own + step) % 2 else 64
            kernels[0][(tw.cdiv(n, block),)](placed[own], n, own + 2, BLOCK=block)
            kernels[1][(tw.cdiv(n, block),)](placed[own], n, step * 100 + own, BLOCK=block)

    side_by_side(session, count, work)
    for own in range(count):
        places[own].fetch()
        values = expected[own].astype(np.int64)
        for step in range(rounds):
            values = values * (own + 2) + np.arange(n) + step * 100 + own
            values = values.astype(np.int32).astype(np.int64)
        session.check(arrays[own], values.astype(np.int32), name=f"thread {own}")


# ---- what a process must survive. A backend that disrupts it does so on some kernels and not on
# others: these have a square root.


@tw.jit
def root(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        out + offsets, tl.sqrt(tl.load(x + offsets, mask=offsets < n, other=0.0)), mask=offsets < n
    )


def _check_root(session: Session, n: int) -> None:
    x, out = session.rng.random(n).astype(np.float32), np.zeros(n, np.float32)
    session.launch(root, (tw.cdiv(n, 64),), x, out, n, BLOCK=64, **session.strict)
    session.check(out, np.sqrt(x.astype(np.float64)), ulp=4)


@CASES("process/lives", "launch", needs=elements("f32", tile=64), quick=True, time_limit=15)
def the_process_survives(session: Session) -> None:
    """A kernel compiles, runs and ends; its process does too."""
    _check_root(session, 100)


#: Bytes that a process may grow by in some launches of a kernel that it has launched before.
_GROWTH = 96 << 20


def _resident() -> int:
    """Bytes of this process in main memory; 0 where the system does not tell."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return 0
    import mmap

    return int(path.read_text().split()[1]) * mmap.PAGESIZE


@CASES("process/memory", "launch", needs=elements("f32", tile=64), quick=True)
def launches_keep_no_memory(session: Session) -> None:
    _check_root(session, 1000)
    before = _resident()
    for _ in range(6):
        _check_root(session, 1000)
    grown = _resident() - before
    session.require(
        grown < _GROWTH, f"the process grew by {grown >> 20} MiB in 6 launches of a small kernel"
    )
