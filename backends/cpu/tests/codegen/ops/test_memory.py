"""Loads, stores and masks, and the order between accesses that may alias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.language.definitions.callable import device_function

Check = Callable[..., list[Any]]


def numbers(count: int, dtype: Any = np.int32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, count).astype(dtype)


VECTOR_ADD = """
kernel @add(%x: ptr<f32>, %y: ptr<f32>, %o: ptr<f32>, %n: i32) {
  %pid = program_id 0 : i32
  %size = constant BLOCK : i32
  %start = mul %pid, %size : i32
  %lanes = arange {start = 0, end = BLOCK} : tile<BLOCKxi32>
  %starts = splat %start : tile<BLOCKxi32>
  %at = add %starts, %lanes : tile<BLOCKxi32>
  %ns = splat %n : tile<BLOCKxi32>
  %inside = cmp %at, %ns {predicate = lt} : tile<BLOCKxi1>
  %xs = splat %x : tile<BLOCKxptr<f32>>
  %xp = addptr %xs, %at : tile<BLOCKxptr<f32>>
  %ys = splat %y : tile<BLOCKxptr<f32>>
  %yp = addptr %ys, %at : tile<BLOCKxptr<f32>>
  %os = splat %o : tile<BLOCKxptr<f32>>
  %op = addptr %os, %at : tile<BLOCKxptr<f32>>
  %a = load %xp, mask=%inside : tile<BLOCKxf32>
  %b = load %yp, mask=%inside : tile<BLOCKxf32>
  %c = add %a, %b : tile<BLOCKxf32>
  store %op, %c, mask=%inside
  return
}
"""


@pytest.mark.parametrize("block", [1, 2, 4, 8, 16, 24, 64, 100, 256])
def test_every_length_of_a_masked_tail(block: int, compiled: Any) -> None:
    from tilewright.ir.parser import parse_module

    kernel = compiled(parse_module("tilewright.ir 1.0\n" + VECTOR_ADD.replace("BLOCK", str(block))))
    for n in range(1, min(2 * block + 2, 150)):
        x, y = numbers(n, np.float32), numbers(n, np.float32, 1)
        out = np.full(n + 8, 7.0, np.float32)
        kernel([x, y, out, n], (-(-n // block), 1, 1))
        np.testing.assert_array_equal(out[:n], x + y)
        assert (out[n:] == 7.0).all()


def test_programs_of_a_grid_run_in_any_pieces(compiled: Any) -> None:
    """The coordinates are right wherever a piece of the grid starts."""
    from tilewright.ir.parser import parse_module

    text = """
