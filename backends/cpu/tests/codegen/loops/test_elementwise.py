"""Elementwise arithmetic at its edges: undefined results do not stop the process, others are
exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function

Check = Callable[..., list[Any]]
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(f"{name[0]}{int(name[1:]) // 8}")


# ---- division that hardware traps on


@device_function
def divide_tiles(x, y, q, r, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(q + at, a // b, mask=at < n)
    tl.store(r + at, a % b, mask=at < n)


def edges(name: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dividends and divisors with every trap among them, and where the quotient is defined."""
    dtype, rng = dtype_of(name), np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    special = np.array([limits.min, limits.max, 0, 1, limits.max // 2], dtype)
    a = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    b = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    a[::3] = rng.choice(special, a[::3].size)
    b[::2] = rng.choice(
        np.array([0, limits.max if limits.min == 0 else -1, 1, limits.min, 3], dtype), b[::2].size
    )
    a[1], b[1] = limits.min, -1 if limits.min else 0
    a[2], b[2] = limits.min, 0
    return a, b, b != 0


def quotient(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Truncated division and its remainder, by Python's integers, wrapped to the dtype."""
    pairs = [
        (abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), x)
        for x, y in zip(map(int, a), map(int, b), strict=True)
    ]
    bits = 8 * a.dtype.itemsize
    q = np.array([np.array(value % (1 << bits), np.uint64) for value, _ in pairs], np.uint64)
    r = np.array(
        [
            np.array((x - value * int(y)) % (1 << bits), np.uint64)
            for (value, x), y in zip(pairs, b, strict=True)
        ],
        np.uint64,
    )
    return q.astype(f"u{a.dtype.itemsize}").view(a.dtype), r.astype(f"u{a.dtype.itemsize}").view(
        a.dtype
    )


@pytest.mark.each_value
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("block", [1, 4, 64, 101])
def test_division_of_tiles_never_traps_and_is_exact_where_it_is_defined(
    name: str, block: int, compiled: Any, module_of: Any
) -> None:
    a, b, defined = edges(name, max(block, 4))
    extents = {} if block & (block - 1) == 0 else {128: block}
    q, r = np.zeros_like(a), np.zeros_like(a)
    for optimise in (False, True):
        compiled(
            module_of(
                divide_tiles,
                [a, b, q, r, block],
                BLOCK=128 if extents else block,
                extents=extents,
                optimise=optimise,
            )
        )([a, b, q, r, block])
        defined = defined[:block]
        right_q, right_r = quotient(a[:block][defined], b[:block][defined])
        np.testing.assert_array_equal(q[:block][defined], right_q)
        np.testing.assert_array_equal(r[:block][defined], right_r)


@device_function
def divide_scalars(x, y, q, r):
    pid = tl.program_id(0)
    a, b = tl.load(x + pid), tl.load(y + pid)
    tl.store(q + pid, a // b)
    tl.store(r + pid, a % b)


@pytest.mark.parametrize("name", INTEGERS)
def test_division_of_scalars_never_traps(name: str, compiled: Any, module_of: Any) -> None:
    a, b, defined = edges(name, 50, 1)
    q, r = np.zeros_like(a), np.zeros_like(a)
    compiled(module_of(divide_scalars, [a, b, q, r]))([a, b, q, r], (50, 1, 1))
    right_q, right_r = quotient(a[defined], b[defined])
    np.testing.assert_array_equal(q[defined], right_q)
    np.testing.assert_array_equal(r[defined], right_r)


CONSTANT_DIVISION = """
kernel @divide(%x: ptr<T>, %o: ptr<T>) {
  %i = arange {start = 0, end = 40} : tile<40xi32>
  %xs = splat %x : tile<40xptr<T>>
  %xp = addptr %xs, %i : tile<40xptr<T>>
  %os = splat %o : tile<40xptr<T>>
  %op = addptr %os, %i : tile<40xptr<T>>
  %a = load %xp : tile<40xT>
  %s = load %x : T
  %c = constant LEFT : T
  %cs = splat %c : tile<40xT>
  %d = constant RIGHT : T
  %ds = splat %d : tile<40xT>
  %q1 = OP %a, %ds : tile<40xT>
  %q2 = OP %cs, %a : tile<40xT>
  %q3 = OP %cs, %ds : tile<40xT>
  %q4 = OP %s, %d : T
  %q5 = OP %c, %d : T
  %q6 = OP %c, %s : T
  store %op, %q1
  store %op, %q2
  store %op, %q3
  store %o, %q4
  store %o, %q5
  store %o, %q6
  return
}
"""


@pytest.mark.each_value
@pytest.mark.parametrize("operation", ["div", "rem"])
@pytest.mark.parametrize("name", INTEGERS)
def test_division_by_constants_never_traps(name: str, operation: str, compiled: Any) -> None:
    from tilewright.ir.parser import parse_module

    limits = np.iinfo(dtype_of(name))
    x = np.zeros(40, dtype_of(name))
    x[1:20] = limits.min
    for left in (limits.min, 1):
        for right in (0, -1 if limits.min else limits.max):
            text = (
                CONSTANT_DIVISION.replace("T>", f"{name}>")
                .replace("xT", f"x{name}")
                .replace(": T\n", f": {name}\n")
            )
            text = (
                text.replace("OP", operation)
                .replace("LEFT", str(left))
                .replace("RIGHT", str(right))
            )
            compiled(parse_module(f"tilewright.ir 1.0\n{text}"))([x, np.zeros_like(x)])


@device_function
def divide_where_allowed(x, y, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside, other=0)
    b = tl.load(y + at, mask=inside, other=0)
    tl.store(o + at, a // b + tl.where(b == 0, 0, a % b), mask=inside & (b != 0))
    good = tl.where(b != 0, a // tl.where(b == 0, 1, b), 0)
    tl.store(o + BLOCK + at, good, mask=inside)
    if n > 3:
        tl.store(o + 2 * BLOCK, tl.sum(tl.where(b != 0, a // b, 0)))


@pytest.mark.each_value
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("n", [0, 3, 33, 64])
def test_lanes_that_a_mask_excludes_may_divide_by_zero(
    name: str, n: int, kernel_agrees: Check
) -> None:
    a, b, _ = edges(name, 64, 2)
    a[a == np.iinfo(a.dtype).min] = 5
    kernel_agrees(divide_where_allowed, [a, b, np.full(129, 7, a.dtype), n], BLOCK=64)


@device_function
def divide_in_loop(x, o, n):
    total = 0
    for i in range(n):
        d = tl.load(x + i)
        if d != 0:
            total += 1000 // d
            total += 1000 % d
    tl.store(o, total)


def test_a_division_in_a_branch_not_taken(kernel_agrees: Check) -> None:
    kernel_agrees(divide_in_loop, [np.array([1, 0, -1, 7, 0], np.int32), np.zeros(1, np.int32), 5])


# ---- shifts


@device_function
def shift_tiles(x, y, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(o + at, a << b)
    tl.store(o + BLOCK + at, a >> b)
    s, t = tl.load(x), tl.load(y)
    tl.store(o + 2 * BLOCK, s << t)
    tl.store(o + 2 * BLOCK + 1, s >> t)


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_by_any_amount_do_not_crash_and_are_exact_in_range(
    name: str, compiled: Any, module_of: Any
) -> None:
    dtype, rng = dtype_of(name), np.random.default_rng(3)
    bits, limits = 8 * dtype.itemsize, np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, 50, dtype, endpoint=True)
    y = rng.integers(0, bits, 50).astype(dtype)
    y[::4] = rng.choice(
        np.array([bits, bits + 1, limits.max, limits.max if limits.min == 0 else -1], dtype),
        y[::4].size,
    )
    out = np.zeros(102, dtype)
    compiled(module_of(shift_tiles, [x, y, out], BLOCK=128, extents={128: 50, 256: 100, 257: 101}))(
        [x, y, out]
    )
    fine = (y >= 0) & (y < bits)
    np.testing.assert_array_equal(out[:50][fine], np.left_shift(x[fine], y[fine]))
    np.testing.assert_array_equal(out[50:100][fine], np.right_shift(x[fine], y[fine]))


OUT_OF_RANGE_ADDRESS = """
kernel @shifted(%x: ptr<i32>, %o: ptr<i32>, %n: i32) {
  %i = arange {start = 0, end = 32} : tile<32xi32>
  %k = constant 40 : i32
  %ks = splat %k : tile<32xi32>
  %far = shl %i, %ks : tile<32xi32>
  %ns = splat %n : tile<32xi32>
  %on = cmp %i, %ns {predicate = lt} : tile<32xi1>
  %xs = splat %x : tile<32xptr<i32>>
  %p = addptr %xs, %far : tile<32xptr<i32>>
  %v = load %p, mask=%on : tile<32xi32>
  %os = splat %o : tile<32xptr<i32>>
  %q = addptr %os, %i : tile<32xptr<i32>>
  store %q, %v, mask=%on
  return
}
"""


def test_undefined_addresses_of_lanes_that_are_off_are_not_read(same_as_reference: Check) -> None:
    same_as_reference(
        OUT_OF_RANGE_ADDRESS, [np.zeros(4, np.int32), np.arange(32, dtype=np.int32), 0]
    )


# ---- casts


@device_function
def cast_tile(x, o, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(o + at, tl.load(x + at, mask=at < n, other=0).to(o.dtype.element_ty), mask=at < n)
    tl.store(o + BLOCK, tl.load(x).to(o.dtype.element_ty))


NUMBERS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "fp32", "fp64")
NUMPY = {"i1": "?", "fp16": "f2", "fp32": "f4", "fp64": "f8"}


@pytest.mark.each_value
@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("result", NUMBERS)
def test_casts_of_tiles_and_scalars(source: str, result: str, kernel_agrees: Check) -> None:
    rng = np.random.default_rng(4)
    from_ = np.dtype(NUMPY[source]) if source in NUMPY else dtype_of(source)
    to = np.dtype(NUMPY[result]) if result in NUMPY else dtype_of(result)
    if from_.kind == "f":
        bound = 100 if to.itemsize == 1 else 30000
        x = (
            (rng.standard_normal(37) * 30)
            .clip(0 if to.kind == "u" else -bound, bound)
            .astype(from_)
        )
        x[0] = 2.75
    elif from_.kind == "b":
        x = rng.integers(0, 2, 37).astype(from_)
    else:
        limits = np.iinfo(from_)
        x = rng.integers(limits.min, limits.max, 37, from_, endpoint=True)
        x[:4] = limits.min, limits.max, 0, 1
    out = np.zeros(65, to)
    with np.errstate(all="ignore"):
        kernel_agrees(cast_tile, [x, out, 37], BLOCK=64)


@pytest.mark.parametrize("result", [name for name in NUMBERS if name[0] in "iu" and name != "i1"])
@pytest.mark.parametrize("source", ["fp16", "fp32", "fp64"])
def test_casts_of_floats_out_of_range_do_not_crash(
    source: str, result: str, compiled: Any, module_of: Any
) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0, 65504, 3.0] * 5, np.float64)
    with np.errstate(all="ignore"):
        x = x.astype(NUMPY[source])
    out = np.zeros(65, dtype_of(result))
    compiled(module_of(cast_tile, [x, out, 37], BLOCK=64))([x, out, 37])
    assert out[7] == 3


# ---- narrow floats and booleans


@device_function
def narrow(x, y, o, b, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    a, c = tl.load(x + at, mask=inside, other=0.0), tl.load(y + at, mask=inside, other=0.0)
    both = (a + c).to(o.dtype.element_ty)
    tl.store(o + at, both, mask=inside)
    tl.store(o + BLOCK + at, tl.where(a < c, a, c), mask=inside)
    tl.store(o + 2 * BLOCK + at, -a, mask=inside)
    tl.store(o + 3 * BLOCK + at, tl.abs(c), mask=inside)
    tl.store(o + 4 * BLOCK + at, tl.maximum(a, c), mask=inside)
    tl.store(o + 5 * BLOCK, tl.max(tl.where(inside, a, -1.0).to(o.dtype.element_ty), 0))
    tl.store(b + at, a <= c, mask=inside)
    square = tl.reshape(both, (BLOCK // 8, 8))
    tl.store(
        o + 6 * BLOCK + tl.arange(0, 8)[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :],
        square.T,
    )


@pytest.mark.each_value
@pytest.mark.parametrize(
    "name", ["bf16", "fp16", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"]
)
@pytest.mark.parametrize("n", [1, 50, 64])
def test_narrow_float_tiles(name: str, n: int, same_as_reference: Check, module_of: Any) -> None:
    from tilewright.ir.types import BF16
    from tilewright.reference.numerics import decode, encode

    rng = np.random.default_rng(5)
    size = "u1" if "8" in name[:3] else "u2"
    module = module_of(
        narrow,
        [np.zeros(1, np.float16)] * 3 + [np.zeros(1, bool), n],
        dict.fromkeys("xyo", f"*{name}"),
        BLOCK=64,
    )
    element = module.kernel.arguments[0].type.pointee
    assert name != "bf16" or element is BF16

    def data() -> np.ndarray:
        numbers = (rng.standard_normal(64) * 4).astype(np.float64)
        if size == "u1":
            # which of two NaNs is the greater one, and so the sign that it has, is the machine's
            # choice
            known = decode(np.arange(256, dtype=np.uint8), element)
            numbers = np.clip(
                numbers, -np.max(known[np.isfinite(known)]), np.max(known[np.isfinite(known)])
            )
        return (
            numbers.astype(np.float16)
            if name == "fp16"
            else np.asarray(encode(numbers, element)).astype(size)
        )

    x, y = data(), data()
    out = np.zeros(64 * 7, x.dtype)
    same_as_reference(module, [x, y, out, np.zeros(64, bool), n])


@device_function
def booleans(x, y, o, s, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(o + at, a & b)
    tl.store(o + BLOCK + at, a | ~b)
    tl.store(o + 2 * BLOCK + at, a ^ b)
    tl.store(o + 3 * BLOCK + at, a == b)
    tl.store(o + 4 * BLOCK + at, tl.where(a, b, ~b))
    c = tl.reshape(a & ~b, (BLOCK // 8, 8)).T
    tl.store(
        o + 5 * BLOCK + tl.arange(0, 8)[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :],
        c,
    )
    tl.store(s, tl.sum(a.to(tl.int32), 0))
    tl.store(s + 1, tl.max(b.to(tl.int32), 0))
    tl.store(s + 2, tl.reduce(a, 0, either).to(tl.int32))
    tl.store(s + 3, tl.reduce(a, 0, both).to(tl.int32))
    tl.store(s + 4 + tl.arange(0, 8), tl.reduce(c, 1, either).to(tl.int32))
    tl.store(o + 6 * BLOCK + at, tl.associative_scan(a, 0, either))


@device_function
def either(a, b):
    return a | b


@device_function
def both(a, b):
    return a & b


@pytest.mark.each_value
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
@pytest.mark.parametrize("block", [8, 64, 104])
def test_boolean_tiles(share: float, block: int, kernel_agrees: Check) -> None:
    rng = np.random.default_rng(6)
    x, y = rng.random(block) < share, rng.random(block) < 0.5
    arguments = [x, y, np.zeros(7 * block, bool), np.zeros(12, np.int32)]
    if block == 104:
        kernel_agrees(
            booleans,
            arguments,
            BLOCK=128,
            extents={128: 104, 16: 13, **{128 * k: 104 * k for k in range(2, 7)}},
        )
    else:
        kernel_agrees(booleans, arguments, BLOCK=block)


def test_any_byte_but_zero_is_true(kernel_agrees: Check) -> None:
    """A boolean array from outside may hold other bytes than 0 and 1."""
    x = np.array([0, 1, 2, 255] * 16, np.uint8).view(bool)
    kernel_agrees(
        booleans, [x, x[::-1].copy(), np.zeros(7 * 64, bool), np.zeros(12, np.int32)], BLOCK=64
    )


@device_function
def wrap(x, o, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.store(o + at, a + a)
    tl.store(o + BLOCK + at, a * a - 1)
    tl.store(o + 2 * BLOCK + at, -a)
    tl.store(o + 3 * BLOCK, tl.sum(a, 0).to(o.dtype.element_ty))
    tl.store(o + 3 * BLOCK + 1, tl.max(a, 0))
    tl.store(o + 3 * BLOCK + 2, tl.min(a, 0))


@pytest.mark.each_value
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("block", [1, 5, 64])
def test_integers_wrap_around(name: str, block: int, kernel_agrees: Check) -> None:
    dtype = dtype_of(name)
    limits = np.iinfo(dtype)
    x = np.random.default_rng(7).integers(limits.min, limits.max, block, dtype, endpoint=True)
    x[0] = limits.min
    arguments = [x, np.zeros(3 * block + 3, dtype)]
    if block == 5:
        kernel_agrees(
            wrap, arguments, BLOCK=128, extents={128: 5, 256: 10, 384: 15, 385: 16, 386: 17}
        )
    else:
        kernel_agrees(wrap, arguments, BLOCK=block)
