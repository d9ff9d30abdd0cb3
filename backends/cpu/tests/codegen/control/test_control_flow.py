"""Loops and branches with every kind of carried value, and the memory that carried tiles share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.ir.types import BF16, F16
from tilewright.language.definitions.callable import device_function
from tilewright.llvm.codegen.link import load_object
from tilewright.reference.numerics import encode, numpy_dtype
from tilewright_cpu.codegen.control.cancellation import FIRST, FIRST_OF_SCALARS
from tilewright_cpu.status import STATUS_WORDS, poll_symbol

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.int32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


# ---- for


@device_function
def swap(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + at), tl.load(x + BLOCK + at), tl.load(x + 2 * BLOCK + at)
    s, t = 1, 2
    for i in range(n):
        a, b, c = b, c, a + i
        s, t = t, s + t
    tl.store(o + at, a)
    tl.store(o + BLOCK + at, b)
    tl.store(o + 2 * BLOCK + at, c)
    tl.store(o + 3 * BLOCK, s * 1000 + t)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("block", [1, 32])
def test_carried_values_that_change_places(n: int, block: int, kernel_agrees: Check) -> None:
    kernel_agrees(swap, [numbers(3 * block), np.zeros(3 * block + 1, np.int32), n], BLOCK=block)


@device_function
def mixed_places(x, o, n, BLOCK: tl.constexpr):
    """Carried tiles that read each other at other coordinates, or through sums of each other."""
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at[:, None] * BLOCK + at[None, :])
    b = a + 1
    c = tl.sum(a, 0)
    for i in range(n):
        a, b = tl.trans(b) + i, a - tl.trans(a)
        c = c + tl.sum(b, 1) * tl.flip(c, 0)
    tl.store(o + at[:, None] * BLOCK + at[None, :], a)
    tl.store(o + BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], b)
    tl.store(o + 2 * BLOCK * BLOCK + at, c)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_carried_tiles_that_read_each_other_elsewhere(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(mixed_places, [numbers(64), np.zeros(8 * 17, np.int32), n], BLOCK=8)


@device_function
def bounds(o, lower, upper, STEP: tl.constexpr):
    count = 0
    last, total = lower * 0, lower * 0
    for i in range(lower, upper, STEP):
        count += 1
        last = i
        total += i * count
    tl.store(o, count)
    tl.store(o + 1, last)
    tl.store(o + 2, total)


@pytest.mark.each_value
@pytest.mark.parametrize("step", [1, 2, 3, 7, -1, -3])
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0, 10),
        (10, 0),
        (-7, 8),
        (8, -7),
        (-5, -5),
        (3, 4),
        (-(2**31), -(2**31) + 5),
        (2**31 - 8, 2**31 - 1),
    ],
)
def test_bounds_of_either_sign_with_steps(
    lower: int, upper: int, step: int, kernel_agrees: Check
) -> None:
    if (upper - lower) * step > 2**20:
        pytest.skip("too many turns")
    kernel_agrees(bounds, [np.zeros(3, np.int32), np.int32(lower), np.int32(upper)], STEP=step)


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("step", [1, 3, 5])
def test_loops_near_the_limits_of_their_counter_end(
    name: str, step: int, kernel_agrees: Check
) -> None:
    limits = np.iinfo(name)
    for lower, upper in (
        (limits.max - 7, limits.max),
        (limits.min, limits.min + 4),
        (limits.max - 1, limits.max),
        (limits.max, limits.max),
    ):
        kernel_agrees(
            bounds,
            [np.zeros(3, name), np.dtype(name).type(lower), np.dtype(name).type(upper)],
            STEP=step,
        )


@device_function
def pointers(x, o, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    p, q = x + at, o + at
    index = at
    wide = at.to(tl.int64)
    for _ in range(n):
        v = tl.load(p) + tl.load(x + index) * 2 + wide
        tl.store(q, v)
        p += stride
        q += BLOCK
        index += stride
        wide -= 3
    tl.store(q, tl.load(p) + index + wide)


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("stride", [0, 1, 5, 32])
def test_carried_pointers_and_offsets(n: int, stride: int, kernel_agrees: Check) -> None:
    kernel_agrees(
        pointers, [numbers(256, np.int64), np.zeros(32 * 5, np.int64), n, stride], BLOCK=32
    )


@device_function
def rings(x, o, n, BLOCK: tl.constexpr):
    """Pointer tiles that change places, and one that is chosen."""
    at = tl.arange(0, BLOCK)
    p, q = x + at, x + 64 - at
    for i in range(n):
        r = tl.where(tl.load(p) > tl.load(q), p, q)
        tl.store(o + i * BLOCK + at, tl.load(r))
        p, q = q, p + 1
    tl.store(o + n * BLOCK + at, tl.load(p) - tl.load(q))


@pytest.mark.parametrize("n", [0, 1, 5])
def test_pointer_tiles_that_are_kept(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(rings, [numbers(80), np.zeros(16 * 6, np.int32), n], BLOCK=16)


@device_function
def before_and_in(x, o, n, BLOCK: tl.constexpr):
    """A value that was loaded before a loop keeps its value after the loop has stored over it."""
    at = tl.arange(0, BLOCK)
    first = tl.load(x + at)
    costly = tl.exp(first.to(tl.float32) * 0.01)
    for i in range(n):
        tl.store(x + at, first + i)
        again = tl.load(x + at)
        tl.store(x + BLOCK - 1 - at, again * 2)
        tl.store(o + i * BLOCK + at, first + again + costly.to(tl.int32))
    tl.store(o + n * BLOCK + at, tl.load(x + at) + first)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_tiles_of_before_a_loop_in_it(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(before_and_in, [numbers(32), np.zeros(32 * 4, np.int32), n], BLOCK=32)


@device_function
def nested_dots(a, b, o, n, m, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    square = at[:, None] * BLOCK + at[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    largest = tl.full((BLOCK,), -1e9, tl.float32)
    for i in range(n):
        part = tl.load(a + i + square)
        for j in range(i, m):
            part = tl.dot(part * 0.25, tl.load(b + j + square), part)
            largest = tl.maximum(largest, tl.max(part, 1))
        total = tl.dot(part, tl.trans(part), total)
        if i == 1:
            total = total * 0.5
    tl.store(o + square, total)
    tl.store(o + BLOCK * BLOCK + at, largest)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 0), (2, 3), (3, 2)])
def test_nested_loops_around_a_matmul(n: int, m: int, kernel_agrees: Check) -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(16 * 16 + 8).astype(np.float32) / 8 for _ in range(2))
    kernel_agrees(nested_dots, [a, b, np.zeros(16 * 17, np.float32), n, m], BLOCK=16, relative=1e-4)


@device_function
def sums_in_loops(x, o, n, m, BLOCK: tl.constexpr):
    """Accumulators that are only added to, of which one is summed after its loop, inside another
    loop, and under a branch."""
    at = tl.arange(0, BLOCK)
    for i in range(n):
        total = tl.zeros((BLOCK,), tl.float32)
        other = tl.zeros((BLOCK,), tl.float32)
        for j in range(m):
            v = tl.load(x + (i + j) * BLOCK + at, mask=at < BLOCK - j * 5, other=0.0)
            total += v
            other += v * v
        if i % 2 == 0:
            tl.store(o + 2 * i, tl.sum(total, 0))
        tl.store(o + 2 * i + 1, tl.sum(other, 0) - tl.max(other, 0))


@pytest.mark.parametrize(("n", "m"), [(1, 0), (1, 1), (3, 4)])
@pytest.mark.parametrize("block", [16, 256])
def test_sums_over_loops(n: int, m: int, block: int, kernel_agrees: Check) -> None:
    kernel_agrees(
        sums_in_loops,
        [numbers(8 * block, np.float32), np.zeros(8, np.float32), n, m],
        BLOCK=block,
        relative=1e-5,
    )


@device_function
def _sum(a, b):
    return a + b


@device_function
def sums(x, o, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    a = tl.load(x + i[:, None] * COLUMNS + j[None, :])
    tl.store(o + i, tl.reduce(a, 1, _sum))
    tl.store(o + ROWS + j, tl.reduce(a, 0, _sum))
    tl.store(o + ROWS + COLUMNS, tl.reduce(tl.load(x + j), 0, _sum))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 4), (2, 64), (64, 2), (16, 32)])
def test_sums_of_negative_zeros_have_their_sign(
    rows: int, columns: int, module_of: Any, compiled: Any
) -> None:
    x, found = np.full((rows, columns), -0.0, np.float32), np.ones(rows + columns + 1, np.float32)
    compiled(module_of(sums, [x, found], ROWS=rows, COLUMNS=columns))([x, found])
    assert (found == 0).all() and np.signbit(found).all()


@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_sums_of_narrow_floats_are_rounded_once(
    element: str, module_of: Any, compiled: Any
) -> None:
    """Of sixteenths of what the sum's last bit is worth, each is lost where it is added on its
    own."""
    least = 2.0**-10 if element == "fp16" else 2.0**-7
    type_ = F16 if element == "fp16" else BF16
    x = np.full((16, 64), least / 16, np.float32)
    x[:, 0] = x[0] = 1
    narrow, found = encode(x, type_), np.zeros(81, numpy_dtype(type_))
    compiled(
        module_of(
            sums, [narrow, found], {"x": f"*{element}", "o": f"*{element}"}, ROWS=16, COLUMNS=64
        )
    )([narrow, found])
    exact = np.concatenate(
        [x.sum(1, dtype=np.float64), x.sum(0, dtype=np.float64), [x[0].sum(dtype=np.float64)]]
    )
    assert np.array_equal(found, encode(exact.astype(np.float32), type_))


# ---- if


@device_function
def branches(x, o, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    b = a
    s = 5
    if c > 0:
        tl.store(x + at, a + 1)
        b = tl.load(x + at) * 2
        if c > 1:
            b = tl.flip(b, 0)
            s = tl.sum(a, 0)
        else:
            s += 1
    else:
        a = a * b + 3
    tl.store(o + at, a)
    tl.store(o + BLOCK + at, b)
    tl.store(o + 2 * BLOCK, s)


@pytest.mark.parametrize("c", [-1, 1, 2])
@pytest.mark.parametrize("block", [1, 16, 64])
def test_tiles_out_of_branches(c: int, block: int, kernel_agrees: Check) -> None:
    kernel_agrees(
        branches, [numbers(block), np.zeros(2 * block + 1, np.int32), np.int32(c)], BLOCK=block
    )


@device_function
def branch_in_loop(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at).to(tl.float32)
    kept = tl.exp(a * 0.01)
    for i in range(n):
        if tl.sum(a, 0) > 0:
            a, kept = a - kept, kept + 1
        elif i % 3 == 1:
            a = a + kept * 2
        else:
            kept = tl.where(a > 0, kept, a)
            a = -a
    tl.store(o + at, a)
    tl.store(o + BLOCK + at, kept)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_branches_that_depend_on_carried_tiles(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(
        branch_in_loop, [numbers(32), np.zeros(64, np.float32), n], BLOCK=32, relative=1e-4
    )


@device_function
def early_return(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    if n == 0:
        return
    tl.store(o + at, v)
    if n == 1:
        tl.store(o + at, v + 1)
        return
    tl.store(o + BLOCK - 1 - at, v)


@pytest.mark.parametrize("n", [-3, 0, 5])
def test_early_returns(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(early_return, [numbers(16), np.zeros(16, np.int32), np.int32(n)], BLOCK=16)
    kernel_agrees(early_return, [numbers(16), np.zeros(16, np.int32), np.int64(1)], BLOCK=16)


# ---- while


@device_function
def collatz(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.abs(tl.load(x + at)) + 1
    steps = tl.zeros((BLOCK,), tl.int32)
    turns = 0
    while tl.max(v, 0) > 1:
        steps += (v > 1).to(tl.int32)
        v = tl.where(v == 1, 1, tl.where(v % 2 == 0, v // 2, 3 * v + 1))
        turns += 1
    tl.store(o + at, steps)
    tl.store(o + BLOCK, turns)


@pytest.mark.parametrize("block", [1, 8, 64])
def test_loops_that_run_while_a_tile_says_so(block: int, kernel_agrees: Check) -> None:
    kernel_agrees(collatz, [numbers(block), np.zeros(block + 1, np.int32)], BLOCK=block)


@device_function
def while_swapping(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(x + BLOCK + at)
    i = n
    while (i > 0) & (tl.sum(a, 0) < 100000):
        a, b = b + a, tl.flip(a, 0)
        tl.store(o + 2 * BLOCK + at, a)
        i -= 1
        j = 0
        while j < i:
            b += j
            j += 2
    tl.store(o + at, a)
    tl.store(o + BLOCK + at, b)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_nested_while_loops_with_tiles_that_change_places(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(while_swapping, [numbers(64), np.zeros(96, np.int32), n], BLOCK=32)


WHILE_FORWARDS = """
kernel @forward(%x: ptr<i32>, %o: ptr<i32>, %n: i32) {
  %i = arange {start = 0, end = 24} : tile<24xi32>
  %xs = splat %x : tile<24xptr<i32>>
  %p = addptr %xs, %i : tile<24xptr<i32>>
  %v = load %p : tile<24xi32>
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %r, %s, %t = while %v, %zero : tile<24xi32>, tile<24xi32>, i32 before(%a: tile<24xi32>, %k: i32) {
    %more = cmp %k, %n {predicate = lt} : i1
    %ones = splat %one : tile<24xi32>
    %b = add %a, %ones : tile<24xi32>
    %c = mul %a, %b : tile<24xi32>
    condition %more, values=[%c, %a, %k]
  } after(%d: tile<24xi32>, %e: tile<24xi32>, %l: i32) {
    %f = sub %d, %e : tile<24xi32>
    %m = add %l, %one : i32
    yield %f, %m
  }
  %os = splat %o : tile<24xptr<i32>>
  %q = addptr %os, %i : tile<24xptr<i32>>
  store %q, %r
  %far = constant 24 : i32
  %o2 = addptr %o, %far : ptr<i32>
  %os2 = splat %o2 : tile<24xptr<i32>>
  %q2 = addptr %os2, %i : tile<24xptr<i32>>
  store %q2, %s
  return
}
"""


@pytest.mark.parametrize("n", [-1, 0, 1, 4])
def test_a_while_loop_that_hands_on_other_values_than_it_carries(
    n: int, same_as_reference: Check
) -> None:
    same_as_reference(WHILE_FORWARDS, [numbers(24), np.zeros(48, np.int32), n])


def test_while_loops_ask_whether_to_go_on_and_others_do_not(
    module_of: Callable[..., Any], compiled: Callable[..., Any]
) -> None:
    loops = compiled(module_of(while_swapping, [numbers(64), np.zeros(96, np.int32), 6], BLOCK=32))
    counted = compiled(module_of(swap, [numbers(96), np.zeros(97, np.int32), 3], BLOCK=32))
    text = loops.code.stages["llir"]
    assert loops.code.metadata["polls"] and text.count("load ptr, ptr @while_swapping.poll,") == 2
    assert not counted.code.metadata["polls"] and "poll" not in counted.code.stages["llir"]


@device_function
def count_up(o, n):
    i = 0
    while i < n:
        i += 1
        tl.store(o, i)
    tl.store(o, -1)


@device_function
def count_tiles_up(o, n):
    i = 0
    while i < n:
        i += 1
        tl.store(o + tl.arange(0, 2), tl.full((2,), i, tl.int32))
    tl.store(o, -1)


@pytest.mark.parametrize(
    ("kernel", "first"),
    [(count_up, FIRST_OF_SCALARS), (count_tiles_up, FIRST)],
    ids=["scalars", "tiles"],
)
def test_a_loop_checks_after_as_many_iterations_as_the_check_returned(
    kernel: Any, first: int, module_of: Callable[..., Any], compiled: Callable[..., Any]
) -> None:
    out = np.zeros(2, np.int32)
    counted = compiled(module_of(kernel, [out, 3000]))
    symbol = counted.code.metadata["kernel"]
    asked: list[int] = []

    def poll(arguments: int, heeded: int, loop: int) -> int:
        asked.append(out[0])
        return [5, 1, 40, 0][len(asked) - 1]

    answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        poll
    )
    loaded = load_object(counted.code.binary, [symbol, poll_symbol(symbol)])
    ctypes.c_void_p.from_address(loaded.address(poll_symbol(symbol))).value = ctypes.cast(
        answer, ctypes.c_void_p
    ).value
    status = np.zeros(STATUS_WORDS, np.int32)
    slots = np.asarray([3, 1, 1, status.ctypes.data, 0, out.ctypes.data, 3000], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        loaded.address(symbol)
    )(slots.ctypes.data, 0, 3, None)
    assert asked == [first, first + 5, first + 6, first + 46]
    assert out[0] == first + 46  # neither the rest of the program nor the other two