kernel @ids(%o: ptr<i32>) {
  %x = program_id 0 : i32
  %y = program_id 1 : i32
  %z = program_id 2 : i32
  %nx = num_programs 0 : i32
  %ny = num_programs 1 : i32
  %a = mul %z, %ny : i32
  %b = add %a, %y : i32
  %c = mul %b, %nx : i32
  %d = add %c, %x : i32
  %p = addptr %o, %d : ptr<i32>
  %k = constant 100 : i32
  %e = mul %z, %k : i32
  %f = add %e, %y : i32
  %g = mul %f, %k : i32
  %h = add %g, %x : i32
  store %p, %h
  return
}
"""
    kernel = compiled(parse_module("tilewright.ir 1.0\n" + text))
    grid = (3, 4, 2)
    out = np.zeros(24, np.int32)
    slots = kernel.pack([out], grid)
    for low, high in ((0, 1), (1, 8), (8, 8), (8, 23), (23, 24)):
        kernel.function(slots.ctypes.data, low, high)
    expected = [z * 10000 + y * 100 + x for z in range(2) for y in range(4) for x in range(3)]
    np.testing.assert_array_equal(out, expected)


SOFTMAX = """
kernel @softmax(%x: ptr<f32>, %o: ptr<f32>, %n: i32) {
  %row = program_id 0 : i32
  %start = mul %row, %n : i32
  %lanes = arange {start = 0, end = 64} : tile<64xi32>
  %ns = splat %n : tile<64xi32>
  %inside = cmp %lanes, %ns {predicate = lt} : tile<64xi1>
  %xr = addptr %x, %start : ptr<f32>
  %xs = splat %xr : tile<64xptr<f32>>
  %xp = addptr %xs, %lanes : tile<64xptr<f32>>
  %low = constant -inf : f32
  %lows = splat %low : tile<64xf32>
  %v = load %xp, mask=%inside, other=%lows : tile<64xf32>
  %m = reduce %v {axis = 0} : f32 combine(%a: f32, %b: f32) {
    %c = max %a, %b : f32
    yield %c
  }
  %ms = splat %m : tile<64xf32>
  %d = sub %v, %ms : tile<64xf32>
  %e = exp %d : tile<64xf32>
  %s = reduce %e {axis = 0} : f32 combine(%f: f32, %g: f32) {
    %h = add %f, %g : f32
    yield %h
  }
  %ss = splat %s : tile<64xf32>
  %q = div %e, %ss : tile<64xf32>
  %or = addptr %o, %start : ptr<f32>
  %os = splat %or : tile<64xptr<f32>>
  %op = addptr %os, %lanes : tile<64xptr<f32>>
  store %op, %q, mask=%inside
  return
}
"""


@pytest.mark.parametrize("n", [*range(1, 20), 31, 32, 33, 47, 48, 63, 64])
def test_softmax_of_every_length_in_place(n: int, same_as_reference: Check) -> None:
    x = np.random.default_rng(n).standard_normal(3 * n).astype(np.float32)
    apart = same_as_reference(SOFTMAX, [x, np.zeros_like(x), n], (3, 1, 1), relative=1e-6)
    from tilewright.ir.parser import parse_module

    inplace = parse_module(
        "tilewright.ir 1.0\n"
        + SOFTMAX.replace("%o: ptr<f32>, ", "").replace("addptr %o,", "addptr %x,")
    )
    found = same_as_reference(inplace, [x, n], (3, 1, 1), relative=1e-6)
    np.testing.assert_array_equal(found[0], apart[1])


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("count", [1, 17, 40])
def test_softmax_of_special_rows(special: float, count: int, same_as_reference: Check) -> None:
    """Rows that are all one special number, and rows that have one: what masked-off lanes stand for
    must not hide NaN."""
    x = np.random.default_rng(1).standard_normal(3 * 40).astype(np.float32)
    x[:count] = special
    x[40 + count // 2] = special
    same_as_reference(SOFTMAX, [x, np.zeros_like(x), 40], (3, 1, 1), relative=1e-6)


def copy_text(offsets: str, value: str = "") -> str:
    """A kernel that stores the first 64 elements, or something made of them, at offsets made of
    ``%i`` (0 .. 63)."""
    return f"""
