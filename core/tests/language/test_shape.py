"""Program ids, new tensors, and builtins that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function as jit

# -- ids and creation ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_program_ids(bench: Any, axis: int) -> None:
    assert bench(tl.program_id, tl.constexpr(axis)).type is tl.int32
    assert bench(tl.num_programs, axis).type is tl.int32
    assert [(operation.name, operation.attribute("axis")) for operation in bench.function.body] == [
        ("program_id", axis),
        ("num_programs", axis),
    ]


def test_axes_of_the_grid(bench: Any) -> None:
    for axis in (3, -1, None):
        with pytest.raises(
            ValueError, match=f"^program_id axis must be 0, 1, or 2 but got {axis}$"
        ):
            bench(tl.program_id, axis)


def test_arange(bench: Any) -> None:
    assert bench(tl.arange, 3, tl.constexpr(7)).type is tl.block_type(tl.int32, [4])
    assert (bench.last.attribute("start"), bench.last.attribute("end")) == (3, 7)


def test_an_empty_range_says_what_to_do_about_empty_arrays(bench: Any) -> None:
    with pytest.raises(ValueError, match="got 0 and 0") as raised:
        bench(tl.arange, 0, 0)
    (help_,) = raised.value.__notes__
    assert help_.endswith("if an array has none, return before the launch")


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        (0, 3, "arange's range must be a power of 2"),
        (4, 4, "arange's end argument must be greater than the start argument"),
        (0, 2**32, "arange must fit in int32"),
        (0, 4.0, "arange's arguments must be of type tl.constexpr"),
    ],
)
def test_ranges_that_are_refused(bench: Any, start: Any, end: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bench(tl.arange, start, end)
    with pytest.raises(ValueError, match=r"must be of type tl.constexpr"):
        bench(tl.arange, 0, bench.value(tl.int32))


@pytest.mark.parametrize(
    ("value", "dtype", "kept"),
    [
        (-1, tl.uint32, 2**32 - 1),
        (300, tl.int8, 44),
        (2.9, tl.int32, 2),
        (1, tl.float16, 1.0),
        (5, tl.int1, True),
        (0.1, tl.float64, 0.1),
        (2**40, tl.int64, 2**40),
    ],
)
def test_full(bench: Any, value: Any, dtype: Any, kept: Any) -> None:
    assert bench(tl.full, [4, tl.constexpr(2)], tl.constexpr(value), dtype).type is tl.block_type(
        dtype, [4, 2]
    )
    assert bench.names == ["constant", "splat"]
    stored = bench.function.body.first.attribute("value")
    assert stored == kept
    assert type(stored) is type(kept)


def test_full_of_scalars(bench: Any) -> None:
    assert bench(tl.full, (), 3, tl.int32).type is tl.int32
    assert bench(tl.full, (8,), bench.value(tl.int32), tl.float32).type is tl.block_type(
        tl.float32, [8]
    )
    assert bench(tl.full, (8,), bench.value(tl.int32, [1]), tl.int32).extents == (8,)
    with pytest.raises(ValueError, match="a tensor is filled with a scalar"):
        bench(tl.full, (8,), bench.value(tl.int32, [8]), tl.int32)
    with pytest.raises(TypeError, match="a tensor is filled with a number, not with 'a'"):
        bench(tl.full, (8,), "a", tl.int32)
    bench.verify()


# -- shapes ----------------------------------------------------------------------------------------


def test_types_of_shapes(bench: Any) -> None:
    x, y, scalar = (
        bench.value(tl.float32, [4, 8]),
        bench.value(tl.int32, [8]),
        bench.value(tl.float32),
    )
    assert [part.extents for part in bench(tl.broadcast, x, y)] == [(4, 8), (4, 8)]
    assert bench(tl.broadcast_to, y, 4, 8).extents == (4, 8)
    assert bench(y.broadcast_to, [tl.constexpr(2), 8]).extents == (2, 8)
    assert bench(tl.broadcast_to, 1.0, (2,)).type is tl.block_type(tl.float32, [2])
    assert bench(tl.expand_dims, x, 0).extents == (1, 4, 8)
    assert bench(tl.expand_dims, x, (0, -1)).extents == (1, 4, 8, 1)
    assert bench(tl.expand_dims, x, [1, 3]).extents == (4, 1, 8, 1)
    assert bench(tl.expand_dims, scalar, (0, 1)).extents == (1, 1)
    assert bench(tl.reshape, x, 32).extents == (32,)
    assert bench(tl.reshape, x, (2, 16), can_reorder=True).extents == (2, 16)
    assert bench.last.attribute("reorder") is True
    assert bench(tl.reshape, scalar, (1, 1)).extents == (1, 1)
    assert bench(tl.reshape, bench.value(tl.float32, [1, 1]), ()).type is tl.float32
    assert bench(tl.trans, x).extents == (8, 4)
    assert bench(tl.trans, bench.value(tl.float32, [2, 4, 8])).extents == (2, 8, 4)
    assert bench(tl.permute, bench.value(tl.float32, [2, 4, 8]), (2, 0, -2)).extents == (8, 2, 4)
    assert bench(x.permute, 1, 0).extents == (8, 4)
    assert bench(tl.cat, x, x).extents == (8, 8)
    assert bench(tl.cat, x, x, dim=-1).extents == (4, 16)
    assert bench(tl.cat, y, bench.value(tl.float16, [8]), can_reorder=True).type is tl.block_type(
        tl.float16, [16]
    )
    assert bench(tl.join, x, y).extents == (4, 8, 2)
    assert bench(tl.join, scalar, 2).type is tl.block_type(tl.float32, [2])
    assert [part.type for part in bench(tl.split, bench.value(tl.int8, [4, 2]))] == [
        tl.block_type(tl.int8, [4])
    ] * 2
    assert [part.type for part in bench(tl.split, bench.value(tl.int8, [2]))] == [tl.int8] * 2
    assert bench(tl.core.item, bench.value(tl.int8, [1, 1])).type is tl.int8
    assert bench(tl.gather, x, bench.value(tl.int16, [2, 8]), -2).extents == (2, 8)
    assert bench(tl.histogram, y, 16, mask=bench.value(tl.int1, [8])).type is tl.block_type(
        tl.int32, [16]
    )
    with pytest.warns(DeprecationWarning, match="view is deprecated"):
        assert bench(tl.view, x, 32).extents == (32,)
    bench.verify()


def test_reshape_to_the_same_shape_is_nothing(bench: Any) -> None:
    x = bench.value(tl.float32, [4, 8])
    assert bench(tl.reshape, x, (4, 8)) is x
    assert bench(tl.broadcast_to, x, 4, 8) is x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, x: b(tl.broadcast_to, x, 8), "Cannot broadcast, rank mismatch"),
        (lambda b, x: b(tl.broadcast_to, x, (8, 8)), "must match the existing size"),
        (lambda b, x: b(tl.expand_dims, x, 3), "invalid axis 3. Expected -3 <= axis < 3"),
        (
            lambda b, x: b(tl.expand_dims, x, (0, -4)),
            r"^expand_dims received duplicate axes, normalized axes = \[0, 0\]$",
        ),
        (
            lambda b, x: b(tl.reshape, x, 16),
            r"^reshape\(\) cannot change total number of elements in tensor",
        ),
        (lambda b, x: b(tl.reshape, x, 4, 3), "power of 2"),
        (
            lambda b, x: b(tl.trans, b.value(tl.float32, [4])),
            "tl.trans invoked with a 0- or 1-dimensional tensor",
        ),
        (lambda b, x: b(tl.permute, x, 0), "permute dims must have the same length as input shape"),
        (lambda b, x: b(tl.permute, x, 0, 0), "permute dims must be a permutation"),
        *(
            (
                lambda b, x, extents=extents: b(tl.cat, x, b.value(tl.float32, extents)),
                "^tl.cat requires tensors of the same shape, got ",
            )
            for extents in ([4], [4, 4], [8, 8], [1, 8], [4, 8, 1])
        ),
        (lambda b, x: b(tl.split, x), r"last axis of 2, got shape \[4, 8\]"),
        (lambda b, x: b(tl.split, b.value(tl.float32)), "last axis of 2"),
        (lambda b, x: b(tl.core.item, x), r"item\(\) needs a tensor with one element"),
        (
            lambda b, x: b(tl.gather, x, b.value(tl.float32, [4, 8]), 0),
            "index must be an integer tensor",
        ),
        (lambda b, x: b(tl.gather, x, b.value(tl.int32, [4]), 0), "must have the same rank"),
        (
            lambda b, x: b(tl.gather, x, b.value(tl.int32, [4, 4]), 0),
            "index dim 1 must match the corresponding source dim",
        ),
        (
            lambda b, x: b(tl.gather, x, b.value(tl.int32, [4, 8]), 2),
            r"gather axis 2 must be < source rank \(2\)",
        ),
        (lambda b, x: b(tl.histogram, x, 8), "histogram only supports 1D input"),
        (
            lambda b, x: b(tl.histogram, b.value(tl.float32, [8]), 8),
            "histogram only supports integer input",
        ),
        (lambda b, x: b(tl.histogram, b.value(tl.int32, [8]), 10), "power of 2"),
    ],
)
def test_shapes_that_are_refused(bench: Any, call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(bench, bench.value(tl.float32, [4, 8]))


@jit
def shape_kernel(x, out, B: tl.constexpr):
    i = tl.arange(0, 8)
    j = tl.arange(0, 4)
    v = tl.load(x + i[:, None] * 4 + j[None, :])
    tl.store(out + tl.arange(0, 32), tl.ravel(v.T))
    low, high = tl.split(tl.reshape(v, 8, 2, 2))
    tl.store(out + 32 + tl.arange(0, 32), tl.ravel(tl.interleave(high, low)))
    tl.store(out + 64 + tl.arange(0, 64), tl.ravel(tl.cat(v, v + 1, dim=1)))
    tl.store(out + 128 + tl.arange(0, 32), tl.ravel(tl.flip(v, 0)))
    tl.store(out + 160 + tl.arange(0, 32), tl.ravel(v.flip()))
    tl.store(out + 192 + tl.arange(0, 32), tl.squeeze(tl.unsqueeze(v, 1), 1).ravel())
    index = (i[:, None] * 3 + j[None, :]) % 8
    tl.store(out + 224 + tl.arange(0, 32), tl.ravel(tl.gather(v, index, 0)))
    tl.store(out + 256 + tl.arange(0, 2), tl.interleave(tl.sum(v), tl.max(v)))
    tl.store(
        out + 258 + tl.arange(0, 32), tl.ravel(tl.permute(tl.reshape(v, (2, 4, 4)), (2, 0, 1)))
    )
    tl.store(out + 290, tl.core.item(tl.sum(v, keep_dims=True)))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_values_of_shapes(run: Callable[..., None], dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, (8, 4)).astype(dtype)
    out = np.zeros(300, dtype if dtype != "uint8" else "uint32")
    run(shape_kernel, x, out, B=1)
    assert np.array_equal(out[:32], x.T.ravel())
    pairs = x.reshape(8, 2, 2)
    assert np.array_equal(out[32:64], np.stack([pairs[..., 1], pairs[..., 0]], -1).ravel())
    assert np.array_equal(out[64:128], np.concatenate([x, x + 1], 1).ravel())
    assert np.array_equal(out[128:160], x[::-1].ravel())
    assert np.array_equal(out[160:192], x[:, ::-1].ravel())
    assert np.array_equal(out[192:224], x.ravel())
    index = (np.arange(8)[:, None] * 3 + np.arange(4)) % 8
    assert np.array_equal(out[224:256], np.take_along_axis(x, index, 0).ravel())
    assert np.array_equal(out[256:258], [x.sum(dtype=out.dtype), x.max()])
    assert np.array_equal(out[258:290], x.reshape(2, 4, 4).transpose(2, 0, 1).ravel())
    assert out[290] == x.sum(dtype=out.dtype)


@jit
def histogram_kernel(x, out, BINS: tl.constexpr):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    tl.store(out + tl.arange(0, BINS), v.histogram(BINS))
    tl.store(out + BINS + tl.arange(0, BINS), tl.histogram(v, BINS, mask=i < 50))


def test_histograms(run: Callable[..., None]) -> None:
    x = np.random.default_rng(5).integers(0, 8, 64).astype(np.int32)
    out = np.zeros(16, np.int32)
    run(histogram_kernel, x, out, BINS=8)
    assert np.array_equal(out[:8], np.bincount(x, minlength=8))
    assert np.array_equal(out[8:], np.bincount(x[:50], minlength=8))


@jit
def swizzle_kernel(out, I: tl.constexpr, J: tl.constexpr, G: tl.constexpr):  # noqa: E741
    for i in range(I):
        for j in range(J):
            a, b = tl.swizzle2d(i, j, I, J, G)
            tl.store(out + (i * J + j) * 2, a)
            tl.store(out + (i * J + j) * 2 + 1, b)


@pytest.mark.parametrize(("i", "j", "g"), [(4, 4, 2), (5, 3, 2), (7, 4, 3), (2, 5, 8)])
def test_swizzled_grids_go_down_the_columns_of_groups_of_rows(
    run: Callable[..., None], i: int, j: int, g: int
) -> None:
    out = np.zeros((i * j, 2), np.int32)
    run(swizzle_kernel, out, I=i, J=j, G=g)
    expected = [
        (row, column)
        for first in range(0, i, g)
        for column in range(j)
        for row in range(first, min(first + g, i))
    ]
    assert [tuple(pair) for pair in out] == expected
