"""Compare and swap, locks, atomic loads and stores, and messages between programs."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import PORTABLE, given, storage
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("atomics", "atomics")

ORDERS = (None, "acquire", "release", "acq_rel", "relaxed")
_SWAPPED = ("i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64")


def _cas(element: str, *more: str, kinds: tuple[str, ...] = (), tile: int = 1) -> Needs:
    return elements(
        element, *more, tile=tile, atomics=frozenset((element, kind) for kind in ("cas", *kinds))
    )


# ---- compare and swap


@tw.jit
def swap(target, compare, value, old, SEM: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.atomic_cas(
        target + at, tl.load(compare + at), tl.load(value + at), sem=SEM, scope=SCOPE
    )
    tl.store(old + at, found)


@case(
    "cas/values",
    "atomic_cas",
    each=_SWAPPED,
    needs=lambda element: _cas(element, tile=32),
    quick=("u16", "i32", "u64", "f32"),
)
def swaps(session: Session, element: str) -> None:
    """Swap exactly where the bits agree; the old values come back."""
    index = _SWAPPED.index(element)
    target, compare, value = (random_bits(session.rng, element, 64) for _ in range(3))
    same = session.rng.random(64) < 0.5
    compare[same] = target[same]
    close = ~same & (session.rng.random(64) < 0.5)  # one bit apart
    bits = compare.view(f"u{compare.itemsize}")
    bits[close] = (
        target.view(bits.dtype)[close]
        ^ np.left_shift(
            np.ones(64, bits.dtype),
            session.rng.integers(0, 8 * bits.itemsize, 64).astype(bits.dtype),
        )[close]
    )
    before, old = target.copy(), poison(element, 64)
    agree = before.view(bits.dtype) == bits
    expected = np.where(agree, value.view(bits.dtype), before.view(bits.dtype)).view(target.dtype)
    arrays = [given(array, element) for array in (target, compare, value, old)]
    session.launch(
        swap,
        (2,),
        *arrays,
        SEM=ORDERS[index % 5],
        SCOPE=(None, "gpu", "cta", "sys")[index % 4],
        BLOCK=32,
    )
    same_bits(session, target, expected, "new values")
    same_bits(session, old, before, "old values")


@case(
    "cas/order",
    "atomic_cas",
    each={sem or "default": sem for sem in ORDERS},
    needs=_cas("i32", tile=32),
    quick=("acquire",),
)
def swaps_in_order(session: Session, sem: str | None) -> None:
    for scope in ("gpu", "cta", "sys"):
        target, compare = (session.rng.integers(0, 3, 64).astype(np.int32) for _ in range(2))
        value, old, before = (
            random_bits(session.rng, "i32", 64),
            np.zeros(64, np.int32),
            target.copy(),
        )
        session.launch(swap, (2,), target, compare, value, old, SEM=sem, SCOPE=scope, BLOCK=32)
        same_bits(session, old, before)
        same_bits(session, target, np.where(before == compare, value, before), scope)


@case(
    "cas/floats",
    "atomic_cas",
    each=("f32", "f64"),
    needs=lambda element: _cas(element, tile=4),
    quick=("f32",),
)
def bits_decide(session: Session, element: str) -> None:
    """Bits are compared, not numbers: 0.0 is not -0.0, and a NaN is itself."""
    dtype = storage(element)
    target, compare = (
        np.array([0.0, -0.0, np.nan, 1.0], dtype),
        np.array([-0.0, -0.0, np.nan, np.nan], dtype),
    )
    value, old, before = np.array([5, 6, 7, 8], dtype), np.zeros(4, dtype), target.copy()
    session.launch(swap, (1,), target, compare, value, old, SEM=None, SCOPE=None, BLOCK=4)
    same_bits(session, target, np.array([0.0, 6, 7, 1.0], dtype))
    same_bits(session, old, before)


@tw.jit
def single_swap(target, old):
    tl.store(old, tl.atomic_cas(target, 4, 9))
    tl.store(old + 1, tl.atomic_cas(target, 4, 5))
    tl.store(old + 2, tl.atomic_cas(target, 9, 1))


@case(
    "cas/scalars",
    "atomic_cas",
    each=("i32", "u64"),
    needs=lambda element: _cas(element),
    quick=True,
)
def scalar_swaps(session: Session, element: str) -> None:
    """One after the other, each sees what the one before has left."""
    for start, olds, end in ((4, (4, 9, 9), 1), (6, (6, 6, 6), 6), (9, (9, 9, 9), 1)):
        target, old = np.array([start, 77], storage(element)), np.zeros(3, storage(element))
        session.launch(single_swap, (1,), target, old)
        session.check(old, np.array(olds, old.dtype), name=f"old values from {start} on")
        session.check(target, np.array([end, 77], target.dtype))


@tw.jit
def claim(owners, winners, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mine = at * 0 + tl.program_id(0) + 1
    found = tl.atomic_cas(owners + at, at * 0, mine)
    tl.store(winners + tl.program_id(0) * BLOCK + at, (found == 0).to(tl.int32))


@case("cas/claims", "atomic_cas", needs=_cas("i32", tile=32), quick=True)
def one_winner(session: Session) -> None:
    """Of many programs one gets each place."""
    owners, winners = np.zeros(32, np.int32), np.zeros((100, 32), np.int32)
    session.launch(claim, (100,), owners, winners, BLOCK=32)
    session.check(winners.sum(0), np.ones(32, winners.sum(0).dtype), name="winners of each place")
    session.check(owners, (np.argmax(winners, 0) + 1).astype(np.int32), name="owners")


@tw.jit
def locked(data, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.debug_barrier()
    at = tl.arange(0, BLOCK)
    tl.store(data + at, tl.load(data + at) * 3 + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@case("lock", "atomic_cas", needs=_cas("i32", kinds=("xchg",), tile=128), quick=True)
def a_lock(session: Session) -> None:
    """One program at a time changes data that all share."""
    data, lock = np.zeros(128, np.int32), np.zeros(1, np.int32)
    session.launch(locked, (18,), data, lock, BLOCK=128)
    session.check(data, np.full(128, (3**18 - 1) // 2, np.int32))
    session.check(lock, np.zeros(1, np.int32))


@tw.jit
def cas_sum(target, x):
    value = tl.load(x + tl.program_id(0))
    old = tl.load(target)
    found = tl.atomic_cas(target, old, old + value)
    while found != old:
        old = found
        found = tl.atomic_cas(target, old, old + value)


@case(
    "cas/loop",
    "atomic_cas",
    each=("i32", "u64"),
    needs=lambda element: _cas(element),
    quick=("i32",),
)
def updates_by_swaps(session: Session, element: str) -> None:
    """An update made of a load and swaps until one succeeds."""
    x, target = random_bits(session.rng, element, 200), np.zeros(1, storage(element))
    session.launch(cas_sum, (200,), target, x)
    same_bits(session, target, x.sum(dtype=x.dtype, keepdims=True))


# ---- after an update


@tw.jit
def read_back(target, x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(target + at, tl.load(x + at))
    tl.debug_barrier()
    tl.store(out + at, tl.load(target + BLOCK - 1 - at))


@case(
    "order/after-update",
    "atomic_rmw",
    needs=elements("i32", tile=128, atomics=frozenset({("i32", "add")})),
    quick=True,
)
def loads_after_updates(session: Session) -> None:
    """A load behind a barrier sees the updates before it."""
    x, target, out = (
        random_bits(session.rng, "i32", 128),
        random_bits(session.rng, "i32", 128),
        np.zeros(128, np.int32),
    )
    expected = target + x
    session.launch(read_back, (1,), target, x, out, BLOCK=128)
    same_bits(session, out, expected[::-1])


@tw.jit
def last_adds_up(x, parts, counter, total, programs, BLOCK: tl.constexpr, MOST: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(parts + pid, tl.sum(tl.load(x + pid * BLOCK + at), 0))
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1:
        lanes = tl.arange(0, MOST)
        tl.debug_barrier()
        tl.store(
            total, tl.sum(tl.load(parts + lanes, mask=lanes < programs, other=0, volatile=True), 0)
        )


@case(
    "order/last-program",
    "atomic_rmw",
    needs=elements("i32", tile=128, atomics=frozenset({("i32", "add")})),
    quick=True,
)
def the_last_program(session: Session) -> None:
    """The program that arrives last sees what all others stored before they arrived."""
    for programs in (1, 7, 100):
        x = random_bits(session.rng, "i32", programs * 64)
        parts, counter, total = (
            np.zeros(programs, np.int32),
            np.zeros(1, np.int32),
            np.zeros(1, np.int32),
        )
        session.launch(
            last_adds_up, (programs,), x, parts, counter, total, programs, BLOCK=64, MOST=128
        )
        same_bits(session, total, x.sum(dtype=np.int32, keepdims=True), f"{programs} programs")


# ---- loads and stores


@tw.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.atomic_load(x + at, mask=at < n)
    tl.static_assert(value.dtype == x.dtype.element_ty)
    tl.atomic_store(out + at, value, mask=at < n)
    tl.atomic_store(
        out + BLOCK, tl.atomic_load(x, sem="relaxed", scope="sys"), sem="relaxed", scope="cta"
    )
    tl.atomic_store(out + BLOCK + 1, tl.atomic_load(x + 1, scope="gpu"), scope="sys")


@case(
    "elements",
    "atomic_load",
    each=(*PORTABLE, "f64"),
    needs=lambda element: elements(element, tile=64),
    quick=("i1", "i8", "f16", "i64"),
)
def whole_elements(session: Session, element: str) -> None:
    """Elements of every type, read and written as one."""
    for n in (61, 64, 1):
        x, out = random_bits(session.rng, element, 64), poison(element, 66)
        expected = np.concatenate([x[:n], out[n:64], x[:2]])
        session.launch(copy, (1,), given(x, element), given(out, element), n, BLOCK=64)
        same_bits(session, out, expected, f"{n} elements")


@tw.jit
def poll(flags, seen, TIMEOUT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    found = tl.atomic_poll(flags + at, at + 1, timeout_ns=TIMEOUT)
    tl.static_assert(found.dtype == tl.int1)
    tl.store(seen + at, found.to(tl.int32))
    tl.store(seen + BLOCK, tl.atomic_poll(flags, 1, sem="relaxed", scope="sys").to(tl.int32))
    tl.store(seen + BLOCK + 1, tl.atomic_poll(flags + 1, -7, timeout_ns=1000).to(tl.int32))


@case(
    "poll/time",
    "atomic_poll",
    each={"at-once": 0, "waiting": 200_000},
    needs=elements("i32", "u64", tile=16, features={"clock"}),
    quick=True,
)
def polls_end(session: Session, timeout: int) -> None:
    """Waiting ends with the value, or with the time."""
    flags, seen = np.arange(1, 17, dtype=np.int32), np.full(18, -1, np.int32)
    flags[3::4] = 99
    session.launch(poll, (1,), flags, seen, TIMEOUT=timeout, BLOCK=16)
    session.check(seen, np.array([*(flags == np.arange(1, 17)), 1, 0], np.int32))


@tw.jit
def message(flag, data, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(data + at, at * 3 + 1)
        tl.debug_barrier()
        tl.atomic_store(flag, 1)
    else:
        seen = tl.atomic_poll(flag, 1)
        tl.debug_barrier()
        tl.store(out + pid * BLOCK + at, tl.load(data + at) * seen.to(tl.int32))


@case("poll/message", "atomic_poll", needs=elements("i32", "u64", tile=64), quick=True)
def messages(session: Session) -> None:
    """A load after an acquire sees the stores before the release.

    Program 0 starts no later than the others, which wait for it.
    """
    flag, data, out = np.zeros(1, np.int32), np.zeros(64, np.int32), np.zeros((4, 64), np.int32)
    session.launch(message, (4,), flag, data, out, BLOCK=64)
    session.check(out[1:], np.broadcast_to(np.arange(64) * 3 + 1, (3, 64)).astype(np.int32))
    session.check(flag, np.ones(1, np.int32))