kernel @move(%x: ptr<i32>, %y: ptr<i32>) {{
  %i = arange {{start = 0, end = 64}} : tile<64xi32>
  %xs = splat %x : tile<64xptr<i32>>
  %ys = splat %y : tile<64xptr<i32>>
  %p = addptr %xs, %i : tile<64xptr<i32>>
  %v = load %p : tile<64xi32>
  %k1 = constant 1 : i32
  %one = splat %k1 : tile<64xi32>
  %k63 = constant 63 : i32
  %last = splat %k63 : tile<64xi32>
{offsets}
{value}
  return
}}
"""


def test_reversal_in_place(same_as_reference: Check) -> None:
    text = copy_text(
        "  %j = sub %last, %i : tile<64xi32>\n  %q = addptr %xs, %j : tile<64xptr<i32>>",
        "  store %q, %v",
    )
    found = same_as_reference(text, [numbers(64), numbers(64, seed=1)])
    np.testing.assert_array_equal(found[0], numbers(64)[::-1])


def test_a_shift_in_place_reads_everything_first(same_as_reference: Check) -> None:
    text = copy_text(
        "  %j = add %i, %one : tile<64xi32>\n  %q = addptr %xs, %j : tile<64xptr<i32>>",
        "  store %q, %v",
    )
    found = same_as_reference(text, [numbers(80), numbers(64, seed=1)])
    np.testing.assert_array_equal(found[0][1:65], numbers(80)[:64])


def test_a_load_is_not_moved_past_a_store_that_may_alias(same_as_reference: Check) -> None:
    """Both arguments are one array: the second store must see the elements from before the
    first."""
    text = copy_text(
        "  %q = addptr %ys, %i : tile<64xptr<i32>>",
        (
            "  %v1 = add %v, %one : tile<64xi32>\n  store %q, %v1\n"
            "  %j = sub %last, %i : tile<64xi32>\n  %r = addptr %ys, %j : tile<64xptr<i32>>\n"
            "  store %r, %v"
        ),
    )
    same_as_reference(text, [numbers(64), numbers(64, seed=1)])
    from tilewright.ir.parser import parse_module

    both = parse_module(
        "tilewright.ir 1.0\n" + text.replace(", %y: ptr<i32>", "").replace("splat %y", "splat %x")
    )
    found = same_as_reference(both, [numbers(64)])
    np.testing.assert_array_equal(found[0], numbers(64)[::-1])


@tw.jit
def moved(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at) * 2
    tl.debug_barrier()
    tl.store(y + at, value)


@pytest.mark.parametrize("by", [1, 3, 16, -1])
def test_a_barrier_keeps_loads_before_stores_through_another_argument(by: int) -> None:
    data = numbers(300)
    expected = data.copy()
    expected[20 + by : 20 + by + 256] = data[20 : 20 + 256] * 2
    with tw.backend("cpu"):
        moved[(1,)](data[20:], data[20 + by :], BLOCK=256)
    np.testing.assert_array_equal(data, expected)


def test_a_scalar_load_keeps_its_place_among_stores(same_as_reference: Check) -> None:
    text = copy_text(
        "",
        """  %a = load %x : i32
  %as = splat %a : tile<64xi32>
  %w = add %v, %as : tile<64xi32>
  store %p, %w
  %b = load %x : i32
  %bs = splat %b : tile<64xi32>
  %q = addptr %ys, %i : tile<64xptr<i32>>
  store %q, %bs""",
    )
    same_as_reference(text, [numbers(64), numbers(64, seed=1)])


def test_transposition_in_place(same_as_reference: Check) -> None:
    text = """
kernel @transpose(%x: ptr<f32>) {
  %i = arange {start = 0, end = 32} : tile<32xi32>
  %r = expand_dims %i {axis = 1} : tile<32x1xi32>
  %c = expand_dims %i {axis = 0} : tile<1x32xi32>
  %k = constant 32 : i32
  %ks = splat %k : tile<32x1xi32>
  %rk = mul %r, %ks : tile<32x1xi32>
  %rb = broadcast %rk : tile<32x32xi32>
  %cb = broadcast %c : tile<32x32xi32>
  %at = add %rb, %cb : tile<32x32xi32>
  %xs = splat %x : tile<32x32xptr<f32>>
  %p = addptr %xs, %at : tile<32x32xptr<f32>>
  %v = load %p : tile<32x32xf32>
  %t = permute %v {order = [1, 0]} : tile<32x32xf32>
  store %p, %t
  return
}
"""
    x = numbers(1024, np.float32)
    found = same_as_reference(text, [x])
    np.testing.assert_array_equal(found[0].reshape(32, 32), x.reshape(32, 32).T)


def block_text(mask: str, other: str = "") -> str:
    """A kernel that moves a 16 x 24 block of matrices with 40 columns under a mask made of row and
    column numbers."""
    return f"""
