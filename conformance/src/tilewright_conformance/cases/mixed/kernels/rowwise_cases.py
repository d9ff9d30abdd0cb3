"""Whole kernels that work row by row: normalizations and losses with gradients, softmax, scans.

Statistics and sorting are here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.cases.mixed.kernels.whole_kernel import Array, normal, poisoned, whole
from tilewright_conformance.kernels import rowwise_kernels, tiles
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles import rowwise as oracles
from tilewright_conformance.oracles.formats import format_of
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session

#: Rows of one element, less than a block, and several blocks and a rest.
_SHAPES = ((1, 1), (5, 37), (7, 300))


def cases() -> Iterator[Case]:
    for type_ in ("f32", "f16", "bf16"):
        yield whole(
            f"softmax/{type_}",
            "math",
            functools.partial(_softmax, type_),
            f"f32 {type_}",
            quick=type_ != "bf16",
        )
    yield whole("online_softmax/f32", "math", _online_softmax, quick=True)
    for type_ in ("f32", "f16", "bf16", "f64"):
        dtypes = type_ if type_ == "f64" else f"f32 {type_}"
        yield whole(
            f"layer_norm/forward/{type_}",
            "core",
            functools.partial(_layer_norm, type_),
            f"f32 {dtypes}",
            quick=type_ in ("f32", "f64"),
        )
    locks = {("i32", "cas"), ("i32", "xchg")}
    yield whole("layer_norm/gradient", "atomics", _layer_norm_gradient, quick=True, atomics=locks)
    yield whole("rms_norm/and_gradient", "math", _rms_norm, quick=True)
    for type_ in ("f32", "f64"):
        yield whole(
            f"welford/{type_}",
            "core",
            functools.partial(_welford, type_),
            "f32 f64" if type_ == "f64" else "f32",
            quick=True,
        )
    for smoothing, cap in ((0.0, None), (0.1, None), (0.0, 5.0)):
        text = f"smoothing_{smoothing:g}" + (f"_cap_{cap:g}" if cap else "")
        yield whole(
            f"cross_entropy/{text}",
            "math",
            functools.partial(_cross_entropy, smoothing, cap),
            quick=smoothing > 0,
        )
    yield whole("dropout/f32", "math", _dropout, "f32 u32 u64", quick=True)
    for type_ in ("f32", "f16"):
        yield whole(
            f"rotary/{type_}",
            "core",
            functools.partial(_rotary, type_),
            f"f32 {type_}",
            quick=type_ == "f32",
        )
    yield whole(
        "quantise/i8", "math", functools.partial(_quantise, "i8", 127.0), "f32 i8", quick=True
    )
    for type_, largest in (("f8e4m3fn", 448.0), ("f8e5m2", 57344.0)):
        yield whole(
            f"quantise/{type_}",
            "fp8",
            functools.partial(_quantise, type_, largest),
            f"f32 {type_}",
            quick=True,
        )
    yield whole("argmax/f32", "core", _extremes, quick=True)
    yield whole("top_k/f32", "memory", _top_k, quick=True)
    for descending in (False, True):
        name = "descending" if descending else "ascending"
        yield whole(
            f"sort_rows/{name}", "memory", functools.partial(_sorted, descending), quick=descending
        )
    for reverse in (False, True):
        name = "backwards" if reverse else "forwards"
        yield whole(
            f"selective_scan/{name}",
            "control",
            functools.partial(_selective_scan, reverse),
            quick=reverse,
        )
    for name in ("gelu", "silu"):
        for type_ in ("f32", "f16"):
            yield whole(
                f"{name}/{type_}",
                "math",
                functools.partial(_activated, name, type_),
                f"f32 {type_}",
                quick=type_ == "f32",
            )


def _numbers(session: Session, type_: str, *shape: int) -> matrix.Operand:
    return matrix.encoded(type_, session.rng.standard_normal(shape))


def _result(type_: str, *shape: int) -> tuple[Any, Array]:
    """(what the kernel is given, the array behind it) for results."""
    given = matrix.encoded(type_, np.full(shape, 3.0)).given
    return given, given if isinstance(given, np.ndarray) else given.base


def _half(type_: str, otherwise: float) -> float:
    """Relative error of a result's last rounding and the arithmetic before it."""
    return {"f16": 2.0**-10, "bf16": 2.0**-7, "f64": 1e-13}.get(type_, otherwise)


