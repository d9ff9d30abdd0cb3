"""Making small kernels by hand, and applying single operations to arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Location, Module, Region, Value, verify
from tilewright.ir.types import I32, PointerType, TileType, Type, element_type, shape_of
from tilewright.reference.checks.checked_mode import CheckedOptions, CheckError
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import numpy_dtype

#: of the tiles that the short forms of :class:`LineBuilder` make
LANES = 8


class LineBuilder(Builder):
    """A builder whose operations are on numbered lines: ``b.line(7)`` sets the line of what
    follows."""

    __slots__ = ()

    def line(self, number: int, function: str = "kernel", caller: Location | None = None) -> None:
        self.location = Location("kernel.py", number, 4, function, caller)

    def const(self, value: Any, type_: Type = I32) -> Value:
        return self.constant(value=value, result=type_)

    def tile_of(self, value: int | Value) -> Value:
        """``value`` in all lanes of a tile of ``LANES`` i32."""
        return self.splat(
            self.const(value) if isinstance(value, int) else value, result=TileType((LANES,), I32)
        )

    def offsets(self) -> Value:
        """pid * LANES + 0 .. LANES - 1"""
        first = self.mul(self.program_id(axis=0), self.const(LANES))
        return self.add(self.tile_of(first), self.arange(start=0, end=LANES))

    def lanes(self, base: Value, index: Value) -> Value:
        """The pointers ``base + index``."""
        return self.addptr(self.splat(base, result=TileType((LANES,), base.type)), index)

    def below(self, index: Value, bound: int | Value) -> Value:
        return self.cmp(index, self.tile_of(bound), predicate="lt")

    def yielding(self, build: Callable[..., Any], types: Sequence[Type] = ()) -> Region:
        """A region that yields ``build(*arguments)``."""
        region = Region(types)
        with self.at_region(region):
            self.yield_(build(*region.arguments) or [])
        return region

    def nothing(self) -> Region:
        """A region without values or effects."""
        return self.yielding(list)

    def add_up(self, value: Value) -> Value:
        """The sum of a tile of i32."""
        return self.region_op(
            "reduce",
            [value],
            regions=[self.yielding(lambda p, q: [self.add(p, q)], [I32, I32])],
            axis=0,
        ).result

    def running_sum(self, value: Value, reverse: bool) -> Value:
        region = self.yielding(lambda p, q: [self.add(p, q)], [I32, I32])
        return self.region_op("scan", [value], regions=[region], axis=0, reverse=reverse).result

    def doubled(self, value: Value) -> Value:
        """A tile of i32 through a map."""
        return self.region_op(
            "map",
            [value],
            regions=[self.yielding(lambda p: [self.add(p, p)], [I32])],
            results=[value.type],
        ).result


def make_kernel(
    types: Sequence[Type], body: Callable[..., None], names: Sequence[str] = ()
) -> Module:
    """A verified module whose kernel has arguments of ``types`` and the body ``body(builder,
    *arguments)``."""
    module = Module()
    names = list(names) or [f"arg{index}" for index in range(len(types))]
    function = module.add(Function("kernel", types, argument_names=names))
    builder = LineBuilder.at_end(function.body, Location("kernel.py", 1, 4, "kernel"))
    body(builder, *function.arguments)
    builder.return_()
    verify(module)
    return module


def addresses(b: Builder, base: Value, shape: tuple[int, ...]) -> Value:
    """Pointers to the first elements after ``base``, row-major, as a tile of ``shape`` (or ``base``
    itself for ``()``)."""
    if not shape:
        return base
    count = math.prod(shape)
    flat = b.addptr(
        b.splat(base, result=TileType((count,), base.type)), b.arange(start=0, end=count)
    )
    return b.reshape(flat, result=TileType(shape, base.type)) if len(shape) > 1 else flat


def apply_operation(
    build: Callable[..., Any], operands: Sequence[tuple[Any, Type]], **options: Any
) -> Any:
    """Apply ``build(builder, *values)`` to arrays (kept as the interpreter keeps them) of the given
    types; the results come back as arrays."""
    holders: list[Any] = []
    kinds: list[Type] = []

    def body(b: LineBuilder, *arguments: Value) -> None:
        values = [
            b.load(addresses(b, argument, shape_of(type_)))
            for argument, (_, type_) in zip(arguments, operands, strict=False)
        ]
        b.line(2)
        results = build(b, *values)
        for pointer, result in zip(
            arguments[len(operands) :],
            results if isinstance(results, tuple) else (results,),
            strict=True,
        ):
            b.store(addresses(b, pointer, shape_of(result.type)), result)

    # Built once to learn the results' types, and again with pointers for them.
    def probe(b: LineBuilder, *arguments: Value) -> None:
        values = [
            b.load(addresses(b, argument, shape_of(type_)))
            for argument, (_, type_) in zip(arguments, operands, strict=True)
        ]
        results = build(b, *values)
        kinds.extend(
            result.type for result in (results if isinstance(results, tuple) else (results,))
        )

    inputs = [PointerType(element_type(type_)) for _, type_ in operands]
    make_kernel(inputs, probe)
    module = make_kernel([*inputs, *(PointerType(element_type(kind)) for kind in kinds)], body)
    for array, type_ in operands:
        holders.append(
            np.ascontiguousarray(
                np.asarray(array, dtype=numpy_dtype(type_)).reshape(shape_of(type_))
            )
        )
    outputs = [np.zeros(shape_of(kind), dtype=numpy_dtype(kind)) for kind in kinds]
    run(module, [*holders, *outputs], (1, 1, 1), **options)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def check(
    body: Callable[..., None],
    types: Sequence[Type],
    arguments: Sequence[Any],
    grid: Any = (4, 1, 1),
    names: Any = (),
    **options: Any,
) -> list[Any]:
    """Return the findings of the checked mode in a run; an empty list if there are none."""
    module = make_kernel(types, body, names)
    try:
        run(module, list(arguments), grid, checked=CheckedOptions(**options))
    except CheckError as error:
        return list(error.findings)
    return []


def only(findings: Sequence[Any], kind: str, line: int) -> Any:
    """The one finding, of that kind and line."""
    assert [(f.kind, f.location.line) for f in findings] == [(kind, line)], "\n".join(
        map(str, findings)
    )
    return findings[0]


def ints(count: int = 4 * LANES) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.int32)


@pytest.fixture
def kernels() -> SimpleNamespace:
    """``make(types, body, names)``, ``addresses(b, base, shape)``, ``apply(build, operands)``,
    ``run``, ``check``, ``only``, ``ints``."""
    return SimpleNamespace(
        make=make_kernel,
        addresses=addresses,
        apply=apply_operation,
        run=run,
        check=check,
        only=only,
        ints=ints,
    )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240817)


@pytest.fixture(autouse=True)
def _quiet():
    """The expected values of tests overflow on purpose."""
    with np.errstate(all="ignore"):
        yield
