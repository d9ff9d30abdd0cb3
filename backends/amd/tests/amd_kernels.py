"""Kernels that the tests compile."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(z + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


@tw.jit
def where_programs_are(out):
    place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + place, place)


@tw.jit
def sum_of_rows(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(out + rows, tl.sum(tl.load(x + rows[:, None] * COLUMNS + columns[None, :]), axis=1))


@tw.jit
def transposed(x, out, N: tl.constexpr):
    rows, columns = tl.arange(0, N), tl.arange(0, N)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows[:, None] * N + columns[None, :], tl.trans(tile))


@tw.jit
def asserted(x, least, greatest, out, N: tl.constexpr):
    places = tl.arange(0, N)
    values = tl.load(x + places)
    tl.device_assert(values >= least, "too small")
    tl.device_assert(values <= greatest, "too great")
    tl.store(out + places, values)


@tw.jit
def says(x):
    print("x", tl.load(x))


@tw.jit
def says_and_checks(x, n):
    value = tl.load(x)
    tl.device_print("found", value)
    tl.device_assert(value < n, "too great")


@tw.jit
def checks(x, n):
    value = tl.load(x)
    tl.device_assert(value < n, "too great")


@tw.jit
def called_by_mistake(x, out):
    tl.store(out, tl.inline_asm_elementwise("v_nothing $0, $1", "=v,v", [tl.load(x)], tl.float32, True, 1))


@tw.jit
def doubled_by_assembly(x, out, N: tl.constexpr):
    columns = tl.arange(0, N)
    value = tl.inline_asm_elementwise("v_add_f32 $0, $1, $1", "=v,v", [tl.load(x + columns)], tl.float32, True, 1)
    tl.store(out + columns, value)


@tw.jit
def gathered(x, places, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(places + at), axis=0))


@tw.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = tl.load(a + rows[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + columns[None, :])
    total = tl.dot(left, right, out_dtype=c.dtype.element_ty, input_precision=PRECISION)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@tw.jit
def widened(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@tw.jit
def passed_on(scratch, out, BLOCK: tl.constexpr):
    start, at = tl.program_id(0) * BLOCK, tl.arange(0, BLOCK)
    tl.store(scratch + start + at, at)
    tl.debug_barrier()
    backwards = tl.load(scratch + start + (BLOCK - 1) - at)
    tl.debug_barrier()
    tl.store(scratch + start + at, backwards + 1)
    tl.debug_barrier()
    tl.store(out + start + at, tl.load(scratch + start + at))


@tw.jit
def taken_in_turn(lock, data, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.debug_barrier()
    at = tl.arange(0, BLOCK)
    tl.store(data + at, tl.load(data + at) * 2 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@tw.jit
def from_zero(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, (0.0 - tl.load(x + at)) * 3)


@tw.jit
def in_order_of_places(counter, out):
    tl.store(out + tl.atomic_add(counter, 1), tl.program_id(0))


@tw.jit
def converted(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))
