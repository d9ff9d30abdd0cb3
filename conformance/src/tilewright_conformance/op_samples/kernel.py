"""Samples of operations, and the harness that builds one.

A sample is a kernel that loads inputs, applies the operation, and stores the results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ir import Builder, Function, Location, Module, Region, Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DescriptorType,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    shape_of,
    tile_or_scalar,
)
from tilewright.passes.math.float_formats import max_finite, min_exponent
from tilewright.reference.numerics import decode, encode, is_raw, numpy_dtype

Array = NDArray[Any]

WIDE_INTEGERS: tuple[IntType, ...] = (I8, I16, I32, I64, U8, U16, U32, U64)
STANDARD_FLOATS: tuple[FloatType, ...] = (F16, BF16, F32, F64)
FP8_KINDS: tuple[FloatType, ...] = tuple(type_ for type_ in FLOATS if type_.is_fp8)
#: Shapes to choose from in turn.
SHAPES: tuple[tuple[int, ...], ...] = (
    (16,),
    (4, 8),
    (2, 4, 8),
    (64,),
    (1, 16),
    (128,),
    (8, 1),
    (1,),
    (2, 2, 2),
    (32, 4),
)


@dataclass(frozen=True)
class Draw:
    """The distribution of an array's or a scalar's random values.

    Attributes:
        low, high: the closed range; by default all integers, or floats of many magnitudes.
        special: mix in the ends of the range, for floats also zeros, infinities, NaN, the smallest
            and largest numbers.
        integral: floats without a fraction (in the range -4 .. 4 by default), which add and
            multiply exactly in any order.
        array: the values themselves, as a function of the generator and the number of elements.
    """

    low: float | None = None
    high: float | None = None
    special: bool = False
    integral: bool = False
    array: Callable[[np.random.Generator, int], Any] | None = None

    def values(self, rng: np.random.Generator, type_: Type, count: int) -> Array:
        """``count`` values, as the reference keeps them (bf16 and fp8 as bits)."""
        dtype = numpy_dtype(type_)
        if self.array is not None:
            return np.asarray(self.array(rng, count), dtype)
        if type_ is I1:
            return rng.integers(0, 2, count).astype(np.bool_)
        if isinstance(type_, IntType):
            return self._integers(rng, type_, count)
        assert isinstance(type_, FloatType)
        return self._floats(rng, type_, count)

    def _integers(self, rng: np.random.Generator, type_: IntType, count: int) -> Array:
        low = type_.minimum if self.low is None else int(self.low)
        high = type_.maximum if self.high is None else int(self.high)
        dtype = numpy_dtype(type_)
        values = rng.integers(low, high, count, dtype, endpoint=True)
        if self.special or (self.low is None and self.high is None):
            ends = [
                value
                for value in (low, high, 0, 1, -1, low + 1, high - 1, high // 2)
                if low <= value <= high
            ]
            chosen = rng.random(count) < 0.4
            values[chosen] = np.array(ends, dtype)[rng.integers(0, len(ends), int(chosen.sum()))]
        return values

    def _floats(self, rng: np.random.Generator, type_: FloatType, count: int) -> Array:
        largest = max_finite(type_)
        if self.integral:
            low, high = (
                (-4 if self.low is None else int(self.low)),
                (4 if self.high is None else int(self.high)),
            )
            numbers = rng.integers(low, high, count, endpoint=True).astype(np.float64)
        elif self.low is not None and self.high is not None:
            numbers = rng.uniform(self.low, self.high, count)
        elif type_.is_fp8:
            finite = _finite_encodings(type_)
            return finite[rng.integers(0, len(finite), count)]
        else:
            numbers = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
        numbers = np.clip(numbers, -largest, largest)
        if self.special:
            some: list[float] = [
                0.0,
                largest,
                -largest,
                math.ldexp(1.0, min_exponent(type_)),
                1.0,
                -1.0,
                0.5,
                2.5,
                -1.5,
            ]
            if type_.has_negative_zero:
                some.append(-0.0)
            if type_.has_infinity:
                some += [math.inf, -math.inf, math.nan]
            some = [
                value
                for value in some
                if self.low is None or (self.low <= value <= (self.high or 0.0))
            ]
            chosen = rng.random(count) < 0.4
            numbers[chosen] = np.array(some)[rng.integers(0, len(some), int(chosen.sum()))]
        return (
            np.asarray(encode(numbers, type_))
            if is_raw(type_)
            else numbers.astype(numpy_dtype(type_))
        )


@functools.cache
def _finite_encodings(type_: FloatType) -> Array:
    codes = np.arange(256, dtype=np.uint8)
    return codes[np.isfinite(decode(codes, type_))]


ANY = Draw()
ZEROS = Draw(array=lambda rng, count: np.zeros(count))
SPECIAL = Draw(special=True)
INTEGRAL = Draw(integral=True)


@dataclass(frozen=True)
class Argument:
    """One argument of a sample's kernel.

    Attributes:
        kind: ``pointer`` (the argument is an array), ``scalar`` or ``descriptor``.
        type: the element's type.
        shape: the array's shape; ``()`` for a scalar.
        draw: its values before the launch.
        output: whether its values after the launch are a result of the sample.
        block: a descriptor's block shape.
    """

    kind: str
    type: Type
    shape: tuple[int, ...]
    draw: Draw
    output: bool = False
    block: tuple[int, ...] = ()

    def make(self, rng: np.random.Generator) -> Any:
        """The value to launch with: an array, a Python number, or a reference descriptor."""
        values = self.draw.values(rng, self.type, math.prod(self.shape))
        if self.kind == "scalar":
            return (
                decode(values, self.type)[0].item()
                if isinstance(self.type, FloatType) and is_raw(self.type)
                else values[0].item()
            )
        values = values.reshape(self.shape)
        if self.kind == "pointer":
            return values
        from tilewright.reference.interpreter import DescriptorValue

        strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        return DescriptorValue(values, self.shape, strides)


@dataclass(frozen=True)
class Sample:
    """A valid instance of an operation in a kernel of its own.

    Attributes:
        name: ``operation/types/variant``, unique.
        module: the kernel; do not change it in place.
        arguments: what to launch it with, in order.
        integer_exact: whether results that are integers must agree exactly (always so today).
        ulp: how many units in the last place float results may differ.
        grid: the launch grid.
        runnable: False where the operation names something of a target's own (assembly, a library),
            so that only its form can be tested.
    """

    name: str
    module: Module
    arguments: tuple[Argument, ...]
    integer_exact: bool = True
    ulp: float = 0.0
    grid: tuple[int, int, int] = (1, 1, 1)
    runnable: bool = True

    @property
    def outputs(self) -> tuple[int, ...]:
        """The positions of the arguments that hold results."""
        return tuple(index for index, argument in enumerate(self.arguments) if argument.output)

    def make_arguments(self, rng: np.random.Generator) -> list[Any]:
        """Make fresh arguments: arrays (bf16 and fp8 as bits), Python numbers, descriptors."""
        return [argument.make(rng) for argument in self.arguments]


class SampleKernel:
    """Builds a sample. ``b`` is the builder, at the end of the kernel's body."""

    def __init__(self, name: str, *, grid: tuple[int, int, int] = (1, 1, 1)) -> None:
        self.name, self.grid = name, grid
        self.module = Module()
        self.function = self.module.add(Function("kernel", (), location=Location("samples.py", 1)))
        self.b = Builder.at_end(self.function.body, Location("samples.py", 2, 4, name))
        self.arguments: list[Argument] = []
        self._offsets: dict[tuple[int, ...], Value] = {}

    def _argument(self, argument: Argument, type_: Type, name: str) -> Value:
        self.arguments.append(argument)
        self.function.argument_attributes.append({})
        return self.function.body.add_argument(type_, name)

    def pointer(
        self, element: Type, shape: Sequence[int], draw: Draw = ANY, *, output: bool = False
    ) -> Value:
        """A pointer argument to an array."""
        name = f"{'out' if output else 'x'}{len(self.arguments)}"
        return self._argument(
            Argument("pointer", element, tuple(shape), draw, output), PointerType(element), name
        )

    def scalar(self, type_: Type, draw: Draw = ANY) -> Value:
        """A scalar argument."""
        return self._argument(Argument("scalar", type_, (), draw), type_, f"s{len(self.arguments)}")

    def descriptor(
        self,
        element: Type,
        shape: Sequence[int],
        block: Sequence[int],
        draw: Draw = ANY,
        *,
        output: bool = False,
    ) -> Value:
        """A descriptor argument of a dense tensor."""
        argument = Argument("descriptor", element, tuple(shape), draw, output, tuple(block))
        return self._argument(
            argument, DescriptorType(tuple(block), element), f"d{len(self.arguments)}"
        )

    def offsets(self, shape: Sequence[int]) -> Value:
        """The row-major positions 0, 1, 2 ... as an i32 tile."""
        shape = tuple(shape)
        known = self._offsets.get(shape)
        if known is None:
            flat = self.b.arange(start=0, end=math.prod(shape))
            known = flat if len(shape) == 1 else self.b.reshape(flat, result=TileType(shape, I32))
            if self.b.region is self.function.body:  # not visible outside of other regions
                self._offsets[shape] = known
        return known

    def pointers(self, pointer: Value, shape: Sequence[int]) -> Value:
        """The addresses of a dense row-major array's elements."""
        if not shape:
            return pointer
        tile = self.b.splat(pointer, result=TileType(tuple(shape), pointer.type))
        moved: Value = self.b.addptr(tile, self.offsets(shape))
        return moved

    def load(self, element: Type, shape: Sequence[int] = (), draw: Draw = ANY) -> Value:
        """A tile (a scalar for the empty shape) read from an array argument of its own."""
        pointer = self.pointer(element, shape or (1,), draw)
        value: Value = self.b.load(self.pointers(pointer, shape))
        return value

    def store(self, value: Value, mask: Value | None = None) -> None:
        """Write a result to an array argument of its own."""
        shape = shape_of(value.type)
        element = value.type.element if isinstance(value.type, TileType) else value.type
        pointer = self.pointer(element, shape or (1,), ZEROS, output=True)
        self.b.store(self.pointers(pointer, shape), value, mask=mask)

    def constant(self, type_: Type, value: float) -> Value:
        return self.b.constant_like(type_, value)

    def region(
        self,
        arguments: Sequence[Type],
        body: Callable[..., Any],
        terminator: str = "yield",
        names: Sequence[str] = (),
    ) -> Region:
        """Build a region with ``body(*arguments)`` in it, which ends with the values of ``body``.

        These are None, one value, or several.
        """
        region = Region(arguments, names)
        with self.b.at_region(region):
            found = body(*region.arguments)
            values = [] if found is None else [found] if isinstance(found, Value) else list(found)
            if terminator == "condition":
                self.b.condition(values[0], values[1:])
            else:
                self.b.yield_(values)
        return region

    def finish(self, *, ulp: float = 0.0, runnable: bool = True) -> Sample:
        """End the kernel."""
        self.b.return_([])
        return Sample(self.name, self.module, tuple(self.arguments), True, ulp, self.grid, runnable)


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def shapes_for(index: int) -> tuple[tuple[int, ...], ...]:
    """A scalar and one of the tile shapes, in turn."""
    return (), SHAPES[index % len(SHAPES)]


__all__ = [
    "ANY",
    "FP8_KINDS",
    "INTEGRAL",
    "SHAPES",
    "SPECIAL",
    "STANDARD_FLOATS",
    "WIDE_INTEGERS",
    "ZEROS",
    "Argument",
    "Draw",
    "Sample",
    "SampleKernel",
    "shape_text",
    "shapes_for",
    "tile_or_scalar",
]
