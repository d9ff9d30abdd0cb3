"""The standard passes keep the meaning of programs: samples of every operation and random programs,
before and after, on the reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir import TABLE, Module, Value, verify
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U32,
    FloatType,
    IntType,
    TileType,
    Type,
    element_type,
    shape_of,
    tile_or_scalar,
    with_element,
)
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.inline import inline
from tilewright.passes.licm import licm
from tilewright.passes.pipeline import STANDARD, Pass
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import Sample, check_outputs, samples
from tilewright_conformance.op_samples.kernel import INTEGRAL, SPECIAL, Draw, SampleKernel

SEEDS = range(120)


def launch(sample: Sample, module: Module, seed: int) -> list[Any]:
    arguments = sample.make_arguments(np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(module, arguments, sample.grid, printer=lambda line: None)
    return arguments


def check(sample: Sample, passes: tuple[Pass, ...], seeds: tuple[int, ...] = (1,)) -> Module:
    changed = parse_module(print_module(sample.module))
    run_passes(changed, passes, verify_each=True)
    for seed in seeds:
        check_outputs(sample, launch(sample, sample.module, seed), launch(sample, changed, seed))
    return changed


@pytest.mark.sampled(44)
@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_samples(name: str) -> None:
    for sample in samples(name):
        if sample.runnable:
            check(sample, STANDARD)


def test_samples_with_calls_inlined() -> None:
    for sample in samples("call"):
        module = check(sample, (inline, *STANDARD), (1, 2, 3))
        assert list(module.functions) == ["kernel"]


class Program:
    """A random program: few types and shapes, many constants, so that laws apply; nothing
    undefined."""

    SHAPES: tuple[tuple[int, ...], ...] = ((), (8,), (4, 8))
    TYPES: tuple[Type, ...] = (I1, I8, I32, U32, I64, F32, F16)

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kernel = SampleKernel(f"random/{seed}")
        self.b = self.kernel.b
        self.pool: list[Value] = []
        for type_ in self.TYPES:
            for shape in self.SHAPES:
                draw = SPECIAL if isinstance(type_, FloatType) else Draw(special=True)
                self.pool.append(self.kernel.load(type_, shape, draw))
        self.memory = self.kernel.pointer(F32, (64,), INTEGRAL, output=True)
        self.depth = 0

    def choose(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def value(
        self, type_: Type | None = None, kind: Callable[[Value], bool] = lambda value: True
    ) -> Value:
        """A value of the type, or one for which ``kind`` holds: often a recent one, sometimes a
        constant."""
        found = [
            value for value in self.pool if (type_ is None or value.type is type_) and kind(value)
        ]
        if type_ is not None and (not found or self.rng.random() < 0.35):
            return self.constant(type_)
        return found[max(self.rng.integers(len(found)), self.rng.integers(len(found)))]

    def constant(self, type_: Type) -> Value:
        element = element_type(type_)
        if isinstance(element, FloatType):
            return self.b.constant_like(
                type_, self.choose(0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, float("inf"), float("nan"))
            )
        assert isinstance(element, IntType)
        return self.b.constant_like(
            type_, self.choose(0, 0, 1, 1, 2, 3, 7, element.minimum, element.maximum)
        )

    def add(self, value: Any) -> None:
        for result in value if isinstance(value, tuple | list) else (value,):
            self.pool.append(result)

    # Steps, each adding to the pool.

    def binary(self) -> None:
        x = self.value()
        y, b = self.value(x.type), self.b
        element = element_type(x.type)
        if element is I1:
            self.add(self.choose(b.and_, b.or_, b.xor)(x, y))
        elif isinstance(element, FloatType):
            self.add(self.choose(b.add, b.sub, b.mul, b.div)(x, y))
        else:
            self.add(self.choose(b.add, b.sub, b.mul, b.and_, b.or_, b.xor, b.min, b.max)(x, y))

    def divide(self) -> None:
        x = self.value(
            kind=lambda value: (
                isinstance(element_type(value.type), IntType) and element_type(value.type) is not I1
            )
        )
        low = self.b.and_(self.value(x.type), self.b.constant_like(x.type, 6))
        positive = self.choose(
            self.b.or_(low, self.b.constant_like(x.type, 1)),
            self.b.constant_like(x.type, self.choose(1, 2, 5)),
        )
        self.add(self.choose(self.b.div, self.b.rem)(x, positive))

    def shift(self) -> None:
        x = self.value(
            kind=lambda value: (
                isinstance(element_type(value.type), IntType) and element_type(value.type) is not I1
            )
        )
        self.add(
            self.choose(self.b.shl, self.b.shr)(
                x, self.b.and_(self.value(x.type), self.b.constant_like(x.type, 7))
            )
        )

    def unary(self) -> None:
        x, b = self.value(kind=lambda value: element_type(value.type) is not I1), self.b
        element = element_type(x.type)
        if element is F32:
            self.add(self.choose(b.neg, b.abs, b.sqrt, b.floor, b.trunc)(x))
        else:
            self.add(self.choose(b.neg, b.abs)(x))

    def fused(self) -> None:
        x = self.value(kind=lambda value: isinstance(element_type(value.type), FloatType))
        self.add(self.b.fma(x, self.value(x.type), self.value(x.type)))

    def compare(self) -> None:
        x = self.value()
        y = self.choose(x, self.value(x.type), self.value(x.type))
        self.add(self.b.cmp(x, y, predicate=self.choose("eq", "ne", "lt", "le", "gt", "ge")))

    def select(self) -> None:
        x = self.value()
        self.add(
            self.b.select(
                self.value(with_element(x.type, I1)), x, self.choose(x, self.value(x.type))
            )
        )

    def cast(self) -> None:
        x = self.value()
        if isinstance(element_type(x.type), FloatType):
            target = self.choose(F32, F16, F64, I1)
            back = self.b.cast(x, result=with_element(x.type, target))
            self.add(self.b.cast(back, result=with_element(x.type, F16 if target is F64 else F32)))
        else:
            middle = self.b.cast(
                x, result=with_element(x.type, self.choose(I1, I8, I32, U32, I64, F32, F64))
            )
            self.add(
                middle
                if element_type(middle.type) is not F64
                else self.b.cast(middle, result=with_element(x.type, F32))
            )
            if isinstance(element_type(middle.type), IntType):
                self.add(
                    self.b.cast(middle, result=with_element(x.type, self.choose(I8, I32, I64)))
                )

    def shape(self) -> None:
        x, b = self.value(kind=lambda value: bool(shape_of(value.type))), self.b
        assert isinstance(x.type, TileType)
        element = x.type.element
        other = (4, 8) if x.type.shape == (8,) else (8,)
        if x.type.shape == (8,):
            wide = b.expand_dims(x, axis=0)
            self.add(
                b.broadcast(b.broadcast(wide, result=wide.type), result=TileType(other, element))
            )
        else:
            turned = b.permute(b.permute(x, order=(1, 0)), order=self.choose((1, 0), (0, 1)))
            flat = b.reshape(turned, result=TileType((32,), element))
            self.add(b.reshape(flat, result=x.type))
            halves = b.split(b.reshape(x, result=TileType((16, 2), element)))
            self.add(b.reshape(b.join(halves[0], halves[1]), result=x.type))

    def splat(self) -> None:
        x = self.value(kind=lambda value: not shape_of(value.type))
        self.add(self.b.splat(x, result=TileType(self.choose((8,), (4, 8)), x.type)))

    def reduce(self) -> None:
        x = self.value(
            kind=lambda value: (
                bool(shape_of(value.type)) and isinstance(element_type(value.type), IntType)
            )
        )
        element = element_type(x.type)
        combine = self.b.xor if element is I1 else self.choose(self.b.add, self.b.max, self.b.xor)
        region = self.kernel.region((element, element), combine)
        self.add(self.b.region_op("reduce", [x], regions=[region], axis=0).results)

    def place(self, shape: tuple[int, ...]) -> Value:
        """Addresses within the memory."""
        offset = self.b.and_(
            self.value(tile_or_scalar(shape, I32)),
            self.b.constant_like(tile_or_scalar(shape, I32), 63),
        )
        base = (
            self.b.splat(self.memory, result=TileType(shape, self.memory.type))
            if shape
            else self.memory
        )
        return self.b.addptr(base, offset)  # type: ignore[no-any-return]

    def load(self) -> None:
        shape = self.choose(*self.SHAPES)
        mask = self.value(tile_or_scalar(shape, I1))
        other = self.value(tile_or_scalar(shape, F32))
        self.add(
            self.b.load(self.place(shape), mask=mask, other=other)
            if self.rng.random() < 0.6
            else self.b.load(self.place(shape))
        )

    def store(self) -> None:
        mask = self.value(I1) if self.rng.random() < 0.5 else None
        self.b.store(self.place(()), self.value(F32), mask=mask)

    def inside(self, arguments: tuple[Type, ...], results: tuple[Type, ...]) -> Any:
        """A region of a few steps that yields values of the given types."""
        saved = len(self.pool)

        def body(*values: Value) -> list[Value]:
            self.pool += values
            self.steps(int(self.rng.integers(1, 5)))
            return [self.value(type_) for type_ in results]

        region = self.kernel.region(arguments, body)
        del self.pool[saved:]
        return region

    def conditional(self) -> None:
        results = tuple(self.value().type for _ in range(self.rng.integers(0, 3)))
        regions = [self.inside((), results), self.inside((), results)]
        self.add(self.b.region_op("if", self.value(I1), regions=regions, results=results).results)

    def loop(self) -> None:
        inits = [self.value() for _ in range(self.rng.integers(0, 4))]
        types = tuple(value.type for value in inits)
        counter = self.choose(I32, U32, I64)
        lower, upper, step = self.choose((0, 3, 1), (0, 1, 1), (2, 2, 1), (1, 6, 4), (0, 2, 5))
        body = self.inside((counter, *types), types)
        bounds = [self.b.constant(value=value, result=counter) for value in (lower, upper, step)]
        self.add(self.b.region_op("for", *bounds, inits, regions=[body]).results)

    def steps(self, count: int) -> None:
        simple = [self.binary] * 4 + [
            self.divide,
            self.shift,
            self.unary,
            self.fused,
            self.compare,
            self.select,
            self.select,
            self.cast,
            self.cast,
        ]
        simple += [self.shape, self.splat, self.reduce, self.load, self.load, self.store]
        self.depth += 1
        for _ in range(count):
            self.choose(*simple, *([self.conditional, self.loop] * (3 if self.depth < 4 else 0)))()
        self.depth -= 1

    def finish(self) -> Sample:
        self.steps(25)
        start = len(self.TYPES) * len(self.SHAPES)
        for value in self.pool[start:]:
            if self.rng.random() < 0.5:
                self.kernel.store(value)
        return self.kernel.finish()


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    sample = Program(seed).finish()
    verify(sample.module)
    check(sample, STANDARD, (seed, seed + 1))
    if seed % 4 == 0:
        for pass_ in (canonicalize, cse, dce, licm):
            check(sample, (pass_,))


def test_random_programs_shrink() -> None:
    """The programs above do meet the passes: a good part of their operations goes."""
    before = after = 0
    for seed in range(20):
        sample = Program(seed).finish()
        changed = parse_module(print_module(sample.module))
        run_passes(changed)
        before += sum(1 for _ in sample.module.walk())
        after += sum(1 for _ in changed.walk())
    assert after < 0.75 * before
