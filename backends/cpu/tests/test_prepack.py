"""Prepacked matrices: the same results as the matrix itself, of packing that is really used."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.ir.types import BF16, FloatType
from tilewright.reference.numerics import decode, encode
from tilewright.runtime.arguments.array_protocols import ArgumentError, ArrayView

RNG = np.random.default_rng(7)


@tw.jit
def product(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    sbk,
    sbn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SUM: tl.constexpr,
    WIDE: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    for start in range(0, K, BLOCK_K):
        here = start + k
        a = tl.load(
            a_ptr + rows[:, None] * K + here[None, :],
            mask=(rows[:, None] < M) & (here[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + here[:, None] * sbk + columns[None, :] * sbn,
            mask=(here[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        if WIDE:
            a, b = a.to(tl.float32), b.to(tl.float32)
        total = tl.dot(a, b, total)
    tl.store(
        c_ptr + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def multiplied(a, b, shape, strides, block=(32, 64, 16), wide=False, sums=np.float32):
    """Return the kernel's matmul; elements that it does not write keep poison values."""
    (m, k), n = a.shape, shape[1]
    c = np.full((m, n), 77, sums)
    names = {np.float32: tl.float32, np.float64: tl.float64, np.int32: tl.int32}
    blocks = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block, strict=True))
    product[tw.cdiv(m, block[0]), tw.cdiv(n, block[1])](
        a, b, c, m, n, k, *strides, **blocks, SUM=names[sums], WIDE=wide
    )
    return c


def matrices(kind, shape):
    """A matrix as kernels get it, and as float64 or int64."""
    if kind in ("bf16", "fp8e5", "fp8e4nv"):
        format_ = {"bf16": BF16, "fp8e5": FloatType("f8e5m2"), "fp8e4nv": FloatType("f8e4m3fn")}[
            kind
        ]
        raw = np.ascontiguousarray(encode(RNG.standard_normal(shape, dtype=np.float32), format_))
        return raw, decode(raw, format_).astype(np.float64)
    if kind in ("int8", "uint8"):
        raw = RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)
        return raw, raw.astype(np.int64)
    raw = RNG.standard_normal(shape).astype(kind)
    return raw, raw.astype(np.float64)


