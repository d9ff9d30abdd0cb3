"""Bounds checks of a whole loop nest: reports if and only if an active lane is outside.

The corners of the tile may lie anywhere.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import KernelError
from tilewright.language.definitions.callable import device_function
from tilewright_cpu.status import OUT_OF_BOUNDS

ROWS, COLUMNS = 8, 16
EXTENTS = [(8, 16), (1, 64), (16, 4), (64, 1), (4, 128)]


@device_function
def stores(y, flags, start, rows, columns, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    on = (i < rows) & (j < columns) & (tl.load(flags + i * COLUMNS + j) != 0)
    tl.store(y + start + i * down + j * right, 1.0, mask=on)


@device_function
def loads(y, flags, start, rows, columns, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    on = (i < rows) & (j < columns) & (tl.load(flags + i * COLUMNS + j) != 0)
    tl.store(
        flags + i * COLUMNS + j,
        tl.load(y + start + i * down + j * right, mask=on, other=0.0).to(tl.int8),
    )


@device_function
def stores_rows(
    y, flags, start, rows, columns, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(y + start + i * down + j, 1.0, mask=(i < rows) & (j < columns))


@device_function
def reduces(y, flags, start, rows, columns, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    on = (i < rows) & (j < columns) & (tl.load(flags + i * COLUMNS + j) != 0)
    tl.store(
        flags + tl.arange(0, ROWS),
        tl.sum(tl.load(y + start + i * down + j * right, mask=on, other=0.0), axis=1).to(tl.int8),
    )


KERNELS = [stores, loads, stores_rows, reduces]


@pytest.fixture(scope="module")
def checked(module_of: Any, compiled: Any) -> Any:
    known: dict[Any, Any] = {}

    def get(kernel: Any, rows: int = ROWS, columns: int = COLUMNS) -> Any:
        key = (kernel.__name__, rows, columns)
        if key not in known:
            arguments = [np.zeros(4, np.float32), np.zeros(4, np.int8), 0, 0, 0, 0, 0]
            known[key] = compiled(
                module_of(kernel, arguments, ROWS=rows, COLUMNS=columns), {"debug": True}
            )
        return known[key]

    return get


def offsets(
    kernel: Any, flags: np.ndarray, rows: int, columns: int, down: int, right: int
) -> np.ndarray:
    """The offsets, from the start, of the lanes that are on."""
    i, j = np.indices(flags.shape, np.int64)
    on = (i < rows) & (j < columns)
    if kernel is not stores_rows:
        on &= flags != 0
    return (i * down + j * (1 if kernel is stores_rows else right))[on]


@pytest.mark.each_value
@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_reports_if_and_only_if_an_active_lane_is_outside(
    kernel: Any, extents: tuple[int, int], checked: Any, guarded: Any
) -> None:
    run, random, height, width = checked(kernel, *extents), np.random.default_rng(7), *extents
    reported = 0
    for turn in range(60):
        flags = (random.random(extents) < random.choice([0.0, 0.02, 0.5, 1.0])).astype(np.int8)
        flags[random.integers(height), random.integers(width)] = 1
        rows, columns = (
            int(random.choice([0, 1, extent - 1, extent, extent + 5])) for extent in extents
        )
        down, right = (
            int(random.choice([0, width, width + 3, -width, 1 - 2 * width])),
            int(random.choice([1, 1, 2, -1, 0, -3])),
        )
        reached = offsets(kernel, flags, rows, columns, down, right)
        low, high = (int(reached.min()), int(reached.max())) if reached.size else (0, 0)
        size = high - low + 1 + int(random.integers(3))
        # the lanes fill the array to the last element, lie one beside it, or far away
        start = -low + int(
            random.choice(
                [0, size - 1 - (high - low), -1, size - (high - low), 1 << 20, -(1 << 20)]
            )
        )
        wild = bool(reached.size) and (start + low < 0 or start + high >= size)
        y, *_ = guarded(
            run, [np.zeros(size, np.float32), flags, start, rows, columns, down, right], (1, 1, 1)
        )
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (
            turn,
            start,
            size,
            rows,
            columns,
            down,
            right,
        )
        reported += wild
        if kernel in (stores, stores_rows) and not wild:
            assert np.array_equal(np.flatnonzero(y), np.unique(reached + start))
    assert 10 < reported < 50


@pytest.mark.each_value
@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("kernel", [stores, loads, reduces], ids=lambda kernel: kernel.__name__)
def test_one_lane(kernel: Any, extents: tuple[int, int], checked: Any, guarded: Any) -> None:
    """The lane alone, on or off, that is outside: the first and the last of the tile, of a row, and
    of a column."""
    run, (height, width) = checked(kernel, *extents), extents
    for row, column in {
        (0, 0),
        (height - 1, width - 1),
        (0, width - 1),
        (height - 1, 0),
        (height // 2, width // 2),
    }:
        flags = np.zeros(extents, np.int8)
        flags[row, column] = 1
        at = row * width + column
        for size, start, wild in (
            (1, -at, False),
            (1, 1 - at, True),
            (1, -1 - at, True),
            (7, 6 - at, False),
            (7, 7 - at, True),
        ):
            guarded(
                run, [np.zeros(size, np.float32), flags, start, height, width, width, 1], (1, 1, 1)
            )
            assert (run.status[0] == OUT_OF_BOUNDS) == wild, (row, column, start)
        # all lanes but this one: it is where the array ends, or begins
        if (row, column) in ((0, 0), (height - 1, width - 1)) and height * width > 1:
            start = -1 if (row, column) == (0, 0) else 0
            guarded(
                run,
                [
                    np.zeros(height * width - 1, np.float32),
                    1 - flags,
                    start,
                    height,
                    width,
                    width,
                    1,
                ],
                (1, 1, 1),
            )
            assert run.status[0] == 0
            guarded(
                run,
                [
                    np.zeros(height * width - 1, np.float32),
                    np.ones_like(flags),
                    start,
                    height,
                    width,
                    width,
                    1,
                ],
                (1, 1, 1),
            )
            assert run.status[0] == OUT_OF_BOUNDS


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_an_array_of_no_elements(kernel: Any, checked: Any, guarded: Any) -> None:
    run, flags = checked(kernel), np.ones((ROWS, COLUMNS), np.int8)
    empty = np.zeros(0, np.float32)
    for rows, columns, wild in (
        (0, COLUMNS, False),
        (ROWS, 0, False),
        (1, 1, True),
        (ROWS, COLUMNS, True),
        (-5, 3, False),
    ):
        guarded(run, [empty, flags.copy(), 0, rows, columns, COLUMNS, 1], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (rows, columns)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_offsets_that_overflow(kernel: Any, checked: Any, guarded: Any) -> None:
    """Of 17 rows 2**28 elements apart the last one is, in 32 bits, where the first one is, those
    between are not."""
    run = checked(kernel, 32, 4)
    flags, y = np.ones((32, 4), np.int8), np.zeros(4, np.float32)
    for rows, wild in ((1, False), (2, True), (16, True), (17, True), (32, True)):
        guarded(run, [y, flags.copy(), 0, rows, 4, 1 << 28, 1], (1, 1, 1))
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, rows
    if kernel is not stores_rows:
        flags[1:16] = 0
        flags[17:] = 0
        guarded(run, [y, flags, 0, 32, 4, 1 << 28, 1], (1, 1, 1))
        assert run.status[0] == 0


@device_function
def strided(x, y, rows, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(
        y + i * COLUMNS + j,
        tl.load(x + i.to(tl.int64) * down + j.to(tl.int64) * right, mask=i < rows, other=0.0),
    )


@pytest.mark.parametrize(
    "far", [2**59, -(2**59), 2**61, -(2**61), 2**62, -(2**62), 2**63 - 1, -(2**63), 2**58, 2**60]
)
def test_strides_of_any_size(far: int, module_of: Any, compiled: Any, guarded: Any) -> None:
    """Rows so far from each other that their distances overflow: some of them come back to where
    the first one is."""
    x, y = np.arange(16, dtype=np.float32), np.zeros(16 * 4, np.float32)
    run = compiled(
        module_of(strided, [x, y, 0, 0, 0], {"down": "i64", "right": "i64"}, ROWS=16, COLUMNS=4),
        {"debug": True},
    )
    for rows in (1, 2, 9, 16):
        guarded(run, [x, y, rows, far, 1], (1, 1, 1))
        # in bytes, and modulo 2**64
        assert (run.status[0] == OUT_OF_BOUNDS) == any(
            (row * far * 4) % 2**64 for row in range(rows)
        ), rows
    guarded(run, [x, y, 16, 0, 1], (1, 1, 1))
    assert run.status[0] == 0


@device_function
def looks_up(x, y, rows, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = tl.load(rows + i)[:, None] * stride + j[None, :]
    tl.store(y + i[:, None] * COLUMNS + j[None, :], tl.load(x + at, mask=at >= 0, other=-1.0))


def test_rows_that_are_looked_up_are_checked_one_by_one(
    module_of: Any, compiled: Any, guarded: Any
) -> None:
    x, y = np.arange(40, dtype=np.float32), np.zeros(8 * 4, np.float32)
    run = compiled(
        module_of(looks_up, [x, y, np.zeros(8, np.int32), 0], ROWS=8, COLUMNS=4), {"debug": True}
    )
    for wild in (-1, 10, 9, 0):
        for row in range(8):
            rows = np.arange(8, dtype=np.int32)
            rows[row] = wild
            found = guarded(run, [x, y, rows, 4], (1, 1, 1))[1]
            assert (run.status[0] == OUT_OF_BOUNDS) == (wild == 10), (wild, row)
            if wild != 10:
                assert np.array_equal(
                    found.reshape(8, 4)[row], [-1] * 4 if wild < 0 else x[4 * wild : 4 * wild + 4]
                )


@device_function
def chosen(x, y, flags, which, start, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    target = x if which > 0 else y
    tl.store(target + start + i, 1.0, mask=tl.load(flags + i) != 0)


def test_both_corners_are_in_the_same_argument(module_of: Any, compiled: Any) -> None:
    """A span from one argument's memory into another's is outside, even where every lane is in one
    of them."""
    memory, flags = np.zeros(256, np.float32), np.ones(64, np.int8)
    run = compiled(module_of(chosen, [memory, memory, flags, 0, 0], BLOCK=64), {"debug": True})
    first, second = memory[:64].copy(), memory[128:192].copy()
    for which in (0, 1):
        for start, wild in ((0, False), (1, True), (-1, True)):
            run([first, second, flags, which, start], (1, 1, 1))
            assert (run.status[0] == OUT_OF_BOUNDS) == wild
    # two arguments with a hole between them, which only lanes that are off lie in
    slots = run.pack([memory[:16], memory[48:64], flags, 1, 0], (1, 1, 1))
    for off, wild in ((True, False), (False, True)):
        flags[16:48] = not off
        run.status[:] = 0
        run.function(slots.ctypes.data, 0, 1)
        assert (run.status[0] == OUT_OF_BOUNDS) == wild


# ---- when nothing but the corners is looked at


@device_function
def copies_where_flagged(x, y, flags, start, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + start + i, tl.load(x + start + i, mask=tl.load(flags + i) != 0, other=0.0))


@device_function
def gathers_columns(x, y, flags, start, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(
        y + i * COLUMNS + j,
        tl.load(
            x + j.to(tl.int64) * ROWS + i + start,
            mask=tl.load(flags + i * COLUMNS + j) != 0,
            other=0.0,
        ),
    )


@device_function
def goes_on(x, y, flags, start, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    for turn in range(2):
        at = (start + turn * ROWS // 2 + i) * COLUMNS + j
        tl.store(
            y + at,
            2.0 * tl.load(x + at, mask=(i < ROWS // 2) & (tl.load(flags + i * COLUMNS + j) != 0)),
            mask=i < ROWS // 2,
        )


@pytest.fixture
def exact_checks_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is compiled now takes every lane for outside that is looked at on its own, or among
    those of its row; a single row may be looked at as one."""
    from tilewright_cpu.codegen.sanitizer import bounds

    monkeypatch.setattr(
        bounds,
        "_inside",
        lambda context, operation, number, size, width=0: "zeroinitializer" if width else "false",
    )
    before = bounds._Row._before

    def bytes_before(row: bounds._Row) -> str:
        return (
            before(row)
            if len(row.first) == 1 and bounds.is_span(row.context, row.operation)
            else str(-(2**62))
        )

    monkeypatch.setattr(bounds._Row, "_before", bytes_before)


