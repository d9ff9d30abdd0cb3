"""Time of arithmetic, of many programs and of matmuls."""

from __future__ import annotations

import functools

import numpy as np

from tilewright_conformance.cases.perf.perf import measuring
from tilewright_conformance.cases.perf.perf.measuring import Verdict, demand, in_turns
from tilewright_conformance.cases.perf.perf.memory_speed import Made, checked_launch, twice_as_long
from tilewright_conformance.kernels import matrices
from tilewright_conformance.kernels import speed as kernels
from tilewright_conformance.oracles import matrix
from tilewright_conformance.suite.session import Session


def working_launch(session: Session, turns: int, programs: int = 16) -> Made:
    x, y = (
        session.rng.uniform(0, 4, programs * 256).astype(np.float32),
        np.zeros(programs * 256, np.float32),
    )
    place = session.placement()
    px, py = place(x), place(y)
    wanted = 2 + (x.astype(np.float64) - 2) * 0.5 ** min(turns, 1000)
    return lambda: kernels.work[(programs,)](px, py, turns, BLOCK=256), checked_launch(
        session, place, y, lambda: (wanted, 1e-6)
    )


def enough_turns(session: Session) -> int:
    """Turns whose launch takes at least a fixed multiple of a launch's own cost."""
    return measuring.sized_launch(
        session, lambda turns: working_launch(session, turns)[0], 64, 1 << 26
    )


def twice_the_work(session: Session) -> None:
    with session.use():
        turns = enough_turns(session)
        (launch, check), (twice, check_twice), (fourfold, check_fourfold) = (
            working_launch(session, turns * factor) for factor in (1, 2, 4)
        )

        def attempt() -> Verdict:
            one, two, four = in_turns(session, launch, twice, fourfold)
            figures = {
                "turns": turns,
                "microseconds": one * 1e6,
                "ratio": two / one,
                "ratio_of_four": four / one,
            }
            return figures, twice_as_long(one, two) or twice_as_long(two, four)

        demand(session, attempt)
        check()
        check_twice()
        check_fourfold()


def many_programs(session: Session) -> None:
    """Demand that 64 times the programs take at most 128 times as long.

    The ratio shows how many run in parallel.
    """
    with session.use():
        turns = max(enough_turns(session) // 8, 64)
        (few, check), (many, check_many) = (
            working_launch(session, turns, 16),
            working_launch(session, turns, 1024),
        )

        def attempt() -> Verdict:
            one, all_ = in_turns(session, few, many)
            figures = {"ratio_of_64": all_ / one}
            return (
                figures,
                ""
                if all_ / one <= 128
                else f"64 times the programs took {all_ / one:.1f} times as long",
            )

        demand(session, attempt)
        check()
        check_many()


def _multiplying(session: Session, type_: str, size: int, depth: int) -> Made:
    a, b = (
        matrix.spread(session.rng, type_, size, depth),
        matrix.spread(session.rng, type_, depth, size),
    )
    c = np.zeros((size, size), np.float32)
    place = session.placement()
    pa, pb, pc = place(a.given), place(b.given), place(c)
    options = {"PROGRAMS": 0, "GROUP": 4, "ACTIVATION": None, "BM": 64, "BN": 64, "BK": 32}
    grid = ((size // 64) ** 2,)

    def check() -> None:
        place.fetch()
        session.check(c, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32"))

    return lambda: matrices.blocked_matmul[grid](pa, pb, pc, size, size, depth, **options), check


def matmul_speed(type_: str, session: Session) -> None:
    """Operations in a second; twice the depth takes 1.2 to 4 times as long."""
    with session.use():
        size = 1024
        depth = measuring.sized_launch(
            session, lambda own: _multiplying(session, type_, size, own)[0], 64, 8192
        )
        (launch, check), (twice, check_twice) = (
            _multiplying(session, type_, size, depth),
            _multiplying(session, type_, size, 2 * depth),
        )

        def attempt() -> Verdict:
            one, two = in_turns(session, launch, twice)
            return {
                "gigaflops": 2 * size**2 * 2 * depth / two / 1e9,
                "ratio": two / one,
            }, twice_as_long(one, two)

        demand(session, attempt)
        check()
        check_twice()


def dot_and_sum(session: Session) -> None:
    """``tl.dot`` is no slower than multiplying and adding up."""
    with session.use():
        size, depth, block = 128, 128, 32
        a, b = (
            matrix.spread(session.rng, "f32", size, depth),
            matrix.spread(session.rng, "f32", depth, size),
        )
        place = session.placement()
        pa, pb = place(a.given), place(b.given)
        results = [np.zeros((size, size), np.float32) for _ in range(2)]
        placed = [place(result) for result in results]
        grid = (size // block, size // block)
        dot, added = (
            functools.partial(
                kernels.matmul[grid], pa, pb, target, size, depth, DOT=kind, BLOCK=block
            )
            for kind, target in zip((True, False), placed, strict=True)
        )

        def attempt() -> Verdict:
            by_dot, by_sum = in_turns(session, dot, added)
            figures = {"sum_to_dot": by_sum / by_dot}
            return (
                figures,
                ""
                if by_dot <= 1.1 * by_sum
                else (
                    f"tl.dot took {by_dot / by_sum:.2f} times as long as multiplying and adding up"
                ),
            )

        demand(session, attempt)
        place.fetch()
        for result in results:
            session.check(
                result, a.values @ b.values, atol=matrix.bound(a.values, b.values, 0.0, "f32")
            )