kernel @block(%x: ptr<i32>, %y: ptr<i32>, %m: i32, %n: i32) {{
  %i = arange {{start = 0, end = 16}} : tile<16xi32>
  %j = arange {{start = 0, end = 24}} : tile<24xi32>
  %r = expand_dims %i {{axis = 1}} : tile<16x1xi32>
  %c = expand_dims %j {{axis = 0}} : tile<1x24xi32>
  %k = constant 40 : i32
  %ks = splat %k : tile<16x1xi32>
  %rk = mul %r, %ks : tile<16x1xi32>
  %rb = broadcast %rk : tile<16x24xi32>
  %cb = broadcast %c : tile<16x24xi32>
  %at = add %rb, %cb : tile<16x24xi32>
  %xs = splat %x : tile<16x24xptr<i32>>
  %ys = splat %y : tile<16x24xptr<i32>>
  %p = addptr %xs, %at : tile<16x24xptr<i32>>
  %q = addptr %ys, %at : tile<16x24xptr<i32>>
  %ms = splat %m : tile<16x1xi32>
  %rm = cmp %r, %ms {{predicate = lt}} : tile<16x1xi1>
  %ns = splat %n : tile<1x24xi32>
  %cn = cmp %c, %ns {{predicate = lt}} : tile<1x24xi1>
  %rmb = broadcast %rm : tile<16x24xi1>
  %cnb = broadcast %cn : tile<16x24xi1>
  %rr = broadcast %r : tile<16x24xi32>
  %low = cmp %rr, %cb {{predicate = ge}} : tile<16x24xi1>
{mask}
  %f = constant -7 : i32
  %fs = splat %f : tile<16x24xi32>
  %v = load %p, mask=%in, other=%fs : tile<16x24xi32>
  %w = add %v, %at : tile<16x24xi32>
  store %q, %w{other}
  return
}}
"""


MASKS = {
    "rows": "  %in = and %rmb, %rmb : tile<16x24xi1>",
    "columns": "  %in = and %cnb, %cnb : tile<16x24xi1>",
    "both": "  %in = and %rmb, %cnb : tile<16x24xi1>",
    "triangle": "  %a = and %rmb, %low : tile<16x24xi1>\n  %in = and %a, %cnb : tile<16x24xi1>",
    "either": "  %in = or %rmb, %cnb : tile<16x24xi1>",
}


@pytest.mark.each_value
@pytest.mark.parametrize("store_mask", ["", ", mask=%in", ", mask=%rmb", ", mask=%low"])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_two_axes(mask: str, store_mask: str, same_as_reference: Check) -> None:
    text = block_text(MASKS[mask], store_mask)
    for m, n in ((16, 24), (0, 24), (16, 0), (5, 7), (16, 16), (1, 1), (100, 100), (-3, 23)):
        same_as_reference(text, [numbers(640), numbers(640, seed=1), m, n])


def test_masked_off_lanes_are_not_touched(compiled: Any) -> None:
    """A load and a store that are off as a whole may point anywhere."""
    from tilewright.ir.parser import parse_module

    text = """
kernel @wild(%x: ptr<i32>, %far: i64, %n: i32) {
  %i = arange {start = 0, end = 32} : tile<32xi32>
  %w = cast %i : tile<32xi64>
  %fs = splat %far : tile<32xi64>
  %at = add %w, %fs : tile<32xi64>
  %xs = splat %x : tile<32xptr<i32>>
  %p = addptr %xs, %at : tile<32xptr<i32>>
  %g = mul %w, %at : tile<32xi64>
  %q = addptr %xs, %g : tile<32xptr<i32>>
  %ns = splat %n : tile<32xi32>
  %in = cmp %i, %ns {predicate = lt} : tile<32xi1>
  %v = load %p, mask=%in : tile<32xi32>
  %u = load %q, mask=%in : tile<32xi32>
  %s = add %u, %v : tile<32xi32>
  store %p, %s, mask=%in
  %k = constant 0 : i32
  %on = cmp %n, %k {predicate = gt} : i1
  %one = addptr %x, %far : ptr<i32>
  %z = load %one, mask=%on : i32
  store %one, %z, mask=%on
  return
}
"""
    kernel = compiled(parse_module("tilewright.ir 1.0\n" + text))
    kernel([numbers(32), 1 << 40, 0])


def test_strided_and_indexed_accesses(same_as_reference: Check) -> None:
    text = """
kernel @indexed(%x: ptr<i32>, %index: ptr<i32>, %y: ptr<i32>, %stride: i32) {
  %i = arange {start = 0, end = 48} : tile<48xi32>
  %ip = splat %index : tile<48xptr<i32>>
  %ia = addptr %ip, %i : tile<48xptr<i32>>
  %at = load %ia : tile<48xi32>
  %xs = splat %x : tile<48xptr<i32>>
  %p = addptr %xs, %at : tile<48xptr<i32>>
  %v = load %p : tile<48xi32>
  %k = constant 3 : i32
  %ks = splat %k : tile<48xi32>
  %three = mul %i, %ks : tile<48xi32>
  %q = addptr %xs, %three : tile<48xptr<i32>>
  %w = load %q : tile<48xi32>
  %ss = splat %stride : tile<48xi32>
  %far = mul %i, %ss : tile<48xi32>
  %s = sub %v, %w : tile<48xi32>
  %ys = splat %y : tile<48xptr<i32>>
  %yp = addptr %ys, %far : tile<48xptr<i32>>
  store %yp, %s
  return
}
"""
    index = np.random.default_rng(3).permutation(150)[:48].astype(np.int32)
    for stride in (1, 2, 5):
        same_as_reference(text, [numbers(150), index, numbers(300, seed=1), stride])


def test_an_index_that_wraps_around(same_as_reference: Check) -> None:
    """``(start + arange) % n`` as an offset: where it wraps it must not be taken for
    consecutive."""
    text = """
