"""Random numbers: Philox bit by bit against Python integers, and the numbers from its words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright_conformance.oracles.philox import normal, philox, uniform, words
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

Array = NDArray[Any]

#: counter, key, words: from the known-answer tests that the authors of the generator publish.
_KNOWN = (
    ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
_SEEDS = (0, 42, -1, 2**31 - 1, (0xDEAD << 32) + 0xBEEF, -(2**63), 2**63 - 1)
_OFFSETS = (0, 1000, -8, 2**31 - 300, 2**40 + 7, -(2**62))
_TABLE = Table("random", "math", "Philox in Python's integers")
_BLOCK = 256
#: what every function of a seed uses: the key is cut out of 64 bits
_WORDS = ("u32", "u64")


def cases() -> Iterator[Case]:
    yield _case(
        "philox_impl/u32/known",
        "philox_impl",
        _known,
        "u32",
        quick=True,
        tile=1,
        source="the authors' test vectors",
    )
    for bits in (32, 64):
        for rounds in (1, 6, 10):
            body = functools.partial(_blocks, bits, rounds)
            yield _case(
                f"philox_impl/u{bits}/rounds-{rounds}",
                "philox_impl",
                body,
                f"u{bits}",
                quick=rounds == 10,
            )
    yield _case(
        "philox_impl/u64/numpy",
        "philox_impl",
        _as_numpy,
        "u64",
        quick=True,
        tile=1,
        source="NumPy's generator",
    )
    for name in ("int32", "uint32", "int64", "uint64"):
        type_ = name.replace("uint", "u").replace("int", "i")
        body = functools.partial(_counters, name)
        yield _case(
            f"philox/{type_}/counters",
            "philox",
            body,
            type_,
            type_.replace("i", "u"),
            "u64",
            quick=name == "int32",
        )
    yield _case(
        "philox/i16/refused", "philox", _narrow_counters, tile=1, quick=True, source="the language"
    )
    for rounds in (10, 7, 4):
        yield _case(
            f"randint4x/u32/rounds-{rounds}",
            "randint4x",
            functools.partial(_seeds_and_offsets, rounds),
            *_WORDS,
            quick=rounds == 10,
        )
    for function in ("randint", "rand"):
        yield _case(
            f"{function}/u32/tile",
            function,
            functools.partial(_tile, function),
            *_WORDS,
            *(("f32",) if function == "rand" else ()),
            quick=True,
        )
    for name in ("int32", "uint32", "int64", "uint64"):
        type_ = name.replace("uint", "u").replace("int", "i")
        yield _case(
            f"uniform/{type_}/edges",
            "uint_to_uniform_float",
            functools.partial(_edges, name),
            type_,
            "f32",
            quick=name == "int64",
            tile=512,
        )
    yield _case("floats/f32/rand4x", "rand4x", _four_uniform, *_WORDS, "f32", quick=True)
    yield _case(
        "floats/f32/randn",
        "randn",
        functools.partial(_normal, False),
        *_WORDS,
        "f32",
        quick=True,
        source="double precision",
    )
    yield _case(
        "floats/f32/randn4x",
        "randn4x",
        functools.partial(_normal, True),
        *_WORDS,
        "f32",
        source="double precision",
    )
    yield _case(
        "floats/f32/pair", "pair_uniform_to_normal", _pair, "f32", source="double precision"
    )
    yield _case("seeds/u32/constant", "randint", _constant_seed, *_WORDS, tile=16)
    yield _case("seeds/u32/loaded", "randint", _loaded_seed, *_WORDS, tile=16, quick=True)
    yield _case("programs/u32/dropout", "rand", _dropout, *_WORDS, "f32", tile=128)


def _case(
    id_: str,
    function: str,
    body: Callable[[Session], None],
    *types: str,
    quick: bool = False,
    tile: int = _BLOCK,
    source: str = "",
) -> Case:
    return _TABLE.case(id_, f"tl.{function}", body, *types, tile=tile, quick=quick, source=source)


# ---- words


@tw.jit
def blocks(counter_ptr, key_ptr, out_ptr, N, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < N
    c0 = tl.load(counter_ptr + at, mask=mask, other=0)
    c1 = tl.load(counter_ptr + N + at, mask=mask, other=0)
    c2 = tl.load(counter_ptr + 2 * N + at, mask=mask, other=0)
    c3 = tl.load(counter_ptr + 3 * N + at, mask=mask, other=0)
    r0, r1, r2, r3 = tl.philox_impl(c0, c1, c2, c3, tl.load(key_ptr), tl.load(key_ptr + 1), ROUNDS)
    tl.store(out_ptr + at, r0, mask=mask)
    tl.store(out_ptr + N + at, r1, mask=mask)
    tl.store(out_ptr + 2 * N + at, r2, mask=mask)
    tl.store(out_ptr + 3 * N + at, r3, mask=mask)


def _launch_blocks(session: Session, counter: Array, key: tuple[int, int], rounds: int) -> Array:
    count = counter.shape[1]
    out = np.zeros_like(counter)
    block = 1 if count == 1 else _BLOCK
    session.launch(
        blocks, (1,), counter, np.array(key, counter.dtype), out, count, ROUNDS=rounds, BLOCK=block
    )
    return out


def _known(session: Session) -> None:
    for counter, key, expected in _KNOWN:
        session.check(
            philox(counter, key).ravel(), np.array(expected, np.uint32), name="the oracle itself"
        )
        found = _launch_blocks(session, np.array(counter, np.uint32)[:, None], key, 10)
        session.check(found.ravel(), np.array(expected, np.uint32))


def _blocks(bits: int, rounds: int, session: Session) -> None:
    dtype = np.dtype(f"u{bits // 8}")
    counter = session.rng.integers(0, 1 << bits, (4, 201), dtype=dtype)
    counter[:, :2] = [[0, (1 << bits) - 1]] * 4
    key = tuple(int(word) for word in session.rng.integers(0, 1 << bits, 2, dtype=dtype))
    found = _launch_blocks(session, counter, (key[0], key[1]), rounds)
    session.check(found, philox(tuple(counter), (key[0], key[1]), bits, rounds))


def _as_numpy(session: Session) -> None:
    """NumPy's generator takes the counter one on before it draws."""
    for _ in range(3):
        counter, key = (
            session.rng.integers(0, 2**64, 4, dtype=np.uint64),
            [int(word) for word in session.rng.integers(0, 2**64, 2, dtype=np.uint64)],
        )
        start = (sum(int(word) << 64 * place for place, word in enumerate(counter)) - 1) % (
            1 << 256
        )
        generator = np.random.Philox(counter=start, key=key[0] | key[1] << 64)
        found = _launch_blocks(session, counter[:, None], (key[0], key[1]), 10)
        session.check(found.ravel(), generator.random_raw(4))


