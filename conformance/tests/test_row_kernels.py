"""Kernels that go row by row, as people write them: CPU and GPU against the reference and against float64, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright_conformance.cases._row_kernels import (
    bitonic_rows,
    cross_entropy,
    dropout,
    layer_norm_gradient,
    quantise,
    rms_norm_backward,
    rms_norm_forward,
    rotate,
    selective_scan,
    top_k,
)
from tilewright_conformance.oracles import rows as oracles

RNG = np.random.default_rng(20)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int, dtype: Any = np.float32) -> Any:
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


# -- root-mean-square norm ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 37), (7, 300)])
def test_rms_norm_and_its_gradient(launch: Any, rows: int, columns: int) -> None:
    x, w, dy = normal(rows, columns), normal(columns), normal(rows, columns)
    y, rstd, dx, dw = poisoned(rows, columns), poisoned(rows), poisoned(rows, columns), poisoned(3, columns)
    launch(rms_norm_forward, (rows,), x, w, y, rstd, columns, columns, 1e-6, BLOCK=64)
    launch(rms_norm_backward, (3,), dy, x, w, rstd, dx, dw, columns, rows, columns, PROGRAMS=3, BLOCK=tw.next_power_of_2(columns))
    wanted_dx, wanted_dw = oracles.rms_norm_gradient(x, w, dy, 1e-6)
    np.testing.assert_allclose(y, oracles.rms_norm(x, w, 1e-6)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dx, wanted_dx, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dw.sum(0), wanted_dw, rtol=1e-4, atol=1e-4)


# -- layer norm: gradient with locks ------------------------------------------------------------------------------------------------------------------


def test_the_gradient_of_a_layer_norm_under_locks(launch: Any) -> None:
    rows, columns, groups = 13, 29, 4
    x, w, dy = normal(rows, columns), normal(columns), normal(rows, columns)
    mean, rstd = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    dx, dw, db, locks = poisoned(rows, columns), poisoned(groups, columns), poisoned(groups, columns), np.zeros(2 * groups, np.int32)
    launch(layer_norm_gradient, (rows,), dx, dy, dw, db, x, w, mean, rstd, locks, columns, columns, GROUPS=groups, BLOCK=32, rtol=1e-4)
    wanted = oracles.layer_norm_gradient(x, w, dy, mean, rstd)
    for found, exact in zip((dx, dw.sum(0), db.sum(0)), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)
    assert locks[:groups].tolist() == [0] * groups


# -- rotary embedding ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rotary_embedding_and_back(launch: Any, dtype: Any) -> None:
    positions, heads, half = 5, 3, 12
    q = normal(positions, heads, 2 * half).astype(dtype)
    angle = np.arange(positions)[:, None] / 10000 ** (np.arange(half) / half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    found = q.copy()
    close = 1e-5 if dtype == np.float32 else 4e-3
    launch(rotate, (positions,), found, cos, sin, heads * 2 * half, heads, half, BACKWARD=False, HEADS=4, HALF=16, atol=close)
    np.testing.assert_allclose(found, oracles.rotated(q, angle), rtol=close, atol=close)
    launch(rotate, (positions,), found, cos, sin, heads * 2 * half, heads, half, BACKWARD=True, HEADS=4, HALF=16, atol=close)
    np.testing.assert_allclose(found, q, rtol=2 * close, atol=2 * close)


# -- cross entropy, online, its gradient in place -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("smoothing", "cap"), [(0.0, None), (0.1, None), (0.0, 5.0)])
def test_cross_entropy_and_its_gradient(launch: Any, smoothing: float, cap: float | None) -> None:
    rows, classes = 5, 83
    x = normal(rows, classes) * 4
    target = RNG.integers(0, classes, rows)
    target[2] = -100
    found, loss = x.copy(), poisoned(rows)
    options = {"smoothing": smoothing, "HAS_CAP": cap is not None, "cap": cap, "BLOCK": 32}
    launch(cross_entropy, (rows,), found, target, loss, classes, classes, -100, **options)
    wanted, gradient = oracles.cross_entropy(x, target, -100, smoothing, cap)
    np.testing.assert_allclose(loss, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=1e-5)


# -- dropout ------------------------------------------------------------------------------------------------------------------------------------------


def test_dropout_repeats_by_its_seed(launch: Any) -> None:
    n, p = 5003, 0.3
    x = np.abs(normal(n)) + 1
    first, again, other = poisoned(n), poisoned(n), poisoned(n)
    launch(dropout, (5,), x, first, n, p, 123, BLOCK=256)
    launch(dropout, (5,), x, again, n, p, 123, BLOCK=256)
    launch(dropout, (5,), x, other, n, p, 2**40 + 123, BLOCK=256)
    kept = first != 0
    np.testing.assert_allclose(first[kept], x[kept] / (1 - np.float32(p)), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 0.03
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


# -- quantisation of rows -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "largest", "bits"), [("float8_e4m3fn", 448.0, 3), ("float8_e5m2", 57344.0, 2), ("int8", 127.0, 0)])
def test_rows_are_quantised(launch: Any, name: str, largest: float, bits: int) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    rows, columns = 4, 45
    x = normal(rows, columns) * np.logspace(-3, 3, rows, dtype=np.float32)[:, None]
    x[1] = 0
    q, scale = np.full((rows, columns), 3, np.int8).view(dtype), poisoned(rows)
    launch(quantise, (rows,), x, q, scale, columns, LARGEST=largest, BLOCK=64, exact=True)
    exact = np.maximum(np.abs(x.astype(float)).max(1), 1e-10) / largest
    np.testing.assert_allclose(scale, exact, rtol=1e-6)
    found = q.astype(np.float32) * scale[:, None]
    step = np.abs(x) * 2.0 ** -(bits + 1) + scale[:, None] * 2.0**-8 if bits else scale[:, None] * 0.501
    assert (np.abs(found - x) <= step).all()
    np.testing.assert_array_equal(q.view(np.int8), (np.rint(x / scale[:, None]) if not bits else x / scale[:, None]).astype(dtype).view(np.int8))


# -- sorting and choosing -----------------------------------------------------------------------------------------------------------------------------


def test_the_best_of_each_row(launch: Any) -> None:
    rows, columns, k = 3, 100, 8
    x = np.round(normal(rows, columns), 1)
    values, places = poisoned(rows, k), poisoned(rows, k, dtype=np.int32)
    launch(top_k, (rows,), x, values, places, columns, K=k, BLOCK=128)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize("descending", [False, True])
def test_rows_are_sorted(launch: Any, descending: bool) -> None:
    x = normal(4, 53)
    y = poisoned(4, 53)
    launch(bitonic_rows, (1,), x, y, 53, DESCENDING=descending, ROWS=4, BLOCK=64)
    np.testing.assert_array_equal(y, -np.sort(-x, axis=1) if descending else np.sort(x, axis=1))


# -- selective scan -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_a_selective_scan_in_chunks(launch: Any, reverse: bool) -> None:
    length, channels, states = 21, 3, 4
    x, delta = normal(length, channels), np.abs(normal(length, channels))
    a, b, c, y = -np.abs(normal(channels, states)), normal(length, states), normal(length, states), poisoned(length, channels)
    launch(selective_scan, (channels,), x, delta, a, b, c, y, length, channels, REVERSE=reverse, STATES=states, CHUNK=8)
    np.testing.assert_allclose(y, oracles.selective_scan(x, delta, a, b, c, reverse), rtol=1e-4, atol=1e-4)