def _softmax(type_: str, session: Session) -> None:
    for count, columns in ((1, 1), (3, 7), (4, 781)):
        x = matrix.encoded(type_, session.rng.standard_normal((count, columns)) * 4)
        given, out = _result(type_, count, columns + 3)
        session.launch(
            tiles.softmax,
            (count,),
            x.given,
            given,
            columns,
            columns + 3,
            columns,
            BLOCK=tw.next_power_of_2(columns),
        )
        atol = 2.0**-23 if type_ == "f16" else 1e-30  # weights below the normal numbers
        session.check(
            out[:, :columns],
            oracles.softmax(x.values),
            rtol=_half(type_, 2e-5),
            atol=atol,
            type_=type_,
        )
        session.check(out[:, columns:], np.float64(3), type_=type_, name="columns between the rows")


def _online_softmax(session: Session) -> None:
    for count, columns in ((1, 1), (3, 64), (5, 300)):
        x = normal(session, count, columns) * 5
        x[0, : columns // 2] = -np.inf
        out, lse = poisoned(count, columns), poisoned(count)
        session.launch(tiles.online_softmax, (count,), x, out, lse, columns, BLOCK=64)
        with np.errstate(invalid="ignore"):
            session.check(lse, oracles.logsumexp(x), rtol=1e-5, atol=1e-5)
            session.check(out, oracles.softmax(x), rtol=4e-5, atol=1e-30)


def _layer_norm(type_: str, session: Session) -> None:
    wide = "f64" if type_ == "f64" else "f32"
    for count, columns in _SHAPES:
        x, w, b = (
            _numbers(session, type_, count, columns),
            _numbers(session, type_, columns),
            _numbers(session, type_, columns),
        )
        given, y = _result(type_, count, columns)
        mean, rstd = (
            poisoned(count, dtype=np.float64 if wide == "f64" else np.float32) for _ in range(2)
        )
        options = {"ACC": tl.float64 if wide == "f64" else tl.float32, "BLOCK": 64}
        session.launch(
            tiles.layer_norm,
            (count,),
            x.given,
            w.given,
            b.given,
            given,
            mean,
            rstd,
            columns,
            1e-5,
            **options,
        )
        # the argument eps has the type of what the kernel adds it to
        wanted = oracles.layer_norm(
            x.values, w.values, b.values, 1e-5 if wide == "f64" else float(np.float32(1e-5))
        )
        close = 1e-11 if wide == "f64" else 2e-5
        session.check(
            y,
            wanted[0],
            rtol=max(close, _half(type_, 0.0)),
            atol=20 * close,
            type_=type_,
            zero_sign=False,
        )
        session.check(mean, wanted[1], rtol=close, atol=close)
        session.check(rstd, wanted[2], rtol=10 * close)


def _layer_norm_gradient(session: Session) -> None:
    count, columns, groups = 13, 29, 4
    x, w, dy = (
        normal(session, count, columns),
        normal(session, columns),
        normal(session, count, columns),
    )
    mean, rstd = x.mean(1), (1 / np.sqrt(x.var(1) + 1e-5)).astype(np.float32)
    dx, dw, db, locks = (
        poisoned(count, columns),
        poisoned(groups, columns),
        poisoned(groups, columns),
        np.zeros(2 * groups, np.int32),
    )
    session.launch(
        rowwise_kernels.layer_norm_gradient,
        (count,),
        dx,
        dy,
        dw,
        db,
        x,
        w,
        mean,
        rstd,
        locks,
        columns,
        columns,
        GROUPS=groups,
        BLOCK=32,
    )
    wanted = oracles.layer_norm_gradient(x, w, dy, mean, rstd)
    session.check(dx, wanted[0], rtol=1e-4, atol=1e-4)
    session.check(dw.sum(0), wanted[1], rtol=1e-4, atol=1e-4)
    session.check(db.sum(0), wanted[2], rtol=1e-4, atol=1e-4)
    session.check(locks, np.repeat([0, 1], groups).astype(np.int32), name="locks and counts")


def _rms_norm(session: Session) -> None:
    for count, columns in _SHAPES:
        x, w, dy = (
            normal(session, count, columns),
            normal(session, columns),
            normal(session, count, columns),
        )
        y, rstd, dx, dw = (
            poisoned(count, columns),
            poisoned(count),
            poisoned(count, columns),
            poisoned(3, columns),
        )
        session.launch(
            rowwise_kernels.rms_norm_forward,
            (count,),
            x,
            w,
            y,
            rstd,
            columns,
            columns,
            1e-6,
            BLOCK=64,
        )
        session.launch(
            rowwise_kernels.rms_norm_backward,
            (3,),
            dy,
            x,
            w,
            rstd,
            dx,
            dw,
            columns,
            count,
            columns,
            PROGRAMS=3,
            BLOCK=tw.next_power_of_2(columns),
        )
        wanted, exact_rstd = oracles.rms_norm(x, w, 1e-6)
        wanted_dx, wanted_dw = oracles.rms_norm_gradient(x, w, dy, 1e-6)
        session.check(y, wanted, rtol=1e-5, atol=1e-5)
        session.check(rstd, exact_rstd, rtol=1e-5)
        session.check(dx, wanted_dx, rtol=1e-4, atol=1e-4)
        session.check(dw.sum(0), wanted_dw, rtol=1e-4, atol=1e-4)


def _welford(type_: str, session: Session) -> None:
    """Means far from zero, where a difference of squares would have lost the variance."""
    dtype = np.float64 if type_ == "f64" else np.float32
    for count, columns in _SHAPES:
        x = normal(session, count, columns, dtype=dtype) + dtype(300)
        mean, variance = poisoned(count, dtype=dtype), poisoned(count, dtype=dtype)
        session.launch(tiles.welford, (count,), x, mean, variance, columns, BLOCK=64)
        close = 1e-12 if type_ == "f64" else 1e-3
        session.check(mean, x.astype(np.float64).mean(1), rtol=close / 100)
        session.check(
            variance, x.astype(np.float64).var(1), rtol=close, atol=close / 10, zero_sign=False
        )


def _cross_entropy(smoothing: float, cap: float | None, session: Session) -> None:
    count, classes = 5, 83
    x = normal(session, count, classes) * 4
    target = session.rng.integers(0, classes, count)
    target[2] = -100
    found, loss = x.copy(), poisoned(count)
    options = {"smoothing": smoothing, "HAS_CAP": cap is not None, "cap": cap, "BLOCK": 32}
    session.launch(
        rowwise_kernels.cross_entropy,
        (count,),
        found,
        target,
        loss,
        classes,
        classes,
        -100,
        **options,
    )
    wanted, gradient = oracles.cross_entropy(x, target, -100, smoothing, cap)
    session.check(loss, wanted, rtol=1e-4, atol=1e-5)
    session.check(found, gradient, rtol=1e-4, atol=1e-5, zero_sign=False)


def _dropout(session: Session) -> None:
    n, p = 5003, 0.3
    x = np.abs(normal(session, n)) + 1
    first, again, other = poisoned(n), poisoned(n), poisoned(n)
    for out, seed in ((first, 123), (again, 123), (other, 2**40 + 123)):
        session.launch(rowwise_kernels.dropout, (5,), x, out, n, p, seed, BLOCK=256)
    # the random numbers are the same everywhere, so what is kept is too
    wanted = poisoned(n)
    session.reference.launch(rowwise_kernels.dropout, (5,), x, wanted, n, p, 123, BLOCK=256)
    kept = wanted != 0
    session.check(first != 0, kept, type_="i1", name="what is kept")
    session.check(
        first[kept], x[kept].astype(np.float64) / (1 - np.float64(np.float32(p))), rtol=1e-6
    )
    session.check(again, first, name="the same seed again")
    session.require(
        abs(float(kept.mean()) - (1 - p)) < 0.03,
        f"{kept.mean():.3f} of the elements are kept where {1 - p} should be",
    )
    session.require(not np.array_equal(first, other), "another seed drops the same elements")


def _rotary(type_: str, session: Session) -> None:
    positions, heads, half = 5, 3, 12
    dtype = np.float16 if type_ == "f16" else np.float32
    q = normal(session, positions, heads, 2 * half, dtype=dtype)
    angle = np.arange(positions)[:, None] / 10000 ** (np.arange(half) / half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    found = q.copy()
    close = 1e-5 if type_ == "f32" else 4e-3
    for backward, wanted in ((False, oracles.rotated(q, angle)), (True, q.astype(np.float64))):
        session.launch(
            rowwise_kernels.rotate,
            (positions,),
            found,
            cos,
            sin,
            heads * 2 * half,
            heads,
            half,
            BACKWARD=backward,
            HEADS=4,
            HALF=16,
        )
        session.check(found, wanted, rtol=close, atol=2 * close, zero_sign=False)


def _quantise(type_: str, largest: float, session: Session) -> None:
    count, columns = 4, 45
    x = normal(session, count, columns) * np.logspace(-3, 3, count, dtype=np.float32)[:, None]
    x[1] = 0
    given, q = _result(type_, count, columns)
    scale = poisoned(count)
    session.launch(
        rowwise_kernels.quantise,
        (count,),
        x,
        given,
        scale,
        columns,
        LARGEST=largest,
        BLOCK=64,
        **session.strict,
    )
    session.check(
        scale, np.maximum(np.abs(x.astype(np.float64)).max(1), 1e-10) / largest, rtol=1e-6
    )
    # from the kernel's own scales, so that no quotient falls to another side of a half
    scaled = x / scale[:, None]
    if type_ == "i8":
        session.check(q, np.rint(scaled).astype(np.int8))
    else:
        bits = format_of(type_).nearest(np.clip(scaled, -largest, largest), "rtne")
        session.check(q, bits.astype(np.uint8), type_=type_)


def _extremes(session: Session) -> None:
    """Few different values, so that there are ties within and across blocks."""
    for count, columns in ((3, 1), (4, 50), (6, 200)):
        x = session.rng.integers(-3, 4, (count, columns)).astype(np.float32)
        value, place, lowest = (
            poisoned(count),
            poisoned(count, dtype=np.int32),
            poisoned(count, dtype=np.int32),
        )
        session.launch(tiles.row_maxima, (count,), x, value, place, lowest, columns, BLOCK=64)
        session.check(value, x.max(1), zero_sign=False)
        session.check(place, x.argmax(1).astype(np.int32))
        session.check(lowest, x.argmin(1).astype(np.int32))


def _top_k(session: Session) -> None:
    count, columns, k = 3, 100, 8
    x = np.round(normal(session, count, columns), 1) + np.float32(
        0
    )  # no -0.0, which the kernel takes for less than 0.0
    values, places = poisoned(count, k), poisoned(count, k, dtype=np.int32)
    session.launch(rowwise_kernels.top_k, (count,), x, values, places, columns, K=k, BLOCK=128)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :k].astype(np.int32)
    session.check(places, expected)
    session.check(values, np.take_along_axis(x, expected, 1))


def _sorted(descending: bool, session: Session) -> None:
    x, y = normal(session, 4, 53), poisoned(4, 53)
    session.launch(
        rowwise_kernels.bitonic_rows, (1,), x, y, 53, DESCENDING=descending, ROWS=4, BLOCK=64
    )
    session.check(y, -np.sort(-x, axis=1) if descending else np.sort(x, axis=1))


def _selective_scan(reverse: bool, session: Session) -> None:
    length, channels, states = 21, 3, 4
    x, delta = normal(session, length, channels), np.abs(normal(session, length, channels))
    a, b, c = (
        -np.abs(normal(session, channels, states)),
        normal(session, length, states),
        normal(session, length, states),
    )
    y = poisoned(length, channels)
    session.launch(
        rowwise_kernels.selective_scan,
        (channels,),
        x,
        delta,
        a,
        b,
        c,
        y,
        length,
        channels,
        REVERSE=reverse,
        STATES=states,
        CHUNK=8,
    )
    session.check(y, oracles.selective_scan(x, delta, a, b, c, reverse), rtol=1e-4, atol=1e-4)


def _activated(name: str, type_: str, session: Session) -> None:
    for count, columns in ((1, 3), (19, 70)):
        x, residual = (
            _numbers(session, type_, count, columns),
            _numbers(session, type_, count, columns),
        )
        bias = normal(session, columns) * 3
        given, out = _result(type_, count, columns)
        grid = (-(-count // 16), -(-columns // 32))
        session.launch(
            tiles.activated,
            grid,
            x.given,
            bias,
            residual.given,
            given,
            count,
            columns,
            FN=getattr(tiles, name),
            ROWS=16,
            COLUMNS=32,
        )
        wanted = residual.values + getattr(oracles, name)(x.values + bias)
        session.check(out, wanted, rtol=_half(type_, 1e-5), atol=1e-5, type_=type_)
