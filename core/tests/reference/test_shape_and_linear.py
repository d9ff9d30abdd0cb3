"""Operations that move elements, and matmuls."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.types import (
    BF16,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U64,
    PointerType,
    TileType,
)
from tilewright.reference import numerics


def tile(shape, element=I32):
    return TileType(shape, element)


def test_shapes(kernels, rng):
    x = rng.integers(-100, 100, (3, 5, 2)).astype(np.int32)
    t = tile((3, 5, 2))

    def build(b, v):
        left, right = b.split(v)
        return (
            b.permute(v, order=(2, 0, 1)),
            b.reshape(v, result=tile((6, 5))),
            b.expand_dims(v, axis=1),
            b.expand_dims(v, axis=3),
            left,
            b.join(right, left),
            b.cat(v, v, axis=1),
            b.broadcast(b.reshape(left, result=tile((3, 1, 5))), result=tile((3, 4, 5))),
        )

    got = kernels.apply(build, [(x, t)])
    want = [
        x.transpose(2, 0, 1),
        x.reshape(6, 5),
        x[:, None],
        x[..., None],
        x[..., 0],
        np.stack([x[..., 1], x[..., 0]], -1),
        np.concatenate([x, x], 1),
        np.broadcast_to(x[..., 0][:, None], (3, 4, 5)),
    ]
    for result, expected in zip(got, want, strict=True):
        assert np.array_equal(result, expected)


def test_scalars_to_tiles_and_back(kernels):
    got = kernels.apply(
        lambda b, v: (b.splat(v, result=tile((2, 3))), b.unsplat(b.splat(v, result=tile((1, 1))))),
        [(7, I32)],
    )
    assert got[0].tolist() == [[7] * 3] * 2
    assert got[1] == 7
    parts = kernels.apply(lambda b, v: b.split(v), [(np.array([4, 9]), tile((2,)))])
    assert [int(p) for p in parts] == [4, 9]


def test_shapes_of_values_that_vary_among_programs(kernels, rng):
    """Each program works on a row of its own, so that every operation sees an axis over
    programs."""
    rows, n = 5, 6
    x = rng.integers(0, 100, (rows, n)).astype(np.int32)
    out = np.zeros((rows, n, 2), np.int32)
    counts = np.zeros((rows, 4), np.int32)

    def body(b, source, target, histogram):
        pid = b.program_id(axis=0)

        def pointers(base, count):
            scaled = b.addptr(base, b.mul(pid, b.constant(value=count, result=I32)))
            return kernels.addresses(b, scaled, (count,))

        v = b.load(pointers(source, n))
        square = b.reshape(v, result=tile((2, 3)))
        flipped = b.permute(square, order=(1, 0))
        joined = b.join(b.reshape(flipped, result=tile((n,))), b.arange(start=0, end=n))
        both = b.cat(
            b.expand_dims(b.arange(start=0, end=n), axis=0), b.expand_dims(v, axis=0), axis=0
        )
        index = b.splat(b.rem(pid, b.constant(value=2, result=I32)), result=tile((1, n)))
        picked = b.gather(both, index, axis=0)
        total = b.add(
            joined,
            b.broadcast(
                b.expand_dims(b.reshape(picked, result=tile((n,))), axis=1), result=tile((n, 2))
            ),
        )
        b.store(b.reshape(pointers(target, 2 * n), result=tile((n, 2), PointerType(I32))), total)
        inside = b.cmp(v, b.splat(pid, result=tile((n,))), predicate="gt")
        b.store(
            pointers(histogram, 4),
            b.histogram(
                b.rem(v, b.splat(b.constant(value=5, result=I32), result=tile((n,)))),
                inside,
                bins=4,
            ),
        )

    module = kernels.make([PointerType(I32)] * 3, body)
    kernels.run(module, [x, out, counts], (rows, 1, 1))
    for row in range(rows):
        flipped = x[row].reshape(2, 3).T.ravel()
        picked = x[row] if row % 2 else np.arange(n)
        assert np.array_equal(out[row], np.stack([flipped, np.arange(n)], -1) + picked[:, None])
        values = (x[row] % 5)[x[row] > row]
        assert np.array_equal(counts[row], np.bincount(values, minlength=5)[:4])


@pytest.mark.parametrize("index_type", [I8, I32, I64, U8, U64], ids=str)
def test_gather_along_each_axis(index_type, kernels, rng):
    x = rng.normal(size=(4, 6)).astype(np.float32)
    for axis in (0, 1):
        shape = (9, 6) if axis == 0 else (4, 9)
        index = rng.integers(0, x.shape[axis], shape)
        got = kernels.apply(
            lambda b, v, i, axis=axis: b.gather(v, i, axis=axis),
            [(x, tile((4, 6), F32)), (index, tile(shape, index_type))],
        )
        assert np.array_equal(got, np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("type_", [I8, I32, U64], ids=str)
def test_histogram_ignores_what_is_out_of_range(type_, kernels, rng):
    x = rng.integers(0 if type_ is U64 else -10, 40, 500)
    mask = rng.integers(0, 2, 500).astype(np.bool_)
    plain, masked = kernels.apply(
        lambda b, v, m: (b.histogram(v, bins=23), b.histogram(v, m, bins=23)),
        [(x, tile((500,), type_)), (mask, tile((500,), I1))],
    )
    inside = (x >= 0) & (x < 23)
    assert plain.tolist() == np.bincount(x[inside], minlength=23).tolist()
    assert masked.tolist() == np.bincount(x[inside & mask], minlength=23).tolist()


DOTS = [
    (F16, F16, F32),
    (F16, F16, F16),
    (BF16, BF16, F32),
    (F32, F32, F32),
    (F64, F64, F64),
    (F8E5M2, F8E4M3FN, F32),
    (F8E4M3FNUZ, F8E4M3FNUZ, F16),
    (I8, I8, I32),
    (U8, I8, I32),
]


@pytest.mark.parametrize(("left", "right", "accumulator"), DOTS, ids=lambda t: str(t))
def test_dot(left, right, accumulator, kernels, rng):
    def operand(shape, type_):
        if type_ in (I8, U8, I32):
            low, high = (
                (-128, 128) if type_ is I8 else (0, 256) if type_ is U8 else (-(2**31), 2**31)
            )
            return rng.integers(low, high, shape).astype(numerics.numpy_dtype(type_))
        return numerics.encode(rng.normal(size=shape), type_)

    def number(values, type_):
        return np.asarray(numerics.decode(values, type_) if type_ not in (I8, U8, I32) else values)

    for batch in ((), (2,), (2, 3)):
        shapes = [(*batch, 5, 7), (*batch, 7, 3), (*batch, 5, 3)]
        types = [left, right, accumulator]
        values = [operand(shape, type_) for shape, type_ in zip(shapes, types, strict=True)]
        got = kernels.apply(
            lambda b, x, y, z: b.dot(x, y, z),
            [(v, tile(s, t)) for v, s, t in zip(values, shapes, types, strict=True)],
        )
        wide = np.int64 if accumulator is I32 else np.float64
        a, b, c = (number(v, t).astype(wide) for v, t in zip(values, types, strict=True))
        want = np.einsum("...mk,...kn->...mn", a, b) + c
        if accumulator is I32:
            assert np.array_equal(got, want.astype(np.int32))
        else:
            tolerance = {F16: 1e-3, F32: 1e-6, F64: 1e-14}[accumulator]
            assert np.allclose(
                number(got, accumulator).astype(np.float64), want, rtol=tolerance, atol=tolerance
            )


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 = np.array(E2M1 + [-v for v in E2M1])


def pack(codes, axis):
    """Pairs of 4-bit codes along an axis in a byte, the first in the low half."""
    low, high = (
        np.take(codes, range(0, codes.shape[axis], 2), axis),
        np.take(codes, range(1, codes.shape[axis], 2), axis),
    )
    return (low | (high << 4)).astype(np.uint8)


@pytest.mark.parametrize("a_along_k", [True, False])
@pytest.mark.parametrize("b_along_k", [True, False])
def test_dot_of_packed_four_bit_floats(a_along_k, b_along_k, kernels, rng):
    m, n, k = 4, 6, 64
    a, b = rng.integers(0, 16, (m, k)), rng.integers(0, 16, (k, n))
    a_scale, b_scale = (
        rng.integers(120, 134, (m, k // 32)).astype(np.uint8),
        rng.integers(120, 134, (n, k // 32)).astype(np.uint8),
    )
    c = rng.normal(size=(m, n)).astype(np.float32)
    packed_a, packed_b = pack(a, 1 if a_along_k else 0), pack(b, 0 if b_along_k else 1)

    def build(bld, x, xs, y, ys, z):
        return bld.dot_scaled(
            x,
            xs,
            y,
            ys,
            z,
            a_format="e2m1",
            b_format="e2m1",
            a_pack_k=a_along_k,
            b_pack_k=b_along_k,
        )

    operands = [
        (packed_a, tile(packed_a.shape, U8)),
        (a_scale, tile(a_scale.shape, U8)),
        (packed_b, tile(packed_b.shape, U8)),
        (b_scale, tile(b_scale.shape, U8)),
        (c, tile((m, n), F32)),
    ]
    left = E2M1[a] * 2.0 ** (np.repeat(a_scale, 32, 1).astype(float) - 127)
    right = E2M1[b] * (2.0 ** (np.repeat(b_scale, 32, 1).astype(float) - 127)).T
    assert np.allclose(kernels.apply(build, operands), left @ right + c, rtol=1e-6, atol=1e-6)


def test_dot_scaled_mixed_formats_and_nan_scales(kernels, rng):
    m, n, k = 3, 5, 32
    a, b = (
        numerics.encode(rng.normal(size=(m, k)), F8E4M3FN),
        numerics.encode(rng.normal(size=(k, n)), F16),
    )
    scale = rng.integers(125, 130, (m, 1)).astype(np.uint8)
    scale[1] = 255
    c = np.zeros((m, n), np.float32)

    def build(bld, x, xs, y, z):
        return bld.dot_scaled(x, xs, y, None, z, a_format="e4m3", b_format="fp16")

    got = kernels.apply(
        build,
        [
            (a, tile((m, k), F8E4M3FN)),
            (scale, tile((m, 1), U8)),
            (b, tile((k, n), F16)),
            (c, tile((m, n), F32)),
        ],
    )
    want = (
        numerics.decode(a, F8E4M3FN).astype(float) * 2.0 ** (scale.astype(float) - 127)
    ) @ b.astype(float)
    assert np.isnan(got[1]).all()
    assert np.allclose(got[[0, 2]], want[[0, 2]], rtol=1e-5)


def test_dot_scaled_by_groups_of_sixteen(kernels, rng):
    m, n, k = 2, 4, 32
    a, b = (
        numerics.encode(rng.normal(size=(m, k)), BF16),
        numerics.encode(rng.normal(size=(k, n)), F8E5M2),
    )
    scale = numerics.encode(rng.uniform(0.5, 2, (n, k // 16)), F8E4M3FN)
    c = np.zeros((m, n), np.float32)

    def build(bld, x, y, ys, z):
        return bld.dot_scaled(x, None, y, ys, z, a_format="bf16", b_format="e5m2")

    got = kernels.apply(
        build,
        [
            (a, tile((m, k), BF16)),
            (b, tile((k, n), F8E5M2)),
            (scale, tile((n, 2), F8E4M3FN)),
            (c, tile((m, n), F32)),
        ],
    )
    right = (
        numerics.decode(b, F8E5M2).astype(float)
        * np.repeat(numerics.decode(scale, F8E4M3FN).astype(float), 16, 1).T
    )
    assert np.allclose(got, numerics.decode(a, BF16).astype(float) @ right, rtol=1e-5)


def test_dot_of_values_that_vary_among_programs(kernels, rng):
    """One operand differs among programs, the other does not."""
    programs, n = 3, 4
    a, shared = (
        rng.normal(size=(programs, n, n)).astype(np.float32),
        rng.normal(size=(n, n)).astype(np.float32),
    )
    out = np.zeros_like(a)

    def body(b, left, right, target):
        offset = b.mul(b.program_id(axis=0), b.constant(value=n * n, result=I32))
        x = b.load(kernels.addresses(b, b.addptr(left, offset), (n, n)))
        y = b.load(kernels.addresses(b, right, (n, n)))
        zero = b.constant_like(tile((n, n), F32), 0.0)
        b.store(kernels.addresses(b, b.addptr(target, offset), (n, n)), b.dot(x, y, zero))

    kernels.run(kernels.make([PointerType(F32)] * 3, body), [a, shared, out], (programs, 1, 1))
    assert np.allclose(out, a @ shared, rtol=1e-5, atol=1e-5)


def test_int16_has_no_dot(kernels):
    with pytest.raises(Exception, match="there is no dot of i16"):
        kernels.apply(lambda b, x: b.dot(x, x, x), [(np.zeros((2, 2)), tile((2, 2), I16))])
