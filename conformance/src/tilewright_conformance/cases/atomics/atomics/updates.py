"""Atomic updates in the language: what they leave, what they give back, and that none is lost."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.oracles.dtypes import Array, float_type, given, storage
from tilewright_conformance.suite.case import Needs
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.bits import poison, random_bits, same_bits
from tilewright_conformance.testlib.case_table import Table, elements

case = Table("atomics", "atomics")

WIDE = ("i32", "u32", "i64", "u64")
KINDS: dict[str, tuple[str, ...]] = {
    "add": (*WIDE, "f16", "bf16", "f32", "f64"),
    "max": (*WIDE, "f32", "f64"),
    "min": (*WIDE, "f32", "f64"),
    "and": WIDE,
    "or": WIDE,
    "xor": WIDE,
    "xchg": (*WIDE, "f32", "f64"),
}
_EACH = {f"{kind}/{element}": (kind, element) for kind, names in KINDS.items() for element in names}
ORDERS = (None, "acquire", "release", "acq_rel", "relaxed")
SCOPES = (None, "gpu", "cta", "sys")


def atomic(kind: str, element: str, *more: str, tile: int = 1) -> Needs:
    """The needs of a kernel with one kind of update."""
    return elements(element, *more, tile=tile, atomics=frozenset({(element, kind)}))


# ---- what NumPy says


def combine(kind: str, a: Array, b: Array) -> Array:
    """Update an old value ``a`` by ``b``; of floats, -0.0 is below 0.0."""
    if kind == "xchg":
        return b
    if kind in ("min", "max") and a.dtype.kind == "f":
        first = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
        return np.where(first == (kind == "min"), a, b)
    named: dict[str, Any] = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    with np.errstate(over="ignore"):
        return np.asarray(named[kind](a, b))


def whole_numbers(rng: np.random.Generator, element: str, shape: Any) -> Array:
    """Small whole numbers that add up exactly in every order; those of bf16 as float32."""
    low = 0 if element.startswith("u") else -9
    dtype = np.float32 if element == "bf16" else storage(element)
    return rng.integers(low, 9, shape).astype(dtype)


def values(rng: np.random.Generator, kind: str, element: str, shape: Any) -> Array:
    """Values of a type's whole range; floats are whole for additions, without NaN for others."""
    if element[0] in "fb":
        if kind == "add":
            return whole_numbers(rng, element, shape)
        found = rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))
        found[rng.random(shape) < 0.2] = 0.0
        found[rng.random(shape) < 0.1] = -0.0
        found[rng.random(shape) < 0.05] = np.inf
        found[rng.random(shape) < 0.05] = -np.inf
        return found.astype(storage(element))
    return random_bits(rng, element, shape)


def stored(numbers: Array, element: str) -> Array:
    """Numbers as memory holds them.

    Those of bf16, which are exact there, become the upper half of their float32.
    """
    return (numbers.view(np.uint32) >> 16).astype(np.uint16) if element == "bf16" else numbers


# ---- one program


