"""Cooperative launches: all programs of the grid run at once, and may wait for each other."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

CASES = Table("launch", "launch", "Python and NumPy")
#: Within what any device holds at once.
GRIDS: dict[str, tuple[int, ...]] = {"x1": (1,), "x2": (2,), "x5": (5,), "x2x1x3": (2, 1, 3)}
_ROUNDS = 3
_NEEDS = elements("i32", tile=64, atomics=frozenset({("i32", "add")}), features={"cooperative"})


@tw.jit
def program_number():
    return (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(
        0
    ) + tl.program_id(0)


@tw.jit
def meet(count, target):
    """A barrier of the grid: what programs stored before it is seen by all after it."""
    tl.debug_barrier()
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < target:
        pass
    tl.debug_barrier()


@tw.jit
def hand_on(count, x, kept, out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Pass each program's block to the one before it, once a round, after a barrier of the grid.

    Each program adds its number.
    """
    p = program_number()
    n = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + p * BLOCK + at)
    for turn in range(ROUNDS):
        tl.store(kept + (turn * n + p) * BLOCK + at, value)
        meet(count, (turn + 1) * n)
        value = tl.load(kept + (turn * n + (p + 1) % n) * BLOCK + at, volatile=True) + p
    tl.store(out + p * BLOCK + at, value)


@tw.jit
def await_the_next(flags, order, ANYTHING: tl.constexpr):
    """A chain in which each program waits for the one behind it, whose number is higher."""
    p = program_number()
    n = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    if p < n - 1:
        while tl.atomic_add(flags + p + 1, 0, sem="acquire") == 0:
            pass
        tl.store(order + p, tl.load(order + p + 1, volatile=True) + ANYTHING)
    tl.debug_barrier()
    tl.atomic_add(flags + p, 1, sem="release")


@CASES("cooperative/barrier", "cooperative", each=GRIDS, needs=lambda _: _NEEDS, quick=("x5",))
def programs_meet_at_barriers_of_the_grid(session: Session, grid: tuple[int, ...]) -> None:
    """Blocks that the neighbour stored before a barrier, read behind it, several times."""
    programs, block = int(np.prod(grid)), 64
    x = random_bits(session.rng, "i32", programs * block)
    count, kept, out = (
        np.zeros(1, np.int32),
        np.zeros(_ROUNDS * programs * block, np.int32),
        np.zeros_like(x),
    )
    session.launch(
        hand_on, grid, count, x, kept, out, ROUNDS=_ROUNDS, BLOCK=block, cooperative=True
    )
    expected = x.reshape(programs, block)
    for _ in range(_ROUNDS):
        expected = np.roll(expected, -1, 0) + np.arange(programs, dtype=np.int32)[:, None]
    same_bits(session, out, expected.reshape(-1), f"{programs} programs")
    same_bits(session, count, np.array([_ROUNDS * programs], np.int32), "arrivals")


@CASES("cooperative/chain", "cooperative", each=GRIDS, needs=lambda _: _NEEDS, quick=("x2",))
def programs_wait_for_those_of_higher_numbers(session: Session, grid: tuple[int, ...]) -> None:
    programs = int(np.prod(grid))
    flags, order = np.zeros(programs, np.int32), np.zeros(programs, np.int32)
    session.launch(await_the_next, grid, flags, order, ANYTHING=3, cooperative=True)
    same_bits(session, order, 3 * np.arange(programs, dtype=np.int32)[::-1], f"{programs} programs")
