"""Kernels with device-side descriptors, of loaded addresses or made anew in a loop."""

from __future__ import annotations

from typing import Any

import tilewright.language as tl


def grouped(
    addresses: Any,
    sizes: Any,
    groups: Any,
    TYPE: tl.constexpr,
    PROGRAMS: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    WIDTH: tl.constexpr = 1,
) -> None:
    """``c = a @ b.T`` of each group: ``addresses`` [groups, 3] of a, b, c; ``sizes`` [groups, 3] =
    m, n, k; rows lie side by side."""
    block = tl.program_id(0)
    before = 0
    for group in range(groups):
        m = tl.load(sizes + 3 * group)
        n = tl.multiple_of(tl.load(sizes + 3 * group + 1), WIDTH)
        depth = tl.load(sizes + 3 * group + 2)
        across = tl.cdiv(n, N)
        blocks = tl.cdiv(m, M) * across
        if block >= before and block < before + blocks:
            pointer = addresses + 3 * group
            a = tl.make_tensor_descriptor(
                tl.load(pointer).to(tl.pointer_type(TYPE)), [m, depth], [depth, 1], [M, K]
            )
            b = tl.make_tensor_descriptor(
                tl.load(pointer + 1).to(tl.pointer_type(TYPE)), [n, depth], [depth, 1], [N, K]
            )
            c = tl.make_tensor_descriptor(
                tl.load(pointer + 2).to(tl.pointer_type(TYPE)), [m, n], [n, 1], [M, N]
            )
            while block >= before and block < before + blocks:
                row = (block - before) // across * M
                column = (block - before) % across * N
                total = tl.zeros((M, N), dtype=tl.float32)
                for start in range(0, depth, K):
                    total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
                c.store([row, column], total.to(TYPE))
                block += PROGRAMS
        before += blocks


def copied(
    addresses: Any,
    numbers: Any,
    count: Any,
    TYPE: tl.constexpr,
    RANK: tl.constexpr,
    B: tl.constexpr,
    LAST: tl.constexpr,
    WIDTH: tl.constexpr = 1,
) -> None:
    """Copy tensors: ``addresses`` [count, 2] from and to; ``numbers`` [count, 6]: extents, the last
    axis first, and the elements from row to row."""
    for i in range(tl.program_id(0), count, tl.num_programs(0)):
        x = tl.load(addresses + 2 * i).to(tl.pointer_type(TYPE))
        y = tl.load(addresses + 2 * i + 1).to(tl.pointer_type(TYPE))
        e0 = tl.multiple_of(tl.load(numbers + 6 * i), WIDTH)
        e1 = tl.load(numbers + 6 * i + 1)
        e2 = tl.load(numbers + 6 * i + 2)
        e3 = tl.load(numbers + 6 * i + 3)
        e4 = tl.load(numbers + 6 * i + 4)
        s1 = tl.load(numbers + 6 * i + 5)
        s2, s3, s4 = s1 * e1, s1 * e1 * e2, s1 * e1 * e2 * e3
        if RANK == 1:
            source = tl.make_tensor_descriptor(x, [e0], [1], [LAST])
            target = tl.make_tensor_descriptor(y, [e0], [1], [LAST])
            for a in range(0, e0, LAST):
                target.store([a], source.load([a]))
        elif RANK == 2:
            source = tl.make_tensor_descriptor(x, [e1, e0], [s1, 1], [B, LAST])
            target = tl.make_tensor_descriptor(y, [e1, e0], [s1, 1], [B, LAST])
            for b in range(0, e1, B):
                for a in range(0, e0, LAST):
                    target.store([b, a], source.load([b, a]))
        elif RANK == 3:
            source = tl.make_tensor_descriptor(x, [e2, e1, e0], [s2, s1, 1], [B, B, LAST])
            target = tl.make_tensor_descriptor(y, [e2, e1, e0], [s2, s1, 1], [B, B, LAST])
            for c in range(0, e2, B):
                for b in range(0, e1, B):
                    for a in range(0, e0, LAST):
                        target.store([c, b, a], source.load([c, b, a]))
        elif RANK == 4:
            source = tl.make_tensor_descriptor(
                x, [e3, e2, e1, e0], [s3, s2, s1, 1], [1, B, B, LAST]
            )
            target = tl.make_tensor_descriptor(
                y, [e3, e2, e1, e0], [s3, s2, s1, 1], [1, B, B, LAST]
            )
            for d in range(e3):
                for c in range(0, e2, B):
                    for b in range(0, e1, B):
                        for a in range(0, e0, LAST):
                            target.store([d, c, b, a], source.load([d, c, b, a]))
        else:
            source = tl.make_tensor_descriptor(
                x, [e4, e3, e2, e1, e0], [s4, s3, s2, s1, 1], [1, 1, B, B, LAST]
            )
            target = tl.make_tensor_descriptor(
                y, [e4, e3, e2, e1, e0], [s4, s3, s2, s1, 1], [1, 1, B, B, LAST]
            )
            for e in range(e4):
                for d in range(e3):
                    for c in range(0, e2, B):
                        for b in range(0, e1, B):
                            for a in range(0, e0, LAST):
                                target.store([e, d, c, b, a], source.load([e, d, c, b, a]))


