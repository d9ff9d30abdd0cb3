"""Random kernels in f64, for tests of derivatives: structured control two deep, reductions, scans.

A kernel reads ``x`` and ``y`` (64 elements each), loops ``n`` times, and writes three tiles of
each of two programs to ``out`` (192 elements).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.types import F64, I32, PointerType, TileType, shape_of
from tilewright.ir.verifier import verify

SHAPES = ((), (8,), (4, 8))
#: Iterations of the loops, programs of the grid, elements of the arrays.
STEPS, PROGRAMS, ELEMENTS, OUTPUTS = 3, 2, 64, 192
_WHOLE = TileType((4, 8), I32)


class RandomKernel:
    """A random kernel.

    Attributes:
        module: its module; the kernel's parameters are ``x y out n``.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        function = Function("random", [PointerType(F64)] * 3 + [I32], (), ["x", "y", "out", "n"])
        self._b = b = Builder.at_end(function.body)
        self._program = b.program_id(axis=0)
        self._values: list[Value] = []
        self._depth = 0
        x, y, out, self._steps = function.arguments
        columns = b.broadcast(b.expand_dims(b.arange(start=0, end=8), axis=0), result=_WHOLE)
        rows = b.arange(start=0, end=4)
        rows = b.mul(rows, b.constant_like(rows.type, 8))
        rows = b.broadcast(b.expand_dims(rows, axis=1), result=_WHOLE)
        start = b.mul(self._program, b.constant_like(I32, 32))
        here = b.add(b.add(columns, rows), b.splat(start, result=_WHOLE))
        mask = b.cmp(here, b.constant_like(_WHOLE, 60), predicate="lt")
        for pointer in (x, y):
            self._values.append(b.load(self._at(pointer, here), mask=mask))
        row = self._at(y, b.arange(start=0, end=8))  # read by all programs: a sum over them
        self._values += [b.load(row), b.load(x)]
        self._grow(int(self._rng.integers(6, 16)))
        for number in range(3):
            moved = b.add(here, b.constant_like(_WHOLE, ELEMENTS * number))
            b.store(self._at(out, moved), self._of((4, 8)), mask)
        b.return_([])
        self.module = Module()
        self.module.add(function)
        verify(self.module)

    def _at(self, pointer: Value, offsets: Value) -> Value:
        b = self._b
        tile = b.splat(pointer, result=TileType(shape_of(offsets.type), pointer.type))
        return b.addptr(tile, offsets)

    def _pick(self, values: list[Value] | None = None) -> Value:
        values = values or self._values
        return values[max(self._rng.integers(len(values)), self._rng.integers(len(values)))]

    def _of(self, shape: tuple[int, ...]) -> Value:
        """A value of a shape: one that is there, or made of one of another shape."""
        b = self._b
        known = [value for value in self._values if shape_of(value.type) == shape]
        if known and self._rng.random() < 0.8:
            return self._pick(known)
        x = self._pick()
        while shape_of(x.type) != shape:
            given = shape_of(x.type)
            if len(given) > len(shape):
                x = self._reduced(x, int(self._rng.integers(len(given))))
                if shape_of(x.type) == (4,):
                    x = self._reduced(x, 0)
            elif not given:
                x = b.splat(x, result=TileType(shape, F64))
            else:
                x = b.broadcast(b.expand_dims(x, axis=0), result=TileType(shape, F64))
        return x

    def _combination(self, kind: str, count: int = 1) -> Region:
        b, region = self._b, Region([F64] * (2 * count))
        with b.at_region(region):
            a, c = region.arguments[:count], region.arguments[count:]
            if kind == "mixed":  # a + c + a c / 10, which is associative and commutative
                tenth = b.mul(b.mul(a[0], c[0]), b.constant_like(F64, 0.1))
                b.yield_([b.add(b.add(a[0], c[0]), tenth)])
            elif kind == "affine":  # of maps t -> a t + b: associative, not commutative
                b.yield_([b.mul(a[0], c[0]), b.add(b.mul(a[1], c[0]), c[1])])
            elif kind == "moments":  # of values and of their products, commutative
                b.yield_([b.add(a[0], c[0]), b.add(b.add(a[1], c[1]), b.mul(a[0], c[0]))])
            else:
                b.yield_([getattr(b, kind)(a[0], c[0])])
        return region

    def _reduced(self, x: Value, axis: int) -> Value:
        kind = str(self._rng.choice(["add", "add", "max", "min", "mixed", "moments"]))
        if kind == "moments":
            inputs = [self._b.tanh(x), self._b.sin(x)]
        else:
            inputs = [self._b.tanh(x) if kind == "mixed" else x]
        region = self._combination(kind, len(inputs))
        return self._b.region_op("reduce", inputs, regions=[region], axis=axis).results[-1]

    def _grow(self, steps: int) -> None:
        kinds: list[Callable[[], None]] = [
            *[self._binary] * 4, *[self._unary] * 3, self._choice, self._reduction, self._scan,
            self._transposition, self._dot, self._halves, self._permutation, self._scan_of_pairs,
        ]  # fmt: skip
        if self._depth < 2:
            kinds += [self._loop, self._loop, self._branch]
        for _ in range(steps):
            kinds[self._rng.integers(len(kinds))]()

    def _binary(self) -> None:
        x = self._pick()
        name = str(self._rng.choice(["add", "sub", "mul", "max", "min"]))
        self._values.append(getattr(self._b, name)(x, self._of(shape_of(x.type))))

    def _unary(self) -> None:
        b, x = self._b, self._pick()
        above_one = b.add(b.constant_like(x.type, 1.0), b.mul(x, x))
        made: list[Callable[[], Value]] = [
            lambda: b.tanh(x), lambda: b.sin(x), lambda: b.cos(x), lambda: b.erf(x),
            lambda: b.abs(x), lambda: b.neg(x), lambda: b.exp(b.neg(b.mul(x, x))),
            lambda: b.div(x, above_one), lambda: b.rsqrt(above_one), lambda: b.log2(above_one),
            lambda: b.sqrt(above_one), lambda: b.exp2(b.tanh(x)), lambda: b.log(above_one),
        ]  # fmt: skip
        self._values.append(made[self._rng.integers(len(made))]())

    def _choice(self) -> None:
        b, x = self._b, self._pick()
        y = self._of(shape_of(x.type))
        condition = b.cmp(x, y, predicate="lt")
        self._values.append(b.select(condition, b.mul(x, y), b.sub(x, y)))

    def _reduction(self) -> None:
        self._values.append(self._reduced(self._of((4, 8)), 0))

    def _scan(self) -> None:
        x = self._of((4, 8) if self._rng.random() < 0.5 else (8,))
        region = self._combination("mixed" if self._rng.random() < 0.5 else "add")
        axis = int(self._rng.integers(len(shape_of(x.type))))
        reverse = bool(self._rng.random() < 0.5)
        inputs = [self._b.tanh(x)]
        made = self._b.region_op("scan", inputs, regions=[region], axis=axis, reverse=reverse)
        self._values += made.results

    def _scan_of_pairs(self) -> None:
        inputs = [self._b.tanh(self._of((8,))), self._of((8,))]
        reverse = bool(self._rng.random() < 0.5)
        region = self._combination("affine", 2)
        made = self._b.region_op("scan", inputs, regions=[region], axis=0, reverse=reverse)
        self._values.append(made.results[1])

    def _transposition(self) -> None:
        x = self._of((4, 8))
        self._values.append(self._b.reshape(self._b.permute(x, order=(1, 0)), result=x.type))

    def _permutation(self) -> None:
        """An index that is its own inverse, or one that reads some elements twice."""
        b, x = self._b, self._of((8,))
        index = b.arange(start=0, end=8)
        if self._rng.random() < 0.5:
            index = b.xor(index, b.constant_like(index.type, 3))
        else:
            index = b.rem(
                b.mul(index, b.constant_like(index.type, 6)), b.constant_like(index.type, 8)
            )
        self._values.append(b.gather(x, index, axis=0))

    def _dot(self) -> None:
        b = self._b
        x, y, z = b.tanh(self._of((4, 8))), self._of((4, 8)), self._of((4, 8))
        zero = b.constant_like(TileType((4, 4), F64), 0.0)
        inner = b.dot(x, b.permute(y, order=(1, 0)), zero)
        self._values.append(b.dot(inner, b.tanh(z), self._of((4, 8))))

    def _halves(self) -> None:
        b = self._b
        a, c = b.split(b.reshape(self._of((8,)), result=TileType((4, 2), F64)))
        joined = b.join(b.mul(a, c), b.sin(a))
        self._values.append(b.reshape(joined, result=TileType((8,), F64)))

    def _loop(self) -> None:
        b = self._b
        shapes = [SHAPES[self._rng.integers(3)] for _ in range(self._rng.integers(1, 3))]
        inits = [self._of(shape) for shape in shapes]
        region = Region([I32, *(value.type for value in inits)])
        outer, self._values = self._values, list(self._values)
        is_sum = [self._rng.random() < 0.5 for _ in shapes]  # or a recurrence
        self._depth += 1
        with b.at_region(region):
            carried = region.arguments[1:]
            self._values.append(b.cast(region.arguments[0], result=F64))
            self._values += [v for v, plain in zip(carried, is_sum, strict=True) if not plain]
            self._grow(int(self._rng.integers(1, 5)))
            yields = []
            for value, plain in zip(carried, is_sum, strict=True):
                new = b.tanh(self._of(shape_of(value.type)))
                yields.append(b.add(value, new) if plain else new)
            b.yield_(yields)
        self._depth -= 1
        self._values = outer
        zero, one = (b.constant_like(I32, number) for number in (0, 1))
        loop = b.region_op("for", zero, self._steps, one, inits, regions=[region])
        self._values += loop.results

    def _branch(self) -> None:
        b, outer = self._b, self._values
        shape = SHAPES[self._rng.integers(3)]
        regions = []
        self._depth += 1
        for _ in range(2):
            self._values = list(outer)
            region = Region()
            with b.at_region(region):
                self._grow(int(self._rng.integers(1, 4)))
                b.yield_([self._of(shape)])
            regions.append(region)
        self._depth -= 1
        self._values = outer
        condition = b.cmp(self._program, b.constant_like(I32, 1), predicate="lt")
        results = [TileType(shape, F64) if shape else F64]
        self._values += b.region_op("if", condition, regions=regions, results=results).results
