"""Matmuls: every element type, odd and small extents, transposed, widened operands,
accumulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    U8,
    FloatType,
    IntType,
    TileType,
    Type,
    element_type,
)
from tilewright.reference.numerics import decode
from tilewright_conformance.op_samples.kernel import INTEGRAL, Draw, SampleKernel

_FP8 = [type_ for type_ in FLOATS if type_.is_fp8]
_TYPES: list[tuple[Type, Type, Type]] = [
    (F32, F32, F32),
    (F64, F64, F64),
    (F16, F16, F32),
    (F16, F16, F16),
    (BF16, BF16, F32),
    (I8, I8, I32),
    (U8, I8, I32),
    (I8, U8, I32),
    (U8, U8, I32),
    *((kind, kind, F32) for kind in _FP8),
    (_FP8[0], _FP8[1], F16),
]
#: M, N, K: powers of two, odd numbers, single rows and columns, more than one block of everything
_SIZES = [
    (16, 16, 16),
    (64, 64, 64),
    (1, 1, 1),
    (2, 4, 8),
    (8, 1, 4),
    (1, 64, 33),
    (3, 5, 7),
    (13, 37, 29),
    (33, 100, 18),
    (128, 32, 16),
    (17, 2, 64),
    (5, 48, 1),
]


def _draw(type_: Type) -> Draw:
    """Return numbers whose products and sums are exact in any order."""
    if isinstance(type_, IntType):
        return Draw(type_.minimum, type_.maximum)
    return (
        Draw(-1, 1, integral=True) if type_ is FloatType("f8e4b15") else Draw(-3, 3, integral=True)
    )


def _operand(
    kernel: SampleKernel,
    type_: Type,
    shape: tuple[int, ...],
    transposed: bool,
    draw: Draw | None = None,
) -> Value:
    """A tile of ``shape``, loaded as it is or as the transpose of what lies in memory."""
    draw = draw or _draw(type_)
    if not transposed:
        return kernel.load(type_, shape, draw)
    rank = len(shape)
    stored: Value = kernel.load(type_, (*shape[:-2], shape[-1], shape[-2]), draw)
    result: Value = kernel.b.permute(stored, order=(*range(rank - 2), rank - 1, rank - 2))
    return result


@pytest.mark.each_value
@pytest.mark.parametrize("size", _SIZES, ids=str)
@pytest.mark.parametrize("types", _TYPES, ids=lambda types: "-".join(map(str, types)))
def test_dot_is_exact_where_sums_are(
    types: tuple[Type, Type, Type], size: tuple[int, int, int], agree: Callable[..., Any]
) -> None:
    m, n, k = size
    number = _SIZES.index(size) + _TYPES.index(types)
    kernel = SampleKernel("dot")
    a = _operand(kernel, types[0], (m, k), bool(number & 1))
    b = _operand(kernel, types[1], (k, n), bool(number & 2))
    zero = kernel.constant(TileType((m, n), types[2]), 0)
    c = (
        zero
        if number % 3 == 0
        else kernel.load(types[2], (m, n), INTEGRAL if isinstance(types[2], FloatType) else Draw())
    )
    kernel.store(kernel.b.dot(a, b, c))
    agree(kernel.finish(), seed=number)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str
)
@pytest.mark.parametrize(
    "types",
    [
        (F32, F32, F32),
        (F64, F64, F64),
        (F16, F16, F32),
        (BF16, BF16, F32),
        (U8, I8, I32),
        (_FP8[0], _FP8[0], F32),
    ],
    ids=lambda t: str(t[0]),
)
def test_dot_of_batches(
    types: tuple[Type, Type, Type], transposed: tuple[bool, bool], agree: Callable[..., Any]
) -> None:
    kernel = SampleKernel("dot")
    a = _operand(kernel, types[0], (2, 3, 9, 12), transposed[0])
    b = _operand(kernel, types[1], (2, 3, 12, 20), transposed[1])
    c = kernel.load(
        types[2], (2, 3, 9, 20), INTEGRAL if isinstance(types[2], FloatType) else Draw()
    )
    kernel.store(kernel.b.dot(a, b, c))
    agree(kernel.finish())


@pytest.mark.parametrize(
    "types",
    [
        (F32, F32, F32, 1e-6),
        (F64, F64, F64, 1e-15),
        (F16, F16, F32, 1e-6),
        (BF16, BF16, F32, 1e-6),
        (F16, F16, F16, 1e-3),
    ],
    ids=lambda t: f"{t[0]}-{t[2]}",
)
def test_dot_of_random_numbers_is_within_rounding(
    types: tuple[Type, Type, Type, float], agree: Callable[..., Any], compiled: Any, guarded: Any
) -> None:
    m, n, k = 40, 72, 200
    kernel = SampleKernel("dot")
    a, b = (
        kernel.load(types[i], shape, Draw(-2.0, 2.0)) for i, shape in enumerate(((m, k), (k, n)))
    )
    c = kernel.load(types[2], (m, n), Draw(-2.0, 2.0))
    kernel.store(kernel.b.dot(a, b, c))
    sample = kernel.finish()
    arguments = sample.make_arguments(np.random.default_rng(3))
    floats = [type_ for type_ in types if isinstance(type_, FloatType)]
    x, y, z = (
        np.asarray(decode(array, type_), np.float64)
        for array, type_ in zip(arguments, floats, strict=False)
    )
    found = guarded(compiled(sample.module), arguments, sample.grid)[3]
    bound = types[3] * (np.abs(x) @ np.abs(y) + np.abs(z)) + types[3]
    assert np.all(np.abs(np.asarray(found, np.float64) - (x @ y + z)) <= bound)


@pytest.mark.parametrize("kind", _FP8, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_fp8_code_is_widened_exactly(
    kind: FloatType, transposed: bool, agree: Callable[..., Any]
) -> None:
    """Each code times one: NaN, infinities, zeros of both signs and subnormal numbers included."""
    kernel = SampleKernel("dot")
    codes = Draw(array=lambda rng, count: np.arange(count, dtype=np.uint8))
    one = Draw(1, 1, integral=True)
    a = _operand(kernel, kind, (256, 1), transposed, codes)
    kernel.store(
        kernel.b.dot(
            a, kernel.load(kind, (1, 16), one), kernel.constant(TileType((256, 16), F32), 0.0)
        )
    )
    b = _operand(kernel, kind, (1, 256), transposed, codes)
    kernel.store(
        kernel.b.dot(
            kernel.load(kind, (16, 1), one), b, kernel.constant(TileType((16, 256), F32), 0.0)
        )
    )
    agree(kernel.finish())


@pytest.mark.parametrize("narrow", [F16, BF16, *_FP8], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_operands_widened_by_a_cast(
    narrow: FloatType, transposed: bool, agree: Callable[..., Any]
) -> None:
    kernel = SampleKernel("dot")
    m, n, k = 24, 40, 32
    a = kernel.b.cast(_operand(kernel, narrow, (m, k), transposed), result=TileType((m, k), F32))
    b = kernel.b.cast(
        _operand(kernel, narrow, (k, n), not transposed), result=TileType((k, n), F32)
    )
    kernel.store(kernel.b.dot(a, b, kernel.load(F32, (m, n), INTEGRAL)))
    agree(kernel.finish())


def test_computed_operands(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("dot")
    a, b, c = (kernel.load(F32, shape, INTEGRAL) for shape in ((20, 24), (24, 36), (20, 36)))
    kernel.store(kernel.b.dot(kernel.b.add(a, a), kernel.b.neg(b), kernel.b.mul(c, c)))
    agree(kernel.finish())


def test_masked_operands(agree: Callable[..., Any]) -> None:
    """Edges of matrices: loads bounded along both axes, and the same with nothing masked off."""
    for bounds in ((19, 30, 11), (32, 32, 32)):
        kernel = SampleKernel("dot")
        b = kernel.b
        m, n, k = 32, 32, 32
        limits = [kernel.scalar(I32, Draw(bound, bound)) for bound in bounds]

        def edge(
            rows: Value, columns: Value, shape: tuple[int, int], kernel: SampleKernel = kernel
        ) -> Value:
            b = kernel.b
            index = [kernel.b.arange(start=0, end=extent) for extent in shape]
            below = []
            for axis, limit in enumerate((rows, columns)):
                line = b.cmp(index[axis], b.splat(limit, result=index[axis].type), predicate="lt")
                below.append(
                    b.broadcast(
                        b.expand_dims(line, axis=1 - axis),
                        result=TileType(shape, element_type(line.type)),
                    )
                )
            mask = b.and_(*below)
            pointer = kernel.pointer(F32, shape, INTEGRAL)
            value: Value = b.load(
                kernel.pointers(pointer, shape),
                mask=mask,
                other=kernel.constant(TileType(shape, F32), 0.0),
            )
            return value

        x, y = edge(limits[0], limits[2], (m, k)), edge(limits[2], limits[1], (k, n))
        kernel.store(b.dot(x, y, kernel.constant(TileType((m, n), F32), 0.0)))
        agree(kernel.finish())


@pytest.mark.parametrize("type_", [F32, F16, BF16, I8], ids=str)
def test_accumulator_carried_by_a_loop(type_: Type, agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("dot")
    b, steps, accumulator = kernel.b, 3, I32 if type_ is I8 else F32
    pointers = [kernel.pointer(type_, (steps, 16, 16), _draw(type_)) for _ in range(2)]
    tiles = [kernel.pointers(pointer, (16, 16)) for pointer in pointers]
    shape = TileType((16, 16), I32)

    def body(i: Value, total: Value) -> Value:
        start = b.splat(b.mul(i, kernel.constant(I32, 256)), result=shape)
        x, y = (b.load(b.addptr(tile, start)) for tile in tiles)
        result: Value = b.dot(x, y, total)
        return result

    zero = kernel.constant(TileType((16, 16), accumulator), 0)
    region = kernel.region((I32, zero.type), body)
    bounds = [kernel.constant(I32, value) for value in (0, steps, 1)]
    kernel.store(b.region_op("for", *bounds, [zero], regions=[region]).result)
    agree(kernel.finish())


def test_accumulator_scaled_in_a_loop(agree: Callable[..., Any]) -> None:
    """Two matmuls per iteration as in attention.

    The second one adds to a loop-carried tile that is scaled first.
    """
    kernel = SampleKernel("dot")
    b, steps, m, n, d = kernel.b, 3, 16, 32, 24
    q = kernel.load(F32, (m, d), INTEGRAL)
    keys, values = (
        kernel.pointers(kernel.pointer(F32, (steps, n, d), Draw(-1, 1, integral=True)), (n, d))
        for _ in range(2)
    )
    half = kernel.constant(TileType((m, d), F32), 0.5)

    def body(i: Value, total: Value) -> Value:
        start = b.splat(b.mul(i, kernel.constant(I32, n * d)), result=TileType((n, d), I32))
        k, v = (b.load(b.addptr(tile, start)) for tile in (keys, values))
        scores = b.dot(q, b.permute(k, order=(1, 0)), kernel.constant(TileType((m, n), F32), 0.0))
        result: Value = b.dot(b.mul(scores, scores), v, b.mul(total, half))
        return result

    region = kernel.region((I32, half.type), body)
    bounds = [kernel.constant(I32, value) for value in (0, steps, 1)]
    kernel.store(
        b.region_op("for", *bounds, [kernel.constant(half.type, 0.0)], regions=[region]).result
    )
    agree(kernel.finish())


def test_one_tile_as_every_operand(agree: Callable[..., Any]) -> None:
    """The sums must not overwrite a tile that is still read as an operand."""
    for computed in (False, True):
        kernel = SampleKernel("dot")
        x = kernel.load(F32, (32, 32), INTEGRAL)
        if computed:
            x = kernel.b.region_op(
                "scan",
                x,
                regions=[kernel.region((F32, F32), lambda a, b, kernel=kernel: kernel.b.max(a, b))],
                axis=1,
            ).result
        kernel.store(kernel.b.dot(x, kernel.b.permute(x, order=(1, 0)), x))
        kernel.store(kernel.b.dot(x, x, x))
        agree(kernel.finish())


def test_accumulator_read_again(agree: Callable[..., Any]) -> None:
    kernel = SampleKernel("dot")
    a, b, c = (kernel.load(F32, (16, 16), INTEGRAL) for _ in range(3))
    first = kernel.b.dot(a, b, c)
    kernel.store(kernel.b.dot(a, b, first))
    kernel.store(first)
    kernel.store(c)
    agree(kernel.finish())


def test_infinity_and_nan_go_through(agree: Callable[..., Any]) -> None:
    special = Draw(
        array=lambda rng, count: rng.choice(
            np.array([1.0, -2.0, np.inf, np.nan, 0.0], np.float32),
            count,
            p=[0.5, 0.4, 0.04, 0.02, 0.04],
        )
    )
    kernel = SampleKernel("dot")
    kernel.store(
        kernel.b.dot(
            kernel.load(F32, (16, 8), special),
            kernel.load(F32, (8, 32), special),
            kernel.load(F32, (16, 32), special),
        )
    )
    agree(kernel.finish())
