"""Aggregates in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.frontend import compile_function
from tilewright.language import aggregate
from tilewright.language.definitions.callable import constexpr_function
from tilewright.language.definitions.callable import device_function as jit


@aggregate
class Tile:
    pointer: tl.tensor
    size: tl.constexpr
    scale: tl.constexpr = 2

    @jit
    def load(self):
        return tl.load(self.pointer + tl.arange(0, self.size))

    @jit
    def store(self, value):
        tl.store(self.pointer + tl.arange(0, self.size), value * self.scale)

    @constexpr_function
    def bytes(self):
        return self.size.value * 4

    @jit
    def moved(self, distance):
        return tl.core.aggregate_replace(self, pointer=self.pointer + distance)

    @jit
    def __add__(self, other):
        return self.load() + other.load()


@aggregate
class Pair:
    low: Tile
    high: Tile
    total: tl.tensor

    @jit
    def __init__(self, pointer, size: tl.constexpr):
        self.low = Tile(pointer, size)
        self.high = Tile(pointer + size, size, scale=3)
        self.total = tl.sum(self.low.load()) + tl.sum(self.high.load())


@aggregate
class Named(Tile):
    offset: tl.tensor

    @jit
    def load(self):
        return tl.load(self.pointer + tl.arange(0, self.size)) + self.offset


@aggregate
class Computed:
    half: tl.constexpr
    name: tl.constexpr

    @constexpr_function
    def __init__(self, n):
        self.half = n // 2
        self.name = f"n={n}"


@jit
def tile_kernel(x, y, N: tl.constexpr):
    source, target = Tile(x, N), Tile(y, size=N)
    tl.static_assert(source.bytes() == 4 * N)
    tl.static_assert(source.scale == 2)
    target.store(source.load())


def test_fields_and_methods(run: Callable[..., None]) -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    run(tile_kernel, x, y, N=8)
    assert np.array_equal(y, 2 * x)


@jit
def pair_kernel(x, y, N: tl.constexpr):
    pair = Pair(x, N)
    Tile(y, N, scale=1).store(pair.low + pair.high + pair.total)
    pair.high.store(pair.high.load())


def test_nested_aggregates_made_by_kernel_code(run: Callable[..., None]) -> None:
    x, y = np.arange(16, dtype=np.float32), np.zeros(8, np.float32)
    before = x.copy()
    run(pair_kernel, x, y, N=8)
    assert np.array_equal(y, before[:8] + before[8:] + before.sum())
    assert np.array_equal(x[8:], 3 * before[8:])


@jit
def loop_kernel(x, out, steps, N: tl.constexpr):
    tile = Tile(x, N)
    total = tl.zeros([N], tl.float32)
    for _ in range(steps):
        total += tile.load()
        tile = tile.moved(N)
    tl.store(out + tl.arange(0, N), total)


def test_aggregates_are_carried_through_loops(run: Callable[..., None]) -> None:
    x, out = np.arange(40, dtype=np.float32), np.zeros(8, np.float32)
    run(loop_kernel, x, out, 5, N=8)
    assert np.array_equal(out, x.reshape(5, 8).sum(0))


@jit
def inherited_kernel(x, out, N: tl.constexpr):
    tile = Named(x, N, 1, tl.load(x))
    tl.store(out + tl.arange(0, N), tile.load())
    computed = Computed(N)
    tl.static_assert(computed.half == N // 2)
    tl.static_assert(computed.name == "n=8")


def test_inheritance_and_constexpr_constructors(run: Callable[..., None]) -> None:
    x, out = np.arange(1, 9, dtype=np.float32), np.zeros(8, np.float32)
    run(inherited_kernel, x, out, N=8)
    assert np.array_equal(out, x + 1)


@jit
def assign_kernel(x):
    tile = Tile(x, 8)
    tile.size = 4


@jit
def missing_kernel(x):
    Tile(x)


@jit
def kind_kernel(x):
    Tile(x, tl.load(x))


@jit
def unknown_kernel(x):
    tl.core.aggregate_replace(Tile(x, 8), width=4)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (assign_kernel, "immutable"),
        (missing_kernel, "Tile is missing arguments: size"),
        (kind_kernel, "field 'size' of Tile must be constexpr"),
        (unknown_kernel, "Tile has no field 'width'; its fields are pointer, size, scale"),
    ],
)
def test_what_is_refused(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        compile_function(kernel, {"x": "*fp32"})


def test_classes_that_are_refused() -> None:
    class Plain:
        pass

    with pytest.raises(
        TypeError, match="Aggregates can only inherit from other aggregates, but Plain"
    ):

        @aggregate
        class Child(Plain):
            x: tl.tensor


def test_aggregates_are_carried_by_the_values_of_their_fields(bench: Any) -> None:
    tile = bench(Tile, bench.value("*fp32"), 8)
    assert tile.flatten() == [tile.pointer.handle]
    assert [str(type_) for type_ in tile.type.flatten()] == ["ptr<f32>"]
    again = tile.type.unflatten(iter(tile.flatten()))
    assert again.type == tile.type
    assert again.size.value == 8
    assert bench(Tile, bench.value("*fp32"), 4).type != tile.type
    assert bench(Named, bench.value("*fp32"), 8, 2, 1.0).type != tile.type
    assert tl.core.is_builtin(Tile)
    assert {fn.__name__ for fn in Pair.hash_attrs} == {"__init__"}
    assert {fn.__name__ for fn in Named.hash_attrs} >= {"load", "store"}


@aggregate
class Span:
    start: tl.tensor
    count: tl.constexpr = 4

    def __init__(self, start, count=4, _semantic=None):
        self.start = _semantic.to_tensor(start)
        self.count = tl.constexpr(count)

    def __getitem__(self, index, _semantic=None):
        return self.start if index == 0 else self.count

    def lanes(self, _semantic=None):
        return _semantic.add(self.start, tl.arange(0, self.count, _semantic=_semantic))

    @staticmethod
    def wide(start, _semantic=None):
        return Span(start, 8, _semantic=_semantic)

    @staticmethod
    @jit
    def none():
        return Span(0)

    @classmethod
    def size_of(cls, span):
        return span.count.value


@jit
def span_kernel(out, n):
    span = Span.wide(n)
    tl.static_assert(span[1] == 8 and Span.size_of(span) == 8 and Span.none()[1] == 4)
    tl.store(out + tl.arange(0, 8), span.lanes() + span[0] * 0)


def test_plain_functions_are_methods_that_run_while_compiling(run: Callable[..., None]) -> None:
    out = np.zeros(8, np.int32)
    run(span_kernel, out, 5)
    assert out.tolist() == list(range(5, 13))


def test_aggregates_of_constants_on_the_host() -> None:
    @aggregate
    class Base:
        x: tl.constexpr = 100

        @constexpr_function
        def twice(self):
            return self.x.value * 2

    @aggregate
    class Child(Base):
        y: tl.constexpr

    child = Child(y=7)
    assert (child.x.value, child.y.value, child.twice()) == (100, 7, 200)
    changed = tl.aggregate_replace(child, x=3)
    assert (changed.x.value, changed.y.value, child.x.value) == (3, 7, 100)
    with pytest.raises(TypeError, match="Child has no field 'z'; its fields are x, y"):
        tl.aggregate_replace(child, z=1)
    with pytest.raises(TypeError, match="expects an aggregate instance, got 42"):
        tl.aggregate_replace(42, x=1)
    with pytest.raises(
        AttributeError, match="cannot assign to field 'x' on immutable aggregate Child"
    ):
        child.x = tl.constexpr(1)


@aggregate
class Complex:
    re: tl.tensor
    im: tl.tensor

    @jit
    def __mul__(self, other):
        return Complex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )

    @jit
    def __rsub__(self, other):
        return Complex(other - self.re, -self.im)

    def __neg__(self, _semantic=None):
        return Complex(
            _semantic.unary("neg", self.re), _semantic.unary("neg", self.im), _semantic=_semantic
        )

    def __add__(self, other, _semantic=None):
        return Complex(
            _semantic.add(self.re, other.re), _semantic.add(self.im, other.im), _semantic=_semantic
        )

    @jit
    def __call__(self, scale):
        return self.re * scale + self.im

    @jit
    def __lt__(self, other):
        return self.re < other.re


@jit
def complex_kernel(out, a, b, c, d):
    x = Complex(a, b)
    y = Complex(c, d)
    product = x * y
    x += -y
    z = (a + 7) - product
    tl.store(out, product.re)
    tl.store(out + 1, product.im)
    tl.store(out + 2, x.re)
    tl.store(out + 3, x(100))
    tl.store(out + 4, z.re)
    tl.store(out + 5, (x < y).to(tl.int32))


def test_operators_and_calls_of_aggregates(run: Callable[..., None]) -> None:
    out = np.zeros(6, np.int32)
    run(complex_kernel, out, 3, 4, 5, -2)
    product = (3 + 4j) * (5 - 2j)
    assert out.tolist() == [product.real, product.imag, -2, -200 + 6, 10 - product.real, 1]


@aggregate
class Sum:
    value: tl.tensor
    count: tl.constexpr

    def __init__(self, value, count=0, _semantic=None):
        self.value = _semantic.to_tensor(value)
        self.count = tl.constexpr(count)

    def add(self, x, _semantic=None):
        self.value = _semantic.add(self.value, x)

    def add_twice(self, x, _semantic=None):
        self.add(x, _semantic=_semantic)
        self.add(x, _semantic=_semantic)
        return self

    def tell(self, _semantic=None):
        return self.value

    def recount(self):
        self.count = tl.constexpr(self.count.value + 1)


@aggregate
class Sums:
    low: Sum
    high: Sum

    def __init__(self, low, high):
        self.low, self.high = low, high

    def add(self, x, _semantic=None):
        self.high.add(x, _semantic=_semantic)


@tl.core.builtin
def add_to(target, x, _semantic=None):
    target.value = _semantic.add(target.value, x)


@jit
def of_a_copy(total):
    total.add(1000)
    return total.value


@jit
def assigning_kernel(out, n, m):
    total = Sum(1)
    alias = total
    total.add(2)
    tl.store(out, alias.value)
    for i in range(n):
        total.add(i)
    if m > 2:
        total.add_twice(10)
    else:
        add_to(total, 5)
    tl.store(out + 1, total.value)
    i = 0
    while i < n:
        i += 1
        if i % 2 == 0:
            continue
        add_to(total, 100)
    tl.store(out + 2, total.value)
    both = Sums(total, Sum(0))
    pair = (both, n)
    for _ in range(n):
        for _ in range(2):
            both.add(1)
            pair[0].low.add(1)
    tl.store(out + 3, both.high.value)
    tl.store(out + 4, both.low.value)
    tl.store(out + 5, of_a_copy(total) - total.value)
    for _ in tl.static_range(3):
        total.recount()
    tl.static_assert(total.count == 3 and alias.count == 0)


@pytest.mark.parametrize(("n", "m"), [(5, 3), (4, 0), (0, 9)])
def test_plain_methods_assign_to_fields_through_branches_and_loops(
    run: Callable[..., None], n: int, m: int
) -> None:
    out = np.full(6, -1, np.int32)
    run(assigning_kernel, out, n, m)
    branch = 3 + sum(range(n)) + (20 if m > 2 else 5)
    loop = branch + 100 * ((n + 1) // 2)
    assert out.tolist() == [3, branch, loop, 2 * n, loop, 1000]


@jit
def unforeseen_kernel(out, n):
    totals = (Sum(1), Sum(2))
    for _ in range(n):
        for index in tl.static_range(2):
            totals[index].add(1)
    tl.store(out, totals[0].value)


@jit
def recounted_in_loop_kernel(out, n):
    total = Sum(1)
    for _ in range(n):
        total.recount()
    tl.store(out, total.value)


@aggregate
class Holder:
    size: tl.constexpr = 1

    def grow(self):
        self.size = tl.constexpr(self.size.value + 1)


HELD = Holder()


@jit
def global_kernel(out, n):
    HELD.grow()
    tl.store(out, n)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            unforeseen_kernel,
            "a call in this loop assigns to a field of totals, which the call does not show",
        ),
        (recounted_in_loop_kernel, "Loop-carried variable total has initial type"),
        (global_kernel, "a method assigns to a field of a global Holder"),
    ],
)
def test_assignments_to_fields_that_are_refused(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        compile_function(kernel, {"out": "*i32", "n": "i32"})
    assert HELD.size.value == 1


@jit
def telling_kernel(out, n):
    total = Sum(n)
    for _ in range(n):
        tl.store(out, total.tell())


def test_loops_carry_no_aggregate_that_calls_only_read() -> None:
    module = compile_function(telling_kernel, {"out": "*i32", "n": "i32"})
    (loop,) = (
        operation
        for function in module.functions.values()
        for operation in function.walk()
        if operation.name == "for"
    )
    assert len(loop.results) == 0
