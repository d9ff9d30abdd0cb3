"""Device library functions of the bits of integers, and reinterpretations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright_conformance.cases.math.libdevice.exact_row import INF, Array, Row
from tilewright_conformance.oracles.dtypes import storage
from tilewright_conformance.testlib.math_values import any_bits


def integer_bits() -> Iterator[Row]:
    """Rows of functions of the bits of integers."""
    for type_ in ("i32", "u32", "i64", "u64"):
        bits, dtype = int(type_[1:]), storage(type_)
        own = lambda values, d=dtype, b=bits: np.array(  # noqa: E731
            [int(v) % (1 << b) for v in values], f"u{b // 8}"
        ).view(d)
        plain = lambda x, b=bits: [int(v) % (1 << b) for v in x]  # noqa: E731
        unsigned = (f"u{bits}",)
        yield Row(
            "clz",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, b=bits, p=plain: np.array([b - v.bit_length() for v in p(x)], np.int32),
        )
        yield Row(
            "popc",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, p=plain: np.array([v.bit_count() for v in p(x)], np.int32),
        )
        yield Row(
            "ffs",
            (type_,),
            "i32",
            _words(type_, 1),
            lambda x, p=plain: np.array([(v & -v).bit_length() for v in p(x)], np.int32),
        )
        yield Row(
            "brev",
            (type_,),
            type_,
            _words(type_, 1),
            lambda x, b=bits, p=plain, o=own: o([int(f"{v:0{b}b}"[::-1], 2) for v in p(x)]),
            unsigned,
        )
        high = lambda x, y, b=bits, o=own: o(  # noqa: E731
            [(int(p) * int(q)) >> b for p, q in zip(x, y, strict=True)]
        )
        yield Row("mulhi", (type_,) * 2, type_, _words(type_, 2), high)
        if bits == 32:
            yield Row(
                "byte_perm",
                (type_,) * 3,
                type_,
                _words(type_, 3),
                lambda x, y, s, p=plain, o=own: o(_chosen(p(x), p(y), p(s))),
                ("u32", "u64"),
            )
            yield Row(
                "hadd",
                (type_,) * 2,
                type_,
                _words(type_, 2),
                lambda x, y, o=own: o([(int(p) + int(q)) >> 1 for p, q in zip(x, y, strict=True)]),
            )
            yield Row(
                "rhadd",
                (type_,) * 2,
                type_,
                _words(type_, 2),
                lambda x, y, o=own: o(
                    [(int(p) + int(q) + 1) >> 1 for p, q in zip(x, y, strict=True)]
                ),
            )
            difference = lambda x, y, z, o=own: o(  # noqa: E731
                [abs(int(p) - int(q)) + int(r) for p, q, r in zip(x, y, z, strict=True)]
            )
            yield Row("sad", (type_,) * 3, type_, _words(type_, 3), difference)
            low = lambda x, y, o=own, t=type_: o(  # noqa: E731
                [_low(p, t) * _low(q, t) for p, q in zip(x, y, strict=True)]
            )
            yield Row("mul24", (type_,) * 2, type_, _words(type_, 2), low)


def _words(type_: str, count: int) -> Callable[[np.random.Generator], list[Array]]:
    """Words of any bits, of few, and the ends of the range in pairs."""
    bits = int(type_[1:])
    few = [
        0,
        1,
        2,
        3,
        (1 << bits) - 1,
        1 << (bits - 1),
        (1 << (bits - 1)) - 1,
        0x800000,
        0x7FFFFF,
        0xFFFFFF,
    ]

    def make(rng: np.random.Generator) -> list[Array]:
        many = [
            rng.integers(0, 1 << bits, 200, dtype=f"u{bits // 8}")
            >> rng.integers(0, bits, 200).astype(f"u{bits // 8}")
            for _ in range(count)
        ]
        ends = np.array([few[i] for i in range(len(few)) for _ in range(len(few))], f"u{bits // 8}")
        sides = [ends, np.tile(np.array(few, ends.dtype), len(few)), rng.permutation(ends)]
        return [
            np.concatenate(parts).view(storage(type_)) for parts in zip(many, sides, strict=False)
        ]

    return make


def _chosen(x: list[int], y: list[int], selectors: list[int]) -> list[int]:
    """Of the eight bytes of y:x, those that the low nibbles' three bits choose."""
    pools = [(b << 32 | a).to_bytes(8, "little") for a, b in zip(x, y, strict=True)]
    return [
        int.from_bytes(bytes(pool[s >> 4 * i & 7] for i in range(4)), "little")
        for pool, s in zip(pools, selectors, strict=True)
    ]


def _low(value: Any, type_: str) -> int:
    """The low 24 bits, signed where the type is."""
    low = int(value) & 0xFFFFFF
    return low - (1 << 24) if type_ == "i32" and low >> 23 else low


# ---- reinterpretation


def _viewed(dtype: np.dtype[Any], x: Array) -> Array:
    return x.view(dtype)


def reinterpretations() -> Iterator[Row]:
    """Rows of reinterpretations of bits as another type."""
    for name, source, target in (
        ("float_as_int", "f32", "i32"),
        ("float_as_uint", "f32", "u32"),
        ("int_as_float", "i32", "f32"),
        ("uint_as_float", "u32", "f32"),
        ("double_as_longlong", "f64", "i64"),
        ("longlong_as_double", "i64", "f64"),
    ):
        yield Row(
            name, (source,), target, _patterns(source), functools.partial(_viewed, storage(target))
        )
    yield Row(
        "double2loint",
        ("f64",),
        "i32",
        _patterns("f64"),
        lambda x: x.view(np.int32)[::2].copy(),
        ("i64",),
    )
    yield Row(
        "double2hiint",
        ("f64",),
        "i32",
        _patterns("f64"),
        lambda x: x.view(np.int32)[1::2].copy(),
        ("i64",),
    )
    halves = lambda rng: [  # noqa: E731
        np.ascontiguousarray(half)
        for half in _patterns("f64")(rng)[0].view(np.int32).reshape(-1, 2).T[::-1]
    ]
    yield Row(
        "hiloint2double",
        ("i32", "i32"),
        "f64",
        halves,
        lambda high, low: np.stack([low, high], 1).view(np.float64).ravel(),
        ("i64",),
    )


def _patterns(type_: str) -> Callable[[np.random.Generator], list[Array]]:
    """Bits of finite floats and of zeros of both signs: a NaN's bits may change in a move."""

    def make(rng: np.random.Generator) -> list[Array]:
        floating = np.float32 if type_.endswith("32") else np.float64
        x = np.concatenate(
            [any_bits(rng, floating, 200), np.array([0.0, -0.0, INF, -INF], floating)]
        )
        return [x.view(storage(type_))]

    return make
