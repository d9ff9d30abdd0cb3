"""Bandwidth of copies, additions, softmax and transposition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright_conformance.cases.perf.perf import measuring
from tilewright_conformance.cases.perf.perf.measuring import (
    MAXIMUM_SIZE,
    Array,
    Launch,
    Verdict,
    demand,
    in_turns,
)
from tilewright_conformance.kernels import portable_kernels, tiles
from tilewright_conformance.kernels import speed as kernels
from tilewright_conformance.oracles import rowwise as oracles
from tilewright_conformance.suite.session import Session


def bandwidth(name: str, session: Session) -> None:
    """Bytes moved in a second.

    Twice the rows take at least 1.2 times as long, and not much more than leaving a cache explains.
    """
    with session.use():
        columns = 1024

        def make(rows: int) -> Callable[[], tuple[Launch, Callable[[], None]]]:
            return functools.partial(_MEMORY[name], session, rows, columns)

        small = measuring.sized_launch(
            session, lambda rows: make(rows)()[0], 64, MAXIMUM_SIZE // (4 * columns)
        )
        small = max(small // 2, 32)
        (launch, check), (twice, check_twice) = make(small)(), make(2 * small)()

        def attempt() -> Verdict:
            one, two = in_turns(session, launch, twice)
            moved = _ARRAYS[name] * 4 * 2 * small * columns
            return {"gigabytes_per_second": moved / two / 1e9, "ratio": two / one}, twice_as_long(
                one, two, _MOST[name]
            )

        demand(session, attempt)
        check()
        check_twice()


def twice_as_long(one: float, two: float, most: float = 4) -> str:
    return (
        ""
        if 1.2 <= two / one <= most
        else (
            f"twice the work took {two / one:.2f} times as long ({one * 1e6:.1f} and "
            f"{two * 1e6:.1f} microseconds)"
        )
    )


#: How many times as long twice the rows may take: the smaller array may lie in a cache that the
#: larger one does not fit. Columns of a matrix meet in few lines of a cache besides.
_MOST = {"copy": 12, "add": 12, "softmax": 6, "transpose": 40}
#: arrays that are read or written once, by subject
_ARRAYS = {"copy": 2, "add": 3, "softmax": 2, "transpose": 2}
Made = tuple[Launch, Callable[[], None]]


def _copying(session: Session, rows: int, columns: int, stride: int = 1) -> Made:
    n = rows * columns
    x, y = session.rng.random(n, dtype=np.float32), np.zeros(n, np.float32)
    place = session.placement()
    px, py = place(x), place(y)
    return lambda: kernels.copy[(n // 1024,)](px, py, n, stride, BLOCK=1024), _equal(
        session, place, y, lambda: x
    )


def _adding(session: Session, rows: int, columns: int) -> Made:
    n = rows * columns
    x, y, out = (
        session.rng.random(n, dtype=np.float32),
        session.rng.random(n, dtype=np.float32),
        np.zeros(n, np.float32),
    )
    place = session.placement()
    px, py, pout = place(x), place(y), place(out)
    return lambda: portable_kernels.add[(n // 1024,)](px, py, pout, n, BLOCK=1024), _equal(
        session, place, out, lambda: x + y
    )


def _normalising(session: Session, rows: int, columns: int) -> Made:
    x, out = (
        session.rng.random((rows, columns), dtype=np.float32),
        np.zeros((rows, columns), np.float32),
    )
    place = session.placement()
    px, pout = place(x), place(out)

    def check() -> None:
        place.fetch()
        chosen = session.rng.integers(0, rows, 64)
        session.check(out[chosen], oracles.softmax(x[chosen]), rtol=2e-5)
        session.require(bool((abs(out.sum(1) - 1) < 1e-4).all()), "rows do not add up to one")

    return lambda: tiles.softmax[(rows,)](px, pout, columns, columns, columns, BLOCK=columns), check


def _transposing(session: Session, rows: int, columns: int) -> Made:
    rows, columns = (
        rows + 32,
        columns + 32,
    )  # no powers of two, for which the elements of a column share a place in caches
    x, out = (
        session.rng.random((rows, columns), dtype=np.float32),
        np.zeros((columns, rows), np.float32),
    )
    place = session.placement()
    px, pout = place(x), place(out)
    grid = (rows // 32, columns // 32)
    return lambda: tiles.transpose[grid](px, pout, rows, columns, BLOCK=32), _equal(
        session, place, out, lambda: x.T
    )


def _equal(
    session: Session, place: Any, found: Array, expected: Callable[[], Array]
) -> Callable[[], None]:
    """A check of an array that is too large to be compared in float64."""

    def check() -> None:
        place.fetch()
        session.require(
            np.array_equal(found, expected()), "the array is not what it should be, bit by bit"
        )

    return check


def checked_launch(
    session: Session, place: Any, found: Array, expected: Callable[[], tuple[Array, float]]
) -> Callable[[], None]:
    def check() -> None:
        place.fetch()
        wanted, rtol = expected()
        session.check(found, wanted, rtol=rtol)

    return check


_MEMORY: dict[str, Callable[..., Made]] = {
    "copy": _copying,
    "add": _adding,
    "softmax": _normalising,
    "transpose": _transposing,
}


def strided_copies(session: Session) -> None:
    """Demand that a contiguous copy is no slower than a strided one, or near the memory's speed.

    The strides are 64 bytes or more; near is a tenth of the speed of the memory's own copy.
    """
    with session.use():
        rows = measuring.sized_launch(
            session, lambda count: _copying(session, count, 1024)[0], 64, MAXIMUM_SIZE // 4 // 4096
        )
        contiguous, check = _copying(session, rows, 1024)
        strided, check_strided = _copying(session, rows, 1024, 32)
        host = np.zeros(rows * 4096, np.uint8)
        buffer = session.subject.memory.allocate(host.nbytes, 256)

        def own_copy() -> None:
            session.subject.memory.copy_to_device(buffer, memoryview(host.data))

        def attempt() -> Verdict:
            near, far, own = in_turns(session, contiguous, strided, own_copy)
            figures = {
                "gigabytes_per_second": 2 * host.nbytes / near / 1e9,
                "strided_to_contiguous": far / near,
                "share_of_memory_copy": own / near,
            }
            if near <= far or own / near >= 0.1:
                return figures, ""
            return (
                figures,
                (
                    f"a contiguous copy took {near / far:.2f} times as long as a strided one and "
                    f"{near / own:.1f} times as long as the memory's own"
                ),
            )

        demand(session, attempt)
        check()
        check_strided()