kernel @wrap(%x: ptr<i32>, %y: ptr<i32>, %start: i32, %n: i32) {
  %i = arange {start = 0, end = 32} : tile<32xi32>
  %ss = splat %start : tile<32xi32>
  %at = add %i, %ss : tile<32xi32>
  %ns = splat %n : tile<32xi32>
  %m = rem %at, %ns : tile<32xi32>
  HINT
  %c = expand_dims %h {axis = 0} : tile<1x32xi32>
  %cb = broadcast %c : tile<8x32xi32>
  %r8 = arange {start = 0, end = 8} : tile<8xi32>
  %r = expand_dims %r8 {axis = 1} : tile<8x1xi32>
  %rb = broadcast %r : tile<8x32xi32>
  %nb = splat %n : tile<8x32xi32>
  %rn = mul %rb, %nb : tile<8x32xi32>
  %off = add %rn, %cb : tile<8x32xi32>
  %xs = splat %x : tile<8x32xptr<i32>>
  %p = addptr %xs, %off : tile<8x32xptr<i32>>
  %lo = constant 0 : i32
  %hi = constant 3 : i32
  %st = constant 1 : i32
  %f = constant 0 : i32
  %z = splat %f : tile<8x32xi32>
  %sum = for %lo, %hi, %st, inits=[%z] : tile<8x32xi32> body(%k: i32, %acc: tile<8x32xi32>) {
    %v = load %p : tile<8x32xi32>
    %kb = splat %k : tile<8x32xi32>
    %w = mul %v, %kb : tile<8x32xi32>
    %next = add %acc, %w : tile<8x32xi32>
    yield %next
  }
  %k32 = constant 32 : i32
  %w32 = splat %k32 : tile<8x32xi32>
  %r32 = mul %rb, %w32 : tile<8x32xi32>
  %i1 = expand_dims %i {axis = 0} : tile<1x32xi32>
  %ib = broadcast %i1 : tile<8x32xi32>
  %to = add %r32, %ib : tile<8x32xi32>
  %ys = splat %y : tile<8x32xptr<i32>>
  %q = addptr %ys, %to : tile<8x32xptr<i32>>
  store %q, %sum
  return
}
"""
    plain = "%h = hint %m {divisibility = [1]} : tile<32xi32>"
    promised = "%h = hint %m {contiguity = [32]} : tile<32xi32>"
    for hint in (plain, promised):
        for start, n in ((0, 32), (0, 100), (68, 100), (69, 100), (90, 100), (3, 5), (-7, 64)):
            same_as_reference(
                text.replace("HINT", hint), [numbers(1000), numbers(256, seed=1), max(start, 0), n]
            )


@pytest.mark.parametrize("n", [0, 1, 5, 16, 33])
def test_booleans_in_memory(n: int, same_as_reference: Check) -> None:
    text = """
kernel @flags(%x: ptr<i1>, %y: ptr<i1>, %n: i32) {
  %i = arange {start = 0, end = 33} : tile<33xi32>
  %xs = splat %x : tile<33xptr<i1>>
  %p = addptr %xs, %i : tile<33xptr<i1>>
  %ns = splat %n : tile<33xi32>
  %in = cmp %i, %ns {predicate = lt} : tile<33xi1>
  %k = constant true : i1
  %ks = splat %k : tile<33xi1>
  %v = load %p, mask=%in, other=%ks : tile<33xi1>
  %u = load %p : tile<33xi1>
  %w = xor %v, %u : tile<33xi1>
  %ys = splat %y : tile<33xptr<i1>>
  %q = addptr %ys, %i : tile<33xptr<i1>>
  store %q, %w, mask=%in
  return
}
"""
    flags = np.random.default_rng(0).integers(0, 2, 40).astype(np.bool_)
    same_as_reference(text, [flags, np.zeros(40, np.bool_), n])


def test_a_volatile_load_is_read_where_it_stands(same_as_reference: Check) -> None:
    text = copy_text(
        "",
        (
            "  %u = load %p {volatile = true} : tile<64xi32>\n  store %p, %one\n"
            "  %q = addptr %ys, %i : tile<64xptr<i32>>\n  store %q, %u"
        ),
    )
    same_as_reference(text, [numbers(64), numbers(64, seed=1)])


def test_division_in_dead_lanes_does_not_trap(same_as_reference: Check) -> None:
    text = """