def surrounded(
    addresses: Any,
    numbers: Any,
    count: Any,
    y: Any,
    TYPE: tl.constexpr,
    PADDING: tl.constexpr,
    B: tl.constexpr,
    LAST: tl.constexpr,
) -> None:
    """The block at (-1, 0) of each tensor of ``numbers`` [count, 2] rows and columns, rows of LAST
    elements, to rows of ``y`` [count * B, LAST]."""
    whole = tl.make_tensor_descriptor(y, [count * B, LAST], [LAST, 1], [B, LAST])
    for i in range(count):
        x = tl.load(addresses + i).to(tl.pointer_type(TYPE))
        rows = tl.load(numbers + 2 * i)
        columns = tl.load(numbers + 2 * i + 1)
        source = tl.make_tensor_descriptor(
            x, [rows, columns], [LAST, 1], [B, LAST], padding_option=PADDING
        )
        whole.store([i * B, 0], source.load([-1, 0]))


def updated(
    addresses: Any,
    numbers: Any,
    x: Any,
    count: Any,
    TYPE: tl.constexpr,
    KIND: tl.constexpr,
    B: tl.constexpr,
    LAST: tl.constexpr,
    WIDTH: tl.constexpr = 1,
) -> None:
    """Update each tensor of ``numbers`` [count, 2] rows and columns, rows of LAST elements, by
    blocks of ``x`` [count * B, LAST], three times each."""
    for i in range(count):
        y = tl.load(addresses + i).to(tl.pointer_type(TYPE))
        columns_there = tl.multiple_of(tl.load(numbers + 2 * i + 1), WIDTH)
        target = tl.make_tensor_descriptor(
            y, [tl.load(numbers + 2 * i), columns_there], [LAST, 1], [B, LAST]
        )
        rows, columns = tl.arange(0, B), tl.arange(0, LAST)
        value = tl.load(x + (i * B + rows[:, None]) * LAST + columns[None, :])
        for _ in range(3):
            if KIND == "add":
                target.atomic_add([0, 0], value)
            elif KIND == "min":
                target.atomic_min([0, 0], value)
            elif KIND == "max":
                target.atomic_max([0, 0], value)
            elif KIND == "and":
                target.atomic_and([0, 0], value)
            elif KIND == "or":
                target.atomic_or([0, 0], value)
            else:
                target.atomic_xor([0, 0], value)


def batched(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    batches: Any,
    m: Any,
    n: Any,
    k: Any,
    TYPE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    SPECIALIZE: tl.constexpr,
    WIDTH: tl.constexpr = 1,
) -> None:
    """``c[t, : m - t] = a[t, : m - t] @ b[t].T``, of whose tensors each batch makes descriptors
    anew."""
    n = tl.multiple_of(n, WIDTH)
    for t in tl.range(tl.program_id(0), batches, tl.num_programs(0), warp_specialize=SPECIALIZE):
        a = tl.make_tensor_descriptor(a_ptr + t * m * k, [m - t, k], [k, 1], [M, K])
        b = tl.make_tensor_descriptor(b_ptr + t * n * k, [n, k], [k, 1], [N, K])
        c = tl.make_tensor_descriptor(c_ptr + t * m * n, [m - t, n], [n, 1], [M, N])
        for row in range(0, m - t, M):
            for column in range(0, n, N):
                total = tl.zeros((M, N), dtype=tl.float32)
                for start in tl.range(0, k, K):
                    total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
                c.store([row, column], total.to(TYPE))


def kept(
    addresses: Any, numbers: Any, count: Any, c_ptr: Any, B: tl.constexpr, LAST: tl.constexpr
) -> None:
    """Rows of tensors are added up in ``c_ptr``, by whose descriptor, made anew too, they are read
    back."""
    for i in range(count):
        x = tl.load(addresses + i).to(tl.pointer_type(tl.float32))
        source = tl.make_tensor_descriptor(x, [tl.load(numbers + i), LAST], [LAST, 1], [B, LAST])
        sums = tl.make_tensor_descriptor(c_ptr + i % 2 * LAST, [B, LAST], [LAST, 1], [B, LAST])
        sums.store([0, 0], sums.load([0, 0]) + source.load([0, 0]))


def met(x: Any, y: Any, turns: Any) -> None:
    """Load the last rows of a tensor through one of several descriptors, and with NaN padding."""
    zero = tl.make_tensor_descriptor(x, [5, 8], [8, 1], [4, 8])
    nan = tl.make_tensor_descriptor(x, [5, 8], [8, 1], [4, 8], padding_option="nan")
    one = zero
    other = nan
    for _ in range(turns):
        one, other = other, one
    out = y + tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out, one.load([3, 0]))
    tl.store(out + 32, nan.load([3, 0]))