#: Single rows are looked at as a whole, without corners; so is the one sum of a reduction.
_WITH_CORNERS = [
    (kernel, extents)
    for kernel in KERNELS
    for extents in EXTENTS
    if 1 not in extents or kernel in (stores, loads)
]


@pytest.mark.parametrize(
    ("kernel", "extents"), _WITH_CORNERS, ids=lambda value: getattr(value, "__name__", None)
)
def test_whole_tiles_that_are_inside_are_looked_at_by_their_corners_alone(
    kernel: Any, extents: tuple[int, int], module_of: Any, compiled: Any, exact_checks_tell: None
) -> None:
    height, width = extents
    y, flags = np.zeros(height * width, np.float32), np.ones(extents, np.int8)
    run = compiled(
        module_of(kernel, [y, flags, 0, 0, 0, 0, 0], ROWS=height, COLUMNS=width), {"debug": True}
    )
    # rows of a store that a bound leaves out are passed over; those of what is read and kept are
    # written as at an edge
    for rows in (height, max(1, height - 1)) if kernel in (stores, stores_rows) else (height,):
        for columns in (width, max(1, width - 1)):
            run([y, flags.copy(), 0, rows, columns, width, 1])
            assert run.status[0] == 0, (rows, columns)
    flags[-1, -1] = 0
    run([y[:-1].copy(), flags, 0, height, width, width, 1])
    assert (
        run.status[0] == OUT_OF_BOUNDS
    )  # a corner that nothing touches is not inside: every lane is looked at