kernel @divide(%x: ptr<T>, %y: ptr<T>, %n: i32) {
  %i = arange {start = 0, end = 40} : tile<40xi32>
  %xs = splat %x : tile<40xptr<T>>
  %p = addptr %xs, %i : tile<40xptr<T>>
  %ys = splat %y : tile<40xptr<T>>
  %q = addptr %ys, %i : tile<40xptr<T>>
  %ns = splat %n : tile<40xi32>
  %in = cmp %i, %ns {predicate = lt} : tile<40xi1>
  %a = load %p : tile<40xT>
  %b = load %q, mask=%in : tile<40xT>
  %d = div %a, %b : tile<40xT>
  %r = rem %a, %b : tile<40xT>
  %s = sub %d, %r : tile<40xT>
  store %q, %s, mask=%in
  return
}
"""
    rng = np.random.default_rng(0)
    for name, dtype in (
        ("i8", np.int8),
        ("i16", np.int16),
        ("i32", np.int32),
        ("i64", np.int64),
        ("u8", np.uint8),
        ("u32", np.uint32),
        ("u64", np.uint64),
    ):
        information = np.iinfo(dtype)
        x = rng.integers(information.min, information.max, 40, dtype, endpoint=True)
        y = rng.integers(information.min, information.max, 40, dtype, endpoint=True)
        x[::5] = information.min
        x[1::5] = information.max
        y[::3] = -1 if information.min else information.max
        y[2::3] = 3
        y[y == 0] = 1
        for n in (0, 17, 40):
            same_as_reference(text.replace("T>", f"{name}>").replace("xT", f"x{name}"), [x, y, n])


@device_function
def repeated(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    at = x + (i * 0 + j)
    tl.store(at, tl.load(at) + 1)
    one = x + COLUMNS + tl.zeros((ROWS * COLUMNS,), tl.int32)
    tl.store(one, tl.load(one) + 1)


@pytest.mark.parametrize(("rows", "columns"), [(4, 16), (64, 2), (16, 128)])
def test_lanes_of_one_address_all_see_what_was_there_before(
    rows: int, columns: int, module_of: Any, compiled: Any
) -> None:
    x = numbers(columns + 1, np.int32)
    found = x.copy()
    compiled(module_of(repeated, [x], ROWS=rows, COLUMNS=columns))([found])
    np.testing.assert_array_equal(found, x + 1)


@device_function
def scalars(x, o, far, go):
    value = tl.load(x + far, mask=go != 0)
    other = tl.load(x + far, mask=go != 0, other=5)
    tl.store(o, value)
    tl.store(o + 1, other)


def test_scalars_that_are_left_out_are_not_read(module_of: Any, compiled: Any) -> None:
    x, found = np.array([7, 8], np.int32), np.zeros(2, np.int32)
    run = compiled(module_of(scalars, [x, found, 0, 0], {"far": "i64"}))
    for far, go, expected in ((2**40, 0, [0, 5]), (-(2**40), 0, [0, 5]), (1, 1, [8, 8])):
        run([x, found, far, go])
        assert found.tolist() == expected


def test_a_scalar_truth_is_any_byte_but_zero(compiled: Any) -> None:
    from tilewright.ir.parser import parse_module

    run = compiled(
        parse_module(
            "tilewright.ir 1.0\nkernel @k(%x: ptr<i1>, %o: ptr<i8>) {\n%a = load %x : i1\n"
            "%b = cast %a : i8\nstore %o, %b\nreturn\n}"
        )
    )
    for byte in (0, 1, 2, 254, 255):
        found = np.full(1, 9, np.int8)
        run([np.array([byte], np.uint8), found])
        assert found[0] == (byte != 0), byte
