"""The order of one program's loads and stores, with and without barriers between.

The guarantees of memory are here, too.
"""

from __future__ import annotations

import itertools

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("memory", "memory")


@tw.jit
def reversed_twice(x, y, scratch, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(scratch + at, tl.load(x + at) + 1)
    tl.debug_barrier()
    value = tl.load(scratch + BLOCK - 1 - at)
    tl.debug_barrier()
    tl.store(scratch + at, value * 2)
    tl.debug_barrier()
    tl.store(y + at, tl.load(scratch + (at + 1) % BLOCK))


@case(
    "order/barrier",
    "tl.debug_barrier",
    each={str(block): block for block in (32, 256, 1024)},
    needs=lambda block: elements("i32", tile=block),
    quick=("256",),
)
def loads_after_stores(session: Session, block: int) -> None:
    """Load after a barrier the values stored before it, for every element of the tile."""
    x, y, scratch = (session.rng.integers(-999, 999, block).astype(np.int32) for _ in range(3))
    expected = np.roll((x + 1)[::-1] * 2, -1)
    session.launch(reversed_twice, (1,), x, y, scratch, BLOCK=block)
    same_bits(session, y, expected)


@tw.jit
def swapped(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(x + at, b)
    tl.store(y + at, a)


@case("order/swap", "tl.store", needs=elements("f32", tile=128), quick=True)
def loads_before_stores(session: Session) -> None:
    """Values loaded before a store stay as they were."""
    x, y = random_bits(session.rng, "f32", 384), random_bits(session.rng, "f32", 384)
    a, b = x.copy(), y.copy()
    session.launch(swapped, (3,), x, y, BLOCK=128)
    same_bits(session, x, b)
    same_bits(session, y, a)


@tw.jit
def through_aliases(x, same, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    before = tl.load(x + at)
    tl.store(same + at, before * 3)
    tl.debug_barrier()
    between = tl.load(x + at)
    tl.store(x + at, between + 1)
    tl.debug_barrier()
    tl.store(out + at, tl.load(same + at) - between + before)


@case("order/aliases", "tl.store", needs=elements("i32", tile=128), quick=True)
def one_array_twice(session: Session) -> None:
    """Two arguments that are one array."""
    x = session.rng.integers(-99, 99, 128).astype(np.int32)
    out, expected = np.zeros(128, np.int32), x * 3 + 1
    before = x.copy()
    session.launch(through_aliases, (1,), x, x, out, BLOCK=128)
    same_bits(session, x, expected)
    same_bits(session, out, before + 1)


@tw.jit
def rounds(x, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for _ in range(count):
        value = tl.load(x + (at + 1) % BLOCK) + tl.load(x + at)
        tl.debug_barrier()
        tl.store(x + at, value)
        tl.debug_barrier()


@case("order/loop", "tl.debug_barrier", needs=elements("i32", tile=128), quick=True)
def loads_of_the_turn_before(session: Session) -> None:
    """Each turn of a loop reads what the turn before has stored."""
    x = session.rng.integers(-9, 9, 128).astype(np.int32)
    expected = x.copy()
    for _ in range(9):
        expected = np.roll(expected, -1) + expected
    session.launch(rounds, (1,), x, 9, BLOCK=128)
    same_bits(session, x, expected)


@tw.jit
def stored_last(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(y + at, value)
    tl.store(y + at, value + 1)
    tl.store(y + at, value + 2, mask=at % 2 == 0)


@case("order/stores", "tl.store", needs=elements("i16", tile=64), quick=True)
def the_last_store_stays(session: Session) -> None:
    x, y = session.rng.integers(0, 999, 64).astype(np.int16), poison("i16", 64)
    session.launch(stored_last, (1,), x, y, BLOCK=64)
    same_bits(session, y, x + np.where(np.arange(64) % 2 == 0, 2, 1).astype(np.int16))


@tw.jit
def chase(links, out, count):
    at = tl.load(links + 0)
    for i in range(count):
        tl.store(out + i, at)
        at = tl.load(links + at)


@case("order/chase", "tl.load", needs=elements("i32"), quick=True)
def a_chain_of_loads(session: Session) -> None:
    """Each load is at the place that the load before has given."""
    order = session.rng.permutation(100)
    links = np.zeros(100, np.int32)
    links[np.concatenate([[0], order[order != 0]])] = np.concatenate([order[order != 0], [0]])
    expected, at = [], links[0]
    for _ in range(60):
        expected.append(at)
        at = links[at]
    out = np.zeros(64, np.int32)
    session.launch(chase, (1,), links, out, 60)
    session.check(out, np.array([*expected, 0, 0, 0, 0], np.int32))


# ---- the promises of memory


@tw.jit
def increment(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) + 1)


@case("read-only", "launch", needs=elements("i32", tile=64), quick=True)
def read_only_arrays(session: Session) -> None:
    """An array that is read-only may be read; a kernel that would store to it is refused."""
    x, y = session.rng.integers(0, 99, 64).astype(np.int32), np.zeros(64, np.int32)
    x.flags.writeable = False
    before = x.copy()
    session.launch(increment, (1,), x, y, BLOCK=64)
    same_bits(session, y, x + 1)
    with session.raises(LaunchError, "read-only"):
        session.launch(increment, (1,), y, x, BLOCK=64)
    same_bits(session, x, before)


@case("allocation/copies", "memory", quick=True)
def copies_there_and_back(session: Session) -> None:
    """Copy data of any size to the device and back."""
    memory = session.subject.memory
    for size in (1, 2, 3, 16, 255, 4096, 65537, 1 << 20):
        data = session.rng.integers(0, 256, size, dtype=np.uint8)
        back = np.zeros(size, np.uint8)
        back[...] = ~data
        buffer = memory.allocate(size, 16)
        memory.copy_to_device(buffer, memoryview(data.data))
        memory.synchronize()
        memory.copy_to_host(buffer, memoryview(back.data))
        memory.synchronize()
        session.check(back, data, name=f"{size} bytes")


@case("allocation/alignment", "memory", quick=True)
def alignment(session: Session) -> None:
    """Memory is aligned as it was asked for, and no two pieces of it share a byte."""
    memory = session.subject.memory
    pieces = []
    for alignment_ in (1, 2, 16, 64, 128, 256, 512):
        for size in (1, 100, 5000):
            buffer = memory.allocate(size, alignment_)
            address = int(buffer.data_ptr())
            session.require(
                address % alignment_ == 0,
                f"{size} bytes aligned to {alignment_} lie at {address:#x}",
            )
            pieces.append((address, address + size, buffer))
    pieces.sort(key=lambda piece: piece[0])
    session.require(
        all(low[1] <= high[0] for low, high in itertools.pairwise(pieces)),
        "two pieces of memory overlap",
    )
