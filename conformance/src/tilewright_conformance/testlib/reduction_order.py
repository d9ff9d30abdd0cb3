"""Kernels that reduce in a stated order, and probes that find the tree of a sum.

A probe holds ones, 2**60 at i and -2**60 at j: its sum is n minus the size of the smallest subtree
that holds both (FPRev, arXiv 2411.00442).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.order import SEQUENTIAL, TREE, tree_bits
from tilewright.ir.types import F32, FloatType, Type
from tilewright.reference import interpreter
from tilewright_conformance.op_samples import Sample
from tilewright_conformance.op_samples.kernel import Draw, SampleKernel

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]

ORDERS = (TREE, SEQUENTIAL)


@tw.jit
def sum_rows(x, out, N: tl.constexpr, ROWS: tl.constexpr, ORDER: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    values = tl.load(x + row[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(out + row, tl.sum(values, 1, order=ORDER))


@tw.jit
def sum_columns(x, out, N: tl.constexpr, COLUMNS: tl.constexpr, ORDER: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    values = tl.load(x + tl.arange(0, N)[:, None] * COLUMNS + column[None, :])
    tl.store(out + column, tl.sum(values, 0, order=ORDER))


@tw.jit
def _join_means(mean, count, other_mean, other_count):
    total = count + other_count
    return mean + (other_mean - mean) * (other_count / total), total


@tw.jit
def mean_rows(x, out, N: tl.constexpr, ROWS: tl.constexpr, ORDER: tl.constexpr):
    """Combine by a function whose operands must not change places."""
    row = tl.arange(0, ROWS)
    values = tl.load(x + row[:, None] * N + tl.arange(0, N)[None, :])
    mean, _ = tl.reduce((values, values * 0 + 1), 1, _join_means, order=ORDER)
    tl.store(out + row, mean)


@tw.jit
def scan_rows(
    x, out, N: tl.constexpr, ROWS: tl.constexpr, REVERSE: tl.constexpr, ORDER: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 1, REVERSE, order=ORDER))


@tw.jit
def multiply(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ORDER: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + j[None, :])
    at = c + i[:, None] * N + j[None, :]
    tl.store(at, tl.dot(x, y, tl.load(at), order=ORDER))


def sum_sample(type_: Type, shape: tuple[int, ...], axis: int, order: str) -> Sample:
    """Return a sample of a sum, and of running sums in both directions, of one tile."""
    kernel = SampleKernel("reduce")
    tile = kernel.load(type_, shape, Draw(-2, 2))

    def combined(name: str, **options: Any) -> None:
        combine = kernel.region((type_, type_), lambda a, b: kernel.b.add(a, b))
        operation = kernel.b.region_op(
            name, tile, regions=[combine], axis=axis, order=order, **options
        )
        kernel.store(operation.result)

    combined("reduce")
    combined("scan")
    combined("scan", reverse=True)
    return kernel.finish()


def dot_sample(element: str, order: str = SEQUENTIAL) -> Sample:
    """Return a sample of a matmul of f16 or f32 in an order."""
    kernel = SampleKernel("dot")
    type_ = FloatType(element)
    a, b = (kernel.load(type_, shape, Draw(-2, 2)) for shape in ((16, 32), (32, 16)))
    c = kernel.load(F32, (16, 16), Draw(-2, 2))
    kernel.store(kernel.b.dot(a, b, c, order=order))
    return kernel.finish()


def run_on_reference(sample: Sample) -> list[bytes]:
    """Return the bits of a sample's outputs."""
    arguments = sample.make_arguments(np.random.default_rng(0))
    interpreter.run(sample.module, arguments, sample.grid)
    return bits(sample, arguments)


def bits(sample: Sample, arguments: Sequence[Any]) -> list[bytes]:
    return [arguments[position].tobytes() for position in sample.outputs]


def spread(shape: int | Sequence[int], seed: int = 0) -> Array:
    """Draw floats whose exponents are spread, so that each order of adding them shows."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-12, 13, shape)
    return values.astype(np.float32)


def probes(n: int, pairs: Sequence[Pair]) -> Array:
    """Return one row for each pair."""
    x = np.ones((len(pairs), n), np.float32)
    for row, (i, j) in enumerate(pairs):
        x[row, i], x[row, j] = 2.0**60, -(2.0**60)
    return x


def some_pairs(n: int) -> list[Pair]:
    """Return pairs that tell a tree: every element with the first one and with its neighbor."""
    step = max(1, n // 64)
    return [(0, j) for j in range(1, n, step)] + [(j - 1, j) for j in range(1, n, step)]


def subtree(order: str, n: int, i: int, j: int) -> int:
    """Return the size of the smallest subtree of an order that holds elements i and j."""
    if order == SEQUENTIAL:
        return max(i, j) + 1
    combined = 0
    for bit in tree_bits(n):
        combined |= 1 << bit
        if not (i ^ j) & ~combined:
            break
    return sum(not (i ^ other) & ~combined for other in range(n))
