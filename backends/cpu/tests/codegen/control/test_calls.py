"""Functions that are compiled on their own: arguments, results, shared memory and descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


# ---- memory that caller and callee share


@device_function(noinline=True)
def overwrite(x, o, value, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o, tl.sum(tl.load(x + at), 0))
    tl.store(x + at, at.to(tl.float32) + value)


@device_function
def load_call_use(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    before = tl.load(x + at)
    overwrite(x, o, 100.0, BLOCK)
    after = tl.load(x + at)
    tl.store(o + 1 + at, before)
    tl.store(o + 1 + BLOCK + at, after)
    tl.store(x + at, after + before)
    overwrite(x, o + 1 + 2 * BLOCK, 5.0, BLOCK)


@pytest.mark.parametrize("block", [1, 16, 64])
def test_a_callee_overwrites_what_the_caller_loaded_before(
    block: int, kernel_agrees: Check
) -> None:
    kernel_agrees(load_call_use, [numbers(block), np.zeros(2 * block + 2, np.float32)], BLOCK=block)


@device_function(noinline=True)
def maybe_overwrite(x, flag, BLOCK: tl.constexpr):
    if flag > 0:
        overwrite(x, x + BLOCK, 1.0, BLOCK)


@device_function
def calls_in_a_loop(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        v = tl.load(x + at)
        maybe_overwrite(x, i - 1, BLOCK)
        total += v
        tl.store(x + at, v * 2)
    tl.store(o + at, total)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_calls_in_loops_through_another_callee(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(calls_in_a_loop, [numbers(33), np.zeros(32, np.float32), n], BLOCK=32)


# ---- recursion, bounded by a constexpr


@device_function(noinline=True)
def tree(x, start, DEPTH: tl.constexpr):
    if DEPTH == 0:
        return tl.load(x + start)
    else:
        return tree(x, start, DEPTH - 1) + 2 * tree(x, start + (1 << (DEPTH - 1)), DEPTH - 1)


@device_function
def sum_tree(x, o, DEPTH: tl.constexpr):
    tl.store(o, tree(x, 0, DEPTH))


def test_a_function_that_calls_itself_for_smaller_problems(kernel_agrees: Check) -> None:
    x = numbers(32, np.int64)
    found = kernel_agrees(sum_tree, [x, np.zeros(1, np.int64)], DEPTH=5)
    assert found[1][0] == sum(int(v) * 2 ** bin(i).count("1") for i, v in enumerate(x))


# ---- results


@device_function(noinline=True)
def several(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    return v, tl.sum(v, 0), at < n, x + at, n > 3


@device_function
def use_several(x, o, n, BLOCK: tl.constexpr):
    v, total, inside, pointers, many = several(x, n, BLOCK)
    w, _, _, _, _ = several(x + 1, n, BLOCK)
    at = tl.arange(0, BLOCK)
    if many:
        v += 1
    tl.store(o + at, v + w, mask=inside)
    tl.store(o + BLOCK, total)
    tl.store(pointers, -v, mask=inside)


@pytest.mark.parametrize("n", [0, 2, 4, 32])
def test_tiles_masks_pointers_and_scalars_as_results(n: int, kernel_agrees: Check) -> None:
    kernel_agrees(use_several, [numbers(33), np.zeros(33, np.float32), n], BLOCK=32)


# ---- tiles as arguments: in the IR only


TILE_ARGUMENTS = """
kernel @main(%x: ptr<f32>, %o: ptr<f32>, %n: i32) {
  %i = arange {start = 0, end = 48} : tile<48xi32>
  %xs = splat %x : tile<48xptr<f32>>
  %p = addptr %xs, %i : tile<48xptr<f32>>
  %v = load %p : tile<48xf32>
  %r, %s = call %v, %n {callee = "grow"} : tile<48xf32>, tile<48xi1>
  %r2, %s2 = call %r, %n {callee = "grow"} : tile<48xf32>, tile<48xi1>
  %a = add %v, %r : tile<48xf32>
  %b = select %s, %a, %r2 : tile<48xf32>
  %os = splat %o : tile<48xptr<f32>>
  %q = addptr %os, %i : tile<48xptr<f32>>
  store %q, %b
  %far = constant 48 : i32
  %o2 = addptr %o, %far : ptr<f32>
  %os2 = splat %o2 : tile<48xptr<f32>>
  %q2 = addptr %os2, %i : tile<48xptr<f32>>
  store %q2, %r
  return
}

