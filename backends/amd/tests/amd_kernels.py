"""Kernels that the tests compile."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright.language.extra import libdevice
from tilewright_conformance.kernels.portable_kernels import add as add


@tw.jit
def where_programs_are(out):
    place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(
        0
    ) + tl.program_id(0)
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
    tl.store(
        out,
        tl.inline_asm_elementwise("v_nothing $0, $1", "=v,v", [tl.load(x)], tl.float32, True, 1),
    )


@tw.jit
def gathered(x, places, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(places + at), axis=0))


@tw.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left, right = (
        tl.load(a + rows[:, None] * K + k[None, :]),
        tl.load(b + k[:, None] * N + columns[None, :]),
    )
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
def from_zero(x, out, N: tl.constexpr, FORM: tl.constexpr):
    """Three times 0 - x, in one of several forms."""
    at = tl.arange(0, N)
    number = tl.load(x + at)
    if FORM == "difference":
        found = 0.0 - number
    elif FORM == "sum":
        found = -number + 0.0
    elif FORM == "sum from zero":
        found = 0.0 + -number
    elif FORM == "product":
        found = number * -1.0 + 0.0
    elif FORM == "fused":
        found = tl.fma(number, tl.full((N,), -1.0, number.dtype), tl.zeros((N,), number.dtype))
    else:
        found = tl.fma(tl.full((N,), 1.0, number.dtype), -number, tl.zeros((N,), number.dtype))
    tl.store(out + at, found * 3)


@tw.jit
def in_order_of_places(counter, out):
    tl.store(out + tl.atomic_add(counter, 1), tl.program_id(0))


@tw.jit
def converted(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


@tw.jit
def clamped(x, out, BOUND: tl.constexpr, PROPAGATE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    nan: tl.constexpr = tl.PropagateNan.ALL if PROPAGATE else tl.PropagateNan.NONE
    tl.store(
        out + at,
        tl.clamp(tl.load(x + at), -BOUND, BOUND, propagate_nan=nan).to(out.dtype.element_ty),
    )


@tw.jit
def computed(x, y, out, N: tl.constexpr, NAME: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    if NAME == "add":
        tl.store(out + at, a + b)
    elif NAME == "sub":
        tl.store(out + at, a - b)
    else:
        tl.store(out + at, a * b)


@tw.jit
def scaled(
    a, a_scale, b, b_scale, c, out, trips,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    SCALES: tl.constexpr, TRIPS: tl.constexpr,
):  # fmt: skip
    """``c`` plus the sum over ``trips`` pieces along K of a [M, TRIPS * K] times b [TRIPS * K, N],
    e2m1 in pairs along K; SCALES says which have scales."""
    OF_A: tl.constexpr = K // 2 if A == "e2m1" else K
    OF_B: tl.constexpr = K // 2 if B == "e2m1" else K
    GROUPS: tl.constexpr = K // 32
    rows, columns, groups = tl.arange(0, M), tl.arange(0, N), tl.arange(0, GROUPS)
    sums = tl.load(c + rows[:, None] * N + columns[None, :])
    for i in range(trips):
        left = tl.load(a + rows[:, None] * (TRIPS * OF_A) + i * OF_A + tl.arange(0, OF_A)[None, :])
        right = tl.load(b + (i * OF_B + tl.arange(0, OF_B))[:, None] * N + columns[None, :])
        left_scale, right_scale = None, None
        if SCALES[0]:
            left_scale = tl.load(
                a_scale + rows[:, None] * (TRIPS * GROUPS) + i * GROUPS + groups[None, :]
            )
        if SCALES[1]:
            right_scale = tl.load(
                b_scale + columns[:, None] * (TRIPS * GROUPS) + i * GROUPS + groups[None, :]
            )
        sums = tl.dot_scaled(left, left_scale, A, right, right_scale, B, sums)
    tl.store(out + rows[:, None] * N + columns[None, :], sums)


@tw.jit
def scaled_otherwise(a, a_scale, b, out, A: tl.constexpr, PACKED: tl.constexpr):
    rows, ks = tl.arange(0, 32), tl.arange(0, 128)
    right = tl.load(b + ks[:, None] * 32 + rows[None, :])
    if PACKED:
        product = tl.dot_scaled(right.T, None, A, right, None, A)
    else:
        left = tl.load(a + tl.arange(0, 16)[:, None] * 128 + ks[None, :])
        scale = tl.load(a_scale + rows[:, None] * 4 + tl.arange(0, 4)[None, :])
        product = tl.dot_scaled(
            left, scale, A, left.T, scale, A, lhs_k_pack=False, rhs_k_pack=False
        )
    tl.store(out + rows[:, None] * 32 + rows[None, :], product)


@tw.jit
def assembly(
    x,
    y,
    out,
    ASSEMBLY: tl.constexpr,
    CONSTRAINTS: tl.constexpr,
    ELEMENT: tl.constexpr,
    PACK: tl.constexpr,
    N: tl.constexpr,
):
    each: tl.constexpr = 32 // ELEMENT.primitive_bitwidth
    offsets = tl.arange(0, N * each)
    a, b = (
        tl.load(x.to(tl.pointer_type(ELEMENT)) + offsets),
        tl.load(y.to(tl.pointer_type(ELEMENT)) + offsets),
    )
    found = tl.inline_asm_elementwise(
        ASSEMBLY, CONSTRAINTS, [a, b], dtype=ELEMENT, is_pure=True, pack=PACK
    )
    tl.store(out.to(tl.pointer_type(ELEMENT)) + offsets, found)


@tw.jit
def scalar_assembly(out, n):
    tl.store(
        out,
        tl.inline_asm_elementwise(
            "s_mul_i32 $0, $1, 3", "=s,s", [n], dtype=tl.int32, is_pure=True, pack=1
        ),
    )
    lanes = tl.inline_asm_elementwise(
        "v_mov_b32 v3, 1\nv_readlane_b32 $0, v3, 0\ns_lshl_b32 $0, $0, 5",
        "=s,~{v3}",
        [],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + 1, lanes)
    tl.store(
        out + 2,
        tl.inline_asm_elementwise(
            "v_not_b32 $0, $1", "=v,v", [n], dtype=tl.int32, is_pure=True, pack=1
        ),
    )


@tw.jit
def ticks(out):
    tl.store(out, tl.extra.hip.memrealtime())


@tw.jit
def meets(count, seen):
    """A barrier of all programs of the grid; each says how many it saw come."""
    p, n = (
        tl.program_id(1) * tl.num_programs(0) + tl.program_id(0),
        tl.num_programs(0) * tl.num_programs(1),
    )
    tl.atomic_add(count, 1, sem="acq_rel")
    come = tl.atomic_add(count, 0, sem="acquire")
    while come < n:
        come = tl.atomic_add(count, 0, sem="acquire")
    tl.store(seen + p, come)


@tw.jit
def fast_quotient(x, y, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out + places, libdevice.fast_dividef(tl.load(x + places), tl.load(y + places)))


@tw.jit
def rounded_product(x, y, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out + places, libdevice.round(tl.load(x + places) * tl.load(y + places)))


@tw.jit
def product_and_sum_rounded_down(x, y, z, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(
        out + places,
        libdevice.add_rd(tl.load(x + places) * tl.load(y + places), tl.load(z + places)),
    )


@tw.jit
def row_sums(x, z, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    tl.atomic_add(
        z + offsets, tl.load(x + tl.program_id(0) * BLOCK + offsets, mask=inside), mask=inside
    )


@tw.jit
def row_sums_with_old(x, z, old, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < n
    found = tl.atomic_add(z + offsets, tl.load(x + offsets, mask=inside), mask=inside)
    tl.store(old + offsets, found, mask=inside)


@tw.jit
def tile_sums(x, z, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + rows[:, None] * COLUMNS + columns[None, :], mask=rows[:, None] < m)
    tl.atomic_add(z + rows * STRIDE, tl.sum(value, 1), mask=rows < m)


@tw.jit
def fused(x, y, z, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.fma(tl.load(x + at), tl.load(y + at), tl.load(z + at)))


@tw.jit
def logarithm(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.log(tl.load(x + at)))


@tw.jit
def until_found(x, out, n, N: tl.constexpr):
    """Count the rows up to the first one with a number above zero."""
    found, rows = False, 0
    for row in range(n):
        if not found:
            found = tl.sum((tl.load(x + row * N + tl.arange(0, N)) > 0).to(tl.int32), 0) > 0
            rows += 1
    tl.store(out, rows)


@tw.jit
def few_gathered(x, rows, out, N: tl.constexpr):
    at = tl.arange(0, N)
    for part in tl.static_range(3):
        total = tl.zeros((N,), tl.float32)
        for i in range(4):
            total += tl.load(x + tl.load(rows + i) * 3 * N + part * N + at)
        tl.store(out + part * N + at, total)
