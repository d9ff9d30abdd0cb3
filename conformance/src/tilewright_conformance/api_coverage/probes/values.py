"""Values in a kernel: attributes of tensors, tuples, constexprs, aggregates, functions."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def attributes(x, out, M: tl.constexpr, N: tl.constexpr):
    block = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.static_assert(block.dtype == tl.float32)
    tl.static_assert(block.numel == M * N)
    tl.static_assert(block.type.shape[0] == M)
    tl.static_assert(isinstance(block, tl.tensor))
    tl.store(out, block.shape[0])
    tl.store(out + 1, block.shape[1])
    tl.store(out + 2, block.numel)


@probe(
    "tensor.shape", "tensor.numel", "tensor.dtype", "tensor.type", "tl.tensor", "python.isinstance"
)
def tensor_attributes(on: Machine, rng: Any) -> None:
    x, out = np.zeros((8, 16), np.float32), np.zeros(3, np.int32)
    on(attributes)[(1,)](x, out, M=8, N=16)
    np.testing.assert_array_equal(out, [8, 16, 128])


class Pair(NamedTuple):
    """A named pair of arguments."""

    source: Any
    scale: Any


@tw.jit
def sum_of_all(a, b, *rest):
    total = a + b
    for i in tl.static_range(len(rest)):
        total += rest[i]
    return total


@tw.jit
def tuples(pair, triple, out):
    values = tuple([tl.load(pair.source + i) for i in (0, 1, 2)])
    tl.static_assert(len(values) == 3)
    swapped = values[2:] + (values[0] * pair.scale,)  # noqa: RUF005 (the addition is tested)
    first, second = swapped
    tl.store(out, first)
    tl.store(out + 1, second)
    tl.store(out + 2, sum_of_all(*triple))
    tl.static_assert((1, 2) == (1, 2))


@probe(
    "tl.tuple",
    "tl.tuple_type",
    "python.len",
    "syntax.tuple",
    "syntax.star_arguments",
    "syntax.comprehension",
)
def tuple_values(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 3), np.zeros(3, np.int64)
    on(tuples)[(1,)](Pair(x, 3), (5, 7, 90), out)
    np.testing.assert_array_equal(out, [x[2], 3 * x[0], 102])
    assert tl.tuple([1, 2]).type == tl.tuple_type([tl.constexpr(1).type, tl.constexpr(2).type])


LIMIT = tl.constexpr(12)


@tw.jit
def constants(out, N: tl.constexpr, NAME: tl.constexpr):
    half: tl.constexpr = N // 2 + LIMIT
    if NAME == "low":
        tl.store(out, half)
    else:
        tl.store(out, -half)
    tl.store(out + 1, min(N, 5) + max(N, LIMIT, 3))
    tl.store(out + 2, int(2.75) + float(1) + (1 if N > 3 else 0))
    tl.static_assert(f"{NAME}-{N}" == "low-8")
    tl.static_assert(getattr(tl, "float32") == tl.float32 and hasattr(tl, "sum"))  # noqa: B009
    root: tl.constexpr = math.sqrt(N * 2)
    tl.static_assert(root == 4.0)
    lengths: tl.constexpr = list([1, 2, N])  # noqa: C410  (the call is what is shown)
    tl.static_assert(len(lengths) == 3)


@probe(
    "tl.constexpr",
    "tl.constexpr_type",
    "python.min",
    "python.max",
    "python.int",
    "python.float",
    "python.getattr",
    "python.hasattr",
    "python.list",
    "python.math",
    "syntax.annotation_constexpr",
    "syntax.global_constexpr",
    "syntax.f_string",
    "syntax.ternary",
)
def constexprs(on: Machine, rng: Any) -> None:
    out = np.zeros(3, np.int32)
    on(constants)[(1,)](out, N=8, NAME="low")
    np.testing.assert_array_equal(out, [16, 5 + 12, 4])
    assert (tl.constexpr(3) + 4).value == 7
    assert tl.constexpr(tl.constexpr(3)).value == 3
    assert tl.constexpr(3).type == tl.constexpr_type(3)


@tw.constexpr_function
def digits(n: int) -> int:
    return len(str(n))


@tw.jit
def count_digits(out, N: tl.constexpr):
    width: tl.constexpr = digits(N)
    tl.store(out, width)


@probe("tilewright.constexpr_function", "triton.constexpr_function")
def constexpr_function(on: Machine, rng: Any) -> None:
    out = np.zeros(1, np.int32)
    on(count_digits)[(1,)](out, N=12345)
    assert out[0] == digits(12345) == 5


@tw.aggregate
class Span:
    """A run of elements in memory."""

    start: tl.tensor
    size: tl.constexpr
    scale: tl.constexpr = 2

    @tw.jit
    def load(self):
        return tl.load(self.start + tl.arange(0, self.size)) * self.scale

    @tw.jit
    def moved(self, distance):
        return tl.core.aggregate_replace(self, start=self.start + distance)


@tw.jit
def spans(x, out, N: tl.constexpr):
    span = Span(x, N)
    tl.store(out + tl.arange(0, N), span.load() + span.moved(N).load())


@probe(
    "tilewright.aggregate",
    "triton.aggregate",
    "tl.aggregate",
    "tl.aggregate_replace",
    "tl.core.aggregate_replace",
)
def aggregate(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 32), np.zeros(16, np.int64)
    on(spans)[(1,)](x, out, N=16)
    np.testing.assert_array_equal(out, 2 * (x[:16] + x[16:]))


@tw.must_use_result
@tw.jit
def doubled(x):
    return x * 2


@tw.jit
def uses(out, USE: tl.constexpr):
    if USE:
        tl.store(out, doubled(tl.load(out)))
    else:
        doubled(tl.load(out))


@probe("tilewright.must_use_result", "triton.must_use_result", "tl.must_use_result")
def must_use_result(on: Machine, rng: Any) -> None:
    from tilewright_conformance.api_coverage.probes.debug import refusal

    out = np.full(1, 21, np.int32)
    on(uses)[(1,)](out, USE=True)
    assert out[0] == 42
    assert "doubled" in str(refusal(on(uses)[(1,)], out, USE=False))


@tw.jit(noinline=True)
def square(x):
    return x * x


@tw.jit
def calls(out, n):
    tl.store(out, square(n) + square(n + 1))


@probe("tilewright.jit", "triton.jit", "syntax.call", feature="noinline")
def functions(on: Machine, rng: Any) -> None:
    out = np.zeros(1, np.int32)
    on(calls)[(1,)](out, 6)
    assert out[0] == 36 + 49


@tw.jit
def python_extrema(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(out + at, max(min(value, 50), 10))


@probe("python.min", "python.max", "tl.core.builtin_min", "tl.core.builtin_max")
def python_min_max(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 99, 32), np.zeros(32, np.int64)
    on(python_extrema)[(1,)](x, out, N=32)
    np.testing.assert_array_equal(out, x.clip(10, 50))
    assert tl.core.builtin_min is not None and tl.core.builtin_max is not None


@tw.jit
def constant_source(x: tl.const, out, WRITE: tl.constexpr):
    tl.store(out, tl.load(x) + 1)
    if WRITE:
        tl.store(x, 0)


@probe("tl.const")
def const(on: Machine, rng: Any) -> None:
    from tilewright_conformance.api_coverage.probes.debug import refusal

    x, out = rng.integers(0, 99, 1), np.zeros(1, np.int64)
    on(constant_source)[(1,)](x, out, WRITE=False)
    assert out[0] == x[0] + 1
    assert "Cannot store to a constant pointer" in str(
        refusal(on(constant_source)[(1,)], x, out, WRITE=True)
    )
