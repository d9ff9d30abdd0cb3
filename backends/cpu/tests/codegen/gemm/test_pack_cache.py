"""The packed-operand cache: it hits, and no program ever sees an operand that is not its own."""

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright_cpu.codegen.gemm.pack_cache import WAYS
from tilewright_cpu.threading.pool import PACE_SECONDS, pool

RNG = np.random.default_rng(0)
#: makes kernels that are compiled anew in each test
SALTS = itertools.count()
M, N, K, DEEP, BLOCK = 512, 64, 128, 32, 128
PROGRAMS = M // BLOCK


def set_pace(cycles: int) -> None:
    """Measure how long a thread runs programs in one call of the kernel's function."""
    pool()._set("pace", ctypes.c_int64, cycles)


@pytest.fixture(autouse=True)
def unhurried(tmp_path: Any, monkeypatch: Any) -> Any:
    """Launches in one thread run all their programs in one call of the kernel's function, however
    long they take."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    set_pace(1 << 60)
    yield
    set_pace(max(1, int(PACE_SECONDS * pool().cycles_per_second)))


def run(
    kernel: Any,
    programs: int,
    a: np.ndarray,
    b: np.ndarray,
    rows: int,
    *arguments: Any,
    **options: Any,
) -> np.ndarray:
    """Return the matmul that a kernel computes, of ``rows`` rows and N columns."""
    salt, threads = next(SALTS), options.pop("num_threads", 1)
    # how long a program takes is not known before the first launch, which runs one at a time
    for here, there in ((a.copy(), b.copy()), (a.copy(), b.copy())):
        c = np.full((rows, N), 77, np.float32)
        kernel[(programs,)](
            here,
            there,
            c,
            *arguments,
            SALT=salt,
            N=N,
            DEEP=DEEP,
            BLOCK=BLOCK,
            num_threads=threads,
            **options,
        )
    return c


def draw(*shape: int) -> np.ndarray:
    """Random halves, which no machine multiplies before they are packed."""
    return RNG.standard_normal(shape).astype(np.float16)


def check(c: np.ndarray, exact: np.ndarray) -> None:
    assert np.abs(c - exact).max() < 1e-3


def product_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


@tw.jit
def spoiling(
    a_ptr,
    b_ptr,
    c_ptr,
    SALT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Stores zeros over all of B at a program's end: a race that shows which programs read B
    anew."""
    rows, columns, inner = (
        tl.program_id(0) * BLOCK + tl.arange(0, BLOCK),
        tl.arange(0, N),
        tl.arange(0, DEEP),
    )
    total = tl.zeros((BLOCK, N), dtype=tl.float32)
    for k in range(0, K, DEEP):
        a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :])
        b = tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :])
        total += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)
    for k in range(0, K, DEEP):
        tl.store(
            b_ptr + (k + inner)[:, None] * N + columns[None, :],
            tl.zeros((DEEP, N), dtype=tl.float16),
        )


@pytest.mark.parametrize("pace", [1, 1 << 60], ids=["a call each", "in one call"])
def test_programs_that_follow_each_other_do_not_pack_again(pace: int) -> None:
    a, b = draw(M, K), draw(K, N)
    set_pace(pace)
    check(run(spoiling, PROGRAMS, a, b, M, K=K), product_of(a, b))


