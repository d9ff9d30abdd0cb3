"""Random index arithmetic: what analyses of addresses are checked on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import Builder, Function, Module, Region, Value
from tilewright.ir.types import (
    F16,
    I32,
    I64,
    PointerType,
    TileType,
    element_type,
    shape_of,
    with_element,
)
from tilewright.reference.numerics import numpy_dtype


class Indices:
    """Random index arithmetic that does not overflow."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.module = Module()
        self.function = self.module.add(
            Function("k", [PointerType(F16), I32, I32], argument_names=["p", "n", "s"])
        )
        self.divisibility = int(rng.choice([1, 4, 16]))
        self.function.argument_attributes = [
            {"divisibility": 16},
            {"divisibility": self.divisibility},
            {},
        ]
        self.b = Builder.at_end(self.function.body)
        self.shape = [(32,), (4, 8), (8, 16)][rng.integers(3)]
        self.scalars: list[Value] = []
        self.pool: list[Value] = []
        self.pointers: list[Value] = []

    def pick(self, pool: list[Value]) -> Value:
        return pool[self.rng.integers(len(pool))]

    def leaf(self) -> Value:
        """A tile of the shape: a constant, an argument, or positions along an axis."""
        b, rng = self.b, self.rng
        kind = rng.integers(4)
        tile = TileType(self.shape, I32)
        if kind == 0:
            return b.constant_like(tile, int(rng.choice([0, 1, 2, 3, 4, 8, 12, 16, 31, 63, -16])))
        if kind == 1:
            return b.splat(self.scalar(int(rng.integers(5))), result=tile)
        axis = int(rng.integers(len(self.shape)))
        start = int(rng.choice([0, 0, 4, 16, -8, 3]))
        value = b.arange(start=start, end=start + self.shape[axis])
        if len(self.shape) == 2:
            value = b.broadcast(b.expand_dims(value, axis=1 - axis), result=tile)
        return value  # type: ignore[no-any-return]

    def scalar(self, depth: int) -> Value:
        self.scalars.append(self._scalar(depth))
        return self.scalars[-1]

    def _scalar(self, depth: int) -> Value:
        """Arithmetic as kernels do it with extents and strides: halves, tiles that cover, what is
        left, the smaller and the greater."""
        b, rng = self.b, self.rng
        if depth == 0:
            found = [b.program_id(axis=0), *self.function.arguments[1:]][rng.integers(3)]
            return b.mul(
                found, b.constant(value=int(rng.choice([1, 1, 4, 24, 32, -32])), result=I32)
            )  # type: ignore[no-any-return]

        def constant(*choices: int) -> Value:
            return b.constant(value=int(rng.choice(choices)), result=I32)

        x = self.scalar(depth - 1)
        name = str(
            rng.choice(["div", "cdiv", "shr", "rem", "min", "max", "mul", "add", "sub", "select"])
        )
        if name == "cdiv":
            amount = int(rng.choice([2, 4, 8, 16, 12]))
            ahead = b.constant(
                value=int(rng.choice([amount - 1, amount - 1, amount // 2, amount])), result=I32
            )
            found = b.add(x, ahead) if rng.random() < 0.5 else b.add(ahead, x)
            if amount != 12 and rng.random() < 0.3:
                return b.shr(found, b.constant(value=amount.bit_length() - 1, result=I32))
            return b.div(found, b.constant(value=amount, result=I32))  # type: ignore[no-any-return]
        if name == "select":
            condition = b.cmp(self.function.arguments[2], constant(0, 16), predicate="lt")
            return b.select(condition, x, self.scalar(int(rng.integers(depth))))
        constants = {
            "div": (2, 4, 8, 16, 12, -4, -1),
            "shr": (1, 2, 3),
            "rem": (4, 16, 24, 64),
            "mul": (2, 4, 6),
        }
        other = (
            constant(*constants[name])
            if name in constants
            else self.scalar(0)
            if rng.random() < 0.5
            else constant(-16, 0, 7, 16, 64)
        )
        return getattr(b, name)(x, other)  # type: ignore[no-any-return]

    def step(self) -> Value:
        b, rng = self.b, self.rng
        x, y = self.pick(self.pool), self.pick(self.pool)
        tile = x.type

        def constant(*choices: int) -> Value:
            return b.constant_like(tile, int(rng.choice(choices)))

        kind = rng.integers(22)
        if kind == 0:
            return b.sub(x, y)  # type: ignore[no-any-return]
        if kind == 1:
            return b.mul(x, constant(1, 2, 4, 6))  # type: ignore[no-any-return]
        if kind == 2:
            return b.div(x, constant(1, 2, 4, 12, 16, -2, -8))  # type: ignore[no-any-return]
        if kind == 3:
            return b.rem(x, constant(4, 8, 12, 16))  # type: ignore[no-any-return]
        if kind == 4:
            return b.and_(x, constant(3, 15, -4, -16, 12, 255))  # type: ignore[no-any-return]
        if kind == 5:
            return getattr(b, str(rng.choice(["shl", "shr"])))(x, constant(0, 1, 2))
        if kind == 6:
            mask = b.cmp(x, y, predicate=str(rng.choice(["eq", "ne", "lt", "le", "gt", "ge"])))
            self.masks.append(mask)
            return b.select(mask, self.pick(self.pool), self.pick(self.pool))
        if kind == 7:
            return getattr(b, str(rng.choice(["min", "max", "min", "max", "or_", "xor"])))(x, y)
        if kind == 8:
            return b.cast(b.cast(x, result=with_element(tile, I64)), result=tile)
        if kind == 9:
            shape = shape_of(tile)
            numel = x.type.numel  # type: ignore[attr-defined]
            middle = [
                (numel,),
                (numel, 1),
                (2, numel // 2),
                (numel // 8, 2, 4),
                (numel // 16, 16),
                (*shape[:-1], shape[-1] // 2, 2),
            ]
            other = b.reshape(x, result=TileType(middle[rng.integers(len(middle))], I32))
            self.others.append(other)
            return b.reshape(other, result=TileType(shape, I32))  # type: ignore[no-any-return]
        if kind == 10:
            return b.neg(x) if rng.random() < 0.3 else b.abs(x)  # type: ignore[no-any-return]
        if kind == 11:
            regions = []
            for value in (x, y):
                region = Region()
                with b.at_region(region):
                    b.yield_([b.add(value, constant(0, 1, 16))])
                regions.append(region)
            condition = b.cmp(
                self.function.arguments[1], self.function.arguments[2], predicate="lt"
            )
            return b.region_op("if", condition, regions=regions, results=[tile]).result
        if kind == 12:
            body = Region([I32, tile, tile])
            with b.at_region(body):
                moved = b.add(
                    body.arguments[1],
                    self.pick([constant(1, 16, 0), b.splat(body.arguments[0], result=tile), y]),
                )
                b.yield_([body.arguments[2], moved] if rng.random() < 0.5 else [moved, y])
            bounds = [b.constant(value=value, result=I32) for value in (0, 12, 4)]
            return b.region_op("for", *bounds, [x, y], regions=[body]).results[int(rng.integers(2))]
        last = len(self.shape) - 1
        if kind == 13:
            halves = b.split(
                b.reshape(x, result=TileType((*self.shape[:-1], self.shape[-1] // 2, 2), I32))
            )
            self.others += halves
            return b.cat(*halves, axis=last)  # type: ignore[no-any-return]
        if kind == 14:
            joined = b.join(x, y)
            self.others.append(joined)
            return b.split(joined)[int(rng.integers(2))]  # type: ignore[no-any-return]
        if kind == 15:
            self.others.append(b.cat(x, y, axis=int(rng.integers(last + 1))))
            return x
        if kind == 16:
            axis = int(rng.integers(last + 1))
            return b.gather(
                x, b.and_(y, constant(self.shape[axis] - 1, self.shape[axis] // 4)), axis=axis
            )  # type: ignore[no-any-return]
        if kind == 17:
            amount = int(rng.choice([2, 4, 8]))
            return b.div(b.add(x, b.constant_like(tile, amount - 1)), b.constant_like(tile, amount))
        if kind == 18:  # by a number that is not known, but a multiple of one that is
            factor = b.constant(value=int(rng.choice([8, 16, 24, -16])), result=I32)
            divisor = b.add(b.mul(self.function.arguments[1], factor), factor)
            return getattr(b, str(rng.choice(["div", "div", "rem"])))(
                x, b.splat(divisor, result=tile)
            )  # type: ignore[no-any-return]
        return b.add(x, y)  # type: ignore[no-any-return]

    def build(self) -> list[Value]:
        """Values to check."""
        self.masks: list[Value] = []
        #: tiles of other shapes
        self.others: list[Value] = []
        self.pool = [self.leaf() for _ in range(5)]
        for _ in range(14):
            self.pool.append(self.step())
        b = self.b
        base = b.splat(self.function.arguments[0], result=TileType(self.shape, PointerType(F16)))
        first = b.addptr(base, self.pick(self.pool))
        self.pointers = [first, b.addptr(first, self.pick(self.pool))]
        return [*self.pool, *self.masks, *self.pointers, *self.others]

    def finish(self, values: list[Value]) -> list[np.ndarray[Any, Any]]:
        """Store each of the values in an array of its own, an argument of the program, and end the
        program."""
        b, arrays = self.b, []
        for value in values:
            stored = (
                b.bitcast(value, result=with_element(value.type, I64))
                if isinstance(element_type(value.type), PointerType)
                else value
            )
            element, shape = element_type(stored.type), shape_of(value.type)
            out = self.function.body.add_argument(PointerType(element))
            self.function.argument_attributes.append({})
            offsets = b.reshape(
                b.arange(start=0, end=int(np.prod(shape))), result=TileType(shape, I32)
            )
            b.store(b.addptr(b.splat(out, result=TileType(shape, out.type)), offsets), stored)
            arrays.append(np.zeros(shape, numpy_dtype(element)))
        b.return_([])
        return arrays
