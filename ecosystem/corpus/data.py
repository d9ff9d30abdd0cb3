"""What the arguments of a launch hold where it is run: the same for both compilers, by the record
alone.

Floats are random, and small, so that products of many and inverses stay finite. Whole numbers are
those of the record where it has them; what other kernels of the package compute, as the rows of
experts (:mod:`corpus.routing`), is known by the argument's name; the others are small, so that they
are indices of whatever they index.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from corpus.contents import filled
from corpus.launches import Argument, Launch
from corpus.routing import left_by_sorting

Array = np.ndarray[Any, np.dtype[Any]]

#: The standard deviation of floats: a power of two.
_SPREAD = 0.125
#: So many values of a tensor are random; they are repeated.
_PATTERN = 1 << 16
#: Cells of a row of the grid that points are pooled in.
_GRID = 256
#: Type of a tensor's elements -> (type in NumPy of the same size, tolerance by the largest value).
ELEMENTS: dict[str, tuple[str, float]] = {
    "fp64": ("f8", 1e-9),
    "fp32": ("f4", 1e-3),
    "fp16": ("f2", 4e-3),
    "bf16": ("u2", 2e-2),
    "i64": ("i8", 0),
    "u64": ("u8", 0),
    "i32": ("i4", 0),
    "u32": ("u4", 0),
    "i16": ("i2", 0),
    "u16": ("u2", 0),
    "i8": ("i1", 0),
    "u8": ("u1", 0),
    "i1": ("u1", 0),
    "fp8e4nv": ("u1", 0),
    "fp8e5": ("u1", 0),
    "fp8e4b8": ("u1", 0),
    "fp8e5b16": ("u1", 0),
}


def passed(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """The arguments that a launch passes: no constants, and the items of tuples."""
    for argument in arguments:
        if argument.items is not None:
            yield from passed(argument.items)
        elif argument.type != "constexpr":
            yield argument


def element(argument: Argument) -> str:
    """The type of a tensor's or a descriptor's elements; empty for others."""
    found = re.match(r"\*(\w+)$|tensordesc<(\w+)\[", argument.type)
    return (found[1] or found[2]) if found else ""


def extent(argument: Argument) -> int:
    """Elements from a tensor's first to its last."""
    assert argument.shape is not None and argument.strides is not None
    steps = zip(argument.shape, argument.strides, strict=True)
    return 1 + sum((size - 1) * abs(stride) for size, stride in steps if size)


def number(argument: Argument) -> Any:
    """The value of a number."""
    value = argument.value
    return float(value["float"]) if isinstance(value, dict) else value


def contents(launch: Launch, argument: Argument, most: int) -> Array:
    """What a tensor holds from its first element on: no more than ``most`` bytes of it."""
    kind = element(argument)
    dtype = np.dtype(ELEMENTS[kind][0])
    count = max(1, min(extent(argument), most // dtype.itemsize))
    if argument.contents:
        return filled(argument.contents, count, dtype)
    if (computed := _computed(launch, argument)) is not None:
        return np.resize(computed, count).astype(dtype)
    random = np.random.default_rng(zlib.crc32(f"{launch.id}/{argument.name}".encode()))
    return np.resize(_values(kind, argument.name, random, min(count, _PATTERN)), count)


def _computed(launch: Launch, argument: Argument) -> Array | None:
    """What other kernels of a package compute, or its programs look up: known by the argument's
    name.
    """
    arguments = {each.name: each for each in passed(launch.arguments)}
    count = extent(argument)
    if (left := left_by_sorting(launch, argument, arguments, count)) is not None:
        return left
    if re.match(r"qmap|code", argument.name) and element(argument) == "fp32":
        return np.linspace(
            0.0 if argument.name.startswith("qmap2") else -1.0, 1.0, count
        )  # what codes stand for, in order
    points, intervals = arguments.get("geom_feats_ptr"), arguments.get("interval_starts_ptr")
    if points is not None and intervals is not None:
        return _pooled(argument, extent(points) // 4, extent(intervals))
    return None


def _pooled(argument: Argument, points: int, intervals: int) -> Array | None:
    """Points of cells of a grid of the first batch and height: those of an interval are in one
    cell.
    """
    each = points // intervals
    if argument.name == "interval_starts_ptr":
        return each * np.arange(intervals)
    if argument.name == "interval_lengths_ptr":
        return np.full(intervals, each)
    if argument.name == "geom_feats_ptr":
        cell = np.arange(points) // each
        return np.stack([cell % _GRID, cell // _GRID, 0 * cell, 0 * cell], axis=1).ravel()
    return None


def _values(kind: str, name: str, random: np.random.Generator, count: int) -> Array:
    dtype = np.dtype(ELEMENTS[kind][0])
    if "absmax" in name and kind in ("fp32", "fp16", "bf16"):
        return np.asarray(
            _values(kind, "", random, count).view(f"u{dtype.itemsize}")
            & ((1 << 8 * dtype.itemsize - 1) - 1)
        ).view(dtype)
    if kind == "bf16":
        return ((_SPREAD * random.standard_normal(count)).astype("f4").view("u4") >> 16).astype(
            "u2"
        )
    if kind.startswith("fp8"):
        return random.integers(0, 64, count).astype("u1")  # positive, neither infinite nor NaN
    if dtype.kind == "f":
        return (_SPREAD * random.standard_normal(count)).astype(dtype)
    if kind in ("i8", "u8") and re.search("scale", name, re.IGNORECASE):
        return random.integers(124, 131, count).astype(dtype)  # exponents of powers of two near 1
    if kind in ("i8", "u8") or re.search(r"weight|^b_ptr$|^q?[wz]_|^W_q|^zeros_ptr$", name):
        information = np.iinfo(dtype)
        return random.integers(information.min, information.max, count, dtype, endpoint=True)
    if re.search(r"(?<!b)lock|counter|cursor|num_filled|^status", name, re.IGNORECASE):
        return np.zeros(count, dtype)
    if re.search(r"cu_?seq|indptr|cumsum", name):
        return (16 * np.arange(count)).astype(dtype)
    return random.integers(0, 2 if kind == "i1" else 4, count).astype(dtype)


def values(raw: Array, kind: str) -> Array:
    """The numbers that elements of a type are; integers and floats of 8 bits are their bits."""
    if kind == "bf16":
        return (raw.astype("u4") << 16).view("f4").astype("f8")
    return raw.astype("f8") if raw.dtype.kind == "f" else raw


def difference(one: Array, other: Array, kind: str) -> float:
    """The largest difference, by the largest value; of integers how many differ."""
    if one.tobytes() == other.tobytes():
        return 0.0
    return distance(values(one, kind), values(other, kind))


def distance(one: Array, other: Array) -> float:
    """The largest difference of numbers, by the largest of the other's; of integers how many
    differ.
    """
    if one.dtype.kind != "f":
        return float(np.count_nonzero(one != other))
    finite = np.isfinite(other)
    if (np.isfinite(one) != finite).any():
        return float("inf")
    scale = float(np.abs(other[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / scale
