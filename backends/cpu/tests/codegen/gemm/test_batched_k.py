"""Batched accumulation over a loop's iterations: the same bits as one iteration after the other."""

import itertools

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu.codegen.gemm import gemm
from tilewright_cpu.codegen.gemm.batched_k import IterationQueue, batch_depth
from tilewright_cpu.codegen.ops import dot

RNG = np.random.default_rng(0)
SUMS = {
    "float32": tl.float32,
    "float16": tl.float32,
    "float64": tl.float64,
    "int8": tl.int32,
    "uint8": tl.int32,
}
NUMPY = {tl.float16: np.float16, tl.float32: np.float32, tl.float64: np.float64, tl.int32: np.int32}
#: makes kernels that are compiled anew, whatever is in the cache
SALTS = itertools.count()


@pytest.fixture
def queued(monkeypatch, tmp_path):
    """Count the dots whose iterations are batched, without any cache."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    found = []

    class Counted(IterationQueue):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            found.append(self)

    monkeypatch.setattr(gemm, "IterationQueue", Counted)
    return found


def draw(kind, shape):
    if kind in ("int8", "uint8"):
        return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
    return RNG.standard_normal(shape).astype(kind)


@tw.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, counts_ptr, rows_ptr, SUM: tl.constexpr,
    KIND: tl.constexpr, SALT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    other = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    for start in range(0, K, BLOCK_K):
        here = start + k
        a_at = a_ptr + rows[:, None] * sam + here[None, :] * sak
        a_mask = (rows[:, None] < M) & (here[None, :] < K)
        b_mask = (here[:, None] < K) & (columns[None, :] < N)
        if KIND == "counts":  # each iteration has its own number of steps
            count = tl.load(counts_ptr + start // BLOCK_K)
            a_mask, b_mask = a_mask & (k[None, :] < count), b_mask & (k[:, None] < count)
        if KIND == "rows":  # and of rows
            a_mask = a_mask & (rows[:, None] < tl.load(rows_ptr + start // BLOCK_K))
        if KIND == "whole":
            a = tl.load(a_at)
            b = tl.load(b_ptr + here[:, None] * N + columns[None, :])
        else:
            a = tl.load(a_at, mask=a_mask, other=0)
            b = tl.load(b_ptr + here[:, None] * N + columns[None, :], mask=b_mask, other=0)
        if KIND == "computed":
            a = a * 2
        if KIND == "scanned":
            a = tl.cumsum(a, 1)
        if KIND == "two":
            other = tl.dot(a + a, b, other)
        total = tl.dot(a, b, total)
        if KIND == "large":
            # memory for a while, which is not that of the iterations that wait, whatever that is on
            # this machine
            for extent in tl.static_range(2):
                many = tl.arange(0, 64 << extent)
                left = (rows[:, None] * 0 + many[None, :] < 128 + start).to(SUM)
                other = tl.dot(
                    left, (many[:, None] + columns[None, :] * 0 < 128 + start).to(SUM), other
                )
        if KIND == "read":
            other += total
        if KIND == "stored":
            tl.store(a_at, a * 0, mask=a_mask)
    if KIND == "read" or KIND == "two" or KIND == "large":
        total += other
    c_mask = (rows[:, None] < M) & (columns[None, :] < N)
    if KIND == "rows":  # what lies beyond must be seen
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=columns[None, :] < N)
    else:
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=c_mask)


def multiplied(a, b, block, kind="plain", counts=None, rows=None, transposed=False, sums=None):
    """Return the matmul of the newly compiled kernel.

    Elements that it does not write keep poison values.
    """
    (m, k), n, sums = a.shape, b.shape[1], sums or SUMS[a.dtype.name]
    c = np.full((m, n), 77, NUMPY[sums])
    stored, strides = (np.ascontiguousarray(a.T), (1, m)) if transposed else (a.copy(), (k, 1))
    some = np.zeros(1, np.int32)
    blocks = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block, strict=True))
    product[tw.cdiv(m, block[0]), tw.cdiv(n, block[1])](
        stored,
        b,
        c,
        m,
        n,
        k,
        *strides,
        some if counts is None else counts,
        some if rows is None else rows,
        SUM=sums,
        KIND=kind,
        SALT=next(SALTS),
        **blocks,
    )
    return c


def exact(a, b):
    return a.astype(np.int64 if a.dtype.kind in "iu" else np.float64) @ b.astype(
        np.int64 if b.dtype.kind in "iu" else np.float64
    )


def is_close(found, wanted):
    return np.abs(found - wanted).max(initial=0) <= 1e-5 * max(1, np.abs(wanted).max(initial=0))


@pytest.mark.each_value
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", SUMS)
def test_bits_are_those_of_one_iteration_after_the_other(kind, transposed, queued, monkeypatch):
    sizes = (
        ((64, 64, 16), (128, 64, 256))
        if transposed
        else ((64, 64, 0), (64, 64, 16), (61, 70, 259), (64, 2048, 64), (3, 130, 100))
    )
    cases = [(size, block) for size in sizes for block in ((64, 64, 16), (32, 32, 8))]
    operands = [(draw(kind, (m, k)), draw(kind, (k, n))) for (m, n, k), _ in cases]

    def results():
        return [
            multiplied(a, b, block, "whole" if transposed else "plain", transposed=transposed)
            for (a, b), (_, block) in zip(operands, cases, strict=True)
        ]

    together = results()
    assert queued
    queued.clear()
    monkeypatch.setattr(dot, "can_be_batched", lambda analysis, operation: False)
    alone = results()
    assert not queued
    for (a, b), found, wanted in zip(operands, together, alone, strict=True):
        assert found.tobytes() == wanted.tobytes()
        assert is_close(found, exact(a, b))


def test_accumulators_that_are_rounded_in_every_iteration(queued):
    a, b = draw("float16", (64, 160)), draw("float16", (160, 64))
    found = multiplied(a, b, (64, 64, 16), sums=tl.float16)
    assert not queued and np.abs(found - exact(a, b)).max() < 0.1


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_iterations_with_steps_of_their_own(kind, queued):
    a, b, counts = (
        draw(kind, (64, 160)),
        draw(kind, (160, 64)),
        np.array([16, 3, 16, 0, 16, 16, 16, 1, 16, 15], np.int32),
    )
    found = multiplied(a, b, (64, 64, 16), "counts", counts=counts)
    assert queued
    kept = np.arange(160) % 16 < np.repeat(counts, 16)
    assert is_close(found, exact(a[:, kept], b[kept]))


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_rows_that_differ_between_iterations(kind):
    a, b, rows = (
        draw(kind, (64, 96)),
        draw(kind, (96, 64)),
        np.array([64, 5, 64, 1, 0, 64], np.int32),
    )
    found = multiplied(a, b, (64, 64, 16), "rows", rows=rows)
    seen = np.arange(64)[:, None] < np.repeat(rows, 16)[None, :]
    assert is_close(found, exact(a * seen, b))


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [("read", 0), ("stored", 0), ("computed", 0), ("scanned", 0), ("two", 1), ("large", 1)],
)
def test_what_minds_is_added_up_at_once(kind, waiting, queued):
    a, b = draw("float32", (64, 160)), draw("float32", (160, 64))
    found = multiplied(a, b, (64, 64, 16), kind)
    assert len(queued) == waiting
    parts = [exact(a[:, k : k + 16], b[k : k + 16]) for k in range(0, 160, 16)]
    running = np.cumsum(parts, 0)
    scanned = np.cumsum(a.reshape(64, 10, 16).astype(np.float64), 2).reshape(64, 160)
    wanted = {
        "read": running[-1] + running.sum(0),
        "stored": running[-1],
        "computed": 2 * running[-1],
        "scanned": exact(scanned, b),
        "two": 3 * running[-1],
        "large": running[-1] + 10 * (64 + 128),
    }
    assert is_close(found, wanted[kind])


@tw.jit
def tile_after_tile(
    a_ptr, b_ptr, c_ptr, K, sbk, tiles, SALT: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr
):
    """One program's matmuls of several blocks of rows, each of which reads the previous result."""
    at, k = tl.arange(0, N), tl.arange(0, BLOCK)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        total = tl.zeros((N, N), dtype=tl.float32)
        for start in tl.range(0, K.to(tl.int64), BLOCK):
            a = tl.load(a_ptr + (tile * N + at[:, None]) * K + start + k[None, :])
            b = tl.load(b_ptr + (start + k[:, None]) * sbk + at[None, :])
            total = tl.dot(a, b, total)
        tl.store(c_ptr + (tile * N + at[:, None]) * N + at[None, :], total)
        tl.store(b_ptr + at[:, None] * sbk + at[None, :], total)


def test_loops_in_loops(queued):
    a, b, c = (
        draw("float32", (3 * 64, 128)) / 16,
        draw("float32", (128, 64)),
        np.full((3 * 64, 64), np.nan, np.float32),
    )
    wanted, right = [], b.astype(np.float64)
    for tile in range(3):
        wanted.append(a[64 * tile : 64 * tile + 64] @ right)
        right[:64] = wanted[-1]
    tile_after_tile[1,](a, b, c, 128, 64, 3, SALT=next(SALTS), N=64, BLOCK=16)
    assert queued and is_close(c, np.concatenate(wanted))


@pytest.mark.parametrize(
    ("steps", "k_groups", "bytes_each", "depth"),
    [(64, 192, 1 << 10, 3), (64, 64, 1 << 10, 1), (8, 1 << 10, 1 << 10, 16), (8, 64, 1 << 18, 2)],
)
def test_batch_depth(steps, k_groups, bytes_each, depth):
    assert batch_depth(steps, k_groups, bytes_each, 1 << 19) == depth
