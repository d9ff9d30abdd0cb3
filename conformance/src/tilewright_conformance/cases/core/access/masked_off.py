"""Loads with a mask and no ``other``: masked-off lanes are zero in additions, matmuls and indices.

In memory numbers go on behind the masks, so that reading there shows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import IR, NUMBERS
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table
from tilewright_conformance.testlib.numbers import check, wide

_case = Table("access", "core").case


@tw.jit
def shown(x_ptr, whole, under, first, n, BLOCK: tl.constexpr):
    """Blocks as they were loaded, under the mask they were loaded under, and scalars."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(whole + at, x)
    tl.store(under + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    tl.store(first + program, tl.load(x_ptr + program * BLOCK, mask=program * BLOCK < n))


@tw.jit
def norm_backward(
    grad,
    x,
    mean,
    rstd,
    weight,
    dx,
    dweight,
    dbias,
    batch,
    width,
    BATCH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Backward pass of a batch normalization, one channel a program.

    Only the masks of loads exclude lanes outside.
    """
    channel = tl.program_id(0)
    start = channel * batch * width
    rows, columns = tl.arange(0, BATCH), tl.arange(0, WIDTH)
    centre, scale, w = tl.load(mean + channel), tl.load(rstd + channel), tl.load(weight + channel)
    weighted, total = tl.zeros((BATCH, WIDTH), tl.float32), tl.zeros((BATCH, WIDTH), tl.float32)
    for first in tl.range(0, width, WIDTH):
        at = start + rows[:, None] * width + (first + columns)[None, :]
        inside = (rows[:, None] < batch) & ((first + columns)[None, :] < width)
        g = tl.load(grad + at, mask=inside).to(tl.float32)
        weighted += (tl.load(x + at, mask=inside).to(tl.float32) - centre) * g
        total += g
    by_weight, by_bias = tl.sum(weighted) * scale, tl.sum(total)
    tl.store(dweight + channel, by_weight)
    tl.store(dbias + channel, by_bias)
    for first in tl.range(0, width, WIDTH):
        at = start + rows[:, None] * width + (first + columns)[None, :]
        inside = (rows[:, None] < batch) & ((first + columns)[None, :] < width)
        g, here = (
            tl.load(grad + at, mask=inside).to(tl.float32),
            tl.load(x + at, mask=inside).to(tl.float32),
        )
        part = (by_bias + (here - centre) * scale * by_weight) / (batch * width)
        tl.store(dx + at, (w * scale * (g - part)).to(dx.dtype.element_ty), mask=inside)


@tw.jit
def matmul(a_ptr, b_ptr, table, out, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """A matmul whose K ends inside a block, with rows from a table that ends there too."""
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for first in tl.range(0, K, BK):
        inner = first + tl.arange(0, BK)
        row = tl.load(table + inner, mask=inner < K)
        a = tl.load(a_ptr + rows[:, None] * 128 + inner[None, :], mask=inner[None, :] < K)
        b = tl.load(b_ptr + row[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


def _tail(name: str, session: Session) -> None:
    for n in (1, 7, 64, 65, 200, 256):
        x = wide(session.rng, name, 256)
        whole, under, first = np.ones(256, x.dtype), np.ones(256, x.dtype), np.ones(4, x.dtype)
        session.launch(shown, (4,), x, whole, under, first, n, BLOCK=64)
        zeros = np.where(np.arange(256) < n, x, np.zeros_like(x))
        check(session, whole, zeros, name=f"blocks of {n}")
        check(
            session,
            under,
            np.where(np.arange(256) < n, x, np.ones_like(x)),
            name=f"{n} under the mask",
        )
        check(session, first, zeros[::64], name=f"scalars of {n}")


def _batch_norm(name: str, session: Session) -> None:
    channels = 3
    for batch, width in ((3, 21), (4, 16), (1, 5)):
        count = channels * batch * width
        grad, x = (
            session.rng.integers(-8, 9, count + 64).astype(name) / np.dtype(name).type(4)
            for _ in range(2)
        )
        grad[count:], x[count:] = np.nan, np.nan
        g, y = (values[:count].astype(np.float64).reshape(channels, -1) for values in (grad, x))
        mean, rstd, weight = (
            session.rng.integers(1, 9, channels).astype(np.float32) / np.float32(8)
            for _ in range(3)
        )
        dx, dweight, dbias = (
            np.zeros(count, name),
            np.zeros(channels, np.float32),
            np.zeros(channels, np.float32),
        )
        session.launch(
            norm_backward,
            (channels,),
            grad,
            x,
            mean,
            rstd,
            weight,
            dx,
            dweight,
            dbias,
            batch,
            width,
            BATCH=4,
            WIDTH=16,
        )
        centred = y - mean[:, None]
        by_weight, by_bias = (centred * g).sum(1) * rstd, g.sum(1)
        part = (by_bias[:, None] + centred * (rstd * by_weight)[:, None]) / (batch * width)
        tolerance = 2e-3 if name == "float16" else 1e-5
        session.check(dweight, by_weight.astype(np.float32), name="dweight", atol=1e-4, rtol=1e-5)
        session.check(dbias, by_bias.astype(np.float32), name="dbias", atol=1e-4, rtol=1e-5)
        session.check(
            dx.reshape(channels, -1),
            ((weight * rstd)[:, None] * (g - part)).astype(name),
            name="dx",
            atol=tolerance,
            rtol=tolerance,
        )


def _matmul(name: str, session: Session) -> None:
    for k in (5, 32, 77, 128):
        a, b = (
            session.rng.integers(-3, 4, (32, 128)).astype(name),
            session.rng.integers(-3, 4, (128, 32)).astype(name),
        )
        order = session.rng.permutation(128)[:k]
        a[:, k:] = np.nan
        table = np.append(order, np.full(128 - k, 1 << 20)).astype(np.int32)
        out = np.zeros((32, 32), np.float32)
        session.launch(matmul, (1,), a, b, table, out, k, M=32, N=32, BK=32, num_stages=3)
        session.check(
            out, a[:, :k].astype(np.float32) @ b[order].astype(np.float32), name=f"{k} terms"
        )


def masked_off_cases() -> Iterator[Case]:
    for index, name in enumerate((*NUMBERS, "bool")):
        yield _case(
            f"masked_off/tail/{IR[name]}",
            "tl.load(mask)",
            functools.partial(_tail, name),
            name,
            tile=64,
            quick=index in (0, 2, 8, 10),
        )
    for name in ("float32", "float16"):
        run = functools.partial(_batch_norm, name)
        yield _case(
            f"masked_off/batch_norm_backward/{IR[name]}",
            "tl.load(mask)",
            run,
            name,
            "float32",
            tile=64,
            quick=name == "float32",
        )
        id_, run = f"masked_off/matmul/{IR[name]}", functools.partial(_matmul, name)
        options: dict[str, Any] = {
            "dot": {(IR[name], "f32")},
            "dot_shape": (32, 32, 32),
            "tile": 1024,
        }
        case = _case(
            id_, "tl.load(mask)", run, name, "i32", "f32", quick=name == "float16", **options
        )
        yield dataclasses.replace(case, profile="matmul")