@tw.jit
def spoiling_rows(
    a_ptr,
    b_ptr,
    c_ptr,
    SALT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Blocks of rows follow each other faster than those of columns; each program stores zeros over
    its rows of A at its end."""
    rows, columns, inner = (
        tl.program_id(0) % ROWS * BLOCK + tl.arange(0, BLOCK),
        tl.program_id(0) // ROWS * 16 + tl.arange(0, 16),
        tl.arange(0, DEEP),
    )
    total = tl.zeros((BLOCK, 16), dtype=tl.float32)
    for k in range(0, K, DEEP):
        a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :])
        b = tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :])
        total += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)
    for k in range(0, K, DEEP):
        tl.store(
            a_ptr + rows[:, None] * K + (k + inner)[None, :],
            tl.zeros((BLOCK, DEEP), dtype=tl.float16),
        )


@pytest.mark.parametrize("pace", [1, 1 << 60], ids=["a call each", "in one call"])
@pytest.mark.parametrize("rows", [1, 4, WAYS, WAYS + 1])
def test_programs_of_the_next_columns_do_not_pack_the_same_rows_again(rows: int, pace: int) -> None:
    a, b = draw(rows * BLOCK, K), draw(K, N)
    set_pace(pace)
    found, exact = (
        run(spoiling_rows, rows * N // 16, a, b, rows * BLOCK, K=K, ROWS=rows),
        product_of(a, b),
    )
    check(found[:, :16], exact[:, :16])
    if rows > WAYS:  # each row was replaced before it came again
        exact[:, 16:] = 0
    check(found, exact)


def test_a_launch_sees_what_was_stored_since_the_last_one() -> None:
    a, b, c, salt = draw(M, K), draw(K, N), np.zeros((M, N), np.float32), next(SALTS)
    set_pace(1)
    for _ in range(4):
        blocks[(2 * PROGRAMS,)](
            a, b, c, K, SALT=salt, N=N, DEEP=DEEP, BLOCK=BLOCK, NARROW=32, num_threads=1
        )
        check(c, product_of(a, b))
        a[:], b[:] = draw(M, K), draw(K, N)


def test_the_cache_is_freed() -> None:
    resource = pytest.importorskip("resource")
    a, b, c, salt = draw(M, 4 * K), draw(4 * K, N), np.zeros((M, N), np.float32), next(SALTS)

    def launch(times: int) -> Any:
        for _ in range(times):
            blocks[(2 * PROGRAMS,)](
                a, b, c, 4 * K, SALT=salt, N=N, DEEP=DEEP, BLOCK=BLOCK, NARROW=32, num_threads=2
            )
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    set_pace(1)
    before = launch(20)
    # each launch caches at least the elements of A in 16 bits
    assert launch(400) - before < 200 * a.nbytes >> 10


@tw.jit
def refilled(
    a_ptr,
    b_ptr,
    c_ptr,
    SALT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    WHERE: tl.constexpr,
):
    """Each program increments B before it multiplies by it, before or inside of the loop.

    Only one program may run at a time.
    """
    program = tl.program_id(0)
    rows, columns, inner = (
        program * BLOCK + tl.arange(0, BLOCK),
        tl.arange(0, N),
        tl.arange(0, DEEP),
    )
    if WHERE == "before":
        for k in range(0, K, DEEP):
            at = b_ptr + (k + inner)[:, None] * N + columns[None, :]
            tl.store(at, tl.load(at) + 1)
    total = tl.zeros((BLOCK, N), dtype=tl.float32)
    for k in range(0, K, DEEP):
        at = b_ptr + (k + inner)[:, None] * N + columns[None, :]
        if WHERE == "in":
            tl.store(at, tl.load(at) + 1)
        a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :])
        total += tl.dot(a, tl.load(at))
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)
    if WHERE == "atomic":
        for k in range(0, K, DEEP):
            tl.atomic_add(b_ptr + (k + inner)[:, None] * N + columns[None, :], 1.0)


@pytest.mark.parametrize("where", ["before", "in", "atomic"])
def test_what_programs_store_in_between_is_seen(where: str) -> None:
    a, b = draw(M, K), draw(K, N)
    exact, seen = [], b.copy()
    for program in range(PROGRAMS):
        seen = seen if program == 0 and where == "atomic" else seen + np.float16(1)
        exact.append(product_of(a[program * BLOCK : (program + 1) * BLOCK], seen))
    check(run(refilled, PROGRAMS, a, b, M, K=K, WHERE=where), np.concatenate(exact))


@tw.jit
def seen(
    a_ptr,
    b_ptr,
    c_ptr,
    SALT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    HOW: tl.constexpr,
):
    """Programs read the same addresses in their own way: those with an odd number B transposed, or
    every other row of it, or each more columns than the one before."""
    program = tl.program_id(0)
    rows, columns, inner = (
        program * BLOCK + tl.arange(0, BLOCK),
        tl.arange(0, N),
        tl.arange(0, DEEP),
    )
    turned = HOW == "turned" and program % 2 == 1
    stride_k, stride_n = tl.where(turned, 1, N), tl.where(turned, K, 1)
    if HOW == "apart":
        stride_k, stride_n = N * (1 + program % 2), 1
    there = (program + 1) * 16 if HOW == "masked" else N
    total = tl.zeros((BLOCK, N), dtype=tl.float32)
    for k in range(0, K, DEEP):
        a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :])
        b = tl.load(
            b_ptr + (k + inner)[:, None] * stride_k + columns[None, :] * stride_n,
            mask=columns[None, :] < there,
            other=0.0,
        )
        total += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


@pytest.mark.parametrize("how", ["turned", "apart", "masked"])
def test_programs_with_a_view_of_their_own(how: str) -> None:
    a, b = draw(M, K), draw(2 * K if how == "apart" else K, N)
    others = {
        "turned": lambda: b.reshape(N, K).T,
        "apart": lambda: b[::2],
        "masked": lambda: b[:K].copy(),
    }[how]
    views = [others() if program % 2 else b[:K].copy() for program in range(PROGRAMS)]
    if how == "masked":
        for program, view in enumerate(views):
            view[:, (program + 1) * 16 :] = 0
    check(
        run(seen, PROGRAMS, a, b, M, K=K, HOW=how),
        np.concatenate(
            [
                product_of(a[program * BLOCK : (program + 1) * BLOCK], view)
                for program, view in enumerate(views)
            ]
        ),
    )


@tw.jit
def every(
    a_ptr,
    b_ptr,
    c_ptr,
    SALT: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    OF: tl.constexpr,
):
    """Programs read an operand from the same address on, those with an odd number every second row
    of it only."""
    program, both, columns, inner = (
        tl.program_id(0),
        tl.arange(0, BLOCK),
        tl.arange(0, N),
        tl.arange(0, DEEP),
    )
    step_a, step_b = 1 + program % 2 * (OF == "a"), 1 + program % 2 * (OF == "b")
    total = tl.zeros((BLOCK, N), dtype=tl.float32)
    for k in range(0, K, DEEP):
        a = tl.load(a_ptr + both[:, None] * (step_a * K) + (k + inner)[None, :])
        b = tl.load(b_ptr + k * N + inner[:, None] * (step_b * N) + columns[None, :])
        total += tl.dot(a, b)
    tl.store(c_ptr + (program * BLOCK + both)[:, None] * N + columns[None, :], total)


@pytest.mark.parametrize("operand", ["a", "b"])
def test_strides_tell_apart_what_begins_at_the_same_address(operand: str) -> None:
    a, b, exact = draw(2 * BLOCK, K), draw(K + DEEP, N), []
    for step in (1, 2, 1, 2):
        here = a[:: step if operand == "a" else 1][:BLOCK]
        inner = np.concatenate(
            [k + np.arange(DEEP) * (step if operand == "b" else 1) for k in range(0, K, DEEP)]
        )
        exact.append(product_of(here, b[inner]))
    check(run(every, 4, a, b, 4 * BLOCK, K=K, OF=operand), np.concatenate(exact))


@tw.jit
def blocks(
    a_ptr,
    b_ptr,
    c_ptr,
    K,
    SALT: tl.constexpr,
    N: tl.constexpr,
    DEEP: tl.constexpr,
    BLOCK: tl.constexpr,
    NARROW: tl.constexpr,
):
    """Blocks of columns follow each other faster than those of rows; K is not known."""
    at = tl.program_id(0) % (N // NARROW) * NARROW
    rows, columns, inner = (
        tl.program_id(0) // (N // NARROW) * BLOCK + tl.arange(0, BLOCK),
        at + tl.arange(0, NARROW),
        tl.arange(0, DEEP),
    )
    total = tl.zeros((BLOCK, NARROW), dtype=tl.float32)
    for k in range(0, K, DEEP):
        a = tl.load(
            a_ptr + rows[:, None] * K + (k + inner)[None, :],
            mask=(k + inner)[None, :] < K,
            other=0.0,
        )
        b = tl.load(
            b_ptr + (k + inner)[:, None] * N + columns[None, :],
            mask=(k + inner)[:, None] < K,
            other=0.0,
        )
        total += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


@pytest.mark.each_value
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [1, 32, 33, 500, 9000])
def test_as_many_tiles_as_the_cache_holds_and_more(depth: int, threads: int) -> None:
    a, b = draw(M, depth), draw(depth, N)
    c = run(blocks, 2 * PROGRAMS, a, b, M, depth, NARROW=32, num_threads=threads)
    assert np.abs(c - product_of(a, b)).max() < 1e-2