function @grow(%t: tile<48xf32>, %n: i32) -> (tile<48xf32>, tile<48xi1>) {
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %limit = constant 0.0 : f32
  %limits = splat %limit : tile<48xf32>
  %end = for %zero, %n, %one, inits=[%t] : tile<48xf32> body(%k: i32, %c: tile<48xf32>) {
    %e = add %c, %c : tile<48xf32>
    yield %e
  }
  %big = cmp %end, %limits {predicate = gt} : tile<48xi1>
  return %end, %big
}
"""


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_callee_does_not_write_over_the_tiles_it_is_given(
    n: int, same_as_reference: Check
) -> None:
    same_as_reference(TILE_ARGUMENTS, [numbers(48), np.zeros(96, np.float32), n])


# ---- descriptors


@device_function(noinline=True)
def load_block(d, o, i, j):
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(o + at, d.load([i, j]))


@device_function
def pass_descriptors(x, o, m, n):
    with_nan = tl.make_tensor_descriptor(
        x, shape=[m, n], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
    )
    with_zero = tl.make_tensor_descriptor(x, shape=[m, n - 1], strides=[n, 1], block_shape=[4, 8])
    load_block(with_nan, o, -1, 2)
    load_block(with_zero, o + 32, -1, 2)
    load_block(with_nan, o + 64, 3, -3)


def test_a_callee_pads_as_each_descriptor_says(kernel_agrees: Check) -> None:
    found = kernel_agrees(pass_descriptors, [numbers(40), np.zeros(96, np.float32), 5, 8])
    assert (
        np.isnan(found[1][:32]).any()
        and not np.isnan(found[1][32:64]).any()
        and np.isnan(found[1][64:]).any()
    )


@device_function(noinline=True)
def make_descriptor(x, m, n, PADDING: tl.constexpr):
    return tl.make_tensor_descriptor(
        x, shape=[m, n], strides=[n, 1], block_shape=[4, 8], padding_option=PADDING
    )


@device_function(noinline=True)
def pass_on(d, o):
    load_block(d, o, 3, 2)
    return d


@device_function
def return_descriptors(x, o, m, n):
    d = pass_on(make_descriptor(x, m, n, "nan"), o)
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(o + 32 + at, d.load([2, 6]))
    e = pass_on(make_descriptor(x + n, m - 1, n, "zero"), o + 64)
    tl.store(o + 96 + at, e.load([2, 6]))
    e.store([1, 0], d.load([0, 0]))


def test_descriptors_as_results(kernel_agrees: Check) -> None:
    found = kernel_agrees(return_descriptors, [numbers(40), np.zeros(128, np.float32), 5, 8])
    assert np.isnan(found[1][:64]).any() and not np.isnan(found[1][64:]).any()


@device_function
def choose_descriptor(x, o, m, n, c):
    if c > 0:
        d = tl.make_tensor_descriptor(
            x, shape=[m, n], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
        )
    else:
        d = tl.make_tensor_descriptor(
            x + 1, shape=[m, n - 1], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
        )
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(o + at, d.load([-1, 2]))


@pytest.mark.parametrize("c", [-1, 2])
def test_descriptors_out_of_branches(c: int, kernel_agrees: Check) -> None:
    kernel_agrees(choose_descriptor, [numbers(40), np.zeros(32, np.float32), 5, 8, c])


@device_function
def carry_descriptors(x, o, m, n, count):
    d = tl.make_tensor_descriptor(
        x, shape=[m, n], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
    )
    e = tl.make_tensor_descriptor(
        x + 1, shape=[m, n - 1], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
    )
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    for i in range(count):
        tl.store(o + at + i * 32, d.load([-1, 2]))
        d, e = e, d
    i = 0
    while i < count:
        tl.store(o + at + (count + i) * 32, e.load([2, 2]))
        e = tl.make_tensor_descriptor(
            x + i, shape=[m, n - 1], strides=[n, 1], block_shape=[4, 8], padding_option="nan"
        )
        i += 1
    tl.store(o + at + 2 * count * 32, e.load([2, 2]))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_descriptors_carried_by_loops(count: int, kernel_agrees: Check) -> None:
    kernel_agrees(carry_descriptors, [numbers(44), np.zeros(32 * 7, np.float32), 5, 8, count])


# ---- large frames


@device_function(noinline=True)
def large(x, o, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    w = tl.sort(v)
    tl.store(o + at, w * scale)
    return tl.cumsum(w, 0)


@device_function
def two_large_frames(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = large(x, o, 2.0, BLOCK)
    b = large(o, o + BLOCK, 3.0, BLOCK)
    tl.store(o + 2 * BLOCK + at, a + b)


def test_callees_with_tiles_beyond_the_stack(kernel_agrees: Check) -> None:
    kernel_agrees(
        two_large_frames,
        [numbers(1 << 17, np.int32), np.zeros(3 << 17, np.int32)],
        BLOCK=1 << 17,
        relative=0,
    )