@tw.jit
def update(
    target,
    x,
    old,
    n,
    KIND: tl.constexpr,
    SEM: tl.constexpr,
    SCOPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask)
    if KIND == "add":
        found = tl.atomic_add(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    elif KIND == "max":
        found = tl.atomic_max(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    elif KIND == "min":
        found = tl.atomic_min(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    elif KIND == "and":
        found = tl.atomic_and(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    elif KIND == "or":
        found = tl.atomic_or(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    elif KIND == "xor":
        found = tl.atomic_xor(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    else:
        found = tl.atomic_xchg(target + at, value, mask=mask, sem=SEM, scope=SCOPE)
    tl.store(old + at, found, mask=mask)


_QUICK = (
    "add/i32",
    "add/f32",
    "add/bf16",
    "max/u32",
    "min/f32",
    "max/i64",
    "and/u64",
    "or/i32",
    "xor/i32",
    "xchg/f32",
)


@case("update", "atomic_rmw", each=_EACH, needs=lambda how: atomic(*how, tile=64), quick=_QUICK)
def updates(session: Session, how: tuple[str, str]) -> None:
    """Update each element once.

    The new values are in memory, the old ones are results; masked-off elements stay.
    """
    kind, element = how
    index = list(_EACH.values()).index(how)
    for n in (100, 1, 64):
        target, x = (values(session.rng, kind, element, 128) for _ in range(2))
        expected = target.copy()
        expected[:n] = combine(kind, target[:n], x[:n])
        old, memory = poison(element, 128), stored(target, element).copy()
        before = old.copy()
        before[:n] = memory[:n]
        options = {"KIND": kind, "SEM": ORDERS[index % 5], "SCOPE": SCOPES[index % 4], "BLOCK": 64}
        session.launch(
            update,
            (2,),
            given(memory, element),
            given(stored(x, element), element),
            given(old, element),
            n,
            **options,
        )
        same_bits(session, memory, stored(expected, element), f"{n} new values")
        same_bits(session, old, before, f"{n} old values")


_SEMANTICS = {
    f"{sem or 'default'}-{scope or 'default'}": (sem, scope) for sem in ORDERS for scope in SCOPES
}


@case(
    "semantics",
    "atomic_rmw",
    each=_SEMANTICS,
    needs=atomic("add", "i32", tile=64),
    quick=("default-default", "relaxed-cta", "acquire-sys"),
)
def semantics(session: Session, how: tuple[str | None, str | None]) -> None:
    """Every order and scope."""
    x, target, old = (
        random_bits(session.rng, "i32", 100),
        random_bits(session.rng, "i32", 100),
        np.zeros(100, np.int32),
    )
    before = target.copy()
    session.launch(
        update, (2,), target, x, old, 100, KIND="add", SEM=how[0], SCOPE=how[1], BLOCK=64
    )
    same_bits(session, target, combine("add", before, x))
    same_bits(session, old, before)


@tw.jit
def extreme(x, high, low, n):
    for i in range(n):
        value = tl.load(x + i)
        tl.atomic_max(high, value)
        tl.atomic_min(low, value)


def _range(kinds: tuple[str, ...], element: str) -> Needs:
    return elements(element, atomics=frozenset((element, kind) for kind in kinds))


@case(
    "extremes",
    "atomic_rmw",
    each=(*WIDE, "f32", "f64"),
    needs=lambda element: _range(("max", "min"), element),
    quick=("u32", "f32", "i64"),
)
def extremes(session: Session, element: str) -> None:
    """Scalars: ends of a type's range, top bits set, negative floats, signed zeros, infinities."""
    dtype = storage(element)
    if element[0] == "f":
        lists = [
            [-1.5, -2.5, -0.0],
            [0.0, -0.0],
            [-0.0, 0.0],
            [-np.inf, -1.0],
            [np.inf, 1.0, -3.0],
            [1e-40, -1e-40],
            [-7.0],
            [2.0, 3.0, 1.0],
        ]
    else:
        ends = np.iinfo(dtype)
        lists = [
            [int(ends.min), int(ends.max)],
            [int(ends.max), 0],
            [int(ends.max) // 2, int(ends.max) // 2 + 1],
            [5, 3, 9],
            [1],
        ]
    for numbers in lists:
        x = np.array(numbers).astype(dtype) if element[0] == "f" else np.array(numbers, dtype)
        high, low = x[:1].copy(), x[:1].copy()
        expected = [x[0], x[0]]
        for value in x:
            expected = [
                combine(kind, one, value)
                for kind, one in zip(("max", "min"), expected, strict=True)
            ]
        session.launch(extreme, (1,), x, high, low, len(x))
        same_bits(session, high, np.array([expected[0]], dtype), f"the maximum of {numbers}")
        same_bits(session, low, np.array([expected[1]], dtype), f"the minimum of {numbers}")


@tw.jit
def single(target, old, keep):
    tl.store(old, tl.atomic_add(target, 5))
    tl.store(old + 1, tl.atomic_xchg(target + 1, 7))
    tl.store(old + 2, tl.atomic_add(target, 2))
    tl.atomic_add(target + 2, 9, mask=keep != 0)
    tl.atomic_xchg(target + 3, 9, mask=keep != 0)


@case(
    "scalars",
    "atomic_rmw",
    each=("i32", "u64", "f32"),
    needs=lambda element: _range(("add", "xchg"), element),
    quick=True,
)
def scalars(session: Session, element: str) -> None:
    """Pointers that are no tiles; each update sees the one before; masks."""
    for keep in (0, 3):
        target = session.rng.integers(1, 50, 4).astype(storage(element))
        old, before = np.zeros(3, target.dtype), target.copy()
        session.launch(single, (1,), target, old, keep)
        same_bits(session, old, np.array([before[0], before[1], before[0] + 5]))
        same_bits(
            session,
            target,
            np.array(
                [before[0] + 7, 7, before[2] + 9 * (keep > 0), 9 if keep else before[3]],
                target.dtype,
            ),
        )


@tw.jit
def same_place(target, old, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    zero = at * 0
    tl.store(old + at, tl.atomic_add(target + zero, tl.load(x + at)))


@case(
    "collisions/one",
    "atomic_rmw",
    each=("i32", "u32", "u64"),
    needs=lambda element: atomic("add", element, tile=128),
    quick=("i32", "u64"),
)
def one_place(session: Session, element: str) -> None:
    """Every element of a tile adds to one place; the old values are prefixes in some order."""
    x = (
        np.exp2(np.arange(128) % 16).astype(storage(element))
        + np.arange(128).astype(storage(element)) * 65536
    )
    target, old = np.zeros(1, x.dtype), np.zeros(128, x.dtype)
    session.launch(same_place, (1,), target, old, x, BLOCK=128)
    same_bits(session, target, x.sum(dtype=x.dtype, keepdims=True))
    order = np.argsort(old, kind="stable")
    same_bits(
        session,
        old[order],
        np.concatenate([[0], np.cumsum(x[order], dtype=x.dtype)[:-1]]),
        "old values in the order of the updates",
    )


# ---- many programs


@tw.jit
def count(x, bins, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + at, mask=at < n, other=0), 1, mask=at < n)


@case(
    "many/histogram",
    "atomic_rmw",
    each=("i32", "u32", "i64", "f32"),
    needs=lambda element: atomic("add", element, "i32", tile=128),
    quick=("i32", "f32"),
)
def histogram(session: Session, element: str) -> None:
    """Bins that all programs share."""
    for bins, n in ((7, 5000), (1000, 3001), (1, 4096)):
        x, found = (
            session.rng.integers(0, bins, n).astype(np.int32),
            np.zeros(bins + 1, storage(element)),
        )
        session.launch(count, (-(-n // 128),), x, found, n, BLOCK=128)
        same_bits(
            session, found, np.bincount(x, minlength=bins + 1).astype(found.dtype), f"{bins} bins"
        )


@tw.jit
def contend(target, x, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    if KIND == "add":
        tl.atomic_add(target + at, value)
    elif KIND == "max":
        tl.atomic_max(target + at, value)
    elif KIND == "min":
        tl.atomic_min(target + at, value)
    elif KIND == "and":
        tl.atomic_and(target + at, value)
    elif KIND == "or":
        tl.atomic_or(target + at, value)
    else:
        tl.atomic_xor(target + at, value)


_SHARED = {name: how for name, how in _EACH.items() if how[0] != "xchg"}


@case(
    "many/shared",
    "atomic_rmw",
    each=_SHARED,
    needs=lambda how: atomic(*how, tile=16),
    quick=("add/i64", "add/f16", "xor/u32", "min/u32"),
)
def shared(session: Session, how: tuple[str, str]) -> None:
    """Many programs update the same few elements: no update is lost."""
    kind, element = how
    programs = 8 if element in ("f16", "bf16") else 300
    start, x = (
        values(session.rng, kind, element, 16),
        values(session.rng, kind, element, (programs, 16)),
    )
    if kind in ("and", "or"):  # few bits each, so that the result depends on every one
        one = np.left_shift(
            np.ones_like(x), session.rng.integers(0, 8 * x.itemsize, x.shape).astype(x.dtype)
        )
        x, start = (
            (~one, np.full_like(start, ~start.dtype.type(0)))
            if kind == "and"
            else (one, np.zeros_like(start))
        )
    expected = start
    for row in x:
        expected = combine(kind, expected, row)
    memory = stored(start, element).copy()
    session.launch(
        contend,
        (programs,),
        given(memory, element),
        given(stored(x, element), element),
        KIND=kind,
        BLOCK=16,
    )
    same_bits(session, memory, stored(expected.astype(x.dtype), element))


@tw.jit
def tickets(counter, taken):
    ticket = tl.atomic_add(counter, 1)
    tl.store(taken + ticket, tl.program_id(0) + 1)


@case(
    "many/tickets",
    "atomic_rmw",
    each=("i32", "i64"),
    needs=lambda element: atomic("add", element, "i32"),
    quick=True,
)
def tickets_drawn(session: Session, element: str) -> None:
    """Each program draws a number that no other draws."""
    counter, taken = np.zeros(1, storage(element)), np.zeros(1024, np.int32)
    session.launch(tickets, (1000,), counter, taken)
    session.check(counter, np.array([1000], counter.dtype))
    session.check(
        np.sort(taken[:1000]), np.arange(1, 1001, dtype=np.int32), name="programs by ticket"
    )
    session.check(taken[1000:], np.zeros(24, np.int32), name="tickets that were not drawn")


@tw.jit
def pass_on(place, found, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mine = tl.program_id(0) * BLOCK + at + 1
    tl.store(found + mine - 1, tl.atomic_xchg(place + at, mine))


@case(
    "many/exchange",
    "atomic_rmw",
    each=("i32", "u64"),
    needs=lambda element: atomic("xchg", element, "i32", tile=16),
    quick=("i32",),
)
def exchanged(session: Session, element: str) -> None:
    """Each value that is put in comes out once: to another program, or it is there at the end."""
    place, found = np.zeros(16, storage(element)), np.zeros((200, 16), storage(element))
    session.launch(pass_on, (200,), place, found, BLOCK=16)
    all_ = np.sort(np.concatenate([found, place[None]]), axis=0)
    mine = np.arange(200)[:, None] * 16 + np.arange(16) + 1
    session.check(all_, np.concatenate([np.zeros((1, 16), mine.dtype), mine]).astype(place.dtype))


@tw.jit
def partial_totals(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0), 0))


@case(
    "many/sum",
    "atomic_rmw",
    each=("f32", "i32", "f64"),
    needs=lambda element: atomic("add", element, tile=256),
    quick=("f32",),
)
def totals(session: Session, element: str) -> None:
    """A sum over all programs; of floats within the bound of a sum in any order."""
    n = 10000
    x = (
        session.rng.standard_normal(n).astype(storage(element))
        if element[0] == "f"
        else random_bits(session.rng, element, n)
    )
    total = np.zeros(1, x.dtype)
    session.launch(partial_totals, (-(-n // 256),), x, total, n, BLOCK=256)
    if element[0] == "f":
        wide = x.astype(np.longdouble)
        session.check(
            total,
            wide.sum(keepdims=True),
            atol=float(n * np.finfo(x.dtype).eps / 2 * np.abs(wide).sum()),
        )
    else:
        same_bits(session, total, x.sum(dtype=x.dtype, keepdims=True))


@tw.jit
def reduce_half(x, total, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(total + at, tl.load(x + tl.program_id(0) * BLOCK + at))


@case(
    "many/rounding",
    "atomic_rmw",
    each=("f16", "bf16", "f32"),
    needs=lambda element: atomic("add", element, tile=32),
    quick=("f16",),
)
def roundings(session: Session, element: str) -> None:
    """Float additions that round, within the bound of so many roundings in any order."""
    programs, digits = 20, float_type(element).mantissa + 1
    x = session.rng.standard_normal((programs, 32)).astype(np.float32)
    if element == "bf16":
        x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    held = stored(x, element) if element == "bf16" else x.astype(storage(element))
    exact = x.astype(np.float64) if element == "bf16" else held.astype(np.float64)
    total = np.zeros(32, storage(element))
    session.launch(reduce_half, (programs,), given(held, element), given(total, element), BLOCK=32)
    session.check(
        total, exact.sum(0), atol=programs * 2.0**-digits * np.abs(exact).sum(0), type_=element
    )