@tw.jit
def four_words(seed, counter_ptr, out_ptr, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < N
    c0 = tl.load(counter_ptr + at, mask=mask, other=0)
    c1 = tl.load(counter_ptr + N + at, mask=mask, other=0)
    r0, r1, r2, r3 = tl.philox(seed, c0, c1, c1, c0)
    tl.store(out_ptr + at, r0, mask=mask)
    tl.store(out_ptr + N + at, r1, mask=mask)
    tl.store(out_ptr + 2 * N + at, r2, mask=mask)
    tl.store(out_ptr + 3 * N + at, r3, mask=mask)


def _counters(name: str, session: Session) -> None:
    """Words are unsigned for all counters; the seed of 64-bit words is the key's first word."""
    limits = np.iinfo(name)
    word = np.dtype(f"u{limits.bits // 8}")
    counter = session.rng.integers(limits.min, limits.max, (2, 200), dtype=name, endpoint=True)
    first, second = counter.view(word)
    for seed in _SEEDS[:5]:
        found = np.zeros((4, 200), word)
        session.launch(four_words, (1,), seed, counter, found, 200, BLOCK=_BLOCK)
        key = (
            (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
            if limits.bits == 32
            else (seed & (1 << 64) - 1, 0)
        )
        session.check(
            found, philox((first, second, second, first), key, limits.bits), name=f"seed {seed}"
        )


@tw.jit
def narrow(x):
    tl.philox(1, tl.load(x), 0, 0, 0)


def _narrow_counters(session: Session) -> None:
    with session.raises(
        CompilationError, match="philox works on 32 or 64-bit counters|not supported"
    ):
        session.launch(narrow, (1,), np.zeros(1, np.int16))


@tw.jit
def drawn(out_ptr, seed, offset, ROUNDS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, offset + at, ROUNDS)
    tl.static_assert(a.dtype == tl.uint32)
    tl.store(out_ptr + at, a)
    tl.store(out_ptr + N + at, b)
    tl.store(out_ptr + 2 * N + at, c)
    tl.store(out_ptr + 3 * N + at, d)


def _seeds_and_offsets(rounds: int, session: Session) -> None:
    """All 64 bits of a seed count, and those of 64-bit offsets; 32-bit offsets wrap around."""
    pairs = [(seed, offset) for seed in _SEEDS for offset in _OFFSETS]
    chosen = session.rng.permutation(len(pairs))[:14]
    for index in (0, *chosen):
        seed, offset = pairs[index]
        found = np.zeros((4, _BLOCK), np.uint32)
        session.launch(drawn, (1,), found, seed, offset, ROUNDS=rounds, N=_BLOCK)
        wide = not -(2**31) <= offset < 2**31
        at = np.arange(_BLOCK, dtype=np.int64) + offset
        session.check(
            found,
            words(seed, at if wide else at.astype(np.int32), rounds),
            name=f"seed {seed}, offset {offset}",
        )


@tw.jit
def tile(out_ptr, seed, FUNCTION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = (
        tl.program_id(0) * ROWS * COLUMNS
        + tl.arange(0, ROWS)[:, None] * COLUMNS
        + tl.arange(0, COLUMNS)[None, :]
    )
    tl.store(out_ptr + at, FUNCTION(seed, at))


def _tile(function: str, session: Session) -> None:
    """Offsets of two axes, over several programs."""
    found = np.zeros((12, 64), np.uint32 if function == "randint" else np.float32)
    session.launch(tile, (3,), found, 1234, FUNCTION=getattr(tl, function), ROWS=4, COLUMNS=64)
    first = words(1234, np.arange(found.size, dtype=np.int32))[0].reshape(found.shape)
    session.check(found, first if function == "randint" else uniform(first))


# ---- floats


@tw.jit
def as_uniform(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(
        out_ptr + at,
        tl.uint_to_uniform_float(tl.load(x_ptr + at, mask=at < n, other=0)),
        mask=at < n,
    )


def _edges(name: str, session: Session) -> None:
    """The ends of the range, where one might be reached, and any bits."""
    bits = np.iinfo(name).bits
    half = 1 << (bits - 1)
    few = [0, 1, 2, 3, half - 1, half, half + 1, 2 * half - 1, 2 * half - 2, half - 64, half + 63]
    word = np.dtype(f"u{bits // 8}")
    x = np.concatenate([np.array(few, word), session.rng.integers(0, 2 * half, 400, dtype=word)])
    found = np.full(len(x), -1, np.float32)
    session.launch(as_uniform, (1,), x.view(name), found, len(x), BLOCK=512)
    session.check(found, uniform(x))
    session.require(
        (found >= 0).all() and (found < 1).all(), "uniform numbers are at least 0 and below 1"
    )


@tw.jit
def four_floats(out_ptr, seed, FUNCTION: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c, d = FUNCTION(seed, at)
    tl.store(out_ptr + at, a)
    tl.store(out_ptr + N + at, b)
    tl.store(out_ptr + 2 * N + at, c)
    tl.store(out_ptr + 3 * N + at, d)


def _four_uniform(session: Session) -> None:
    for seed in (7, -3, 2**40 + 1):
        found = np.zeros((4, _BLOCK), np.float32)
        session.launch(four_floats, (1,), found, seed, FUNCTION=tl.rand4x, N=_BLOCK)
        session.check(
            found, uniform(words(seed, np.arange(_BLOCK, dtype=np.int32))), name=f"seed {seed}"
        )


def _error_of_normal(radius: Array) -> Array:
    """Error bound of the fp32 steps, relative to the length.

    The steps are the logarithm, the root, and the rounded angle of up to 2 pi under a sine.
    """
    return np.asarray(radius * 1e-6)


def _normal(four: bool, session: Session) -> None:
    for seed in (11, -(2**40)):
        u = uniform(words(seed, np.arange(_BLOCK, dtype=np.int32)))
        first, second, radius = normal(u[0], u[1])
        if four:
            found = np.zeros((4, _BLOCK), np.float32)
            session.launch(
                four_floats, (1,), found, seed, FUNCTION=tl.randn4x, N=_BLOCK, **session.strict
            )
            third, fourth, other = normal(u[2], u[3])
            expected, radii = (
                np.stack([first, second, third, fourth]),
                np.stack([radius, radius, other, other]),
            )
        else:
            found = np.zeros((4, 64), np.float32)
            session.launch(
                tile, (1,), found, seed, FUNCTION=tl.randn, ROWS=4, COLUMNS=64, **session.strict
            )
            expected, radii = first.reshape(4, 64), radius.reshape(4, 64)
        session.check(
            found, expected, atol=_error_of_normal(radii), zero_sign=False, name=f"seed {seed}"
        )


@tw.jit
def pairs(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    first, second = tl.pair_uniform_to_normal(tl.load(x_ptr + at), tl.load(y_ptr + at))
    tl.store(out_ptr + at, first)
    tl.store(out_ptr + N + at, second)


def _pair(session: Session) -> None:
    """0, and what is so small that it counts as 1e-7, among others."""
    x, y = (session.rng.random(_BLOCK, np.float32) for _ in range(2))
    x[:4], y[:4] = [0.0, 1e-8, 0.99999994, 1e-7], [0.0, 0.25, 0.5, 0.99999994]
    found = np.zeros((2, _BLOCK), np.float32)
    session.launch(pairs, (1,), x, y, found, N=_BLOCK, **session.strict)
    first, second, radius = normal(x, y)
    session.check(
        found,
        np.stack([first, second]),
        atol=_error_of_normal(np.stack([radius, radius])),
        zero_sign=False,
    )


# ---- seeds


@tw.jit
def of_constant(out_ptr, SEED: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(out_ptr + at, tl.randint(SEED, at))


def _constant_seed(session: Session) -> None:
    for seed in (5, (7 << 32) + 5, -9):
        found = np.zeros(16, np.uint32)
        session.launch(of_constant, (1,), found, SEED=seed)
        session.check(found, words(seed, np.arange(16, dtype=np.int32))[0], name=f"seed {seed}")


@tw.jit
def of_loaded(out_ptr, seed_ptr):
    at = tl.arange(0, 16)
    tl.store(
        out_ptr + tl.program_id(0) * 16 + at, tl.randint(tl.load(seed_ptr + tl.program_id(0)), at)
    )


def _loaded_seed(session: Session) -> None:
    """Seeds out of memory, of 64 bits and of 32: a negative one is widened with its sign."""
    for seeds in (
        np.array([3, -1, 2**40, -(2**50)], np.int64),
        np.array([3, -1, 77, -(2**31)], np.int32),
    ):
        found = np.zeros((4, 16), np.uint32)
        session.launch(of_loaded, (4,), found, seeds)
        session.check(
            found,
            np.stack([words(int(seed), np.arange(16, dtype=np.int32))[0] for seed in seeds]),
            name=str(seeds.dtype),
        )


@tw.jit
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    keep = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(keep, x * 2.0, 0.0), mask=at < n)


def _dropout(session: Session) -> None:
    """The same elements stay in every run, whatever the program that has them."""
    x = session.rng.standard_normal(1000).astype(np.float32)
    for seed in (123, 124):
        found = np.full_like(x, 77)
        session.launch(dropout, (8,), x, found, len(x), 0.5, seed, BLOCK=128)
        keep = uniform(words(seed, np.arange(1000, dtype=np.int32))[0]) > np.float32(0.5)
        session.check(found, np.where(keep, x * 2, 0).astype(np.float32))