def as_argument(raw, kind):
    """Raw bits with their element type."""
    if kind not in ("bf16", "fp8e5", "fp8e4nv"):
        return raw
    strides = tuple(stride // raw.itemsize for stride in raw.strides)
    return ArrayView(raw, raw.ctypes.data, kind, raw.shape, strides, ("cpu", 0))


KINDS = ["float32", "float64", "float16", "bf16", "fp8e5", "fp8e4nv", "int8", "uint8"]


@pytest.mark.each_value
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_the_matrix_itself(kind, transposed):
    sums = {"float64": np.float64, "int8": np.int32, "uint8": np.int32}.get(kind, np.float32)
    for m, n, k in ((32, 64, 48), (37, 77, 53), (65, 2048, 33), (1, 64, 64)):
        a, exact_a = matrices(kind, (m, k))
        stored, exact_b = matrices(kind, (n, k) if transposed else (k, n))
        b, exact_b = (stored.T, exact_b.T) if transposed else (stored, exact_b)
        strides = tuple(stride // b.itemsize for stride in b.strides)
        left, right = as_argument(a, kind), as_argument(b, kind)
        plain = multiplied(left, right, (k, n), strides, sums=sums)
        packed = tw.cpu.prepack(right)
        assert packed.shape == (k, n) and packed.data_ptr() == b.ctypes.data
        found = multiplied(left, packed, (k, n), strides, sums=sums)
        assert np.array_equal(found, plain)
        exact = exact_a @ exact_b
        assert np.allclose(
            found, exact, rtol=1e-5, atol=1e-4 * np.abs(exact_a).max() * np.abs(exact_b).max()
        )


@pytest.mark.parametrize("kind", ["float32", "float64", "bf16", "int8"])
def test_matmuls_read_the_packing(kind):
    sums = {"float64": np.float64, "int8": np.int32}.get(kind, np.float32)
    a, _ = matrices(kind, (64, 64))
    b, _ = matrices(kind, (64, 2048))  # rows far enough apart for packing
    left, right = as_argument(a, kind), as_argument(b, kind)
    before = multiplied(left, right, b.shape, (2048, 1), sums=sums)
    packed = tw.cpu.prepack(right)
    b[:] = 0
    assert np.array_equal(multiplied(left, packed, b.shape, (2048, 1), sums=sums), before)
    assert not multiplied(left, right, b.shape, (2048, 1), sums=sums).any()
    packed.refresh()
    assert not multiplied(left, packed, b.shape, (2048, 1), sums=sums).any()


def test_narrow_floats_that_are_multiplied_as_f32():
    a, _ = matrices("bf16", (64, 64))
    b, _ = matrices("bf16", (64, 4096))
    left, right = as_argument(a, "bf16"), as_argument(b, "bf16")
    before = multiplied(left, right, b.shape, (4096, 1), wide=True)
    packed = tw.cpu.prepack(right, dtype=tl.float32)
    b[:] = 0
    assert np.array_equal(multiplied(left, packed, b.shape, (4096, 1), wide=True), before)


def test_tiles_narrower_than_a_panel():
    a, _ = matrices("float32", (64, 64))
    b, _ = matrices("float32", (64, 2048))
    before = multiplied(a, b, b.shape, (2048, 1), block=(64, 8, 16))
    usual, narrow = tw.cpu.prepack(b), tw.cpu.prepack(b, block_n=8)
    assert narrow.panel_columns == min(8, usual.panel_columns)
    assert np.array_equal(multiplied(a, usual, b.shape, (2048, 1), block=(64, 8, 16)), before)
    b[:] = 0
    assert np.array_equal(multiplied(a, narrow, b.shape, (2048, 1), block=(64, 8, 16)), before)


def test_tiles_of_another_place_or_stride_are_read_where_they_are():
    a, _ = matrices("float32", (64, 32))
    b, _ = matrices("float32", (64, 4096))
    packed = tw.cpu.prepack(b)
    for rows, stride in ((32, 8192), (32, 2048), (64, 4096)):
        # the same memory as another matrix: every second row, half rows
        other = np.lib.stride_tricks.as_strided(b, (32, 2000), (4 * stride, 4))
        found = multiplied(a, packed, other.shape, (stride, 1))
        assert np.array_equal(found, multiplied(a, b, other.shape, (stride, 1))), (rows, stride)
        assert np.allclose(found, a.astype(np.float64) @ other, atol=1e-3)


def test_several_packed_matrices_and_many_launches():
    a, _ = matrices("float32", (96, 64))
    many = [matrices("float32", (64, 2048))[0] for _ in range(3)]
    packed = [tw.cpu.prepack(b) for b in many]
    for b, p in [*zip(many, packed, strict=True)] * 3:
        # the left operand may be one as well: it is read as the matrix it is
        assert np.array_equal(
            multiplied(a, p, b.shape, (2048, 1)),
            multiplied(tw.cpu.prepack(a), b, b.shape, (2048, 1)),
        )


def test_a_kernel_may_not_store_to_a_packed_matrix():
    c = np.zeros((32, 64), np.float32)
    a, _ = matrices("float32", (32, 32))
    b, _ = matrices("float32", (32, 64))
    with pytest.raises(LaunchError, match="argument 'c_ptr' is a read-only PackedMatrix"):
        product[1, 2](
            a,
            b,
            tw.cpu.prepack(c),
            32,
            64,
            32,
            64,
            1,
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=16,
            SUM=tl.float32,
            WIDE=False,
        )


def test_tensors_are_packed():
    torch = pytest.importorskip("torch")
    a, b = torch.randn(64, 64), torch.randn(64, 2048)
    packed = tw.cpu.prepack(b)
    assert packed.dtype == torch.float32 and packed.stride() == (2048, 1)
    before = multiplied(a.numpy(), b.numpy(), b.shape, (2048, 1))
    b.zero_()
    assert np.array_equal(multiplied(a.numpy(), packed, b.shape, (2048, 1)), before)


@pytest.mark.parametrize(
    ("matrix", "keywords", "says"),
    [
        (np.zeros((4, 4, 4), np.float32), {}, r"shape \(4, 4, 4\)"),
        (np.zeros((0, 4), np.float32), {}, r"shape \(0, 4\)"),
        (np.zeros((4, 4), np.int64), {}, "elements of type i64"),
        (np.zeros((8, 8), np.float32)[::2, ::2], {}, r"strides of \(16, 2\) elements"),
        (np.zeros((8, 8), np.float32)[::-1], {}, "strides of"),
        (np.broadcast_to(np.zeros(8, np.float32), (4, 8)), {}, r"strides of \(0, 1\) elements"),
        (np.zeros((8, 8), np.float32), {"block_n": 24}, "block_n must be a power of two"),
        (np.zeros((8, 8), np.float32), {"dtype": tl.float64}, "multiplied as f64"),
        (np.zeros((8, 8), np.float32), {"dtype": "nothing"}, "nothing"),
    ],
)
def test_what_cannot_be_packed_is_refused(matrix, keywords, says):
    with pytest.raises(LaunchError, match=says):
        tw.cpu.prepack(matrix, **keywords)


def test_what_is_no_array_is_refused():
    with pytest.raises(ArgumentError, match="cannot pass a list"):
        tw.cpu.prepack([[1.0]])
    with pytest.raises(LaunchError, match="copy it there"):
        tw.cpu.prepack(ArrayView(None, 64, "fp32", (4, 4), (4, 1), ("cuda", 0)))