@pytest.mark.parametrize(
    "kernel", [copies_where_flagged, gathers_columns, goes_on], ids=lambda kernel: kernel.__name__
)
def test_accesses_of_many_forms_are_looked_at_by_their_corners_alone(
    kernel: Any, module_of: Any, compiled: Any, exact_checks_tell: None
) -> None:
    constants = {"BLOCK": 64} if kernel is copies_where_flagged else {"ROWS": 8, "COLUMNS": 8}
    x, y, flags = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.ones(64, np.int8)
    run = compiled(module_of(kernel, [x, y, flags, 0], **constants), {"debug": True})
    run([x, y, flags, 0])
    assert run.status[0] == 0
    assert np.array_equal(
        y,
        {copies_where_flagged: x, gathers_columns: x.reshape(8, 8).T.ravel(), goes_on: 2 * x}[
            kernel
        ],
    )
    run([x, y, flags, 1])
    assert run.status[0] == OUT_OF_BOUNDS


# ---- what an assertion has read already


@tw.jit
def asserted_in_a_branch(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + start + i)
    if n > 0:
        tl.device_assert(a != 7, "seven")
    tl.store(y + i, a)


@tw.jit
def asserted_in_a_loop(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for turn in range(n):
        a = tl.load(x + start * turn + i)
        tl.device_assert(a != 7, "seven")
        tl.store(y + i, a)


@tw.jit
def asserted_at_ends(x, y, start, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + start + i)
    tl.device_assert(i + n < 1000, "far")
    tl.store(y + i, a)


@pytest.mark.parametrize(
    "kernel",
    [asserted_in_a_branch, asserted_in_a_loop, asserted_at_ends],
    ids=lambda kernel: kernel.__name__,
)
def test_what_an_assertion_has_read_is_checked_once(kernel: Any) -> None:
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    for n in (0, 1, 2, 5):
        for start in (0, 1, -1, 64):
            wild = start != 0 and (kernel is not asserted_in_a_loop or n > 1)
            with (
                pytest.raises(KernelError, match="load outside the memory of argument 'x'")
                if wild
                else nullcontext()
            ):
                kernel[(1,)](x, y, start, n, BLOCK=64, backend="cpu", debug=True)


# ---- pages that nobody may touch


@pytest.fixture
def page_end() -> Any:
    """``page_end(array)``: a copy that ends where a page begins that nobody may touch."""
    if not hasattr(mmap, "PROT_READ") or sys.platform == "darwin":
        pytest.skip("pages are not protected here")
    libc, held = ctypes.CDLL(None, use_errno=True), []

    def make(array: np.ndarray) -> np.ndarray:
        pages = -(-array.nbytes // mmap.PAGESIZE)
        memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        whole = np.frombuffer(memory, np.uint8)
        end = whole.ctypes.data + pages * mmap.PAGESIZE
        assert libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        held.append((memory, whole, end))
        copy = (
            whole[pages * mmap.PAGESIZE - array.nbytes : pages * mmap.PAGESIZE]
            .view(array.dtype)
            .reshape(array.shape)
        )
        copy[...] = array
        return copy

    yield make
    for _, _, end in held:
        libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 3)


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_arrays_at_the_end_of_a_page(
    kernel: Any, extents: tuple[int, int], checked: Any, page_end: Any
) -> None:
    """Whole tiles and cut ones, inside to the last byte, one element beyond, and with lanes that
    are off far beyond."""
    run, (height, width) = checked(kernel, *extents), extents
    y = page_end(np.zeros(height * width, np.float32))
    ones = np.ones(extents, np.int8)
    for rows, columns, start in (
        (height, width, 0),
        (height, width, 1),
        (max(1, height - 1), width, 0),
        (height, max(1, width - 1), 1),
        (height, width, 5000),
    ):
        wild = start + (rows - 1) * width + columns > height * width
        run([y, page_end(ones), start, rows, columns, width, 1])
        assert (run.status[0] == OUT_OF_BOUNDS) == wild, (rows, columns, start)
    if kernel is not stores_rows:
        one = np.zeros(extents, np.int8)
        one[0, 0] = 1
        run([y, page_end(one), height * width - 1, height, width, width, 1])
        assert run.status[0] == 0


# ---- launches


@tw.jit
def scale(
    x_ptr, flag_ptr, out_ptr, rows, columns, down, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    on = (i < rows) & (j < columns)
    x = tl.load(  # here: scale
        x_ptr + i * down + j * right,
        mask=on & (tl.load(flag_ptr + i * columns + j, mask=on, other=0) != 0),
        other=0.0,
    )
    tl.store(out_ptr + i * columns + j, 2.0 * x, mask=on)


@pytest.mark.parametrize(
    "view",
    [
        np.s_[:, :],
        np.s_[::2, ::3],
        np.s_[::-1, :],
        np.s_[:, ::-1],
        np.s_[::-2, ::-1],
        np.s_[5:, 2:],
    ],
)
def test_views_reach_their_elements_and_no_others(view: Any) -> None:
    whole = np.random.default_rng(3).standard_normal((37, 29)).astype(np.float32)
    x = whole[view]
    rows, columns = x.shape
    flags, out = np.ones(x.shape, np.int8), np.zeros(x.shape, np.float32)
    down, right = (step // 4 for step in x.strides)
    line = next(
        number
        for number, text in enumerate(open(__file__).read().splitlines(), 1)  # noqa: SIM115
        if text.endswith("# here: scale")
    )

    def run(down: int, flags: np.ndarray) -> None:
        scale[(tw.cdiv(rows, 8),)](
            x, flags, out, rows, columns, down, right, ROWS=8, COLUMNS=32, backend="cpu", debug=True
        )

    run(down, flags)
    assert np.array_equal(out, 2 * x)
    flags[rows - 1] = 0
    # one step too many in each row: far outside in the last one alone
    far = (whole.size // (rows - 1) + 1) * (1 if down > 0 else -1)
    flags[1:] = 0
    run(far, flags)
    assert np.array_equal(out[0], 2 * x[0]) and not out[1:].any()
    flags[rows - 1] = 1
    with pytest.raises(
        KernelError,
        match=(
            r"kernel scale: load outside the memory of argument 'x_ptr' at "
            rf".*:{line}:\d+.*program \({(rows - 1) // 8}, 0, 0\)"
        ),
    ):
        run(far, flags)
