"""Reductions, scans and maps, by NumPy's own functions where the region is plain and by running the
region where it is not."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from tilewright.ir import Region
from tilewright.ir.types import BF16, F16, F32, I1, I8, I32, I64, U8, PointerType, TileType
from tilewright.reference import numerics

SHAPES = [
    ((7,), 0),
    ((1,), 0),
    ((4, 6), 0),
    ((4, 6), 1),
    ((3, 1, 5), 1),
    ((2, 3, 4), 0),
    ((2, 3, 4), 2),
    ((33,), 0),
]


def combine(b, types, build):
    region = Region([*types, *types])
    with b.at_region(region):
        n = len(types)
        results = build(b, *region.arguments)
        b.yield_(list(results) if isinstance(results, tuple) else [results])
        assert len(region.arguments) == 2 * n
    return region


def reduction(name, axis, types, build, **attributes):
    def apply(b, *values):
        operation = b.region_op(
            name, list(values), regions=[combine(b, types, build)], axis=axis, **attributes
        )
        return tuple(operation.results) if len(operation.results) > 1 else operation.results[0]

    return apply


PLAIN = {
    "add": (np.add, operator.add),
    "mul": (np.multiply, operator.mul),
    "min": (np.minimum, min),
    "max": (np.maximum, max),
    "and": (np.bitwise_and, operator.and_),
    "or": (np.bitwise_or, operator.or_),
    "xor": (np.bitwise_xor, operator.xor),
}


def method(b, name):
    return getattr(b, f"{name}_" if name in ("and", "or") else name)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("type_", [I8, I32, U8], ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_plain_integer_reductions_and_scans_wrap_around(name, type_, shape, axis, kernels, rng):
    dtype = numerics.numpy_dtype(type_)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    build = lambda b, p, q: method(b, name)(p, q)  # noqa: E731
    ufunc = PLAIN[name][0]
    got = kernels.apply(reduction("reduce", axis, [type_], build), [(x, TileType(shape, type_))])
    assert np.array_equal(got, ufunc.reduce(x, axis=axis, dtype=dtype))
    for reverse in (False, True):
        got = kernels.apply(
            reduction("scan", axis, [type_], build, reverse=reverse), [(x, TileType(shape, type_))]
        )
        want = (
            np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=dtype), axis)
            if reverse
            else ufunc.accumulate(x, axis=axis, dtype=dtype)
        )
        assert np.array_equal(got, want)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("type_", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_plain_float_reductions(name, type_, shape, axis, kernels, rng):
    x = numerics.encode(rng.normal(size=shape), type_)
    build = lambda b, p, q: method(b, name)(p, q)  # noqa: E731
    value = numerics.decode(x, type_).astype(np.float64)
    tolerance = {F16: 2e-2, BF16: 1e-1, F32: 1e-5}[type_] if name == "add" else 0
    got = kernels.apply(reduction("reduce", axis, [type_], build), [(x, TileType(shape, type_))])
    assert np.allclose(
        numerics.decode(got, type_).astype(np.float64),
        PLAIN[name][0].reduce(value, axis=axis),
        rtol=0,
        atol=tolerance,
    )
    got = kernels.apply(reduction("scan", axis, [type_], build), [(x, TileType(shape, type_))])
    assert np.allclose(
        numerics.decode(got, type_).astype(np.float64),
        PLAIN[name][0].accumulate(value, axis=axis),
        rtol=0,
        atol=tolerance,
    )


def test_nan_in_a_maximum_follows_the_attribute(kernels):
    x = np.array([1.0, np.nan, 3.0, 2.0], np.float32)
    for nan, want in (("ignore", 3.0), ("propagate", np.nan)):
        build = lambda b, p, q, nan=nan: b.max(p, q, nan=nan)  # noqa: E731
        got = kernels.apply(reduction("reduce", 0, [F32], build), [(x, TileType((4,), F32))])
        assert np.array_equal(got, np.float32(want), equal_nan=True)


def test_a_sum_in_f16_rounds_every_step(kernels):
    """2048 + 1 is 2048 in f16: no order of sums of ones past 2048 by single ones grows, but a tree
    of them does."""
    x = np.ones(4096, np.float16)
    got = kernels.apply(
        reduction("reduce", 0, [F16], lambda b, p, q: b.add(p, q)), [(x, TileType((4096,), F16))]
    )
    assert got == 4096
    y = np.concatenate([np.full(1, 2048, np.float16), np.ones(1, np.float16)])
    assert (
        kernels.apply(
            reduction("reduce", 0, [F16], lambda b, p, q: b.add(p, q)), [(y, TileType((2,), F16))]
        )
        == 2048
    )


def first_maximum(b, value, index, other_value, other_index):
    better = b.or_(
        b.cmp(value, other_value, predicate="gt"),
        b.and_(
            b.cmp(value, other_value, predicate="eq"), b.cmp(index, other_index, predicate="lt")
        ),
    )
    return b.select(better, value, other_value), b.select(better, index, other_index)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_argmax_with_ties(shape, axis, kernels, rng):
    x = rng.integers(0, 4, shape).astype(np.float32)
    index = np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ).astype(np.int32)
    operands = [(x, TileType(shape, F32)), (index, TileType(shape, I32))]
    value, where = kernels.apply(reduction("reduce", axis, [F32, I32], first_maximum), operands)
    assert np.array_equal(value, x.max(axis))
    assert np.array_equal(where, x.argmax(axis))
    values, places = kernels.apply(reduction("scan", axis, [F32, I32], first_maximum), operands)
    assert np.array_equal(values, np.maximum.accumulate(x, axis))
    for position in range(shape[axis]):
        head = np.take(x, range(position + 1), axis)
        assert np.array_equal(np.take(places, position, axis), head.argmax(axis))


def linear_recurrence(b, a, c, other_a, other_c):
    """(a, c) then (a', c'): x -> a' (a x + c) + c'. Associative, not commutative."""
    return b.mul(a, other_a), b.add(b.mul(c, other_a), other_c)


@pytest.mark.parametrize("n", [1, 2, 5, 16, 37])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_a_combination_that_does_not_commute(n, reverse, kernels, rng):
    a, c = rng.integers(-3, 4, n).astype(np.int64), rng.integers(-9, 9, n).astype(np.int64)
    operands = [(a, TileType((n,), I64)), (c, TileType((n,), I64))]
    got = kernels.apply(
        reduction("scan", 0, [I64, I64], linear_recurrence, reverse=reverse), operands
    )
    pairs = list(zip(a.tolist(), c.tolist(), strict=True))[:: -1 if reverse else 1]
    state, want = None, []
    for pair in pairs:
        state = pair if state is None else (state[0] * pair[0], state[1] * pair[0] + pair[1])
        want.append(state)
    want = want[:: -1 if reverse else 1]
    wrap = lambda v: I64.wrap(v)  # noqa: E731
    assert got[0].tolist() == [wrap(w[0]) for w in want]
    assert got[1].tolist() == [wrap(w[1]) for w in want]
    reduced = kernels.apply(reduction("reduce", 0, [I64, I64], linear_recurrence), operands)
    last = functools.reduce(
        lambda s, p: (s[0] * p[0], s[1] * p[0] + p[1]), zip(a.tolist(), c.tolist(), strict=True)
    )
    assert (int(reduced[0]), int(reduced[1])) == (wrap(last[0]), wrap(last[1]))


def test_combinations_with_control_flow_loads_and_ids(kernels, rng):
    """A combine region that branches per element, loads from a table, and reads the program's id,
    in a grid."""
    programs, n = 6, 5
    x = rng.integers(0, 8, (programs, n)).astype(np.int32)
    table = rng.integers(0, 100, 16).astype(np.int32)
    out = np.zeros(programs, np.int32)

    def build(b, source, table_ptr, target):
        pid = b.program_id(axis=0)
        shift = b.and_(pid, b.constant(value=1, result=I32))
        pointers = b.addptr(source, b.mul(pid, b.constant(value=n, result=I32)))
        v = b.load(kernels.addresses(b, pointers, (n,)))

        def body(b, p, q):
            smaller = b.cmp(p, q, predicate="lt")
            then, other = Region(), Region()
            with b.at_region(then):
                b.yield_([b.add(q, shift)])
            with b.at_region(other):
                b.yield_([p])
            chosen = b.region_op("if", smaller, regions=[then, other], results=[I32]).result
            looked_up = b.load(
                b.addptr(table_ptr, b.and_(chosen, b.constant(value=15, result=I32)))
            )
            return b.add(chosen, b.xor(looked_up, looked_up))

        total = b.region_op("reduce", [v], regions=[combine(b, [I32], body)], axis=0)
        b.store(b.addptr(target, pid), total.result)

    module = kernels.make([PointerType(I32)] * 3, build)
    kernels.run(module, [x, table, out], (programs, 1, 1))

    def tree(values, step):
        while len(values) > 1:
            values = [
                f if i + 1 >= len(values) else (values[i + 1] + step if f < values[i + 1] else f)
                for i, f in list(enumerate(values))[::2]
            ]
        return values[0]

    assert out.tolist() == [tree(row.tolist(), p & 1) for p, row in enumerate(x)]


def test_reductions_of_values_shared_by_all_programs(kernels):
    """The tile is the same in all programs; the region reads the program's id, so that the results
    are not."""
    out = np.zeros((2, 4), np.int32)

    def build(b, target):
        pid = b.program_id(axis=0)
        v = b.arange(start=0, end=6)
        shared = b.region_op(
            "reduce",
            [v],
            regions=[
                combine(
                    b, [I32], lambda b, p, q: b.sub(b.add(p, q), b.constant(value=1, result=I32))
                )
            ],
            axis=0,
        )
        own = b.region_op(
            "reduce",
            [v],
            regions=[combine(b, [I32], lambda b, p, q: b.add(b.add(p, q), b.program_id(axis=0)))],
            axis=0,
        )
        b.store(b.addptr(target, pid), shared.result)
        b.store(b.addptr(target, b.add(pid, b.constant(value=4, result=I32))), own.result)

    kernels.run(kernels.make([PointerType(I32)], build), [out], (4, 1, 1))
    assert out.tolist() == [[15 - 5] * 4, [15 + 5 * p for p in range(4)]]


def test_logical_reductions(kernels, rng):
    x = rng.integers(0, 2, (5, 3)).astype(np.bool_)
    for name, want in (("or", x.any(0)), ("and", x.all(0)), ("xor", np.bitwise_xor.reduce(x, 0))):
        got = kernels.apply(
            reduction("reduce", 0, [I1], lambda b, p, q, name=name: method(b, name)(p, q)),
            [(x, TileType((5, 3), I1))],
        )
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("pack", [1, 2, 3])
def test_map_runs_a_body_on_groups(pack, kernels, rng):
    """Elements that follow each other in row-major order, of two inputs; the body branches."""
    shape = (4, 6)
    x, y = rng.integers(-9, 9, shape).astype(np.int32), rng.normal(size=shape).astype(np.float32)

    def build(b, v, w):
        region = Region([I32] * pack + [F32] * pack)
        with b.at_region(region):
            ints, floats = region.arguments[:pack], region.arguments[pack:]
            total = functools.reduce(b.add, ints)
            positive = b.cmp(total, b.constant(value=0, result=I32), predicate="gt")
            then, other = Region(), Region()
            with b.at_region(then):
                b.yield_([total])
            with b.at_region(other):
                b.yield_([b.constant(value=0, result=I32)])
            clamped = b.region_op("if", positive, regions=[then, other], results=[I32]).result
            b.yield_(
                [
                    *(b.neg(f) for f in floats),
                    *(b.add(clamped, b.constant(value=k, result=I32)) for k in range(pack)),
                ]
            )
        results = [TileType(shape, F32), TileType(shape, I32)]
        return tuple(
            b.region_op("map", [v, w], regions=[region], results=results, pack=pack).results
        )

    negated, sums = kernels.apply(build, [(x, TileType(shape, I32)), (y, TileType(shape, F32))])
    assert np.array_equal(negated, -y)
    groups = np.maximum(x.reshape(-1, pack).sum(1), 0)
    assert np.array_equal(sums, (groups[:, None] + np.arange(pack)).reshape(shape))


def test_map_over_a_grid(kernels, rng):
    programs, n = 4, 8
    x = rng.integers(0, 30, (programs, n)).astype(np.int32)
    out = np.zeros_like(x)

    def body(b, source, target):
        pid = b.program_id(axis=0)
        offset = b.mul(pid, b.constant(value=n, result=I32))
        v = b.load(kernels.addresses(b, b.addptr(source, offset), (n,)))
        region = Region([I32])
        with b.at_region(region):
            # The number of iterations differs from element to element.
            loop = Region([I32, I32])
            with b.at_region(loop):
                b.yield_([b.add(b.add(loop.arguments[1], loop.arguments[0]), pid)])
            zero, one = b.constant(value=0, result=I32), b.constant(value=1, result=I32)
            b.yield_(
                [b.region_op("for", zero, region.arguments[0], one, [zero], regions=[loop]).result]
            )
        mapped = b.region_op("map", [v], regions=[region], results=[v.type])
        b.store(kernels.addresses(b, b.addptr(target, offset), (n,)), mapped.result)

    kernels.run(kernels.make([PointerType(I32)] * 2, body), [x, out], (programs, 1, 1))
    assert np.array_equal(out, x * (x - 1) // 2 + x * np.arange(programs)[:, None])
