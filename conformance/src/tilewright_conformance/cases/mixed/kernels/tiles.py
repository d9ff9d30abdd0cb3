"""Whole kernels on vectors and images: elementwise, transposes, stencils, lookups, prefixes.

Segments and counts are here, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from tilewright_conformance.cases.mixed.kernels.whole_kernel import blocks, normal, poisoned, whole
from tilewright_conformance.kernels import matrices, portable_kernels, tiles
from tilewright_conformance.oracles import matrix
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session


def cases() -> Iterator[Case]:
    for type_ in ("f32", "f16", "bf16", "i32", "i8", "u8", "f64"):
        yield whole(
            f"add/{type_}",
            "core",
            functools.partial(_add, type_),
            type_,
            quick=type_ in ("f32", "f16", "i8", "f64"),
        )
    yield whole("axpy_in_place/f32", "core", _axpy, quick=True)
    for type_ in ("f32", "f16", "i8"):
        yield whole(
            f"transpose/{type_}",
            "memory",
            functools.partial(_transpose, type_),
            type_,
            quick=type_ == "f32",
        )
    for reach in (1, 4):
        yield whole(
            f"stencil/reach_{reach}", "memory", functools.partial(_stencil, reach), quick=reach == 4
        )
    yield whole("five_points/torus", "memory", _five_points, quick=True)
    yield whole("embedding/gather", "memory", _embedding, quick=True)
    yield whole(
        "embedding/gradient", "atomics", _embedding_gradient, quick=True, atomics={("f32", "add")}
    )
    yield whole("segments/sum_and_max", "memory", _segments, quick=True)
    yield whole("segments/sparse_matrix", "memory", _sparse)
    yield whole(
        "histogram/by_blocks", "memory", _histogram, "i32", quick=True, atomics={("i32", "add")}
    )
    yield whole(
        "histogram/by_elements", "atomics", _scattered, "i32", atomics={("i32", "add")}, quick=True
    )
    for type_ in ("i32", "f32"):
        yield whole(
            f"prefix_sums/two_passes/{type_}",
            "control",
            functools.partial(_prefixes, type_),
            type_,
            quick=type_ == "i32",
        )
    chained = {("i32", "add"), ("i64", "add"), ("i64", "xchg")}
    yield whole(
        "prefix_sums/one_pass/i32", "atomics", _one_pass, "i32", atomics=chained, quick=True
    )
    yield whole("compact/f32", "control", _compact, quick=True)
    yield whole("routing/tokens_to_experts", "control", _routing, quick=True)


def _add(type_: str, session: Session) -> None:
    for n in (1, 1000, 1024, 5001):
        x, y = (
            matrix.whole(session.rng, type_, n, most=60),
            matrix.encoded(
                type_,
                session.rng.standard_normal(n) * 20 if type_[0] not in "iu" else np.arange(n) % 60,
            ),
        )
        given = matrix.encoded(type_, np.full(n, 3)).given
        session.launch(
            portable_kernels.add, (blocks(n, 1024),), x.given, y.given, given, n, BLOCK=1024
        )
        out = given if isinstance(given, np.ndarray) else given.base
        session.check(
            out,
            x.values + y.values
            if type_[0] == "f" or type_ == "bf16"
            else (x.values + y.values).astype(out.dtype),
            type_=type_,
        )


def _axpy(session: Session) -> None:
    for n in (1, 777, 4096):
        x, y = normal(session, n), normal(session, n)
        wanted = np.float64(np.float32(-1.7)) * x + y
        session.launch(tiles.axpy_in_place, (3,), x, y, -1.7, n, BLOCK=128)
        session.check(y, wanted, atol=2.0**-22 * (1.7 * np.abs(x) + np.abs(wanted)))


def _transpose(type_: str, session: Session) -> None:
    for rows, columns in ((1, 5), (33, 70), (64, 32)):
        x = matrix.spread(session.rng, type_, rows, columns).given
        y = np.zeros((columns, rows), x.dtype)
        session.launch(
            tiles.transpose, (blocks(rows, 32), blocks(columns, 32)), x, y, rows, columns, BLOCK=32
        )
        session.check(y, x.T)


def _stencil(reach: int, session: Session) -> None:
    for n in (1, 128, 333):
        x, w, y = normal(session, n), normal(session, 2 * reach + 1), poisoned(n)
        session.launch(tiles.stencil, (blocks(n, 128),), x, w, y, n, REACH=reach, BLOCK=128)
        wanted = np.correlate(np.pad(x.astype(np.float64), reach), w.astype(np.float64))
        size = np.correlate(
            np.pad(np.abs(x.astype(np.float64)), reach), np.abs(w.astype(np.float64))
        )
        session.check(y, wanted, atol=(2 * reach + 3) * 2.0**-23 * size, zero_sign=False)


def _five_points(session: Session) -> None:
    for rows, columns in ((1, 1), (9, 50), (16, 32)):
        x, y = normal(session, rows, columns), poisoned(rows, columns)
        session.launch(
            tiles.five_points,
            (blocks(rows, 8), blocks(columns, 32)),
            x,
            y,
            rows,
            columns,
            0.1,
            ROWS=8,
            COLUMNS=32,
        )
        wide = x.astype(np.float64)
        around = sum(np.roll(wide, step, axis) for step in (1, -1) for axis in (0, 1))
        session.check(y, wide + np.float64(np.float32(0.1)) * (around - 4 * wide), atol=1e-5)


def _embedding(session: Session) -> None:
    table = normal(session, 40, 21)
    for count in (1, 50):
        index, out = session.rng.integers(-3, 40, count), poisoned(count, 21)
        session.launch(
            tiles.embedding, (blocks(count, 8),), table, index, out, count, 21, WIDTH=32, BLOCK=8
        )
        session.check(out, np.where(index[:, None] >= 0, table[index], np.float32(0)))


def _embedding_gradient(session: Session) -> None:
    """Few rows of the table, so that many programs add to each."""
    count, width = 100, 21
    index, grad, table = (
        session.rng.integers(-1, 4, count).astype(np.int32),
        normal(session, count, width),
        np.zeros((4, width), np.float32),
    )
    session.launch(tiles.embedding_gradient, (count,), grad, index, table, width, WIDTH=32)
    chosen = (index[None, :] == np.arange(4)[:, None]).astype(np.float64)
    session.check(
        table,
        chosen @ grad.astype(np.float64),
        atol=matrix.bound(chosen, grad.astype(np.float64), 0.0, "f32"),
        zero_sign=False,
    )


def _segments(session: Session) -> None:
    lengths = np.array([0, 1, 31, 32, 33, 0, 100, 5])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x, out, most = normal(session, int(starts[-1])), poisoned(len(lengths)), poisoned(len(lengths))
    session.launch(tiles.segment_totals, (len(lengths),), x, starts, out, most, BLOCK=32)
    parts = [x[a:b].astype(np.float64) for a, b in itertools.pairwise(starts)]
    bound = np.array([len(part) * 2.0**-23 * np.abs(part).sum() for part in parts])
    session.check(out, np.array([part.sum() for part in parts]), atol=bound, zero_sign=False)
    session.check(most, np.array([part.max(initial=-np.inf) for part in parts]))


def _sparse(session: Session) -> None:
    rows, columns = 17, 90
    dense = np.where(
        session.rng.random((rows, columns)) < 0.3, normal(session, rows, columns), np.float32(0)
    )
    dense[4] = 0
    places = [np.flatnonzero(row) for row in dense]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in places])]).astype(np.int32)
    at = np.concatenate(places).astype(np.int32)
    x, y = normal(session, columns), poisoned(rows)
    session.launch(
        tiles.sparse_times_vector, (rows,), dense[dense != 0], at, starts, x, y, BLOCK=16
    )
    wide, right = dense.astype(np.float64), x.astype(np.float64)[:, None]
    session.check(
        y, (wide @ right)[:, 0], atol=matrix.bound(wide, right, 0.0, "f32")[:, 0], zero_sign=False
    )


def _histogram(session: Session) -> None:
    for n in (1, 1000):
        x, counts = session.rng.integers(0, 16, n).astype(np.int32), np.zeros(16, np.int32)
        session.launch(tiles.histogram, (blocks(n, 128),), x, counts, n, BINS=16, BLOCK=128)
        session.check(counts, np.bincount(x, minlength=16).astype(np.int32))


def _scattered(session: Session) -> None:
    for n in (1, 3000):
        x, counts = session.rng.integers(0, 5, n).astype(np.int32), np.zeros(5, np.int32)
        session.launch(tiles.scattered_histogram, (blocks(n, 128),), x, counts, n, BLOCK=128)
        session.check(counts, np.bincount(x, minlength=5).astype(np.int32))


def _prefixes(type_: str, session: Session) -> None:
    """Scan blocks, then their totals by the same kernel in one block, then add both.

    f32 holds whole numbers, so that additions are exact.
    """
    block = 64
    dtype = np.float32 if type_ == "f32" else np.int32
    for n in (1, 64, 1000):
        x = session.rng.integers(-50, 50, n).astype(dtype)
        y, totals, prefixes, all_ = (
            np.zeros(n, dtype),
            np.zeros(blocks(n, block), dtype),
            np.zeros(blocks(n, block), dtype),
            np.zeros(1, dtype),
        )
        session.launch(tiles.block_prefixes, (len(totals),), x, y, totals, n, BLOCK=block)
        session.launch(tiles.block_prefixes, (1,), totals, prefixes, all_, len(totals), BLOCK=block)
        session.launch(tiles.add_totals, (len(totals),), y, prefixes, n, BLOCK=block)
        session.check(y, np.cumsum(x).astype(dtype), zero_sign=False)
        session.check(all_, x.sum(keepdims=True).astype(dtype), zero_sign=False)


def _one_pass(session: Session) -> None:
    for n in (1, 2000):
        x, y = session.rng.integers(-50, 50, n).astype(np.int32), np.zeros(n, np.int32)
        state, ticket = np.zeros(blocks(n, 64), np.int64), np.zeros(1, np.int32)
        session.launch(tiles.one_pass_prefixes, (len(state),), x, y, state, ticket, n, BLOCK=64)
        session.check(y, np.cumsum(x).astype(np.int32))
        session.check(ticket, np.array([len(state)], np.int32), name="tickets")


def _compact(session: Session) -> None:
    for n in (1, 500):
        x, out, count = normal(session, n), poisoned(n), np.zeros(1, np.int32)
        session.launch(tiles.compact, (1,), x, out, count, n, BLOCK=64)
        kept = x[x > 0]
        session.check(out, np.concatenate([kept, poisoned(n - len(kept))]))
        session.check(count, np.array([len(kept)], np.int32))


def _routing(session: Session) -> None:
    tokens, experts, width = 53, 8, 11
    choices = session.rng.integers(0, experts - 1, tokens).astype(np.int32)
    ranks, counts, starts = (poisoned(n, dtype=np.int32) for n in (tokens, experts, experts))
    session.launch(
        matrices.route, (1,), choices, ranks, counts, starts, tokens, EXPERTS=experts, BLOCK=16
    )
    session.check(counts, np.bincount(choices, minlength=experts).astype(np.int32))
    session.check(starts, (np.cumsum(counts) - counts).astype(np.int32))
    x, gathered, order = (
        normal(session, tokens, width),
        poisoned(tokens, width),
        poisoned(tokens, dtype=np.int32),
    )
    session.launch(
        matrices.dispatch,
        (tokens,),
        x,
        choices,
        ranks,
        starts,
        gathered,
        order,
        tokens,
        width,
        BLOCK=4,
    )
    expected = np.argsort(choices, kind="stable").astype(np.int32)
    session.check(order, expected)
    session.check(gathered, x[expected])
